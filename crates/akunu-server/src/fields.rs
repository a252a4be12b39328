//! The fields of a request, taken one by one: what is left over at the end was not understood.

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
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>> {
        let value = match self.left.remove(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        serde_json::from_value(value)
            .map(Some)
            .map_err(|error| ApiError::field(self.name(name), format!("has the wrong type: {error}")))
    }

    /// A field as it is, left where it is.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.left.get(name).filter(|value| !value.is_null())
    }

    /// A field that must be there.
    pub(crate) fn need<T: DeserializeOwned>(&mut self, name: &str) -> Result<T> {
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
    let mut message: Message = serde_json::from_value(value)
        .map_err(|error| ApiError::field(name, format!("is not a message: {error}")))?;
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
    fn bodies_that_are_no_objects_are_refused() {
        for body in [b"".as_slice(), b"[1]", b"{", b"\xff\xfe", b"{\"a\": \"\xff\"}", b"nul"] {
            assert_eq!(Fields::parse(body).unwrap_err().code, Some("invalid_json"));
        }
    }
}
