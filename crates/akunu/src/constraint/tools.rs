//! Constraints that hold a model's calls of tools to their form and their schemas.

use std::sync::Arc;

use akunu_text::Tokenizer;
use akunu_text::chat::{Syntax, ToolSyntax};
use serde_json::{Map, Value, json};

use super::lark::{escaped, literal};
use super::thinking::mark;
use super::{Constraint, Grammar, Language, MOST_BYTES, schema};
use crate::Result;

/// Most tools a model is told of.
const MOST_TOOLS: usize = 256;

/// References to references.
const LONGEST_CHAIN: usize = 16;

/// What rules for a tool's arguments look like: this, the tool's number, and before its schema that.
const ARGUMENTS: &str = "arguments_";
const SCHEMA: &str = ": %json ";

/// Whether the model may, or must, call tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// It decides. What it says is free until a call begins.
    Auto,
    /// It calls one at least.
    Required,
    /// It calls this one.
    Named(String),
}

impl Constraint {
    /// Answers of a model that may call tools. `tools` are definitions as OpenAI's interface has them:
    /// `{"type": "function", "function": {"name", "parameters"}}`. Arguments are always instances of the schema
    /// `parameters`.
    pub fn tools(
        syntax: &ToolSyntax,
        tools: &[Value],
        choice: &ToolChoice,
        several: bool,
        tokenizer: &Tokenizer,
    ) -> Result<Constraint> {
        let text = format!(
            "{}\n{}",
            start(syntax, choice, tokenizer),
            calls(syntax, tools, choice, several, tokenizer)?
        );
        Language::Tools.check_size(&text, MOST_BYTES)?;
        Ok(Constraint::new(Language::Tools, text))
    }

    /// The same for answers that, where they call no tool, are held to this constraint. An error where the two could not be
    /// told apart: calls must begin with a token of their own, or as JSON never does and this be a schema.
    pub fn or_calls(
        &self,
        syntax: &ToolSyntax,
        tools: &[Value],
        several: bool,
        tokenizer: &Tokenizer,
    ) -> Result<Constraint> {
        let is_token = first_mark(syntax.open).is_some_and(|first| mark(first, tokenizer).is_some());
        let never_json = syntax.open.starts_with('<') && self.0.language == Language::JsonSchema;
        if !is_token && !never_json {
            let problem = "this model's calls could not be told from an answer of another form";
            return Err(Language::Tools.error("", problem));
        }
        let calls = calls(syntax, tools, &ToolChoice::Auto, several, tokenizer)?;
        let around = format!("start: @answer | {} calls\n{calls}", spelled(syntax.open, tokenizer));
        Language::Tools.check_size(&around, MOST_BYTES)?;
        Ok(Constraint(Arc::new(Grammar { around: Some(around), ..(*self.0).clone() })))
    }
}

/// Rules for calls.
fn calls(
    syntax: &ToolSyntax,
    tools: &[Value],
    choice: &ToolChoice,
    several: bool,
    tokenizer: &Tokenizer,
) -> Result<String> {
    let spelled = |text: &str| spelled(text, tokenizer);
    let mut names = Vec::new();
    let mut rules = String::new();
    for (i, tool) in tools.iter().enumerate() {
        let name = function_name(tool, i)?;
        if matches!(choice, ToolChoice::Named(named) if named != name) {
            continue;
        }
        let place = format!("tools/{i}/function/parameters");
        let schema = schema::prepare_at(&parameters(tool, &place)?, &place)?;
        let before = format!("{}{}{}", syntax.before_name, quoted(name, syntax), syntax.before_arguments);
        let after = spelled(syntax.after_arguments);
        rules += &format!(
            "call_{i}: {} arguments_{i} {after}\n{ARGUMENTS}{i}{SCHEMA}{schema}\n",
            spelled(&before)
        );
        names.push(format!("call_{i}"));
    }
    if names.is_empty() || tools.len() > MOST_TOOLS {
        let problem = match choice {
            ToolChoice::Named(name) if !tools.is_empty() => format!("there is no tool {name:?}"),
            _ if tools.is_empty() => "there are none".to_owned(),
            _ => format!("there are more than {MOST_TOOLS}"),
        };
        return Err(Language::Tools.error("", problem));
    }
    let more = if several && !syntax.next.is_empty() {
        format!("({} call)*", spelled(syntax.next))
    } else {
        String::new()
    };
    rules += &format!("calls: call {more} {}\ncall: {}\n", spelled(syntax.close), names.join(" | "));
    Ok(rules)
}

/// What an answer is, given what calls are.
fn start(syntax: &ToolSyntax, choice: &ToolChoice, tokenizer: &Tokenizer) -> String {
    let open = spelled(syntax.open, tokenizer);
    if *choice != ToolChoice::Auto {
        return format!("start: {open} calls");
    }
    let first = first_mark(syntax.open).unwrap_or(syntax.open);
    match mark(first, tokenizer) {
        // No text is spelled with a mark.
        Some(_) => format!("start: TEXT? | TEXT? {open} calls\nTEXT: /(?s:.+)/"),
        None if syntax.open.is_empty() => {
            // Whatever begins like a call is one.
            let begin = escaped(&syntax.before_name[..1]);
            format!("start: TEXT? | calls\nTEXT: /[^{begin}](?s:.*)/")
        }
        None => {
            let (mark, rest) = (escaped(first), spelled(&syntax.open[first.len()..], tokenizer));
            let never = format!("/(?s:.*){mark}(?s:.*)/");
            format!(
                "start: TEXT? | until {rest} calls\nuntil[lazy]: /(?s:.*){mark}/\nTEXT: /(?s:.+)/ & ~{never}"
            )
        }
    }
}

fn first_mark(text: &str) -> Option<&'static str> {
    Syntax::all_marks().find(|mark| text.starts_with(mark))
}

/// A text with the marks in it as tokens, where they are such.
fn spelled(text: &str, tokenizer: &Tokenizer) -> String {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let marks =
            Syntax::all_marks().filter_map(|name| Some((rest.find(name)?, name, mark(name, tokenizer)?)));
        match marks.min_by_key(|(at, ..)| *at) {
            Some((at, name, token)) => {
                if at > 0 {
                    parts.push(literal(&rest[..at]));
                }
                parts.push(token);
                rest = &rest[at + name.len()..];
            }
            None => {
                parts.push(literal(rest));
                rest = "";
            }
        }
    }
    if parts.is_empty() { "\"\"".to_owned() } else { parts.join(" ") }
}

/// A name as it stands in a call.
fn quoted(name: &str, syntax: &ToolSyntax) -> String {
    if syntax.before_name.ends_with('"') {
        let quoted = Value::from(name).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    } else {
        name.to_owned()
    }
}

fn function_name(tool: &Value, index: usize) -> Result<&str> {
    match tool["function"]["name"].as_str() {
        Some(name) if !name.is_empty() && name.len() <= 256 => Ok(name),
        _ => Err(Language::Tools.error(format!("tools/{index}/function/name"), "must be a name")),
    }
}

/// The schema of a tool's arguments, which are an object.
fn parameters(tool: &Value, place: &str) -> Result<Value> {
    let own = &tool["function"]["parameters"];
    let mut fields = match own {
        Value::Null => Map::new(),
        Value::Object(fields) => fields.clone(),
        _ => return Err(Language::JsonSchema.error(place, "must be the schema of an object")),
    };
    if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
        let mut target = Some(own);
        for _ in 0..LONGEST_CHAIN {
            let next = target.and_then(|target| target.get("$ref")).and_then(Value::as_str);
            target = next.map_or(target, |next| schema::find(own, next));
        }
        // Nothing is said here of one that leads nowhere.
        if target.is_some_and(|target| target["type"] != "object") {
            let problem = format!("arguments are an object, and what is at {reference} has another type");
            return Err(Language::JsonSchema.error(format!("{place}/$ref"), problem));
        }
        return Ok(own.clone());
    }
    let is_object = match fields.get("type") {
        None => true,
        Some(Value::Array(types)) => types.contains(&json!("object")),
        Some(kind) => kind == "object",
    };
    if !is_object {
        let problem = "arguments are an object: the type must be \"object\"";
        return Err(Language::JsonSchema.error(format!("{place}/type"), problem));
    }
    fields.insert("type".to_owned(), json!("object"));
    Ok(Value::Object(fields))
}

/// The schemas of arguments in a grammar for calls, and where they stood.
pub(super) fn schemas(grammar: &str) -> impl Iterator<Item = (String, Value)> {
    grammar.lines().filter_map(|line| {
        let (number, schema) = line.strip_prefix(ARGUMENTS)?.split_once(SCHEMA)?;
        Some((format!("tools/{number}/function/parameters"), serde_json::from_str(schema).ok()?))
    })
}
