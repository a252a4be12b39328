//! Counters and histograms, for Prometheus and as JSON.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};

use crate::resident::Resident;

/// Upper bounds in seconds: two in every factor of ten, from a millisecond to half a minute.
const SECONDS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Status {
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Model {
    model: String,
}

/// What has happened since the server began.
pub(crate) struct Metrics {
    registry: Registry,
    answers: Family<Status, Counter>,
    requests: Family<Model, Counter>,
    prompt_tokens: Family<Model, Counter>,
    cached_tokens: Family<Model, Counter>,
    completion_tokens: Family<Model, Counter>,
    cancelled: Family<Model, Counter>,
    first_token: Family<Model, Histogram>,
    token_gap: Family<Model, Histogram>,
    waiting: Family<Model, Gauge<u64, AtomicU64>>,
    running: Family<Model, Gauge<u64, AtomicU64>>,
    kept_tokens: Family<Model, Gauge<u64, AtomicU64>>,
    embedding: Family<Model, Gauge<u64, AtomicU64>>,
    listening: Family<Model, Gauge<u64, AtomicU64>>,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("akunu"),
            answers: Family::default(),
            requests: Family::default(),
            prompt_tokens: Family::default(),
            cached_tokens: Family::default(),
            completion_tokens: Family::default(),
            cancelled: Family::default(),
            first_token: Family::new_with_constructor(histogram),
            token_gap: Family::new_with_constructor(histogram),
            waiting: Family::default(),
            running: Family::default(),
            kept_tokens: Family::default(),
            embedding: Family::default(),
            listening: Family::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("responses", "HTTP responses by status", metrics.answers.clone());
        registry.register("requests", "Requests a model began to answer", metrics.requests.clone());
        registry.register("prompt_tokens", "Tokens of prompts", metrics.prompt_tokens.clone());
        registry.register(
            "cached_tokens",
            "Tokens of prompts that were in the cache",
            metrics.cached_tokens.clone(),
        );
        registry.register("completion_tokens", "Tokens generated", metrics.completion_tokens.clone());
        registry.register("cancelled", "Answers whose client went away", metrics.cancelled.clone());
        registry.register(
            "time_to_first_token_seconds",
            "From request to first text",
            metrics.first_token.clone(),
        );
        registry.register(
            "inter_token_gap_seconds",
            "Between two pieces of a text",
            metrics.token_gap.clone(),
        );
        registry.register("queue_depth", "Requests that wait", metrics.waiting.clone());
        registry.register("running", "Requests being answered", metrics.running.clone());
        registry.register(
            "prefix_cache_tokens",
            "Tokens kept for prompts to come",
            metrics.kept_tokens.clone(),
        );
        registry.register("embedding", "Requests for embeddings under way", metrics.embedding.clone());
        registry.register("transcribing", "Recordings under way", metrics.listening.clone());
        metrics
    }

    pub(crate) fn answered(&self, status: u16) {
        self.answers.get_or_create(&Status { status }).inc();
    }

    pub(crate) fn started(&self, model: &str, prompt_tokens: usize, cached_tokens: usize) {
        let model = Model { model: model.to_owned() };
        self.requests.get_or_create(&model).inc();
        self.prompt_tokens.get_or_create(&model).inc_by(prompt_tokens as u64);
        self.cached_tokens.get_or_create(&model).inc_by(cached_tokens as u64);
    }

    pub(crate) fn first_token(&self, model: &str, after: Duration) {
        self.first_token.get_or_create(&Model { model: model.to_owned() }).observe(after.as_secs_f64());
    }

    pub(crate) fn token_gap(&self, model: &str, gap: Duration) {
        self.token_gap.get_or_create(&Model { model: model.to_owned() }).observe(gap.as_secs_f64());
    }

    pub(crate) fn finished(&self, model: &str, completion_tokens: usize, cancelled: bool) {
        let model = Model { model: model.to_owned() };
        self.completion_tokens.get_or_create(&model).inc_by(completion_tokens as u64);
        self.cancelled.get_or_create(&model).inc_by(u64::from(cancelled));
    }

    /// In the text format of Prometheus.
    pub(crate) fn text(&self, models: &[Resident]) -> String {
        for resident in models {
            let model = Model { model: resident.id().to_owned() };
            match resident {
                Resident::Writer(served) => {
                    let load = served.scheduler.load();
                    self.waiting.get_or_create(&model).set(load.waiting as u64);
                    self.running.get_or_create(&model).set(load.running as u64);
                    self.kept_tokens.get_or_create(&model).set(load.kept_tokens as u64);
                }
                Resident::Embedder(embedding) => {
                    self.embedding.get_or_create(&model).set(embedding.batcher.waiting() as u64);
                }
                Resident::Listener(listener) => {
                    self.listening.get_or_create(&model).set(listener.waiting() as u64);
                }
            }
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// As JSON: totals, and the same for each model.
    pub(crate) fn json(&self, models: &[Resident], uptime: Duration) -> Value {
        let mut by_model = Map::new();
        let mut totals = [0; 4];
        for resident in models {
            let id = resident.id().to_owned();
            // A model may be in memory twice: to write and to embed.
            let entry = by_model.entry(id.clone()).or_insert_with(|| {
                let model = Model { model: id };
                let counters =
                    [&self.requests, &self.prompt_tokens, &self.cached_tokens, &self.completion_tokens];
                let counts = counters.map(|family| family.get_or_create(&model).get());
                totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
                let mut entry = counted(counts);
                entry.insert("memory_bytes".to_owned(), json!(0));
                Value::Object(entry)
            });
            entry["memory_bytes"] = json!(entry["memory_bytes"].as_u64().unwrap_or(0) + resident.memory());
            match resident {
                Resident::Writer(served) => {
                    let load = served.scheduler.load();
                    entry["waiting"] = json!(load.waiting);
                    entry["running"] = json!(load.running);
                    entry["prefix_cache_tokens"] = json!(load.kept_tokens);
                }
                Resident::Embedder(embedding) => entry["embedding"] = json!(embedding.batcher.waiting()),
                Resident::Listener(listener) => entry["transcribing"] = json!(listener.waiting()),
            }
        }
        let mut all = counted(totals);
        all.insert("uptime_seconds".to_owned(), json!(uptime.as_secs()));
        all.insert("models".to_owned(), Value::Object(by_model));
        Value::Object(all)
    }
}

fn counted([requests, prompt, cached, completion]: [u64; 4]) -> Map<String, Value> {
    let fields = [
        ("total_requests", requests),
        ("total_prompt_tokens", prompt),
        ("total_cached_tokens", cached),
        ("total_completion_tokens", completion),
    ];
    fields.into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect()
}
