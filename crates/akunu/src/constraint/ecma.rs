//! Regular expressions as ECMA-262 has them, which JSON Schemas ask for: written so that the engine, which reads those of
//! Rust's crate `regex`, understands the same by them. What would mean something else, or nothing, is refused.

use std::ops::Range;

use regex_syntax::ast::{self, Ast, ClassSetItem, Span, parse::Parser};

use super::pattern::{self, Mistake, place};

/// What `.` stands for: everything but the ends of lines.
const NO_LINE_END: &str = "[^\\n\\r\\x{2028}\\x{2029}]";
/// What `\s` stands for: white space and the ends of lines.
const SPACES: &str = "\\t\\n\\x0b\\x0c\\r \\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}";

/// The same expression for the engine, or what is wrong with it. Letters and digits (`\w`, `\d`) the engine itself takes for
/// those of ASCII.
pub(super) fn rewritten(pattern: &str) -> Result<String, Mistake> {
    if let Some(mistake) = pattern::mistake(pattern) {
        return Err(mistake);
    }
    let Ok(tree) = Parser::new().parse(pattern) else { return Ok(pattern.to_owned()) };
    let edits = ast::visit(&tree, Reading { pattern, edits: Vec::new() });
    let edits = edits.map_err(|(span, problem)| (place(&span), problem.to_owned()))?;
    let (mut written, mut copied) = (String::new(), 0);
    for (range, text) in edits {
        written.push_str(&pattern[copied..range.start]);
        written.push_str(&text);
        copied = range.end;
    }
    written.push_str(&pattern[copied..]);
    Ok(written)
}

/// Goes through an expression from left to right.
struct Reading<'a> {
    pattern: &'a str,
    /// What is written instead of which bytes.
    edits: Vec<(Range<usize>, String)>,
}

type Refused = (Span, &'static str);

impl ast::Visitor for Reading<'_> {
    type Output = Vec<(Range<usize>, String)>;
    type Err = Refused;

    fn finish(self) -> Result<Self::Output, Refused> {
        Ok(self.edits)
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), Refused> {
        match tree {
            Ast::Dot(span) => self.edit(span, NO_LINE_END.to_owned()),
            Ast::ClassPerl(class) => self.perl(class),
            Ast::ClassUnicode(class) => return braced(class),
            Ast::Literal(literal) => return known(literal),
            Ast::Assertion(assertion) => match assertion.kind {
                ast::AssertionKind::StartText => {
                    return Err((assertion.span, "\\A is not in ECMA-262: ^ is"));
                }
                ast::AssertionKind::EndText => {
                    return Err((assertion.span, "\\z is not in ECMA-262: $ is"));
                }
                _ => {}
            },
            Ast::Flags(flags) => return Err((flags.span, "flags within are not in ECMA-262")),
            Ast::Group(group) => return self.group(group),
            Ast::ClassBracketed(class) if self.is_empty(&class.span) => {
                return Err((class.span, "in ECMA-262 the bracket ends here: it needs a backslash"));
            }
            Ast::Repetition(repetition) if matches!(*repetition.ast, Ast::Repetition(_)) => {
                return Err((repetition.op.span, "there is nothing to repeat in ECMA-262"));
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Refused> {
        match item {
            ClassSetItem::Ascii(class) => Err((class.span, "classes by name are not in ECMA-262")),
            ClassSetItem::Bracketed(class) => {
                Err((class.span, "classes within classes are not in ECMA-262: a bracket needs a backslash"))
            }
            ClassSetItem::Perl(class) => {
                self.perl(class);
                Ok(())
            }
            ClassSetItem::Unicode(class) => braced(class),
            ClassSetItem::Literal(literal) => known(literal),
            ClassSetItem::Range(range) => known(&range.start).and_then(|()| known(&range.end)),
            ClassSetItem::Empty(_) | ClassSetItem::Union(_) => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, op: &ast::ClassSetBinaryOp) -> Result<(), Refused> {
        Err((op.span, "&&, -- and ~~ do not combine classes in ECMA-262: they need a backslash"))
    }
}

impl Reading<'_> {
    /// Whether a class ends where it begins.
    fn is_empty(&self, class: &Span) -> bool {
        let text = &self.pattern[class.start.offset..class.end.offset];
        text.starts_with("[]") || text.starts_with("[^]")
    }

    fn edit(&mut self, span: &Span, text: String) {
        self.edits.push((span.start.offset..span.end.offset, text));
    }

    fn perl(&mut self, class: &ast::ClassPerl) {
        if class.kind == ast::ClassPerlKind::Space {
            let not = if class.negated { "^" } else { "" };
            self.edit(&class.span, format!("[{not}{SPACES}]"));
        }
    }

    fn group(&self, group: &ast::Group) -> Result<(), Refused> {
        match &group.kind {
            ast::GroupKind::NonCapturing(flags) if !flags.items.is_empty() => {
                Err((flags.span, "flags within are not in ECMA-262"))
            }
            ast::GroupKind::CaptureName { starts_with_p: true, .. } => {
                Err((group.span, "names of groups are (?<...>) in ECMA-262"))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses characters that are written as ECMA-262 does not.
fn known(literal: &ast::Literal) -> Result<(), Refused> {
    use ast::{HexLiteralKind as Hex, LiteralKind as Kind, SpecialLiteralKind as Special};
    match literal.kind {
        Kind::Special(Special::Bell) | Kind::HexFixed(Hex::UnicodeLong) => {}
        Kind::HexBrace(Hex::X | Hex::UnicodeLong) => {}
        _ => return Ok(()),
    }
    Err((literal.span, "this escape is not in ECMA-262: \\xHH, \\uHHHH and \\u{H...} are"))
}

fn braced(class: &ast::ClassUnicode) -> Result<(), Refused> {
    match class.kind {
        ast::ClassUnicodeKind::OneLetter(_) => Err((class.span, "properties need braces in ECMA-262")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use regex_syntax::hir::{Class, HirKind};

    use super::*;

    /// Whether a class that is one expression holds a character.
    fn holds(pattern: &str, c: char) -> bool {
        match regex_syntax::parse(&rewritten(pattern).unwrap()).unwrap().kind() {
            HirKind::Class(Class::Unicode(class)) => {
                class.iter().any(|range| (range.start()..=range.end()).contains(&c))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn dots_leave_out_all_ends_of_lines() {
        for c in ['\n', '\r', '\u{2028}', '\u{2029}'] {
            assert!(!holds(".", c), "{c:?}");
        }
        assert!(holds(".", '\u{85}') && holds(".", '\u{b}') && holds(".", '日'));
        assert_eq!(rewritten("[.]\\.").unwrap(), "[.]\\.");
    }

    #[test]
    fn spaces_are_those_of_the_standard() {
        let spaces =
            "\t\n\u{b}\u{c}\r \u{a0}\u{1680}\u{2000}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";
        for c in spaces.chars() {
            assert!(
                holds("\\s", c) && holds("[x\\s]", c) && !holds("\\S", c) && !holds("[x\\S]", c),
                "{c:?}"
            );
        }
        for c in ['\u{85}', '\u{1c}', '\u{200b}', 'a'] {
            assert!(
                !holds("\\s", c) && !holds("[x\\s]", c) && holds("\\S", c) && holds("[^\\s]", c),
                "{c:?}"
            );
        }
    }

    #[test]
    fn what_means_something_else_in_schemas_is_refused_there() {
        for (pattern, column) in [
            ("^[[:digit:]]+$", 3),
            ("x[a-z&&b]", 3),
            ("[a-z--b]", 2),
            ("[a~~b]", 2),
            ("[a[b]]", 3),
            ("\\Aab", 1),
            ("ab\\z", 3),
            ("(?i)ab", 1),
            ("a(?s:.)", 4),
            ("(?P<n>a)", 1),
            ("a+*", 3),
            ("x[]a]", 2),
            ("x[^]a]", 2),
            ("\\x{41}", 1),
            ("[\\U00000041-Z]", 2),
            ("\\a", 1),
            ("\\pL", 1),
        ] {
            assert_eq!(pattern::mistake(pattern), None, "{pattern}");
            let (place, problem) = rewritten(pattern).unwrap_err();
            assert_eq!(place, format!("line 1, column {column}"), "{pattern}: {problem}");
            assert!(problem.contains("ECMA-262"), "{problem}");
        }
        for pattern in
            ["^[a\\[\\-&~-]+$", "(?:a|b){2,3}?", "(?<n>a)", "\\u0041\\x41\\u{1F600}", "\\p{L}\\d\\w"]
        {
            assert_eq!(rewritten(pattern).as_deref(), Ok(pattern));
        }
    }
}
