//! Pre-tokenizer patterns, matched in linear time.
//!
//! The patterns that models carry use one thing linear-time engines do not have: the lookahead in `\s+(?!\S)`,
//! "whitespace, but leave the last character to the word that follows". It is matched as `\s+`, and the last character
//! given back when something other than whitespace follows.

use std::ops::Range;

use regex_automata::Input;
use regex_automata::meta;
use regex_automata::util::syntax;

use super::error::{Result, TokenizerError};

/// An ordered choice of regular expressions, as Oniguruma (with which models are trained) understands them.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// One expression per alternative; the number of the one that matched tells what to do.
    alternatives: meta::Regex,
    give_back: Option<GiveBack>,
}

/// The alternative `\s+(?!\S)`.
#[derive(Debug)]
struct GiveBack {
    alternative: usize,
    /// Whether the next alternative matches a lone whitespace character, which this one then leaves to it.
    lone: bool,
}

/// Patterns that need more are refused. Those of known models need less than a quarter of it.
const NFA_BYTES: usize = 4 << 20;

const LOOKAHEAD: &str = r"\s+(?!\S)";

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self> {
        let refuse = || TokenizerError::unsupported(format!("the pre-tokenizer pattern {pattern:?}"));
        if has_possessive_quantifier(pattern) {
            return Err(refuse());
        }
        let mut alternatives = split_alternatives(pattern);
        let mut give_back = None;
        if let Some(at) = alternatives.iter().position(|&a| a == LOOKAHEAD) {
            let lone = match alternatives[at + 1..] {
                [] => false,
                [r"\s+" | r"\s"] => true,
                _ => return Err(refuse()),
            };
            // What follows can only match the lone character, which is done by hand.
            alternatives.truncate(at + 1);
            alternatives[at] = r"\s+";
            give_back = Some(GiveBack { alternative: at, lone });
        }
        let alternatives = meta::Regex::builder()
            // In Oniguruma's default syntax `^` and `$` match at every line.
            .syntax(syntax::Config::new().multi_line(true))
            .configure(meta::Config::new().nfa_size_limit(Some(NFA_BYTES)).hybrid_cache_capacity(4 << 20))
            .build_many(&alternatives)
            .map_err(|_| refuse())?;
        Ok(Self { alternatives, give_back })
    }

    /// Calls `found` with each match in `text`, from left to right. Empty matches are none.
    pub fn for_each_match(&self, text: &str, mut found: impl FnMut(Range<usize>)) {
        let mut at = 0;
        while at < text.len() {
            let Some(matched) = self.alternatives.search(&Input::new(text).range(at..)) else { return };
            let mut range = matched.range();
            if let Some(give_back) = &self.give_back
                && give_back.alternative == matched.pattern().as_usize()
                && range.end < text.len()
            {
                // `\s+` took all the whitespace there is: what follows is not whitespace.
                let last = text[range.clone()].chars().next_back().map_or(0, char::len_utf8);
                if range.len() > last {
                    range.end -= last;
                } else if !give_back.lone {
                    at = range.end;
                    continue;
                }
            }
            at = range.end;
            if range.is_empty() {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
            } else {
                found(range);
            }
        }
    }
}

/// Splits a pattern at the `|` that are outside of groups and classes.
fn split_alternatives(pattern: &str) -> Vec<&str> {
    let (mut alternatives, mut start, mut depth, mut class, mut escaped) =
        (Vec::new(), 0, 0usize, 0usize, false);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => class += 1,
            ']' => class = class.saturating_sub(1),
            _ if class > 0 => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => {
                alternatives.push(&pattern[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    alternatives.push(&pattern[start..]);
    alternatives
}

/// Whether a quantifier is followed by `+`, which Oniguruma takes for "never give back" and the engine for "again".
fn has_possessive_quantifier(pattern: &str) -> bool {
    // `named`: inside of `\p{L}`, whose closing brace ends no quantifier.
    let (mut class, mut escaped, mut quantified, mut named) = (0usize, false, false, false);
    for c in pattern.chars() {
        let mut quantifier = false;
        match c {
            _ if escaped => (escaped, named) = (false, matches!(c, 'p' | 'P' | 'x' | 'u')),
            '\\' => escaped = true,
            '[' => class += 1,
            ']' => class = class.saturating_sub(1),
            _ if class > 0 => {}
            '+' if quantified => return true,
            '?' if quantified => {}
            '+' | '*' | '?' => quantifier = true,
            '}' => quantifier = !std::mem::take(&mut named),
            _ => {}
        }
        quantified = quantifier;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

    fn matches(pattern: &str, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        Pattern::new(pattern).unwrap().for_each_match(text, |range| found.push(text[range].to_owned()));
        found
    }

    #[test]
    fn the_last_space_goes_to_the_word_that_follows() {
        assert_eq!(matches(GPT2, "a   b  "), ["a", "  ", " b", "  "]);
        assert_eq!(matches(GPT2, "a \u{3000}b\t\tc"), ["a", " ", "\u{3000}", "b", "\t", "\t", "c"]);
        assert_eq!(matches(GPT2, "it's \n\n 12"), ["it", "'s", " \n\n", " 12"]);
    }

    #[test]
    fn a_lone_space_matches_nothing_when_no_alternative_is_left() {
        assert_eq!(matches(r"\p{L}+|\s+(?!\S)", "a\tb\t\tc"), ["a", "b", "\t", "c"]);
    }

    #[test]
    fn alternatives_are_split_outside_of_groups_and_classes() {
        assert_eq!(split_alternatives(r"(?i:'s|'t)|[^|\]]|\||x"), [r"(?i:'s|'t)", r"[^|\]]", r"\|", "x"]);
    }

    #[test]
    fn what_cannot_be_matched_exactly_is_refused_by_name() {
        for pattern in [
            r"\p{L}++",
            r"\d{1,3}(?=(?:\d{3})*\b)",
            r"\s+(?!\S)|x",
            r"(a)\1",
            r"[^\n]?+\p{L}+",
            r"\p{N}{1,3}+",
        ] {
            let error = Pattern::new(pattern).unwrap_err().to_string();
            assert!(error.contains(&format!("{pattern:?}")), "{error}");
        }
        assert!(Pattern::new(r"\+*").is_ok() && Pattern::new(r"[+*+]+?").is_ok());
    }

    #[test]
    fn a_long_run_of_whitespace_takes_linear_time() {
        let text = format!("{}x", "\n".to_owned() + &" ".repeat(1_000_000));
        assert_eq!(matches(GPT2, &text).len(), 2);
    }
}
