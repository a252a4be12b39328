//! Anthropic's and Ollama's interfaces over real sockets.

use serde_json::{Value, json};

use crate::support::simple;

fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn message(more: &Value) -> Value {
    let body = json!({
        "model": "tiny-llama",
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "max_tokens": 12,
        "temperature": 0.0,
    });
    with(body, more)
}

#[test]
fn a_message_is_answered_whole_or_as_a_stream_with_the_same_text() {
    let server = simple();
    let whole = server.post("/v1/messages", &message(&json!({}))).json();
    assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));
    let text = whole["content"][0]["text"].as_str().unwrap();
    assert_eq!(whole["content"][0]["type"], "text");
    assert!(["max_tokens", "end_turn"].contains(&whole["stop_reason"].as_str().unwrap()));
    let count = server.post(
        "/v1/messages/count_tokens",
        &with(message(&json!({})), &json!({"max_tokens": null, "temperature": null})),
    );
    let input = &whole["usage"]["input_tokens"];
    assert_eq!(count.json()["input_tokens"], *input);

    let reply = server.post("/v1/messages", &message(&json!({"stream": true})));
    let events = reply.events(false);
    let names: Vec<&str> = reply.text().lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names, types);
    assert_eq!(types[..2], ["message_start", "content_block_start"]);
    assert_eq!(types[types.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let streamed: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(streamed, text);
    let delta = &events[events.len() - 2];
    assert_eq!(delta["delta"]["stop_reason"], whole["stop_reason"]);
    assert_eq!(delta["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
}

#[test]
fn a_stop_sequence_is_named() {
    let server = simple();
    let text = server.post("/v1/messages", &message(&json!({}))).json()["content"][0]["text"].clone();
    let text = text.as_str().unwrap();
    let stop: String = text.chars().skip(text.chars().count() / 2).take(2).collect();
    let reply = server.post("/v1/messages", &message(&json!({"stop_sequences": ["never", stop]}))).json();
    assert_eq!((&reply["stop_reason"], &reply["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
}

#[test]
fn an_answer_that_was_begun_goes_on() {
    let server = simple();
    let prompt = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n\
                  <|im_start|>assistant\nWell, ";
    let tokens = server.post("/v1/tokenize", &json!({"text": prompt, "add_special": false})).json();
    let ask = json!({"prompt": tokens["tokens"], "max_tokens": 12, "temperature": 0});
    let expected = server.post("/v1/completions", &ask).json()["choices"][0]["text"].clone();
    let messages = json!([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Well, "}]);
    let anthropic = server.post("/v1/messages", &message(&json!({"messages": messages}))).json();
    assert_eq!(anthropic["content"][0]["text"], expected);
    let system = json!({"role": "system", "content": "Be brief."});
    let messages = json!([system, messages[0], messages[1]]);
    let ask = json!({"model": "tiny-llama", "messages": messages, "max_tokens": 12, "temperature": 0,
        "continue_final_message": true, "add_generation_prompt": false});
    let openai = server.post("/v1/chat/completions", &ask).json();
    assert_eq!(openai["choices"][0]["message"]["content"], expected);
    let ask = json!({"model": "tiny-llama", "messages": messages, "stream": false,
        "options": {"num_predict": 12, "temperature": 0}});
    assert_eq!(server.post("/api/chat", &ask).json()["message"]["content"], expected);
    let ask = json!({"model": "tiny-llama", "messages": [system], "continue_final_message": true});
    assert_eq!(server.post("/v1/chat/completions", &ask).json()["error"]["param"], "continue_final_message");
}

#[test]
fn refusals_are_in_the_words_of_the_interface() {
    let server = simple();
    let reply = server.post("/v1/messages", &message(&json!({"max_tokens": null})));
    assert_eq!((reply.status, &reply.json()["type"]), (400, &json!("error")));
    assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
    let reply = server.post("/v1/messages", &message(&json!({"model": "claude"})));
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (404, &json!("not_found_error")));
    for more in [
        json!({"tools": [{"type": "web_search_20250305", "name": "f"}]}),
        json!({"thinking": {"type": "enabled"}}),
        json!({"temperature": 1.5}),
        json!({"what": 1}),
    ] {
        assert_eq!(server.post("/v1/messages", &message(&more)).status, 400, "{more}");
    }
    let reply = server.post("/api/chat", &json!({"model": "nobody", "messages": []}));
    assert_eq!(reply.status, 404);
    assert!(reply.json()["error"].as_str().unwrap().contains("nobody"));
}

#[test]
fn ollama_streams_lines_unless_told_otherwise() {
    let server = simple();
    let options = json!({"temperature": 0, "num_predict": 10, "seed": 1, "num_ctx": 128});
    let body =
        json!({"model": "tiny-llama", "messages": [{"role": "user", "content": "Hi"}], "options": options});
    let reply = server.post("/api/chat", &body);
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> = reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, lines) = lines.split_last().unwrap();
    assert!(lines.iter().all(|line| line["done"] == false && line["message"]["role"] == "assistant"));
    let text: String = lines.iter().filter_map(|line| line["message"]["content"].as_str()).collect();
    assert_eq!(last["done"], true);
    assert!(last["eval_count"].as_u64().unwrap() <= 10 && last["prompt_eval_count"].as_u64().unwrap() > 0);
    let whole = server.post("/api/chat", &with(body.clone(), &json!({"stream": false}))).json();
    assert_eq!(whole["message"]["content"], text);
    assert_eq!(whole["done_reason"], last["done_reason"]);

    let asked = json!({"model": "tiny-llama:latest", "prompt": "Hi", "stream": false, "options": options});
    let generated = server.post("/api/generate", &asked).json();
    assert_eq!(generated["response"], text, "a prompt is a conversation of one message");
    let raw = server.post("/api/generate", &with(asked.clone(), &json!({"raw": true}))).json();
    assert!(raw["prompt_eval_count"].as_u64() < generated["prompt_eval_count"].as_u64());
    // Without a question the model is only loaded, or asked to go.
    let loaded = server.post("/api/generate", &json!({"model": "tiny-llama", "keep_alive": -1})).json();
    assert_eq!(
        (&loaded["done_reason"], &loaded["response"], &loaded["done"]),
        (&json!("load"), &json!(""), &json!(true))
    );
    let loaded = server.post("/api/chat", &json!({"model": "tiny-llama", "messages": []})).json();
    assert_eq!((&loaded["done_reason"], &loaded["message"]["content"]), (&json!("load"), &json!("")));
    for more in
        [json!({"format": "yaml"}), json!({"options": {"num_ctx": 1_000_000}}), json!({"options": {"x": 1}})]
    {
        assert_eq!(server.post("/api/generate", &with(asked.clone(), &more)).status, 400, "{more}");
    }
    let leaving = json!({"model": "tiny-llama", "keep_alive": 0});
    assert_eq!(server.post("/api/generate", &leaving).json()["done_reason"], "unload");
}

#[test]
fn ollama_tells_what_there_is() {
    let server = simple();
    assert!(server.get("/api/version").json()["version"].is_string());
    let listed = server.get("/api/tags").json()["models"][0].clone();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../akunu-program/tests/fixtures/tiny/llama/model.gguf");
    assert_eq!(listed["size"].as_u64().unwrap(), std::fs::metadata(file).unwrap().len());
    assert_eq!((&listed["name"], listed["digest"].as_str().unwrap().len()), (&json!("tiny-llama"), 64));
    let details = json!({
        "format": "gguf", "family": "llama", "families": ["llama"], "parameter_size": "27.55K", "quantization_level": "F32",
    });
    assert_eq!(listed["details"], details);
    let running = server.get("/api/ps").json()["models"][0].clone();
    assert_eq!((&running["name"], &running["digest"]), (&json!("tiny-llama"), &listed["digest"]));
    assert_eq!((&running["size_vram"], &running["context_length"]), (&json!(0), &json!(256)));
    assert_eq!(running["expires_at"], "9999-12-31T23:59:59Z");
    server.post("/api/generate", &json!({"model": "tiny-llama", "keep_alive": 0}));
    assert_eq!(server.get("/api/ps").json()["models"], json!([]));
    let server = simple();
    let shown = server.post("/api/show", &json!({"model": "tiny-llama"})).json();
    assert_eq!(shown["model_info"]["llama.context_length"], 256);
    assert_eq!(shown["details"], details);
}
