//! Anthropic's interface: `/v1/messages` and `/v1/messages/count_tokens`.

use std::num::NonZeroU32;
use std::sync::Arc;

use akunu::{FinishReason, Settings, Statistics};
use akunu_text::chat::{Channel, Message};
use axum::Json;
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::app;
use crate::ask::{Question, Wire, sampling, stream, whole};
use crate::calls::{self, Call, Calls, Part};
use crate::conversation::Conversation;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::openai::new_id;
use crate::resident::Served;
use crate::thinking::{Said, Thinking};
use crate::tools::{self, Tools};

/// The highest temperature.
const HOTTEST: f32 = 1.0;

/// `POST /v1/messages`
pub(crate) async fn messages(mut call: app::Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref()).await?;
    let conversation = conversation(fields)?;
    let stop = fields.strings("stop_sequences")?;
    let mut settings = Settings {
        max_tokens: Some(fields.need("max_tokens")?),
        sampling: sampling(fields, &served, HOTTEST)?,
        stop: stop.clone(),
        ..Settings::default()
    };
    let streamed = fields.take("stream")?.unwrap_or(false);
    fields.end()?;

    let prompt = conversation.prompt(&served, &mut settings)?;
    let syntax = prompt.calls;
    let answer =
        Question::new(&call.app, Arc::clone(&served), prompt, settings, streamed)?.ask(&call).await?;
    let prompt_tokens = answer.statistics.prompt_tokens;
    let reply = Reply {
        id: new_id("msg_"),
        served,
        stop,
        prompt_tokens,
        calls: Calls::new(syntax, 1),
        blocks: 0,
        open: None,
        finished: None,
    };
    if streamed {
        return Ok(stream(answer, reply));
    }
    let (mut choices, taken) = answer.collect(1).await?;
    let choice = choices.swap_remove(0);
    let (text, calls) = calls::read_whole(syntax, choice.text, choice.reason);
    let (reason, sequence) = reply.stop_reason(choice.reason, !calls.is_empty());
    let mut content: Vec<Value> = calls.iter().map(tool_use).collect();
    if !text.is_empty() || content.is_empty() {
        content.insert(0, json!({"type": "text", "text": text}));
    }
    if !choice.reasoning.is_empty() {
        content.insert(0, json!({"type": "thinking", "thinking": choice.reasoning, "signature": ""}));
    }
    let mut message = reply.message(&json!(content));
    message["stop_reason"] = reason;
    message["stop_sequence"] = sequence;
    message["usage"] = usage(&taken.statistics);
    Ok(whole(&message))
}

fn tool_use(call: &Call) -> Value {
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments()})
}

/// `POST /v1/messages/count_tokens`
pub(crate) async fn count_tokens(mut call: app::Call) -> Result<Json<Value>, ApiError> {
    let served = call.app.models.find(call.fields.take::<String>("model")?.as_deref()).await?;
    let fields = &mut call.fields;
    let conversation = conversation(fields)?;
    fields.end()?;
    let prompt = conversation.prompt(&served, &mut Settings::default())?;
    Ok(Json(json!({"input_tokens": prompt.tokens.len()})))
}

/// Whether the model should think, and for how many tokens at most.
fn thinking(fields: &mut Fields) -> Result<Thinking, ApiError> {
    let Some(mut thinking) = fields.object("thinking")? else { return Ok(Thinking::default()) };
    let wanted = match thinking.need::<String>("type")?.as_str() {
        "enabled" => Some(true),
        "disabled" => Some(false),
        "adaptive" => None,
        other => return Err(ApiError::field("thinking.type", format!("is not known: \"{other}\""))),
    };
    let budget = thinking.take::<NonZeroU32>("budget_tokens")?;
    thinking.take::<String>("display")?;
    thinking.end()?;
    Ok(Thinking { wanted, budget, ..Thinking::default() })
}

/// The system prompt, if there is one, and the messages. The answer goes on with a last message of the assistant's.
fn conversation(fields: &mut Fields) -> Result<Conversation, ApiError> {
    let mut messages = Vec::new();
    match fields.take::<Value>("system")? {
        None => {}
        Some(Value::String(text)) => messages.push(Message::system(text)),
        Some(Value::Array(blocks)) => {
            let text = |block: &Value| Some(block.get("text")?.as_str()?.to_owned());
            let texts: Option<Vec<String>> = blocks.iter().map(text).collect();
            let texts = texts.ok_or_else(|| ApiError::field("system", "must be text or blocks of text"))?;
            messages.push(Message::system(texts.join("\n\n")));
        }
        Some(_) => return Err(ApiError::field("system", "must be text or blocks of text")),
    }
    let said = tools::without_tool_blocks(fields.need("messages")?)?;
    messages.extend(Fields::of("messages", Value::Array(said)).messages("messages")?);
    let known = ["system", "user", "assistant", "tool"];
    if let Some(other) = messages.iter().find(|message| !known.contains(&message.role.as_str())) {
        return Err(ApiError::field("messages", format!("has an unknown role: \"{}\"", other.role)));
    }
    Ok(Conversation {
        continues: Conversation::ends_with_assistant(&messages),
        messages,
        tools: Tools::anthropic(fields)?,
        thinking: thinking(fields)?,
        thinking_field: "thinking",
        variables: Map::new(),
    })
}

fn usage(statistics: &Statistics) -> Value {
    json!({
        "input_tokens": statistics.prompt_tokens - statistics.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": statistics.cached_tokens,
        "output_tokens": statistics.generated_tokens,
    })
}

/// What a block of content is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Said(Channel),
    Call,
}

/// An answer in Anthropic's words.
struct Reply {
    id: String,
    served: Arc<Served>,
    stop: Vec<String>,
    prompt_tokens: usize,
    calls: Calls,
    /// Blocks of content that were begun.
    blocks: usize,
    /// What the block is that has not ended.
    open: Option<Block>,
    finished: Option<FinishReason>,
}

impl Reply {
    fn message(&self, content: &Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.served.id,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
        })
    }

    fn stop_reason(&self, reason: Option<FinishReason>, called: bool) -> (Value, Value) {
        match reason {
            Some(FinishReason::Stop) if called => (json!("tool_use"), Value::Null),
            Some(FinishReason::StopString(index)) => (json!("stop_sequence"), json!(self.stop.get(index))),
            Some(FinishReason::Length) => (json!("max_tokens"), Value::Null),
            _ => (json!("end_turn"), Value::Null),
        }
    }
}

impl Reply {
    /// Goes on in a block of this kind: thoughts and text have their own.
    fn enter(&mut self, channel: Channel, out: &mut String) {
        if self.open == Some(Block::Said(channel)) {
            return;
        }
        let block = match channel {
            Channel::Answer => json!({"type": "text", "text": ""}),
            Channel::Reasoning => json!({"type": "thinking", "thinking": "", "signature": ""}),
        };
        self.begin(&block, Block::Said(channel), out);
    }

    /// Begins a block, after the one before it.
    fn begin(&mut self, block: &Value, kind: Block, out: &mut String) {
        self.leave(out);
        event(out, &json!({"type": "content_block_start", "index": self.blocks, "content_block": block}));
        self.blocks += 1;
        self.open = Some(kind);
    }

    fn delta(&self, delta: &Value, out: &mut String) {
        let index = self.blocks.saturating_sub(1);
        event(out, &json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    /// What parts of an answer add: texts and calls are blocks of their own.
    fn parts(&mut self, parts: Vec<Part>, out: &mut String) {
        for part in parts {
            match part {
                Part::Text(text) => {
                    self.enter(Channel::Answer, out);
                    self.delta(&json!({"type": "text_delta", "text": text}), out);
                }
                Part::Call { id, name, .. } => {
                    let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                    self.begin(&block, Block::Call, out);
                }
                Part::Arguments { text, .. } => {
                    self.delta(&json!({"type": "input_json_delta", "partial_json": text}), out);
                }
            }
        }
    }

    fn leave(&mut self, out: &mut String) {
        if self.open.take().is_some() {
            event(out, &json!({"type": "content_block_stop", "index": self.blocks - 1}));
        }
    }
}

/// One named event.
fn event(out: &mut String, value: &Value) {
    out.push_str("event: ");
    out.push_str(value["type"].as_str().unwrap_or_default());
    out.push('\n');
    crate::ask::sse(out, value);
}

impl Wire for Reply {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn write(&mut self, said: Said, out: &mut String) {
        match said {
            Said::Started { cached_tokens } => {
                let mut message = self.message(&json!([]));
                message["usage"] = usage(&Statistics {
                    prompt_tokens: self.prompt_tokens,
                    cached_tokens,
                    ..Statistics::default()
                });
                event(out, &json!({"type": "message_start", "message": message}));
            }
            Said::Text { text, .. } if text.is_empty() => {}
            Said::Text { channel: Channel::Reasoning, text, .. } => {
                self.enter(Channel::Reasoning, out);
                self.delta(&json!({"type": "thinking_delta", "thinking": text}), out);
            }
            Said::Text { channel: Channel::Answer, text, .. } => {
                let parts = self.calls.push(0, text);
                self.parts(parts, out);
            }
            Said::Finished { reason, .. } => {
                let parts = self.calls.finish(0, reason);
                self.parts(parts, out);
                if !self.calls.called(0) {
                    // There is always a text then, be it empty.
                    self.enter(Channel::Answer, out);
                }
                self.leave(out);
                self.finished = Some(reason);
            }
            Said::Done(taken) => {
                let (reason, sequence) = self.stop_reason(self.finished, self.calls.called(0));
                let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
                let usage = usage(&taken.statistics);
                event(out, &json!({"type": "message_delta", "delta": delta, "usage": usage}));
                event(out, &json!({"type": "message_stop"}));
            }
            Said::Failed(error) => event(out, &ApiError::from(error).body(Dialect::Anthropic)),
        }
    }
}
