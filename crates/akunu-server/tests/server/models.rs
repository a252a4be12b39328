//! Models come into memory when they are asked for, and leave when there is no room or no use for them.

use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use akunu::scheduler::Limits;
use akunu_server::{Config, Library, Loaded, Server, Source, Task};
use akunu_text::chat::ChatTemplate;
use serde_json::{Value, json};

use crate::support::{Reply, Running, chunk, head, start, tiny, tiny_embedder, until};

/// Every tiny model takes 100 bytes here.
const SIZE: u64 = 100;

/// Tiny models by family. Counts how often one was loaded.
struct Fixtures(Arc<AtomicUsize>);

impl Library for Fixtures {
    fn tasks(&self, source: &Source) -> akunu::Result<Vec<Task>> {
        Ok(if source.model == "bert" { vec![Task::Embed] } else { vec![Task::Write, Task::Embed] })
    }

    fn memory(&self, source: &Source, _: Task) -> akunu::Result<u64> {
        if source.model == "huge" { Ok(SIZE * 1000) } else { Ok(SIZE) }
    }

    fn shared(&self, _: &Source) -> akunu::Result<u64> {
        Ok(SIZE / 2)
    }

    fn load(&self, source: &Source, task: Task) -> akunu::Result<Loaded> {
        if !["llama", "qwen2", "gemma", "bert"].contains(&source.model.as_str()) {
            return Err(akunu::Error::UnknownModel { name: source.model.clone(), near: Vec::new() });
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        if task == Task::Embed {
            return Ok(Loaded::Embedder(tiny_embedder(&source.model)));
        }
        let scheduler = tiny(&source.model, 2, &Limits::default());
        Ok(Loaded::Writer { scheduler, template: Some(ChatTemplate::builtin("chatml").unwrap()) })
    }
}

/// A server with these models, and how many were loaded.
fn library(config: Config, models: &[&str]) -> (Running, Arc<AtomicUsize>) {
    let loads = Arc::new(AtomicUsize::new(0));
    let config = Config { shutdown_grace: Duration::ZERO, ..config };
    let server = Server::with_library(config, Fixtures(Arc::clone(&loads)));
    for model in models {
        server.load(model, &Source { model: (*model).to_owned(), context: None }).unwrap();
    }
    (start(server), loads)
}

fn ask(server: &Running, model: &str) -> Reply {
    let message = json!([{"role": "user", "content": "Hello"}]);
    server.post("/v1/chat/completions", &json!({"model": model, "messages": message, "max_tokens": 2}))
}

/// The models in memory.
fn loaded(server: &Running) -> Vec<Value> {
    server.get("/health").json()["models"].as_array().unwrap().clone()
}

/// A stream that goes on until the context is full.
fn endless(server: &Running, model: &str) -> BufReader<std::net::TcpStream> {
    let body = json!({
        "model": model, "messages": [{"role": "user", "content": "Hello"}],
        "logit_bias": {"2": -100}, "max_tokens": 1000, "stream": true,
    });
    let stream = server.open("POST /v1/chat/completions HTTP/1.1\r\n", &[], body.to_string().as_bytes());
    let mut reader = BufReader::new(stream);
    assert_eq!(head(&mut reader).0, 200);
    reader
}

#[test]
fn a_model_that_was_unloaded_comes_back_when_it_is_asked_for() {
    let (server, loads) = library(Config::default(), &["llama"]);
    assert_eq!(ask(&server, "llama").status, 200);
    let reply = server.post("/v1/models/unload", &json!({"id": "llama"}));
    assert_eq!(reply.json(), json!({"id": "llama", "object": "model", "unloaded": true}));
    assert_eq!(loaded(&server), [json!(null); 0]);
    let listed = server.get("/v1/models/llama").json();
    assert_eq!((&listed["loaded"], &listed["family"]), (&json!(false), &json!("llama")));
    assert_eq!(ask(&server, "LLAMA").status, 200);
    assert_eq!((loaded(&server), loads.load(Ordering::Relaxed)), (vec![json!("llama")], 2));
}

#[test]
fn models_are_loaded_and_forgotten_while_the_server_runs() {
    let (server, loads) = library(Config::default(), &["llama"]);
    let reply = server.post("/v1/models/load", &json!({"model": "qwen2", "id": "mine"}));
    assert_eq!(
        (reply.status, &reply.json()["id"], &reply.json()["loaded"]),
        (200, &json!("mine"), &json!(true))
    );
    assert_eq!(ask(&server, "mine").status, 200);
    // What is there already is not loaded twice.
    assert_eq!(server.post("/v1/models/load", &json!({"id": "mine"})).status, 200);
    assert_eq!(loads.load(Ordering::Relaxed), 2);
    let reply = server.request("DELETE /v1/models/mine HTTP/1.1\r\n", &[], b"");
    assert_eq!(reply.json()["deleted"], true);
    assert_eq!(ask(&server, "mine").code(), "model_not_found");
    // What cannot be loaded is not listed.
    assert_eq!(server.post("/v1/models/load", &json!({"model": "nowhere"})).status, 404);
    assert_eq!(server.get("/v1/models").json()["data"].as_array().unwrap().len(), 1);
    assert_eq!(server.post("/v1/models/load", &json!({})).code(), "missing_required_parameter");

    let (closed, _) = library(Config { manage_models: false, ..Config::default() }, &["llama"]);
    for path in ["/v1/models/load", "/v1/models/unload"] {
        let reply = closed.post(path, &json!({"id": "llama"}));
        assert_eq!((reply.status, reply.code().as_str()), (403, "not_allowed"));
    }
}

#[test]
fn the_model_used_longest_ago_makes_room() {
    let config = Config { memory_budget: Some(2 * SIZE), ..Config::default() };
    let (server, _) = library(config, &["llama", "qwen2", "gemma"]);
    assert_eq!(loaded(&server), ["llama", "qwen2"]);
    assert_eq!(ask(&server, "llama").status, 200);
    assert_eq!(ask(&server, "gemma").status, 200);
    assert_eq!(loaded(&server), ["gemma", "llama"]);
    let reply = server.post("/v1/models/load", &json!({"model": "huge"}));
    assert_eq!((reply.status, reply.code().as_str()), (503, "insufficient_memory"));
    assert_eq!(reply.header("retry-after"), None);
}

#[test]
fn nothing_is_freed_under_a_running_request() {
    let config = Config { memory_budget: Some(SIZE), ..Config::default() };
    let (server, _) = library(config, &["llama", "qwen2"]);
    let mut running = endless(&server, "llama");
    let reply = ask(&server, "qwen2");
    assert_eq!((reply.status, reply.code().as_str()), (503, "insufficient_memory"));
    assert_eq!(reply.header("retry-after"), Some("5"));
    // Even told to leave, it finishes first.
    assert_eq!(server.post("/v1/models/unload", &json!({"id": "llama"})).json()["unloaded"], true);
    let mut text = String::new();
    while let Some(chunk) = chunk(&mut running) {
        text += std::str::from_utf8(&chunk).unwrap();
    }
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    until(|| ask(&server, "qwen2").status == 200);
    assert_eq!(loaded(&server), ["qwen2"]);
}

#[test]
fn idle_models_leave_and_busy_ones_stay() {
    let config = Config { idle_timeout: Some(Duration::from_millis(100)), ..Config::default() };
    let (server, loads) = library(config, &["llama", "qwen2"]);
    let running = endless(&server, "llama");
    until(|| !loaded(&server).contains(&json!("qwen2")));
    drop(running);
    // Looking at metrics is no use of a model.
    until(|| loaded(&server).is_empty());
    assert_eq!(ask(&server, "qwen2").status, 200);
    assert_eq!(loads.load(Ordering::Relaxed), 3);
}

#[test]
fn one_load_serves_all_who_wait_for_it() {
    let (server, loads) = library(Config::default(), &["llama"]);
    server.post("/v1/models/unload", &json!({"id": "llama"}));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(ask(&server, "llama").status, 200));
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 2);
}

#[test]
fn a_model_is_in_memory_for_each_task_apart() {
    let config = Config { memory_budget: Some(2 * SIZE), ..Config::default() };
    let (server, loads) = library(config, &["llama", "bert"]);
    assert_eq!(loaded(&server), ["bert", "llama"]);
    let listed = server.get("/v1/models/bert").json();
    assert_eq!((&listed["tasks"], &listed["pooling"]), (&json!(["embed"]), &json!("mean")));
    assert_eq!(server.get("/v1/models/llama").json()["tasks"], json!(["write", "embed"]));
    let embed = |model: &str| server.post("/v1/embeddings", &json!({"model": model, "input": [1, 2, 3]}));
    // To embed, the model that writes lends its weights, and the one used longest ago makes room for the rest.
    assert_eq!(embed("bert").status, 200);
    assert_eq!(ask(&server, "llama").status, 200);
    assert_eq!(embed("llama").status, 200);
    assert_eq!((loaded(&server), loads.load(Ordering::Relaxed)), (vec![json!("llama")], 2));
    assert_eq!(server.get("/v1/metrics").json()["models"]["llama"]["memory_bytes"], SIZE + SIZE / 2);
    assert_eq!(server.get("/v1/metrics").json()["models"]["llama"]["total_requests"], 2);
    let reply = ask(&server, "bert");
    assert_eq!((reply.status, reply.code().as_str()), (400, "model_not_supported"));
    assert_eq!(embed("bert").status, 200);
    assert_eq!(server.post("/v1/models/unload", &json!({"id": "llama"})).json()["unloaded"], true);
    assert_eq!(loaded(&server), ["bert"]);
    assert_eq!(server.post("/v1/models/unload", &json!({"id": "bert"})).json()["unloaded"], true);
    assert_eq!(server.post("/v1/models/load", &json!({"id": "bert"})).json()["loaded"], true);
}

#[test]
fn weights_are_in_memory_once_whichever_task_comes_first() {
    let (server, loads) = library(Config::default(), &["llama"]);
    let embed = || server.post("/v1/embeddings", &json!({"model": "llama", "input": [1, 2, 3]})).status;
    let memory = || server.get("/v1/metrics").json()["models"]["llama"]["memory_bytes"].as_u64();
    server.post("/v1/models/unload", &json!({"id": "llama"}));
    assert_eq!((embed(), memory(), loads.load(Ordering::Relaxed)), (200, Some(SIZE), 2));
    until(|| ask(&server, "llama").status == 200);
    assert_eq!((memory(), loads.load(Ordering::Relaxed)), (Some(SIZE), 3));
    assert_eq!((embed(), memory(), loads.load(Ordering::Relaxed)), (200, Some(SIZE + SIZE / 2), 3));
}

#[test]
fn idle_embedders_leave() {
    let config = Config { idle_timeout: Some(Duration::from_millis(100)), ..Config::default() };
    let (server, loads) = library(config, &["bert"]);
    until(|| loaded(&server).is_empty());
    assert_eq!(server.post("/v1/embeddings", &json!({"model": "bert", "input": [1, 2]})).status, 200);
    assert_eq!(loads.load(Ordering::Relaxed), 2);
}
