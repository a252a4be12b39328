//! Pieces of Lark, as llguidance reads it.

use std::fmt::Write;

use serde_json::Value;

use super::{Language, schema};
use crate::Result;

/// Brackets within brackets, before reading them could exhaust the stack.
const DEEPEST: usize = 200;

/// Names, literals and expressions in a grammar: more take the engine seconds to read, and then it takes few of such grammars.
const MOST_ITEMS: usize = 20_000;

/// A text as a literal.
pub(super) fn literal(text: &str) -> String {
    let mut literal = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => literal.extend(['\\', c]),
            ' '..='~' => literal.push(c),
            // Escapes are those of JSON: UTF-16, four digits each.
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(literal, "\\u{unit:04x}");
                }
            }
        }
    }
    literal.push('"');
    literal
}

/// A text as part of a regular expression between slashes.
pub(super) fn escaped(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$#&-~/".contains(c);
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            c if special(c) => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The same grammar with the schemas in it (`%json {...}`) checked and written as all schemas are. Lines stay where they are. A
/// grammar that is too large is refused.
pub(super) fn with_checked_schemas(grammar: &str) -> Result<String> {
    const KEYWORD: &str = "%json";
    let mut checked = String::new();
    let (mut at, mut items) = (0, 0);
    while let Some(c) = grammar[at..].chars().next() {
        let rest = &grammar[at..];
        items += usize::from(matches!(c, '"' | '/' | '<') || is_name(c));
        if items > MOST_ITEMS {
            let problem = format!("names, literals and expressions are more than {MOST_ITEMS}");
            return Err(Language::Lark.error(place(&grammar[..at]), problem));
        }
        let length = match c {
            '"' => quoted(rest, '"', &['"', '\n']),
            '#' => line(rest),
            '/' if rest.starts_with("//") => line(rest),
            '/' => quoted(rest, '/', &['/']),
            '<' => token(rest),
            '%' if rest.starts_with(KEYWORD) => {
                let place = place(&grammar[..at]);
                let mut values =
                    serde_json::Deserializer::from_str(&rest[KEYWORD.len()..]).into_iter::<Value>();
                let value = values.next().and_then(Result::ok);
                let value =
                    value.ok_or_else(|| Language::Lark.error(&place, "a JSON Schema must follow %json"))?;
                let length = KEYWORD.len() + values.byte_offset();
                let schema = schema::prepare_at(&value, &format!("{place}, #"))?.to_string();
                // A schema is an object now.
                let lines = rest[..length].matches('\n').count();
                checked += &format!("{KEYWORD} {{{}{}", "\n".repeat(lines), &schema[1..]);
                at += length;
                continue;
            }
            c if is_name(c) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        checked.push_str(&rest[..length]);
        at += length;
    }
    Ok(checked)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of what stands between quotes, with them.
fn quoted(text: &str, quote: char, ends: &[char]) -> usize {
    let mut escape = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escape => escape = false,
            '\\' => escape = true,
            c if c == quote => return at + c.len_utf8(),
            // It has no end.
            c if ends.contains(&c) => return at,
            _ => {}
        }
    }
    text.len()
}

/// The length of the rest of a line.
fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The length of a token's name, `<name>`, or of a bracket alone.
fn token(text: &str) -> usize {
    let inner = text[1..].find(|c: char| c == '<' || c == '>' || c.is_whitespace());
    match inner {
        Some(end) if end > 0 && text[1 + end..].starts_with('>') => end + 2,
        _ => 1,
    }
}

/// Where a text ends.
fn place(text: &str) -> String {
    let last = text.rsplit('\n').next().unwrap_or_default();
    format!("line {}, column {}", text.matches('\n').count() + 1, last.chars().count() + 1)
}

/// Whether the first rule of a grammar is written as GBNF has it, with `::=`.
pub(super) fn begins_as_gbnf(grammar: &str) -> bool {
    let mut lines = grammar.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("//"));
    let first = first.unwrap_or_default();
    let name = first.find(|c: char| !(c.is_alphanumeric() || "_-?!".contains(c))).unwrap_or(first.len());
    match first[name..].trim_start() {
        _ if first.starts_with('%') => false,
        rest if rest.starts_with("::=") => true,
        rest if name > 0 && rest.starts_with([':', '.', '[', '{']) => false,
        // It is wrong in either notation.
        _ => grammar.contains("::="),
    }
}

/// Refuses brackets nested so deeply that reading them would exhaust the stack.
pub(super) fn check_nesting(grammar: &str) -> Result<()> {
    let mut depth = 0usize;
    for (number, line) in grammar.lines().enumerate() {
        let mut quote = None;
        let mut escape = false;
        for (column, c) in line.chars().enumerate() {
            match (quote, c) {
                _ if escape => escape = false,
                (Some(_), '\\') => escape = true,
                (Some(open), c) if c == open => quote = None,
                (Some(_), _) => {}
                (None, '"' | '/') => quote = Some(c),
                (None, '(' | '[' | '{') => depth += 1,
                (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
                (None, _) => {}
            }
            if depth > DEEPEST {
                let place = format!("line {}, column {}", number + 1, column + 1);
                return Err(Language::Lark.error(place, format!("brackets are nested deeper than {DEEPEST}")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_plain_ascii() {
        assert_eq!(literal("a\"\\\n"), r#""a\"\\\u000a""#);
        assert_eq!(literal("é😀"), r#""\u00e9\ud83d\ude00""#);
    }

    #[test]
    fn texts_mean_themselves_in_expressions() {
        assert_eq!(escaped("</a>[x]\n\\"), r"<\/a>\[x\]\n\\");
    }

    #[test]
    fn schemas_within_are_checked_where_they_stand() {
        let checked = with_checked_schemas(
            "start: %json {\n \"format\": \"date\"} \"%json\" // %json\n# %json\nA: /%json\\/\"/",
        )
        .unwrap();
        assert!(checked.starts_with("start: %json {\n\"format\"") && checked.contains("allOf"), "{checked}");
        assert!(checked.ends_with("} \"%json\" // %json\n# %json\nA: /%json\\/\"/"), "{checked}");
        for (grammar, problem) in [
            (
                "start: %json {\"not\": {}}",
                "JSON Schema, line 1, column 8, #/not: the keyword is not supported",
            ),
            (
                "start: <\"> %json {\"not\": {}} <\">",
                "JSON Schema, line 1, column 12, #/not: the keyword is not supported",
            ),
            (
                "a: \"b\"\n  %json 1 {}",
                "JSON Schema, line 2, column 3, #: a schema must be an object or a boolean",
            ),
            ("a: %json {", "Lark grammar, line 1, column 4: a JSON Schema must follow %json"),
        ] {
            assert_eq!(with_checked_schemas(grammar).unwrap_err().to_string(), problem);
        }
    }

    #[test]
    fn what_is_too_large_is_refused_where_it_becomes_so() {
        let words = "\"a\"\n".repeat(MOST_ITEMS);
        let error = with_checked_schemas(&format!("start: {words}")).unwrap_err().to_string();
        assert_eq!(
            error,
            "Lark grammar, line 20000, column 1: names, literals and expressions are more than 20000"
        );
        let schema = serde_json::json!({"enum": (0..30_000).map(|i| i.to_string()).collect::<Vec<_>>()});
        assert!(with_checked_schemas(&format!("start: %json {schema}")).is_ok());
    }

    #[test]
    fn the_first_rule_shows_the_notation() {
        for grammar in
            ["root ::= \"a\"", "# start: x\n\n  root::=x", "root-2 ::= \"start: x\"", "?? root ::= x"]
        {
            assert!(begins_as_gbnf(grammar), "{grammar}");
        }
        for grammar in [
            "start: \"::=\"",
            "// root ::= x\nstart: a",
            "# ::=\n?a.2: /::=/",
            "%ignore /::=/\nstart: a",
            "a[lazy]: \"::=\"",
            "a{x}: \"::=\"",
            "",
            "start",
        ] {
            assert!(!begins_as_gbnf(grammar), "{grammar}");
        }
    }

    #[test]
    fn deep_brackets_are_refused_with_their_place() {
        check_nesting("start: \"((((\" /[({]/ (\"a\")").unwrap();
        let deep = format!("start: \"x\"\na: {}", "(".repeat(1000));
        let error = check_nesting(&deep).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Lark grammar, line 2, column 204: brackets are nested deeper than 200"
        );
    }
}
