//! `POST /v1/completions`

use std::sync::Arc;

use akunu::scheduler::LogProbabilities;
use akunu_text::tokenizer::{AddSpecial, Special};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{Envelope, MOST_ALTERNATIVES, Wishes};
use crate::app::Call;
use crate::ask::{Question, Wire, finish_reason, sse, stream, token_text, whole};
use crate::error::{ApiError, Dialect};
use crate::resident::Served;
use crate::thinking::{Said, Taken};

/// Most prompts in one request.
const MOST_PROMPTS: usize = 64;

/// `POST /v1/completions`
pub(crate) async fn complete(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref()).await?;
    let prompts = prompts(&fields.need("prompt")?, &served)?;
    let mut wishes = Wishes::read(fields, &served)?;
    // OpenAI's own default for this one.
    wishes.settings.max_tokens.get_or_insert(16);
    let log_probabilities: Option<usize> = fields.take("logprobs")?;
    if log_probabilities.is_some_and(|count| count > MOST_ALTERNATIVES) {
        return Err(ApiError::field("logprobs", format!("must be at most {MOST_ALTERNATIVES}")));
    }
    let echo = fields.take("echo")?.unwrap_or(false);
    if echo && log_probabilities.is_some() {
        return Err(ApiError::unsupported(
            "echo",
            "cannot go with `logprobs`: those of prompts are not computed",
        ));
    }
    fields.refuse("suffix", &[json!("")], "is not available: text is continued, not filled in")?;
    fields.refuse("best_of", &[json!(wishes.choices)], "must be the same as `n`")?;
    fields.end()?;
    if wishes.stream && prompts.len() > 1 {
        return Err(ApiError::unsupported("prompt", "must be a single one with `stream`"));
    }

    let mut answers = Vec::new();
    let mut echoes = Vec::new();
    for prompt in prompts {
        echoes.push(if echo { text_of(&served, &prompt)? } else { String::new() });
        let settings = wishes.settings.clone();
        let mut question =
            Question::new(&call.app, Arc::clone(&served), prompt.into(), settings, wishes.stream)?;
        wishes.apply(&mut question, log_probabilities);
        answers.push(question.ask(&call).await?);
    }
    let completion = Completion {
        envelope: Envelope::new("cmpl-", "text_completion", served, wishes.usage),
        choices: wishes.choices,
        log_probabilities: log_probabilities.is_some(),
        offsets: vec![0; wishes.choices],
        echo: echoes.first().cloned().unwrap_or_default(),
    };
    if wishes.stream
        && let Some(answer) = answers.pop()
    {
        return Ok(stream(answer, completion));
    }
    let mut choices = Vec::new();
    let mut taken = Taken::default();
    for (answer, echo) in answers.into_iter().zip(echoes) {
        let (texts, Taken { statistics, .. }) = answer.collect(wishes.choices).await?;
        for choice in texts {
            let mut entry = completion.entry(
                choices.len(),
                &(echo.clone() + &choice.text),
                choice.reason.map(finish_reason),
            );
            entry["logprobs"] = completion.logprobs(&choice.log_probabilities, &mut 0);
            choices.push(entry);
        }
        let total = &mut taken.statistics;
        total.prompt_tokens += statistics.prompt_tokens;
        total.cached_tokens += statistics.cached_tokens;
        total.generated_tokens += statistics.generated_tokens;
        total.prefill += statistics.prefill;
        total.decode += statistics.decode;
        total.first_token = total.first_token.max(statistics.first_token);
    }
    Ok(whole(&completion.envelope.whole(&json!(choices), &taken)))
}

/// One prompt or several, as text or as tokens. Names of special tokens in a text are special tokens.
fn prompts(value: &Value, served: &Served) -> Result<Vec<Vec<u32>>, ApiError> {
    let wrong =
        || ApiError::field("prompt", "must be a string, a list of strings, or tokens or lists of them");
    let tokenizer = served.scheduler.model().tokenizer()?;
    let prompt = |value: &Value| match value {
        Value::String(text) => Ok(tokenizer.encode(text, Special::Parse, AddSpecial::Yes)),
        Value::Array(tokens) => tokens
            .iter()
            .map(|token| token.as_u64()?.try_into().ok())
            .collect::<Option<_>>()
            .ok_or_else(wrong),
        _ => Err(wrong()),
    };
    let prompts = match value {
        Value::Array(list) if list.first().is_some_and(|first| !first.is_u64()) => {
            list.iter().map(prompt).collect::<Result<Vec<_>, _>>()?
        }
        value => vec![prompt(value)?],
    };
    if prompts.len() > MOST_PROMPTS {
        return Err(ApiError::field("prompt", format!("has more than {MOST_PROMPTS} entries")));
    }
    Ok(prompts)
}

fn text_of(served: &Served, tokens: &[u32]) -> Result<String, ApiError> {
    let vocabulary = served.scheduler.model().vocabulary();
    let known: Vec<u32> = tokens.iter().copied().filter(|&token| (token as usize) < vocabulary).collect();
    Ok(String::from_utf8_lossy(&served.scheduler.model().tokenizer()?.decode(&known)).into_owned())
}

/// An answer in OpenAI's words.
struct Completion {
    envelope: Envelope,
    choices: usize,
    log_probabilities: bool,
    /// `[choice]`: bytes of text so far.
    offsets: Vec<usize>,
    /// Sent before the text.
    echo: String,
}

impl Completion {
    fn entry(&self, index: usize, text: &str, finish: Option<&str>) -> Value {
        json!({"index": index, "text": text, "logprobs": null, "finish_reason": finish})
    }

    /// `null` where they were not asked for. `offset` counts the characters before each token.
    fn logprobs(&self, entries: &[LogProbabilities], offset: &mut usize) -> Value {
        if !self.log_probabilities {
            return Value::Null;
        }
        let (mut tokens, mut offsets, mut top) = (Vec::new(), Vec::new(), Vec::new());
        for at in entries {
            let (text, _) = token_text(&self.envelope.served, at.token);
            offsets.push(*offset);
            *offset += text.chars().count();
            tokens.push(text);
            let alternatives = at.alternatives.iter();
            top.push(
                alternatives
                    .map(|(token, log_probability)| {
                        (token_text(&self.envelope.served, *token).0, json!(log_probability))
                    })
                    .collect::<Map<String, Value>>(),
            );
        }
        let own: Vec<f32> = entries.iter().map(|at| at.log_probability).collect();
        json!({"tokens": tokens, "token_logprobs": own, "top_logprobs": top, "text_offset": offsets})
    }
}

impl Wire for Completion {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn write(&mut self, said: Said, out: &mut String) {
        match said {
            Said::Started { .. } => {
                for index in 0..self.choices {
                    if !self.echo.is_empty() {
                        self.envelope.chunk(out, &self.entry(index, &self.echo, None));
                    }
                }
            }
            Said::Text { choice, text, log_probabilities, .. } => {
                if text.is_empty() && log_probabilities.is_empty() {
                    return;
                }
                let mut entry = self.entry(choice, &text, None);
                let mut offset = self.offsets[choice];
                entry["logprobs"] = self.logprobs(&log_probabilities, &mut offset);
                self.offsets[choice] = offset;
                self.envelope.chunk(out, &entry);
            }
            Said::Finished { choice, reason } => {
                self.envelope.chunk(out, &self.entry(choice, "", Some(finish_reason(reason))));
            }
            Said::Done(taken) => self.envelope.end(out, &taken),
            Said::Failed(error) => sse(out, &ApiError::from(error).body(Dialect::OpenAi)),
        }
    }
}
