//! Texts are sorted by how well they answer a question, over real sockets.

use std::path::Path;
use std::time::Duration;

use akunu_server::{Config, Server};
use serde_json::{Value, json};

use crate::support::{Running, start, tiny_embedder, tiny_ranker};

fn server() -> Running {
    let server = Server::new(Config { shutdown_grace: Duration::ZERO, ..Config::default() });
    server.add_ranker("ranker", tiny_ranker()).unwrap();
    server.add_embedder("bert", tiny_embedder("bert")).unwrap();
    start(server)
}

/// The pairs of scripts/oracle/tiny_rankers.py that have one query, with the oracle's scores.
fn oracle() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu/tests/fixtures/rankers/bert/scores.json");
    let pairs: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let query = pairs[0]["query"].clone();
    pairs.into_iter().filter(|pair| pair["query"] == query).collect()
}

#[test]
fn documents_come_in_the_order_of_the_oracles_scores() {
    let server = server();
    let pairs = oracle();
    let documents: Vec<&Value> = pairs.iter().map(|pair| &pair["document"]).collect();
    let mut body = json!({"model": "ranker", "query": pairs[0]["query"], "documents": documents});
    let answer = server.post("/v1/rerank", &body).json();
    let score = |pair: &Value| pair["score"].as_f64().unwrap();
    let mut expected: Vec<usize> = (0..pairs.len()).collect();
    expected.sort_by(|&a, &b| score(&pairs[b]).total_cmp(&score(&pairs[a])));
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), pairs.len());
    for (result, index) in results.iter().zip(expected) {
        assert_eq!((&result["index"], &result["document"]["text"]), (&json!(index), documents[index]));
        let found = result["relevance_score"].as_f64().unwrap();
        assert!((found - score(&pairs[index])).abs() < 1e-5, "{found}, not {}", pairs[index]["score"]);
    }
    let tokens: usize = pairs.iter().map(|pair| pair["tokens"].as_array().unwrap().len()).sum();
    assert_eq!(answer["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));

    body["top_n"] = json!(2);
    body["return_documents"] = json!(false);
    body["documents"] = documents.iter().map(|text| json!({"text": text})).collect();
    let short = server.post("/v1/rerank", &body).json();
    let best = short["results"].as_array().unwrap();
    assert_eq!(best.len(), 2);
    assert!(best.iter().all(|result| result.get("document").is_none()));
    assert_eq!(best[0]["relevance_score"], results[0]["relevance_score"]);
}

#[test]
fn what_cannot_be_ranked_is_refused_by_name() {
    let server = server();
    let refused = |body: Value, param: &str| {
        let reply = server.post("/v1/rerank", &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.text());
    };
    let ask = |documents: Value| json!({"model": "ranker", "query": "train", "documents": documents});
    refused(ask(json!([])), "documents");
    refused(ask(json!([1])), "documents[0]");
    refused(ask(json!(["a", {"title": "b"}])), "documents[1].text");
    refused(json!({"model": "ranker", "documents": ["a"]}), "query");
    refused(json!({"model": "ranker", "query": "a", "documents": ["a"], "top_n": 0}), "top_n");
    refused(json!({"model": "ranker", "query": "a", "documents": ["a"], "depth": 1}), "depth");
    refused(json!({"model": "bert", "query": "a", "documents": ["a"]}), "model");
    let long = json!(["sea", "train ".repeat(60)]);
    let whole = json!({"model": "ranker", "query": "a", "documents": long, "truncate": false});
    refused(whole, "documents[1]");
    assert_eq!(server.post("/v1/rerank", &ask(long)).status, 200);
    let chat = json!({"model": "ranker", "messages": [{"role": "user", "content": "Hello"}]});
    let reply = server.post("/v1/chat/completions", &chat);
    assert!(reply.text().contains("/v1/rerank"), "{}", reply.text());
    let embed = server.post("/v1/embeddings", &json!({"model": "ranker", "input": "Hello"}));
    assert_eq!(embed.status, 400, "{}", embed.text());
}
