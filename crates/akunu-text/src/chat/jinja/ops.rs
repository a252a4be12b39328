//! Operators and item access, with Python's rules.

use std::cmp::Ordering;
use std::rc::Rc;

use super::ast::{BinaryOp, CompareOp, Name};
use super::budget::Budget;
use super::error::{Result, fail};
use super::format::format_percent;
use super::repr::to_text;
use super::strings::{byte_at, escape_html};
use super::text::{Origin, Text, TextBuilder};
use super::value::{Value, undefined_message};
use super::{methods, strings};

/// `left op right`
pub(super) fn binary(op: BinaryOp, left: &Value, right: &Value, budget: &Rc<Budget>) -> Result<Value> {
    if op == BinaryOp::Concat {
        let mut out = TextBuilder::new(budget);
        out.push(&to_text(left, budget)?)?;
        out.push(&to_text(right, budget)?)?;
        return Ok(Value::Str(out.finish()));
    }
    if let Value::Undefined(name) = left {
        return fail(undefined_message(name));
    }
    match (op, left, right) {
        // Formatting shows a missing value as nothing; all else refuses it.
        (BinaryOp::Rem, Value::Str(text), _) => format_percent(text, right, budget).map(Value::Str),
        (_, _, Value::Undefined(name)) => fail(undefined_message(name)),
        (BinaryOp::Add, Value::Str(a), Value::Str(b)) => add_texts(a, b, budget).map(Value::Str),
        (BinaryOp::Add, Value::List(a), Value::List(b)) => {
            budget.steps(a.items.len() + b.items.len())?;
            Value::list([&a.items[..], &b.items[..]].concat(), budget)
        }
        (BinaryOp::Add, Value::Tuple(a), Value::Tuple(b)) => {
            budget.steps(a.items.len() + b.items.len())?;
            Value::tuple([&a.items[..], &b.items[..]].concat(), budget)
        }
        (BinaryOp::Mul, Value::Str(text), count) | (BinaryOp::Mul, count, Value::Str(text))
            if whole(count).is_some() =>
        {
            repeat_text(text, whole(count).unwrap_or(0), budget)
        }
        (BinaryOp::Mul, Value::List(list), count) | (BinaryOp::Mul, count, Value::List(list))
            if whole(count).is_some() =>
        {
            let count = usize::try_from(whole(count).unwrap_or(0).max(0)).unwrap_or(usize::MAX);
            let length = list.items.len().saturating_mul(count);
            budget.steps(length)?;
            budget.make(length.saturating_mul(size_of::<Value>()))?;
            let items = std::iter::repeat_n(&list.items, count).flatten().cloned();
            Value::list(items.collect(), budget)
        }
        _ => arithmetic(op, left, right),
    }
}

fn add_texts(a: &Text, b: &Text, budget: &Rc<Budget>) -> Result<Text> {
    let mut out = TextBuilder::new(budget);
    // Text marked as safe HTML escapes what it is joined with.
    if a.markup || b.markup {
        out.push(&escape_html(a, budget)?)?;
        out.push(&escape_html(b, budget)?)?;
        return Ok(out.finish().as_markup(true));
    }
    out.push(a)?;
    out.push(b)?;
    Ok(out.finish())
}

fn repeat_text(text: &Text, count: i128, budget: &Rc<Budget>) -> Result<Value> {
    let mut out = TextBuilder::new(budget);
    if !text.is_empty() {
        for _ in 0..count.max(0) {
            budget.step()?;
            out.push(text)?;
        }
    }
    Ok(Value::Str(out.finish().as_markup(text.markup)))
}

/// The value as an integer, as far as Python takes it for one.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Int(int, _) => Some(*int),
        Value::Bool(value) => Some(i128::from(*value)),
        _ => None,
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(float, _) => Some(*float),
        other => whole(other).map(|int| int as f64),
    }
}

fn origin(value: &Value) -> Origin {
    match value {
        Value::Int(_, origin) | Value::Float(_, origin) => *origin,
        _ => Origin::Template,
    }
}

fn arithmetic(op: BinaryOp, left: &Value, right: &Value) -> Result<Value> {
    let origin = origin(left).and(origin(right));
    let sign = match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::FloorDiv => "//",
        BinaryOp::Rem => "%",
        BinaryOp::Pow => "**",
        BinaryOp::Concat => "~",
    };
    let (Some(x), Some(y)) = (float(left), float(right)) else {
        let (left, right) = (left.type_name(), right.type_name());
        return fail(format!("unsupported operand types for {sign}: '{left}' and '{right}'"));
    };
    if y == 0.0 && matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Rem) {
        return fail("division by zero");
    }
    if let (Some(a), Some(b)) = (whole(left), whole(right)) {
        let exact = match op {
            BinaryOp::Add => a.checked_add(b),
            BinaryOp::Sub => a.checked_sub(b),
            BinaryOp::Mul => a.checked_mul(b),
            BinaryOp::FloorDiv => floor_div(a, b),
            BinaryOp::Rem => floor_div(a, b).and_then(|quotient| a.checked_sub(quotient.checked_mul(b)?)),
            BinaryOp::Pow if b >= 0 => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            _ => return Ok(Value::Float(if op == BinaryOp::Pow { x.powf(y) } else { x / y }, origin)),
        };
        return match exact {
            Some(int) => Ok(Value::Int(int, origin)),
            None => fail(format!("the result of {sign} is too large")),
        };
    }
    let result = match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::FloorDiv => (x / y).floor(),
        BinaryOp::Rem => x - y * (x / y).floor(),
        _ => x.powf(y),
    };
    Ok(Value::Float(result, origin))
}

/// Integer division that rounds down; `b` is not zero.
fn floor_div(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    if a % b != 0 && (a < 0) != (b < 0) { quotient.checked_sub(1) } else { Some(quotient) }
}

/// `-value`
pub(super) fn negate(value: &Value) -> Result<Value> {
    match value {
        Value::Int(int, origin) => match int.checked_neg() {
            Some(int) => Ok(Value::Int(int, *origin)),
            None => fail("the number is too large"),
        },
        Value::Bool(value) => Ok(Value::int(-i128::from(*value))),
        Value::Float(float, origin) => Ok(Value::Float(-float, *origin)),
        Value::Undefined(name) => fail(undefined_message(name)),
        other => fail(format!("bad operand type for unary -: '{}'", other.type_name())),
    }
}

/// `left op right`, for one pair of a comparison.
pub(super) fn compare(op: CompareOp, left: &Value, right: &Value, budget: &Rc<Budget>) -> Result<bool> {
    Ok(match op {
        CompareOp::Eq => left.equals(right, budget)?,
        CompareOp::Ne => !left.equals(right, budget)?,
        CompareOp::Lt => left.order(right, budget)? == Some(Ordering::Less),
        CompareOp::Le => matches!(left.order(right, budget)?, Some(Ordering::Less | Ordering::Equal)),
        CompareOp::Gt => left.order(right, budget)? == Some(Ordering::Greater),
        CompareOp::Ge => matches!(left.order(right, budget)?, Some(Ordering::Greater | Ordering::Equal)),
        CompareOp::In => contains(right, left, budget)?,
        CompareOp::NotIn => !contains(right, left, budget)?,
    })
}

/// `item in container`
pub(super) fn contains(container: &Value, item: &Value, budget: &Rc<Budget>) -> Result<bool> {
    match container {
        Value::Str(text) => match item {
            Value::Str(part) => {
                budget.scan(text.len())?;
                Ok(text.as_str().contains(part.as_str()))
            }
            other => {
                fail(format!("'in <string>' requires string as left operand, not {}", other.type_name()))
            }
        },
        Value::Dict(dict) => Ok(dict.get(item, budget)?.is_some()),
        Value::Iterator(lazy) => {
            // Walks the iterator up to the item, like Python.
            loop {
                let Some(next) = lazy.items.borrow_mut().next() else { return Ok(false) };
                if next.equals(item, budget)? {
                    return Ok(true);
                }
            }
        }
        Value::Undefined(_) => Ok(false),
        Value::List(list) | Value::Tuple(list) | Value::View(_, list) => {
            for own in &list.items {
                if own.equals(item, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Range(_) => {
            for own in container.items(budget)? {
                if own.equals(item, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        other => fail(format!("argument of type '{}' is not iterable", other.type_name())),
    }
}

/// `value.name`: a method first, then an item, as Jinja does it.
pub(super) fn attribute(value: &Value, name: &Name, budget: &Budget) -> Result<Value> {
    if let Value::Undefined(missing) = value {
        return fail(undefined_message(missing));
    }
    if let Some(found) = methods::attribute(value, name)? {
        return Ok(found);
    }
    budget.step()?;
    match value {
        Value::Dict(dict) => {
            Ok(dict.get_str(name).cloned().unwrap_or_else(|| Value::Undefined(Name::clone(name))))
        }
        _ => Ok(Value::Undefined(Name::clone(name))),
    }
}

/// `value[key]`: an item first, then an attribute.
pub(super) fn item(value: &Value, key: &Value, budget: &Rc<Budget>) -> Result<Value> {
    if let Value::Undefined(missing) = value {
        return fail(undefined_message(missing));
    }
    let found = match value {
        Value::Dict(dict) => dict.get(key, budget)?.cloned(),
        Value::List(list) | Value::Tuple(list) => {
            place(key, list.items.len()).map(|at| list.items[at].clone())
        }
        Value::Range(range) => place(key, range.len()).map(|at| range.get(at)),
        Value::Str(text) => {
            budget.scan(text.len())?;
            let chars = text.as_str();
            match place(key, chars.chars().count()) {
                Some(at) => {
                    let start = byte_at(chars, at);
                    let length = chars[start..].chars().next().map_or(0, char::len_utf8);
                    Some(Value::Str(text.slice(start..start + length, budget)?))
                }
                None => None,
            }
        }
        _ => None,
    };
    match (found, key) {
        (Some(found), _) => Ok(found),
        (None, Value::Str(name)) => {
            let attribute = methods::attribute(value, name.as_str())?;
            Ok(attribute.unwrap_or_else(|| Value::Undefined(name.as_str().into())))
        }
        (None, key) => Ok(Value::Undefined(to_text(key, budget)?.as_str().into())),
    }
}

/// Where an index points in a sequence, counting from the end if negative.
fn place(key: &Value, length: usize) -> Option<usize> {
    let index = whole(key)?;
    let index = if index < 0 { index + length as i128 } else { index };
    usize::try_from(index).ok().filter(|index| *index < length)
}

/// `value[start:stop:step]`
pub(super) fn slice(
    value: &Value,
    [start, stop, step]: [Option<Value>; 3],
    budget: &Rc<Budget>,
) -> Result<Value> {
    let bound = |value: Option<Value>| match value {
        None | Some(Value::None) => Ok(None),
        Some(value) => match whole(&value) {
            Some(int) => Ok(Some(int)),
            None => fail(format!("slice indices must be integers, not {}", value.type_name())),
        },
    };
    if let Value::Undefined(name) = value {
        return fail(undefined_message(name));
    }
    let Some(length) = value.length().filter(|_| is_sliceable(value)) else {
        return fail(format!("'{}' object cannot be sliced", value.type_name()));
    };
    let (start, stop) = (bound(start)?, bound(stop)?);
    let step = bound(step)?.unwrap_or(1);
    if step == 0 {
        return fail("slice step cannot be zero");
    }
    if let (Value::Str(text), 1) = (value, step) {
        budget.scan(text.len())?;
        let (from, to) = clamp(start, stop, length as i128, 1);
        let chars = text.as_str();
        let from = byte_at(chars, from.max(0) as usize);
        let to = byte_at(chars, to.max(0) as usize).max(from);
        return text.slice(from..to, budget).map(Value::Str);
    }
    let (mut at, to) = clamp(start, stop, length as i128, step);
    let items = value.items(budget)?;
    let mut picked = Vec::new();
    while if step > 0 { at < to } else { at > to } {
        picked.extend(usize::try_from(at).ok().and_then(|at| items.get(at)).cloned());
        at = at.saturating_add(step);
    }
    match value {
        Value::Str(_) => {
            let texts =
                picked.iter().filter_map(|item| if let Value::Str(t) = item { Some(t) } else { None });
            strings::join(&Text::template(""), texts, budget).map(Value::Str)
        }
        Value::Tuple(_) => Value::tuple(picked, budget),
        _ => Value::list(picked, budget),
    }
}

fn is_sliceable(value: &Value) -> bool {
    matches!(value, Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Range(_))
}

/// The first position and the one before which (or after which, going down) to stop, within the sequence.
fn clamp(start: Option<i128>, stop: Option<i128>, length: i128, step: i128) -> (i128, i128) {
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let place = |at: i128| (if at < 0 { at.saturating_add(length) } else { at }).clamp(lowest, highest);
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    (start.map_or(first, place), stop.map_or(last, place))
}
