//! `POST /v1/chat/completions`

use std::sync::Arc;

use akunu::scheduler::LogProbabilities;
use akunu_text::chat::{Channel, Message};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{Envelope, MOST_ALTERNATIVES, Wishes};
use crate::app;
use crate::ask::{Question, Wire, finish_reason_after, sse, stream, token_text, whole};
use crate::calls::{self, Call, Calls, Part};
use crate::conversation::Conversation;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::resident::Served;
use crate::thinking::{Said, Thinking};
use crate::tools::Tools;

/// `POST /v1/chat/completions`
pub(crate) async fn complete(mut call: app::Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref()).await?;
    let messages = fields.messages("messages")?;
    let wishes = Wishes::read(fields, &served)?;
    let log_probabilities = log_probabilities(fields)?;
    let variables: Map<String, Value> = fields.take("chat_template_kwargs")?.unwrap_or_default();
    let tools = Tools::openai(fields)?;
    fields.refuse("modalities", &[json!(["text"])], "may only be [\"text\"]")?;
    let thinking = thinking(fields)?;
    let continues = continues(fields, &messages)?;
    fields.end()?;

    let mut settings = wishes.settings.clone();
    let thinking_field = "reasoning_effort";
    let conversation = Conversation { messages, tools, thinking, thinking_field, variables, continues };
    let prompt = conversation.prompt(&served, &mut settings)?;
    let syntax = prompt.calls;
    let mut question = Question::new(&call.app, Arc::clone(&served), prompt, settings, wishes.stream)?;
    wishes.apply(&mut question, log_probabilities);
    let object = if wishes.stream { "chat.completion.chunk" } else { "chat.completion" };
    let chat = Chat {
        envelope: Envelope::new("chatcmpl-", object, served, wishes.usage),
        choices: wishes.choices,
        log_probabilities: log_probabilities.is_some(),
        calls: Calls::new(syntax, wishes.choices),
    };
    let answer = question.ask(&call).await?;
    if wishes.stream {
        return Ok(stream(answer, chat));
    }
    let (choices, taken) = answer.collect(wishes.choices).await?;
    let choices: Vec<Value> = choices
        .into_iter()
        .enumerate()
        .map(|(index, choice)| {
            let (text, calls) = calls::read_whole(syntax, choice.text, choice.reason);
            let mut message = json!({"role": "assistant", "content": text, "refusal": null});
            if !calls.is_empty() {
                message["tool_calls"] = calls.iter().map(Call::openai).collect();
                message["content"] = if text.is_empty() { Value::Null } else { json!(text) };
            }
            if !choice.reasoning.is_empty() {
                message["reasoning_content"] = json!(choice.reasoning);
            }
            json!({
                "index": index,
                "message": message,
                "logprobs": chat.logprobs(&choice.log_probabilities),
                "finish_reason": choice.reason.map(|reason| finish_reason_after(reason, !calls.is_empty())),
            })
        })
        .collect();
    Ok(whole(&chat.envelope.whole(&json!(choices), &taken)))
}

/// Whether to think, and whether thoughts come as `reasoning_content` or in the text.
fn thinking(fields: &mut Fields) -> Result<Thinking, ApiError> {
    let wanted = Thinking::effort(fields, "reasoning_effort")?;
    let apart = match fields.take::<String>("reasoning_format")?.as_deref() {
        None | Some("auto" | "deepseek") => true,
        Some("none") => false,
        Some(other) => {
            let problem = format!("is \"{other}\": it must be auto, deepseek or none");
            return Err(ApiError::field("reasoning_format", problem));
        }
    };
    Ok(Thinking { wanted, apart, budget: None })
}

/// Whether the answer goes on with a last message of the assistant's, in the words of vLLM.
fn continues(fields: &mut Fields, messages: &[Message]) -> Result<bool, ApiError> {
    let continues = fields.take("continue_final_message")?.unwrap_or(false);
    if continues && !Conversation::ends_with_assistant(messages) {
        return Err(ApiError::field("continue_final_message", "needs a last message of the assistant's"));
    }
    fields.refuse(
        "add_generation_prompt",
        &[json!(!continues)],
        "must be the opposite of `continue_final_message`",
    )?;
    Ok(continues)
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
    envelope: Envelope,
    choices: usize,
    log_probabilities: bool,
    calls: Calls,
}

impl Chat {
    /// `null` where they were not asked for.
    fn logprobs(&self, entries: &[LogProbabilities]) -> Value {
        if !self.log_probabilities {
            return Value::Null;
        }
        let content: Vec<Value> = entries.iter().map(|at| logprob(&self.envelope.served, at)).collect();
        json!({"content": content, "refusal": null})
    }

    fn delta(&self, out: &mut String, index: usize, delta: &Value, logprobs: &Value, finish: Option<&str>) {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        self.envelope.chunk(out, &choice);
    }
}

fn logprob(served: &Served, at: &LogProbabilities) -> Value {
    let entry = |token: u32, log_probability: f32| {
        let (text, bytes) = token_text(served, token);
        json!({"token": text, "logprob": log_probability, "bytes": bytes})
    };
    let top = at.alternatives.iter().map(|(token, log_probability)| entry(*token, *log_probability));
    let mut chosen = entry(at.token, at.log_probability);
    chosen["top_logprobs"] = top.collect();
    chosen
}

impl Wire for Chat {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn write(&mut self, said: Said, out: &mut String) {
        match said {
            Said::Started { .. } => {
                for index in 0..self.choices {
                    let role = json!({"role": "assistant", "content": ""});
                    self.delta(out, index, &role, &Value::Null, None);
                }
            }
            Said::Text { choice, channel: Channel::Reasoning, text, log_probabilities } => {
                let logprobs = self.logprobs(&log_probabilities);
                if !text.is_empty() || self.log_probabilities {
                    self.delta(out, choice, &json!({"reasoning_content": text}), &logprobs, None);
                }
            }
            Said::Text { choice, channel: Channel::Answer, text, log_probabilities } => {
                let mut logprobs = self.logprobs(&log_probabilities);
                let mut parts = self.calls.push(choice, text);
                if parts.is_empty() && self.log_probabilities {
                    parts.push(Part::Text(String::new()));
                }
                for part in parts {
                    self.delta(out, choice, &part.openai_delta(), &logprobs.take(), None);
                }
            }
            Said::Finished { choice, reason } => {
                for part in self.calls.finish(choice, reason) {
                    self.delta(out, choice, &part.openai_delta(), &Value::Null, None);
                }
                let reason = finish_reason_after(reason, self.calls.called(choice));
                self.delta(out, choice, &json!({}), &Value::Null, Some(reason));
            }
            Said::Done(taken) => self.envelope.end(out, &taken),
            Said::Failed(error) => sse(out, &ApiError::from(error).body(Dialect::OpenAi)),
        }
    }
}
