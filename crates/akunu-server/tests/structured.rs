//! Answers that must be like something, over real sockets and in every interface.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use serde_json::{Value, json};
use support::simple;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}, "size": {"enum": ["small", "large"]}},
        "required": ["city", "size"],
        "additionalProperties": false,
    })
}

fn is_city(text: &str) {
    let city: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert!(
        city["city"].is_string() && ["small", "large"].contains(&city["size"].as_str().unwrap()),
        "{text}"
    );
}

fn chat(more: &Value) -> Value {
    let mut body = json!({"model": "tiny-llama", "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 120, "temperature": 1.0, "seed": 5});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn openai_clients_get_instances_of_their_schema() {
    let server = simple();
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "city", "strict": true, "schema": schema()}});
    let whole =
        server.post("/v1/chat/completions", &chat(&json!({"response_format": format, "n": 2}))).json();
    for choice in whole["choices"].as_array().unwrap() {
        is_city(choice["message"]["content"].as_str().unwrap());
        assert_eq!(choice["finish_reason"], "stop");
    }
    let streamed = chat(&json!({"response_format": format, "stream": true}));
    let events = server.post("/v1/chat/completions", &streamed).events(true);
    let text: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(json!(text), whole["choices"][0]["message"]["content"]);
    // The rest of what was asked for still holds.
    let cut = json!({"response_format": format, "max_tokens": 3});
    let choice = server.post("/v1/chat/completions", &chat(&cut)).json()["choices"][0].clone();
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("{\"c"), &json!("length")));
    let logged = json!({"response_format": format, "logprobs": true});
    let choice = server.post("/v1/chat/completions", &chat(&logged)).json()["choices"][0].clone();
    is_city(choice["message"]["content"].as_str().unwrap());
    assert!(choice["logprobs"]["content"].as_array().unwrap().len() > 10);
}

#[test]
fn every_field_of_a_completion_is_kept_to() {
    let server = simple();
    let complete = |more: Value| {
        let mut body = chat(&more);
        body["prompt"] = json!("Once");
        body.as_object_mut().unwrap().remove("messages");
        let reply = server.post("/v1/completions", &body);
        assert_eq!(reply.status, 200, "{more}: {}", reply.text());
        reply.json()["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    is_city(&complete(json!({"guided_json": schema()})));
    is_city(&complete(
        json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema()}}}),
    ));
    assert!(["yes", "no"].contains(&complete(json!({"guided_choice": ["yes", "no"]})).as_str()));
    assert_eq!(complete(json!({"guided_regex": "a{3}b"})), "aaab");
    assert_eq!(complete(json!({"grammar": "root ::= \"x\" \"y\"{2}"})), "xyy");
    assert_eq!(complete(json!({"guided_grammar": "start: \"x\" \"z\""})), "xz");
    assert!(complete(json!({"response_format": {"type": "json_object"}, "max_tokens": 4})).starts_with('{'));
}

#[test]
fn responses_and_ollama_have_formats_too() {
    let server = simple();
    let ask = json!({"model": "tiny-llama", "input": "Hi", "max_output_tokens": 120,
        "text": {"format": {"type": "json_schema", "name": "city", "schema": schema()}}});
    let response = server.post("/v1/responses", &ask).json();
    is_city(response["output"][0]["content"][0]["text"].as_str().unwrap());
    let options = json!({"temperature": 1, "num_predict": 120, "seed": 2});
    let ask = json!({"model": "tiny-llama", "messages": [{"role": "user", "content": "Hi"}], "stream": false,
        "format": schema(), "options": options});
    is_city(server.post("/api/chat", &ask).json()["message"]["content"].as_str().unwrap());
    let ask = json!({"model": "tiny-llama", "prompt": "Hi", "stream": false, "format": schema(), "options": options});
    is_city(server.post("/api/generate", &ask).json()["response"].as_str().unwrap());
}

#[test]
fn what_cannot_be_kept_to_is_refused_with_its_place() {
    let server = simple();
    for (more, message) in [
        (
            json!({"guided_json": {"properties": {"a": {"uniqueItems": true}}}}),
            "JSON Schema, #/properties/a/uniqueItems: the keyword is not supported",
        ),
        (json!({"grammar": "root ::= \"a\" b"}), "GBNF grammar, line 1, column 14: there is no rule \"b\""),
        (json!({"guided_regex": "("}), "regular expression: "),
    ] {
        let reply = server.post("/v1/chat/completions", &chat(&more));
        assert_eq!(reply.status, 400, "{more}");
        let error = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(error.starts_with(message), "{error}");
    }
}
