//! Pre-tokenizer patterns, matched in linear time.
//!
//! The patterns that models carry use one thing linear-time engines do not have: the lookahead in `\s+(?!\S)`,
//! "whitespace, but leave the last character to the word that follows". It is matched as `\s+`, and the last character
//! given back when something other than whitespace follows.
//!
//! One search takes linear time, but many may look at the same text: with `a[^b]*b|a`, each `a` in a row of them looks for
//! a `b` until the text ends. The automaton is therefore driven by hand, and what is read beyond the matches is limited.

use std::fmt;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::pool::Pool;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use super::error::{Result, TokenizerError};

/// An ordered choice of regular expressions, as Oniguruma (with which models are trained) understands them.
pub(crate) struct Pattern {
    /// One expression per alternative; the number of the one that matched tells what to do.
    alternatives: Box<DFA>,
    /// The states met so far, for each thread that matches at the same time.
    states: Pool<Cache, NewCache>,
    give_back: Option<GiveBack>,
}

type NewCache = Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// The alternative `\s+(?!\S)`.
#[derive(Debug)]
struct GiveBack {
    alternative: usize,
    /// Whether the next alternative matches a lone whitespace character, which this one then leaves to it.
    lone: bool,
}

/// Patterns that need more are refused. Those of known models need less than a quarter of it.
const NFA_BYTES: usize = 4 << 20;

/// Memory for the states of the automaton; when it is full, they are forgotten and found anew.
const STATES_BYTES: usize = 4 << 20;

const LOOKAHEAD: &str = r"\s+(?!\S)";

/// How many bytes may be read beyond the ends of matches, or in vain, for each byte of a text. The patterns of models
/// read the character after a match, and a contraction at most.
const BEYOND_PER_BYTE: usize = 32;

/// How many each search may read when those are used up.
const BEYOND_AT_LEAST: usize = 64;

/// A match: which alternative, and where it ends.
type Match = (usize, usize);

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
        let alternatives = DFA::builder()
            // In Oniguruma's default syntax `^` and `$` match at every line.
            .syntax(syntax::Config::new().multi_line(true))
            .thompson(thompson::Config::new().nfa_size_limit(Some(NFA_BYTES)))
            .configure(DFA::config().cache_capacity(STATES_BYTES).skip_cache_capacity_check(true))
            .build_many(&alternatives)
            .map_err(|_| refuse())?;
        let automaton = alternatives.clone();
        let states = Pool::new(Box::new(move || automaton.create_cache()) as NewCache);
        Ok(Self { alternatives: Box::new(alternatives), states, give_back })
    }

    /// Calls `found` with each match in `text`, from left to right. Empty matches are none.
    pub fn for_each_match(&self, text: &str, mut found: impl FnMut(Range<usize>)) {
        let mut states = self.states.get();
        let mut beyond = BEYOND_PER_BYTE * text.len();
        let mut at = 0;
        while let Some(next) = text[at..].chars().next() {
            let matched = self.match_at(&mut states, text, at, &mut beyond);
            let Some((alternative, mut end)) = matched.filter(|&(_, end)| end > at) else {
                at += next.len_utf8();
                continue;
            };
            if let Some(give_back) = &self.give_back
                && give_back.alternative == alternative
                && end < text.len()
            {
                // `\s+` took all the whitespace there is: what follows is not whitespace.
                let last = text[at..end].chars().next_back().map_or(0, char::len_utf8);
                if end - at > last {
                    end -= last;
                } else if !give_back.lone {
                    at = end;
                    continue;
                }
            }
            found(at..end);
            at = end;
        }
    }

    /// The match that begins at `at`. What is read beyond its end, or without finding any, is taken from `beyond`; when
    /// that is used up, the match is the one found so far.
    fn match_at(&self, states: &mut Cache, text: &str, at: usize, beyond: &mut usize) -> Option<Match> {
        let automaton = &self.alternatives;
        let input = Input::new(text).range(at..).anchored(Anchored::Yes);
        let most = (*beyond).max(BEYOND_AT_LEAST);
        // Errors are those of automata that may give up or know a part of Unicode alone: not of this one.
        let mut state = automaton.start_state_forward(states, &input).ok()?;
        let (mut matched, mut end) = (None, at);
        for (&byte, here) in text.as_bytes()[at..].iter().zip(at..) {
            state = automaton.next_state(states, state, byte).ok()?;
            if state.is_match() {
                // A state tells of the match that ended before the byte that led to it.
                matched = Some((automaton.match_pattern(states, state, 0).as_usize(), here));
                end = here;
            } else if state.is_dead() || state.is_quit() || here - end >= most {
                *beyond = beyond.saturating_sub(here - end);
                return matched;
            }
        }
        *beyond = beyond.saturating_sub(text.len() - end);
        state = automaton.next_eoi_state(states, state).ok()?;
        if state.is_match() {
            matched = Some((automaton.match_pattern(states, state, 0).as_usize(), text.len()));
        }
        matched
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern").field("give_back", &self.give_back).finish_non_exhaustive()
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
            r"\b\p{L}+",
            r"[^\n]?+\p{L}+",
            r"\p{N}{1,3}+",
        ] {
            let error = Pattern::new(pattern).unwrap_err().to_string();
            assert!(error.contains(&format!("{pattern:?}")), "{error}");
        }
        assert!(Pattern::new(r"\+*").is_ok() && Pattern::new(r"[+*+]+?").is_ok());
    }

    #[test]
    fn a_pattern_that_looks_far_ahead_in_vain_takes_linear_time() {
        let row = "a".repeat(300_000);
        for pattern in ["a[^b]*b|a", "a[^b]*b|aa", "a(?s:.)*b|a|c"] {
            let found = matches(pattern, &row);
            assert_eq!(found.concat(), row, "{pattern}");
            assert!(found.len() >= row.len() / 2, "{pattern}");
        }
        assert_eq!(matches("a[^b]*b", &row).len(), 0);
        assert_eq!(matches("a[^b]*b|a", &format!("{row}b")).len(), 1);
    }

    #[test]
    fn a_long_run_of_whitespace_takes_linear_time() {
        let text = format!("{}x", "\n".to_owned() + &" ".repeat(1_000_000));
        assert_eq!(matches(GPT2, &text).len(), 2);
    }
}
