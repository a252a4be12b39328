//! Jinja's tests: what may stand after `is`.

use std::rc::Rc;

use super::args::{Args, required};
use super::ast::CompareOp;
use super::budget::Budget;
use super::error::{Result, fail};
use super::filters;
use super::ops::{compare, contains};
use super::repr::to_text;
use super::strings::classify;
use super::value::Value;

#[rustfmt::skip]
const TESTS: &[&str] = &[
    "!=", "<", "<=", "==", ">", ">=", "boolean", "callable", "defined", "divisibleby", "eq", "equalto",
    "escaped", "even", "false", "filter", "float", "ge", "greaterthan", "gt", "in", "integer", "iterable", "le",
    "lessthan", "lower", "lt", "mapping", "ne", "none", "number", "odd", "sameas", "sequence", "string", "test",
    "true", "undefined", "upper",
];

pub(super) fn is_known(name: &str) -> bool {
    TESTS.contains(&name)
}

/// `value is name(args)`
pub(super) fn check(name: &str, own: &Value, args: Args, budget: &Rc<Budget>) -> Result<bool> {
    let comparison = match name {
        "eq" | "equalto" | "==" => Some(CompareOp::Eq),
        "ne" | "!=" => Some(CompareOp::Ne),
        "lt" | "lessthan" | "<" => Some(CompareOp::Lt),
        "le" | "<=" => Some(CompareOp::Le),
        "gt" | "greaterthan" | ">" => Some(CompareOp::Gt),
        "ge" | ">=" => Some(CompareOp::Ge),
        _ => None,
    };
    if let Some(op) = comparison {
        let [other] = args.bind(name, ["other"])?;
        return compare(op, own, &required(other, name, "other")?, budget);
    }
    match name {
        "in" => {
            let [container] = args.bind(name, ["seq"])?;
            return contains(&required(container, name, "seq")?, own, budget);
        }
        "sameas" => {
            let [other] = args.bind(name, ["other"])?;
            return is_same(own, &required(other, name, "other")?, budget);
        }
        "divisibleby" => {
            let [divisor] = args.bind(name, ["num"])?;
            let divisor = required(divisor, name, "num")?;
            let rest = super::ops::binary(super::ast::BinaryOp::Rem, own, &divisor, budget)?;
            return Ok(!rest.truth());
        }
        _ => {
            args.bind::<0>(name, [])?;
        }
    }
    Ok(match name {
        "defined" => !own.is_undefined(),
        "undefined" => own.is_undefined(),
        "none" => matches!(own, Value::None),
        "boolean" => matches!(own, Value::Bool(_)),
        "true" => matches!(own, Value::Bool(true)),
        "false" => matches!(own, Value::Bool(false)),
        "integer" => matches!(own, Value::Int(..)),
        "float" => matches!(own, Value::Float(..)),
        "number" => matches!(own, Value::Int(..) | Value::Float(..) | Value::Bool(_)),
        "string" => matches!(own, Value::Str(_)),
        "escaped" => matches!(own, Value::Str(text) if text.markup),
        "mapping" => matches!(own, Value::Dict(_)),
        "iterable" => is_iterable(own),
        "sequence" => matches!(
            own,
            Value::Str(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Dict(_)
                | Value::Range(_)
                | Value::Undefined(_)
        ),
        "callable" => {
            matches!(own, Value::Function(_) | Value::Macro(_) | Value::Method(_) | Value::Joiner(_))
        }
        "lower" => classify(to_text(own, budget)?.as_str(), "islower").unwrap_or(false),
        "upper" => classify(to_text(own, budget)?.as_str(), "isupper").unwrap_or(false),
        "even" | "odd" => {
            let two = Value::int(2);
            let rest = super::ops::binary(super::ast::BinaryOp::Rem, own, &two, budget)?;
            rest.equals(&Value::int(i128::from(name == "odd")), budget)?
        }
        "filter" => own.as_str().is_some_and(filters::is_known),
        "test" => own.as_str().is_some_and(is_known),
        _ => return fail(format!("there is no test `{name}`")),
    })
}

fn is_iterable(own: &Value) -> bool {
    matches!(
        own,
        Value::Undefined(_)
            | Value::Str(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Dict(_)
            | Value::View(..)
            | Value::Range(_)
            | Value::Iterator(_)
            | Value::Loop(_)
    )
}

/// Python's `is`, as far as it does not depend on how CPython shares values.
fn is_same(a: &Value, b: &Value, budget: &Rc<Budget>) -> Result<bool> {
    Ok(match (a, b) {
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => Rc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        _ => a.type_name() == b.type_name() && a.equals(b, budget)?,
    })
}
