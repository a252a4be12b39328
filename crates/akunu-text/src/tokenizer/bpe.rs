//! Byte-pair encoding of a word, for vocabularies with merge lists, with scores (SentencePiece) and with ranks (tiktoken).

use super::Vocabulary;
use super::merge::{self, Joins, Symbol};
use super::vocab::{Join, NONE, PairTable, PieceIndex, Pieces, TokenId};

/// What stands for a space inside pieces.
pub(crate) const SPACE_MARK: &str = "▁";

/// A byte-pair encoder.
#[derive(Debug)]
pub(crate) struct Bpe {
    pub alphabet: Alphabet,
    pub joins: JoinTable,
    /// A word that is a piece is that piece, whatever the joins say.
    pub whole_words: bool,
    pub fallback: Fallback,
    pub borders: Borders,
}

/// What a word consists of before anything is joined.
#[derive(Debug)]
pub(crate) enum Alphabet {
    /// Bytes, with the token of each.
    Bytes(Box<[TokenId; 256]>),
    Characters,
}

/// Which neighbours can be joined.
#[derive(Debug)]
pub(crate) enum JoinTable {
    /// Those on the merge list.
    Pairs(PairTable),
    /// Those that together spell a piece; the rank of each piece.
    Pieces(Vec<u32>),
}

/// What becomes of characters the vocabulary does not have.
#[derive(Debug, Default)]
pub(crate) struct Fallback {
    /// The tokens for their bytes.
    pub bytes: Option<Box<[TokenId; 256]>>,
    /// The token for anything else. Without one, the character is left out.
    pub unknown: Option<TokenId>,
    /// Neighbouring unknown characters are one unknown token.
    pub fuse: bool,
}

/// Where a long word can be cut because no piece reaches across.
///
/// Vocabularies with space marks have no word borders: a whole text is one word. But hardly any of their pieces has
/// a mark after its first character, so that text can be cut before most marks with the same result.
#[derive(Debug, Default)]
pub(crate) struct Borders {
    /// For each byte, whether some piece has it right before a space mark. Absent: never cut.
    joined: Option<Box<[bool; 256]>>,
}

impl Borders {
    /// The borders in words made of `pieces`, all of which may result from joining.
    pub fn before_space_marks<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let mark = SPACE_MARK.as_bytes();
        let (mut joined, mut has_mark) = (Box::new([false; 256]), false);
        for piece in pieces {
            has_mark |= piece == mark;
            // The mark's last byte occurs in other characters, its three bytes together do not.
            for end in (mark.len()..piece.len()).filter(|&end| piece[end] == mark[2]) {
                if piece.get(end - 2..=end) == Some(mark) && end > 2 {
                    joined[piece[end - 3] as usize] = true;
                }
            }
        }
        Self { joined: has_mark.then_some(joined) }
    }

    fn for_each_part<'a>(&self, word: &'a str, mut part: impl FnMut(&'a str)) {
        let mut start = 0;
        if let Some(joined) = &self.joined {
            for (at, _) in word.match_indices(SPACE_MARK) {
                if at > start && !joined[word.as_bytes()[at - 1] as usize] {
                    part(&word[start..at]);
                    start = at;
                }
            }
        }
        part(&word[start..]);
    }
}

impl Fallback {
    /// The tokens for text the vocabulary does not have.
    pub fn tokens(&self, text: &[u8], mut token: impl FnMut(TokenId)) {
        match &self.bytes {
            Some(table) if text.iter().all(|&byte| table[byte as usize] != NONE) => {
                text.iter().for_each(|&byte| token(table[byte as usize]));
            }
            _ => self.unknown.into_iter().for_each(token),
        }
    }
}

/// Memory that encoding needs, kept from word to word.
#[derive(Default)]
pub(crate) struct Scratch {
    symbols: Vec<Symbol>,
    merge: merge::Scratch,
}

impl Bpe {
    /// Appends the tokens of `word`.
    pub fn encode(&self, vocabulary: &Vocabulary, word: &str, scratch: &mut Scratch, ids: &mut Vec<TokenId>) {
        if self.whole_words
            && let Some(id) = vocabulary.find(word.as_bytes())
        {
            return ids.push(id);
        }
        self.borders.for_each_part(word, |part| self.encode_part(vocabulary, part, scratch, ids));
    }

    fn encode_part(
        &self,
        vocabulary: &Vocabulary,
        word: &str,
        scratch: &mut Scratch,
        ids: &mut Vec<TokenId>,
    ) {
        let Scratch { symbols, merge } = scratch;
        symbols.clear();
        match &self.joins {
            JoinTable::Pairs(pairs) => {
                self.known_symbols(vocabulary, word, symbols);
                merge::merge(word.as_bytes(), symbols, &PairJoins(pairs), merge);
                ids.extend(symbols.iter().map(|symbol| symbol.id));
            }
            JoinTable::Pieces(ranks) => {
                self.all_symbols(vocabulary, word, symbols);
                let joins = PieceJoins { pieces: &vocabulary.pieces, index: &vocabulary.index, ranks };
                merge::merge(word.as_bytes(), symbols, &joins, merge);
                let mut start = 0;
                for &Symbol { id, end } in &*symbols {
                    match id {
                        NONE => self.fallback.tokens(&word.as_bytes()[start..end as usize], |id| {
                            if !(self.fallback.fuse
                                && Some(id) == self.fallback.unknown
                                && ids.last() == Some(&id))
                            {
                                ids.push(id);
                            }
                        }),
                        _ => ids.push(id),
                    }
                    start = end as usize;
                }
            }
        }
    }

    /// The characters or bytes of a word, those the vocabulary does not have as [`NONE`].
    fn all_symbols(&self, vocabulary: &Vocabulary, word: &str, symbols: &mut Vec<Symbol>) {
        match &self.alphabet {
            Alphabet::Bytes(table) => {
                symbols.extend(word.bytes().zip(1..).map(|(b, end)| Symbol { id: table[b as usize], end }));
            }
            Alphabet::Characters => symbols.extend(word.char_indices().map(|(at, c)| {
                let end = at + c.len_utf8();
                let id = vocabulary.find(&word.as_bytes()[at..end]).unwrap_or(NONE);
                Symbol { id, end: end as u32 }
            })),
        }
    }

    /// The same with what is missing replaced or left out, as Hugging Face's encoder does it before joining.
    fn known_symbols(&self, vocabulary: &Vocabulary, word: &str, symbols: &mut Vec<Symbol>) {
        self.all_symbols(vocabulary, word, symbols);
        if symbols.iter().all(|symbol| symbol.id != NONE) {
            return;
        }
        let mut start = 0;
        for Symbol { id, end } in std::mem::take(symbols) {
            let mut push = |id, end| match symbols.last_mut() {
                Some(last) if self.fallback.fuse && Some(id) == self.fallback.unknown && last.id == id => {
                    last.end = end;
                }
                _ => symbols.push(Symbol { id, end }),
            };
            match id {
                NONE => self.fallback.tokens(&word.as_bytes()[start..end as usize], |id| push(id, end)),
                _ => push(id, end),
            }
            start = end as usize;
        }
    }
}

struct PairJoins<'a>(&'a PairTable);

impl Joins for PairJoins<'_> {
    fn join(&self, left: TokenId, right: TokenId, _text: &[u8]) -> Option<Join> {
        self.0.get(left, right)
    }
}

struct PieceJoins<'a> {
    pieces: &'a Pieces,
    index: &'a PieceIndex,
    ranks: &'a [u32],
}

impl Joins for PieceJoins<'_> {
    fn join(&self, _left: TokenId, _right: TokenId, text: &[u8]) -> Option<Join> {
        let id = self.index.get(self.pieces, text)?;
        Some(Join { rank: self.ranks[id as usize], id })
    }
}

/// The rank that puts higher scores first. The score must be a number.
pub(crate) fn rank_of_score(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits(); // -0 + 0 is 0
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}
