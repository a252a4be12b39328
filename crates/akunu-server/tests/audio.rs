//! Speech is written down, over real sockets: forms with files, good and bad. Whisper's smallest model listens.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "server/support.rs"]
mod support;

use std::io::BufReader;
use std::time::{Duration, Instant};

use akunu::scheduler::Limits;
use akunu::speech::{SpeechOptions, Transcriber};
use akunu_server::{Config, Server};
use akunu_testing::data;
use serde_json::{Value, json};
use support::{PATIENCE, Reply, Running, chunk, head, start, tiny, until};

const BOUNDARY: &str = "a-boundary";

/// A model of speech, and one that writes.
fn server() -> Running {
    server_that_takes(1 << 20)
}

/// The same, for bodies of so many bytes.
fn server_that_takes(body_limit: usize) -> Running {
    let server = Server::new(Config { shutdown_grace: Duration::ZERO, body_limit, ..Config::default() });
    let model = data("models/whisper-tiny.bin");
    server.add_transcriber("ear", Transcriber::load(model, &SpeechOptions::default()).unwrap()).unwrap();
    server.add("pen", tiny("llama", 1, &Limits::default()), None).unwrap();
    start(server)
}

/// Eleven seconds of a speech.
fn sound() -> Vec<u8> {
    std::fs::read(data("audio/jfk.wav")).unwrap()
}

/// The same speech over and over.
fn long_sound(times: usize) -> Vec<u8> {
    let sound = sound();
    let begin = sound.windows(4).position(|name| name == b"data").unwrap() + 8;
    let (head, samples) = sound.split_at(begin);
    let mut long = [head, &samples.repeat(times)].concat();
    let after = |at: usize| ((long.len() - at) as u32).to_le_bytes();
    let (file, data) = (after(8), after(begin));
    long[4..8].copy_from_slice(&file);
    long[begin - 4..begin].copy_from_slice(&data);
    long
}

/// A form with a recording and these fields.
fn form(sound: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend(
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
                .bytes(),
        );
    }
    let head = "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav";
    body.extend(format!("--{BOUNDARY}\r\n{head}\r\n\r\n").bytes());
    body.extend(sound);
    body.extend(format!("\r\n--{BOUNDARY}--\r\n").bytes());
    body
}

fn send(server: &Running, path: &str, body: &[u8]) -> Reply {
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    server.send(path, &[("content-type", &kind)], body)
}

fn transcribe(server: &Running, fields: &[(&str, &str)]) -> Reply {
    let fields = [&[("model", "ear"), ("language", "en")], fields].concat();
    let reply = send(server, "/v1/audio/transcriptions", &form(&sound(), &fields));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

#[test]
fn a_recording_is_written_down_in_every_format() {
    let server = server();
    let json = transcribe(&server, &[]).json();
    let text = json["text"].as_str().unwrap();
    assert!(text.contains("ask not what your country can do for you"), "{text}");
    assert_eq!(json["usage"], json!({"type": "duration", "seconds": 11.0}));
    assert_eq!(transcribe(&server, &[("response_format", "text")]).text().trim_end(), text);
    let verbose =
        transcribe(&server, &[("response_format", "verbose_json"), ("timestamp_granularities[]", "word")])
            .json();
    assert_eq!(
        (&verbose["task"], &verbose["language"], &verbose["text"]),
        (&json!("transcribe"), &json!("english"), &json!(text))
    );
    assert!(verbose["segments"][0]["end"].as_f64().unwrap() > 1.0);
    assert!(verbose["words"].as_array().unwrap().len() > 15);
    assert!(transcribe(&server, &[("response_format", "vtt")]).text().starts_with("WEBVTT"));
    let srt = transcribe(&server, &[("response_format", "srt")]);
    assert_eq!(srt.header("content-type"), Some("text/plain; charset=utf-8"));

    let events = transcribe(&server, &[("stream", "true")]).events(false);
    let (last, deltas) = events.split_last().unwrap();
    assert_eq!((&last["type"], &last["text"]), (&json!("transcript.text.done"), &json!(text)));
    let deltas: String = deltas.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas.trim(), text);

    let sound = sound();
    let broken =
        send(&server, "/v1/audio/transcriptions", &form(&sound[..sound.len() / 2], &[("model", "ear")]));
    assert!(broken.json()["damage"].as_str().unwrap().starts_with("the file breaks off after"));

    let english = send(
        &server,
        "/v1/audio/translations",
        &form(&sound, &[("model", "ear"), ("response_format", "verbose_json")]),
    );
    assert_eq!(english.json()["task"], "translate");
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let server = server();
    let refused = |sound: &[u8], fields: &[(&str, &str)]| {
        let reply = send(&server, "/v1/audio/transcriptions", &form(sound, fields));
        assert_eq!(reply.status, 400, "{}", reply.text());
        (reply.json()["error"]["param"].as_str().unwrap_or_default().to_owned(), reply.code())
    };
    let of = |param: &str, code: &str| (param.to_owned(), code.to_owned());
    let ear = ("model", "ear");
    assert_eq!(refused(b"no sound", &[ear]), of("file", "invalid_audio"));
    assert_eq!(refused(&sound(), &[ear, ("response_format", "xml")]), of("response_format", ""));
    assert_eq!(refused(&sound(), &[ear, ("temperature", "hot")]), of("temperature", ""));
    assert_eq!(refused(&sound(), &[ear, ("mirostat", "1")]), of("mirostat", "unknown_parameter"));
    assert_eq!(
        refused(&sound(), &[ear, ("include[]", "logprobs")]),
        of("include[]", "unsupported_parameter")
    );
    let words = ("timestamp_granularities[]", "word");
    assert_eq!(refused(&sound(), &[ear, words]), of("timestamp_granularities[]", ""));
    assert_eq!(refused(&sound(), &[ear, ("stream", "true"), ("response_format", "srt")]), of("stream", ""));
    assert_eq!(refused(&sound(), &[("model", "pen")]), of("model", "model_not_supported"));
    assert_eq!(refused(&sound(), &[ear, ("language", "Klingon")]).1, "");
    let chat = json!({"model": "ear", "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(server.post("/v1/chat/completions", &chat).code(), "model_not_supported");
}

#[test]
fn broken_forms_are_refused_and_nothing_hangs() {
    let server = server();
    let path = "/v1/audio/transcriptions";
    let whole = form(&sound(), &[("model", "ear")]);
    let cases: [(&[u8], &str); 6] = [
        (b"", "invalid_form"),
        (b"--a-boundary", "invalid_form"),
        (b"--a-boundary\r\nContent-Disposition: form-data\r\n\r\nx\r\n--a-boundary--\r\n", "invalid_form"),
        (&whole[..whole.len() / 2], "invalid_form"),
        (b"--a-boundary--\r\n", "missing_required_parameter"),
        (b"--a-boundary\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--a-boundary--\r\n", ""),
    ];
    for (body, code) in cases {
        let reply = send(&server, path, body);
        assert_eq!((reply.status, reply.code().as_str()), (400, code), "{}", String::from_utf8_lossy(body));
    }
    let reply = server.send(path, &[("content-type", "application/json")], b"{}");
    assert_eq!((reply.status, reply.code().as_str()), (415, "invalid_form"));
    let large = form(&vec![0; 2 << 20], &[("model", "ear")]);
    assert_eq!(send(&server, path, &large).status, 413);
    let reply: Value = send(&server, path, &whole).json();
    assert!(reply["text"].is_string());
}

#[test]
fn the_work_for_a_client_ends_when_it_leaves() {
    let server = server_that_takes(1 << 25);
    // Eleven minutes: far more than can be understood before the client leaves.
    let sound = long_sound(60);
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let open = |fields: &[(&str, &str)]| {
        let fields = [&[("model", "ear"), ("language", "en")], fields].concat();
        let line = "POST /v1/audio/transcriptions HTTP/1.1\r\n";
        server.open(line, &[("content-type", &kind)], &form(&sound, &fields))
    };
    let under_way = || server.get("/v1/metrics").json()["models"]["ear"]["transcribing"].as_u64().unwrap();
    for fields in [&[("stream", "true")][..], &[]] {
        let mut first = BufReader::new(open(fields));
        if !fields.is_empty() {
            assert_eq!(head(&mut first).0, 200);
            let delta = String::from_utf8(chunk(&mut first).unwrap()).unwrap();
            assert!(delta.contains("transcript.text.delta"), "{delta}");
        }
        until(|| under_way() == 1);
        // One that waits for its turn gives it up.
        let second = open(fields);
        until(|| under_way() == 2);
        drop(second);
        until(|| under_way() == 1);
        let began = Instant::now();
        drop(first);
        until(|| under_way() == 0);
        assert!(began.elapsed() < PATIENCE / 3, "it took {:?}", began.elapsed());
    }
    let text = transcribe(&server, &[]).json()["text"].as_str().unwrap().to_owned();
    assert!(text.contains("ask not what your country"), "{text}");
}
