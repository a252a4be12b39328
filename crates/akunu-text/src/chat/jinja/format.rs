//! `"{}".format(...)` and `"%s" % ...`.

use std::rc::Rc;

use super::args::Args;
use super::budget::Budget;
use super::error::{Result, fail};
use super::repr::{float_repr, repr, to_text};
use super::strings::{pad, plain};
use super::text::{Origin, Text, TextBuilder};
use super::value::{Value, undefined_message};

/// `own.format(*args, **kwargs)`
pub(super) fn format_braces(own: &Text, args: &Args, budget: &Rc<Budget>) -> Result<Text> {
    let chars = own.as_str();
    let mut out = TextBuilder::new(budget);
    let mut next_position = 0;
    let mut at = 0;
    while let Some(found) = chars[at..].find(['{', '}']) {
        budget.step()?;
        let brace = at + found;
        out.push_slice(own, at..brace)?;
        if chars[brace..].starts_with("{{") || chars[brace..].starts_with("}}") {
            out.push_slice(own, brace..brace + 1)?;
            at = brace + 2;
            continue;
        }
        if chars[brace..].starts_with('}') {
            return fail("single '}' encountered in format string");
        }
        let Some(length) = chars[brace..].find('}') else {
            return fail("expected '}' before end of string");
        };
        let field = &chars[brace + 1..brace + length];
        out.push(&replacement_field(field, &mut next_position, args, budget)?)?;
        at = brace + length + 1;
    }
    out.push_slice(own, at..own.len())?;
    Ok(out.finish())
}

/// `{name!conversion:spec}`
fn replacement_field(field: &str, next: &mut usize, args: &Args, budget: &Rc<Budget>) -> Result<Text> {
    let (head, spec) = field.split_once(':').unwrap_or((field, ""));
    if spec.contains('{') {
        return fail("nested fields in a format specification are not supported");
    }
    let (name, conversion) = head.split_once('!').unwrap_or((head, ""));
    let value = if name.is_empty() {
        *next += 1;
        args.positional.get(*next - 1)
    } else if let Ok(position) = name.parse::<usize>() {
        args.positional.get(position)
    } else {
        args.keyword.iter().find(|(own, _)| &**own == name).map(|(_, value)| value)
    };
    let Some(value) = value else {
        return fail(format!("format: there is no argument for the field {{{field}}}"));
    };
    let value = match conversion {
        "" => value.clone(),
        "s" => Value::Str(to_text(value, budget)?),
        "r" => Value::Str(repr(value, budget)?),
        other => return fail(format!("format: unknown conversion !{other}")),
    };
    format_value(&value, spec, budget)
}

/// A format specification: `[[fill]align][sign][0][width][,][.precision][type]`.
#[derive(Debug, Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    width: usize,
    thousands: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Spec {
    fn parse(text: &str) -> Option<Self> {
        let mut spec = Self::default();
        let mut rest = text;
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(fill), Some(align @ ('<' | '>' | '^' | '='))) => {
                (spec.fill, spec.align) = (Some(fill), Some(align));
                rest = chars.as_str();
            }
            (Some(align @ ('<' | '>' | '^' | '=')), _) => {
                spec.align = Some(align);
                rest = &text[1..];
            }
            _ => {}
        }
        if let Some(after) = rest.strip_prefix(['+', '-', ' ']) {
            spec.sign = rest.chars().next();
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('0') {
            spec.fill.get_or_insert('0');
            spec.align.get_or_insert('=');
            rest = after;
        }
        (spec.width, rest) = leading_number(rest)?.unwrap_or((0, rest));
        if let Some(after) = rest.strip_prefix([',', '_']) {
            spec.thousands = rest.chars().next();
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = leading_number(after)??;
            spec.precision = Some(precision);
            rest = after;
        }
        let mut chars = rest.chars();
        spec.kind = chars.next();
        chars.as_str().is_empty().then_some(spec)
    }
}

/// Digits at the start and what follows; `None` if the number is absurd, `Some(None)` if there are no digits.
#[expect(clippy::option_option, reason = "no digits and too many digits are different answers")]
fn leading_number(text: &str) -> Option<Option<(usize, &str)>> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Some(None);
    }
    let number = text[..digits].parse().ok().filter(|number| *number <= 1_000_000)?;
    Some(Some((number, &text[digits..])))
}

fn format_value(value: &Value, spec: &str, budget: &Rc<Budget>) -> Result<Text> {
    if spec.is_empty() {
        return to_text(value, budget);
    }
    let Some(spec) = Spec::parse(spec) else {
        return fail(format!("format: cannot use the specification '{spec}'"));
    };
    match value {
        Value::Str(text) if matches!(spec.kind, None | Some('s')) => {
            let end =
                spec.precision.map_or(text.len(), |count| super::strings::byte_at(text.as_str(), count));
            align(&text.slice(0..end, budget)?, &spec, '<', budget)
        }
        Value::Int(..) | Value::Bool(_) | Value::Float(..) => {
            let origin = match value {
                Value::Int(_, origin) | Value::Float(_, origin) => *origin,
                _ => Origin::Template,
            };
            let number = format_number(value, &spec)?;
            align(&plain(&number, origin, budget)?, &spec, '>', budget)
        }
        Value::Undefined(name) => fail(undefined_message(name)),
        other => fail(format!("format: cannot format a {} this way", other.type_name())),
    }
}

/// The digits and the sign, without padding.
fn format_number(value: &Value, spec: &Spec) -> Result<String> {
    let int = match value {
        Value::Int(int, _) => Some(*int),
        Value::Bool(value) => Some(i128::from(*value)),
        _ => None,
    };
    let float = match value {
        Value::Float(float, _) => *float,
        _ => int.unwrap_or(0) as f64,
    };
    let precision = spec.precision.unwrap_or(6);
    let magnitude = float.abs();
    let mut digits = match (spec.kind, int) {
        (None | Some('d' | 'n'), Some(int)) if spec.precision.is_none() => int.unsigned_abs().to_string(),
        (Some('x'), Some(int)) => format!("{:x}", int.unsigned_abs()),
        (Some('X'), Some(int)) => format!("{:X}", int.unsigned_abs()),
        (Some('o'), Some(int)) => format!("{:o}", int.unsigned_abs()),
        (Some('b'), Some(int)) => format!("{:b}", int.unsigned_abs()),
        (Some('f' | 'F'), _) => format!("{magnitude:.precision$}"),
        (Some('%'), _) => format!("{:.precision$}%", magnitude * 100.0),
        (Some(kind @ ('e' | 'E')), _) => scientific(magnitude, precision, kind),
        (None, None) if spec.precision.is_none() => float_repr(magnitude),
        _ => return fail(format!("format: unsupported number format {:?}", spec.kind)),
    };
    if let Some(separator) = spec.thousands {
        digits = group_thousands(&digits, separator);
    }
    let negative = int.map_or(float.is_sign_negative(), |int| int < 0);
    let sign = match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    };
    Ok(format!("{sign}{digits}"))
}

fn scientific(value: f64, precision: usize, letter: char) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}{letter}{sign}{:02}", exponent.abs())
}

fn group_thousands(digits: &str, separator: char) -> String {
    let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
    let mut grouped = String::new();
    for (index, digit) in digits[..whole].chars().enumerate() {
        if index > 0 && (whole - index) % 3 == 0 {
            grouped.push(separator);
        }
        grouped.push(digit);
    }
    grouped + &digits[whole..]
}

fn align(text: &Text, spec: &Spec, default: char, budget: &Rc<Budget>) -> Result<Text> {
    let fill = Text::template(spec.fill.unwrap_or(' ').to_string());
    let width = spec.width as i128;
    match spec.align.unwrap_or(default) {
        '<' => pad(text, "ljust", width, &fill, budget),
        '>' => pad(text, "rjust", width, &fill, budget),
        '^' => {
            // Unlike `str.center`, formatting always puts the odd space on the right.
            let length = text.as_str().chars().count() as i128;
            let left = (width - length).max(0) / 2;
            let text = pad(text, "rjust", length + left, &fill, budget)?;
            pad(&text, "ljust", width, &fill, budget)
        }
        _ => {
            let sign = usize::from(text.as_str().starts_with(['+', '-', ' ']));
            let digits = text.slice(sign..text.len(), budget)?;
            let digits = pad(&digits, "rjust", width - sign as i128, &fill, budget)?;
            let mut out = TextBuilder::new(budget);
            out.push_slice(text, 0..sign)?;
            out.push(&digits)?;
            Ok(out.finish())
        }
    }
}

/// `own % value`
pub(super) fn format_percent(own: &Text, value: &Value, budget: &Rc<Budget>) -> Result<Text> {
    let chars = own.as_str();
    let mut positional = match value {
        Value::Tuple(list) => list.items.clone(),
        other => vec![other.clone()],
    }
    .into_iter();
    let mut out = TextBuilder::new(budget);
    let mut at = 0;
    while let Some(found) = chars[at..].find('%') {
        budget.step()?;
        let percent = at + found;
        out.push_slice(own, at..percent)?;
        let mut rest = &chars[percent + 1..];
        let mut named = None;
        if let Some(after) = rest.strip_prefix('(') {
            let Some((key, after)) = after.split_once(')') else {
                return fail("incomplete format key");
            };
            let Value::Dict(dict) = value else { return fail("format requires a mapping") };
            let Some(item) = dict.get_str(key) else { return fail(format!("there is no key '{key}'")) };
            named = Some(item.clone());
            rest = after;
        }
        let flags = rest.bytes().take_while(|b| b"#0- +".contains(b)).count();
        let (flags, after) = rest.split_at(flags);
        let mut spec = Spec {
            sign: flags.chars().find(|c| *c == '+').or(flags.chars().find(|c| *c == ' ')),
            align: Some(if flags.contains('-') { '<' } else { '>' }),
            ..Spec::default()
        };
        if flags.contains('0') && !flags.contains('-') {
            (spec.fill, spec.align) = (Some('0'), Some('='));
        }
        let Some(width) = leading_number(after) else { return fail("the width is too large") };
        (spec.width, rest) = width.unwrap_or((0, after));
        if let Some(after) = rest.strip_prefix('.') {
            let Some(precision) = leading_number(after) else { return fail("the precision is too large") };
            let (precision, after) = precision.unwrap_or((0, after));
            (spec.precision, rest) = (Some(precision), after);
        }
        let Some(kind) = rest.chars().next() else { return fail("incomplete format") };
        at = chars.len() - rest.len() + kind.len_utf8();
        if kind == '%' {
            out.push_str("%", Origin::Template)?;
            continue;
        }
        let Some(item) = named.or_else(|| positional.next()) else {
            return fail("not enough arguments for format string");
        };
        out.push(&percent_field(&item, kind, spec, budget)?)?;
    }
    if !matches!(value, Value::Dict(_)) && positional.next().is_some() {
        return fail("not all arguments converted during string formatting");
    }
    out.push_slice(own, at..own.len())?;
    Ok(out.finish())
}

fn percent_field(item: &Value, kind: char, mut spec: Spec, budget: &Rc<Budget>) -> Result<Text> {
    match kind {
        's' | 'r' => {
            let text = if kind == 's' { to_text(item, budget)? } else { repr(item, budget)? };
            let end =
                spec.precision.map_or(text.len(), |count| super::strings::byte_at(text.as_str(), count));
            spec.fill = None;
            spec.align = spec.align.map(|align| if align == '=' { '>' } else { align });
            align(&text.slice(0..end, budget)?, &spec, '>', budget)
        }
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'f' | 'F' | 'e' | 'E' => {
            let whole = matches!(kind, 'd' | 'i' | 'u');
            let item = match item {
                Value::Float(float, origin) if whole => Value::Int(float.trunc() as i128, *origin),
                Value::Int(..) | Value::Float(..) | Value::Bool(_) => item.clone(),
                other => return fail(format!("%{kind}: a number is required, not {}", other.type_name())),
            };
            spec.kind = Some(if whole { 'd' } else { kind });
            if whole {
                spec.precision = None;
            }
            let origin = match item {
                Value::Int(_, origin) | Value::Float(_, origin) => origin,
                _ => Origin::Template,
            };
            align(&plain(&format_number(&item, &spec)?, origin, budget)?, &spec, '>', budget)
        }
        other => fail(format!("unsupported format character '{other}'")),
    }
}
