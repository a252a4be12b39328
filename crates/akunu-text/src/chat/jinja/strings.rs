//! The methods of Python's `str`.

use std::ops::Range;
use std::rc::Rc;
use std::sync::OnceLock;

use super::args::{Args, flag, int, required, text};
use super::budget::Budget;
use super::error::{Result, fail};
use super::format::format_braces;
use super::text::{Origin, Text, TextBuilder};
use super::value::Value;
use crate::tokenizer::charset::CharSet;

/// Every method Python's `str` has, so that `text.method` is found even where calling it is not supported.
#[rustfmt::skip]
const METHODS: &[&str] = &[
    "capitalize", "casefold", "center", "count", "encode", "endswith", "expandtabs", "find", "format",
    "format_map", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower",
    "isnumeric", "isprintable", "isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip", "maketrans",
    "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit",
    "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "translate", "upper", "zfill",
];

pub(super) fn has_method(name: &str) -> bool {
    METHODS.contains(&name)
}

/// Calls `own.name(args)`.
pub(super) fn call(own: &Text, name: &str, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    budget.scan(own.len())?;
    let chars = own.as_str();
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let [set] = args.bind(name, ["chars"])?;
            let ends = match name {
                "lstrip" => Ends { left: true, right: false },
                "rstrip" => Ends { left: false, right: true },
                _ => Ends { left: true, right: true },
            };
            strip(own, set.as_ref(), ends, budget).map(Value::Str)
        }
        "split" | "rsplit" => {
            let [separator, limit] = args.bind(name, ["sep", "maxsplit"])?;
            let limit = int(limit, name, "maxsplit")?.and_then(|limit| usize::try_from(limit).ok());
            split(own, separator.as_ref(), limit, name == "rsplit", budget)
        }
        "splitlines" => {
            let [keep] = args.bind(name, ["keepends"])?;
            texts(own, line_ranges(chars, flag(keep, false)), budget)
        }
        "startswith" | "endswith" => {
            let [affix, start, end] = args.bind(name, ["prefix", "start", "end"])?;
            let Some(window) = window(chars, start, end)? else { return Ok(Value::Bool(false)) };
            let found = |affix: &Value| match affix {
                Value::Str(affix) if name == "startswith" => {
                    Ok(chars[window.clone()].starts_with(affix.as_str()))
                }
                Value::Str(affix) => Ok(chars[window.clone()].ends_with(affix.as_str())),
                other => fail(format!("{name}: expected a str, not {}", other.type_name())),
            };
            let affix = required(affix, name, "prefix")?;
            let Value::Tuple(affixes) = &affix else { return found(&affix).map(Value::Bool) };
            for affix in &affixes.items {
                if found(affix)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        "find" | "rfind" | "index" | "rindex" | "count" => search(own, name, args),
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"])?;
            let (old, new) = (text(old, name, "old")?, text(new, name, "new")?);
            let count = int(count, name, "count")?.and_then(|count| usize::try_from(count).ok());
            replace(own, &old, &new, count, budget).map(Value::Str)
        }
        "join" => {
            let [items] = args.bind(name, ["iterable"])?;
            let items = required(items, name, "iterable")?.items(budget)?;
            if let Some(other) = items.iter().find(|item| item.as_str().is_none()) {
                return fail(format!("join: expected str items, found {}", other.type_name()));
            }
            join(
                own,
                items.iter().filter_map(|item| if let Value::Str(t) = item { Some(t) } else { None }),
                budget,
            )
            .map(Value::Str)
        }
        "format" => format_braces(own, &args, budget).map(Value::Str),
        "upper" | "lower" | "title" | "capitalize" | "swapcase" => {
            args.bind::<0>(name, [])?;
            change_case(own, name, budget).map(Value::Str)
        }
        "partition" | "rpartition" => {
            let [separator] = args.bind(name, ["sep"])?;
            let separator = text(separator, name, "sep")?;
            if separator.is_empty() {
                return fail("empty separator");
            }
            let last = name == "rpartition";
            let found = if last { chars.rfind(separator.as_str()) } else { chars.find(separator.as_str()) };
            let (before, after) = match found {
                Some(at) => (at, at + separator.len()),
                None if last => (0, 0),
                None => (own.len(), own.len()),
            };
            let parts = [0..before, before..after, after..own.len()];
            let parts = parts.into_iter().map(|part| own.slice(part, budget).map(Value::Str));
            Value::tuple(parts.collect::<Result<_>>()?, budget)
        }
        "removeprefix" | "removesuffix" => {
            let [affix] = args.bind(name, ["affix"])?;
            let affix = text(affix, name, "affix")?;
            let range = match (name, affix.as_str()) {
                ("removeprefix", affix) if chars.starts_with(affix) => affix.len()..own.len(),
                ("removesuffix", affix) if chars.ends_with(affix) => 0..own.len() - affix.len(),
                _ => 0..own.len(),
            };
            own.slice(range, budget).map(Value::Str)
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = args.bind(name, ["width", "fillchar"])?;
            let width = int(width, name, "width")?.unwrap_or(0);
            let fill = fill.map_or(Ok(Text::template(" ")), |fill| text(Some(fill), name, "fillchar"))?;
            pad(own, name, width, &fill, budget).map(Value::Str)
        }
        "zfill" => {
            let [width] = args.bind(name, ["width"])?;
            let width = int(width, name, "width")?.unwrap_or(0);
            let sign = usize::from(chars.starts_with(['+', '-']));
            let digits = own.slice(sign..own.len(), budget)?;
            let digits = pad(&digits, "rjust", width - sign as i128, &Text::template("0"), budget)?;
            let mut out = TextBuilder::new(budget);
            out.push_slice(own, 0..sign)?;
            out.push(&digits)?;
            Ok(Value::Str(out.finish()))
        }
        _ => {
            args.bind::<0>(name, [])?;
            let Some(answer) = classify(chars, name) else {
                return fail(format!("the method str.{name} is not supported"));
            };
            Ok(Value::Bool(answer))
        }
    }
}

/// Which ends of a text to work on.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) left: bool,
    pub(super) right: bool,
}

/// Python's white space: Unicode's and the four ASCII separators.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub(super) fn strip(own: &Text, set: Option<&Value>, ends: Ends, budget: &Rc<Budget>) -> Result<Text> {
    let set = match set {
        None | Some(Value::None) => None,
        Some(Value::Str(set)) => Some(set.as_str()),
        Some(other) => return fail(format!("strip: expected a str, not {}", other.type_name())),
    };
    let strips = |c: char| set.map_or_else(|| is_space(c), |set| set.contains(c));
    let chars = own.as_str();
    let mut rest = chars;
    if ends.left {
        rest = rest.trim_start_matches(strips);
    }
    let start = chars.len() - rest.len();
    if ends.right {
        rest = rest.trim_end_matches(strips);
    }
    own.slice(start..start + rest.len(), budget)
}

fn texts(own: &Text, ranges: Vec<Range<usize>>, budget: &Rc<Budget>) -> Result<Value> {
    let parts = ranges.into_iter().map(|range| own.slice(range, budget).map(Value::Str));
    Value::list(parts.collect::<Result<_>>()?, budget)
}

fn split(
    own: &Text,
    separator: Option<&Value>,
    limit: Option<usize>,
    from_right: bool,
    budget: &Rc<Budget>,
) -> Result<Value> {
    let chars = own.as_str();
    // Where the separators are, in order.
    let gaps: Vec<Range<usize>> = match separator {
        None | Some(Value::None) => return split_at_space(own, limit, from_right, budget),
        Some(Value::Str(separator)) if separator.is_empty() => return fail("empty separator"),
        Some(Value::Str(separator)) => {
            let limit = limit.unwrap_or(usize::MAX);
            let found: Vec<usize> = if from_right {
                let mut found: Vec<_> =
                    chars.rmatch_indices(separator.as_str()).take(limit).map(|(at, _)| at).collect();
                found.reverse();
                found
            } else {
                chars.match_indices(separator.as_str()).take(limit).map(|(at, _)| at).collect()
            };
            found.into_iter().map(|at| at..at + separator.len()).collect()
        }
        Some(other) => return fail(format!("split: expected a str, not {}", other.type_name())),
    };
    budget.make(gaps.len() * size_of::<Value>())?;
    let starts = std::iter::once(0).chain(gaps.iter().map(|gap| gap.end));
    let ends = gaps.iter().map(|gap| gap.start).chain([chars.len()]);
    texts(own, starts.zip(ends).map(|(start, end)| start..end).collect(), budget)
}

/// Splits at runs of white space, which also fall away at both ends.
fn split_at_space(own: &Text, limit: Option<usize>, from_right: bool, budget: &Rc<Budget>) -> Result<Value> {
    let chars = own.as_str();
    let mut words: Vec<Range<usize>> = Vec::new();
    for (at, c) in chars.char_indices() {
        if is_space(c) {
            continue;
        }
        match words.last_mut() {
            Some(word) if word.end == at => word.end = at + c.len_utf8(),
            _ => words.push(at..at + c.len_utf8()),
        }
    }
    budget.make(words.len() * size_of::<Value>())?;
    if let Some(limit) = limit
        && words.len() > limit
    {
        if from_right {
            let kept = words.len() - limit;
            // The uncut rest keeps white space at the start of the text.
            let rest = 0..words.get(kept - 1).map_or(0, |word| word.end);
            words.splice(..kept, std::iter::once(rest));
        } else {
            let rest = words[limit].start..chars.len();
            words.truncate(limit);
            words.push(rest);
        }
    }
    texts(own, words, budget)
}

/// The lines of a text, with or without the line ends.
pub(super) fn line_ranges(chars: &str, keep_ends: bool) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut places = chars.char_indices().peekable();
    while let Some((at, c)) = places.next() {
        let ends_line = matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
        if !ends_line {
            continue;
        }
        let mut next = at + c.len_utf8();
        if c == '\r' && places.next_if(|(_, c)| *c == '\n').is_some() {
            next += 1;
        }
        lines.push(start..if keep_ends { next } else { at });
        start = next;
    }
    if start < chars.len() {
        lines.push(start..chars.len());
    }
    lines
}

/// The bytes between two character positions given as Python gives them; none if they cross.
fn window(chars: &str, start: Option<Value>, end: Option<Value>) -> Result<Option<Range<usize>>> {
    let (start, end) = (int(start, "str method", "start")?, int(end, "str method", "end")?);
    if start.is_none() && end.is_none() {
        return Ok(Some(0..chars.len()));
    }
    let count = chars.chars().count() as i128;
    let place = |at: i128| if at < 0 { (at + count).max(0) } else { at };
    let (start, end) = (place(start.unwrap_or(0)), place(end.unwrap_or(count)).min(count));
    if start > end {
        return Ok(None);
    }
    Ok(Some(byte_at(chars, start as usize)..byte_at(chars, end as usize)))
}

/// The byte offset of a character position.
pub(super) fn byte_at(chars: &str, position: usize) -> usize {
    chars.char_indices().nth(position).map_or(chars.len(), |(at, _)| at)
}

fn search(own: &Text, name: &str, args: Args) -> Result<Value> {
    let [needle, start, end] = args.bind(name, ["sub", "start", "end"])?;
    let needle = text(needle, name, "sub")?;
    let chars = own.as_str();
    let window = window(chars, start, end)?;
    let part = window.clone().map_or("", |window| &chars[window]);
    if name == "count" {
        let count = match (&window, needle.is_empty()) {
            (None, _) => 0,
            (_, true) => part.chars().count() + 1,
            (_, false) => part.matches(needle.as_str()).count(),
        };
        return Ok(Value::int(count as i128));
    }
    let found = match name {
        "rfind" | "rindex" => part.rfind(needle.as_str()),
        _ => part.find(needle.as_str()),
    };
    match (found, &window) {
        (Some(at), Some(window)) => Ok(Value::int(chars[..window.start + at].chars().count() as i128)),
        _ if name.ends_with("index") => fail("substring not found"),
        _ => Ok(Value::int(-1)),
    }
}

pub(super) fn replace(
    own: &Text,
    old: &Text,
    new: &Text,
    count: Option<usize>,
    budget: &Rc<Budget>,
) -> Result<Text> {
    let limit = count.unwrap_or(usize::MAX);
    let mut out = TextBuilder::new(budget);
    let mut copied = 0;
    for (at, _) in own.as_str().match_indices(old.as_str()).take(limit) {
        budget.step()?;
        out.push_slice(own, copied..at)?;
        out.push(new)?;
        copied = at + old.len();
    }
    out.push_slice(own, copied..own.len())?;
    Ok(out.finish().as_markup(own.markup))
}

pub(super) fn join<'t>(
    separator: &Text,
    items: impl Iterator<Item = &'t Text>,
    budget: &Rc<Budget>,
) -> Result<Text> {
    let mut out = TextBuilder::new(budget);
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(separator)?;
        }
        out.push(item)?;
    }
    Ok(out.finish())
}

pub(super) fn change_case(own: &Text, name: &str, budget: &Rc<Budget>) -> Result<Text> {
    // Whether the character before the current one was a letter with case: where `title` starts a word.
    let mut inside_word = false;
    let mut first = true;
    match name {
        // Whole stretches, since a capital sigma depends on its neighbours.
        "upper" | "lower" => {
            let mut out = TextBuilder::new(budget);
            for (stretch, origin) in own.runs() {
                let changed = if name == "upper" { stretch.to_uppercase() } else { stretch.to_lowercase() };
                out.push_str(&changed, origin)?;
            }
            Ok(out.finish().as_markup(own.markup))
        }
        "swapcase" => own.map_chars(budget, |c| {
            if c.is_uppercase() { c.to_lowercase().collect::<Vec<_>>() } else { c.to_uppercase().collect() }
        }),
        "capitalize" => own.map_chars(budget, |c| {
            if std::mem::take(&mut first) {
                c.to_uppercase().collect::<Vec<_>>()
            } else {
                c.to_lowercase().collect()
            }
        }),
        _ => own.map_chars(budget, |c| {
            let starts_word = !std::mem::replace(&mut inside_word, c.is_lowercase() || c.is_uppercase());
            if starts_word { c.to_uppercase().collect::<Vec<_>>() } else { c.to_lowercase().collect() }
        }),
    }
}

/// Pads to `width` characters; `center` puts the odd one where CPython does.
pub(super) fn pad(own: &Text, name: &str, width: i128, fill: &Text, budget: &Rc<Budget>) -> Result<Text> {
    if fill.as_str().chars().count() != 1 {
        return fail("the fill character must be exactly one character long");
    }
    let length = own.as_str().chars().count() as i128;
    let Ok(missing @ 1..) = usize::try_from(width - length) else { return Ok(own.clone()) };
    let left = match name {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width as usize & 1),
    };
    budget.make(missing)?;
    budget.steps(missing)?;
    let mut out = TextBuilder::new(budget);
    for _ in 0..left {
        out.push(fill)?;
    }
    out.push(own)?;
    for _ in left..missing {
        out.push(fill)?;
    }
    Ok(out.finish())
}

/// The `is...` methods.
pub(super) fn classify(chars: &str, name: &str) -> Option<bool> {
    let all = |test: fn(char) -> bool| !chars.is_empty() && chars.chars().all(test);
    Some(match name {
        "isspace" => all(is_space),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isnumeric" => all(char::is_numeric),
        "isdigit" | "isdecimal" => all(is_decimal),
        "isascii" => chars.is_ascii(),
        "isupper" => chars.chars().any(char::is_uppercase) && !chars.chars().any(char::is_lowercase),
        "islower" => chars.chars().any(char::is_lowercase) && !chars.chars().any(char::is_uppercase),
        "isprintable" => chars.chars().all(super::repr::is_printable),
        _ => return None,
    })
}

fn is_decimal(c: char) -> bool {
    static DECIMAL: OnceLock<CharSet> = OnceLock::new();
    DECIMAL.get_or_init(|| CharSet::new(r"\p{Nd}")).contains(c)
}

/// HTML escaping as `markupsafe` does it.
pub(super) fn escape_html(own: &Text, budget: &Rc<Budget>) -> Result<Text> {
    if own.markup {
        return Ok(own.clone());
    }
    let mut out = TextBuilder::new(budget);
    for (c, origin) in own.chars() {
        match c {
            '&' => out.push_str("&amp;", origin)?,
            '<' => out.push_str("&lt;", origin)?,
            '>' => out.push_str("&gt;", origin)?,
            '\'' => out.push_str("&#39;", origin)?,
            '"' => out.push_str("&#34;", origin)?,
            c => out.push_char(c, origin)?,
        }
    }
    Ok(out.finish().as_markup(true))
}

/// A text of one origin, for results that have no stretches to copy from.
pub(super) fn plain(chars: &str, origin: Origin, budget: &Budget) -> Result<Text> {
    budget.make(chars.len())?;
    Ok(Text::new(chars, origin))
}
