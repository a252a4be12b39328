//! `POST /v1/responses`, without memory: every request brings its whole conversation.

use std::sync::Arc;

use akunu::{FinishReason, Settings};
use akunu_text::chat::{Channel, Message};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{new_id, unix_time};
use crate::app::Call;
use crate::ask::{Question, Wire, prompt_of, sampling, sse, stream, whole};
use crate::constraints;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::models::Served;
use crate::thinking::{Said, Taken, Thinking};

/// `POST /v1/responses`
pub(crate) async fn respond(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref()).await?;
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
    let thinking = thinking(fields)?;
    fields.refuse("include", &[json!([]), json!(["reasoning.encrypted_content"])], "is not available")?;
    fields.refuse("truncation", &[json!("disabled")], "may only be \"disabled\"")?;
    fields.end()?;

    let variables = match &served.template {
        Some(template) => thinking.variables(template, None, "reasoning.effort")?,
        None => Map::new(),
    };
    let prompt = prompt_of(&served, &messages, Some(&variables), thinking)?;
    constraints::after_thinking(&served, &prompt.tokens, &mut settings)?;
    let reply = Reply {
        id: new_id("resp_"),
        created: unix_time(),
        served: Arc::clone(&served),
        echoed: json!({
            "instructions": instructions,
            "max_output_tokens": max_tokens,
            "temperature": settings.sampling.temperature,
            "top_p": settings.sampling.top_p,
        }),
        items: Vec::new(),
        finished: None,
        events: 0,
    };
    let answer = Question::new(&call.app, served, prompt, settings, streamed)?.ask(&call)?;
    if streamed {
        return Ok(stream(answer, reply));
    }
    let (mut choices, taken) = answer.collect(1).await?;
    let choice = choices.swap_remove(0);
    let mut items = vec![Item { text: choice.text, ..Item::new(Channel::Answer) }];
    if !choice.reasoning.is_empty() {
        items.insert(0, Item { text: choice.reasoning, ..Item::new(Channel::Reasoning) });
    }
    let reply = Reply { items, finished: choice.reason, ..reply };
    Ok(whole(&reply.complete(&taken)))
}

fn thinking(fields: &mut Fields) -> Result<Thinking, ApiError> {
    let Some(mut reasoning) = fields.object("reasoning")? else { return Ok(Thinking::default()) };
    let wanted = Thinking::effort(&mut reasoning, "effort")?;
    // Thoughts come as they are, whatever summary is asked for.
    reasoning.take::<String>("summary")?;
    reasoning.take::<String>("generate_summary")?;
    reasoning.end()?;
    Ok(Thinking { wanted, ..Thinking::default() })
}

/// A text, or the messages of a conversation.
fn input(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let mut items = match fields.need("input")? {
        Value::String(text) => return Ok(vec![Message::user(text)]),
        Value::Array(items) => items,
        _ => return Err(ApiError::field("input", "must be a string or a list of messages")),
    };
    // Models do not read what they thought before earlier answers.
    items.retain(|item| item["type"] != "reasoning");
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
    created: u64,
    served: Arc<Served>,
    /// Fields of the request that the answer repeats.
    echoed: Value,
    /// Thoughts, if there are any, and the message.
    items: Vec<Item>,
    finished: Option<FinishReason>,
    /// How many events were sent.
    events: usize,
}

/// One item of the output: thoughts or a message.
struct Item {
    id: String,
    channel: Channel,
    text: String,
}

impl Item {
    fn new(channel: Channel) -> Item {
        let id = new_id(if channel == Channel::Answer { "msg_" } else { "rs_" });
        Item { id, channel, text: String::new() }
    }

    /// What is in it.
    fn part(&self) -> Value {
        match self.channel {
            Channel::Answer => json!({"type": "output_text", "text": self.text, "annotations": []}),
            Channel::Reasoning => json!({"type": "reasoning_text", "text": self.text}),
        }
    }

    fn describe(&self, status: &str, content: &Value) -> Value {
        let Item { id, channel, .. } = self;
        match channel {
            Channel::Answer => {
                json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
            }
            Channel::Reasoning => {
                json!({"type": "reasoning", "id": id, "status": status, "summary": [], "content": content})
            }
        }
    }

    /// What events about its text are called.
    fn event_name(&self, what: &str) -> String {
        let kind = if self.channel == Channel::Answer { "output_text" } else { "reasoning_text" };
        format!("response.{kind}.{what}")
    }
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

    fn complete(&self, taken: &Taken) -> Value {
        let Taken { statistics, reasoning_tokens } = taken;
        let status = self.status();
        let output: Vec<Value> =
            self.items.iter().map(|item| item.describe(status, &json!([item.part()]))).collect();
        let mut response = self.response(status, &json!(output));
        if status == "incomplete" {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response["usage"] = json!({
            "input_tokens": statistics.prompt_tokens,
            "input_tokens_details": {"cached_tokens": statistics.cached_tokens},
            "output_tokens": statistics.generated_tokens,
            "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
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

    /// An event about the last item's text.
    fn content_event(&mut self, out: &mut String, kind: &str, mut value: Value) {
        value["item_id"] = json!(self.items.last().map(|item| &item.id));
        value["output_index"] = json!(self.items.len() - 1);
        value["content_index"] = json!(0);
        self.event(out, kind, value);
    }

    /// Goes on in an item of this kind.
    fn enter(&mut self, channel: Channel, out: &mut String) {
        if self.items.last().is_some_and(|item| item.channel == channel) {
            return;
        }
        self.leave("completed", out);
        let item = Item::new(channel);
        let (index, part) = (self.items.len(), item.part());
        let described = item.describe("in_progress", &json!([]));
        self.items.push(item);
        self.event(out, "response.output_item.added", json!({"output_index": index, "item": described}));
        self.content_event(out, "response.content_part.added", json!({"part": part}));
    }

    /// Ends the last item.
    fn leave(&mut self, status: &str, out: &mut String) {
        let Some(item) = self.items.last() else { return };
        let (part, done) = (item.part(), item.event_name("done"));
        let mut text = json!({"text": item.text});
        if item.channel == Channel::Answer {
            text["logprobs"] = json!([]);
        }
        let described = item.describe(status, &json!([part]));
        let index = self.items.len() - 1;
        self.content_event(out, &done, text);
        self.content_event(out, "response.content_part.done", json!({"part": part}));
        self.event(out, "response.output_item.done", json!({"output_index": index, "item": described}));
    }
}

impl Wire for Reply {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn write(&mut self, said: Said, out: &mut String) {
        match said {
            Said::Started { .. } => {
                let response = self.response("in_progress", &json!([]));
                self.event(out, "response.created", json!({"response": response}));
                self.event(out, "response.in_progress", json!({"response": response}));
            }
            Said::Text { text, .. } if text.is_empty() => {}
            Said::Text { channel, text, .. } => {
                self.enter(channel, out);
                let mut delta = json!({"delta": text});
                if channel == Channel::Answer {
                    delta["logprobs"] = json!([]);
                }
                if let Some(item) = self.items.last_mut() {
                    item.text.push_str(&text);
                    let kind = item.event_name("delta");
                    self.content_event(out, &kind, delta);
                }
            }
            Said::Finished { reason, .. } => {
                self.finished = Some(reason);
                // There is always a message, be it empty.
                self.enter(Channel::Answer, out);
                self.leave(self.status(), out);
            }
            Said::Done(taken) => {
                let response = self.complete(&taken);
                let kind = format!("response.{}", self.status());
                self.event(out, &kind, json!({"response": response}));
            }
            Said::Failed(error) => {
                let body = ApiError::from(error).body(Dialect::OpenAi);
                self.event(out, "error", body["error"].clone());
            }
        }
    }
}
