//! One line on stderr for every request and every answer. What people write is in it only where the server was told so.

use std::io::Write;

use akunu::Statistics;
use akunu::speech::Transcription;
use akunu_text::chat::DateTime;
use serde_json::{Value, json};

use crate::app::Caller;
use crate::config::Log;

/// Marks a response whose line is written when its text is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged;

/// A request that a model will answer.
pub(crate) fn asked(
    log: Log,
    caller: &Caller,
    model: &str,
    stream: bool,
    max_tokens: Option<usize>,
    prompt: Option<&str>,
) {
    let mut fields = vec![
        ("model", json!(model)),
        ("stream", json!(stream)),
        ("max_tokens", max_tokens.map_or(json!("default"), |n| json!(n))),
    ];
    fields.extend(prompt.map(|prompt| ("prompt", json!(prompt))));
    write(log, caller, "request", &fields);
}

/// Texts or a recording for a model, of which there is this much.
pub(crate) fn brought(log: Log, caller: &Caller, model: &str, what: &str, much: usize) {
    write(log, caller, "request", &[("model", json!(model)), (what, json!(much))]);
}

/// An answer of a model, complete or not.
pub(crate) fn answered(
    log: Log,
    caller: &Caller,
    model: &str,
    statistics: &Statistics,
    status: u16,
    end: &str,
) {
    let rounded = |rate: f64| json!((rate * 10.0).round() / 10.0);
    write(
        log,
        caller,
        "response",
        &[
            ("status", json!(status)),
            ("model", json!(model)),
            ("prompt_tokens", json!(statistics.prompt_tokens)),
            ("cached_tokens", json!(statistics.cached_tokens)),
            ("completion_tokens", json!(statistics.generated_tokens)),
            ("prefill_tps", rounded(statistics.prefill_rate())),
            ("decode_tps", rounded(statistics.decode_rate())),
            ("ms", json!(caller.began.elapsed().as_millis() as u64)),
            ("finish", json!(end)),
        ],
    );
}

/// Texts that became vectors.
pub(crate) fn embedded(log: Log, caller: &Caller, model: &str, texts: usize, tokens: usize) {
    let fields = [
        ("status", json!(200)),
        ("model", json!(model)),
        ("texts", json!(texts)),
        ("prompt_tokens", json!(tokens)),
        ("ms", json!(caller.began.elapsed().as_millis() as u64)),
    ];
    write(log, caller, "response", &fields);
}

/// A recording that was written down.
pub(crate) fn heard(log: Log, caller: &Caller, model: &str, transcription: &Transcription) {
    let fields = [
        ("status", json!(200)),
        ("model", json!(model)),
        ("seconds", json!(transcription.duration)),
        ("language", json!(transcription.language)),
        ("ms", json!(caller.began.elapsed().as_millis() as u64)),
    ];
    write(log, caller, "response", &fields);
}

/// Any other request, with its answer.
pub(crate) fn plain(log: Log, caller: &Caller, status: u16) {
    let ms = caller.began.elapsed().as_millis() as u64;
    write(log, caller, "response", &[("status", json!(status)), ("ms", json!(ms))]);
}

fn write(log: Log, caller: &Caller, event: &str, fields: &[(&str, Value)]) {
    let now = DateTime::now_utc();
    let time = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        now.year, now.month, now.day, now.hour, now.minute, now.second
    );
    let line = match log {
        Log::Off => return,
        Log::Text => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let Caller { id, method, path, .. } = caller;
            format!("{time} {event} req-{id} {method} {path} {}", fields.join(" "))
        }
        Log::Json => {
            let mut line = json!({
                "time": time, "event": event, "id": format!("req-{}", caller.id),
                "method": caller.method.as_str(), "path": caller.path,
            });
            for (name, value) in fields {
                line[*name] = value.clone();
            }
            line.to_string()
        }
    };
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
