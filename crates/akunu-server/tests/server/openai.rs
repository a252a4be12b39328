//! OpenAI's interface over real sockets.

use serde_json::{Value, json};

use crate::support::{Reply, simple};

/// A request whose answer is long enough and always the same.
fn chat(more: &Value) -> Value {
    let mut body = json!({
        "model": "tiny-llama",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there!"}],
        "max_tokens": 24,
        "temperature": 0.8,
        "seed": 7,
        "logit_bias": {"2": -100},
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn content(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// The deltas of one choice put together.
fn streamed(events: &[Value], choice: usize) -> String {
    let choices = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
    let own = choices.filter(|entry| entry["index"] == choice);
    own.filter_map(|entry| entry["delta"]["content"].as_str()).collect()
}

#[test]
fn a_chat_is_answered_whole_or_as_a_stream_with_the_same_text() {
    let server = simple();
    let whole = server.post("/v1/chat/completions", &chat(&json!({})));
    let text = content(&whole);
    assert!(!text.is_empty());
    let answer = whole.json();
    assert_eq!(answer["object"], "chat.completion");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["model"], "tiny-llama");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    let usage = &answer["usage"];
    assert_eq!(usage["completion_tokens"], 24);
    assert_eq!(usage["total_tokens"].as_u64(), usage["prompt_tokens"].as_u64().map(|n| n + 24));

    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let reply = server.post("/v1/chat/completions", &chat(&options));
    assert!(reply.chunks > 5, "it came in {} pieces", reply.chunks);
    let events = reply.events(true);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(streamed(&events, 0), text);
    let last = &events[events.len() - 1];
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(24)));
    let end = &events[events.len() - 2]["choices"][0];
    assert_eq!((&end["finish_reason"], &end["delta"]), (&json!("length"), &json!({})));
    assert!(events.iter().all(|event| event["object"] == "chat.completion.chunk"));
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));

    let without = server.post("/v1/chat/completions", &chat(&json!({"stream": true}))).events(true);
    assert!(without.iter().all(|event| event.get("usage").is_none()));
}

#[test]
fn choices_stop_strings_and_log_probabilities_are_as_asked_for() {
    let server = simple();
    let text = content(&server.post("/v1/chat/completions", &chat(&json!({}))));
    let three = server.post("/v1/chat/completions", &chat(&json!({"n": 3}))).json();
    let texts: Vec<&str> =
        (0..3).map(|i| three["choices"][i]["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(texts[0], text);
    assert!(texts[1] != text && texts[2] != texts[1]);
    let events = server.post("/v1/chat/completions", &chat(&json!({"n": 3, "stream": true}))).events(true);
    assert_eq!((0..3).map(|i| streamed(&events, i)).collect::<Vec<_>>(), texts);

    let middle = text.char_indices().nth(text.chars().count() / 2).unwrap().0;
    let stop: String = text[middle..].chars().take(2).collect();
    let stopped = server.post("/v1/chat/completions", &chat(&json!({"stop": stop}))).json();
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert_eq!(stopped["choices"][0]["message"]["content"], text[..text.find(&stop).unwrap()]);

    let options = json!({"logprobs": true, "top_logprobs": 2});
    let reply = server.post("/v1/chat/completions", &chat(&options)).json();
    assert_eq!(reply["choices"][0]["message"]["content"], text);
    let entries = reply["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len(), 24);
    for entry in entries {
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_text_is_continued_from_strings_and_from_tokens() {
    let server = simple();
    let ask = |prompt: Value, more: Value| {
        let mut body = json!({"model": "tiny-llama", "prompt": prompt, "seed": 1, "logit_bias": {"2": -100}});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        server.post("/v1/completions", &body)
    };
    let tokens = server.post("/v1/tokenize", &json!({"text": "Once upon"})).json();
    assert_eq!(tokens["count"].as_u64().unwrap() as usize, tokens["tokens"].as_array().unwrap().len());
    let one = ask(json!("Once upon"), json!({})).json();
    assert_eq!(one["object"], "text_completion");
    assert_eq!(
        (&one["usage"]["completion_tokens"], &one["choices"][0]["finish_reason"]),
        (&json!(16), &json!("length"))
    );
    let text = one["choices"][0]["text"].as_str().unwrap();
    let same = ask(tokens["tokens"].clone(), json!({})).json();
    assert_eq!(same["choices"][0]["text"], text);

    let both = ask(json!(["Once upon", "Never"]), json!({"n": 2})).json();
    let choices = both["choices"].as_array().unwrap();
    assert_eq!((choices.len(), &choices[0]["text"], &choices[3]["index"]), (4, &json!(text), &json!(3)));
    let echoed = ask(json!("Once upon"), json!({"echo": true})).json();
    assert!(echoed["choices"][0]["text"].as_str().unwrap().ends_with(text));

    let events = ask(json!("Once upon"), json!({"stream": true, "logprobs": 2})).events(true);
    let texts: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(texts, text);
    let logprobs: usize = events
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["tokens"].as_array())
        .map(Vec::len)
        .sum();
    assert_eq!(logprobs, 16);
}

#[test]
fn tokens_become_text_again() {
    let server = simple();
    let body = json!({"model": "TINY", "text": "hi", "add_special": false});
    let tokens = server.post("/v1/tokenize", &body).json()["tokens"].clone();
    let text = server.post("/v1/detokenize", &json!({"tokens": tokens})).json();
    assert!(text["text"].is_string());
    let unknown = server.post("/v1/detokenize", &json!({"tokens": [4_000_000]}));
    assert_eq!((unknown.status, unknown.json()["error"]["param"].clone()), (400, json!("tokens")));
}

#[test]
fn models_are_listed_and_found_by_any_clear_name() {
    let server = simple();
    let list = server.get("/v1/models").json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("tiny-llama")));
    assert_eq!(list["data"][0]["context_length"], 256);
    assert_eq!(server.get("/v1/models/tiny-llama").json()["object"], "model");
    for name in [json!("Tiny-LLAMA"), json!("llama"), json!("tiny-llama:latest"), Value::Null] {
        content(&server.post("/v1/chat/completions", &chat(&json!({"model": name}))));
    }
    let missing = server.post("/v1/chat/completions", &chat(&json!({"model": "gpt-4o"})));
    assert_eq!((missing.status, missing.code().as_str()), (404, "model_not_found"));
    assert!(missing.json()["error"]["message"].as_str().unwrap().contains("tiny-llama"));
    assert_eq!(server.get("/v1/models/gpt-4o").status, 404);
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let server = simple();
    let refused = |more: Value| {
        let reply = server.post("/v1/chat/completions", &chat(&more));
        assert_eq!(reply.status, 400, "{more}: {}", reply.text());
        let error = reply.json()["error"].clone();
        assert_eq!(error["type"], "invalid_request_error");
        (error["param"].as_str().unwrap_or_default().to_owned(), reply.code())
    };
    let of = |param: &str, code: &str| (param.to_owned(), code.to_owned());
    let unsupported = "unsupported_parameter";
    assert_eq!(refused(json!({"response_format": {"type": "xml"}})), of("response_format", ""));
    assert_eq!(refused(json!({"grammar": "root ::= a"})), of("grammar", ""));
    assert_eq!(refused(json!({"tools": [{"type": "web_search"}]})), of("tools[0].type", unsupported));
    assert_eq!(refused(json!({"mirostat": 2})), of("mirostat", "unknown_parameter"));
    assert_eq!(refused(json!({"temperature": "hot"})), of("temperature", ""));
    assert_eq!(refused(json!({"temperature": -1})), of("temperature", ""));
    assert_eq!(refused(json!({"temperature": 2.5})), of("temperature", ""));
    assert_eq!(refused(json!({"logit_bias": {"999999": 1}})), of("logit_bias", ""));
    assert_eq!(refused(json!({"n": 99})), of("n", ""));
    assert_eq!(refused(json!({"max_tokens": 1.5})), of("max_tokens", ""));
    assert_eq!(refused(json!({"stop": [1]})), of("stop", ""));
    assert_eq!(refused(json!({"logit_bias": {"x": 1}})), of("logit_bias", ""));
    assert_eq!(refused(json!({"top_logprobs": 3})), of("top_logprobs", ""));
    assert_eq!(refused(json!({"stream_options": {}})), of("stream_options", ""));
    assert_eq!(refused(json!({"messages": []})), of("messages", ""));
    assert_eq!(refused(json!({"messages": null})), of("messages", "missing_required_parameter"));
    let long = json!([{"role": "user", "content": "word ".repeat(400)}]);
    assert_eq!(refused(json!({"messages": long})), of("messages", "context_length_exceeded"));
    // Fields that change nothing are taken.
    let harmless = json!({"user": "ann", "store": true, "metadata": {"a": "b"}, "tools": [], "tool_choice": "none",
        "response_format": {"type": "text"}, "seed": -3, "top_k": 5, "min_p": 0.1, "presence_penalty": 0.5});
    content(&server.post("/v1/chat/completions", &chat(&harmless)));
}

#[test]
fn a_response_is_the_same_text_as_a_chat_and_its_stream() {
    let server = simple();
    let more = json!({"temperature": 0, "seed": null, "logit_bias": null});
    let text = content(&server.post("/v1/chat/completions", &chat(&more)));
    let ask = json!({
        "model": "tiny-llama",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello there!"}]}],
        "max_output_tokens": 24,
        "temperature": 0,
        "store": false,
    });
    let whole = server.post("/v1/responses", &ask).json();
    assert_eq!(whole["object"], "response");
    assert_eq!(whole["output"][0]["content"][0]["text"], text);
    let incomplete = whole["usage"]["output_tokens"] == 24;
    assert_eq!(whole["status"], if incomplete { "incomplete" } else { "completed" });

    let mut streamed = ask.clone();
    streamed["stream"] = json!(true);
    let events = server.post("/v1/responses", &streamed).events(false);
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(deltas, text);
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let last = &events[events.len() - 1];
    assert_eq!(last["type"], format!("response.{}", whole["status"].as_str().unwrap()));
    assert_eq!(last["response"]["output"][0]["content"], whole["output"][0]["content"]);

    for more in [
        json!({"previous_response_id": "resp_1"}),
        json!({"tools": [{"type": "web_search"}]}),
        json!({"text": {"format": {"type": "xml"}}}),
        json!({"input": [{"type": "function_call_output"}]}),
        json!({"input": 3}),
    ] {
        let mut wrong = ask.clone();
        for (name, value) in more.as_object().unwrap() {
            wrong[name] = value.clone();
        }
        assert_eq!(server.post("/v1/responses", &wrong).status, 400, "{more}");
    }
}
