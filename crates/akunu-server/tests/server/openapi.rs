//! The server's description of itself is true.

use std::collections::BTreeSet;

use akunu::scheduler::Limits;
use akunu_server::{Config, Server};
use akunu_text::chat::ChatTemplate;
use serde_json::{Map, Value};

use crate::support::{serve, start, tiny, tiny_embedder, tiny_ranker};

#[test]
fn every_route_is_described_and_nothing_else() {
    let server = serve(Config::default(), vec![]);
    let description = server.get("/openapi.json").json();
    let described: BTreeSet<&str> =
        description["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let source = include_str!("../../src/routes.rs");
    let routes = source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let routes: BTreeSet<&str> = routes.filter(|route| !route.starts_with("/assets/")).collect();
    assert_eq!(described, routes);
    for (path, operations) in description["paths"].as_object().unwrap() {
        for method in ["get", "post", "delete", "put"] {
            let reply = server.request(
                &format!("{} {path} HTTP/1.1\r\n", method.to_uppercase()),
                &[],
                b"{\"nonsense\": true}",
            );
            let is_described = operations.get(method).is_some();
            assert_eq!(reply.status != 405, is_described, "{method} {path} gave {}", reply.status);
        }
    }
    assert!(server.get("/docs").header("content-type").unwrap().starts_with("text/html"));
}

#[test]
fn every_field_that_is_described_is_taken() {
    let server = Server::new(Config::default());
    let template = ChatTemplate::builtin("chatml").unwrap();
    server.add("smollm2", tiny("phi3-longrope", 2, &Limits::default()), Some(template)).unwrap();
    server.add_embedder("minilm", tiny_embedder("llama")).unwrap();
    server.add_ranker("ranker", tiny_ranker()).unwrap();
    let server = start(server);
    let description = server.get("/openapi.json").json();
    let mut tried = 0;
    for (path, operations) in description["paths"].as_object().unwrap() {
        let schema = &operations["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        let Some(name) = schema.as_str().and_then(|path| path.rsplit('/').next()) else { continue };
        // The only model would be gone.
        if path == "/v1/models/unload" {
            continue;
        }
        let schema = &description["components"]["schemas"][name];
        let properties = schema["properties"].as_object().unwrap();
        for needed in schema["required"].as_array().unwrap() {
            assert!(properties[needed.as_str().unwrap()].get("example").is_some(), "{needed} has no example");
        }
        let mut body: Map<String, Value> = properties
            .iter()
            .filter_map(|(name, field)| Some((name.clone(), field.get("example")?.clone())))
            .collect();
        if path.contains("embed") {
            body.insert("model".to_owned(), "minilm".into());
        } else if path == "/v1/rerank" {
            body.insert("model".to_owned(), "ranker".into());
        }
        let reply = server.post(path, &Value::Object(body));
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        tried += 1;
    }
    assert_eq!(tried, 15);
}
