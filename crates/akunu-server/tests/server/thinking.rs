//! Thoughts come apart from the answer, in every interface, and can be turned off.

use akunu::scheduler::Limits;
use akunu_server::{Config, Server};
use akunu_text::chat::ChatTemplate;
use serde_json::{Value, json};

use crate::support::{self, Running, start, tiny};

/// Opens the thoughts itself. The random model never closes them: with the switch on, all it says is thought.
const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}\n{% endfor %}\
                        {% if enable_thinking %}<think>\n{% else %}<think></think>{% endif %}";

fn thinker() -> Running {
    let server = Server::new(Config::default());
    let template = ChatTemplate::from_source(TEMPLATE).unwrap();
    server.add("thinker", tiny("llama", 4, &Limits::default()), Some(template)).unwrap();
    start(server)
}

fn with(more: &Value) -> Value {
    let mut body = json!({
        "model": "thinker",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 8,
        "temperature": 0,
        "logit_bias": {"2": -100},
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn openai_clients_read_thoughts_as_reasoning_content() {
    let server = thinker();
    let chat = |more: &Value| server.post("/v1/chat/completions", &with(more));
    let whole = chat(&json!({"reasoning_effort": "low"})).json();
    let message = &whole["choices"][0]["message"];
    let thoughts = message["reasoning_content"].as_str().unwrap();
    assert!(!thoughts.is_empty() && message["content"] == "");
    assert_eq!(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 8);

    let events = chat(&json!({"reasoning_effort": "low", "stream": true})).events(true);
    let deltas = |name: &str| -> String {
        events.iter().filter_map(|event| event["choices"][0]["delta"][name].as_str()).collect()
    };
    assert_eq!((deltas("reasoning_content").as_str(), deltas("content").as_str()), (thoughts, ""));

    for off in
        [json!({"reasoning_effort": "none"}), json!({"chat_template_kwargs": {"enable_thinking": false}})]
    {
        let message = chat(&off).json()["choices"][0]["message"].clone();
        assert!(message.get("reasoning_content").is_none() && message["content"] != "");
    }
    // Not told apart: the template opened the thoughts, and nobody closed them.
    let message = chat(&json!({"reasoning_effort": "low", "reasoning_format": "none"})).json();
    assert!(message["choices"][0]["message"]["content"].as_str().unwrap().contains(thoughts));
    assert_eq!(chat(&json!({"reasoning_effort": "much"})).status, 400);
}

#[test]
fn responses_have_an_item_for_thoughts() {
    let server = thinker();
    let ask = |stream: bool| {
        let body = json!({
            "model": "thinker", "input": "Hello", "max_output_tokens": 8, "temperature": 0,
            "logit_bias": {"2": -100}, "reasoning": {"effort": "high", "summary": "auto"}, "stream": stream,
        });
        server.post("/v1/responses", &body)
    };
    let whole = ask(false).json();
    assert_eq!(
        (&whole["output"][0]["type"], &whole["output"][1]["type"]),
        (&json!("reasoning"), &json!("message"))
    );
    let thoughts = whole["output"][0]["content"][0]["text"].as_str().unwrap();
    assert_eq!(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 8);
    let events = ask(true).events(false);
    let deltas = events.iter().filter(|event| event["type"] == "response.reasoning_text.delta");
    let streamed: String = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(streamed, thoughts);
    let last = events.last().unwrap();
    assert_eq!(last["response"]["output"].as_array().unwrap().len(), 2);
    assert_eq!(last["response"]["output"][0]["content"], whole["output"][0]["content"]);
}

#[test]
fn anthropic_clients_read_thoughts_as_a_block_and_may_send_it_back() {
    let server = thinker();
    let on = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let whole = server.post("/v1/messages", &with(&on)).json();
    assert_eq!(whole["content"][0]["type"], "thinking");
    assert_eq!(whole["content"][1], json!({"type": "text", "text": ""}));
    let mut streamed = on.clone();
    streamed["stream"] = json!(true);
    let events = server.post("/v1/messages", &with(&streamed)).events(false);
    let thoughts: String = events.iter().filter_map(|event| event["delta"]["thinking"].as_str()).collect();
    assert_eq!(whole["content"][0]["thinking"], thoughts);
    let stops = events.iter().filter(|event| event["type"] == "content_block_stop");
    assert_eq!(stops.map(|event| event["index"].clone()).collect::<Vec<_>>(), [json!(0), json!(1)]);
    let again = json!({"messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": whole["content"]},
        {"role": "user", "content": "And?"},
    ]});
    assert_eq!(server.post("/v1/messages", &with(&again)).status, 200);
}

#[test]
fn ollama_clients_read_thoughts_beside_the_text() {
    let server = thinker();
    let ask = |think: &Value, stream: bool| {
        let body = json!({
            "model": "thinker", "messages": [{"role": "user", "content": "Hello"}], "stream": stream, "think": think,
            "options": {"num_predict": 8, "temperature": 0, "logit_bias": {"2": -100}},
        });
        server.post("/api/chat", &body)
    };
    let whole = ask(&json!(true), false).json()["message"].clone();
    assert!(whole["content"] == "" && whole["thinking"] != "");
    let lines = ask(&json!("high"), true);
    let lines = lines.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let streamed: String =
        lines.filter_map(|line| line["message"]["thinking"].as_str().map(str::to_owned)).collect();
    assert_eq!(whole["thinking"], streamed);
    assert!(ask(&json!(false), false).json()["message"].get("thinking").is_none());
}

#[test]
fn a_model_that_does_not_think_is_not_told_to() {
    let server = support::simple();
    let body = json!({
        "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "reasoning_effort": "high",
    });
    let reply = server.post("/v1/chat/completions", &body);
    assert_eq!((reply.status, reply.code().as_str()), (400, "unsupported_parameter"));
    assert_eq!(reply.json()["error"]["param"], "reasoning_effort");
}
