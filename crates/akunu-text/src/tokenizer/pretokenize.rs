//! Cutting text into the words that merging never crosses.

use std::ops::Range;

use super::charset::CharSet;
use super::pattern::Pattern;

/// What a step looks for.
#[derive(Debug)]
pub(crate) enum Matcher {
    Literal(String),
    /// Single characters.
    Set(CharSet),
    Whitespace,
    Pattern(Pattern),
}

impl Matcher {
    /// Calls `found` with each match, from left to right; none is empty.
    pub fn for_each_match(&self, text: &str, mut found: impl FnMut(Range<usize>)) {
        let one = |at: usize, c: char| at..at + c.len_utf8();
        match self {
            Self::Literal(literal) if literal.is_empty() => {}
            Self::Literal(literal) => {
                text.match_indices(literal).for_each(|(at, found_text)| found(at..at + found_text.len()));
            }
            Self::Set(set) => {
                text.char_indices().filter(|&(_, c)| set.contains(c)).for_each(|(at, c)| found(one(at, c)));
            }
            Self::Whitespace => {
                text.char_indices().filter(|(_, c)| c.is_whitespace()).for_each(|(at, c)| found(one(at, c)));
            }
            Self::Pattern(pattern) => pattern.for_each_match(text, found),
        }
    }
}

/// What becomes of the matches of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) enum Behavior {
    /// Each match is a word.
    Isolated,
    Removed,
    MergedWithPrevious,
    MergedWithNext,
    /// Neighbouring matches are one word.
    Contiguous,
}

/// Which texts get a space mark in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PrependScheme {
    Always,
    /// Only text at the very beginning.
    First,
    Never,
}

/// One step of pre-tokenization, applied to each word the steps before have cut.
#[derive(Debug)]
pub(crate) enum Step {
    Split {
        matcher: Matcher,
        behavior: Behavior,
        /// Matches are what lies between what the matcher finds.
        invert: bool,
    },
    /// Puts a space in front of words that have none.
    PrefixSpace,
    /// Replaces spaces with a mark.
    Metaspace { mark: char, prepend: PrependScheme, split: bool },
}

impl Step {
    pub fn split(matcher: Matcher, behavior: Behavior) -> Self {
        Self::Split { matcher, behavior, invert: false }
    }

    /// Digits one by one, or each run of them.
    pub fn digits(individual: bool) -> Self {
        let behavior = if individual { Behavior::Isolated } else { Behavior::Contiguous };
        Self::split(Matcher::Set(CharSet::new(CharSet::NUMERIC)), behavior)
    }

    pub fn punctuation(behavior: Behavior) -> Self {
        Self::split(Matcher::Set(CharSet::new(CharSet::PUNCTUATION)), behavior)
    }

    /// Words and single punctuation characters, without the whitespace: BERT's.
    pub fn bert() -> Vec<Self> {
        vec![Self::split(Matcher::Whitespace, Behavior::Removed), Self::punctuation(Behavior::Isolated)]
    }
}

/// Cuts `text` by all the steps and calls `word` with each piece in order. `first` tells whether the text is at the
/// beginning of all input.
pub(crate) fn pretokenize(steps: &[Step], text: &str, first: bool, word: &mut dyn FnMut(&str)) {
    if text.is_empty() {
        return;
    }
    let Some((step, rest)) = steps.split_first() else { return word(text) };
    match step {
        Step::Split { matcher, behavior, invert } => {
            split(text, matcher, *behavior, *invert, |range| {
                pretokenize(rest, &text[range.clone()], first && range.start == 0, word);
            });
        }
        Step::PrefixSpace if text.starts_with(' ') => pretokenize(rest, text, first, word),
        Step::PrefixSpace => pretokenize(rest, &format!(" {text}"), first, word),
        Step::Metaspace { mark, prepend, split: splits } => {
            let mut marked = text.replace(' ', mark.encode_utf8(&mut [0; 4]));
            let wanted = *prepend == PrependScheme::Always || (*prepend == PrependScheme::First && first);
            if wanted && !marked.starts_with(*mark) {
                marked.insert(0, *mark);
            }
            if !splits {
                return pretokenize(rest, &marked, first, word);
            }
            let matcher = Matcher::Literal(mark.to_string());
            split(&marked, &matcher, Behavior::MergedWithNext, false, |range| {
                pretokenize(rest, &marked[range.clone()], first && range.start == 0, word);
            });
        }
    }
}

fn split(text: &str, matcher: &Matcher, behavior: Behavior, invert: bool, piece: impl FnMut(Range<usize>)) {
    let mut pieces = PieceMaker { behavior, held: None, piece };
    let mut end = 0;
    matcher.for_each_match(text, |range| {
        if range.start > end {
            pieces.add(end..range.start, invert);
        }
        end = range.end;
        pieces.add(range, !invert);
    });
    if end < text.len() {
        pieces.add(end..text.len(), invert);
    }
    pieces.finish();
}

/// Turns an alternation of matches and what lies between them into the pieces a behavior asks for.
struct PieceMaker<F> {
    behavior: Behavior,
    /// A piece that what follows may be joined to, and whether its last part was a match.
    held: Option<(Range<usize>, bool)>,
    piece: F,
}

impl<F: FnMut(Range<usize>)> PieceMaker<F> {
    fn add(&mut self, range: Range<usize>, matched: bool) {
        match self.behavior {
            Behavior::Isolated => (self.piece)(range),
            Behavior::Removed if matched => {}
            Behavior::Removed => (self.piece)(range),
            Behavior::MergedWithPrevious | Behavior::MergedWithNext | Behavior::Contiguous => {
                let joins = |held_matched: bool| match self.behavior {
                    Behavior::MergedWithPrevious => matched && !held_matched,
                    Behavior::MergedWithNext => !matched && held_matched,
                    _ => matched == held_matched,
                };
                match &mut self.held {
                    Some((held, held_matched)) if joins(*held_matched) => {
                        held.end = range.end;
                        *held_matched = matched;
                    }
                    _ => {
                        let before = self.held.replace((range, matched));
                        before.into_iter().for_each(|(held, _)| (self.piece)(held));
                    }
                }
            }
        }
    }

    fn finish(&mut self) {
        let last = self.held.take();
        last.into_iter().for_each(|(held, _)| (self.piece)(held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(steps: &[Step], text: &str) -> Vec<String> {
        let mut found = Vec::new();
        pretokenize(steps, text, true, &mut |word| found.push(word.to_owned()));
        found
    }

    fn dash(behavior: Behavior, invert: bool) -> Step {
        Step::Split { matcher: Matcher::Literal("-".into()), behavior, invert }
    }

    #[test]
    fn each_behavior_places_the_matches() {
        let text = "the-final--countdown-";
        let cut = |behavior| words(&[dash(behavior, false)], text);
        assert_eq!(cut(Behavior::Isolated), ["the", "-", "final", "-", "-", "countdown", "-"]);
        assert_eq!(cut(Behavior::Removed), ["the", "final", "countdown"]);
        assert_eq!(cut(Behavior::MergedWithPrevious), ["the-", "final-", "-", "countdown-"]);
        assert_eq!(cut(Behavior::MergedWithNext), ["the", "-final", "-", "-countdown", "-"]);
        assert_eq!(cut(Behavior::Contiguous), ["the", "-", "final", "--", "countdown", "-"]);
    }

    #[test]
    fn an_inverted_split_keeps_the_matches() {
        assert_eq!(words(&[dash(Behavior::Removed, true)], "a--b"), ["-", "-"]);
    }

    #[test]
    fn steps_cut_each_others_words() {
        let spaces = Step::split(Matcher::Whitespace, Behavior::Removed);
        let digits = Step::digits(true);
        assert_eq!(words(&[spaces, digits], "a1 23"), ["a", "1", "2", "3"]);
    }

    #[test]
    fn the_mark_is_prepended_as_the_scheme_says() {
        let step = |prepend, split| [Step::Metaspace { mark: '▁', prepend, split }];
        assert_eq!(words(&step(PrependScheme::Always, true), "a b  c"), ["▁a", "▁b", "▁", "▁c"]);
        assert_eq!(words(&step(PrependScheme::First, false), " a b"), ["▁a▁b"]);
        assert_eq!(words(&step(PrependScheme::Never, false), "a b"), ["a▁b"]);
        let mut later = Vec::new();
        pretokenize(&step(PrependScheme::First, false), "a b", false, &mut |word| {
            later.push(word.to_owned());
        });
        assert_eq!(later, ["a▁b"]);
    }
}
