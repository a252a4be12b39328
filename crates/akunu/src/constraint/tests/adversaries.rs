//! Texts that mean something else than they seem to: whatever is accepted is an instance, as a reader of JSON sees it.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Tested, follows};
use crate::constraint::Constraint;

/// Whether a value is an instance: the few keywords that the schemas here have, by the book. Patterns are a beginning.
fn is_instance(value: &Value, schema: &Value) -> bool {
    let of_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("integer") => value.is_i64(),
        Some("string") => value.is_string(),
        _ => true,
    };
    let Value::Object(fields) = value else { return of_type };
    let listed = |keyword: &str| schema[keyword].as_array().cloned().unwrap_or_default();
    let required = listed("required").iter().all(|name| fields.contains_key(name.as_str().unwrap()));
    let enough = fields.len() as u64 >= schema["minProperties"].as_u64().unwrap_or(0);
    let each = |(name, value): (&String, &Value)| {
        let named = schema["properties"].get(name);
        let patterns = schema["patternProperties"].as_object().cloned().unwrap_or_default();
        let by_pattern: Vec<&Value> =
            patterns.iter().filter(|(p, _)| name.starts_with(&p[1..])).map(|(_, schema)| schema).collect();
        let known = named.is_some() || !by_pattern.is_empty();
        let others = schema.get("additionalProperties").filter(|_| !known);
        let fits = |schema: &Value| match schema {
            Value::Bool(allowed) => *allowed,
            schema => is_instance(value, schema),
        };
        named.into_iter().chain(by_pattern).chain(others).all(fits)
    };
    of_type && required && enough && fields.iter().all(each)
}

fn schemas() -> Vec<Value> {
    let integer = json!({"type": "integer"});
    let named = json!({"a": integer, "/é\n": integer});
    vec![
        json!({"type": "object", "properties": named, "required": ["a"]}),
        json!({"type": "object", "properties": named, "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "properties": named, "additionalProperties": false}),
        json!({"type": "object", "patternProperties": {"^a": integer}}),
        json!({"type": "object", "patternProperties": {"^a": integer}, "additionalProperties": false}),
        json!({"type": "object", "properties": {"b": integer}, "patternProperties": {"^a": integer},
            "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "additionalProperties": integer, "minProperties": 1}),
        json!({"type": "object", "properties": {"a": integer}, "required": ["a"], "minProperties": 2}),
        json!({"type": "object", "required": ["a", "b"], "additionalProperties": integer}),
    ]
}

/// Ways to write a key: as it is, with letters as escapes in either case, with a slash that is escaped.
fn key() -> impl Strategy<Value = String> {
    let one = prop_oneof![
        4 => Just("a"), 1 => Just("b"), 1 => Just("é"), 1 => Just("\\n"), 1 => Just("/"), 1 => Just("\\/"),
        3 => Just("\\u0061"), 1 => Just("\\u0062"), 1 => Just("\\u00E9"), 1 => Just("\\u00e9"), 1 => Just("\\u000a"),
        1 => Just("\\u002f"), 1 => Just("\\ud83d\\ude00"), 1 => Just("\\u0001"),
    ];
    prop::collection::vec(one, 1..4).prop_map(|parts| format!("\"{}\"", parts.concat()))
}

fn object() -> impl Strategy<Value = String> {
    let value = prop_oneof![3 => Just("1"), 2 => Just("\"x\""), 1 => Just("null"), 1 => Just("{\"a\": 1, \"a\": \"x\"}")];
    let member = (key(), value).prop_map(|(key, value)| format!("{key}: {value}"));
    prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(", ")))
}

#[test]
fn keys_that_are_escaped_are_no_other_keys() {
    let tested = Tested::new();
    let texts = [
        ("{\"a\": 1, \"\\u0061\": \"x\"}", false),
        ("{\"a\": 1, \"a\": \"x\"}", false),
        ("{\"a\": 1, \"b\": \"x\"}", true),
        ("{\"a\": 1, \"b\\n\\\"\": \"x\"}", true),
    ];
    for schema in &schemas()[..2] {
        let fresh = tested.matcher(&Constraint::json_schema(schema).unwrap());
        for (text, fits) in texts {
            assert_eq!(follows(&mut fresh.clone(), text), fits, "{text} and {schema}");
        }
    }
}

#[test]
fn control_characters_have_the_short_escapes_or_none() {
    let tested = Tested::new();
    let schema = json!({"type": "string", "minLength": 2, "maxLength": 3});
    let fresh = tested.matcher(&Constraint::json_schema(&schema).unwrap());
    for (text, fits) in [
        ("\"\\n\\t\\\\\"", true),
        ("\"日\\\"\"", true),
        ("\"\\n\"", false),
        ("\"\\u000a1\"", false),
        ("\"\\u000112\"", false),
        ("\"1\u{7f}\"", false),
        ("\"1\n\"", false),
    ] {
        assert_eq!(follows(&mut fresh.clone(), text), fits, "{text:?}");
    }
    // Where nothing else would do, there is no instance, and a property that may be missing is.
    let only = json!({"type": "string", "pattern": "^\\x01$"});
    assert!(tested.refused(&Constraint::json_schema(&only).unwrap()).contains("Unsatisfiable"));
    let optional = json!({"type": "object", "properties": {"a": only}, "additionalProperties": false});
    let fresh = tested.matcher(&Constraint::json_schema(&optional).unwrap());
    assert!(follows(&mut fresh.clone(), "{}") && !follows(&mut fresh.clone(), "{\""));
}

#[test]
fn schemas_that_references_lead_to_are_held_to() {
    let tested = Tested::new();
    let schema = json!({"$ref": "#/components/schemas/day", "components": {"schemas": {
        "day": {"type": "string", "format": "date"}}}});
    let lark = format!("start: %json {schema}");
    for constraint in [Constraint::json_schema(&schema).unwrap(), Constraint::lark(&lark).unwrap()] {
        assert!(
            tested.accepts(&constraint, "\"2024-02-29\"") && !tested.accepts(&constraint, "\"2023-02-29\"")
        );
    }
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_an_instance(text in object(), nth in 0usize..9) {
        thread_local!(static MATCHERS: Vec<crate::constraint::Matcher> = {
            let tested = Tested::new();
            let schemas = schemas();
            schemas.iter().map(|schema| tested.matcher(&Constraint::json_schema(schema).unwrap())).collect()
        });
        let schema = &schemas()[nth];
        if MATCHERS.with(|matchers| follows(&mut matchers[nth].clone(), &text)) {
            let value: Value = serde_json::from_str(&text).unwrap();
            prop_assert!(is_instance(&value, schema), "{} is no instance of {}", text, schema);
        }
    }
}
