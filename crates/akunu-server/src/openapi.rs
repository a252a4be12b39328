//! `/openapi.json`: the server's description of itself, and `/docs`, which shows it.
//!
//! Tests hold it to the routes there are and to the fields requests may have.

use axum::Json;
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::page;

/// `GET /openapi.json`
pub(crate) async fn description() -> Json<Value> {
    Json(describe())
}

/// `GET /docs`
pub(crate) async fn docs() -> Response {
    page::asset("text/html; charset=utf-8", include_str!("../page/docs.html"))
}

/// `GET /assets/docs.js`
pub(crate) async fn script() -> Response {
    page::asset("text/javascript; charset=utf-8", include_str!("../page/built/docs.js"))
}

/// Whole, in the terms of OpenAPI 3.1.
fn describe() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "akunu",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A local inference server that speaks OpenAI's, Anthropic's and Ollama's interfaces, and \
                            Jina's for ranking. A field that is not known is refused by name. About what is absent, the model's \
                            makers decide, or OpenAI's defaults.",
        },
        "security": [{"bearer": []}, {"header": []}, {}],
        "paths": paths(),
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    })
}

/// What an operation answers with.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Json,
    /// JSON, or server-sent events with `stream`.
    Events,
    /// JSON, or lines of it with `stream`.
    Lines,
    Text(&'static str),
}

fn paths() -> Value {
    use Answer::{Events, Json, Lines, Text};
    const HTML: Answer = Text("text/html");
    let table = [
        ("OpenAI", "post /v1/chat/completions", "Answer a conversation", "ChatRequest", Events),
        ("OpenAI", "post /v1/completions", "Continue a text", "CompletionRequest", Events),
        (
            "OpenAI",
            "post /v1/responses",
            "Answer a conversation, in the newer interface, without memory",
            "ResponsesRequest",
            Events,
        ),
        ("OpenAI", "post /v1/embeddings", "Turn texts into vectors", "EmbeddingsRequest", Json),
        ("Jina", "post /v1/rerank", "Sort texts by how well they answer a question", "RerankRequest", Json),
        ("OpenAI", "post /v1/audio/transcriptions", "Write down speech", "TranscriptionRequest", Events),
        ("OpenAI", "post /v1/audio/translations", "Write down speech in English", "TranslationRequest", Json),
        ("Anthropic", "post /v1/messages", "Answer a conversation", "MessagesRequest", Events),
        (
            "Anthropic",
            "post /v1/messages/count_tokens",
            "Count the tokens of a conversation",
            "CountRequest",
            Json,
        ),
        ("Ollama", "post /api/chat", "Answer a conversation", "OllamaChatRequest", Lines),
        ("Ollama", "post /api/generate", "Answer or continue a text", "OllamaGenerateRequest", Lines),
        ("Ollama", "post /api/embed", "Turn texts into vectors", "OllamaEmbedRequest", Json),
        ("Ollama", "post /api/embeddings", "Turn a text into a vector", "OllamaEmbeddingsRequest", Json),
        ("Ollama", "get /api/tags", "What models there are", "", Json),
        ("Ollama", "get /api/ps", "What models are in memory", "", Json),
        ("Ollama", "post /api/show", "What a model is", "OllamaShowRequest", Json),
        ("Ollama", "get /api/version", "The version of the server", "", Json),
        ("Models", "get /v1/models", "What models there are", "", Json),
        ("Models", "get /v1/models/{id}", "One of them", "", Json),
        ("Models", "delete /v1/models/{id}", "Unload a model and forget it", "", Json),
        ("Models", "post /v1/models/load", "Bring a model into memory", "LoadRequest", Json),
        (
            "Models",
            "post /v1/models/unload",
            "Take a model out of memory once its answers are complete; it comes back when it is asked for",
            "UnloadRequest",
            Json,
        ),
        ("Models", "post /v1/tokenize", "A text as tokens", "TokenizeRequest", Json),
        ("Models", "post /v1/detokenize", "Tokens as text", "DetokenizeRequest", Json),
        ("The server", "get /health", "Whether it is there", "", Json),
        ("The server", "get /v1/metrics", "Counters as JSON", "", Json),
        (
            "The server",
            "get /metrics",
            "Counters and histograms for Prometheus",
            "",
            Text("application/openmetrics-text"),
        ),
        ("The server", "get /openapi.json", "This description", "", Json),
        ("The server", "get /docs", "This description as a page", "", HTML),
        ("The server", "get /", "The chat page", "", HTML),
    ];
    let mut paths = Map::new();
    for (tag, operation, summary, request, answer) in table {
        let Some((method, path)) = operation.split_once(' ') else { continue };
        let operations = paths.entry(path).or_insert_with(|| json!({}));
        operations[method] = describe_operation(tag, path, summary, request, answer);
    }
    Value::Object(paths)
}

fn describe_operation(tag: &str, path: &str, summary: &str, request: &str, answer: Answer) -> Value {
    let types: &[&str] = match answer {
        Answer::Json => &["application/json"],
        Answer::Events => &["application/json", "text/event-stream"],
        Answer::Lines => &["application/json", "application/x-ndjson"],
        Answer::Text(kind) => &[kind],
    };
    let content: Map<String, Value> = types.iter().map(|kind| ((*kind).to_owned(), json!({}))).collect();
    let mut operation = json!({
        "tags": [tag],
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {
                "description": "A refusal, in the form of the interface.",
                "content": {"application/json": {"schema": reference("Error")}},
            },
        },
    });
    if !request.is_empty() {
        let kind = if path.starts_with("/v1/audio/") { "multipart/form-data" } else { "application/json" };
        let content = json!({kind: {"schema": reference(request)}});
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    if path.contains("{id}") {
        operation["parameters"] =
            json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]);
    }
    if page::is_open(path) {
        operation["security"] = json!([]);
    }
    operation
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A field: its type, what it is for, and a value that works.
fn field(kind: &str, description: &str, example: Value) -> Value {
    let mut field = json!({"type": kind, "description": description});
    if !example.is_null() {
        field["example"] = example;
    }
    field
}

/// A field that may be a text or a list.
fn text_or_list(description: &str, example: Value) -> Value {
    let mut field = field("", description, example);
    field["type"] = json!(["string", "array"]);
    field
}

fn object(fields: Vec<(&str, Value)>, required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

fn model() -> (&'static str, Value) {
    let about = "The id of a model, in any capitals, or a part of it that no other has. May be absent where there is only one.";
    ("model", field("string", about, json!("smollm2")))
}

fn messages() -> (&'static str, Value) {
    let example = json!([{"role": "user", "content": "Hello!"}]);
    let mut messages = field("array", "The conversation so far.", example);
    messages["items"] = reference("Message");
    ("messages", messages)
}

/// The definition of a function.
fn tool() -> Value {
    json!({"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}})
}

fn tool_choice(example: Value) -> (&'static str, Value) {
    let mut choice = field("", "auto (the model decides), required, none, or one function by name.", example);
    choice["type"] = json!(["string", "object"]);
    ("tool_choice", choice)
}

/// What requests about speech have in common.
fn listening() -> Vec<(&'static str, Value)> {
    vec![
        model(),
        ("file", field("string", "A recording: WAV, MP3, FLAC, Ogg, MP4 and others.", Value::Null)),
        ("prompt", field("string", "Words to expect, a style.", Value::Null)),
        ("response_format", field("string", "json, text, srt, verbose_json or vtt.", json!("json"))),
        ("temperature", field("number", "0 tries others where that gives no good text.", json!(0))),
    ]
}

fn sampling() -> Vec<(&'static str, Value)> {
    let number = |about, example: f64| field("number", about, json!(example));
    let integer = |about, example: u32| field("integer", about, json!(example));
    vec![
        ("temperature", number("0 always takes the most likely token.", 0.7)),
        ("top_p", number("Choose among the most likely tokens that together have this probability.", 0.9)),
        ("top_k", integer("Choose among so many of the most likely tokens; 0 among all.", 40)),
        (
            "min_p",
            number("Choose among tokens with at least this share of the best one's probability.", 0.05),
        ),
        ("repeat_penalty", number("Makes tokens that came before less likely; 1 does not.", 1.1)),
        ("repeat_last_n", integer("How many tokens the penalties look back.", 64)),
        ("frequency_penalty", number("Subtracted for every time a token came before, -2 to 2.", 0.1)),
        ("presence_penalty", number("Subtracted from tokens that came before, -2 to 2.", 0.1)),
        ("seed", integer("The same seed gives the same text, whatever else the server does.", 7)),
        (
            "logit_bias",
            field("object", "From token numbers to what is added to them, -100 to 100.", json!({"5": -1})),
        ),
    ]
}

/// What OpenAI's chat and completions have in common.
fn common() -> Vec<(&'static str, Value)> {
    let mut fields = sampling();
    fields.extend([
        ("stop", text_or_list("Texts that end the answer and are not part of it.", json!(["\n\n"]))),
        ("max_tokens", field("integer", "Most tokens of the answer.", json!(5))),
        ("max_completion_tokens", field("integer", "The same, by its newer name.", json!(5))),
        ("n", field("integer", "How many answers.", json!(1))),
        (
            "response_format",
            field(
                "object",
                "`type` text, json_object or json_schema: the answer is held to it.",
                json!({"type": "text"}),
            ),
        ),
        ("grammar", field("string", "A grammar that the answer is held to.", Value::Null)),
        streamed(),
        (
            "stream_options",
            field("object", "With `stream`: {\"include_usage\": true} adds what it took.", Value::Null),
        ),
    ]);
    fields
}

fn streamed() -> (&'static str, Value) {
    ("stream", field("boolean", "Send the answer as it comes.", json!(false)))
}

fn schemas() -> Value {
    let string = |about, example: &str| field("string", about, json!(example));
    let integer = |about, example: u32| field("integer", about, json!(example));
    let plain = |kind, about| field(kind, about, Value::Null);
    let options =
        || field("object", "Sampling, `stop`, `num_predict` and `num_ctx`.", json!({"num_predict": 5}));
    let think = || {
        let mut think = field("", "Whether to think before answering.", json!(false));
        think["type"] = json!(["boolean", "string"]);
        ("think", think)
    };
    let with =
        |mut fields: Vec<(&'static str, Value)>, more: Vec<(&'static str, Value)>, required: &[&str]| {
            fields.extend(more);
            object(fields, required)
        };
    json!({
        "Message": object(vec![
            ("role", plain("string", "system, developer, user, assistant or tool.")),
            ("content", text_or_list("Text, or parts of type text.", Value::Null)),
            ("reasoning_content", plain("string", "What the model thought before it said this.")),
            ("tool_calls", plain("array", "Tools the assistant wanted called.")),
            ("tool_call_id", plain("string", "Which call a message of the role tool answers.")),
        ], &["role"]),
        "ChatRequest": with(vec![model(), messages()], [common(), vec![
            ("logprobs", field("boolean", "Give the log-probability of every token.", json!(true))),
            ("top_logprobs", integer("And those of so many of the likeliest, at most 20.", 2)),
            ("reasoning_effort", string("none: do not think before answering; minimal to xhigh: do, if the model can.", "none")),
            ("reasoning_format", string("auto: thoughts come as reasoning_content; none: in the text, with their marks.", "auto")),
            ("chat_template_kwargs", field("object", "Variables for the model's chat template.", json!({"enable_thinking": false}))),
            ("tools", field("array", "Functions the model may call.", json!([tool()]))),
            tool_choice(json!("none")),
            ("parallel_tool_calls", field("boolean", "Whether one answer may call several functions.", json!(true))),
            ("continue_final_message", field("boolean", "Go on with a last message of the assistant's.", json!(false))),
        ]].concat(), &["messages"]),
        "CompletionRequest": with(vec![
            model(),
            ("prompt", text_or_list("A text, several, tokens, or several lists of them.", json!("Once upon a time"))),
        ], [common(), vec![
            ("logprobs", integer("Log-probabilities of the tokens and of so many of the likeliest, at most 20.", 2)),
            ("echo", field("boolean", "Repeat the prompt before the text.", json!(false))),
        ]].concat(), &["prompt"]),
        "ResponsesRequest": with(vec![
            model(),
            ("input", text_or_list("A text, or the whole conversation.", json!("Hello!"))),
            ("instructions", string("The system prompt.", "Be brief.")),
            ("max_output_tokens", integer("Most tokens of the answer.", 5)),
            ("tools", field("array", "Functions the model may call.", json!([{"type": "function", "name": "now", "parameters": {"type": "object"}}]))),
            tool_choice(json!("none")),
            ("parallel_tool_calls", field("boolean", "Whether one answer may call several functions.", json!(true))),
            ("reasoning", field("object", "`effort`, as `reasoning_effort` of chat completions.", json!({"effort": "none"}))),
            streamed(),
        ], sampling(), &["input"]),
        "MessagesRequest": with(vec![
            model(),
            ("max_tokens", integer("Most tokens of the answer.", 5)),
            messages(),
            ("system", text_or_list("The system prompt.", json!("Be brief."))),
            ("stop_sequences", field("array", "Texts that end the answer.", json!(["\n\n"]))),
            ("tools", field("array", "Functions the model may call.", json!([{"name": "now", "input_schema": {"type": "object"}}]))),
            ("tool_choice", field("object", "`type` auto (the model decides), any, tool (by `name`) or none.", json!({"type": "none"}))),
            ("thinking", field("object", "`type` says whether to think before answering: enabled, disabled or adaptive.", json!({"type": "disabled"}))),
            streamed(),
        ], sampling(), &["max_tokens", "messages"]),
        "CountRequest": object(vec![
            model(),
            messages(),
            ("system", text_or_list("The system prompt.", json!("Be brief."))),
        ], &["messages"]),
        "OllamaChatRequest":
            object(vec![
                model(),
                messages(),
                ("tools", field("array", "Functions the model may call.", json!([tool()]))),
                streamed(),
                think(),
                ("options", options()),
            ], &["model", "messages"]),
        "OllamaGenerateRequest": object(vec![
            model(),
            ("prompt", string("What to answer.", "Hello!")),
            ("system", string("The system prompt.", "Be brief.")),
            ("raw", field("boolean", "Continue the prompt as it is, without the chat template.", json!(false))),
            streamed(),
            think(),
            ("options", options()),
        ], &["model"]),
        "EmbeddingsRequest": object(vec![
            model(),
            ("input", text_or_list("A text, several, tokens, or several lists of them.", json!(["Hello!", "Bye!"]))),
            ("dimensions", integer("Keep so many numbers of each vector, where the model is trained for it.", 8)),
            ("encoding_format", string("float or base64: the numbers as F32, least significant byte first.", "float")),
            ("truncate", field("boolean", "Leave out the end of texts that are too long, instead of refusing them.", json!(false))),
        ], &["input"]),
        "RerankRequest": object(vec![
            model(),
            ("query", string("The question.", "Where is the station?")),
            ("documents", field("array", "Texts, or objects with a text.", json!(["Behind the bridge.", "At noon."]))),
            ("top_n", integer("Answer with so many of the best; by default with all.", 1)),
            ("return_documents", field("boolean", "Whether the answer has the texts.", json!(true))),
            ("truncate", field("boolean", "Leave out the end of what is too long, instead of refusing it.", json!(true))),
        ], &["query", "documents"]),
        "TranscriptionRequest": with(listening(), vec![
            ("language", plain("string", "What is spoken, by code or English name; found out where absent.")),
            ("timestamp_granularities[]", plain("array", "With verbose_json: word and segment.")),
            ("stream", field("boolean", "Send text as it is understood; json and text alone.", json!(false))),
        ], &["file"]),
        "TranslationRequest": object(listening(), &["file"]),
        "OllamaEmbedRequest": object(vec![
            model(),
            ("input", text_or_list("A text, or several.", json!("Hello!"))),
            ("dimensions", integer("Keep so many numbers of each vector.", 8)),
            ("truncate", field("boolean", "Leave out the end of texts that are too long.", json!(true))),
        ], &["model", "input"]),
        "OllamaEmbeddingsRequest":
            object(vec![model(), ("prompt", string("The text.", "Hello!"))], &["model", "prompt"]),
        "OllamaShowRequest": object(vec![model()], &["model"]),
        "TokenizeRequest": object(vec![
            model(),
            ("text", string("What to take apart.", "Hello!")),
            ("add_special", field("boolean", "Add the tokens that begin and end texts.", json!(true))),
            ("parse_special", field("boolean", "Read the names of special tokens as such.", json!(false))),
        ], &["text"]),
        "DetokenizeRequest":
            object(vec![model(), ("tokens", field("array", "Token numbers.", json!([5, 6])))], &["tokens"]),
        "LoadRequest": object(vec![
            ("model", string("A path or a name, or the id of a model that was unloaded.", "smollm2")),
            ("id", plain("string", "How requests will name it; by default its name or that of its file.")),
            ("context_length", plain("integer", "Positions of each answer with its prompt.")),
        ], &[]),
        "UnloadRequest": object(vec![("id", string("Which model.", "smollm2"))], &[]),
        "Error": object(vec![("error", object(vec![
            ("message", plain("string", "What is wrong.")),
            ("type", plain("string", "The kind of error.")),
            ("param", plain("string", "The field to blame, if there is one.")),
            ("code", plain("string", "What to look up, if there is more to say.")),
        ], &["message"]))], &["error"]),
    })
}
