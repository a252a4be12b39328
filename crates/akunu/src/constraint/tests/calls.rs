//! Calls of tools.

use akunu_text::chat::ToolSyntax;
use serde_json::{Value, json};

use super::Tested;
use crate::constraint::{Constraint, ToolChoice};

fn tools() -> Vec<Value> {
    let sum = json!({"type": "object", "properties": {"of": {"type": "array", "items": {"type": "integer"}}},
        "required": ["of"], "additionalProperties": false});
    vec![
        json!({"type": "function", "function": {"name": "sum", "parameters": sum}}),
        json!({"type": "function", "function": {"name": "now"}}),
    ]
}

fn constraint(tested: &Tested, template: &str, choice: &ToolChoice) -> Constraint {
    let syntax = ToolSyntax::of_template(template).unwrap();
    Constraint::tools(syntax, &tools(), choice, true, &tested.tokenizer).unwrap()
}

/// Whether a text fits, with marks in it as their tokens.
fn accepts(tested: &Tested, constraint: &Constraint, text: &str) -> bool {
    let mut matcher = tested.matcher(constraint);
    let tokens = tested.tokenizer.encode(
        text,
        akunu_text::tokenizer::Special::Parse,
        akunu_text::tokenizer::AddSpecial::No,
    );
    for token in tokens {
        if matcher.is_finished() || !matcher.allows(token).unwrap() {
            return false;
        }
        matcher.commit(token).unwrap();
    }
    matcher.may_end().unwrap()
}

const HERMES: &str = "tools <tool_call>\n";
const CALL: &str = "<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"of\": [1, 2]}}\n</tool_call>";

#[test]
fn a_required_call_is_all_there_is() {
    let tested = Tested::new();
    let required = constraint(&tested, HERMES, &ToolChoice::Required);
    let other = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    for good in [CALL.to_owned(), other.to_owned(), format!("{CALL}\n{other}")] {
        assert!(accepts(&tested, &required, &good), "{good}");
    }
    for bad in
        ["", "hello", "<tool_call>\n{\"name\": \"minus\"", &CALL.replace("[1, 2]", "[1.5]"), &CALL[..40]]
    {
        assert!(!accepts(&tested, &required, bad), "{bad}");
    }
    let named = constraint(&tested, HERMES, &ToolChoice::Named("now".to_owned()));
    assert!(accepts(&tested, &named, other) && !accepts(&tested, &named, CALL));
    let syntax = ToolSyntax::of_template(HERMES).unwrap();
    let nobody = ToolChoice::Named("nobody".to_owned());
    let refused = Constraint::tools(syntax, &tools(), &nobody, true, &tested.tokenizer).unwrap_err();
    assert_eq!(refused.to_string(), "tools: there is no tool \"nobody\"");
}

#[test]
fn text_is_free_until_a_call_begins() {
    let tested = Tested::new();
    let auto = constraint(&tested, HERMES, &ToolChoice::Auto);
    for good in ["", "Hello { \" \n日本", CALL, &format!("I look.\n{CALL}")] {
        assert!(accepts(&tested, &auto, good), "{good}");
    }
    for bad in ["<tool_call>", "a<tool_call>b", &CALL.replace("sum", "minus")] {
        assert!(!accepts(&tested, &auto, bad), "{bad}");
    }
}

#[test]
fn marks_that_are_no_tokens_begin_calls_too() {
    let tested = Tested::new();
    let auto = constraint(&tested, "tools [TOOL_CALLS]", &ToolChoice::Auto);
    let call = "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]";
    for good in ["Hello [TOOL", call, &format!("Well: {call}")] {
        assert!(accepts(&tested, &auto, good), "{good}");
    }
    for bad in ["[TOOL_CALLS]", "a [TOOL_CALLS][{\"name\": \"x", &call.replace('}', "")] {
        assert!(!accepts(&tested, &auto, bad), "{bad}");
    }
    let args = constraint(&tested, "tools [TOOL_CALLS] [ARGS]", &ToolChoice::Required);
    assert!(accepts(&tested, &args, "[TOOL_CALLS]sum[ARGS]{\"of\": []}[TOOL_CALLS]now[ARGS]{}"));
}

#[test]
fn plain_json_is_a_call_from_its_first_brace_on() {
    let tested = Tested::new();
    let llama = "tools {\"name\": function name, \"parameters\": dictionary}";
    for (template, arguments) in [("", "arguments"), (llama, "parameters")] {
        let auto = constraint(&tested, template, &ToolChoice::Auto);
        let call = format!("{{\"name\": \"sum\", \"{arguments}\": {{\"of\": [7]}}}}");
        assert!(accepts(&tested, &auto, &call) && accepts(&tested, &auto, "Seven {\"name\": 1}."));
        assert!(
            !accepts(&tested, &auto, "{\"answer\": 7}") && !accepts(&tested, &auto, &format!("{call} more"))
        );
    }
}

#[test]
fn schemas_of_tools_are_checked_where_they_stand() {
    let tested = Tested::new();
    let syntax = ToolSyntax::of_template("").unwrap();
    let bad = [json!({"function": {"name": "f", "parameters": {"properties": {"a": {"not": {}}}}}})];
    let refused = Constraint::tools(syntax, &bad, &ToolChoice::Auto, true, &tested.tokenizer).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "JSON Schema, tools/0/function/parameters/properties/a/not: the keyword is not supported"
    );
    let by_compiling = [
        json!({"function": {"name": "f"}}),
        json!({"function": {"name": "g", "parameters": {"properties": {"a": {"type": "nothing"}}}}}),
    ];
    let calls = Constraint::tools(syntax, &by_compiling, &ToolChoice::Auto, true, &tested.tokenizer).unwrap();
    assert_eq!(
        tested.refused(&calls),
        "JSON Schema, tools/1/function/parameters/properties/a/type: Invalid type: nothing"
    );
    let nameless = [json!({"function": {}})];
    assert!(Constraint::tools(syntax, &nameless, &ToolChoice::Auto, true, &tested.tokenizer).is_err());
}

#[test]
fn arguments_are_objects_or_the_tool_is_refused() {
    let tested = Tested::new();
    let syntax = ToolSyntax::of_template("").unwrap();
    let with = |parameters: Value| {
        let tool = json!({"function": {"name": "f", "parameters": parameters}});
        Constraint::tools(syntax, &[tool], &ToolChoice::Required, true, &tested.tokenizer)
    };
    for (parameters, place) in [
        (json!({"type": "string"}), "/type"),
        (json!({"type": ["string", "null"]}), "/type"),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "array"}}}),
            "/$ref",
        ),
        (json!(true), ""),
        (json!([]), ""),
        (json!("object"), ""),
    ] {
        let refused = with(parameters.clone()).unwrap_err().to_string();
        let place = format!("JSON Schema, tools/0/function/parameters{place}: ");
        assert!(refused.starts_with(&place), "{refused} for {parameters}");
    }
    for parameters in [
        json!(null),
        json!({}),
        json!({"type": ["null", "object"]}),
        json!({"anyOf": [{"type": "string"}, {"type": "object"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}),
    ] {
        let calls = with(parameters.clone()).unwrap();
        assert!(accepts(&tested, &calls, "{\"name\": \"f\", \"arguments\": {}}"), "{parameters}");
        for other in ["null", "\"x\"", "[]"] {
            let call = format!("{{\"name\": \"f\", \"arguments\": {other}}}");
            assert!(!accepts(&tested, &calls, &call), "{call} for {parameters}");
        }
    }
}

#[test]
fn an_answer_without_calls_may_have_a_form_too() {
    let tested = Tested::new();
    let syntax = ToolSyntax::of_template(HERMES).unwrap();
    let answer = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
        "additionalProperties": false});
    let answer = Constraint::json_schema(&answer).unwrap();
    let either = answer.or_calls(syntax, &tools(), true, &tested.tokenizer).unwrap();
    for good in ["{\"ok\": true}", CALL, &format!("{CALL}\n{CALL}")] {
        assert!(accepts(&tested, &either, good), "{good}");
    }
    for bad in
        ["", "Hello", "{\"ok\": 1}", &format!("{{\"ok\": true}}{CALL}"), &CALL.replace("[1, 2]", "[1.5]")]
    {
        assert!(!accepts(&tested, &either, bad), "{bad}");
    }
    // Thoughts come before either.
    let marks = akunu_text::chat::Syntax::of_template("</think>").unwrap().reasoning;
    let after = either.after_thinking(&marks, &[], &tested.tokenizer, None);
    for good in
        ["<think>so {</think>\n\n{\"ok\": false}", &format!("<think>so</think>\n{CALL}"), "{\"ok\": true}"]
    {
        assert!(accepts(&tested, &after, good), "{good}");
    }
    assert!(!accepts(&tested, &after, "<think>so</think>Hello"));
    // Calls that begin as answers might are refused.
    let problem = answer.or_calls(ToolSyntax::GENERIC, &tools(), true, &tested.tokenizer).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "tools: this model's calls could not be told from an answer of another form"
    );
}

#[test]
fn a_schema_that_is_refused_has_its_place_among_tools_and_answers() {
    let tested = Tested::new();
    let syntax = ToolSyntax::of_template(HERMES).unwrap();
    let answer = Constraint::json_schema(&json!({"type": "object"})).unwrap();
    let overlap =
        json!({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"minLength": 1}]}}});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": overlap}});
    let either = answer.or_calls(syntax, &[tool], true, &tested.tokenizer).unwrap();
    let refused = tested.refused(&either);
    assert!(
        refused.starts_with("JSON Schema, tools/0/function/parameters/properties/a/oneOf: "),
        "{refused}"
    );
}
