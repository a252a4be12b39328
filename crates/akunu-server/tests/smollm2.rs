//! A real model behind the server: what it says, and when; and a real vocabulary, whose marks of thoughts are tokens.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "server/support.rs"]
mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use akunu::scheduler::{Limits, Scheduler};
use akunu::{Model, Options};
use akunu_server::{Config, Server};
use akunu_testing::data;
use serde_json::{Value, json};
use support::{Running, head, start};

const CHAT: &str = "POST /v1/chat/completions HTTP/1.1\r\n";

fn smollm2() -> Running {
    let path = data("models/smollm2.gguf");
    let options = Options { sequences: 4, context: Some(2048), ..Options::default() };
    let scheduler = Scheduler::new(Model::load(&path, &options).unwrap(), &Limits::default()).unwrap();
    let server = Server::new(Config { shutdown_grace: Duration::ZERO, ..Config::default() });
    server.add("smollm2", scheduler, None).unwrap();
    start(server)
}

fn chat(system: &str, question: &str, more: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
        "temperature": 0,
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The times of a stream's chunks with text, since `begin`.
fn times(server: &Running, body: &Value, begin: Instant) -> Vec<Duration> {
    let mut reader = BufReader::new(server.open(CHAT, &[], body.to_string().as_bytes()));
    assert_eq!(head(&mut reader).0, 200);
    let lines = reader.lines().map_while(Result::ok);
    lines
        .filter(|line| line.contains("\"content\":") && !line.contains("\"role\""))
        .map(|_| begin.elapsed())
        .collect()
}

#[test]
fn it_knows_the_capital_of_france_and_says_the_same_in_company() {
    let server = smollm2();
    let ask = |question: &str, more: &Value| {
        server.post("/v1/chat/completions", &chat("Answer in one sentence.", question, more)).json()
    };
    let france = "What is the capital of France?";
    assert!(content(&ask(france, &json!({"max_tokens": 24}))).contains("Paris"));
    let sampled = json!({"max_tokens": 24, "temperature": 0.9, "seed": 11});
    let alone = ask("Describe the sea.", &sampled);
    std::thread::scope(|scope| {
        for i in 0..6 {
            scope.spawn(move || {
                ask(&format!("What is {i} times 7?"), &json!({"max_tokens": 30, "temperature": 1}))
            });
        }
        assert_eq!(content(&ask("Describe the sea.", &sampled)), content(&alone));
    });
}

#[test]
fn a_long_system_prompt_is_read_once() {
    let server = smollm2();
    let time = |answer: &Value| answer["timings"]["first_token_ms"].as_f64().unwrap();
    // Other tests run beside this one: of three prompts the least disturbed counts.
    let times_sooner = ["river", "brook", "stream"].map(|water| {
        let system =
            format!("The {water} bends around a small town where people mend boats and tell stories. ");
        let ask = |question: &str| {
            let body = chat(&system.repeat(60), question, &json!({"max_tokens": 1}));
            server.post("/v1/chat/completions", &body).json()
        };
        let (first, second) = (ask("What is this about?"), ask("Who lives there?"));
        let tokens = first["usage"]["prompt_tokens"].as_u64().unwrap();
        assert!(tokens > 900, "{tokens}");
        let cached = &second["usage"]["prompt_tokens_details"]["cached_tokens"];
        assert!(cached.as_u64().unwrap() > tokens - 100, "{cached} of {tokens}");
        time(&first) / time(&second)
    });
    assert!(times_sooner.into_iter().any(|times| times > 8.0), "{times_sooner:?}");
}

#[test]
fn a_long_prompt_does_not_stall_a_text_that_flows() {
    let server = smollm2();
    let begin = Instant::now();
    let story = chat(
        "",
        "Tell me a long story.",
        &json!({"max_tokens": 120, "stream": true, "logit_bias": {"2": -100}}),
    );
    let system = "The bell rings and the ferry leaves for the island across the bay in the rain. ".repeat(60);
    let prompt = chat(&system, "What is this about?", &json!({"max_tokens": 1, "stream": true}));
    let (flow, arrived, read) = std::thread::scope(|scope| {
        let flow = scope.spawn(|| times(&server, &story, begin));
        std::thread::sleep(Duration::from_millis(500));
        let arrived = begin.elapsed();
        let read = *times(&server, &prompt, begin).first().unwrap();
        (flow.join().unwrap(), arrived, read)
    });
    let during: Vec<Duration> = flow.into_iter().filter(|at| (arrived..read).contains(at)).collect();
    let longest = during.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(read - arrived);
    // In chunks of the pause that is allowed, there are many between the arrival and the first token.
    assert!(longest < (read - arrived) / 4, "{longest:?} of {:?} passed without a token", read - arrived);
}

/// Rows of Qwen 3's output; the last of them are no tokens.
const QWEN3_ROWS: usize = 151_936;

/// Random weights of one small layer, with Qwen 3's vocabulary and template.
fn random_qwen3(folder: &Path) -> Scheduler {
    let width = 16;
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": QWEN3_ROWS,
        "hidden_size": width, "intermediate_size": width, "num_hidden_layers": 1, "num_attention_heads": 1,
        "num_key_value_heads": 1, "head_dim": width, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": true,
    });
    let layer = "model.layers.0";
    let mut shapes = vec![("model.embed_tokens.weight".to_owned(), vec![QWEN3_ROWS, width])];
    shapes.push(("model.norm.weight".to_owned(), vec![width]));
    for name in ["input_layernorm", "post_attention_layernorm"] {
        shapes.push((format!("{layer}.{name}.weight"), vec![width]));
    }
    for name in ["self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down"]
    {
        shapes.push((format!("{layer}.{name}_proj.weight"), vec![width, width]));
    }
    let (mut header, mut values, mut state) = (json!({}), Vec::new(), 1_u32);
    for (name, shape) in shapes {
        let begin = values.len();
        for _ in 0..shape.iter().product() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            values.extend_from_slice(&(f32::from((state >> 16) as u16) / 32_768.0 - 1.0).to_le_bytes());
        }
        header[name] = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, values.len()]});
    }
    let header = header.to_string();
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &values].concat();
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(data("tokenizers/qwen3").join(name), folder.join(name)).unwrap();
    }
    Scheduler::new(Model::load(folder, &Options::default()).unwrap(), &Limits::default()).unwrap()
}

#[test]
fn thoughts_end_where_their_budget_does() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(Config { shutdown_grace: Duration::ZERO, ..Config::default() });
    server.add("qwen3", random_qwen3(folder.path()), None).unwrap();
    let server = start(server);
    let tokens = |text: &str| {
        let ask = json!({"text": text, "parse_special": true, "add_special": false});
        server.post("/v1/tokenize", &ask).json()["tokens"].clone()
    };
    // The model begins to think, and would not stop in time by itself.
    let (open, close, end) = (tokens("<think>"), tokens("</think>"), tokens("<|im_end|>"));
    let bias = json!({open[0].to_string(): 100, close[0].to_string(): -100, end[0].to_string(): -100});
    let ask = |budget: u32, stream: bool| {
        let body = json!({
            "messages": [{"role": "user", "content": "What is 6 times 7?"}],
            "thinking": {"type": "enabled", "budget_tokens": budget},
            "max_tokens": 40, "temperature": 1, "seed": 3, "logit_bias": bias, "stream": stream,
        });
        server.post("/v1/messages", &body)
    };
    let endless = ask(1024, false).json();
    assert_eq!(
        (&endless["content"][0]["type"], &endless["content"][1]["text"]),
        (&json!("thinking"), &json!(""))
    );
    let bounded = ask(12, false).json();
    let [thoughts, answer] = [&bounded["content"][0]["thinking"], &bounded["content"][1]["text"]];
    let whole = endless["content"][0]["thinking"].as_str().unwrap();
    assert!(whole.starts_with(thoughts.as_str().unwrap().trim_end_matches('\u{fffd}')), "{bounded}");
    assert!(!thoughts.as_str().unwrap().is_empty() && !answer.as_str().unwrap().is_empty(), "{bounded}");
    assert_eq!(bounded["usage"]["output_tokens"], 40);
    let events = ask(12, true).events(false);
    let of =
        |name: &str| -> String { events.iter().filter_map(|event| event["delta"][name].as_str()).collect() };
    assert_eq!([json!(of("thinking")), json!(of("text"))], [thoughts.clone(), answer.clone()]);
}
