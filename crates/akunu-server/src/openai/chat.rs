//! `POST /v1/chat/completions`

use std::sync::Arc;

use akunu::scheduler::{Event, LogProbabilities};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{MOST_ALTERNATIVES, Wishes, new_id, unix_time};
use crate::app::Call;
use crate::ask::{Question, Wire, finish_reason, prompt_of, sse, stream, timings, token_text, usage, whole};
use crate::constraints;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::models::Served;

/// `POST /v1/chat/completions`
pub(crate) async fn complete(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref())?;
    let messages = fields.messages("messages")?;
    let wishes = Wishes::read(fields, &served)?;
    let log_probabilities = log_probabilities(fields)?;
    let variables: Option<Map<String, Value>> = fields.take("chat_template_kwargs")?;
    let none = [json!([]), json!("none")];
    for name in ["tools", "tool_choice", "functions", "function_call"] {
        fields.refuse(name, &none, "is not available yet: this server does not call tools")?;
    }
    fields.refuse("modalities", &[json!(["text"])], "may only be [\"text\"]")?;
    fields.refuse("reasoning_effort", &[json!("none")], "is not available yet")?;
    fields.end()?;

    let prompt = prompt_of(&served, &messages, variables.as_ref())?;
    let mut settings = wishes.settings.clone();
    constraints::after_thinking(&served, &prompt, &mut settings)?;
    let mut question = Question::new(&call.app, Arc::clone(&served), prompt, settings, wishes.stream)?;
    wishes.apply(&mut question, log_probabilities);
    let chat = Chat {
        id: new_id("chatcmpl-"),
        created: unix_time(),
        served,
        choices: wishes.choices,
        usage: wishes.usage,
        log_probabilities: log_probabilities.is_some(),
    };
    let answer = question.ask(&call)?;
    if wishes.stream {
        return Ok(stream(answer, chat));
    }
    let (choices, statistics) = answer.collect(wishes.choices).await?;
    let choices: Vec<Value> = choices
        .into_iter()
        .enumerate()
        .map(|(index, choice)| {
            json!({
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": null},
                "logprobs": chat.logprobs(&choice.log_probabilities),
                "finish_reason": choice.reason.map(finish_reason),
            })
        })
        .collect();
    Ok(whole(&json!({
        "id": chat.id,
        "object": "chat.completion",
        "created": chat.created,
        "model": chat.served.id,
        "choices": choices,
        "usage": usage(&statistics),
        "timings": timings(&statistics),
    })))
}

fn log_probabilities(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let wanted = fields.take("logprobs")?.unwrap_or(false);
    match fields.take::<usize>("top_logprobs")? {
        Some(_) if !wanted => Err(ApiError::field("top_logprobs", "needs `logprobs`")),
        Some(count) if count > MOST_ALTERNATIVES => {
            Err(ApiError::field("top_logprobs", format!("is {count}: at most {MOST_ALTERNATIVES}")))
        }
        count => Ok(wanted.then_some(count.unwrap_or(0))),
    }
}

/// An answer in OpenAI's words.
struct Chat {
    id: String,
    created: u64,
    served: Arc<Served>,
    choices: usize,
    /// Whether the last chunk says what it took.
    usage: bool,
    log_probabilities: bool,
}

impl Chat {
    /// `null` where they were not asked for.
    fn logprobs(&self, entries: &[LogProbabilities]) -> Value {
        if !self.log_probabilities {
            return Value::Null;
        }
        let entry = |token: u32, log_probability: f32| {
            let (text, bytes) = token_text(&self.served, token);
            json!({"token": text, "logprob": log_probability, "bytes": bytes})
        };
        let content = entries.iter().map(|at| {
            let top = at.alternatives.iter().map(|(token, log_probability)| entry(*token, *log_probability));
            let mut chosen = entry(at.token, at.log_probability);
            chosen["top_logprobs"] = top.collect();
            chosen
        });
        json!({"content": content.collect::<Vec<_>>(), "refusal": null})
    }

    fn chunk(&self, choices: &Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.served.id,
            "choices": choices,
        });
        if self.usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn delta(&self, index: usize, delta: &Value, logprobs: &Value, finish: Option<&str>) -> Value {
        self.chunk(&json!([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]))
    }
}

impl Wire for Chat {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn write(&mut self, event: Event, out: &mut String) {
        match event {
            Event::Started { .. } => {
                for index in 0..self.choices {
                    let role = json!({"role": "assistant", "content": ""});
                    sse(out, &self.delta(index, &role, &Value::Null, None));
                }
            }
            Event::Piece { choice, piece, log_probabilities } => {
                let logprobs = self.logprobs(&log_probabilities);
                if !piece.text.is_empty() || self.log_probabilities {
                    sse(out, &self.delta(choice, &json!({"content": piece.text}), &logprobs, None));
                }
            }
            Event::Finished { choice, reason } => {
                sse(out, &self.delta(choice, &json!({}), &Value::Null, Some(finish_reason(reason))));
            }
            Event::Done(statistics) => {
                if self.usage {
                    let mut chunk = self.chunk(&json!([]));
                    chunk["usage"] = usage(&statistics);
                    chunk["timings"] = timings(&statistics);
                    sse(out, &chunk);
                }
                out.push_str("data: [DONE]\n\n");
            }
            Event::Failed(error) => sse(out, &ApiError::from(error).body(Dialect::OpenAi)),
        }
    }
}
