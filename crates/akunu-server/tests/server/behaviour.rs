//! What a server does when clients misbehave, are many, or leave.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use akunu::scheduler::Limits;
use akunu_server::Config;
use serde_json::{Value, json};

use crate::support::{self, chunk, head, serve, simple, tiny, until};

/// A request that goes on until the context is full.
fn endless() -> Value {
    json!({
        "messages": [{"role": "user", "content": "Hello"}],
        "logit_bias": {"2": -100},
        "max_tokens": 1000,
        "seed": 1,
    })
}

const CHAT: &str = "POST /v1/chat/completions HTTP/1.1\r\n";

#[test]
fn bad_bodies_are_refused_and_the_server_lives_on() {
    let config = Config { body_limit: 10_000, body_timeout: Duration::from_millis(300), ..Config::default() };
    let server = serve(config, vec![("tiny", tiny("llama", 2, &Limits::default()))]);
    let path = "/v1/chat/completions";
    for (body, status, code) in [
        (b"".to_vec(), 400, "invalid_json"),
        (b"{\"messages\": [".to_vec(), 400, "invalid_json"),
        (b"[]".to_vec(), 400, "invalid_json"),
        (b"{\"messages\": \"\xff\xfe\"}".to_vec(), 400, "invalid_json"),
        (vec![b'['; 9000], 400, "invalid_json"),
        (vec![b' '; 20_000], 413, "request_too_large"),
    ] {
        let reply = server.send(path, &[], &body);
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
    }
    // A body that never comes.
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.set_read_timeout(Some(support::PATIENCE)).unwrap();
    slow.write_all(
        format!("{CHAT}host: localhost\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{{").as_bytes(),
    )
    .unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    for garbage in ["\0\0\0\r\n\r\n", "GET\r\n\r\n", "POST / HTTP/9.9\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(garbage.as_bytes()).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_string(&mut answer);
    }
    let lost = server.get("/nowhere");
    assert_eq!((lost.status, lost.code().as_str()), (404, "unknown_url"));
    let wrong = server.get(path);
    assert_eq!((wrong.status, wrong.code().as_str()), (405, "method_not_allowed"));
    assert_eq!(server.get("/health").json()["status"], "ok");
}

#[test]
fn the_page_needs_no_key_and_loads_nothing_from_elsewhere() {
    let config = Config { keys: vec!["secret".to_owned()], ..Config::default() };
    let server = serve(config, vec![]);
    for (path, kind) in
        [("/", "text/html"), ("/assets/page.css", "text/css"), ("/assets/page.js", "text/javascript")]
    {
        let reply = server.get(path);
        assert_eq!(reply.status, 200);
        assert!(reply.header("content-type").unwrap().starts_with(kind));
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!reply.text().contains("https://") || path.ends_with(".js"), "{path} names another server");
    }
    assert_eq!(server.get("/v1/models").status, 401);
}

#[test]
fn a_client_that_leaves_ends_its_answer() {
    let server = simple();
    for stream in [true, false] {
        let before = server.metric("total_completion_tokens");
        let mut body = endless();
        body["stream"] = json!(stream);
        // More than can run at once, so that some leave the queue.
        let clients: Vec<TcpStream> =
            (0..12).map(|_| server.open(CHAT, &[], body.to_string().as_bytes())).collect();
        until(|| server.get("/v1/metrics").json()["models"]["tiny-llama"]["running"] != 0);
        drop(clients);
        until(|| {
            let model = &server.get("/v1/metrics").json()["models"]["tiny-llama"];
            model["running"] == 0 && model["waiting"] == 0
        });
        // Twelve answers would have 12 · 200 tokens and more.
        let generated = server.metric("total_completion_tokens") - before;
        assert!(generated < 1800, "{generated} tokens were generated for nobody (stream: {stream})");
    }
}

#[test]
fn a_full_queue_is_refused_with_a_time_to_come_back() {
    let config = Config { shutdown_grace: Duration::ZERO, ..Config::default() };
    let server = serve(config, vec![("tiny", tiny("llama", 1, &Limits { queue: 1, ..Limits::default() }))]);
    let mut body = endless();
    body["stream"] = json!(true);
    let body = body.to_string();
    // Some of these many must come while one runs and one waits.
    let clients: Vec<TcpStream> = (0..20).map(|_| server.open(CHAT, &[], body.as_bytes())).collect();
    let heads: Vec<_> = clients.into_iter().map(|stream| head(&mut BufReader::new(stream))).collect();
    let refused: Vec<_> = heads.iter().filter(|(status, _)| *status == 503).collect();
    assert!(!refused.is_empty() && refused.len() < 20, "{} of 20 were refused", refused.len());
    for (_, headers) in refused {
        assert!(headers.iter().any(|(name, value)| name == "retry-after" && value == "1"));
    }
}

#[test]
fn connections_beyond_the_limit_wait_and_silent_ones_are_closed() {
    let config = Config { connections: 2, head_timeout: Duration::from_millis(500), ..Config::default() };
    let server = serve(config, vec![("tiny", tiny("llama", 2, &Limits::default()))]);
    let silent: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(b"GET /health HTTP/1.1\r\nhost:").unwrap();
            stream
        })
        .collect();
    let begin = Instant::now();
    assert_eq!(server.get("/health").status, 200);
    assert!(begin.elapsed() > Duration::from_millis(300), "it did not wait for a place");
    drop(silent);
}

#[test]
fn two_hundred_connections_are_all_answered() {
    let config = Config { shutdown_grace: Duration::ZERO, ..Config::default() };
    let limits = Limits { queue: 200, ..Limits::default() };
    let server = serve(config, vec![("tiny", tiny("llama", 8, &limits))]);
    let body = json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0});
    let body = body.to_string();
    let clients: Vec<TcpStream> = (0..200).map(|_| server.open(CHAT, &[], body.as_bytes())).collect();
    let mut texts = Vec::new();
    for stream in clients {
        let mut reader = BufReader::new(stream);
        assert_eq!(head(&mut reader).0, 200);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        texts.push(answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned());
    }
    assert!(texts.iter().all(|text| *text == texts[0]));
}

#[test]
fn a_slow_reader_gets_everything_and_holds_up_nobody() {
    let server = simple();
    let mut body = endless();
    body["stream"] = json!(true);
    let slow = server.open(CHAT, &[], body.to_string().as_bytes());
    let quick = server.post("/v1/chat/completions", &body);
    let expected = quick.text().matches("\"content\"").count();
    let mut reader = BufReader::new(slow);
    head(&mut reader);
    let mut text = String::new();
    while let Some(chunk) = chunk(&mut reader) {
        text += std::str::from_utf8(&chunk).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(text.ends_with("data: [DONE]\n\n"));
    assert_eq!(text.matches("\"content\"").count(), expected);
}

#[test]
fn keys_are_asked_for_everywhere_but_at_the_door() {
    let config = Config { keys: vec!["secret".to_owned()], ..Config::default() };
    let server = serve(config, vec![("tiny", tiny("llama", 2, &Limits::default()))]);
    assert_eq!(server.get("/health").status, 200);
    for path in ["/v1/models", "/metrics", "/nowhere"] {
        let reply = server.get(path);
        assert_eq!((reply.status, reply.code().as_str()), (401, "invalid_api_key"), "{path}");
    }
    let line = "GET /v1/models HTTP/1.1\r\n";
    assert_eq!(server.request(line, &[("authorization", "Bearer secret")], b"").status, 200);
    assert_eq!(server.request(line, &[("x-api-key", "secret")], b"").status, 200);
    assert_eq!(server.request(line, &[("authorization", "Bearer wrong")], b"").status, 401);
    let reply = server.post("/v1/messages", &json!({}));
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (401, &json!("authentication_error")));
}

#[test]
fn too_many_requests_in_a_minute_are_told_when_to_come_back() {
    let config = Config { rate_limit: 3, ..Config::default() };
    let server = serve(config, vec![("tiny", tiny("llama", 2, &Limits::default()))]);
    for _ in 0..3 {
        assert_eq!(server.get("/v1/models").status, 200);
    }
    let reply = server.get("/v1/models");
    assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limit_exceeded"));
    assert!((1..=20).contains(&reply.header("retry-after").unwrap().parse().unwrap()));
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn each_key_has_its_own_limit_and_guesses_count_for_their_address() {
    let keys = vec!["one".to_owned(), "other".to_owned()];
    let config = Config { keys, rate_limit: 2, ..Config::default() };
    let server = serve(config, vec![("tiny", tiny("llama", 2, &Limits::default()))]);
    let ask = |key: &str| {
        server
            .request("GET /v1/models HTTP/1.1\r\n", &[("authorization", &format!("Bearer {key}"))], b"")
            .status
    };
    assert_eq!([ask("one"), ask("one"), ask("one")], [200, 200, 429]);
    assert_eq!([ask("guess"), ask("guess again"), ask("once more")], [401, 401, 429]);
    assert_eq!([ask("other"), ask("other"), ask("other")], [200, 200, 429]);
}

#[test]
fn pages_of_other_origins_need_leave() {
    let preflight = |server: &support::Running, origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        let reply = server.request("OPTIONS /v1/chat/completions HTTP/1.1\r\n", &headers, b"");
        reply.header("access-control-allow-origin").map(str::to_owned)
    };
    let closed = simple();
    assert_eq!(preflight(&closed, "http://a.test"), None);
    let config = Config { cors_origins: vec!["http://a.test".to_owned()], ..Config::default() };
    let open = serve(config, vec![("tiny", tiny("llama", 2, &Limits::default()))]);
    assert_eq!(preflight(&open, "http://a.test").as_deref(), Some("http://a.test"));
    assert_eq!(preflight(&open, "http://b.test"), None);
}

#[test]
fn stopping_finishes_answers_within_the_grace() {
    let config = Config { shutdown_grace: Duration::from_secs(20), ..Config::default() };
    let mut server = serve(config, vec![("tiny", tiny("llama", 4, &Limits::default()))]);
    let mut body = endless();
    body["stream"] = json!(true);
    let streams: Vec<TcpStream> =
        (0..6).map(|_| server.open(CHAT, &[], body.to_string().as_bytes())).collect();
    let mut readers: Vec<_> = streams.into_iter().map(BufReader::new).collect();
    // Once their heads have come, all of them were taken in.
    for reader in &mut readers {
        assert_eq!(head(reader).0, 200);
    }
    server.stop();
    for reader in &mut readers {
        let mut text = String::new();
        while let Some(chunk) = chunk(reader) {
            text += std::str::from_utf8(&chunk).unwrap();
        }
        assert!(text.ends_with("data: [DONE]\n\n"), "an answer was cut off: {text}");
    }
    server.join();
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn stopping_without_grace_ends_answers_with_an_error_event() {
    let mut server = simple();
    let mut body = endless();
    body["stream"] = json!(true);
    let clients: Vec<TcpStream> =
        (0..16).map(|_| server.open(CHAT, &[], body.to_string().as_bytes())).collect();
    let mut readers: Vec<_> = clients.into_iter().map(BufReader::new).collect();
    for reader in &mut readers {
        assert_eq!(head(reader).0, 200);
    }
    let begin = Instant::now();
    server.stop();
    server.join();
    assert!(begin.elapsed() < Duration::from_secs(10));
    let mut ended = 0;
    for reader in &mut readers {
        let mut text = String::new();
        let _ = reader.read_to_string(&mut text);
        ended += usize::from(text.contains("shutting_down"));
    }
    assert!(ended > 0, "no answer was under way");
}

#[test]
fn metrics_count_what_happened() {
    let server = simple();
    let body = json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, "logit_bias": {"2": -100}});
    for _ in 0..2 {
        server.post("/v1/chat/completions", &body);
    }
    let metrics = server.get("/v1/metrics").json();
    assert_eq!((&metrics["total_requests"], &metrics["total_completion_tokens"]), (&json!(2), &json!(10)));
    assert_eq!(metrics["models"]["tiny-llama"]["total_requests"], 2);
    let text = server.get("/metrics");
    for line in [
        "akunu_requests_total{model=\"tiny-llama\"} 2",
        "akunu_completion_tokens_total{model=\"tiny-llama\"} 10",
        "akunu_time_to_first_token_seconds_count{model=\"tiny-llama\"} 2",
        "akunu_queue_depth{model=\"tiny-llama\"} 0",
    ] {
        assert!(text.text().lines().any(|own| own == line), "{line} is not in\n{}", text.text());
    }
}
