//! OpenAI's interface.

pub(crate) mod audio;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod models;
pub(crate) mod responses;
pub(crate) mod tokens;

use std::sync::Arc;

use akunu::Settings;
use serde_json::{Value, json};

use crate::ask::{Question, random, sampling, sse, timings, usage};
use crate::constraints;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::unix_time;
use crate::resident::Served;
use crate::thinking::Taken;

/// The highest temperature.
const HOTTEST: f32 = 2.0;

/// Most alternatives a client may ask for with each token.
const MOST_ALTERNATIVES: usize = 20;

/// What both kinds of completion ask for in the same words.
struct Wishes {
    settings: Settings,
    /// The field that says what the answer must be like.
    form: Option<&'static str>,
    choices: usize,
    stream: bool,
    usage: bool,
}

impl Wishes {
    fn read(fields: &mut Fields, served: &Served) -> Result<Wishes, ApiError> {
        let most = fields.take("max_completion_tokens")?;
        let max_tokens = fields.take("max_tokens")?;
        let sampling = sampling(fields, served, HOTTEST)?;
        let (form, constraint) = constraints::read(fields)?.unzip();
        let settings = Settings {
            sampling,
            max_tokens: most.or(max_tokens),
            stop: fields.strings("stop")?,
            constraint,
            ..Settings::default()
        };
        let choices = fields.take("n")?.unwrap_or(1);
        let most = served.scheduler.model().sequences();
        if !(1..=most).contains(&choices) {
            let problem = format!("is {choices}: this server generates 1 to {most} at a time");
            return Err(ApiError::field("n", problem));
        }
        let stream = fields.take("stream")?.unwrap_or(false);
        let usage = match fields.object("stream_options")? {
            Some(_) if !stream => return Err(ApiError::field("stream_options", "needs `stream`")),
            Some(mut options) => {
                let usage = options.take("include_usage")?.unwrap_or(false);
                options.take::<bool>("include_obfuscation")?;
                options.end()?;
                usage
            }
            None => false,
        };
        Ok(Wishes { settings, form, choices, stream, usage })
    }

    fn apply(&self, question: &mut Question, log_probabilities: Option<usize>) {
        question.request.choices = self.choices;
        question.request.log_probabilities = log_probabilities;
        question.form = self.form;
    }
}

/// What both kinds of completion say around their choices, whole or in chunks.
struct Envelope {
    id: String,
    object: &'static str,
    created: u64,
    served: Arc<Served>,
    /// Whether the last chunk says what it took.
    usage: bool,
}

impl Envelope {
    fn new(prefix: &str, object: &'static str, served: Arc<Served>, usage: bool) -> Envelope {
        Envelope { id: new_id(prefix), object, created: unix_time(), served, usage }
    }

    fn around(&self, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.served.id,
            "choices": choices,
        })
    }

    /// All of an answer.
    fn whole(&self, choices: &Value, taken: &Taken) -> Value {
        let mut whole = self.around(choices);
        whole["usage"] = usage(taken);
        whole["timings"] = timings(&taken.statistics);
        whole
    }

    /// Writes one choice of a stream.
    fn chunk(&self, out: &mut String, choice: &Value) {
        let mut chunk = self.around(&json!([choice]));
        if self.usage {
            chunk["usage"] = Value::Null;
        }
        sse(out, &chunk);
    }

    /// Writes the end of a stream.
    fn end(&self, out: &mut String, taken: &Taken) {
        if self.usage {
            sse(out, &self.whole(&json!([]), taken));
        }
        out.push_str("data: [DONE]\n\n");
    }
}

/// An id for an answer.
pub(crate) fn new_id(prefix: &str) -> String {
    format!("{prefix}{:016x}{:08x}", random(), random() as u32)
}
