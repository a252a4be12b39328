//! `POST /v1/audio/transcriptions` and `POST /v1/audio/translations`

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use akunu::StopHandle;
use akunu::speech::{Event, Format, SpeechSettings, Transcription};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_stream::Stream;

use crate::ask::{logged, sse};
use crate::error::{ApiError, Dialect};
use crate::form::Form;
use crate::log;
use crate::resident::{Listener, Turn};

/// `POST /v1/audio/transcriptions`
pub(crate) async fn transcribe(mut form: Form) -> Result<Response, ApiError> {
    let language = form.text("language")?.filter(|language| !language.is_empty());
    let granularities = form.texts("timestamp_granularities[]");
    let stream = match form.text("stream")?.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ApiError::field("stream", "must be true or false")),
    };
    for name in ["include[]", "chunking_strategy", "known_speaker_names[]", "known_speaker_references[]"] {
        form.refuse(name)?;
    }
    let mut words = false;
    for granularity in &granularities {
        match granularity.as_str() {
            "word" => words = true,
            "segment" => {}
            _ => return Err(ApiError::field("timestamp_granularities[]", "may be word and segment")),
        }
    }
    let asked = Asked { stream, ..Asked::read(&mut form)? };
    if !granularities.is_empty() && asked.format != Reply::VerboseJson {
        return Err(ApiError::field("timestamp_granularities[]", "needs `response_format` verbose_json"));
    }
    if stream && !matches!(asked.format, Reply::Json | Reply::Text) {
        return Err(ApiError::field("stream", "needs `response_format` json or text"));
    }
    answer(form, asked, SpeechSettings { language, words, ..SpeechSettings::default() }).await
}

/// `POST /v1/audio/translations`: into English.
pub(crate) async fn translate(mut form: Form) -> Result<Response, ApiError> {
    let asked = Asked::read(&mut form)?;
    answer(form, asked, SpeechSettings { translate: true, ..SpeechSettings::default() }).await
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Json,
    VerboseJson,
    Text,
    Srt,
    Vtt,
}

/// What both ask for in the same words.
struct Asked {
    model: Option<String>,
    prompt: Option<String>,
    format: Reply,
    temperature: f32,
    stream: bool,
}

impl Asked {
    fn read(form: &mut Form) -> Result<Asked, ApiError> {
        let format = match form.text("response_format")?.as_deref() {
            None | Some("json") => Reply::Json,
            Some("verbose_json") => Reply::VerboseJson,
            Some("text") => Reply::Text,
            Some("srt") => Reply::Srt,
            Some("vtt") => Reply::Vtt,
            Some(_) => {
                return Err(ApiError::field(
                    "response_format",
                    "must be json, text, srt, verbose_json or vtt",
                ));
            }
        };
        let temperature = match form.text("temperature")?.map(|text| text.parse::<f32>()) {
            None => 0.0,
            Some(Ok(number)) if (0.0..=1.0).contains(&number) => number,
            Some(_) => return Err(ApiError::field("temperature", "must be a number from 0 to 1")),
        };
        let (model, prompt) = (form.text("model")?, form.text("prompt")?);
        Ok(Asked { model, prompt, format, temperature, stream: false })
    }
}

async fn answer(mut form: Form, asked: Asked, mut settings: SpeechSettings) -> Result<Response, ApiError> {
    let (name, sound) = form.file("file")?;
    form.end()?;
    settings.prompt = asked.prompt.filter(|prompt| !prompt.is_empty());
    // At 0 others are tried where that gives no good transcript, as at OpenAI.
    if asked.temperature > 0.0 {
        settings.temperatures = vec![asked.temperature];
    }
    let listener = form.app.models.find_listener(asked.model.as_deref()).await?;
    let model = listener.id.clone();
    form.app.metrics.started(&model, 0, 0);
    log::brought(form.app.config.log, &form.caller, &model, "bytes", sound.len());
    let work = Work { listener, settings, name, sound };
    if asked.stream {
        return Ok(streamed(work, model, &form));
    }
    let stop = StopOnDrop(StopHandle::default());
    let turn = work.listener.turn().await?;
    let transcription = work.run(turn, stop.0.clone(), |_| {}).await?;
    log::heard(form.app.config.log, &form.caller, &model, &transcription);
    Ok(logged(written(&transcription, asked.format)))
}

/// A recording for a model.
struct Work {
    listener: Arc<Listener>,
    settings: SpeechSettings,
    name: String,
    sound: Vec<u8>,
}

impl Work {
    /// Listens, in one's turn. What it says is passed on segment by segment.
    async fn run(
        self,
        turn: Turn,
        stop: StopHandle,
        mut on: impl FnMut(&str) + Send + 'static,
    ) -> Result<Transcription, ApiError> {
        let Work { listener, settings, name, sound } = self;
        let own = Arc::clone(&listener);
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let sound = own.transcriber.decode(sound, &name, &stop).map_err(|error| match error {
                akunu::Error::Stopped => error.into(),
                error => ApiError::field("file", format!("cannot be read: {error}")).code("invalid_audio"),
            })?;
            let heard = own.transcriber.transcribe(&sound, &settings, &stop, &mut |event| {
                if let Event::Segment(segment) = event {
                    on(&segment.text);
                }
            });
            heard.map_err(ApiError::from)
        });
        let heard = work.await.unwrap_or_else(|_| Err(ApiError::bug()));
        listener.used.touch();
        heard
    }
}

/// Ends the work when nobody waits for it any more.
struct StopOnDrop(StopHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Adds what is said beside the text: how long the sound was, and what was wrong with it.
fn with_usage(mut body: Value, transcription: &Transcription) -> Value {
    body["usage"] = json!({"type": "duration", "seconds": transcription.duration.ceil()});
    if let Some(damage) = &transcription.damage {
        body["damage"] = json!(damage);
    }
    body
}

fn written(transcription: &Transcription, format: Reply) -> Response {
    let text = |kind: &'static str, text: String| ([(header::CONTENT_TYPE, kind)], text).into_response();
    const PLAIN: &str = "text/plain; charset=utf-8";
    match format {
        Reply::Json => {
            let body = json!({"text": transcription.text.trim()});
            axum::Json(with_usage(body, transcription)).into_response()
        }
        Reply::VerboseJson => {
            axum::Json(with_usage(transcription.verbose_json(), transcription)).into_response()
        }
        Reply::Text => text(PLAIN, format!("{}\n", transcription.text.trim())),
        Reply::Srt => text(PLAIN, transcription.write(Format::Srt)),
        Reply::Vtt => text("text/vtt; charset=utf-8", transcription.write(Format::Vtt)),
    }
}

/// What is said while it is understood.
struct Stenography {
    events: UnboundedReceiver<String>,
    _stop: StopOnDrop,
}

impl Stream for Stenography {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(context).map(|event| event.map(|event| Ok(event.into())))
    }
}

fn streamed(work: Work, model: String, form: &Form) -> Response {
    let stop = StopOnDrop(StopHandle::default());
    let (send, events) = unbounded_channel();
    let (handle, app, caller) = (stop.0.clone(), Arc::clone(&form.app), form.caller.clone());
    tokio::spawn(async move {
        let deltas = send.clone();
        let mut begun = false;
        let on = move |text: &str| {
            let delta = if begun { text } else { text.trim_start() };
            begun = true;
            // Nobody may be left to listen.
            let _ = deltas.send(event(&json!({"type": "transcript.text.delta", "delta": delta})));
        };
        let turn = tokio::select! {
            turn = work.listener.turn() => turn,
            // A client that leaves gives up its place.
            () = send.closed() => return,
        };
        let heard = match turn {
            Ok(turn) => work.run(turn, handle, on).await,
            Err(error) => Err(error),
        };
        let last = match heard {
            Ok(transcription) => {
                log::heard(app.config.log, &caller, &model, &transcription);
                let text = transcription.text.trim();
                with_usage(json!({"type": "transcript.text.done", "text": text}), &transcription)
            }
            Err(error) => {
                log::plain(app.config.log, &caller, error.status.as_u16());
                error.body(Dialect::OpenAi)
            }
        };
        let _ = send.send(event(&last));
    });
    let mut response = Body::from_stream(Stenography { events, _stop: stop }).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    logged(response)
}

fn event(value: &Value) -> String {
    let mut out = String::new();
    sse(&mut out, value);
    out
}
