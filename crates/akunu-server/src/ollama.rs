//! Ollama's interface, for the tools that speak nothing else: lines of JSON.

use std::sync::Arc;

use akunu::scheduler::Event;
use akunu::{FinishReason, Settings, Statistics};
use akunu_text::chat::{DateTime, Message};
use akunu_text::tokenizer::{AddSpecial, Special};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use crate::app::{App, Call};
use crate::ask::{Question, Wire, finish_reason, prompt_of, sampling, stream, whole};
use crate::constraints;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::models::Served;

/// `GET /api/version`
pub(crate) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /api/tags`
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<Value> = app
        .models
        .all()
        .iter()
        .map(|served| {
            json!({
                "name": served.id,
                "model": served.id,
                "modified_at": time(DateTime::from_unix(served.created)),
                "size": served.bytes,
                "digest": "",
                "details": details(served),
            })
        })
        .collect();
    Json(json!({"models": models}))
}

/// `POST /api/show`
pub(crate) async fn show(mut call: Call) -> Result<Json<Value>, ApiError> {
    let name: Option<String> = call.fields.take("model")?;
    let name = name.or(call.fields.take("name")?);
    call.fields.take::<bool>("verbose")?;
    call.fields.end()?;
    let served = call.app.models.find(name.as_deref())?;
    let model = served.scheduler.model();
    let family = model.architecture().family;
    let mut info = json!({"general.architecture": family});
    info[format!("{family}.context_length")] = json!(model.context());
    let template = served.template.as_ref().map_or("", |template| template.source());
    Ok(Json(json!({
        "template": template,
        "details": details(&served),
        "model_info": info,
        "capabilities": ["completion"],
    })))
}

fn details(served: &Served) -> Value {
    let family = served.scheduler.model().architecture().family;
    json!({"format": "gguf", "family": family, "families": [family], "parameter_size": "", "quantization_level": ""})
}

/// `POST /api/chat`
pub(crate) async fn chat(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(Some(&fields.need::<String>("model")?))?;
    let messages = fields.messages("messages")?;
    let (mut settings, streamed) = settings(fields, &served)?;
    fields.refuse("tools", &[json!([])], "is not available yet: this server does not call tools")?;
    fields.end()?;
    let prompt = prompt_of(&served, &messages, None)?;
    constraints::after_thinking(&served, &prompt, &mut settings)?;
    answer(&call, served, prompt, settings, streamed, Kind::Chat).await
}

/// `POST /api/generate`
pub(crate) async fn generate(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(Some(&fields.need::<String>("model")?))?;
    let text: String = fields.take("prompt")?.unwrap_or_default();
    let system: Option<String> = fields.take("system")?;
    let raw = fields.take("raw")?.unwrap_or(false);
    let (mut settings, streamed) = settings(fields, &served)?;
    for (name, nothing) in
        [("suffix", json!("")), ("images", json!([])), ("context", json!([])), ("template", json!(""))]
    {
        fields.refuse(name, &[nothing], "is not available")?;
    }
    fields.end()?;
    let prompt = if raw || served.template.is_none() {
        served.scheduler.model().tokenizer()?.encode(&text, Special::Parse, AddSpecial::Yes)
    } else {
        let system = system.filter(|text| !text.is_empty()).map(Message::system);
        let messages: Vec<Message> = system.into_iter().chain([Message::user(text)]).collect();
        let prompt = prompt_of(&served, &messages, None)?;
        constraints::after_thinking(&served, &prompt, &mut settings)?;
        prompt
    };
    answer(&call, served, prompt, settings, streamed, Kind::Generate).await
}

fn settings(fields: &mut Fields, served: &Served) -> Result<(Settings, bool), ApiError> {
    let streamed = fields.take("stream")?.unwrap_or(true);
    let constraint = constraints::ollama_format(fields)?;
    fields.refuse("think", &[json!(false)], "is not available yet")?;
    let mut options = match fields.object("options")? {
        Some(options) => options,
        None => Fields::parse(b"{}")?,
    };
    let context = served.scheduler.model().context();
    if let Some(asked) = options.take::<usize>("num_ctx")?
        && asked > context
    {
        let problem = format!("is {asked}: the model was loaded with a context of {context}");
        return Err(ApiError::field("options.num_ctx", problem));
    }
    let settings = Settings {
        sampling: sampling(&mut options, served)?,
        // Negative numbers mean no limit.
        max_tokens: options.take::<i64>("num_predict")?.and_then(|n| usize::try_from(n).ok()),
        stop: options.strings("stop")?,
        constraint,
        ..Settings::default()
    };
    options.end()?;
    Ok((settings, streamed))
}

async fn answer(
    call: &Call,
    served: Arc<Served>,
    prompt: Vec<u32>,
    settings: Settings,
    streamed: bool,
    kind: Kind,
) -> Result<Response, ApiError> {
    let answer = Question::new(&call.app, Arc::clone(&served), prompt, settings, streamed)?.ask(call)?;
    let lines = Lines { served, kind, finished: None };
    if streamed {
        return Ok(stream(answer, lines));
    }
    let (mut choices, statistics) = answer.collect(1).await?;
    let choice = choices.swap_remove(0);
    Ok(whole(&lines.last(&choice.text, choice.reason, &statistics)))
}

#[derive(Clone, Copy)]
enum Kind {
    Chat,
    Generate,
}

/// An answer in Ollama's words.
struct Lines {
    served: Arc<Served>,
    kind: Kind,
    finished: Option<FinishReason>,
}

impl Lines {
    fn line(&self, text: &str, done: bool) -> Value {
        let mut line = json!({"model": self.served.id, "created_at": time(DateTime::now_utc())});
        match self.kind {
            Kind::Chat => line["message"] = json!({"role": "assistant", "content": text}),
            Kind::Generate => line["response"] = json!(text),
        }
        line["done"] = json!(done);
        line
    }

    fn last(&self, text: &str, reason: Option<FinishReason>, statistics: &Statistics) -> Value {
        let mut line = self.line(text, true);
        let nanoseconds = |time: std::time::Duration| json!(time.as_nanos() as u64);
        line["done_reason"] = json!(reason.map(finish_reason));
        line["total_duration"] = nanoseconds(statistics.first_token + statistics.decode);
        line["load_duration"] = json!(0);
        line["prompt_eval_count"] = json!(statistics.prompt_tokens);
        line["prompt_eval_duration"] = nanoseconds(statistics.prefill);
        line["eval_count"] = json!(statistics.generated_tokens);
        line["eval_duration"] = nanoseconds(statistics.decode);
        line
    }
}

impl Wire for Lines {
    const CONTENT_TYPE: &'static str = "application/x-ndjson";

    fn write(&mut self, event: Event, out: &mut String) {
        let line = match event {
            Event::Piece { piece, .. } if !piece.text.is_empty() => self.line(&piece.text, false),
            Event::Started { .. } | Event::Piece { .. } => return,
            Event::Finished { reason, .. } => {
                self.finished = Some(reason);
                return;
            }
            Event::Done(statistics) => self.last("", self.finished, &statistics),
            Event::Failed(error) => ApiError::from(error).body(Dialect::Ollama),
        };
        out.push_str(&line.to_string());
        out.push('\n');
    }
}

fn time(at: DateTime) -> String {
    let DateTime { year, month, day, hour, minute, second } = at;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
