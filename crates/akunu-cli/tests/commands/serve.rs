//! `akunu serve` as a user runs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{akunu, run};

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../akunu-program/tests/fixtures/tiny/llama/model.gguf");

/// A server on a free port, ended with the test.
struct Server {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    address: String,
}

impl Server {
    fn start(cache: &std::path::Path, arguments: &[&str]) -> Server {
        let model = format!("tiny={MODEL}");
        let mut all =
            vec!["serve", &model, "--port", "0", "--backend", "reference", "--chat-template", "chatml"];
        all.extend(arguments);
        let mut child = akunu(cache, &all).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the server did not start");
        }
        let address = line.split("http://").nth(1).unwrap().trim().to_owned();
        Server { child, stderr, address }
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn post(&self, body: &str) -> TcpStream {
        self.send(&format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn terminate(&self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_terminated_server_finishes_its_answers_and_logs_no_text() {
    let cache = tempfile::tempdir().unwrap();
    let mut server = Server::start(cache.path(), &[]);
    let health = read(server.send("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("\"tiny\""), "{health}");
    let body = r#"{"messages": [{"role": "user", "content": "confidential"}], "stream": true, "logit_bias": {"2": -100}}"#;
    let mut streams: Vec<TcpStream> = (0..3).map(|_| server.post(body)).collect();
    // The first bytes of each say that it was taken in.
    for stream in &mut streams {
        stream.read_exact(&mut [0; 12]).unwrap();
    }
    server.terminate();
    for stream in streams {
        assert!(read(stream).contains("data: [DONE]"));
    }
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    server.stderr.read_to_string(&mut log).unwrap();
    assert!(!log.contains("confidential"));
    let requests = log.lines().filter(|line| line.contains(" request ") && line.contains("model=\"tiny\""));
    let responses =
        log.lines().filter(|line| line.contains(" response ") && line.contains("finish=\"length\""));
    assert_eq!((requests.count(), responses.count()), (3, 3), "{log}");
}

#[test]
fn a_page_whose_name_was_led_here_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(cache.path(), &["--cors-origin", "https://friend.example", "--log", "off"]);
    let ask = |host: &str, origin: &str| {
        let head = format!(
            "GET /v1/models HTTP/1.1\r\nhost: {host}\r\norigin: {origin}\r\nconnection: close\r\n\r\n"
        );
        read(server.send(&head))
    };
    let refused = ask("evil.example:8080", "http://evil.example:8080");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("host_not_allowed"), "{refused}");
    assert!(ask("localhost:8080", "http://localhost:8080").starts_with("HTTP/1.1 200"));
    assert!(ask("friend.example", "https://friend.example").starts_with("HTTP/1.1 200"));
}

#[test]
fn who_meant_to_set_a_key_is_not_served_without() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("keys");
    std::fs::write(&file, "\n  \n").unwrap();
    for (wrong, problem) in [
        (["--api-key", ""], "--api-key is empty"),
        (["--api-key-file", file.to_str().unwrap()], "has no key in it"),
        (["--cors-origin", "friend example"], "a scheme and a host"),
    ] {
        let refused = run(cache.path(), &[&["serve", MODEL, "--port", "0"], &wrong[..]].concat()).failed(2);
        assert!(refused.contains(problem), "{refused}");
    }
}

#[test]
fn a_public_address_needs_a_key() {
    let cache = tempfile::tempdir().unwrap();
    let refused = run(cache.path(), &["serve", MODEL, "--host", "0.0.0.0", "--port", "0"]).failed(2);
    assert!(refused.contains("no key is set"), "{refused}");
    let server = Server::start(cache.path(), &["--host", "0.0.0.0", "--api-key", "secret", "--log", "off"]);
    let port = server.address.rsplit(':').next().unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    assert!(read(stream).starts_with("HTTP/1.1 401"));
}

#[test]
fn help_and_misuse_are_as_with_other_commands() {
    let cache = tempfile::tempdir().unwrap();
    assert!(run(cache.path(), &["serve", "--help"]).ok().contains("Examples:"));
    for wrong in [&["--port", "x"][..], &["--parallel", "0"], &["--host", "nowhere"], &["--log", "loud"]] {
        let arguments = [&["serve"], wrong].concat();
        assert_eq!(run(cache.path(), &arguments).code, Some(2), "{arguments:?}");
    }
    let missing = run(cache.path(), &["serve", MODEL, "--chat-template", "no/such.jinja", "--port", "0"]);
    assert!(missing.failed(1).contains("no/such.jinja"));
}
