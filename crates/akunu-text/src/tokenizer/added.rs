//! Tokens that are found in the text before anything else happens to it, and kept whole.

use std::ops::Range;

use super::charset::CharSet;
use super::error::{Result, TokenizerError};
use super::vocab::TokenId;

/// A token to look for in the text.
#[derive(Clone, Debug)]
pub(crate) struct AddedToken {
    pub id: TokenId,
    pub text: Box<str>,
    /// Found in trusted text only.
    pub special: bool,
    /// Takes the whitespace on its left, on its right, along.
    pub lstrip: bool,
    pub rstrip: bool,
    /// Found only where no letter or digit is beside it.
    pub single_word: bool,
}

impl AddedToken {
    pub fn new(id: TokenId, text: impl Into<Box<str>>, special: bool) -> Self {
        Self { id, text: text.into(), special, lstrip: false, rstrip: false, single_word: false }
    }
}

/// Which stretches of a text are trusted: their ends, in order, no two neighbours alike.
#[derive(Debug)]
pub(crate) struct Trust(Vec<(usize, bool)>);

impl Trust {
    pub fn whole(len: usize, trusted: bool) -> Self {
        Self(vec![(len, trusted)])
    }

    pub fn of_lengths(lengths: impl Iterator<Item = (usize, bool)>) -> Self {
        let mut spans: Vec<(usize, bool)> = Vec::new();
        let mut end = 0;
        for (len, trusted) in lengths {
            end += len;
            match spans.last_mut() {
                Some(last) if last.1 == trusted => last.0 = end,
                _ => spans.push((end, trusted)),
            }
        }
        Self(spans)
    }

    /// The same for the part of the text in `range`.
    pub fn within(&self, range: Range<usize>) -> Self {
        let first = self.0.partition_point(|&(end, _)| end <= range.start);
        let spans = self.0[first..].iter().scan(0, |reached, &(end, trusted)| {
            let span = (*reached < range.len()).then(|| (end.min(range.end) - range.start, trusted));
            *reached = span?.0;
            span
        });
        Self(spans.collect())
    }

    /// Whether all of the text in `range`, which is not empty, is trusted.
    pub fn covers(&self, range: Range<usize>) -> bool {
        let at = self.0.partition_point(|&(end, _)| end <= range.start);
        self.0.get(at).is_some_and(|&(end, trusted)| trusted && range.end <= end)
    }
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Token(TokenId),
    /// Never empty.
    Text(Range<usize>),
}

/// All the tokens to look for, sorted by their text: those that share a prefix lie together.
#[derive(Debug)]
pub(crate) struct AddedTokens {
    tokens: Vec<AddedToken>,
    /// Where the tokens with each first byte lie in `tokens`.
    by_first_byte: Vec<Range<u32>>,
    word: CharSet,
}

/// Finding a token takes time in proportion to its length, at every place where it may begin.
const LONGEST: usize = 512;

/// That text of a token can be matched.
pub(crate) fn check_length(id: TokenId, text: &str) -> Result<()> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    let problem = format!("has {} bytes, at most {LONGEST} can be matched", text.len());
    Err(TokenizerError::invalid(format!("added token {id}"), problem))
}

impl AddedTokens {
    pub fn new(mut tokens: Vec<AddedToken>) -> Result<Self> {
        tokens.retain(|token| !token.text.is_empty());
        tokens.iter().try_for_each(|token| check_length(token.id, &token.text))?;
        tokens.sort_unstable_by(|a, b| a.text.cmp(&b.text).then(a.id.cmp(&b.id)));
        if let Some(pair) = tokens.windows(2).find(|pair| pair[0].text == pair[1].text) {
            let problem = format!("{:?} is token {} too", pair[0].text, pair[0].id);
            return Err(TokenizerError::invalid(format!("added token {}", pair[1].id), problem));
        }
        let find = |byte: u8| tokens.partition_point(|token| token.text.as_bytes()[0] < byte) as u32;
        let bound = |byte: u8| byte.checked_add(1).map_or(tokens.len() as u32, find);
        let by_first_byte = (0..=255).map(|byte| find(byte)..bound(byte)).collect();
        Ok(Self { tokens, by_first_byte, word: CharSet::new(r"\w") })
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &AddedToken> {
        self.tokens.iter()
    }

    /// The token with exactly this text.
    pub fn get(&self, text: &str) -> Option<TokenId> {
        let at = self.tokens.binary_search_by(|token| (*token.text).cmp(text)).ok()?;
        Some(self.tokens[at].id)
    }

    /// Cuts `text` into tokens (the leftmost, of those the longest) and what lies between them.
    pub fn cut(&self, text: &str, trust: &Trust, mut part: impl FnMut(Part)) {
        let bytes = text.as_bytes();
        let (mut done, mut at) = (0, 0);
        while at < bytes.len() {
            if self.by_first_byte[bytes[at] as usize].is_empty() {
                at += 1;
                continue;
            }
            let Some(token) = self.longest_at(bytes, at, trust) else {
                at += 1;
                continue;
            };
            let Range { mut start, mut end } = at..at + token.text.len();
            at = end;
            if token.single_word && self.touches_word(text, start..end) {
                continue;
            }
            if token.lstrip {
                start = done + text[done..start].trim_end().len();
            }
            if token.rstrip {
                end = text.len() - text[end..].trim_start().len();
                at = end;
            }
            if done < start {
                part(Part::Text(done..start));
            }
            part(Part::Token(token.id));
            done = end;
        }
        if done < text.len() {
            part(Part::Text(done..text.len()));
        }
    }

    fn longest_at(&self, text: &[u8], at: usize, trust: &Trust) -> Option<&AddedToken> {
        let Range { start, end } = self.by_first_byte[text[at] as usize].clone();
        let mut candidates = &self.tokens[start as usize..end as usize];
        let mut longest = None;
        let mut len = 1;
        // All candidates begin with `text[at..at + len]`; the shortest sorts first.
        loop {
            let first = candidates.first()?;
            if first.text.len() == len && (!first.special || trust.covers(at..at + len)) {
                longest = Some(first);
            }
            let Some(&next) = text.get(at + len) else { return longest };
            let byte = |token: &AddedToken| token.text.as_bytes().get(len).copied();
            let low = candidates.partition_point(|token| byte(token) < Some(next));
            let high = low + candidates[low..].partition_point(|token| byte(token) == Some(next));
            candidates = &candidates[low..high];
            if candidates.is_empty() {
                return longest;
            }
            len += 1;
        }
    }

    fn touches_word(&self, text: &str, range: Range<usize>) -> bool {
        let before = text[..range.start].chars().next_back();
        let after = text[range.end..].chars().next();
        [before, after].into_iter().flatten().any(|c| self.word.contains(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(tokens: &[AddedToken], text: &str, trust: &Trust) -> Vec<Result<u32, String>> {
        let mut parts = Vec::new();
        AddedTokens::new(tokens.to_vec()).unwrap().cut(text, trust, |part| {
            parts.push(match part {
                Part::Token(id) => Ok(id),
                Part::Text(range) => Err(text[range].to_owned()),
            });
        });
        parts
    }

    fn text(text: &str) -> Result<u32, String> {
        Err(text.to_owned())
    }

    #[test]
    fn the_leftmost_token_wins_and_of_those_the_longest() {
        let tokens = ["<|a|>", "<|a|>b", "|>", "  ", "    "]
            .iter()
            .zip(1..)
            .map(|(t, id)| AddedToken::new(id, *t, true));
        let tokens: Vec<_> = tokens.collect();
        let trust = Trust::whole(100, true);
        assert_eq!(cut(&tokens, "x<|a|>bc<|a|>", &trust), [text("x"), Ok(2), text("c"), Ok(1)]);
        assert_eq!(cut(&tokens, "|>     <|a", &trust), [Ok(3), Ok(5), text(" <|a")]);
        assert_eq!(cut(&tokens, "", &trust), []);
    }

    #[test]
    fn special_tokens_are_found_in_trusted_text_only() {
        let tokens = [
            AddedToken::new(1, "<e>", true),
            AddedToken::new(2, "<e>>", true),
            AddedToken::new(3, "  ", false),
        ];
        let trust = Trust::of_lengths([(3, true), (4, false), (2, true), (2, true), (9, false)].into_iter());
        //          trusted untrusted trusted untrusted
        assert_eq!(
            cut(&tokens, "<e>><e><e>>  <e>", &trust),
            [Ok(1), text("><e>"), Ok(2), Ok(3), text("<e>")]
        );
    }

    #[test]
    fn trust_holds_within_a_part_of_the_text() {
        let trust = Trust::of_lengths([(3, true), (4, false), (2, true)].into_iter());
        assert_eq!(trust.within(1..8).0, [(2, true), (6, false), (7, true)]);
        assert_eq!(trust.within(3..7).0, [(4, false)]);
        assert_eq!(trust.within(4..9).0, [(3, false), (5, true)]);
    }

    #[test]
    fn stripping_tokens_take_the_whitespace_beside_them() {
        let token = AddedToken { lstrip: true, rstrip: true, ..AddedToken::new(1, "<m>", true) };
        assert_eq!(
            cut(&[token], "a \n<m>\u{3000} b <m>", &Trust::whole(99, true)),
            [text("a"), Ok(1), text("b"), Ok(1)]
        );
    }

    #[test]
    fn single_words_stand_alone() {
        let token = AddedToken { single_word: true, ..AddedToken::new(1, "yes", true) };
        let trust = Trust::whole(99, true);
        assert_eq!(
            cut(&[token], "yes yesé yes, _yes", &trust),
            [Ok(1), text(" yesé "), Ok(1), text(", _yes")]
        );
    }

    #[test]
    fn absurd_tokens_are_refused() {
        let long = AddedTokens::new(vec![AddedToken::new(7, "x".repeat(LONGEST + 1), true)]).unwrap_err();
        assert_eq!(long.to_string(), "added token 7: has 513 bytes, at most 512 can be matched");
        let twice = vec![AddedToken::new(7, "x", true), AddedToken::new(8, "x", true)];
        assert_eq!(AddedTokens::new(twice).unwrap_err().to_string(), "added token 8: \"x\" is token 7 too");
    }
}
