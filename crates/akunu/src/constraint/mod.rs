//! What a text must be like: valid JSON, an instance of a schema, a match of a regular expression, a sentence of a grammar.
//!
//! A [`Constraint`] is made once, from text or a schema, and checked as far as that goes without a vocabulary. A model
//! compiles it against its vocabulary when it first meets it ([`Model::matcher`](crate::Model::matcher), which
//! [`Settings::constraint`](crate::Settings::constraint) uses) and keeps the result. A [`Matcher`] then walks along with one
//! text and says, token by token, what may come next. The engine behind it is `llguidance`.
//!
//! ```
//! use akunu::Constraint;
//!
//! let schema = serde_json::json!({"type": "object", "properties": {"age": {"type": "integer"}}});
//! let constraint = Constraint::json_schema(&schema)?;
//!
//! // What cannot be guaranteed is refused, by name and place.
//! let schema = serde_json::json!({"properties": {"tags": {"uniqueItems": true}}});
//! let error = Constraint::json_schema(&schema).unwrap_err();
//! assert_eq!(error.to_string(), "JSON Schema, #/properties/tags/uniqueItems: the keyword is not supported");
//! # Ok::<(), akunu::Error>(())
//! ```

mod compile;
mod ecma;
mod gbnf;
mod lark;
mod matcher;
mod pattern;
mod recursion;
mod schema;
mod thinking;
mod tools;
mod vocabulary;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{Error, Result};

pub(crate) use compile::Compiler;
pub use matcher::Matcher;
pub use tools::ToolChoice;

/// Most bytes of a schema or grammar.
const MOST_BYTES: usize = 1 << 20;
/// Most bytes of a schema as people write it, with white space and remarks.
const MOST_JSON_BYTES: usize = 4 << 20;
/// Most bytes of a regular expression.
const MOST_REGEX_BYTES: usize = 1 << 16;

/// Bytes of one that is compiled soon.
const SHORT: usize = 16 << 10;

/// What a text must be like. Clones share everything; equal ones are compiled once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constraint(Arc<Grammar>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Grammar {
    language: Language,
    /// JSON for a schema, a regular expression as it was given, Lark for everything else.
    text: String,
    /// A grammar in Lark that uses this one as `@answer`, and is what the text must be like.
    around: Option<String>,
}

/// What a constraint was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Language {
    JsonSchema,
    Regex,
    Gbnf,
    Lark,
    Choice,
    Tools,
}

impl Language {
    fn name(self) -> &'static str {
        match self {
            Language::JsonSchema => "JSON Schema",
            Language::Regex => "regular expression",
            Language::Gbnf => "GBNF grammar",
            Language::Lark => "Lark grammar",
            Language::Choice => "choices",
            Language::Tools => "tools",
        }
    }

    /// A problem with something written in it.
    fn error(self, place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Constraint { language: self.name(), place: place.into(), problem: problem.into() }
    }

    fn check_size(self, text: &str, most: usize) -> Result<()> {
        if text.len() > most {
            let problem = format!("{} bytes are more than the {most} that are allowed", text.len());
            return Err(self.error("", problem));
        }
        Ok(())
    }
}

impl Constraint {
    fn new(language: Language, text: String) -> Constraint {
        Constraint(Arc::new(Grammar { language, text, around: None }))
    }

    /// Bytes of it.
    fn len(&self) -> usize {
        self.0.text.len() + self.0.around.as_ref().map_or(0, String::len)
    }

    /// Whether it is compiled soon. Those do not wait for others that are not.
    pub fn is_short(&self) -> bool {
        self.len() <= SHORT
    }

    /// Any text: for answers of which only the thoughts before them are bounded.
    pub fn any() -> Constraint {
        Constraint::new(Language::Lark, "start: /(?s:.*)/".to_owned())
    }

    /// Any JSON object.
    pub fn json_object() -> Constraint {
        Constraint::new(Language::JsonSchema, schema::framed(json!({"type": "object"})).to_string())
    }

    /// Instances of a JSON Schema (2020-12 and older drafts), with one space after each comma and colon and no other white
    /// space. Keywords that cannot be guaranteed are refused by name; those that no draft knows mean nothing, as the
    /// standard has it. Properties come in the order the schema names them.
    pub fn json_schema(schema: &Value) -> Result<Constraint> {
        let text = schema::prepare(schema)?.to_string();
        Language::JsonSchema.check_size(&text, MOST_BYTES)?;
        Ok(Constraint::new(Language::JsonSchema, text))
    }

    /// The same for a schema that is written as JSON.
    pub fn json_schema_text(schema: &str) -> Result<Constraint> {
        Language::JsonSchema.check_size(schema, MOST_JSON_BYTES)?;
        let schema = serde_json::from_str(schema).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            let problem = error.to_string();
            let problem = problem.split(" at line ").next().unwrap_or_default();
            Language::JsonSchema.error(place, format!("it is no JSON: {problem}"))
        })?;
        Constraint::json_schema(&schema)
    }

    /// Texts that a regular expression matches from beginning to end. The syntax is that of the `regex` crate, without
    /// anchors and word boundaries within.
    pub fn regex(pattern: &str) -> Result<Constraint> {
        if let Some((place, problem)) = pattern::mistake(pattern) {
            return Err(Language::Regex.error(place, problem));
        }
        if pattern.is_empty() {
            return Err(Language::Regex.error("", "it is empty, and would match nothing but the empty text"));
        }
        Ok(Constraint::new(Language::Regex, pattern.to_owned()))
    }

    /// Sentences of a grammar in llama.cpp's notation, from its rule `root`. Left recursion is fine.
    pub fn gbnf(grammar: &str) -> Result<Constraint> {
        Language::Gbnf.check_size(grammar, MOST_BYTES)?;
        Ok(Constraint::new(Language::Gbnf, gbnf::to_lark(grammar)?))
    }

    /// Sentences of a grammar in llguidance's variant of Lark's notation, from its rule `start`. Schemas in it (`%json`) are
    /// held to the same rules as those of [`Constraint::json_schema`].
    pub fn lark(grammar: &str) -> Result<Constraint> {
        Language::Lark.check_size(grammar, MOST_BYTES)?;
        lark::check_nesting(grammar)?;
        let text = lark::with_checked_schemas(grammar)?;
        Language::Lark.check_size(&text, MOST_BYTES)?;
        Ok(Constraint::new(Language::Lark, text))
    }

    /// A grammar in either notation: the first rule of one in GBNF has `::=`.
    pub fn grammar(grammar: &str) -> Result<Constraint> {
        if lark::begins_as_gbnf(grammar) { Constraint::gbnf(grammar) } else { Constraint::lark(grammar) }
    }

    /// One of these texts.
    pub fn choice<S: AsRef<str>>(texts: &[S]) -> Result<Constraint> {
        if texts.is_empty() || texts.iter().all(|text| text.as_ref().is_empty()) {
            return Err(Language::Choice.error("", "there is nothing to choose from"));
        }
        // One word for the parser, however many there are; a word is never empty.
        let words = texts.iter().map(AsRef::as_ref).filter(|text| !text.is_empty());
        let words: Vec<String> = words.map(lark::literal).collect();
        let or_nothing = if words.len() < texts.len() { "?" } else { "" };
        let text = format!("start: WORD{or_nothing}\nWORD: {}", words.join(" | "));
        Language::Choice.check_size(&text, MOST_BYTES)?;
        Ok(Constraint::new(Language::Choice, text))
    }
}

#[cfg(test)]
mod tests;
