//! Instances of JSON Schemas.

use serde_json::{Value, json};

use super::{Tested, follows};
use crate::constraint::Constraint;

fn check(schema: &Value, good: &[&str], bad: &[&str]) {
    let tested = Tested::new();
    let fresh = tested.matcher(&Constraint::json_schema(schema).unwrap());
    for text in good {
        assert!(follows(&mut fresh.clone(), text), "{text} should be an instance of {schema}");
    }
    for text in bad {
        assert!(!follows(&mut fresh.clone(), text), "{text} should be none of {schema}");
    }
}

#[test]
fn objects_have_their_properties_in_order() {
    check(
        &json!({"type": "object", "properties": {"a": {"type": "integer"}, "été": {"type": "string", "maxLength": 3}},
            "required": ["a"], "additionalProperties": false}),
        &["{\"a\": 1}", "{\"a\": -20, \"été\": \"日本語\"}"],
        &["{}", "{\"a\": 1.5}", "{\"a\":1}", "{\"a\": 1, \"b\": 2}", "{\"a\": 1, \"été\": \"1234\"}"],
    );
}

#[test]
fn numbers_keep_their_bounds() {
    check(
        &json!({"type": "integer", "minimum": -3, "exclusiveMaximum": 120, "multipleOf": 5}),
        &["0", "115", "5"],
        &["-5", "120", "7", "1.0", "00"],
    );
    check(
        &json!({"type": "number", "minimum": 0, "maximum": 1}),
        &["0", "0.25", "1"],
        &["-0.1", "1.01", "2"],
    );
}

#[test]
fn dates_are_days_that_exist() {
    check(
        &json!({"type": "string", "format": "date"}),
        &["\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""],
        &["\"2023-02-29\"", "\"1900-02-29\"", "\"0000-01-01\"", "\"2024-13-01\"", "\"2024-04-31\""],
    );
    check(
        &json!({"type": "string", "format": "date-time"}),
        &["\"2024-02-29T23:59:59Z\"", "\"1999-12-31T00:00:00.5+02:00\""],
        &["\"2023-02-29T00:00:00Z\"", "\"1999-12-31\"", "\"1999-12-31T23:59:60Z\""],
    );
    check(
        &json!({"type": "string", "format": "time"}),
        &["\"23:59:59Z\"", "\"00:00:00.25+02:00\""],
        &["\"24:00:00Z\"", "\"23:59:60Z\"", "\"23:59\""],
    );
}

#[test]
fn alternatives_that_exclude_each_other_are_one_of() {
    let circle = json!({"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
        "required": ["kind", "r"], "additionalProperties": false});
    let square = json!({"type": "object", "properties": {"kind": {"const": "square"}, "a": {"type": "number"}},
        "required": ["kind", "a"], "additionalProperties": false});
    check(
        &json!({"oneOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/s"}], "$defs": {"c": circle, "s": square}}),
        &["{\"kind\": \"circle\", \"r\": 1}", "{\"kind\": \"square\", \"a\": 2}"],
        &["{\"kind\": \"circle\", \"a\": 1}", "{\"kind\": \"line\"}"],
    );
}

#[test]
fn references_may_be_recursive() {
    check(
        &json!({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
            "value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["value"], "additionalProperties": false}}}),
        &["{\"value\": 1}", "{\"value\": 1, \"children\": [{\"value\": 2, \"children\": []}]}"],
        &["{\"value\": 1, \"children\": [1]}"],
    );
}

#[test]
fn what_the_engine_refuses_has_a_place() {
    let tested = Tested::new();
    for (schema, complaint) in [
        (
            json!({"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}),
            "JSON Schema, #/properties/a/oneOf: that no instance fits two",
        ),
        (
            json!({"items": {"type": "string", "pattern": "a\\bc"}}),
            "JSON Schema, #/items/pattern: line 1, column 2: word boundaries",
        ),
        (
            json!({"properties": {"a": {"enum": []}}, "required": ["a"], "type": "object"}),
            "JSON Schema, #/properties/a: Unsatisfiable schema",
        ),
        (json!({"items": {"type": "strin"}}), "JSON Schema, #/items/type: Invalid type: strin"),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "object", "properties": {"a": {}}, "minProperties": 2}]}),
            "JSON Schema, #/anyOf/1/minProperties: only one more",
        ),
        (
            json!({"items": {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"], "maxProperties": 1}}),
            "JSON Schema, #/items/maxProperties: properties are only counted",
        ),
        (json!({"type": "integer", "minimum": 2, "maximum": 1}), "JSON Schema, #: "),
    ] {
        let refused = match Constraint::json_schema(&schema) {
            Ok(constraint) => tested.refused(&constraint),
            Err(error) => error.to_string(),
        };
        assert!(refused.starts_with(complaint), "{refused:?} does not begin with {complaint:?}");
    }
}

#[test]
fn an_object_is_any_object() {
    let tested = Tested::new();
    let object = Constraint::json_object();
    assert!(
        tested.accepts(&object, "{\"a\": [1, {\"b\": null}], \"c\": \"\\n\"}")
            && tested.accepts(&object, "{}")
    );
    assert!(!tested.accepts(&object, "[]") && !tested.accepts(&object, "{\"a\": }"));
}

#[test]
fn patterns_mean_what_the_standard_says() {
    let tested = Tested::new();
    for (pattern, text, fits) in [
        ("^a.b$", "a\u{85}b", true),
        ("^a.b$", "a\u{2028}b", false),
        ("^a.b$", "a\\rb", false),
        ("^a\\sb$", "a\u{feff}b", true),
        ("^a\\sb$", "a\\nb", true),
        ("^a\\sb$", "a\u{85}b", false),
        ("^a\\Sb$", "a\u{85}b", true),
        ("^[\\s\\d]+$", "1 2\u{3000}", true),
        ("^\\d$", "\u{663}", false),
        ("^\\w+$", "a_9", true),
        ("^\\w+$", "é", false),
    ] {
        let constraint = Constraint::json_schema(&json!({"type": "string", "pattern": pattern})).unwrap();
        assert_eq!(tested.accepts(&constraint, &format!("\"{text}\"")), fits, "{pattern} and {text:?}");
    }
    let keys = json!({"type": "object", "patternProperties": {"^a.$": {"type": "integer"}, "^a[^\\n\\r\\x{2028}\\x{2029}]$": {}}});
    assert!(Constraint::json_schema(&keys).is_err());
    let keys = json!({"type": "object", "patternProperties": {"^a.$": {"type": "integer"}}, "additionalProperties": false});
    let constraint = Constraint::json_schema(&keys).unwrap();
    assert!(tested.accepts(&constraint, "{\"ab\": 1}") && !tested.accepts(&constraint, "{\"a\u{2029}\": 1}"));
}
