//! Conversations, in the shape of the OpenAI interface's JSON.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value as Json};

/// One message of a conversation.
///
/// ```
/// use akunu_text::chat::{Content, Message};
///
/// let message: Message = serde_json::from_str(r#"{"role": "user", "content": "Hello!"}"#)?;
/// assert_eq!(message, Message::user("Hello!"));
/// assert_eq!(message.content, Some(Content::Text("Hello!".into())));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `developer`, `user`, `assistant`, `tool`, or another the template knows.
    pub role: String,
    /// What was said. Absent and `null` are different to templates.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// What the model thought before it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Tools an assistant wants called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Which call a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The name of the speaker, or of the tool that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Fields beyond these, which some templates read.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Text, images and other parts, in order.
    Parts(Vec<Part>),
    /// An explicit `null`, as in an assistant's message that only calls tools.
    Null(()),
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// `text`, `image_url`, `input_audio`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// The text, in a part of type `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The fields of other types.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

/// A call of a tool that a model asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// What a tool's answer refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `function` so far.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Which function, and with what.
    pub function: FunctionCall,
    /// Fields beyond these, which some templates read.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

/// A function and its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function's name.
    pub name: String,
    /// An object; over HTTP it travels as a string of JSON, see [`Message::decode_tool_arguments`].
    pub arguments: Json,
    /// Fields beyond these, which some templates read.
    #[serde(flatten)]
    pub extra: Map<String, Json>,
}

/// Keeps a field that is there but `null` apart from one that is not there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Content>, D::Error> {
    Content::deserialize(deserializer).map(Some)
}

impl Message {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self { role: role.into(), content: Some(Content::Text(text.into())), ..Self::default() }
    }

    /// What the model is told about its task.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new("system", text)
    }

    /// What a person says.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new("user", text)
    }

    /// What the model said.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new("assistant", text)
    }

    /// Turns tool arguments that are strings of JSON objects, as the OpenAI interface sends them, into objects,
    /// as templates expect them. Strings that hold no object stay as they are.
    pub fn decode_tool_arguments(&mut self) {
        for call in self.tool_calls.iter_mut().flatten() {
            if let Json::String(text) = &call.function.arguments
                && let Ok(object @ Json::Object(_)) = serde_json::from_str(text)
            {
                call.function.arguments = object;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn round_trip(json: &Json) {
        let message: Message = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&message).unwrap(), *json);
    }

    #[test]
    fn every_shape_of_message_survives_a_round_trip() {
        round_trip(&json!({"role": "user", "content": "hi", "name": "ann"}));
        round_trip(&json!({"role": "user", "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "data:,x"}},
        ]}));
        round_trip(&json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
        ]}));
        round_trip(&json!({"role": "assistant", "tool_calls": []}));
        round_trip(&json!({"role": "tool", "tool_call_id": "1", "content": "", "custom": [1, 2.5]}));
    }

    #[test]
    fn absent_and_null_content_differ() {
        let absent: Message = serde_json::from_value(json!({"role": "assistant"})).unwrap();
        let null: Message = serde_json::from_value(json!({"role": "assistant", "content": null})).unwrap();
        assert_eq!(absent.content, None);
        assert_eq!(null.content, Some(Content::Null(())));
    }

    #[test]
    fn only_strings_of_objects_are_decoded() {
        let mut message: Message = serde_json::from_value(json!({"role": "assistant", "tool_calls": [
            {"function": {"name": "a", "arguments": "{\"x\": [1]}"}},
            {"function": {"name": "b", "arguments": "not json"}},
            {"function": {"name": "c", "arguments": "3"}},
        ]}))
        .unwrap();
        message.decode_tool_arguments();
        let arguments: Vec<Json> =
            message.tool_calls.unwrap().into_iter().map(|call| call.function.arguments).collect();
        assert_eq!(arguments, [json!({"x": [1]}), json!("not json"), json!("3")]);
    }
}
