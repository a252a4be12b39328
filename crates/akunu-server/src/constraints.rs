//! What requests say an answer must be like, in the words of OpenAI, llama.cpp, vLLM and Ollama.

use std::num::NonZeroU32;

use akunu::{Constraint, Settings};
use akunu_text::chat::Syntax;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::resident::Served;

type Result<T> = std::result::Result<T, ApiError>;

/// How a field is read.
type Reader = fn(&Value) -> Result<Constraint>;

/// Fields that each hold a whole constraint.
const FIELDS: [(&str, Reader); 6] = [
    ("grammar", grammar),
    ("json_schema", schema),
    ("guided_json", schema),
    ("guided_regex", |value| Ok(Constraint::regex(text(value)?)?)),
    ("guided_grammar", grammar),
    ("guided_choice", choice),
];

/// What a completion's fields ask for, and which of them does; of several ways to say it one at most.
pub(crate) fn read(fields: &mut Fields) -> Result<Option<(&'static str, Constraint)>> {
    let mut found = None;
    let format = fields.take::<Value>("response_format")?;
    let format =
        format.map(|format| response_format(&format)).transpose().map_err(|e| e.param("response_format"))?;
    if let Some(constraint) = format.flatten() {
        found = Some(("response_format", constraint));
    }
    for (name, read) in FIELDS {
        let Some(value) = fields.take::<Value>(name)? else { continue };
        let constraint = read(&value).map_err(|error| error.param(name))?;
        if let Some((other, _)) = found {
            return Err(ApiError::field(name, format!("cannot go with `{other}`")));
        }
        found = Some((name, constraint));
    }
    Ok(found)
}

/// OpenAI's `response_format`, and the `format` of its newer interface, whose schema stands one step higher.
pub(crate) fn response_format(format: &Value) -> Result<Option<Constraint>> {
    match format["type"].as_str() {
        Some("text") => Ok(None),
        // llama.cpp's clients put a schema there.
        Some("json_object") if format["schema"].is_object() => schema(&format["schema"]).map(Some),
        Some("json_object") => Ok(Some(Constraint::json_object())),
        Some("json_schema") => {
            let wrapped = [&format["json_schema"]["schema"], &format["schema"]];
            match wrapped.into_iter().find(|schema| !schema.is_null()) {
                Some(given) => schema(given).map(Some),
                None => Err(ApiError::invalid("a format of type `json_schema` needs a `schema`")),
            }
        }
        _ => Err(ApiError::invalid("the type of a format must be `text`, `json_object` or `json_schema`")),
    }
}

/// Ollama's `format`: `"json"`, or a schema.
pub(crate) fn ollama_format(fields: &mut Fields) -> Result<Option<Constraint>> {
    match fields.take::<Value>("format")? {
        None => Ok(None),
        Some(value) if value == json!("") => Ok(None),
        Some(value) if value == json!("json") => Ok(Some(Constraint::json_object())),
        Some(value @ Value::Object(_)) => schema(&value).map(Some).map_err(|error| error.param("format")),
        Some(_) => Err(ApiError::field("format", "must be \"json\" or a JSON Schema")),
    }
}

/// The `text.format` of OpenAI's newer interface.
pub(crate) fn text_format(fields: &mut Fields) -> Result<Option<Constraint>> {
    let Some(mut text) = fields.object("text")? else { return Ok(None) };
    let format = text.take::<Value>("format")?;
    text.take::<String>("verbosity")?;
    text.end()?;
    let format = format.map(|format| response_format(&format)).transpose();
    format.map(Option::flatten).map_err(|error| error.param("text.format"))
}

/// Leaves a model that thinks before it answers its thoughts: only the answer is constrained. A budget bounds the thoughts.
pub(crate) fn after_thinking(
    served: &Served,
    syntax: &Syntax,
    prompt: &[u32],
    settings: &mut Settings,
    budget: Option<NonZeroU32>,
) -> Result<()> {
    let free = || budget.map(|_| Constraint::any());
    if let Some(constraint) = settings.constraint.take().or_else(free) {
        let tokenizer = served.scheduler.model().tokenizer()?;
        settings.constraint = Some(constraint.after_thinking(&syntax.reasoning, prompt, tokenizer, budget));
    }
    Ok(())
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().ok_or_else(|| ApiError::invalid("it must be a string"))
}

fn grammar(value: &Value) -> Result<Constraint> {
    Ok(Constraint::grammar(text(value)?)?)
}

/// A schema, or one as text.
fn schema(value: &Value) -> Result<Constraint> {
    match value {
        Value::String(text) => Ok(Constraint::json_schema_text(text)?),
        value => Ok(Constraint::json_schema(value)?),
    }
}

fn choice(value: &Value) -> Result<Constraint> {
    let texts: Option<Vec<&str>> =
        value.as_array().map(|list| list.iter().filter_map(Value::as_str).collect());
    match texts {
        Some(texts) if Some(texts.len()) == value.as_array().map(Vec::len) => Ok(Constraint::choice(&texts)?),
        _ => Err(ApiError::invalid("it must be a list of strings")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(body: &Value) -> Result<Option<Constraint>> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        let constraint = read(&mut fields)?;
        fields.end()?;
        Ok(constraint.map(|(_, constraint)| constraint))
    }

    #[test]
    fn every_way_to_say_it_is_understood() {
        let schema = json!({"type": "object"});
        let object = Constraint::json_schema(&schema).unwrap();
        for body in [
            json!({"response_format": {"type": "json_object"}}),
            json!({"response_format": {"type": "json_object", "schema": schema}}),
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}),
            json!({"guided_json": schema}),
            json!({"guided_json": schema.to_string()}),
            json!({"json_schema": schema}),
        ] {
            assert_eq!(read_from(&body).unwrap().as_ref(), Some(&object), "{body}");
        }
        assert_eq!(read_from(&json!({"response_format": {"type": "text"}})).unwrap(), None);
        for body in [
            json!({"grammar": "root ::= \"a\""}),
            json!({"guided_grammar": "start: \"a\""}),
            json!({"guided_regex": "a+"}),
            json!({"guided_choice": ["a", "b"]}),
        ] {
            assert!(read_from(&body).unwrap().is_some(), "{body}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_of_the_field() {
        for (body, param) in [
            (json!({"response_format": {"type": "xml"}}), "response_format"),
            (json!({"response_format": {"type": "json_schema", "json_schema": {}}}), "response_format"),
            (json!({"response_format": {"type": "json_schema", "schema": {"not": {}}}}), "response_format"),
            (json!({"guided_regex": 3}), "guided_regex"),
            (json!({"guided_choice": ["a", 3]}), "guided_choice"),
            (json!({"grammar": "root ::= x"}), "grammar"),
            (json!({"grammar": "root ::= \"x\"", "guided_regex": "x"}), "guided_regex"),
        ] {
            assert_eq!(read_from(&body).unwrap_err().param.as_deref(), Some(param), "{body}");
        }
    }
}
