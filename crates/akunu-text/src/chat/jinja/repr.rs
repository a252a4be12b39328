//! `str()` and `repr()`: how Python shows values, which is what `{{ value }}` writes.

use std::rc::Rc;
use std::sync::OnceLock;

use super::budget::Budget;
use super::error::{Result, fail};
use super::text::{Origin, Text, TextBuilder};
use super::value::{Value, ViewKind};
use crate::tokenizer::charset::CharSet;

/// `str(value)`, and nothing for a missing value.
pub(super) fn to_text(value: &Value, budget: &Rc<Budget>) -> Result<Text> {
    match value {
        Value::Str(text) => Ok(text.clone()),
        Value::Undefined(_) => Ok(Text::template("")),
        _ => repr(value, budget),
    }
}

/// `repr(value)`
pub(super) fn repr(value: &Value, budget: &Rc<Budget>) -> Result<Text> {
    let mut out = TextBuilder::new(budget);
    write_repr(value, budget, &mut out)?;
    Ok(out.finish())
}

fn write_repr(value: &Value, budget: &Rc<Budget>, out: &mut TextBuilder) -> Result<()> {
    budget.step()?;
    let plain = |out: &mut TextBuilder, text: &str| out.push_str(text, Origin::Template);
    match value {
        Value::Undefined(_) => plain(out, "Undefined"),
        Value::None => plain(out, "None"),
        Value::Bool(true) => plain(out, "True"),
        Value::Bool(false) => plain(out, "False"),
        Value::Int(int, origin) => out.push_str(&int.to_string(), *origin),
        Value::Float(float, origin) => out.push_str(&float_repr(*float), *origin),
        Value::Str(text) if text.markup => {
            plain(out, "Markup(")?;
            write_text_repr(text, out)?;
            plain(out, ")")
        }
        Value::Str(text) => write_text_repr(text, out),
        Value::List(list) => write_items(&list.items, ["[", "]"], budget, out),
        Value::Tuple(list) => {
            let close = if list.items.len() == 1 { ",)" } else { ")" };
            write_items(&list.items, ["(", close], budget, out)
        }
        Value::Dict(dict) => write_entries(dict.entries(), budget, out),
        Value::View(kind, list) => {
            let open = match kind {
                ViewKind::Keys => "dict_keys([",
                ViewKind::Values => "dict_values([",
                ViewKind::Items => "dict_items([",
            };
            write_items(&list.items, [open, "])"], budget, out)
        }
        Value::Range(range) if range.step == 1 => {
            plain(out, &format!("range({}, {})", range.start, range.stop))
        }
        Value::Range(range) => plain(out, &format!("range({}, {}, {})", range.start, range.stop, range.step)),
        Value::Namespace(namespace) => {
            budget.enter()?;
            plain(out, "<Namespace ")?;
            write_entries(namespace.borrow().entries(), budget, out)?;
            plain(out, ">")?;
            budget.leave();
            Ok(())
        }
        Value::Macro(own) => plain(out, &format!("<Macro '{}'>", own.code.name)),
        Value::Loop(own) => {
            plain(out, &format!("<LoopContext {}/{}>", own.index.get() + 1, own.list.items.len()))
        }
        // Python prints an address here: no two renderings would agree.
        Value::Iterator(_) | Value::Function(_) | Value::Method(_) | Value::Cycler(_) | Value::Joiner(_) => {
            fail(format!("a {} cannot be written as text", value.type_name()))
        }
    }
}

fn write_items(
    items: &[Value],
    [open, close]: [&str; 2],
    budget: &Rc<Budget>,
    out: &mut TextBuilder,
) -> Result<()> {
    out.push_str(open, Origin::Template)?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ", Origin::Template)?;
        }
        write_repr(item, budget, out)?;
    }
    out.push_str(close, Origin::Template)
}

fn write_entries(entries: &[(Value, Value)], budget: &Rc<Budget>, out: &mut TextBuilder) -> Result<()> {
    out.push_str("{", Origin::Template)?;
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            out.push_str(", ", Origin::Template)?;
        }
        write_repr(key, budget, out)?;
        out.push_str(": ", Origin::Template)?;
        write_repr(value, budget, out)?;
    }
    out.push_str("}", Origin::Template)
}

/// A Python string literal: single quotes unless only double quotes avoid escaping.
fn write_text_repr(text: &Text, out: &mut TextBuilder) -> Result<()> {
    let chars = text.as_str();
    let quote = if chars.contains('\'') && !chars.contains('"') { '"' } else { '\'' };
    out.push_char(quote, Origin::Template)?;
    for (c, origin) in text.chars() {
        match c {
            '\\' => out.push_str("\\\\", origin)?,
            '\n' => out.push_str("\\n", origin)?,
            '\r' => out.push_str("\\r", origin)?,
            '\t' => out.push_str("\\t", origin)?,
            c if c == quote => {
                out.push_char('\\', origin)?;
                out.push_char(c, origin)?;
            }
            c if is_printable(c) => out.push_char(c, origin)?,
            c if (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32), origin)?,
            c if (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32), origin)?,
            c => out.push_str(&format!("\\U{:08x}", c as u32), origin)?,
        }
    }
    out.push_char(quote, Origin::Template)
}

/// Python's `str.isprintable`: everything but "other" and separators, the space excepted.
pub(super) fn is_printable(c: char) -> bool {
    static OTHER: OnceLock<CharSet> = OnceLock::new();
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    !OTHER.get_or_init(|| CharSet::new(r"[\p{C}\p{Z}]")).contains(c)
}

/// Python's `repr` of a float: the fewest digits that read back as the same number, in plain notation from
/// 1e-4 up to 1e16.
pub(super) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        if plain.contains('.') { plain } else { plain + ".0" }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::jinja::budget::Limits;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        // Expected: repr() of CPython 3.11.
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e16, "1.5e+16"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
        ] {
            assert_eq!(float_repr(value), expected);
        }
    }

    #[test]
    fn texts_are_quoted_as_python_quotes_them() {
        let budget = Rc::new(Budget::new(Limits::default()));
        // Expected: repr() of CPython 3.11.
        for (text, expected) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("\"it's\"", "'\"it\\'s\"'"),
            ("a\\b\n\t\r", "'a\\\\b\\n\\t\\r'"),
            ("\u{0}\u{7f}\u{a0}\u{ad}", "'\\x00\\x7f\\xa0\\xad'"),
            ("é😀\u{200b}\u{2028}", "'é😀\\u200b\\u2028'"),
            ("\u{e000}\u{f0000}", "'\\ue000\\U000f0000'"),
        ] {
            assert_eq!(repr(&Value::template(text), &budget).unwrap().as_str(), expected);
        }
    }
}
