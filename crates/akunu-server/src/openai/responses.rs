//! `POST /v1/responses`, without memory: every request brings its whole conversation.

use std::sync::Arc;

use akunu::scheduler::Event;
use akunu::{FinishReason, Settings, Statistics};
use akunu_text::chat::Message;
use axum::response::Response;
use serde_json::{Value, json};

use super::{new_id, unix_time};
use crate::app::Call;
use crate::ask::{Question, Wire, prompt_of, sampling, sse, stream, whole};
use crate::constraints;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::models::Served;

/// `POST /v1/responses`
pub(crate) async fn respond(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref())?;
    let instructions: Option<String> = fields.take("instructions")?;
    let mut messages: Vec<Message> = instructions.iter().map(Message::system).collect();
    messages.extend(input(fields)?);
    let max_tokens: Option<usize> = fields.take("max_output_tokens")?;
    let mut settings = Settings {
        sampling: sampling(fields, &served)?,
        max_tokens,
        constraint: constraints::text_format(fields)?,
        ..Settings::default()
    };
    let streamed = fields.take("stream")?.unwrap_or(false);
    fields.refuse(
        "previous_response_id",
        &[],
        "needs a memory this server does not have: send the conversation",
    )?;
    fields.refuse("conversation", &[], "needs a memory this server does not have: send the conversation")?;
    fields.refuse("background", &[json!(false)], "is not available")?;
    fields.refuse("tools", &[json!([])], "is not available yet: this server does not call tools")?;
    let choices = [json!("none"), json!("auto")];
    fields.refuse("tool_choice", &choices, "is not available yet: this server does not call tools")?;
    fields.refuse("reasoning", &[json!({})], "is not available yet")?;
    fields.refuse("include", &[json!([])], "is not available")?;
    fields.refuse("truncation", &[json!("disabled")], "may only be \"disabled\"")?;
    fields.end()?;

    let prompt = prompt_of(&served, &messages, None)?;
    constraints::after_thinking(&served, &prompt, &mut settings)?;
    let reply = Reply {
        id: new_id("resp_"),
        item: new_id("msg_"),
        created: unix_time(),
        served: Arc::clone(&served),
        echoed: json!({
            "instructions": instructions,
            "max_output_tokens": max_tokens,
            "temperature": settings.sampling.temperature,
            "top_p": settings.sampling.top_p,
        }),
        text: String::new(),
        finished: None,
        events: 0,
    };
    let answer = Question::new(&call.app, served, prompt, settings, streamed)?.ask(&call)?;
    if streamed {
        return Ok(stream(answer, reply));
    }
    let (mut choices, statistics) = answer.collect(1).await?;
    let choice = choices.swap_remove(0);
    let reply = Reply { text: choice.text, finished: choice.reason, ..reply };
    Ok(whole(&reply.complete(&statistics)))
}

/// A text, or the messages of a conversation.
fn input(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let mut items = match fields.need("input")? {
        Value::String(text) => return Ok(vec![Message::user(text)]),
        Value::Array(items) => items,
        _ => return Err(ApiError::field("input", "must be a string or a list of messages")),
    };
    for (i, item) in items.iter_mut().enumerate() {
        let Some(item) = item.as_object_mut() else { continue };
        if let Some(kind) = item.remove("type")
            && kind != "message"
        {
            let problem = format!("is of type {kind}: this server knows messages only");
            return Err(ApiError::unsupported(&format!("input[{i}]"), problem));
        }
        // What an earlier answer said about itself.
        item.remove("id");
        item.remove("status");
    }
    Fields::of("input", Value::Array(items)).messages("input")
}

/// An answer in the words of the Responses interface.
struct Reply {
    id: String,
    /// The id of the one message in it.
    item: String,
    created: u64,
    served: Arc<Served>,
    /// Fields of the request that the answer repeats.
    echoed: Value,
    text: String,
    finished: Option<FinishReason>,
    /// How many events were sent.
    events: usize,
}

impl Reply {
    fn response(&self, status: &str, output: &Value) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": self.served.id,
            "output": output,
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null},
            "store": false,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "truncation": "disabled",
            "usage": null,
            "metadata": {},
        });
        for (name, value) in self.echoed.as_object().into_iter().flatten() {
            response[name] = value.clone();
        }
        response
    }

    /// Whether all of the answer is there.
    fn status(&self) -> &'static str {
        if self.finished == Some(FinishReason::Length) { "incomplete" } else { "completed" }
    }

    fn part(&self) -> Value {
        json!({"type": "output_text", "text": self.text, "annotations": []})
    }

    fn message(&self, status: &str, content: &Value) -> Value {
        json!({"type": "message", "id": self.item, "status": status, "role": "assistant", "content": content})
    }

    fn complete(&self, statistics: &Statistics) -> Value {
        let status = self.status();
        let message = self.message(status, &json!([self.part()]));
        let mut response = self.response(status, &json!([message]));
        if status == "incomplete" {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response["usage"] = json!({
            "input_tokens": statistics.prompt_tokens,
            "input_tokens_details": {"cached_tokens": statistics.cached_tokens},
            "output_tokens": statistics.generated_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": statistics.prompt_tokens + statistics.generated_tokens,
        });
        response
    }

    /// One event, with its type and its number.
    fn event(&mut self, out: &mut String, kind: &str, mut value: Value) {
        value["type"] = json!(kind);
        value["sequence_number"] = json!(self.events);
        self.events += 1;
        out.push_str("event: ");
        out.push_str(kind);
        out.push('\n');
        sse(out, &value);
    }

    /// An event about the text.
    fn content_event(&mut self, out: &mut String, kind: &str, mut value: Value) {
        value["item_id"] = json!(self.item);
        value["output_index"] = json!(0);
        value["content_index"] = json!(0);
        self.event(out, kind, value);
    }
}

impl Wire for Reply {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn write(&mut self, event: Event, out: &mut String) {
        match event {
            Event::Started { .. } => {
                let response = self.response("in_progress", &json!([]));
                self.event(out, "response.created", json!({"response": response}));
                self.event(out, "response.in_progress", json!({"response": response}));
                let item = self.message("in_progress", &json!([]));
                self.event(out, "response.output_item.added", json!({"output_index": 0, "item": item}));
                let part = self.part();
                self.content_event(out, "response.content_part.added", json!({"part": part}));
            }
            Event::Piece { piece, .. } if piece.text.is_empty() => {}
            Event::Piece { piece, .. } => {
                self.text.push_str(&piece.text);
                let delta = json!({"delta": piece.text, "logprobs": []});
                self.content_event(out, "response.output_text.delta", delta);
            }
            Event::Finished { reason, .. } => {
                self.finished = Some(reason);
                let (text, part) = (self.text.clone(), self.part());
                self.content_event(out, "response.output_text.done", json!({"text": text, "logprobs": []}));
                self.content_event(out, "response.content_part.done", json!({"part": part}));
                let item = self.message(self.status(), &json!([part]));
                self.event(out, "response.output_item.done", json!({"output_index": 0, "item": item}));
            }
            Event::Done(statistics) => {
                let response = self.complete(&statistics);
                let kind = format!("response.{}", self.status());
                self.event(out, &kind, json!({"response": response}));
            }
            Event::Failed(error) => {
                let body = ApiError::from(error).body(Dialect::OpenAi);
                self.event(out, "error", body["error"].clone());
            }
        }
    }
}
