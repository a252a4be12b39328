//! `POST /v1/responses`, without memory: every request brings its whole conversation.

use std::sync::Arc;

use akunu::{FinishReason, Settings};
use akunu_text::chat::{Channel, Message};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{HOTTEST, new_id};
use crate::app;
use crate::ask::{Question, Wire, sampling, sse, stream, whole};
use crate::calls::{self, Call, Calls, Part};
use crate::constraints;
use crate::conversation::Conversation;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::models::unix_time;
use crate::resident::Served;
use crate::thinking::{Said, Taken, Thinking};
use crate::tools::Tools;

/// `POST /v1/responses`
pub(crate) async fn respond(mut call: app::Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref()).await?;
    let instructions: Option<String> = fields.take("instructions")?;
    let mut messages: Vec<Message> = instructions.iter().map(Message::system).collect();
    messages.extend(input(fields)?);
    let max_tokens: Option<usize> = fields.take("max_output_tokens")?;
    let format = fields.get("text").and_then(|text| text.get("format")).cloned();
    let mut settings = Settings {
        sampling: sampling(fields, &served, HOTTEST)?,
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
    let echoed = json!({
        "instructions": instructions,
        "text": {"format": format.unwrap_or_else(|| json!({"type": "text"}))},
        "max_output_tokens": max_tokens,
        "temperature": settings.sampling.temperature,
        "top_p": settings.sampling.top_p,
        "tools": fields.get("tools").cloned().unwrap_or_else(|| json!([])),
        "tool_choice": fields.get("tool_choice").cloned().unwrap_or_else(|| json!("auto")),
        "parallel_tool_calls": fields.get("parallel_tool_calls").cloned().unwrap_or_else(|| json!(true)),
    });
    let tools = Tools::responses(fields)?;
    let thinking = thinking(fields)?;
    fields.refuse("include", &[json!([]), json!(["reasoning.encrypted_content"])], "is not available")?;
    fields.refuse("truncation", &[json!("disabled")], "may only be \"disabled\"")?;
    fields.end()?;

    let conversation = Conversation {
        messages,
        tools,
        thinking,
        thinking_field: "reasoning.effort",
        variables: Map::new(),
        continues: false,
    };
    let prompt = conversation.prompt(&served, &mut settings)?;
    let syntax = prompt.calls;
    let reply = Reply {
        id: new_id("resp_"),
        created: unix_time(),
        served: Arc::clone(&served),
        echoed,
        calls: Calls::new(syntax, 1),
        items: Vec::new(),
        finished: None,
        events: 0,
    };
    let mut question = Question::new(&call.app, served, prompt, settings, streamed)?;
    question.form = Some("text.format");
    let answer = question.ask(&call).await?;
    if streamed {
        return Ok(stream(answer, reply));
    }
    let (mut choices, taken) = answer.collect(1).await?;
    let choice = choices.swap_remove(0);
    let (text, calls) = calls::read_whole(syntax, choice.text, choice.reason);
    let mut items = Vec::new();
    if !choice.reasoning.is_empty() {
        items.push(Item { text: choice.reasoning, ..Item::new(Kind::Thoughts) });
    }
    // There is always a message or a call, be the message empty.
    if !text.is_empty() || calls.is_empty() {
        items.push(Item { text, ..Item::new(Kind::Message) });
    }
    items.extend(
        calls.into_iter().map(|Call { id, name, arguments }| Item {
            text: arguments,
            ..Item::new(Kind::Call { id, name })
        }),
    );
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

/// A text, or the items of a conversation: messages, calls and their results.
fn input(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let items = match fields.need("input")? {
        Value::String(text) => return Ok(vec![Message::user(text)]),
        Value::Array(items) => items,
        _ => return Err(ApiError::field("input", "must be a string or a list of items")),
    };
    let mut messages: Vec<Value> = Vec::new();
    for (i, mut item) in items.into_iter().enumerate() {
        let kind = item["type"].as_str().unwrap_or("message").to_owned();
        match kind.as_str() {
            "message" => {
                // What an earlier answer said about itself.
                for field in ["type", "id", "status"] {
                    item.as_object_mut().map(|fields| fields.remove(field));
                }
                messages.push(item);
            }
            // Models do not read what they thought before earlier answers.
            "reasoning" => {}
            // A call is part of what the assistant said last.
            "function_call" => {
                let function = json!({"name": item["name"].take(), "arguments": item["arguments"].take()});
                let call = json!({"id": item["call_id"].take(), "type": "function", "function": function});
                if messages.last().is_none_or(|last| last["role"] != "assistant") {
                    messages.push(json!({"role": "assistant", "content": null}));
                }
                if let Some(last) = messages.last_mut() {
                    match last.get_mut("tool_calls") {
                        Some(Value::Array(calls)) => calls.push(call),
                        _ => last["tool_calls"] = json!([call]),
                    }
                }
            }
            "function_call_output" => {
                let (id, output) = (item["call_id"].take(), item["output"].take());
                if id.is_null() || output.is_null() {
                    let problem = "needs a `call_id` and an `output`";
                    return Err(ApiError::field(format!("input[{i}]"), problem));
                }
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
            }
            _ => {
                let problem = format!("is of type \"{kind}\": this server knows messages and function calls");
                return Err(ApiError::unsupported(&format!("input[{i}]"), problem));
            }
        }
    }
    Fields::of("input", Value::Array(messages)).messages("input")
}

/// An answer in the words of the Responses interface.
struct Reply {
    id: String,
    created: u64,
    served: Arc<Served>,
    /// Fields of the request that the answer repeats.
    echoed: Value,
    calls: Calls,
    /// Thoughts, if there are any, the message, calls.
    items: Vec<Item>,
    finished: Option<FinishReason>,
    /// How many events were sent.
    events: usize,
}

/// What an item of the output is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Thoughts,
    Message,
    Call { id: String, name: String },
}

/// One item of the output.
struct Item {
    id: String,
    kind: Kind,
    /// Or the arguments of a call.
    text: String,
}

impl Item {
    fn new(kind: Kind) -> Item {
        let prefix = match kind {
            Kind::Thoughts => "rs_",
            Kind::Message => "msg_",
            Kind::Call { .. } => "fc_",
        };
        Item { id: new_id(prefix), kind, text: String::new() }
    }

    /// What is in it; nothing is in calls.
    fn part(&self) -> Option<Value> {
        match self.kind {
            Kind::Message => {
                Some(json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}))
            }
            Kind::Thoughts => Some(json!({"type": "reasoning_text", "text": self.text})),
            Kind::Call { .. } => None,
        }
    }

    /// As it stands in an answer. One that has just begun has no content yet.
    fn describe(&self, status: &str) -> Value {
        let id = &self.id;
        let content: Vec<Value> = self.part().into_iter().filter(|_| status != "in_progress").collect();
        match &self.kind {
            Kind::Message => {
                json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
            }
            Kind::Thoughts => {
                json!({"type": "reasoning", "id": id, "status": status, "summary": [], "content": content})
            }
            Kind::Call { id: call, name } => json!({
                "type": "function_call", "id": id, "status": status, "call_id": call, "name": name,
                "arguments": self.text,
            }),
        }
    }

    /// What events about its text are called.
    fn event_name(&self, what: &str) -> String {
        let kind = match self.kind {
            Kind::Thoughts => "reasoning_text",
            Kind::Message => "output_text",
            Kind::Call { .. } => "function_call_arguments",
        };
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
            "previous_response_id": null,
            "reasoning": {"effort": null, "summary": null},
            "store": false,
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
        let output: Vec<Value> = self.items.iter().map(|item| item.describe(status)).collect();
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

    /// An event about what is in the last item.
    fn content_event(&mut self, out: &mut String, name: &str, mut value: Value) {
        let Some(item) = self.items.last() else { return };
        value["item_id"] = json!(item.id);
        value["output_index"] = json!(self.items.len() - 1);
        if item.part().is_some() {
            value["content_index"] = json!(0);
        }
        if item.kind == Kind::Message && name.contains("output_text") {
            value["logprobs"] = json!([]);
        }
        self.event(out, name, value);
    }

    /// Goes on in an item of this kind.
    fn enter(&mut self, kind: Kind, out: &mut String) {
        if self.items.last().is_some_and(|item| item.kind == kind) {
            return;
        }
        self.leave("completed", out);
        let item = Item::new(kind);
        let (index, part, described) = (self.items.len(), item.part(), item.describe("in_progress"));
        self.items.push(item);
        self.event(out, "response.output_item.added", json!({"output_index": index, "item": described}));
        if let Some(part) = part {
            self.content_event(out, "response.content_part.added", json!({"part": part}));
        }
    }

    /// Adds to the last item.
    fn add(&mut self, text: &str, out: &mut String) {
        if let Some(item) = self.items.last_mut() {
            item.text.push_str(text);
            let name = item.event_name("delta");
            self.content_event(out, &name, json!({"delta": text}));
        }
    }

    /// Ends the last item.
    fn leave(&mut self, status: &str, out: &mut String) {
        let Some(item) = self.items.last() else { return };
        let (name, part, described) = (item.event_name("done"), item.part(), item.describe(status));
        let index = self.items.len() - 1;
        let whole = match &item.kind {
            Kind::Call { name, .. } => json!({"name": name, "arguments": item.text}),
            _ => json!({"text": item.text}),
        };
        self.content_event(out, &name, whole);
        if let Some(part) = part {
            self.content_event(out, "response.content_part.done", json!({"part": part}));
        }
        self.event(out, "response.output_item.done", json!({"output_index": index, "item": described}));
    }

    /// What parts of an answer add.
    fn parts(&mut self, parts: Vec<Part>, out: &mut String) {
        for part in parts {
            match part {
                Part::Text(text) => {
                    self.enter(Kind::Message, out);
                    self.add(&text, out);
                }
                Part::Call { id, name, .. } => self.enter(Kind::Call { id, name }, out),
                Part::Arguments { text, .. } => self.add(&text, out),
            }
        }
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
            Said::Text { channel: Channel::Reasoning, text, .. } => {
                self.enter(Kind::Thoughts, out);
                self.add(&text, out);
            }
            Said::Text { channel: Channel::Answer, text, .. } => {
                let parts = self.calls.push(0, text);
                self.parts(parts, out);
            }
            Said::Finished { reason, .. } => {
                let parts = self.calls.finish(0, reason);
                self.parts(parts, out);
                self.finished = Some(reason);
                if !self.calls.called(0) {
                    // There is always a message then, be it empty.
                    self.enter(Kind::Message, out);
                }
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
