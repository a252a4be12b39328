//! From a request's fields to a model, and its answer as it comes.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use akunu::scheduler::{Event, LogProbabilities, Request, Response};
use akunu::{FinishReason, Sampling, Settings, Statistics};
use akunu_text::chat::{Channel, Splitter, ToolSyntax};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use tokio_stream::Stream;

use crate::app::{App, Call, Caller};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::log::{self, Logged};
use crate::resident::Served;
use crate::thinking::{Parted, Said, Taken};
use crate::tools::{Layout, refused};

type Result<T> = std::result::Result<T, ApiError>;

/// A number nobody can guess, another each time.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}

/// The parameters of sampling that all interfaces have in common, but for the highest temperature. What is absent is as the
/// model's makers say, or plain sampling at temperature 1.
pub(crate) fn sampling(fields: &mut Fields, served: &Served, hottest: f32) -> Result<Sampling> {
    let plain = Sampling { temperature: 1.0, ..Sampling::GREEDY };
    let default = served.scheduler.model().recommended_sampling().cloned().unwrap_or(plain);
    let frequency_penalty = fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0);
    let presence_penalty = fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(0.0);
    // These two are over the whole text by OpenAI's definition.
    let everything = frequency_penalty != 0.0 || presence_penalty != 0.0;
    let look_back = if everything { u32::MAX } else { default.repeat_last_n };
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0, hottest)?.unwrap_or(default.temperature),
        top_p: fields.number("top_p", 0.0, 1.0)?.map_or(default.top_p, |p| p.max(f32::MIN_POSITIVE)),
        top_k: fields.take("top_k")?.unwrap_or(default.top_k),
        min_p: fields.number("min_p", 0.0, 1.0)?.unwrap_or(default.min_p),
        repeat_penalty: fields.number("repeat_penalty", 0.01, 10.0)?.unwrap_or(default.repeat_penalty),
        frequency_penalty,
        presence_penalty,
        repeat_last_n: fields.take("repeat_last_n")?.unwrap_or(look_back),
        // Negative seeds are seeds too.
        seed: fields.take::<i64>("seed")?.map_or_else(random, |seed| seed as u64),
        logit_bias: logit_bias(fields, served.scheduler.model().vocabulary())?,
    })
}

fn logit_bias(fields: &mut Fields, vocabulary: usize) -> Result<Vec<(u32, f32)>> {
    let biases: Map<String, Value> = fields.take("logit_bias")?.unwrap_or_default();
    let entry = |(token, bias): (String, Value)| match (token.parse::<u32>(), bias.as_f64()) {
        (Ok(token), _) if token as usize >= vocabulary => {
            Err(ApiError::field("logit_bias", format!("names token {token}: the model has {vocabulary}")))
        }
        (Ok(token), Some(bias)) if (-100.0..=100.0).contains(&bias) => Ok((token, bias as f32)),
        _ => Err(ApiError::field("logit_bias", "must map token numbers to numbers from -100 to 100")),
    };
    biases.into_iter().map(entry).collect()
}

/// What a model is fed, and how its answer is read.
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    /// Tells thoughts from the answer, where the model has thoughts.
    pub(crate) splitter: Option<Splitter>,
    /// How the answer calls tools, where there are some.
    pub(crate) calls: Option<&'static ToolSyntax>,
    /// How the request defines them.
    pub(crate) tools: Option<Layout>,
}

/// A prompt that is no conversation.
impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Prompt {
        Prompt { tokens, splitter: None, calls: None, tools: None }
    }
}

/// What a model is asked.
pub(crate) struct Question {
    pub(crate) served: Arc<Served>,
    pub(crate) request: Request,
    pub(crate) stream: bool,
    /// The field that says what the answer must be like.
    pub(crate) form: Option<&'static str>,
    tools: Option<Layout>,
    splitter: Option<Splitter>,
}

impl Question {
    /// One continuation of a prompt. The length is what was asked for, or the server's default, and no more than the context
    /// has room for.
    pub(crate) fn new(
        app: &App,
        served: Arc<Served>,
        prompt: Prompt,
        mut settings: Settings,
        stream: bool,
    ) -> Result<Question> {
        let Prompt { tokens, splitter, tools, .. } = prompt;
        let context = served.scheduler.model().context();
        if tokens.len() > context {
            return Err(akunu::Error::TooLong { tokens: tokens.len(), context }.into());
        }
        // The token that is chosen last need not be fed.
        let room = context - tokens.len() + 1;
        settings.max_tokens = Some(settings.max_tokens.unwrap_or(app.config.default_max_tokens).min(room));
        let request = Request { settings, ..Request::new(tokens) };
        Ok(Question { served, request, stream, form: None, tools, splitter })
    }

    /// Puts it into the model's queue.
    pub(crate) async fn ask(self, call: &Call) -> Result<Answer> {
        let Question { served, mut request, stream, form, tools, splitter } = self;
        let (app, caller) = (Arc::clone(&call.app), call.caller.clone());
        let mut prompt = None;
        if app.config.log_prompts {
            let text = served.scheduler.model().tokenizer()?.decode_with_special(&request.prompt);
            prompt = Some(String::from_utf8_lossy(&text).into_owned());
        }
        let max_tokens = request.settings.max_tokens;
        log::asked(app.config.log, &caller, &served.id, stream, max_tokens, prompt.as_deref());
        request.client = caller.client;
        let statistics = Statistics { prompt_tokens: request.prompt.len(), ..Statistics::default() };
        let parted = Parted::new(splitter, request.choices);
        let response = served.submit(request).await?.map_err(|error| refused(error, tools, form))?;
        Ok(Answer {
            response,
            parted,
            app,
            caller,
            served,
            statistics,
            end: None,
            failed: None,
            last_piece: None,
        })
    }
}

/// An answer as it comes. What happens to it is counted, and written to the log when it ends.
pub(crate) struct Answer {
    response: Response,
    parted: Parted,
    app: Arc<App>,
    caller: Caller,
    pub(crate) served: Arc<Served>,
    pub(crate) statistics: Statistics,
    end: Option<FinishReason>,
    failed: Option<u16>,
    last_piece: Option<Instant>,
}

impl Answer {
    /// What is said next; `None` when the scheduler's thread is gone.
    fn poll_said(&mut self, context: &mut Context<'_>) -> Poll<Option<Said>> {
        loop {
            if let Some(said) = self.parted.next() {
                return Poll::Ready(Some(said));
            }
            match ready!(self.response.poll_event(context)) {
                Some(event) => {
                    self.count(&event);
                    self.parted.take(event);
                }
                None => return Poll::Ready(None),
            }
        }
    }

    /// Keeps the books.
    fn count(&mut self, event: &Event) {
        match event {
            Event::Started { cached_tokens, .. } => {
                self.statistics.cached_tokens = *cached_tokens;
                self.app.metrics.started(&self.served.id, self.statistics.prompt_tokens, *cached_tokens);
            }
            Event::Piece { piece, .. } => {
                self.statistics.generated_tokens += piece.tokens.len();
                let now = Instant::now();
                match self.last_piece.replace(now) {
                    None => self.app.metrics.first_token(&self.served.id, now - self.caller.began),
                    Some(last) => self.app.metrics.token_gap(&self.served.id, now - last),
                }
            }
            Event::Finished { reason, .. } => self.end = Some(*reason),
            Event::Done(statistics) => self.statistics = *statistics,
            Event::Failed(_) => self.failed = Some(500),
        }
    }

    /// Waits for all of it.
    pub(crate) async fn collect(mut self, choices: usize) -> Result<(Vec<Choice>, Taken)> {
        let mut collected: Vec<Choice> = Vec::new();
        collected.resize_with(choices, Choice::default);
        while let Some(said) = std::future::poll_fn(|context| self.poll_said(context)).await {
            match said {
                Said::Started { .. } => {}
                Said::Text { choice, channel, text, log_probabilities } => {
                    let choice = &mut collected[choice];
                    match channel {
                        Channel::Answer => choice.text.push_str(&text),
                        Channel::Reasoning => choice.reasoning.push_str(&text),
                    }
                    choice.log_probabilities.extend(log_probabilities);
                }
                Said::Finished { choice, reason } => collected[choice].reason = Some(reason),
                Said::Done(taken) => return Ok((collected, taken)),
                Said::Failed(error) => return Err(error.into()),
            }
        }
        Err(akunu::Error::Stopped.into())
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.served.used.touch();
        let cancelled = self.end.is_none() && self.failed.is_none();
        self.app.metrics.finished(&self.served.id, self.statistics.generated_tokens, cancelled);
        let end = match self.end {
            _ if self.failed.is_some() => "failed",
            Some(reason) => finish_reason(reason),
            None => "cancelled",
        };
        let status = self.failed.unwrap_or(200);
        let Answer { app, caller, served, statistics, .. } = self;
        log::answered(app.config.log, caller, &served.id, statistics, status, end);
    }
}

/// One continuation, complete.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) text: String,
    /// What the model thought before.
    pub(crate) reasoning: String,
    pub(crate) log_probabilities: Vec<LogProbabilities>,
    pub(crate) reason: Option<FinishReason>,
}

/// A reason in OpenAI's words, for an answer that may have ended in calls of tools.
pub(crate) fn finish_reason_after(reason: FinishReason, called: bool) -> &'static str {
    match reason {
        FinishReason::Stop if called => "tool_calls",
        reason => finish_reason(reason),
    }
}

/// A reason in OpenAI's words.
pub(crate) fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopString(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
    }
}

/// What a request took, in OpenAI's words.
pub(crate) fn usage(taken: &Taken) -> Value {
    let Taken { statistics, reasoning_tokens } = taken;
    json!({
        "prompt_tokens": statistics.prompt_tokens,
        "completion_tokens": statistics.generated_tokens,
        "total_tokens": statistics.prompt_tokens + statistics.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": statistics.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    })
}

/// How long things took, as an addition to OpenAI's answers.
pub(crate) fn timings(statistics: &Statistics) -> Value {
    let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    json!({
        "first_token_ms": ms(statistics.first_token),
        "prefill_ms": ms(statistics.prefill),
        "decode_ms": ms(statistics.decode),
        "prefill_per_second": (statistics.prefill_rate() * 100.0).round() / 100.0,
        "decode_per_second": (statistics.decode_rate() * 100.0).round() / 100.0,
    })
}

/// How an interface writes an answer while it comes.
pub(crate) trait Wire: Send + Unpin + 'static {
    /// The type of the whole.
    const CONTENT_TYPE: &'static str;

    /// What is added to it by what was said.
    fn write(&mut self, said: Said, out: &mut String);
}

/// One event of a stream of server-sent events.
pub(crate) fn sse(out: &mut String, value: &Value) {
    out.push_str("data: ");
    out.push_str(&value.to_string());
    out.push_str("\n\n");
}

/// The answer as a body that grows.
struct Streamed<W> {
    answer: Answer,
    wire: W,
    ended: bool,
}

impl<W: Wire> Stream for Streamed<W> {
    type Item = std::result::Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while !this.ended {
            let said = ready!(this.answer.poll_said(context)).unwrap_or(Said::Failed(akunu::Error::Stopped));
            this.ended = matches!(said, Said::Done(_) | Said::Failed(_));
            let mut out = String::new();
            this.wire.write(said, &mut out);
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(out.into())));
            }
        }
        Poll::Ready(None)
    }
}

/// Sends an answer while it comes.
pub(crate) fn stream<W: Wire>(answer: Answer, wire: W) -> axum::response::Response {
    let body = Body::from_stream(Streamed { answer, wire, ended: false });
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(W::CONTENT_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    logged(response)
}

/// Sends an answer that is complete.
pub(crate) fn whole(value: &Value) -> axum::response::Response {
    logged(axum::Json(value).into_response())
}

/// Marks an answer whose line in the log is its own affair.
pub(crate) fn logged(mut response: axum::response::Response) -> axum::response::Response {
    response.extensions_mut().insert(Logged);
    response
}

/// The text of one token, and its bytes, which need not be whole characters.
pub(crate) fn token_text(served: &Served, token: u32) -> (String, Vec<u8>) {
    let bytes =
        served.scheduler.model().tokenizer().map_or(&[][..], |tokenizer| tokenizer.token_bytes(token));
    (String::from_utf8_lossy(bytes).into_owned(), bytes.to_vec())
}
