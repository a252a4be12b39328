//! A server with tiny models on a loopback port, and a client that talks to it.

#![allow(dead_code, reason = "no program uses all of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use akunu::embed::{EmbedOptions, Embedder, Ranker};
use akunu::scheduler::{Limits, Scheduler};
use akunu::{Model, Options};
use akunu_server::{Config, Server};
use akunu_text::chat::ChatTemplate;
use serde_json::Value;
use tokio::sync::oneshot;

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A server that lives as long as this does.
pub struct Running {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A tiny random model, by the name of its family.
pub fn tiny(name: &str, sequences: usize, limits: &Limits) -> Scheduler {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/tiny");
    let options = Options { backend: "reference".to_owned(), sequences, ..Options::default() };
    let model = Model::load(folder.join(name).join("model.gguf"), &options).unwrap();
    Scheduler::new(model, limits).unwrap()
}

/// A tiny random model that embeds: an encoder, or one that writes too.
pub fn tiny_embedder(name: &str) -> Embedder {
    let folder = if name == "bert" { "encoders" } else { "tiny" };
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures");
    let options = EmbedOptions { backend: "reference".to_owned(), ..EmbedOptions::default() };
    Embedder::load(fixtures.join(folder).join(name).join("model.gguf"), &options).unwrap()
}

/// A tiny cross-encoder.
pub fn tiny_ranker() -> Ranker {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../akunu/tests/fixtures/rankers/bert");
    let options = EmbedOptions { backend: "reference".to_owned(), ..EmbedOptions::default() };
    Ranker::load(folder, &options).unwrap()
}

/// Serves `models`, all with the ChatML template.
pub fn serve(config: Config, models: Vec<(&str, Scheduler)>) -> Running {
    let server = Server::new(config);
    for (id, scheduler) in models {
        server.add(id, scheduler, Some(ChatTemplate::builtin("chatml").unwrap())).unwrap();
    }
    start(server)
}

/// Serves on a free port.
pub fn start(server: Server) -> Running {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let stopped = async {
            let _ = stopped.await;
        };
        runtime.block_on(server.run(listener, stopped)).unwrap();
    });
    Running { address, stop: Some(stop), thread: Some(thread) }
}

/// One tiny model, `tiny-llama`, with four sequences.
pub fn simple() -> Running {
    let config = Config { shutdown_grace: Duration::ZERO, ..Config::default() };
    serve(config, vec![("tiny-llama", tiny("llama", 4, &Limits::default()))])
}

impl Running {
    /// Tells the server to stop, without waiting for it.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits for the server's end.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub fn get(&self, path: &str) -> Reply {
        self.request(&format!("GET {path} HTTP/1.1\r\n"), &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(path, &[], body.to_string().as_bytes())
    }

    pub fn send(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.request(&format!("POST {path} HTTP/1.1\r\n"), headers, body)
    }

    pub fn request(&self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        Reply::read(self.open(line, headers, body))
    }

    /// A connection on which a request was sent.
    pub fn open(&self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut head =
            format!("{line}host: localhost\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"\r\n").unwrap();
        // A server that has refused already may have closed its side.
        let _ = stream.write_all(body);
        stream
    }

    /// A number from `/v1/metrics`.
    pub fn metric(&self, name: &str) -> u64 {
        self.get("/v1/metrics").json()[name].as_u64().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if !std::thread::panicking() {
            self.join();
        }
    }
}

/// An answer, complete.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The chunks of a body that came in chunks.
    pub chunks: usize,
}

impl Reply {
    fn read(stream: TcpStream) -> Reply {
        let mut reader = BufReader::new(stream);
        let (status, headers) = head(&mut reader);
        let mut reply = Reply { status, headers, body: Vec::new(), chunks: 0 };
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = chunk(&mut reader) {
                reply.body.extend(chunk);
                reply.chunks += 1;
            }
        } else {
            reader.read_to_end(&mut reply.body).unwrap();
        }
        reply
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The data of server-sent events; the last must be `[DONE]` where `done`.
    pub fn events(&self, done: bool) -> Vec<Value> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let mut data: Vec<&str> =
            self.text().lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        if done {
            assert_eq!(data.pop(), Some("[DONE]"));
        }
        data.into_iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// The code of an OpenAI error.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// The status and the headers.
pub fn head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {line:?}")).parse().unwrap();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
            None => return (status, headers),
        }
    }
}

/// The next chunk of a body; `None` after the last.
pub fn chunk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut size = String::new();
    reader.read_line(&mut size).unwrap();
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    let mut data = vec![0; size + 2];
    reader.read_exact(&mut data).unwrap();
    data.truncate(size);
    (size > 0).then_some(data)
}

/// Waits for something that must happen soon.
pub fn until(mut happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < PATIENCE, "it did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
