//! Arguments of a call, and how they find their parameters.

use super::ast::Name;
use super::error::{Result, fail};
use super::text::Text;
use super::value::Value;

#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) positional: Vec<Value>,
    pub(super) keyword: Vec<(Name, Value)>,
}

impl Args {
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// Puts every argument in the place of its parameter; fails on one that has none.
    pub(super) fn bind<const N: usize>(self, callee: &str, params: [&str; N]) -> Result<[Option<Value>; N]> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            let given = self.positional.len();
            return fail(format!("{callee} takes at most {N} arguments and {given} were given"));
        }
        for (place, value) in bound.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.keyword {
            match params.iter().position(|param| *param == &*name) {
                None => return fail(format!("{callee} has no parameter `{name}`")),
                Some(at) if bound[at].is_some() => {
                    return fail(format!("{callee} was given `{name}` twice"));
                }
                Some(at) => bound[at] = Some(value),
            }
        }
        Ok(bound)
    }
}

/// An argument that must be there.
pub(super) fn required(value: Option<Value>, callee: &str, name: &str) -> Result<Value> {
    value.map_or_else(|| fail(format!("{callee} needs the argument `{name}`")), Ok)
}

/// A text argument that must be there.
pub(super) fn text(value: Option<Value>, callee: &str, name: &str) -> Result<Text> {
    match required(value, callee, name)? {
        Value::Str(text) => Ok(text),
        other => fail(format!("{callee}: `{name}` must be a str, not {}", other.type_name())),
    }
}

/// A whole number, if given and not none.
pub(super) fn int(value: Option<Value>, callee: &str, name: &str) -> Result<Option<i128>> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(Value::Int(int, _)) => Ok(Some(int)),
        Some(Value::Bool(value)) => Ok(Some(i128::from(value))),
        Some(other) => fail(format!("{callee}: `{name}` must be an int, not {}", other.type_name())),
    }
}

/// Whether a flag is set; `default` if it is not given.
pub(super) fn flag(value: Option<Value>, default: bool) -> bool {
    value.map_or(default, |value| value.truth())
}
