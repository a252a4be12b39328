//! Regular expressions before they are compiled: mistakes are found with their place.

use regex_syntax::ast::{self, Ast, ClassSetItem, Span, parse::Parser};
use regex_syntax::hir::translate::Translator;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::MOST_REGEX_BYTES;

/// Whose meaning a regular expression has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// That of Rust's crate `regex`.
    Rust,
    /// That of ECMA-262, which JSON Schemas ask for: what means something else there is refused.
    Ecma,
}

/// What is wrong with a regular expression, if anything is: where, unless everywhere, and what.
pub(super) fn mistake(pattern: &str, dialect: Dialect) -> Option<(String, String)> {
    if pattern.len() > MOST_REGEX_BYTES {
        let problem =
            format!("{} bytes are more than the {MOST_REGEX_BYTES} that are allowed", pattern.len());
        return Some((String::new(), problem));
    }
    let at = |span: &Span, problem: String| {
        Some((format!("line {}, column {}", span.start.line, span.start.column), problem))
    };
    let tree = match Parser::new().parse(pattern) {
        Ok(tree) => tree,
        Err(error) => return at(error.span(), error.kind().to_string()),
    };
    if let Err(error) = Translator::new().translate(pattern, &tree) {
        return at(error.span(), error.kind().to_string());
    }
    match ast::visit(&tree, Search { pattern, dialect }) {
        Ok(()) => None,
        Err((span, problem)) => at(&span, problem.to_owned()),
    }
}

/// Looks for what is read without complaint and cannot be used.
struct Search<'a> {
    pattern: &'a str,
    dialect: Dialect,
}

impl ast::Visitor for Search<'_> {
    type Output = ();
    type Err = (Span, &'static str);

    fn finish(self) -> Result<(), Self::Err> {
        Ok(())
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), Self::Err> {
        match tree {
            Ast::Assertion(assertion) if is_word_boundary(&assertion.kind) => {
                Err((assertion.span, "word boundaries are not supported"))
            }
            Ast::ClassBracketed(_) | Ast::ClassUnicode(_) if self.is_empty(tree) => {
                Err((*tree.span(), "no character is of this class"))
            }
            _ => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Ascii(class) if self.dialect == Dialect::Ecma => {
                Err((class.span, "classes by name are not in ECMA-262"))
            }
            ClassSetItem::Bracketed(class) if self.dialect == Dialect::Ecma => {
                Err((class.span, "classes within classes are not in ECMA-262: a bracket needs a backslash"))
            }
            _ => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, op: &ast::ClassSetBinaryOp) -> Result<(), Self::Err> {
        match self.dialect {
            Dialect::Ecma => {
                Err((op.span, "&&, -- and ~~ do not combine classes in ECMA-262: they need a backslash"))
            }
            Dialect::Rust => Ok(()),
        }
    }
}

impl Search<'_> {
    fn is_empty(&self, class: &Ast) -> bool {
        let class = Translator::new().translate(self.pattern, class);
        class.is_ok_and(|class| class == Hir::fail())
    }
}

fn is_word_boundary(kind: &ast::AssertionKind) -> bool {
    use ast::AssertionKind::{EndLine, EndText, StartLine, StartText};
    !matches!(kind, StartLine | EndLine | StartText | EndText)
}

/// Whether somewhere in a regular expression only characters of a kind will do.
pub(super) fn needs(pattern: &str, kind: fn(char) -> bool) -> bool {
    regex_syntax::parse(pattern).is_ok_and(|tree| needed(&tree, kind))
}

/// The same for what it means; expressions are not nested so deeply that the stack would not do.
fn needed(tree: &Hir, kind: fn(char) -> bool) -> bool {
    match tree.kind() {
        HirKind::Literal(text) => text.0.iter().any(|&byte| byte.is_ascii() && kind(char::from(byte))),
        HirKind::Class(Class::Unicode(class)) => {
            // All are ASCII, or some are not of the kind.
            let all = |range: &regex_syntax::hir::ClassUnicodeRange| {
                range.end().is_ascii() && (range.start()..=range.end()).all(kind)
            };
            !class.ranges().is_empty() && class.iter().all(all)
        }
        HirKind::Repetition(inner) => inner.min > 0 && needed(&inner.sub, kind),
        HirKind::Capture(inner) => needed(&inner.sub, kind),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(|part| needed(part, kind)),
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_have_their_line_and_column() {
        assert_eq!(mistake("a/b\\d+(?:x|y)*", Dialect::Rust), None);
        let place = |pattern: &str| mistake(pattern, Dialect::Rust).unwrap();
        assert_eq!(place("a(b"), ("line 1, column 2".to_owned(), "unclosed group".to_owned()));
        assert_eq!(place("a\n[b").0, "line 2, column 1");
        let nested = "(".repeat(1000) + &")".repeat(1000);
        assert!(place(&nested).1.contains("nest"), "{}", place(&nested).1);
        assert_eq!(place(&"a".repeat(MOST_REGEX_BYTES + 1)).0, "");
    }

    #[test]
    fn what_is_read_and_cannot_be_used_has_its_place_too() {
        for (pattern, column, problem) in [
            ("ab\\p{Foo}", 3, "Unicode property not found"),
            ("a[^\\x00-\\U0010FFFF]", 2, "no character is of this class"),
            ("a\\bc", 2, "word boundaries are not supported"),
        ] {
            let expected = (format!("line 1, column {column}"), problem.to_owned());
            assert_eq!(mistake(pattern, Dialect::Rust), Some(expected), "{pattern}");
        }
    }

    #[test]
    fn what_means_something_else_in_schemas_is_refused_there() {
        for (pattern, column) in
            [("^[[:digit:]]+$", 3), ("x[a-z&&b]", 3), ("[a-z--b]", 2), ("[a~~b]", 2), ("[a[b]]", 3)]
        {
            assert_eq!(mistake(pattern, Dialect::Rust), None, "{pattern}");
            let (place, problem) = mistake(pattern, Dialect::Ecma).unwrap();
            assert_eq!(place, format!("line 1, column {column}"), "{pattern}");
            assert!(problem.contains("ECMA-262"), "{problem}");
        }
        assert_eq!(mistake("^[a\\[\\-&~-]+$", Dialect::Ecma), None);
    }

    #[test]
    fn characters_that_are_needed_are_told_from_those_that_may_come() {
        let is_a = |c: char| c == 'a';
        for pattern in ["ba", "[a]", "(bb|a)x", "a{2}", "(?:a+)"] {
            assert!(needs(pattern, is_a), "{pattern}");
        }
        for pattern in ["b", "[ab]", ".", "b?", "[^b]+", "A"] {
            assert!(!needs(pattern, is_a), "{pattern}");
        }
    }
}
