//! Anthropic's interface: `/v1/messages` and `/v1/messages/count_tokens`.

use std::sync::Arc;

use akunu::scheduler::Event;
use akunu::{FinishReason, Settings, Statistics};
use akunu_text::chat::Message;
use axum::Json;
use axum::response::Response;
use serde_json::{Value, json};

use crate::app::Call;
use crate::ask::{Question, Wire, prompt_of, sampling, stream, whole};
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::models::Served;
use crate::openai::new_id;

/// `POST /v1/messages`
pub(crate) async fn messages(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref())?;
    let conversation = conversation(fields)?;
    let stop = fields.strings("stop_sequences")?;
    let settings = Settings {
        max_tokens: Some(fields.need("max_tokens")?),
        sampling: sampling(fields, &served)?,
        stop: stop.clone(),
        ..Settings::default()
    };
    let streamed = fields.take("stream")?.unwrap_or(false);
    fields.end()?;

    let prompt = prompt_of(&served, &conversation, None)?;
    let answer = Question::new(&call.app, Arc::clone(&served), prompt, settings, streamed)?.ask(&call)?;
    let prompt_tokens = answer.statistics.prompt_tokens;
    let reply = Reply { id: new_id("msg_"), served, stop, prompt_tokens, finished: None };
    if streamed {
        return Ok(stream(answer, reply));
    }
    let (mut choices, statistics) = answer.collect(1).await?;
    let choice = choices.swap_remove(0);
    let (reason, sequence) = reply.stop_reason(choice.reason);
    let mut message = reply.message(&json!([{"type": "text", "text": choice.text}]));
    message["stop_reason"] = reason;
    message["stop_sequence"] = sequence;
    message["usage"] = usage(&statistics);
    Ok(whole(&message))
}

/// `POST /v1/messages/count_tokens`
pub(crate) async fn count_tokens(mut call: Call) -> Result<Json<Value>, ApiError> {
    let served = call.app.models.find(call.fields.take::<String>("model")?.as_deref())?;
    let conversation = conversation(&mut call.fields)?;
    call.fields.end()?;
    let prompt = prompt_of(&served, &conversation, None)?;
    Ok(Json(json!({"input_tokens": prompt.len()})))
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
    fields.refuse("thinking", &[json!({"type": "disabled"})], "is not available yet")?;
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

/// One named event.
fn event(out: &mut String, value: &Value) {
    out.push_str("event: ");
    out.push_str(value["type"].as_str().unwrap_or_default());
    out.push('\n');
    crate::ask::sse(out, value);
}

impl Wire for Reply {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn write(&mut self, happened: Event, out: &mut String) {
        match happened {
            Event::Started { cached_tokens, .. } => {
                let mut message = self.message(&json!([]));
                message["usage"] = usage(&Statistics {
                    prompt_tokens: self.prompt_tokens,
                    cached_tokens,
                    ..Statistics::default()
                });
                event(out, &json!({"type": "message_start", "message": message}));
                let block = json!({"type": "text", "text": ""});
                event(out, &json!({"type": "content_block_start", "index": 0, "content_block": block}));
            }
            Event::Piece { piece, .. } if piece.text.is_empty() => {}
            Event::Piece { piece, .. } => {
                let delta = json!({"type": "text_delta", "text": piece.text});
                event(out, &json!({"type": "content_block_delta", "index": 0, "delta": delta}));
            }
            Event::Finished { reason, .. } => {
                event(out, &json!({"type": "content_block_stop", "index": 0}));
                self.finished = Some(reason);
            }
            Event::Done(statistics) => {
                let (reason, sequence) = self.stop_reason(self.finished);
                let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
                event(out, &json!({"type": "message_delta", "delta": delta, "usage": usage(&statistics)}));
                event(out, &json!({"type": "message_stop"}));
            }
            Event::Failed(error) => event(out, &ApiError::from(error).body(Dialect::Anthropic)),
        }
    }
}
