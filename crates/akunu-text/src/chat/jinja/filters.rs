//! Jinja's filters, with Hugging Face's `tojson`.

use std::cmp::Ordering;
use std::rc::Rc;

use super::args::{Args, flag, int, required, text};
use super::ast::BinaryOp;
use super::budget::Budget;
use super::checks;
use super::error::{Result, fail};
use super::format::format_percent;
use super::json::{JsonStyle, to_json};
use super::methods::view;
use super::ops::{binary, item};
use super::repr::to_text;
use super::sort::stable_sort;
use super::strings::{self, Ends, change_case, escape_html, is_space, line_ranges, pad, replace, strip};
use super::text::{Origin, Text, TextBuilder};
use super::value::{Value, ViewKind, undefined_message};

#[rustfmt::skip]
const FILTERS: &[&str] = &[
    "abs", "attr", "batch", "capitalize", "center", "count", "d", "default", "dictsort", "e", "escape", "first",
    "float", "forceescape", "format", "groupby", "indent", "int", "items", "join", "last", "length", "list", "lower",
    "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr",
    "slice", "sort", "string", "sum", "title", "tojson", "trim", "truncate", "unique", "upper", "urlencode",
    "wordcount",
];

pub(super) fn is_known(name: &str) -> bool {
    FILTERS.contains(&name)
}

/// `own | name(args)`
pub(super) fn apply(name: &str, own: Value, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    budget.step()?;
    match name {
        "tojson" => tojson(&own, args, budget),
        "length" | "count" => {
            args.bind::<0>(name, [])?;
            if let Value::Str(text) = &own {
                budget.scan(text.len())?;
            }
            match own.length() {
                Some(length) => Ok(Value::int(length as i128)),
                None => fail(format!("object of type '{}' has no len()", own.type_name())),
            }
        }
        "default" | "d" => {
            let [default, boolean] = args.bind(name, ["default_value", "boolean"])?;
            let missing = own.is_undefined() || flag(boolean, false) && !own.truth();
            Ok(if missing { default.unwrap_or_else(|| Value::template("")) } else { own })
        }
        "items" => {
            args.bind::<0>(name, [])?;
            match &own {
                Value::Undefined(_) => Value::iterator(Vec::new(), budget),
                Value::Dict(dict) => Value::iterator(view(dict, ViewKind::Items, budget)?.items, budget),
                other => fail(format!("items: expected a mapping, not {}", other.type_name())),
            }
        }
        "list" => {
            args.bind::<0>(name, [])?;
            Value::list(own.items(budget)?, budget)
        }
        "first" | "last" | "min" | "max" | "sum" | "reverse" | "sort" | "unique" | "dictsort" | "groupby"
        | "batch" | "slice" | "join" | "map" | "select" | "reject" | "selectattr" | "rejectattr" => {
            over_items(name, &own, args, budget)
        }
        "int" | "float" | "round" | "abs" => number(name, own, args, budget),
        "attr" => {
            let [attr] = args.bind(name, ["name"])?;
            let attr = text(attr, name, "name")?;
            let found = super::methods::attribute(&own, attr.as_str())?;
            Ok(found.unwrap_or_else(|| Value::Undefined(attr.as_str().into())))
        }
        _ => over_text(name, own, args, budget),
    }
}

/// Filters that turn a value into text first.
fn over_text(name: &str, own: Value, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    let text_of_own = to_text(&own, budget)?;
    budget.scan(text_of_own.len())?;
    let result = match name {
        "string" => {
            args.bind::<0>(name, [])?;
            text_of_own
        }
        "safe" => {
            args.bind::<0>(name, [])?;
            text_of_own.as_markup(true)
        }
        "e" | "escape" => {
            args.bind::<0>(name, [])?;
            escape_html(&text_of_own, budget)?
        }
        "forceescape" => {
            args.bind::<0>(name, [])?;
            escape_html(&text_of_own.as_markup(false), budget)?
        }
        "trim" => {
            let [chars] = args.bind(name, ["chars"])?;
            strip(&text_of_own, chars.as_ref(), Ends { left: true, right: true }, budget)?
        }
        "upper" | "lower" | "capitalize" => {
            args.bind::<0>(name, [])?;
            change_case(&text_of_own, name, budget)?
        }
        "title" => {
            args.bind::<0>(name, [])?;
            title(&text_of_own, budget)?
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"])?;
            let old = to_text(&required(old, name, "old")?, budget)?;
            let new = to_text(&required(new, name, "new")?, budget)?;
            let count = int(count, name, "count")?.and_then(|count| usize::try_from(count).ok());
            replace(&text_of_own, &old, &new, count, budget)?
        }
        "center" => {
            let [width] = args.bind(name, ["width"])?;
            let width = int(width, name, "width")?.unwrap_or(80);
            pad(&text_of_own, name, width, &Text::template(" "), budget)?
        }
        "indent" => match own {
            Value::Str(_) => indent(&text_of_own, args, budget)?,
            Value::Undefined(missing) => return fail(undefined_message(&missing)),
            other => return fail(format!("indent: expected a str, not {}", other.type_name())),
        },
        "truncate" => truncate(&text_of_own, args, budget)?,
        "wordcount" => {
            args.bind::<0>(name, [])?;
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let words = text_of_own.as_str().split(|c| !is_word(c)).filter(|word| !word.is_empty()).count();
            return Ok(Value::int(words as i128));
        }
        "urlencode" => {
            args.bind::<0>(name, [])?;
            url_encode(&text_of_own, budget)?
        }
        "format" => {
            let value = if args.keyword.is_empty() {
                Value::tuple(args.positional, budget)?
            } else {
                let mut dict = super::value::Dict::default();
                for (key, value) in args.keyword {
                    dict.insert(Value::template(&key), value, budget)?;
                }
                Value::Dict(Rc::new(dict))
            };
            format_percent(&text_of_own, &value, budget)?
        }
        _ => return fail(format!("there is no filter `{name}`")),
    };
    Ok(Value::Str(result))
}

/// Filters that work on the items of a value.
fn over_items(name: &str, own: &Value, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    match name {
        "join" => join(own, args, budget),
        "map" => map(own, args, budget),
        "select" | "reject" | "selectattr" | "rejectattr" => select(name, own, args, budget),
        "first" => {
            args.bind::<0>(name, [])?;
            let first = match own {
                Value::Iterator(lazy) => lazy.items.borrow_mut().next(),
                other => other.items(budget)?.into_iter().next(),
            };
            Ok(first.unwrap_or_else(|| Value::Undefined("first".into())))
        }
        "last" => {
            args.bind::<0>(name, [])?;
            if matches!(own, Value::Iterator(_)) {
                return fail("'generator' object is not reversible");
            }
            Ok(own.items(budget)?.pop().unwrap_or_else(|| Value::Undefined("last".into())))
        }
        "reverse" => {
            args.bind::<0>(name, [])?;
            let mut items = own.items(budget)?;
            items.reverse();
            if matches!(own, Value::Str(_)) {
                let texts =
                    items.iter().filter_map(|item| if let Value::Str(t) = item { Some(t) } else { None });
                return strings::join(&Text::template(""), texts, budget).map(Value::Str);
            }
            Value::iterator(items, budget)
        }
        "sum" => {
            let [path, start] = args.bind(name, ["attribute", "start"])?;
            let mut total = start.unwrap_or_else(|| Value::int(0));
            for element in own.items(budget)? {
                total = binary(BinaryOp::Add, &total, &at_path(&element, path.as_ref(), budget)?, budget)?;
            }
            Ok(total)
        }
        "min" | "max" => {
            let [case_sensitive, path] = args.bind(name, ["case_sensitive", "attribute"])?;
            let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
            let keyed = with_keys(own.items(budget)?, path.as_ref(), flag(case_sensitive, false), budget)?;
            let mut best: Option<(Value, Value)> = None;
            for (key, value) in keyed {
                let better = match &best {
                    Some((best, _)) => key.order(best, budget)? == Some(wanted),
                    None => true,
                };
                if better {
                    best = Some((key, value));
                }
            }
            Ok(best.map_or_else(|| Value::Undefined(name.into()), |(_, value)| value))
        }
        "sort" => {
            let [reverse, case_sensitive, path] =
                args.bind(name, ["reverse", "case_sensitive", "attribute"])?;
            let keyed = with_keys(own.items(budget)?, path.as_ref(), flag(case_sensitive, false), budget)?;
            let sorted = sort_keyed(keyed, flag(reverse, false), budget)?;
            Value::list(sorted.into_iter().map(|(_, value)| value).collect(), budget)
        }
        "unique" => {
            let [case_sensitive, path] = args.bind(name, ["case_sensitive", "attribute"])?;
            let keyed = with_keys(own.items(budget)?, path.as_ref(), flag(case_sensitive, false), budget)?;
            let mut kept: Vec<(Value, Value)> = Vec::new();
            'items: for (key, value) in keyed {
                for (seen, _) in &kept {
                    if seen.equals(&key, budget)? {
                        continue 'items;
                    }
                }
                kept.push((key, value));
            }
            Value::iterator(kept.into_iter().map(|(_, value)| value).collect(), budget)
        }
        "groupby" => group_by(own, args, budget),
        "dictsort" => {
            let [case_sensitive, by, reverse] = args.bind(name, ["case_sensitive", "by", "reverse"])?;
            let place = match by.as_ref().map(Value::as_str) {
                None | Some(Some("key")) => 0,
                Some(Some("value")) => 1,
                _ => return fail("dictsort: you can only sort by either 'key' or 'value'"),
            };
            let Value::Dict(dict) = own else {
                return fail(format!("dictsort: expected a mapping, not {}", own.type_name()));
            };
            let pairs = view(dict, ViewKind::Items, budget)?.items;
            let place = Value::int(place);
            let keyed = with_keys(pairs, Some(&place), flag(case_sensitive, false), budget)?;
            let sorted = sort_keyed(keyed, flag(reverse, false), budget)?;
            Value::list(sorted.into_iter().map(|(_, pair)| pair).collect(), budget)
        }
        _ => in_groups(name, own, args, budget),
    }
}

/// `batch(n)` gives lists of n items, `slice(n)` gives n lists.
fn in_groups(name: &str, own: &Value, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    let [size, fill] = args.bind(name, ["size", "fill_with"])?;
    let items = own.items(budget)?;
    let Some(size @ 1..) = int(size, name, "size")?.and_then(|size| usize::try_from(size).ok()) else {
        return fail(format!("{name}: the size must be at least 1"));
    };
    budget.steps(size)?;
    let mut groups: Vec<Vec<Value>> = Vec::new();
    if name == "batch" {
        groups.extend(items.chunks(size).map(<[Value]>::to_vec));
        if let (Some(last), Some(fill)) = (groups.last_mut(), fill) {
            budget.make(size.saturating_sub(last.len()) * size_of::<Value>())?;
            last.resize(size.max(last.len()), fill);
        }
    } else {
        let (each, larger) = (items.len() / size, items.len() % size);
        let mut rest = &items[..];
        for index in 0..size {
            let (group, after) = rest.split_at(each + usize::from(index < larger));
            rest = after;
            let mut group = group.to_vec();
            if let Some(fill) = &fill
                && index >= larger
            {
                group.push(fill.clone());
            }
            groups.push(group);
        }
    }
    let groups = groups.into_iter().map(|group| Value::list(group, budget)).collect::<Result<_>>()?;
    Value::iterator(groups, budget)
}

fn group_by(own: &Value, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    let [path, default, case_sensitive] = args.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let path = required(path, "groupby", "attribute")?;
    let case_sensitive = flag(case_sensitive, false);
    let key_of = |element: &Value| -> Result<Value> {
        let key = at_path(element, Some(&path), budget)?;
        Ok(if key.is_undefined() { default.clone().unwrap_or(key) } else { key })
    };
    let mut keyed = Vec::new();
    for element in own.items(budget)? {
        keyed.push((fold_case(key_of(&element)?, case_sensitive, budget)?, element));
    }
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, element) in sort_keyed(keyed, false, budget)? {
        match groups.last_mut() {
            Some((last, group)) if last.equals(&key, budget)? => group.push(element),
            _ => groups.push((key, vec![element])),
        }
    }
    let groups = groups.into_iter().map(|(key, group)| {
        // The group carries the key as its first item has it, before case folding.
        let key = group.first().map_or(Ok(key), key_of)?;
        Value::tuple(vec![key, Value::list(group, budget)?], budget)
    });
    Value::list(groups.collect::<Result<_>>()?, budget)
}

/// Pairs of sort key and item.
fn with_keys(
    items: Vec<Value>,
    path: Option<&Value>,
    case_sensitive: bool,
    budget: &Rc<Budget>,
) -> Result<Vec<(Value, Value)>> {
    let keyed = items
        .into_iter()
        .map(|element| Ok((fold_case(at_path(&element, path, budget)?, case_sensitive, budget)?, element)));
    keyed.collect()
}

fn fold_case(key: Value, case_sensitive: bool, budget: &Rc<Budget>) -> Result<Value> {
    match key {
        Value::Str(text) if !case_sensitive => change_case(&text, "lower", budget).map(Value::Str),
        key => Ok(key),
    }
}

fn sort_keyed(keyed: Vec<(Value, Value)>, reverse: bool, budget: &Rc<Budget>) -> Result<Vec<(Value, Value)>> {
    let wanted = if reverse { Ordering::Greater } else { Ordering::Less };
    stable_sort(keyed, &mut |a, b| Ok(a.0.order(&b.0, budget)? == Some(wanted)))
}

/// The item at a path such as `function.name` or `0`; the value itself without a path.
fn at_path(value: &Value, path: Option<&Value>, budget: &Rc<Budget>) -> Result<Value> {
    match path {
        None | Some(Value::None) => Ok(value.clone()),
        Some(Value::Str(path)) => {
            let mut found = value.clone();
            for part in path.as_str().split('.') {
                let key = match part.parse::<u32>() {
                    Ok(index) => Value::int(i128::from(index)),
                    Err(_) => Value::template(part),
                };
                found = item(&found, &key, budget)?;
            }
            Ok(found)
        }
        Some(index) => item(value, index, budget),
    }
}

fn join(own: &Value, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    let [separator, path] = args.bind("join", ["d", "attribute"])?;
    let separator = separator.map_or(Ok(Text::template("")), |separator| to_text(&separator, budget))?;
    let texts = own
        .items(budget)?
        .iter()
        .map(|element| to_text(&at_path(element, path.as_ref(), budget)?, budget))
        .collect::<Result<Vec<_>>>()?;
    strings::join(&separator, texts.iter(), budget).map(Value::Str)
}

fn map(own: &Value, mut args: Args, budget: &Rc<Budget>) -> Result<Value> {
    // Nothing, however it is spelled, has no items to look at.
    let items = if own.truth() { own.items(budget)? } else { Vec::new() };
    if args.positional.is_empty() {
        let [path, default] = args.bind("map", ["attribute", "default"])?;
        let path = required(path, "map", "attribute")?;
        let found = items.iter().map(|element| {
            let found = at_path(element, Some(&path), budget)?;
            Ok(if found.is_undefined() { default.clone().unwrap_or(found) } else { found })
        });
        return Value::iterator(found.collect::<Result<_>>()?, budget);
    }
    let name = text(Some(args.positional.remove(0)), "map", "filter")?;
    let changed = items.into_iter().map(|element| {
        let args = Args { positional: args.positional.clone(), keyword: args.keyword.clone() };
        apply(name.as_str(), element, args, budget)
    });
    Value::iterator(changed.collect::<Result<_>>()?, budget)
}

/// Keeps the items that pass a test, or that do not; with `attr`, an attribute of the item is tested.
fn select(name: &str, own: &Value, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    let keep = name.starts_with("select");
    let mut positional = args.positional.into_iter();
    let path =
        if name.ends_with("attr") { Some(required(positional.next(), name, "attribute")?) } else { None };
    let test = positional.next().map(|test| text(Some(test), name, "test")).transpose()?;
    let rest: Vec<Value> = positional.collect();
    let mut kept = Vec::new();
    let items = if own.truth() { own.items(budget)? } else { Vec::new() };
    for element in items {
        let tested = at_path(&element, path.as_ref(), budget)?;
        let passes = match &test {
            None => tested.truth(),
            Some(test) => {
                let args = Args { positional: rest.clone(), keyword: args.keyword.clone() };
                checks::check(test.as_str(), &tested, args, budget)?
            }
        };
        if passes == keep {
            kept.push(element);
        }
    }
    Value::iterator(kept, budget)
}

fn number(name: &str, own: Value, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    let origin = match &own {
        Value::Int(_, origin) | Value::Float(_, origin) => *origin,
        Value::Str(text) => text.origin(),
        _ => Origin::Template,
    };
    let as_float = match &own {
        Value::Int(int, _) => Some(*int as f64),
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::Float(float, _) => Some(*float),
        Value::Str(text) => parse_float(text.as_str()),
        _ => None,
    };
    match name {
        "int" => {
            let [default, base] = args.bind(name, ["default", "base"])?;
            let base = int(base, name, "base")?.and_then(|base| u32::try_from(base).ok()).unwrap_or(10);
            let parsed = match &own {
                Value::Int(int, _) => Some(*int),
                Value::Str(text) if (2..=36).contains(&base) => {
                    i128::from_str_radix(&text.as_str().trim().replace('_', ""), base).ok()
                }
                _ => None,
            };
            let parsed = parsed.or(as_float.filter(|float| float.is_finite()).map(|float| float as i128));
            Ok(parsed.map_or_else(|| default.unwrap_or_else(|| Value::int(0)), |int| Value::Int(int, origin)))
        }
        "float" => {
            let [default] = args.bind(name, ["default"])?;
            let missing = || default.unwrap_or(Value::Float(0.0, Origin::Template));
            Ok(as_float.map_or_else(missing, |float| Value::Float(float, origin)))
        }
        "abs" => {
            args.bind::<0>(name, [])?;
            match own {
                Value::Int(int, origin) => Ok(Value::Int(int.saturating_abs(), origin)),
                Value::Bool(value) => Ok(Value::int(i128::from(value))),
                Value::Float(float, origin) => Ok(Value::Float(float.abs(), origin)),
                other => fail(format!("bad operand type for abs(): '{}'", other.type_name())),
            }
        }
        _ => {
            let [precision, method] = args.bind(name, ["precision", "method"])?;
            let precision = int(precision, name, "precision")?.unwrap_or(0).clamp(-300, 300) as i32;
            let method = method.map_or(Ok(Text::template("common")), |method| to_text(&method, budget))?;
            let (Value::Int(..) | Value::Float(..) | Value::Bool(_), Some(value)) = (&own, as_float) else {
                return fail(format!("round: expected a number, not {}", own.type_name()));
            };
            round(&own, value, precision, method.as_str(), origin)
        }
    }
}

fn round(own: &Value, value: f64, precision: i32, method: &str, origin: Origin) -> Result<Value> {
    let scale = 10f64.powi(precision);
    let rounded = match method {
        "common" if matches!(own, Value::Int(..)) && precision >= 0 => return Ok(own.clone()),
        // As decimals, since scaling would round twice.
        "common" if precision >= 0 => {
            let digits = usize::try_from(precision).unwrap_or(0);
            format!("{value:.digits$}").parse().unwrap_or(value)
        }
        "common" => (value * scale).round_ties_even() / scale,
        "ceil" => (value * scale).ceil() / scale,
        "floor" => (value * scale).floor() / scale,
        _ => return fail("round: the method must be common, ceil or floor"),
    };
    Ok(Value::Float(rounded, origin))
}

/// Python's `float(text)`.
fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    let plain = |b: u8| b.is_ascii_digit() || b"+-.eE".contains(&b);
    let known =
        ["inf", "infinity", "nan"].contains(&text.trim_start_matches(['+', '-']).to_lowercase().as_str());
    if known || text.bytes().all(plain) { text.parse().ok() } else { None }
}

fn tojson(own: &Value, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    let [ensure_ascii, indent, separators, sort_keys] =
        args.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(text)) => Some(text),
        Some(width) => {
            let width = int(Some(width), "tojson", "indent")?.unwrap_or(0);
            Some(spaces(width, budget)?)
        }
    };
    let (item_separator, key_separator) = match separators {
        None | Some(Value::None) => {
            (Text::template(if indent.is_some() { "," } else { ", " }), Text::template(": "))
        }
        Some(pair) => match &pair.items(budget)?[..] {
            [Value::Str(item), Value::Str(key)] => (item.clone(), key.clone()),
            _ => return fail("tojson: separators must be a pair of texts"),
        },
    };
    let style = JsonStyle {
        ensure_ascii: flag(ensure_ascii, false),
        indent,
        item_separator,
        key_separator,
        sort_keys: flag(sort_keys, false),
    };
    to_json(own, &style, budget).map(Value::Str)
}

/// Capital after every space, hyphen or opening bracket, as Jinja's own filter does it.
fn title(own: &Text, budget: &Rc<Budget>) -> Result<Text> {
    let mut starts_word = true;
    own.map_chars(budget, |c| {
        let separator = is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
        let starts = std::mem::replace(&mut starts_word, separator);
        if starts { c.to_uppercase().collect::<Vec<_>>() } else { c.to_lowercase().collect() }
    })
}

fn spaces(count: i128, budget: &Budget) -> Result<Text> {
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    budget.make(count)?;
    Ok(Text::template(" ".repeat(count)))
}

fn indent(own: &Text, args: Args, budget: &Rc<Budget>) -> Result<Text> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"])?;
    let margin = match width {
        None => Text::template("    "),
        Some(Value::Str(text)) => text,
        Some(width) => spaces(int(Some(width), "indent", "width")?.unwrap_or(0), budget)?,
    };
    let (first, blank) = (flag(first, false), flag(blank, false));
    let mut lines = line_ranges(own.as_str(), false);
    // Jinja adds a newline before it splits: a text that ends in one has an empty last line.
    if lines.is_empty() || own.as_str().ends_with('\n') {
        lines.push(own.len()..own.len());
    }
    let mut out = TextBuilder::new(budget);
    for (index, line) in lines.into_iter().enumerate() {
        if index > 0 {
            out.push_str("\n", Origin::Template)?;
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            out.push(&margin)?;
        }
        out.push_slice(own, line)?;
    }
    Ok(out.finish().as_markup(own.markup))
}

fn truncate(own: &Text, args: Args, budget: &Rc<Budget>) -> Result<Text> {
    let [length, killwords, end, leeway] = args.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let length = int(length, "truncate", "length")?.unwrap_or(255).clamp(0, 1 << 40) as usize;
    let leeway = int(leeway, "truncate", "leeway")?.unwrap_or(5).clamp(0, 1 << 40) as usize;
    let end = end.map_or(Ok(Text::template("...")), |end| to_text(&end, budget))?;
    let end_length = end.as_str().chars().count();
    if length < end_length {
        return fail(format!("truncate: expected length >= {end_length}, got {length}"));
    }
    let chars = own.as_str();
    if chars.chars().count() <= length + leeway {
        return Ok(own.clone());
    }
    let mut cut = strings::byte_at(chars, length - end_length);
    if !flag(killwords, false) {
        cut = chars[..cut].rfind(' ').unwrap_or(cut);
    }
    let mut out = TextBuilder::new(budget);
    out.push_slice(own, 0..cut)?;
    out.push(&end)?;
    Ok(out.finish())
}

fn url_encode(own: &Text, budget: &Rc<Budget>) -> Result<Text> {
    let mut out = TextBuilder::new(budget);
    for (c, origin) in own.chars() {
        if c.is_ascii_alphanumeric() || "_.-~/".contains(c) {
            out.push_char(c, origin)?;
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            out.push_str(&format!("%{byte:02X}"), origin)?;
        }
    }
    Ok(out.finish())
}
