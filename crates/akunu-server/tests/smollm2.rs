//! A real model behind the server: what it says, and when.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use akunu::scheduler::{Limits, Scheduler};
use akunu::{Model, Options};
use akunu_server::{Config, Server};
use serde_json::{Value, json};
use support::{Running, head, start};

const CHAT: &str = "POST /v1/chat/completions HTTP/1.1\r\n";

fn smollm2() -> Running {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/test-data");
    let data = std::env::var_os("AKUNU_TEST_DATA").map_or_else(default, PathBuf::from);
    let path = data.join("models/smollm2.gguf");
    assert!(path.exists(), "{} is not there: run scripts/fetch-test-data", path.display());
    let options = Options { sequences: 4, context: Some(2048), ..Options::default() };
    let scheduler = Scheduler::new(Model::load(&path, &options).unwrap(), &Limits::default()).unwrap();
    let server = Server::new(Config { shutdown_grace: Duration::ZERO, ..Config::default() });
    server.add("smollm2", scheduler, None).unwrap();
    start(server)
}

fn chat(system: &str, question: &str, more: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
        "temperature": 0,
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The times of a stream's chunks with text, since `begin`.
fn times(server: &Running, body: &Value, begin: Instant) -> Vec<Duration> {
    let mut reader = BufReader::new(server.open(CHAT, &[], body.to_string().as_bytes()));
    assert_eq!(head(&mut reader).0, 200);
    let lines = reader.lines().map_while(Result::ok);
    lines
        .filter(|line| line.contains("\"content\":") && !line.contains("\"role\""))
        .map(|_| begin.elapsed())
        .collect()
}

#[test]
fn it_knows_the_capital_of_france_and_says_the_same_in_company() {
    let server = smollm2();
    let ask = |question: &str, more: &Value| {
        server.post("/v1/chat/completions", &chat("Answer in one sentence.", question, more)).json()
    };
    let france = "What is the capital of France?";
    assert!(content(&ask(france, &json!({"max_tokens": 24}))).contains("Paris"));
    let sampled = json!({"max_tokens": 24, "temperature": 0.9, "seed": 11});
    let alone = ask("Describe the sea.", &sampled);
    std::thread::scope(|scope| {
        for i in 0..6 {
            scope.spawn(move || {
                ask(&format!("What is {i} times 7?"), &json!({"max_tokens": 30, "temperature": 1}))
            });
        }
        assert_eq!(content(&ask("Describe the sea.", &sampled)), content(&alone));
    });
}

#[test]
fn a_long_system_prompt_is_read_once() {
    let server = smollm2();
    let system = "The river bends around a small town where people mend boats and tell stories. ".repeat(60);
    let ask = |question: &str| {
        let body = chat(&system, question, &json!({"max_tokens": 1}));
        server.post("/v1/chat/completions", &body).json()
    };
    let (first, second) = (ask("What is this about?"), ask("Who lives there?"));
    let tokens = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(tokens > 900, "{tokens}");
    let cached = &second["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap() > tokens - 100, "{cached} of {tokens}");
    let time = |answer: &Value| answer["timings"]["first_token_ms"].as_f64().unwrap();
    assert!(time(&first) > 8.0 * time(&second), "{} ms, then {} ms", time(&first), time(&second));
}

#[test]
fn a_long_prompt_does_not_stall_a_text_that_flows() {
    let server = smollm2();
    let begin = Instant::now();
    let story = chat(
        "",
        "Tell me a long story.",
        &json!({"max_tokens": 120, "stream": true, "logit_bias": {"2": -100}}),
    );
    let system = "The bell rings and the ferry leaves for the island across the bay in the rain. ".repeat(60);
    let prompt = chat(&system, "What is this about?", &json!({"max_tokens": 1, "stream": true}));
    let (flow, arrived, read) = std::thread::scope(|scope| {
        let flow = scope.spawn(|| times(&server, &story, begin));
        std::thread::sleep(Duration::from_millis(500));
        let arrived = begin.elapsed();
        let read = *times(&server, &prompt, begin).first().unwrap();
        (flow.join().unwrap(), arrived, read)
    });
    let during: Vec<Duration> = flow.into_iter().filter(|at| (arrived..read).contains(at)).collect();
    let longest = during.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(read - arrived);
    // In chunks of the pause that is allowed, there are many between the arrival and the first token.
    assert!(longest < (read - arrived) / 4, "{longest:?} of {:?} passed without a token", read - arrived);
}
