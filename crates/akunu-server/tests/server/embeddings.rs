//! Texts become vectors, over real sockets and in every interface that has them.

use std::time::Duration;

use akunu::embed::{Shape, TooLong};
use akunu_server::{Config, Server};
use serde_json::{Value, json};

use crate::support::{Running, start, tiny_embedder};

/// An encoder that has no vocabulary, and a model that writes as well, loaded to embed.
fn server() -> Running {
    let server = Server::new(Config { shutdown_grace: Duration::ZERO, ..Config::default() });
    server.add_embedder("bert", tiny_embedder("bert")).unwrap();
    server.add_embedder("llama", tiny_embedder("llama")).unwrap();
    start(server)
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

#[test]
fn texts_and_tokens_become_vectors() {
    let server = server();
    let embedder = tiny_embedder("llama");
    let texts = ["Hello", "Good bye"];
    let tokens = texts.map(|text| embedder.tokens(text, TooLong::Refuse).unwrap());
    let expected = embedder.embed(&tokens, Shape::default()).unwrap();
    let ask = |input: Value| {
        let reply = server.post("/v1/embeddings", &json!({"model": "llama", "input": input, "user": "ann"}));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    let answer = ask(json!(texts));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("llama")));
    let total: usize = tokens.iter().map(Vec::len).sum();
    assert_eq!(answer["usage"], json!({"prompt_tokens": total, "total_tokens": total}));
    for (i, expected) in expected.iter().enumerate() {
        let entry = &answer["data"][i];
        assert_eq!((&entry["object"], &entry["index"]), (&json!("embedding"), &json!(i)));
        assert_eq!(numbers(&entry["embedding"]), *expected);
    }
    assert_eq!(ask(json!(texts[0]))["data"][0]["embedding"], answer["data"][0]["embedding"]);
    assert_eq!(ask(json!(tokens[0]))["data"][0]["embedding"], answer["data"][0]["embedding"]);
    assert_eq!(ask(json!(tokens))["data"], answer["data"]);
}

#[test]
fn numbers_come_as_bytes_and_as_many_as_asked_for() {
    let server = server();
    let ask = |more: Value| {
        let mut body = json!({"model": "bert", "input": [1, 2, 3]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/embeddings", &body).json()["data"][0]["embedding"].clone()
    };
    let whole = numbers(&ask(json!({})));
    let cut = numbers(&ask(json!({"dimensions": 4})));
    let length = whole[..4].iter().map(|x| x * x).sum::<f32>().sqrt();
    assert_eq!(cut.len(), 4);
    assert!(cut.iter().zip(&whole).all(|(cut, whole)| (cut - whole / length).abs() < 1e-6));
    let encoded = ask(json!({"encoding_format": "base64", "dimensions": 4}));
    let bytes: Vec<u8> = cut.iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(encoded.as_str().unwrap().len(), bytes.len().div_ceil(3) * 4);
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits =
        encoded.as_str().unwrap().trim_end_matches('=').chars().map(|c| alphabet.find(c).unwrap() as u32);
    let bits: Vec<u32> = bits.flat_map(|six| (0..6).rev().map(move |bit| six >> bit & 1)).collect();
    let decoded: Vec<u8> =
        bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | *bit as u8)).collect();
    assert_eq!(decoded, bytes);
}

#[test]
fn ollamas_clients_have_theirs() {
    let server = server();
    let ask = json!({"model": "llama:latest", "input": ["Hello", "Bye"], "keep_alive": "5m"});
    let whole = server.post("/api/embed", &ask).json();
    assert_eq!((&whole["model"], whole["embeddings"].as_array().unwrap().len()), (&json!("llama"), 2));
    let openai = server.post("/v1/embeddings", &json!({"model": "llama", "input": "Hello"})).json();
    assert_eq!(whole["embeddings"][0], openai["data"][0]["embedding"]);
    let old = server.post("/api/embeddings", &json!({"model": "llama", "prompt": "Hello"})).json();
    let (long, unit) = (numbers(&old["embedding"]), numbers(&whole["embeddings"][0]));
    let length = long.iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!(long.iter().zip(&unit).all(|(long, unit)| (long / length - unit).abs() < 1e-6));
    // Here texts are cut unless the request says otherwise.
    let long = "word ".repeat(300);
    assert_eq!(server.post("/api/embed", &json!({"model": "llama", "input": long})).status, 200);
    let strict = json!({"model": "llama", "input": long, "truncate": false});
    assert_eq!(server.post("/api/embed", &strict).status, 400);
}

#[test]
fn what_cannot_be_embedded_is_refused_by_name() {
    let server = server();
    let refused = |body: Value| {
        let reply = server.post("/v1/embeddings", &body);
        assert_eq!(reply.status, 400, "{body}: {}", reply.text());
        (reply.json()["error"]["param"].as_str().unwrap_or_default().to_owned(), reply.code())
    };
    let of = |param: &str, code: &str| (param.to_owned(), code.to_owned());
    let long = "word ".repeat(300);
    let exceeded = "context_length_exceeded";
    assert_eq!(refused(json!({"model": "llama", "input": long})), of("input", exceeded));
    assert_eq!(refused(json!({"model": "llama", "input": ["a", long]})), of("input[1]", exceeded));
    let cut = json!({"model": "llama", "input": long, "truncate": true});
    assert_eq!(server.post("/v1/embeddings", &cut).json()["usage"]["prompt_tokens"], 256);
    assert_eq!(refused(json!({"model": "bert", "input": [1, 4_000_000]})).0, "input");
    assert_eq!(refused(json!({"model": "bert", "input": [1], "dimensions": 0})).0, "dimensions");
    assert_eq!(
        refused(json!({"model": "bert", "input": [1], "encoding_format": "int8"})).0,
        "encoding_format"
    );
    assert_eq!(refused(json!({"model": "bert"})), of("input", "missing_required_parameter"));
    let chat = json!({"model": "bert", "messages": [{"role": "user", "content": "Hi"}]});
    let reply = server.post("/v1/chat/completions", &chat);
    assert_eq!((reply.status, reply.code().as_str()), (400, "model_not_supported"));
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("/v1/embeddings"));
}

#[test]
fn many_requests_at_once_get_their_own_vectors() {
    let server = server();
    let expected = |i: u32| {
        let body = json!({"model": "bert", "input": [[i + 1, 7, 9], [3, i + 1]]});
        server.post("/v1/embeddings", &body).json()["data"].clone()
    };
    let alone: Vec<Value> = (0..8).map(expected).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            for (i, alone) in alone.iter().enumerate() {
                let expected = &expected;
                scope.spawn(move || assert_eq!(expected(i as u32), *alone));
            }
        }
    });
}
