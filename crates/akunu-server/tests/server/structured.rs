//! Answers that must be like something, over real sockets and in every interface.

use std::path::Path;
use std::time::Duration;

use akunu::scheduler::{Limits, Scheduler};
use akunu::{Model, Options};
use akunu_format::Data;
use akunu_format::gguf::{Gguf, Writer};
use akunu_server::{Config, Server};
use serde_json::{Value, json};

use crate::support::{Running, serve, simple, start, tiny};

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
    assert_eq!(response["text"]["format"], ask["text"]["format"]);
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
        (json!({"guided_regex": "("}), "regular expression, line 1, column 1: unclosed group"),
        // This one is found when it is compiled.
        (
            json!({"guided_json": {"items": {"type": "nothing"}}}),
            "JSON Schema, #/items/type: Invalid type: nothing",
        ),
    ] {
        let reply = server.post("/v1/chat/completions", &chat(&more));
        assert_eq!(reply.status, 400, "{more}");
        let error = reply.json()["error"].clone();
        let said = error["message"].as_str().unwrap();
        assert!(said.starts_with(message), "{said}");
        assert_eq!(error["param"].as_str(), more.as_object().unwrap().keys().next().map(String::as_str));
    }
}

/// One whose context has room for definitions of tools, under the same name.
fn roomy() -> Running {
    let config = Config { shutdown_grace: Duration::ZERO, ..Config::default() };
    serve(config, vec![("tiny-llama", tiny("phi3-longrope", 2, &Limits::default()))])
}

fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "weather", "parameters": schema()}},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "additionalProperties": false}}},
    ])
}

#[test]
fn a_required_call_has_arguments_that_fit() {
    let server = roomy();
    let ask = chat(&json!({"tools": tools(), "tool_choice": "required"}));
    let choice = server.post("/v1/chat/completions", &ask).json()["choices"][0].clone();
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &Value::Null)
    );
    let call = &choice["message"]["tool_calls"][0];
    assert!(call["id"].as_str().unwrap().starts_with("call_") && call["type"] == "function");

    let named = json!({"type": "function", "function": {"name": "weather"}});
    let ask = chat(&json!({"tools": tools(), "tool_choice": named}));
    let whole = server.post("/v1/chat/completions", &ask).json()["choices"][0]["message"].clone();
    let function = whole["tool_calls"][0]["function"].clone();
    assert_eq!(function["name"], "weather");
    is_city(function["arguments"].as_str().unwrap());

    let mut streamed = ask.clone();
    streamed["stream"] = json!(true);
    let events = server.post("/v1/chat/completions", &streamed).events(true);
    let deltas: Vec<&Value> =
        events.iter().map(|event| &event["choices"][0]["delta"]["tool_calls"][0]).collect();
    let begun: Vec<&&Value> = deltas.iter().filter(|delta| delta["id"].is_string()).collect();
    assert_eq!((begun.len(), &begun[0]["function"]["name"]), (1, &json!("weather")));
    let arguments: String =
        deltas.iter().filter_map(|delta| delta["function"]["arguments"].as_str()).collect();
    assert_eq!(json!(arguments), function["arguments"]);
    assert!(events.iter().any(|event| event["choices"][0]["finish_reason"] == "tool_calls"));
}

#[test]
fn a_call_that_is_cut_off_before_its_arguments_is_no_text() {
    let server = roomy();
    for tokens in [1, 4] {
        let ask = chat(&json!({"tools": tools(), "tool_choice": "required", "max_tokens": tokens}));
        let choice = server.post("/v1/chat/completions", &ask).json()["choices"][0].clone();
        let content = choice["message"]["content"].as_str().unwrap_or_default();
        assert_eq!((&choice["finish_reason"], content), (&json!("length"), ""), "{tokens} tokens");
    }
}

#[test]
fn tools_that_take_no_object_are_refused_in_every_interface() {
    let server = roomy();
    let schema = json!({"type": "string"});
    let chat_tool = json!([{"type": "function", "function": {"name": "f", "parameters": schema}}]);
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for (path, body, place) in [
        (
            "/v1/chat/completions",
            json!({"messages": messages, "tools": chat_tool}),
            "tools/0/function/parameters",
        ),
        (
            "/v1/responses",
            json!({"input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": schema}]}),
            "tools/0/parameters",
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 9, "tools": [{"name": "f", "input_schema": schema}]}),
            "tools/0/input_schema",
        ),
        ("/api/chat", json!({"messages": messages, "tools": chat_tool}), "tools/0/function/parameters"),
    ] {
        // The first is found when it is read, the second when it is compiled.
        for (schema, at) in
            [(schema.clone(), "type"), (json!({"properties": {"a": {"type": "x"}}}), "properties/a/type")]
        {
            let body = body.to_string().replace(&json!({"type": "string"}).to_string(), &schema.to_string());
            let mut body: Value = serde_json::from_str(&body).unwrap();
            body["model"] = json!("tiny-llama");
            let reply = server.post(path, &body);
            let said = reply.text();
            assert!(reply.status == 400 && said.contains(&format!("JSON Schema, {place}/{at}: ")), "{said}");
            if path.starts_with("/v1/") && path != "/v1/messages" {
                assert_eq!(reply.json()["error"]["param"], "tools");
            }
        }
    }
}

/// The tiny model with a second template for conversations with tools.
fn with_two_templates(folder: &Path) -> Scheduler {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/tiny");
    let own = Gguf::open(fixtures.join("phi3-longrope/model.gguf")).unwrap();
    let mut writer = Writer::new();
    for (key, value) in own.metadata().iter().filter(|(key, _)| !key.contains("chat_template")) {
        writer.metadata_value(key, value).unwrap();
    }
    writer.metadata("tokenizer.chat_template", "plain: {{ messages[0].content }}").unwrap();
    let with_tools = "{{ tools | length }} tools, called <tool_call>\n: {{ messages[0].content }}";
    writer.metadata("tokenizer.chat_template.tool_use", with_tools).unwrap();
    let tensors = || {
        own.tensors().map(|tensor| match tensor.data {
            Data::Blocks { dtype, bytes } => (tensor.name, tensor.shape, dtype, bytes),
            other => panic!("{other:?}"),
        })
    };
    for (name, shape, dtype, _) in tensors() {
        writer.tensor(name, dtype, shape).unwrap();
    }
    let path = folder.join("model.gguf");
    let mut file = writer.create(&path).unwrap();
    for (name, _, _, bytes) in tensors() {
        file.append(name, bytes).unwrap();
    }
    file.finish().unwrap();
    let options = Options { backend: "reference".to_owned(), ..Options::default() };
    Scheduler::new(Model::load(&path, &options).unwrap(), &Limits::default()).unwrap()
}

#[test]
fn a_template_for_tools_is_taken_where_there_are_tools() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(Config { shutdown_grace: Duration::ZERO, ..Config::default() });
    server.add("tiny-llama", with_two_templates(folder.path()), None).unwrap();
    let server = start(server);
    let tokens = |text: &str| {
        let ask = json!({"text": text, "parse_special": true});
        server.post("/v1/tokenize", &ask).json()["count"].clone()
    };
    let ask = |more: Value| server.post("/v1/chat/completions", &chat(&more)).json();
    let plain = ask(json!({"max_tokens": 1}));
    assert_eq!(plain["usage"]["prompt_tokens"], tokens("plain: Hi"));
    let called = ask(json!({"tools": tools(), "tool_choice": "required"}));
    assert_eq!(called["usage"]["prompt_tokens"], tokens("2 tools, called <tool_call>\n: Hi"));
    assert_eq!(called["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn an_answer_has_the_form_that_was_asked_for_or_calls() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(Config { shutdown_grace: Duration::ZERO, ..Config::default() });
    server.add("tiny-llama", with_two_templates(folder.path()), None).unwrap();
    let server = start(server);
    let format = json!({"type": "json_schema", "json_schema": {"name": "city", "schema": schema()}});
    let ask = |more: Value| {
        let mut body = chat(&json!({"tools": tools(), "response_format": format}));
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        server.post("/v1/chat/completions", &body).json()["choices"][0].clone()
    };
    let said = ask(json!({"logit_bias": brace(&server, 100)}));
    is_city(said["message"]["content"].as_str().unwrap());
    assert_eq!(said["message"].get("tool_calls"), None);
    for called in [ask(json!({"logit_bias": brace(&server, -100)})), ask(json!({"tool_choice": "required"}))]
    {
        assert_eq!(called["finish_reason"], "tool_calls");
        let function = &called["message"]["tool_calls"][0]["function"];
        match function["name"].as_str().unwrap() {
            "weather" => is_city(function["arguments"].as_str().unwrap()),
            other => assert_eq!(other, "now"),
        }
    }
}

/// How a request makes the random model begin a call, or not.
fn brace(server: &Running, bias: i32) -> Value {
    let ask = json!({"text": "{", "add_special": false});
    let tokens = server.post("/v1/tokenize", &ask).json()["tokens"].clone();
    let brace = tokens.as_array().unwrap().last().unwrap();
    Value::Object([(brace.to_string(), json!(bias))].into_iter().collect())
}

#[test]
fn what_begins_like_a_call_is_held_to_be_one_and_the_rest_is_free() {
    let server = roomy();
    let ask = |more: Value| server.post("/v1/chat/completions", &chat(&more)).json()["choices"][0].clone();
    let called = ask(json!({"tools": tools(), "logit_bias": brace(&server, 100)}));
    assert_eq!(
        (&called["finish_reason"], &called["message"]["content"]),
        (&json!("tool_calls"), &Value::Null)
    );
    let function = &called["message"]["tool_calls"][0]["function"];
    let arguments = function["arguments"].as_str().unwrap();
    match function["name"].as_str().unwrap() {
        "weather" => is_city(arguments),
        other => assert_eq!((other, arguments), ("now", "{}")),
    }
    for more in [json!({"tools": tools()}), json!({"tools": tools(), "tool_choice": "none"})] {
        let mut more = more;
        more["logit_bias"] = brace(&server, -100);
        // Nor may it end at once.
        more["logit_bias"]["2"] = json!(-100);
        let said = ask(more);
        assert!(!said["message"]["content"].as_str().unwrap().is_empty());
        assert_eq!(said["message"].get("tool_calls"), None);
    }
    // Calls that begin as any object might leave no room for one.
    let both = chat(&json!({"tools": tools(), "response_format": {"type": "json_object"}}));
    let refused = server.post("/v1/chat/completions", &both);
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("tools")));
}

#[test]
fn results_of_tools_are_read() {
    let server = roomy();
    let conversation = |result: &str| {
        chat(&json!({"max_tokens": 1, "tools": tools(), "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": result},
        ]}))
    };
    let tokens = |result: &str| {
        let reply = server.post("/v1/chat/completions", &conversation(result));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert!(tokens("sunny and warm") > tokens("sun"));
}

#[test]
fn responses_call_functions_and_take_their_results() {
    let server = roomy();
    let tool = json!({"type": "function", "name": "weather", "description": "d", "parameters": schema()});
    let ask = json!({"model": "tiny-llama", "input": "Hi", "max_output_tokens": 120, "seed": 3,
        "tools": [tool], "tool_choice": {"type": "function", "name": "weather"}});
    let whole = server.post("/v1/responses", &ask).json();
    let call = whole["output"][0].clone();
    assert_eq!(
        (&call["type"], &call["name"], &call["status"]),
        (&json!("function_call"), &json!("weather"), &json!("completed"))
    );
    is_city(call["arguments"].as_str().unwrap());
    assert_eq!(whole["tools"], json!([tool]));

    let mut streamed = ask.clone();
    streamed["stream"] = json!(true);
    let events = server.post("/v1/responses", &streamed).events(false);
    let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(types[2..4], ["response.output_item.added", "response.function_call_arguments.delta"]);
    let arguments: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(json!(arguments), call["arguments"]);
    let ends = ["response.function_call_arguments.done", "response.output_item.done", "response.completed"];
    assert_eq!(types[types.len() - 3..], ends);

    let mut again = ask.clone();
    again["input"] = json!([
        {"role": "user", "content": "Hi"},
        call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"},
    ]);
    again["tool_choice"] = json!("none");
    let answer = server.post("/v1/responses", &again).json();
    assert_eq!(answer["output"][0]["type"], "message");
    let plain = server.post("/v1/responses", &json!({"input": "Hi", "max_output_tokens": 1})).json();
    let read = |answer: &Value| answer["usage"]["input_tokens"].as_u64().unwrap();
    assert!(read(&answer) > read(&plain) + "sunny".len() as u64);
}

#[test]
fn anthropic_and_ollama_call_tools_in_their_own_words() {
    let server = roomy();
    let tool = json!({"name": "weather", "description": "d", "input_schema": schema()});
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}]},
    ]);
    let ask = json!({"model": "tiny-llama", "max_tokens": 120, "messages": messages, "tools": [tool],
        "tool_choice": {"type": "any"}, "temperature": 1.0});
    let whole = server.post("/v1/messages", &ask).json();
    assert_eq!(
        (&whole["stop_reason"], &whole["content"][0]["type"]),
        (&json!("tool_use"), &json!("tool_use"))
    );
    is_city(&whole["content"][0]["input"].to_string());
    let mut streamed = ask.clone();
    streamed["stream"] = json!(true);
    let events = server.post("/v1/messages", &streamed).events(false);
    assert_eq!(events[1]["content_block"]["name"], "weather");
    let input: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    is_city(&input);
    assert!(events.iter().any(|event| event["delta"]["stop_reason"] == "tool_use"));

    let ask = json!({"model": "tiny-llama", "messages": [{"role": "user", "content": "Hi"}], "tools": tools(),
        "stream": false, "options": {"temperature": 1, "num_predict": 120, "seed": 4, "logit_bias": brace(&server, 100)}});
    let message = server.post("/api/chat", &ask).json()["message"].clone();
    let mut streamed = ask.clone();
    streamed["stream"] = json!(true);
    let lines = server.post("/api/chat", &streamed);
    let lines: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let calls: Vec<&Value> = lines.iter().filter_map(|line| line["message"]["tool_calls"].get(0)).collect();
    assert_eq!(json!(calls), message["tool_calls"]);
    assert!(calls[0]["function"]["arguments"].is_object());
}
