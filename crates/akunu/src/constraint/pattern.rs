//! Regular expressions before they are compiled: mistakes are found with their place.

use regex_syntax::ast::parse::Parser;

use super::MOST_REGEX_BYTES;

/// What is wrong with a regular expression, if anything is: where, unless everywhere, and what.
pub(super) fn mistake(pattern: &str) -> Option<(String, String)> {
    if pattern.len() > MOST_REGEX_BYTES {
        let problem =
            format!("{} bytes are more than the {MOST_REGEX_BYTES} that are allowed", pattern.len());
        return Some((String::new(), problem));
    }
    let error = Parser::new().parse(pattern).err()?;
    let start = error.span().start;
    Some((format!("line {}, column {}", start.line, start.column), error.kind().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_have_their_line_and_column() {
        assert_eq!(mistake("a/b\\d+(?:x|y)*"), None);
        let place = |pattern: &str| mistake(pattern).unwrap();
        assert_eq!(place("a(b"), ("line 1, column 2".to_owned(), "unclosed group".to_owned()));
        assert_eq!(place("a\n[b").0, "line 2, column 1");
        let nested = "(".repeat(1000) + &")".repeat(1000);
        assert!(place(&nested).1.contains("nest"), "{}", place(&nested).1);
        assert_eq!(place(&"a".repeat(MOST_REGEX_BYTES + 1)).0, "");
    }
}
