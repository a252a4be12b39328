//! The fields of a request, taken one by one: what is left over at the end was not understood.

use std::num::NonZeroU32;

use akunu_text::chat::Message;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

/// Fields of clients that change nothing in an answer.
const HARMLESS: [&str; 10] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "keep_alive",
    "cache_control",
];

/// What a field may be, in the words of JSON.
pub(crate) trait Expected: DeserializeOwned {
    const WHAT: &'static str;
}

macro_rules! expected {
    ($($type:ty: $what:literal,)*) => {
        $(impl Expected for $type { const WHAT: &'static str = $what; })*
    };
}

expected! {
    bool: "true or false",
    f32: "a number",
    usize: "a whole number from 0 on",
    u32: "a whole number from 0 on",
    u64: "a whole number from 0 on",
    i64: "a whole number",
    NonZeroU32: "a whole number from 1 on",
    String: "a string",
    Value: "something",
    Vec<u32>: "a list of whole numbers from 0 on",
    Vec<Value>: "a list",
    Map<String, Value>: "an object",
}

/// What a value is, in the words of JSON.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The fields of a JSON object that have not been read yet.
#[derive(Debug)]
pub(crate) struct Fields {
    /// What the object is in its request: `""`, or a name and a dot.
    path: String,
    left: Map<String, Value>,
}

impl Fields {
    /// The fields of a request's body.
    pub(crate) fn parse(body: &[u8]) -> Result<Fields> {
        let value = serde_json::from_slice(body).map_err(|error| {
            ApiError::invalid(format!("the body is not JSON: {error}")).code("invalid_json")
        })?;
        match value {
            Value::Object(left) => Ok(Fields { path: String::new(), left }),
            _ => Err(ApiError::invalid("the body is JSON, but not an object").code("invalid_json")),
        }
    }

    /// One field, to be read like those of a request.
    pub(crate) fn of(name: &str, value: Value) -> Fields {
        Fields { path: String::new(), left: Map::from_iter([(name.to_owned(), value)]) }
    }

    /// A field; `null` counts as absent.
    pub(crate) fn take<T: Expected>(&mut self, name: &str) -> Result<Option<T>> {
        let value = match self.left.remove(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let found = kind(&value);
        serde_json::from_value(value)
            .map(Some)
            .map_err(|_| ApiError::field(self.name(name), format!("must be {}, not {found}", T::WHAT)))
    }

    /// A field as it is, left where it is.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.left.get(name).filter(|value| !value.is_null())
    }

    /// A field that must be there.
    pub(crate) fn need<T: Expected>(&mut self, name: &str) -> Result<T> {
        self.take(name)?
            .ok_or_else(|| ApiError::field(self.name(name), "is missing").code("missing_required_parameter"))
    }

    /// A number within limits.
    pub(crate) fn number(&mut self, name: &str, from: f32, to: f32) -> Result<Option<f32>> {
        match self.take::<f32>(name)? {
            Some(value) if !(from..=to).contains(&value) => {
                Err(ApiError::field(self.name(name), format!("is {value}: it must be from {from} to {to}")))
            }
            value => Ok(value),
        }
    }

    /// An object within.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Fields>> {
        let left: Option<Map<String, Value>> = self.take(name)?;
        Ok(left.map(|left| Fields { path: self.name(name) + ".", left }))
    }

    /// One string or several.
    pub(crate) fn strings(&mut self, name: &str) -> Result<Vec<String>> {
        match self.take::<Value>(name)? {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text]),
            Some(list) => serde_json::from_value(list)
                .map_err(|_| ApiError::field(self.name(name), "must be a string or a list of strings")),
        }
    }

    /// The messages of a conversation.
    pub(crate) fn messages(&mut self, name: &str) -> Result<Vec<Message>> {
        let list: Vec<Value> = self.need(name)?;
        if list.is_empty() {
            return Err(ApiError::field(self.name(name), "is empty"));
        }
        list.into_iter().enumerate().map(|(i, value)| message(value, &format!("{name}[{i}]"))).collect()
    }

    /// Refuses a field by name if it is there and says more than `harmless` does.
    pub(crate) fn refuse(&mut self, name: &str, harmless: &[Value], why: &str) -> Result<()> {
        match self.left.remove(name) {
            None | Some(Value::Null) => Ok(()),
            Some(value) if harmless.contains(&value) => Ok(()),
            Some(_) => Err(ApiError::unsupported(&self.name(name), why)),
        }
    }

    /// Everything was read; whatever is left and could change the answer is refused by name.
    pub(crate) fn end(&self) -> Result<()> {
        let unknown =
            |(name, value): &(&String, &Value)| !value.is_null() && !HARMLESS.contains(&name.as_str());
        match self.left.iter().find(unknown) {
            None => Ok(()),
            Some((name, _)) => {
                let name = self.name(name);
                Err(ApiError::field(name, "is not known to this server").code("unknown_parameter"))
            }
        }
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }
}

/// A message with plain text: parts are joined, and a `developer` is what templates call `system`.
fn message(value: Value, name: &str) -> Result<Message> {
    check_message(&value, name)?;
    let mut message: Message = serde_json::from_value(value)
        .map_err(|_| ApiError::field(name, "is not a message: a field in it has the wrong type"))?;
    if let Some(akunu_text::chat::Content::Parts(parts)) = &message.content {
        let mut text = String::new();
        for (i, part) in parts.iter().enumerate() {
            match (part.kind.as_str(), &part.text) {
                ("text" | "input_text" | "output_text", Some(part)) => text.push_str(part),
                // What an answer of Anthropic's interface brings back. Its signature means nothing here.
                ("thinking", _) => message.reasoning_content = thought(part),
                ("redacted_thinking", _) => {}
                (kind, _) => {
                    let problem = format!("is a part of type \"{kind}\": this model reads text only");
                    return Err(ApiError::unsupported(&format!("{name}.content[{i}]"), problem));
                }
            }
        }
        message.content = Some(akunu_text::chat::Content::Text(text));
    }
    if message.role == "developer" {
        "system".clone_into(&mut message.role);
    }
    message.decode_tool_arguments();
    Ok(message)
}

/// Looks for what is not as messages are.
fn check_message(message: &Value, name: &str) -> Result<()> {
    let wrong = |field: &str, what: &str, value: &Value| {
        Err(ApiError::field(format!("{name}{field}"), format!("must be {what}, not {}", kind(value))))
    };
    let Value::Object(fields) = message else { return wrong("", "an object", message) };
    match fields.get("role") {
        Some(Value::String(_)) => {}
        Some(role) => return wrong(".role", "a string", role),
        None => return Err(ApiError::field(format!("{name}.role"), "is missing")),
    }
    match fields.get("content") {
        None | Some(Value::Null | Value::String(_)) => {}
        Some(Value::Array(parts)) => {
            for (i, part) in parts.iter().enumerate() {
                let at = format!(".content[{i}]");
                match (part, &part["type"], &part["text"]) {
                    (Value::Object(_), Value::String(_), Value::Null | Value::String(_)) => {}
                    (Value::Object(_), Value::String(_), text) => {
                        return wrong(&format!("{at}.text"), "a string", text);
                    }
                    (Value::Object(_), kind, _) => return wrong(&format!("{at}.type"), "a string", kind),
                    _ => return wrong(&at, "an object", part),
                }
            }
        }
        Some(content) => return wrong(".content", "a string or a list of parts", content),
    }
    for field in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(value) = fields.get(field).filter(|value| !value.is_string() && !value.is_null()) {
            return wrong(&format!(".{field}"), "a string", value);
        }
    }
    let calls = match fields.get("tool_calls") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(calls)) => calls,
        Some(calls) => return wrong(".tool_calls", "a list", calls),
    };
    for (i, call) in calls.iter().enumerate() {
        let function = &call["function"];
        if !function["name"].is_string() || function.get("arguments").is_none() {
            let problem = "must have a `name`, which is a string, and `arguments`";
            return Err(ApiError::field(format!("{name}.tool_calls[{i}].function"), problem));
        }
    }
    Ok(())
}

fn thought(part: &akunu_text::chat::Part) -> Option<String> {
    Some(part.extra.get("thinking")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: &Value) -> Fields {
        Fields::parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn what_is_wrong_is_said_of_the_field_by_name() {
        let mut fields =
            fields(&json!({"temperature": "hot", "n": 3.5, "options": {"seed": []}, "top_p": 7}));
        let param = |error: ApiError| error.param.unwrap();
        assert_eq!(param(fields.take::<f32>("temperature").unwrap_err()), "temperature");
        assert_eq!(param(fields.take::<usize>("n").unwrap_err()), "n");
        assert_eq!(param(fields.number("top_p", 0.0, 1.0).unwrap_err()), "top_p");
        let mut options = fields.object("options").unwrap().unwrap();
        assert_eq!(param(options.take::<u64>("seed").unwrap_err()), "options.seed");
        let error = Fields::of("n", json!("3")).take::<usize>("n").unwrap_err();
        assert_eq!(error.message, "`n` must be a whole number from 0 on, not a string");
        let error = Fields::of("n", json!(-1)).take::<usize>("n").unwrap_err();
        assert_eq!(error.message, "`n` must be a whole number from 0 on, not -1");
        let error = fields.need::<String>("model").unwrap_err();
        assert_eq!((error.code, param(error)), (Some("missing_required_parameter"), "model".to_owned()));
    }

    #[test]
    fn unknown_fields_are_refused_unless_they_mean_nothing() {
        fields(&json!({"user": "ann", "mirostat": null})).end().unwrap();
        let error = fields(&json!({"user": "ann", "mirostat": 2})).end().unwrap_err();
        assert_eq!((error.param.as_deref(), error.code), (Some("mirostat"), Some("unknown_parameter")));
        let mut fields = fields(&json!({"response_format": {"type": "json_object"}, "tools": []}));
        fields.refuse("tools", &[json!([])], "are not there").unwrap();
        let error = fields.refuse("response_format", &[json!({"type": "text"})], "is not there").unwrap_err();
        assert_eq!(error.message, "`response_format` is not there");
    }

    #[test]
    fn parts_of_text_are_joined_and_others_refused() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let list = json!({"messages": [{"role": "developer", "content": parts}]});
        assert_eq!(fields(&list).messages("messages").unwrap(), [Message::system("ab")]);
        let picture = json!([{"type": "image_url", "image_url": {"url": "data:,"}}]);
        let list = json!({"messages": [{"role": "user", "content": picture}]});
        let error = fields(&list).messages("messages").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages[0].content[0]"));
        for bad in [json!([]), json!(["hi"]), json!("hi"), json!([{"content": "no role"}])] {
            assert!(fields(&json!({"messages": bad})).messages("messages").is_err());
        }
    }

    #[test]
    fn what_is_wrong_with_a_message_is_said_of_its_field() {
        for (message, param, problem) in [
            (json!("hi"), "messages[0]", "must be an object, not a string"),
            (json!({"content": "hi"}), "messages[0].role", "is missing"),
            (json!({"role": 3}), "messages[0].role", "must be a string, not 3"),
            (
                json!({"role": "user", "content": 3}),
                "messages[0].content",
                "must be a string or a list of parts, not 3",
            ),
            (
                json!({"role": "user", "content": ["hi"]}),
                "messages[0].content[0]",
                "must be an object, not a string",
            ),
            (
                json!({"role": "user", "content": [{"text": "hi"}]}),
                "messages[0].content[0].type",
                "must be a string, not null",
            ),
            (
                json!({"role": "user", "content": [{"type": "text", "text": 3}]}),
                "messages[0].content[0].text",
                "must be a string, not 3",
            ),
            (
                json!({"role": "tool", "tool_call_id": 3}),
                "messages[0].tool_call_id",
                "must be a string, not 3",
            ),
            (
                json!({"role": "assistant", "tool_calls": {}}),
                "messages[0].tool_calls",
                "must be a list, not an object",
            ),
            (
                json!({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}),
                "messages[0].tool_calls[0].function",
                "must have a `name`, which is a string, and `arguments`",
            ),
        ] {
            let error = fields(&json!({"messages": [message]})).messages("messages").unwrap_err();
            assert_eq!(error.message, format!("`{param}` {problem}"));
            assert_eq!(error.param.as_deref(), Some(param));
        }
    }

    #[test]
    fn bodies_that_are_no_objects_are_refused() {
        for body in [b"".as_slice(), b"[1]", b"{", b"\xff\xfe", b"{\"a\": \"\xff\"}", b"nul"] {
            assert_eq!(Fields::parse(body).unwrap_err().code, Some("invalid_json"));
        }
    }
}
