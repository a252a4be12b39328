//! Pulls from a small HTTP server that behaves as the hub does, and as it does on bad days.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::cache::hex;
use super::config::Server as Endpoint;
use super::{Hub, Progress};
use crate::{Error, Kind, Result};

/// What a client sent.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

/// What it gets.
#[derive(Clone, Default)]
pub(super) struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Close the connection after this much of the body.
    pub cut_at: Option<usize>,
}

impl Reply {
    pub fn ok(body: impl Into<Vec<u8>>) -> Reply {
        Reply { status: 200, body: body.into(), ..Reply::default() }
    }

    pub fn status(status: u16) -> Reply {
        Reply { status, ..Reply::default() }
    }

    fn redirect(to: String) -> Reply {
        Reply { status: 302, headers: vec![("Location", to)], ..Reply::default() }
    }

    /// The part of `body` that the request asks for.
    pub fn ranged(request: &Request, body: &[u8]) -> Reply {
        let start =
            request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        match start.and_then(|start| start.parse::<usize>().ok()) {
            None => Reply::ok(body),
            Some(start) if start >= body.len() => Reply::status(416),
            Some(start) => Reply {
                status: 206,
                headers: vec![("Content-Range", format!("bytes {start}-{}/{}", body.len() - 1, body.len()))],
                body: body[start..].to_vec(),
                cut_at: None,
            },
        }
    }
}

/// A server on the loopback interface; its thread ends with the process.
pub(super) struct Server {
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(handler: impl Fn(&Request) -> Reply + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(request) = read_request(&stream) {
                    log.lock().unwrap().push(request.clone());
                    write_reply(stream, &handler(&request));
                }
            }
        });
        Server { url, requests }
    }

    pub fn requests_for(&self, ending: &str) -> Vec<Request> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.path.ends_with(ending)).cloned().collect()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Some(Request { path, headers })
}

fn write_reply(mut stream: TcpStream, reply: &Reply) {
    let mut head = format!(
        "HTTP/1.1 {} Answer\r\nContent-Length: {}\r\nConnection: close\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let sent = &reply.body[..reply.cut_at.unwrap_or(reply.body.len())];
    // A client that has gone away is part of some tests.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(sent));
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}

/// A listing as the hub's API gives it.
fn listing(files: &[(&str, &[u8])]) -> Reply {
    let siblings: Vec<_> = files
        .iter()
        .map(|(name, body)| {
            serde_json::json!({
                "rfilename": name, "size": body.len(), "lfs": { "sha256": sha256(body), "size": body.len() }
            })
        })
        .collect();
    Reply::ok(serde_json::json!({ "sha": "c0ffee", "siblings": siblings }).to_string())
}

fn hub(cache: &Path, endpoint: &str, token: Option<&str>) -> Hub {
    Hub {
        server: Endpoint {
            endpoint: endpoint.to_owned(),
            token: token.map(str::to_owned),
            patience: Duration::from_millis(1),
            attempts: 4,
        },
        ..Hub::in_folder(cache)
    }
}

fn pull(hub: &Hub, name: &str) -> Result<PathBuf> {
    hub.pull(name, &mut |_| ControlFlow::Continue(()))
}

/// Names of everything below a folder, sorted.
fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => open.push(path),
                path => found.push(path.strip_prefix(folder).unwrap().to_string_lossy().into_owned()),
            }
        }
    }
    found.sort();
    found
}

fn model_bytes() -> Vec<u8> {
    (0..300_000_u32).map(|i| (i * 31 % 251) as u8).collect()
}

#[test]
fn a_named_quantisation_is_fetched_and_found_again_without_the_network() {
    let body = model_bytes();
    let served = body.clone();
    let server = Server::start(move |request| match request.path.as_str() {
        "/api/models/o/r/revision/main?blobs=true" => {
            listing(&[("m-Q4_K_M.gguf", &served), ("m-Q8_0.gguf", b"other")])
        }
        "/o/r/resolve/c0ffee/m-Q4_K_M.gguf" => Reply::ranged(request, &served),
        _ => Reply::status(404),
    });
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(cache.path(), &server.url, None);
    assert!(matches!(hub.resolve("hf:o/r:Q4_K_M"), Err(Error::NotPulled { .. })));

    let mut bytes = Vec::new();
    let path = hub
        .pull("hf:o/r:q4_k_m", &mut |progress| {
            if let Progress::Bytes { done, total } = progress {
                bytes.push((done, total));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), body);
    assert_eq!(bytes.last(), Some(&(300_000, Some(300_000))));
    assert!(server.requests_for("m-Q8_0.gguf").is_empty());

    let requests = server.requests.lock().unwrap().len();
    assert_eq!(hub.resolve("hf:o/r:Q4_K_M").unwrap(), path);
    assert_eq!(pull(&hub, "hf:o/r:Q4_K_M").unwrap(), path);
    assert_eq!(server.requests.lock().unwrap().len(), requests);

    let listed = hub.models().unwrap().pop().unwrap();
    assert_eq!((listed.name.as_str(), listed.size, listed.path), ("hf:o/r:Q4_K_M", 300_000, Some(path)));
    assert!(hub.remove("hf:o/r:Q4_K_M").unwrap() >= 300_000);
    assert!(matches!(hub.remove("hf:o/r:Q4_K_M"), Err(Error::NotPulled { .. })));
    assert_eq!(tree(&cache.path().join("hf")), Vec::<String>::new());
}

#[test]
fn a_cut_connection_is_continued_where_it_ended() {
    let body = model_bytes();
    let served = body.clone();
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&[("m.gguf", &served)]),
        _ => {
            let reply = Reply::ranged(request, &served);
            // 100 kB at a time.
            Reply { cut_at: Some(reply.body.len().min(100_000)), ..reply }
        }
    });
    let cache = tempfile::tempdir().unwrap();
    let path = pull(&hub(cache.path(), &server.url, None), "hf:o/r").unwrap();
    assert_eq!(fs::read(path).unwrap(), body);
    let ranges: Vec<_> =
        server.requests_for("m.gguf").iter().map(|request| request.headers.get("range").cloned()).collect();
    assert_eq!(ranges, [None, Some("bytes=100000-".to_owned()), Some("bytes=200000-".to_owned())]);
}

/// Pulls, and stops when the first bytes have come.
fn stop_midway(hub: &Hub) {
    let stopped = hub.pull("hf:o/r", &mut |progress| match progress {
        Progress::Bytes { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(stopped.unwrap_err().kind(), Kind::Stopped);
}

#[test]
fn a_stopped_pull_leaves_a_part_that_the_next_one_continues() {
    let body = model_bytes();
    let served = body.clone();
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&[("m.gguf", &served)]),
        _ => Reply::ranged(request, &served),
    });
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(cache.path(), &server.url, None);
    stop_midway(&hub);
    assert!(matches!(hub.resolve("hf:o/r"), Err(Error::NotPulled { .. })));
    let left = tree(&cache.path().join("hf"));
    assert!(matches!(left.as_slice(), [part] if part.ends_with(".partial")), "{left:?}");

    assert_eq!(fs::read(pull(&hub, "hf:o/r").unwrap()).unwrap(), body);
    let last = server.requests_for("m.gguf").pop().unwrap();
    assert!(last.headers.contains_key("range"));
}

#[test]
fn the_part_of_a_stopped_pull_can_be_removed() {
    let body = model_bytes();
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&[("m.gguf", &body)]),
        _ => Reply::ranged(request, &body),
    });
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(cache.path(), &server.url, None);
    stop_midway(&hub);
    assert!(hub.remove("hf:o/r").unwrap() > 0);
    assert_eq!(tree(&cache.path().join("hf")), Vec::<String>::new());
    assert!(matches!(hub.remove("hf:o/r"), Err(Error::NotPulled { .. })));
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let body = model_bytes();
    let served = body.clone();
    let times = Mutex::new(0);
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&[("m.gguf", &served)]),
        _ => {
            let mut times = times.lock().unwrap();
            *times += 1;
            Reply { cut_at: (*times == 1).then_some(70_000), ..Reply::ok(served.as_slice()) }
        }
    });
    let cache = tempfile::tempdir().unwrap();
    let path = pull(&hub(cache.path(), &server.url, None), "hf:o/r").unwrap();
    assert_eq!(fs::read(path).unwrap(), body);
}

#[test]
fn a_wrong_hash_is_refused_and_nothing_is_kept() {
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&[("m.gguf", b"what was promised")]),
        _ => Reply::ok(*b"what was received"),
    });
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(cache.path(), &server.url, None);
    let error = pull(&hub, "hf:o/r").unwrap_err();
    assert!(matches!(&error, Error::Mismatch { what: "sha256", file, .. } if file == "m.gguf"), "{error:?}");
    assert_eq!(tree(&cache.path().join("hf")), Vec::<String>::new());
    assert!(hub.resolve("hf:o/r").is_err());
}

#[test]
fn a_file_longer_than_promised_is_refused() {
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&[("m.gguf", b"short")]),
        _ => Reply::ok(vec![7; 1 << 20]),
    });
    let cache = tempfile::tempdir().unwrap();
    let error = pull(&hub(cache.path(), &server.url, None), "hf:o/r").unwrap_err();
    assert!(matches!(&error, Error::Mismatch { what: "size", .. }), "{error:?}");
}

#[test]
fn the_hash_of_the_link_counts_where_the_listing_has_none() {
    let body = b"weights";
    let serve = |stated: &'static [u8]| {
        Server::start(move |request| match request.path.as_str() {
            path if path.starts_with("/api/") => {
                Reply::ok(r#"{"sha":"c0ffee","siblings":[{"rfilename":"m.gguf"}]}"#)
            }
            "/elsewhere" => Reply::ok(*body),
            _ => Reply {
                status: 302,
                headers: vec![
                    ("Location", "/elsewhere".to_owned()),
                    ("X-Linked-Etag", format!("\"{}\"", sha256(stated))),
                ],
                ..Reply::default()
            },
        })
    };
    let cache = tempfile::tempdir().unwrap();
    let wrong = serve(b"other weights");
    assert!(matches!(
        pull(&hub(cache.path(), &wrong.url, None), "hf:o/r"),
        Err(Error::Mismatch { what: "sha256", .. })
    ));
    let right = serve(body);
    assert_eq!(fs::read(pull(&hub(cache.path(), &right.url, None), "hf:o/r").unwrap()).unwrap(), body);
}

#[test]
fn every_part_of_a_split_file_is_fetched() {
    let parts: [(&str, &[u8]); 3] = [
        ("m-Q8_0-00001-of-00003.gguf", b"one"),
        ("m-Q8_0-00002-of-00003.gguf", b"two"),
        ("m-Q8_0-00003-of-00003.gguf", b"three"),
    ];
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&parts),
        path => match parts.iter().find(|(name, _)| path.ends_with(name)) {
            Some((_, body)) => Reply::ok(*body),
            None => Reply::status(404),
        },
    });
    let cache = tempfile::tempdir().unwrap();
    let path = pull(&hub(cache.path(), &server.url, None), "hf:o/r:Q8_0").unwrap();
    assert!(path.ends_with("m-Q8_0-00001-of-00003.gguf"));
    for (name, body) in parts {
        assert_eq!(fs::read(path.with_file_name(name)).unwrap(), body);
    }
}

#[test]
fn a_checkpoint_opens_as_its_folder() {
    let files: [(&str, &[u8]); 4] = [
        ("README.md", b"no"),
        ("config.json", b"{}"),
        ("model.safetensors", b"weights"),
        ("tokenizer.json", b"{}"),
    ];
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&files),
        path => match files.iter().find(|(name, _)| path.ends_with(name)) {
            Some((_, body)) => Reply::ok(*body),
            None => Reply::status(404),
        },
    });
    let cache = tempfile::tempdir().unwrap();
    let path = pull(&hub(cache.path(), &server.url, None), "hf:o/r").unwrap();
    assert_eq!(path, cache.path().join("hf/o/r"));
    assert_eq!(tree(&path), ["config.json", "model.safetensors", "pulled.json", "tokenizer.json"]);
}

#[test]
fn two_names_for_one_file_share_it_and_removing_one_keeps_it() {
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => {
            listing(&[("m-Q8_0.gguf", b"weights"), ("m-Q4_0.gguf", b"more")])
        }
        path if path.ends_with("Q8_0.gguf") => Reply::ok(*b"weights"),
        _ => Reply::ok(*b"more"),
    });
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(cache.path(), &server.url, None);
    let by_quantization = pull(&hub, "hf:o/r:Q8_0").unwrap();
    assert_eq!(pull(&hub, "hf:o/r/m-Q8_0.gguf").unwrap(), by_quantization);
    assert_eq!(server.requests_for("Q8_0.gguf").len(), 1);
    pull(&hub, "hf:o/r:Q4_0").unwrap();
    assert_eq!(hub.remove("hf:o/r:Q8_0").unwrap(), 0);
    assert_eq!(hub.remove("hf:o/r:Q4_0").unwrap(), 4);
    assert_eq!(hub.resolve("hf:o/r/m-Q8_0.gguf").unwrap(), by_quantization);
    assert_eq!(tree(&cache.path().join("hf")), ["o/r/m-Q8_0.gguf", "o/r/pulled.json"]);
}

#[test]
fn the_token_goes_to_its_server_and_to_no_other() {
    let elsewhere = Server::start(|_| Reply::ok(*b"weights"));
    let target = format!("{}/signed?secret=1", elsewhere.url);
    let server = Server::start(move |request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&[("m.gguf", b"weights")]),
        "/o/r/resolve/c0ffee/m.gguf" => Reply::redirect("/moved".to_owned()),
        _ => Reply::redirect(target.clone()),
    });
    let cache = tempfile::tempdir().unwrap();
    pull(&hub(cache.path(), &server.url, Some("secret")), "hf:o/r").unwrap();
    for request in server.requests.lock().unwrap().iter() {
        assert_eq!(
            request.headers.get("authorization").map(String::as_str),
            Some("Bearer secret"),
            "{request:?}"
        );
    }
    let strangers = elsewhere.requests_for("/signed?secret=1");
    assert_eq!(strangers.len(), 1);
    assert!(!strangers[0].headers.contains_key("authorization"));
}

#[test]
fn denied_access_says_how_to_get_it() {
    let server = Server::start(|_| Reply::status(401));
    let cache = tempfile::tempdir().unwrap();
    let error = pull(&hub(cache.path(), &server.url, None), "hf:o/r").unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
    assert!(error.hint().unwrap().contains("HF_TOKEN"), "{error:?}");
    let error = pull(&hub(cache.path(), &server.url, Some("wrong")), "hf:o/r").unwrap_err();
    assert!(error.hint().unwrap().contains("does not open it"), "{error:?}");
}

#[test]
fn a_missing_repository_and_a_broken_listing_are_told_apart() {
    let cache = tempfile::tempdir().unwrap();
    let empty = Server::start(|_| Reply::status(404));
    assert_eq!(pull(&hub(cache.path(), &empty.url, None), "hf:o/r").unwrap_err().kind(), Kind::NotFound);
    let broken = Server::start(|_| Reply::ok("<html>"));
    assert_eq!(pull(&hub(cache.path(), &broken.url, None), "hf:o/r").unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn a_server_that_keeps_failing_is_given_up() {
    let server = Server::start(|request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&[("m.gguf", b"weights")]),
        _ => Reply::status(503),
    });
    let cache = tempfile::tempdir().unwrap();
    let error = pull(&hub(cache.path(), &server.url, None), "hf:o/r").unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(server.requests_for("m.gguf").len(), 4);
}

#[test]
fn a_listing_cannot_write_outside_its_folder() {
    let server = Server::start(|request| match request.path.as_str() {
        path if path.starts_with("/api/") => listing(&[("../../../escaped.gguf", b"weights")]),
        _ => Reply::ok(*b"weights"),
    });
    let cache = tempfile::tempdir().unwrap();
    let inner = cache.path().join("inner");
    assert!(pull(&hub(&inner, &server.url, None), "hf:o/r").is_err());
    assert!(!tree(cache.path()).iter().any(|file| file.contains("escaped")));
}

#[test]
fn a_redirect_in_circles_ends() {
    let server = Server::start(|request| Reply::redirect(request.path.clone()));
    let cache = tempfile::tempdir().unwrap();
    let error = pull(&hub(cache.path(), &server.url, None), "hf:o/r").unwrap_err();
    assert!(error.to_string().contains("too many redirects"), "{error}");
}
