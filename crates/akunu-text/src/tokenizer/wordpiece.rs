//! WordPiece: a word is cut greedily into the longest pieces, from left to right.

use super::Vocabulary;
use super::vocab::TokenId;

/// A WordPiece encoder.
#[derive(Debug)]
pub(crate) struct WordPiece {
    /// What stands before pieces that continue a word in the vocabulary, such as `##`.
    pub continuation: String,
    /// What stands before pieces that begin a word, such as `▁`.
    pub beginning: String,
    /// The token for a word that cannot be cut into pieces. Without one, the word is left out.
    pub unknown: Option<TokenId>,
    /// Words with more characters are unknown.
    pub longest_word: usize,
}

impl WordPiece {
    /// What files that do not say mean.
    pub const LONGEST_WORD: usize = 100;

    /// Appends the tokens of `word`.
    pub fn encode(&self, vocabulary: &Vocabulary, word: &str, ids: &mut Vec<TokenId>) {
        let before = ids.len();
        if word.chars().nth(self.longest_word).is_some() || !self.cut(vocabulary, word, ids) {
            ids.truncate(before);
            ids.extend(self.unknown);
        }
    }

    /// Appends the pieces of `word`; false when some part of it is no piece.
    fn cut(&self, vocabulary: &Vocabulary, word: &str, ids: &mut Vec<TokenId>) -> bool {
        let mut candidate = self.beginning.clone();
        let mut rest = word;
        while !rest.is_empty() {
            let prefix = candidate.len();
            candidate.push_str(rest);
            let mut len = floor_char_boundary(&candidate, vocabulary.index.longest());
            let id = loop {
                if len <= prefix {
                    return false;
                }
                if let Some(id) = vocabulary.find(&candidate.as_bytes()[..len]) {
                    break id;
                }
                len = floor_char_boundary(&candidate, len - 1);
            };
            ids.push(id);
            rest = &rest[len - prefix..];
            candidate.clear();
            candidate.push_str(&self.continuation);
        }
        true
    }
}

/// The last place at or before `at` where a character begins, or the end of the text.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
