//! Regular expressions before they are compiled: mistakes are found with their place.

use regex_syntax::ast::{self, Ast, Span, parse::Parser};
use regex_syntax::hir::translate::Translator;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::MOST_REGEX_BYTES;

/// How often something may be repeated by number: the engine takes each time apart.
const MOST_TIMES: u64 = 1 << 16;
/// The same for repetitions within repetitions.
const MOST_TIMES_TOGETHER: u64 = 1 << 24;

/// Where, unless everywhere, and what.
pub(super) type Mistake = (String, String);

pub(super) fn place(span: &Span) -> String {
    format!("line {}, column {}", span.start.line, span.start.column)
}

/// What is wrong with a regular expression, if anything is.
pub(super) fn mistake(pattern: &str) -> Option<Mistake> {
    if pattern.len() > MOST_REGEX_BYTES {
        let problem =
            format!("{} bytes are more than the {MOST_REGEX_BYTES} that are allowed", pattern.len());
        return Some((String::new(), problem));
    }
    let at = |span: &Span, problem: String| Some((place(span), problem));
    let tree = match Parser::new().parse(pattern) {
        Ok(tree) => tree,
        Err(error) => return at(error.span(), error.kind().to_string()),
    };
    if let Err(error) = Translator::new().translate(pattern, &tree) {
        return at(error.span(), error.kind().to_string());
    }
    match ast::visit(&tree, Search { pattern, times: vec![1] }) {
        Ok(()) => None,
        Err((span, problem)) => at(&span, problem.to_owned()),
    }
}

/// The parts of an expression that could be too much on their own, with their places, the smallest first.
pub(super) fn parts(pattern: &str) -> Vec<(String, &str)> {
    let Ok(tree) = Parser::new().parse(pattern) else { return Vec::new() };
    let mut spans = ast::visit(&tree, Parts(Vec::new())).unwrap_or_else(|never| match never {});
    spans.sort_by_key(|span| span.end.offset - span.start.offset);
    spans.iter().map(|span| (place(span), &pattern[span.start.offset..span.end.offset])).collect()
}

struct Parts(Vec<Span>);

impl ast::Visitor for Parts {
    type Output = Vec<Span>;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<Vec<Span>, Self::Err> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), Self::Err> {
        if matches!(tree, Ast::Repetition(_) | Ast::Group(_) | Ast::Alternation(_)) {
            self.0.push(*tree.span());
        }
        Ok(())
    }
}

/// Looks for what is read without complaint and cannot be used.
struct Search<'a> {
    pattern: &'a str,
    /// How often what is read now may come, by numbers: all repetitions around it together.
    times: Vec<u64>,
}

impl ast::Visitor for Search<'_> {
    type Output = ();
    type Err = (Span, &'static str);

    fn finish(self) -> Result<(), Self::Err> {
        Ok(())
    }

    fn visit_post(&mut self, tree: &Ast) -> Result<(), Self::Err> {
        if let Ast::Repetition(_) = tree {
            self.times.pop();
        }
        Ok(())
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), Self::Err> {
        match tree {
            Ast::Assertion(assertion) if is_word_boundary(&assertion.kind) => {
                Err((assertion.span, "word boundaries are not supported"))
            }
            Ast::Repetition(repetition) => {
                let own = u64::from(most(&repetition.op.kind).max(1));
                let times = self.times.last().map_or(own, |around| around.saturating_mul(own));
                self.times.push(times);
                if own > MOST_TIMES {
                    return Err((repetition.op.span, "more than 65536 times are too many"));
                }
                if times > MOST_TIMES_TOGETHER {
                    return Err((
                        repetition.op.span,
                        "with those around it, more than 16777216 times are too many",
                    ));
                }
                Ok(())
            }
            Ast::ClassBracketed(_) | Ast::ClassUnicode(_) if self.is_empty(tree) => {
                Err((*tree.span(), "no character is of this class"))
            }
            _ => Ok(()),
        }
    }
}

impl Search<'_> {
    fn is_empty(&self, class: &Ast) -> bool {
        let class = Translator::new().translate(self.pattern, class);
        class.is_ok_and(|class| class == Hir::fail())
    }
}

/// The number that bounds a repetition, from above if anything does.
fn most(kind: &ast::RepetitionKind) -> u32 {
    use ast::{
        RepetitionKind::Range,
        RepetitionRange::{AtLeast, Bounded, Exactly},
    };
    match *kind {
        Range(Exactly(times) | AtLeast(times) | Bounded(_, times)) => times,
        _ => 0,
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
        assert_eq!(mistake("a/b\\d+(?:x|y)*"), None);
        let place = |pattern: &str| mistake(pattern).unwrap();
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
            ("ab(c{1000000})", 5, "more than 65536 times are too many"),
            ("(a{9999}b{9}){9,9999}", 3, "with those around it, more than 16777216 times are too many"),
        ] {
            let expected = (format!("line 1, column {column}"), problem.to_owned());
            assert_eq!(mistake(pattern), Some(expected), "{pattern}");
        }
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
