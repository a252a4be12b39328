//! Jinja as Hugging Face runs it, with two things added: every character knows who wrote it ([`text`]), and a
//! rendering ends within limits whatever the template does ([`budget`]).
//!
//! `minijinja` reads the template; the walk over it is our own, because both additions concern every single
//! value and operator. `docs/decisions/chat-templates.md` has the reasons.
//!
//! [`parse`] makes the tree of [`ast`]; [`eval`] walks statements and [`expr`] expressions; [`ops`],
//! [`methods`], [`strings`], [`filters`] and [`checks`] are Python's and Jinja's vocabulary; [`json`],
//! [`mod@format`] and [`repr`] write values as text.

mod args;
mod ast;
mod budget;
mod checks;
mod error;
mod eval;
mod expr;
mod filters;
mod format;
mod json;
mod methods;
mod ops;
mod parse;
mod repr;
mod sort;
mod strings;
#[cfg(test)]
mod tests;
mod text;
mod value;

pub use budget::Limits;
pub use error::{ErrorKind, TemplateError};
pub(super) use text::{Origin, Text};

use std::rc::Rc;

use serde_json::Value as Json;

use super::clock::DateTime;
use value::{Dict, Value};

/// A template that was read and can be rendered many times.
#[derive(Debug)]
pub(super) struct Template {
    body: ast::Block,
    /// The template's string constants, sorted.
    constants: Vec<ast::Name>,
}

/// What a template sees under one name.
#[derive(Clone, Debug)]
pub(super) enum Input<'a> {
    /// From outside: every character of it is content.
    Content(&'a Json),
    /// From the engine: special tokens.
    Trusted(&'a str),
    Flag(bool),
    /// The conversation: content except for role names the template knows.
    Messages(&'a [Json]),
}

impl Template {
    pub(super) fn parse(source: &str) -> Result<Self, TemplateError> {
        let body = parse::parse(source).map_err(|error| *error)?;
        let mut constants = parse::string_constants(source);
        constants.sort();
        constants.dedup();
        Ok(Self { body, constants })
    }

    pub(super) fn render(
        &self,
        inputs: &[(&str, Input<'_>)],
        now: DateTime,
        limits: Limits,
    ) -> Result<Text, TemplateError> {
        self.render_boxed(inputs, now, limits).map_err(|error| *error)
    }

    fn render_boxed(
        &self,
        inputs: &[(&str, Input<'_>)],
        now: DateTime,
        limits: Limits,
    ) -> error::Result<Text> {
        let mut renderer = eval::Renderer::new(limits, now);
        for (name, input) in inputs {
            let value = match input {
                Input::Content(json) => Value::from_json(json, &renderer.budget)?,
                Input::Trusted(text) => Value::template(text),
                Input::Flag(flag) => Value::Bool(*flag),
                Input::Messages(messages) => {
                    let messages = messages.iter().map(|message| self.message(message, &renderer.budget));
                    Value::list(messages.collect::<error::Result<_>>()?, &renderer.budget)?
                }
            };
            renderer.set(&(*name).into(), value)?;
        }
        renderer.render(&self.body)
    }

    /// A message: all content, but for a role the template knows, which may be part of a special token.
    fn message(&self, message: &Json, budget: &Rc<budget::Budget>) -> error::Result<Value> {
        let Json::Object(fields) = message else { return Value::from_json(message, budget) };
        let mut dict = Dict::default();
        for (key, field) in fields {
            let value = match field {
                Json::String(role) if key == "role" && self.knows_role(role) => Value::template(role),
                other => Value::from_json(other, budget)?,
            };
            dict.insert(Value::Str(Text::new(key.as_str(), Origin::Content)), value, budget)?;
        }
        Ok(Value::Dict(Rc::new(dict)))
    }

    /// Roles of the chat interface, and words that the template's author wrote down as a whole. Anything else
    /// in the place of a role is content: `<|` + role + `|>` must not become a token of the sender's choice.
    fn knows_role(&self, role: &str) -> bool {
        let is_word = !role.is_empty() && role.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
        is_word && (ROLES.contains(&role) || self.constants.binary_search_by(|own| (**own).cmp(role)).is_ok())
    }
}
