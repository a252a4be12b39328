//! Anthropic's interface: `/v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use akunu::{FinishReason, Settings, Statistics};
use akunu_text::chat::{Channel, Message};
use axum::Json;
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::app::Call;
use crate::ask::{Prompt, Question, Wire, prompt_of, sampling, stream, whole};
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::models::Served;
use crate::openai::new_id;
use crate::thinking::{Said, Thinking};

/// `POST /v1/messages`
pub(crate) async fn messages(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref()).await?;
    let prompt = prompt(fields, &served)?;
    let stop = fields.strings("stop_sequences")?;
    let settings = Settings {
        max_tokens: Some(fields.need("max_tokens")?),
        sampling: sampling(fields, &served)?,
        stop: stop.clone(),
        ..Settings::default()
    };
    let streamed = fields.take("stream")?.unwrap_or(false);
    fields.end()?;

    let answer = Question::new(&call.app, Arc::clone(&served), prompt, settings, streamed)?.ask(&call)?;
    let prompt_tokens = answer.statistics.prompt_tokens;
    let reply =
        Reply { id: new_id("msg_"), served, stop, prompt_tokens, blocks: 0, open: None, finished: None };
    if streamed {
        return Ok(stream(answer, reply));
    }
    let (mut choices, taken) = answer.collect(1).await?;
    let choice = choices.swap_remove(0);
    let (reason, sequence) = reply.stop_reason(choice.reason);
    let mut content = vec![json!({"type": "text", "text": choice.text})];
    if !choice.reasoning.is_empty() {
        content.insert(0, json!({"type": "thinking", "thinking": choice.reasoning, "signature": ""}));
    }
    let mut message = reply.message(&json!(content));
    message["stop_reason"] = reason;
    message["stop_sequence"] = sequence;
    message["usage"] = usage(&taken.statistics);
    Ok(whole(&message))
}

/// `POST /v1/messages/count_tokens`
pub(crate) async fn count_tokens(mut call: Call) -> Result<Json<Value>, ApiError> {
    let served = call.app.models.find(call.fields.take::<String>("model")?.as_deref()).await?;
    let prompt = prompt(&mut call.fields, &served)?;
    call.fields.end()?;
    Ok(Json(json!({"input_tokens": prompt.tokens.len()})))
}

/// The conversation as the model reads it.
fn prompt(fields: &mut Fields, served: &Served) -> Result<Prompt, ApiError> {
    let conversation = conversation(fields)?;
    let thinking = thinking(fields)?;
    let variables = match &served.template {
        Some(template) => thinking.variables(template, None, "thinking")?,
        None => Map::new(),
    };
    prompt_of(served, &conversation, Some(&variables), thinking)
}

/// Whether the model should think. A budget for it is read and not kept to: how long a model thinks is its own affair.
fn thinking(fields: &mut Fields) -> Result<Thinking, ApiError> {
    let Some(mut thinking) = fields.object("thinking")? else { return Ok(Thinking::default()) };
    let wanted = match thinking.need::<String>("type")?.as_str() {
        "enabled" => Some(true),
        "disabled" => Some(false),
        "adaptive" => None,
        other => return Err(ApiError::field("thinking.type", format!("is not known: \"{other}\""))),
    };
    thinking.take::<u64>("budget_tokens")?;
    thinking.take::<String>("display")?;
    thinking.end()?;
    Ok(Thinking { wanted, ..Thinking::default() })
}

/// The system prompt, if there is one, and the messages.
fn conversation(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let mut conversation = Vec::new();
    match fields.take::<Value>("system")? {
        None => {}
        Some(Value::String(text)) => conversation.push(Message::system(text)),
        Some(Value::Array(blocks)) => {
            let text = |block: &Value| Some(block.get("text")?.as_str()?.to_owned());
            let texts: Option<Vec<String>> = blocks.iter().map(text).collect();
            let texts = texts.ok_or_else(|| ApiError::field("system", "must be text or blocks of text"))?;
            conversation.push(Message::system(texts.join("\n\n")));
        }
        Some(_) => return Err(ApiError::field("system", "must be text or blocks of text")),
    }
    conversation.extend(fields.messages("messages")?);
    if let Some(i) =
        conversation.iter().position(|m| !["system", "user", "assistant"].contains(&m.role.as_str()))
    {
        return Err(ApiError::field(
            "messages",
            format!("has an unknown role: \"{}\"", conversation[i].role),
        ));
    }
    if conversation.last().is_some_and(|last| last.role == "assistant") {
        let problem = "must end with the user's: answers cannot be begun for the model yet";
        return Err(ApiError::unsupported("messages", problem));
    }
    let none = [json!([]), json!({"type": "none"})];
    for name in ["tools", "tool_choice"] {
        fields.refuse(name, &none, "is not available yet: this server does not call tools")?;
    }
    Ok(conversation)
}

fn usage(statistics: &Statistics) -> Value {
    json!({
        "input_tokens": statistics.prompt_tokens - statistics.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": statistics.cached_tokens,
        "output_tokens": statistics.generated_tokens,
    })
}

/// An answer in Anthropic's words.
struct Reply {
    id: String,
    served: Arc<Served>,
    stop: Vec<String>,
    prompt_tokens: usize,
    /// Blocks of content that were begun.
    blocks: usize,
    /// What the block is that has not ended.
    open: Option<Channel>,
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

    fn stop_reason(&self, reason: Option<FinishReason>) -> (Value, Value) {
        match reason {
            Some(FinishReason::StopString(index)) => (json!("stop_sequence"), json!(self.stop.get(index))),
            Some(FinishReason::Length) => (json!("max_tokens"), Value::Null),
            _ => (json!("end_turn"), Value::Null),
        }
    }
}

impl Reply {
    /// Goes on in a block of this kind: thoughts and text have their own.
    fn enter(&mut self, channel: Channel, out: &mut String) {
        if self.open == Some(channel) {
            return;
        }
        self.leave(out);
        let block = match channel {
            Channel::Answer => json!({"type": "text", "text": ""}),
            Channel::Reasoning => json!({"type": "thinking", "thinking": "", "signature": ""}),
        };
        event(out, &json!({"type": "content_block_start", "index": self.blocks, "content_block": block}));
        self.blocks += 1;
        self.open = Some(channel);
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
            Said::Text { channel, text, .. } => {
                self.enter(channel, out);
                let delta = match channel {
                    Channel::Answer => json!({"type": "text_delta", "text": text}),
                    Channel::Reasoning => json!({"type": "thinking_delta", "thinking": text}),
                };
                let index = self.blocks - 1;
                event(out, &json!({"type": "content_block_delta", "index": index, "delta": delta}));
            }
            Said::Finished { reason, .. } => {
                // There is always a text, be it empty.
                self.enter(Channel::Answer, out);
                self.leave(out);
                self.finished = Some(reason);
            }
            Said::Done(taken) => {
                let (reason, sequence) = self.stop_reason(self.finished);
                let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
                let usage = usage(&taken.statistics);
                event(out, &json!({"type": "message_delta", "delta": delta, "usage": usage}));
                event(out, &json!({"type": "message_stop"}));
            }
            Said::Failed(error) => event(out, &ApiError::from(error).body(Dialect::Anthropic)),
        }
    }
}
