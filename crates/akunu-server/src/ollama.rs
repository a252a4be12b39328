//! Ollama's interface, for the tools that speak nothing else: lines of JSON.

use std::sync::Arc;

use akunu::embed::{Shape, TooLong};
use akunu::{FinishReason, Settings, Statistics};
use akunu_text::chat::{Channel, DateTime, Message, ToolSyntax};
use akunu_text::tokenizer::{AddSpecial, Special};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::app::{App, Call};
use crate::ask::{Prompt, Question, Wire, finish_reason, sampling, stream, whole};
use crate::calls::{self, Calls, Part};
use crate::constraints;
use crate::conversation::Conversation;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::models::unix_time;
use crate::openai::embeddings::{Input, vectors};
use crate::openai::models::may_manage;
use crate::resident::{Resident, Served};
use crate::thinking::{Said, Thinking};
use crate::tools::Tools;

/// The highest temperature: Ollama itself has no bound.
const HOTTEST: f32 = 10.0;

/// `GET /api/version`
pub(crate) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /api/tags`
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    let describe = |model: &Value| {
        let mut entry = entry(model);
        entry["modified_at"] = json!(time(DateTime::from_unix(model["created"].as_u64().unwrap_or(0))));
        entry["size"] = json!(model["size"].as_u64().unwrap_or(0));
        entry
    };
    let models: Vec<Value> = app.models.describe().iter().map(describe).collect();
    Json(json!({"models": models}))
}

/// `GET /api/ps`: the models in memory, and when they leave it if nobody asks for them.
pub(crate) async fn running(State(app): State<Arc<App>>) -> Json<Value> {
    let all = app.models.describe();
    let describe = |resident: &Resident| {
        let model = all.iter().find(|model| model["id"] == resident.id()).unwrap_or(&Value::Null);
        let mut entry = entry(model);
        // Where nobody counts, a model takes as much as its files.
        let size = Some(resident.memory()).filter(|&bytes| bytes > 0).or(model["size"].as_u64());
        let on_cpu = ["cpu", "reference"].iter().any(|name| model["backend"] == *name);
        entry["size"] = json!(size);
        entry["size_vram"] = if on_cpu { json!(0) } else { json!(size) };
        entry["context_length"] = model["context_length"].clone();
        // One that stays leaves at the end of all years.
        let leaves = app.config.idle_timeout.map_or(u64::MAX, |timeout| {
            unix_time() + timeout.saturating_sub(resident.last_use().get().elapsed()).as_secs()
        });
        entry["expires_at"] = json!(time(DateTime::from_unix(leaves)));
        entry
    };
    let models: Vec<Value> = app.models.loaded().iter().map(describe).collect();
    Json(json!({"models": models}))
}

/// What both lists say of a model.
fn entry(model: &Value) -> Value {
    json!({
        "name": model["id"],
        "model": model["id"],
        "digest": model["digest"].as_str().unwrap_or_default(),
        "details": details(model),
    })
}

/// `POST /api/show`
pub(crate) async fn show(mut call: Call) -> Result<Json<Value>, ApiError> {
    let name: Option<String> = call.fields.take("model")?;
    let name = name.or(call.fields.take("name")?);
    call.fields.take::<bool>("verbose")?;
    call.fields.end()?;
    let served = call.app.models.find(name.as_deref()).await?;
    let described = call.app.models.describe().into_iter().find(|model| model["id"] == served.id);
    let model = served.scheduler.model();
    let family = model.architecture().family;
    let mut info = json!({"general.architecture": family});
    info[format!("{family}.context_length")] = json!(model.context());
    let template = served.template.as_ref().map_or("", |template| template.source());
    let mut capabilities = vec!["completion"];
    let template_for_tools = served.template_for(true).ok().flatten();
    if template_for_tools.and_then(|template| ToolSyntax::of_template(template.source())).is_some() {
        capabilities.push("tools");
    }
    Ok(Json(json!({
        "template": template,
        "details": details(&described.unwrap_or_default()),
        "model_info": info,
        "capabilities": capabilities,
    })))
}

/// What is said of a model's kind and size, from how `/v1/models` describes it.
fn details(model: &Value) -> Value {
    let text = |field: &str| model[field].as_str().unwrap_or_default();
    json!({
        "format": text("format"),
        "family": text("family"),
        "families": [text("family")],
        "parameter_size": size(model["parameters"].as_u64().unwrap_or(0)),
        "quantization_level": text("dtype"),
    })
}

/// A number of parameters as people say it, such as `134.52M` or `8.03B`.
fn size(parameters: u64) -> String {
    match parameters {
        0 => String::new(),
        1..1_000_000 => format!("{:.2}K", parameters as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}M", parameters as f64 / 1e6),
        _ => format!("{:.2}B", parameters as f64 / 1e9),
    }
}

/// `POST /api/chat`
pub(crate) async fn chat(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(Some(&fields.need::<String>("model")?)).await?;
    if fields.get("messages").is_none_or(|messages| *messages == json!([])) {
        return load_alone(&mut call, served, Kind::Chat);
    }
    let mut messages = fields.messages("messages")?;
    for (i, message) in messages.iter_mut().enumerate() {
        if message.extra.remove("images").is_some_and(|images| images != json!([]) && !images.is_null()) {
            let name = format!("messages[{i}].images");
            return Err(ApiError::unsupported(&name, "cannot be seen: this model reads text only"));
        }
        if let Some(Value::String(name)) = message.extra.remove("tool_name") {
            message.name = Some(name);
        }
    }
    let (mut settings, streamed) = settings(fields, &served)?;
    let thinking = thinking(fields)?;
    let tools = Tools::ollama(fields)?;
    fields.end()?;
    let prompt = conversation(messages, tools, thinking).prompt(&served, &mut settings)?;
    answer(&call, served, prompt, settings, streamed, Kind::Chat).await
}

/// `POST /api/generate`
pub(crate) async fn generate(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(Some(&fields.need::<String>("model")?)).await?;
    if fields.get("prompt").is_none_or(|prompt| *prompt == json!("")) && fields.get("system").is_none() {
        return load_alone(&mut call, served, Kind::Generate);
    }
    let text: String = fields.take("prompt")?.unwrap_or_default();
    let system: Option<String> = fields.take("system")?;
    let raw = fields.take("raw")?.unwrap_or(false);
    let (mut settings, streamed) = settings(fields, &served)?;
    let thinking = thinking(fields)?;
    for (name, nothing) in
        [("suffix", json!("")), ("images", json!([])), ("context", json!([])), ("template", json!(""))]
    {
        fields.refuse(name, &[nothing], "is not available")?;
    }
    fields.end()?;
    let prompt = if raw || served.template.is_none() {
        served.scheduler.model().tokenizer()?.encode(&text, Special::Parse, AddSpecial::Yes).into()
    } else {
        let system = system.filter(|text| !text.is_empty()).map(Message::system);
        let messages: Vec<Message> = system.into_iter().chain([Message::user(text)]).collect();
        conversation(messages, None, thinking).prompt(&served, &mut settings)?
    };
    answer(&call, served, prompt, settings, streamed, Kind::Generate).await
}

/// Nothing is asked: the model is only to be in memory, or with a `keep_alive` of 0 no longer.
fn load_alone(call: &mut Call, served: Arc<Served>, kind: Kind) -> Result<Response, ApiError> {
    let keep = call.fields.take::<Value>("keep_alive")?;
    let leave = keep.is_some_and(|keep| keep == json!(0) || keep == json!("0"));
    if leave {
        may_manage(&call.app)?;
        let entry = call.app.models.entry(Some(&served.id))?;
        call.app.models.unload(&entry);
    }
    let lines = Lines { served, kind, finished: None, calls: Calls::new(None, 1), call: None };
    let mut line = lines.line("", "", true);
    line["done_reason"] = json!(if leave { "unload" } else { "load" });
    Ok(whole(&line))
}

/// `POST /api/embed`: texts that are too long are cut unless `truncate` is false, as everywhere in this interface.
pub(crate) async fn embed(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let name: String = fields.need("model")?;
    let input = Input::read(fields.need("input")?, "input")?;
    let too_long = if fields.take("truncate")?.unwrap_or(true) { TooLong::Cut } else { TooLong::Refuse };
    let shape = Shape { dimensions: fields.take("dimensions")?, ..Shape::default() };
    embedding_options(fields)?;
    let vectors = vectors(&call, Some(&name), "input", input, shape, too_long).await?;
    Ok(whole(&json!({
        "model": vectors.model,
        "embeddings": vectors.vectors,
        "total_duration": call.caller.began.elapsed().as_nanos() as u64,
        "load_duration": 0,
        "prompt_eval_count": vectors.tokens,
    })))
}

/// `POST /api/embeddings`, the older form: one text, and a vector that is not scaled.
pub(crate) async fn embed_one(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let name: String = fields.need("model")?;
    let input = Input::Texts(vec![fields.need("prompt")?]);
    embedding_options(fields)?;
    let shape = Shape { normalize: false, ..Shape::default() };
    let vectors = vectors(&call, Some(&name), "prompt", input, shape, TooLong::Cut).await?;
    Ok(whole(&json!({"embedding": vectors.vectors.into_iter().next()})))
}

/// Of the options none is for embeddings but `num_ctx`, which is as the model was loaded.
fn embedding_options(fields: &mut Fields) -> Result<(), ApiError> {
    if let Some(mut options) = fields.object("options")? {
        options.take::<usize>("num_ctx")?;
        options.end()?;
    }
    fields.end()
}

/// `think`: whether to, or how hard.
fn thinking(fields: &mut Fields) -> Result<Thinking, ApiError> {
    let wanted = match fields.take::<Value>("think")? {
        None => None,
        Some(Value::Bool(wanted)) => Some(wanted),
        Some(effort) => Thinking::effort(&mut Fields::of("think", effort), "think")?,
    };
    Ok(Thinking { wanted, ..Thinking::default() })
}

/// The answer goes on with a last message of the assistant's.
fn conversation(messages: Vec<Message>, tools: Option<Tools>, thinking: Thinking) -> Conversation {
    Conversation {
        continues: Conversation::ends_with_assistant(&messages),
        messages,
        tools,
        thinking,
        thinking_field: "think",
        variables: Map::new(),
    }
}

fn settings(fields: &mut Fields, served: &Served) -> Result<(Settings, bool), ApiError> {
    let streamed = fields.take("stream")?.unwrap_or(true);
    let constraint = constraints::ollama_format(fields)?;
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
        sampling: sampling(&mut options, served, HOTTEST)?,
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
    prompt: Prompt,
    settings: Settings,
    streamed: bool,
    kind: Kind,
) -> Result<Response, ApiError> {
    let syntax = prompt.calls;
    let mut question = Question::new(&call.app, Arc::clone(&served), prompt, settings, streamed)?;
    question.form = Some("format");
    let answer = question.ask(call).await?;
    let lines = Lines { served, kind, finished: None, calls: Calls::new(syntax, 1), call: None };
    if streamed {
        return Ok(stream(answer, lines));
    }
    let (mut choices, taken) = answer.collect(1).await?;
    let choice = choices.swap_remove(0);
    let (text, calls) = calls::read_whole(syntax, choice.text, choice.reason);
    let mut last = lines.last(&text, &choice.reasoning, choice.reason, &taken.statistics);
    if !calls.is_empty() {
        last["message"]["tool_calls"] = calls.iter().map(tool_call).collect();
    }
    Ok(whole(&last))
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
    calls: Calls,
    /// A call whose arguments are still coming.
    call: Option<calls::Call>,
}

/// A call in Ollama's words: arguments are an object.
fn tool_call(call: &calls::Call) -> Value {
    json!({"function": {"name": call.name, "arguments": call.arguments()}})
}

fn push_line(out: &mut String, line: &Value) {
    out.push_str(&line.to_string());
    out.push('\n');
}

impl Lines {
    /// What parts of an answer add: text as it comes, calls when they are complete.
    fn parts(&mut self, parts: Vec<Part>, out: &mut String) {
        for part in parts {
            match part {
                Part::Text(text) => push_line(out, &self.line(&text, "", false)),
                Part::Call { id, name, .. } => {
                    self.complete_call(out);
                    self.call = Some(calls::Call { id, name, arguments: String::new() });
                }
                Part::Arguments { text, .. } => {
                    if let Some(call) = &mut self.call {
                        call.arguments.push_str(&text);
                    }
                }
            }
        }
    }

    fn complete_call(&mut self, out: &mut String) {
        if let Some(call) = self.call.take() {
            let mut line = self.line("", "", false);
            line["message"]["tool_calls"] = json!([tool_call(&call)]);
            push_line(out, &line);
        }
    }

    fn line(&self, text: &str, reasoning: &str, done: bool) -> Value {
        let mut line = json!({"model": self.served.id, "created_at": time(DateTime::now_utc())});
        let said = match self.kind {
            Kind::Chat => {
                line["message"] = json!({"role": "assistant", "content": text});
                &mut line["message"]
            }
            Kind::Generate => {
                line["response"] = json!(text);
                &mut line
            }
        };
        if !reasoning.is_empty() {
            said["thinking"] = json!(reasoning);
        }
        line["done"] = json!(done);
        line
    }

    fn last(
        &self,
        text: &str,
        reasoning: &str,
        reason: Option<FinishReason>,
        statistics: &Statistics,
    ) -> Value {
        let mut line = self.line(text, reasoning, true);
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

    fn write(&mut self, said: Said, out: &mut String) {
        let line = match said {
            Said::Started { .. } => return,
            Said::Text { text, .. } if text.is_empty() => return,
            Said::Text { channel: Channel::Answer, text, .. } => {
                let parts = self.calls.push(0, text);
                return self.parts(parts, out);
            }
            Said::Text { channel: Channel::Reasoning, text, .. } => self.line("", &text, false),
            Said::Finished { reason, .. } => {
                let parts = self.calls.finish(0, reason);
                self.parts(parts, out);
                self.complete_call(out);
                self.finished = Some(reason);
                return;
            }
            Said::Done(taken) => self.last("", "", self.finished, &taken.statistics),
            Said::Failed(error) => ApiError::from(error).body(Dialect::Ollama),
        };
        push_line(out, &line);
    }
}

fn time(at: DateTime) -> String {
    let DateTime { year, month, day, hour, minute, second } = at;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
