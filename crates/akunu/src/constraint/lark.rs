//! Pieces of Lark, as llguidance reads it.

use std::fmt::Write;

use super::Language;
use crate::Result;

/// Brackets within brackets, before reading them could exhaust the stack.
const DEEPEST: usize = 200;

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
