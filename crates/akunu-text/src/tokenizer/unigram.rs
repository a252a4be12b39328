//! Unigram: of all ways to cut a word into pieces, the one whose scores have the highest sum.

use super::Vocabulary;
use super::bpe::Fallback;
use super::error::{Result, TokenizerError};
use super::vocab::{NONE, TokenId, TokenKind};

/// The longest piece that is taken, in bytes: finding the best way takes time in proportion to it. Models have pieces of up to 48.
const LONGEST_PIECE: usize = 512;

/// How far below the lowest score of a piece that of a character without one is.
const UNKNOWN_PENALTY: f64 = 10.0;

/// A Unigram encoder.
#[derive(Debug)]
pub(crate) struct Unigram {
    /// The pieces that text can lead to, in the order of their bytes.
    sorted: Vec<Entry>,
    /// How many of them begin with a lower byte, for each byte and for what follows the last.
    begins: Box<[u32; 257]>,
    /// By id.
    scores: Vec<f64>,
    unknown_score: f64,
    pub fallback: Fallback,
}

/// One piece.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: TokenId,
    /// The place of the longest other piece that this one begins with; [`NONE`] where there is none.
    shorter: u32,
}

/// Memory that encoding needs, kept from word to word.
#[derive(Default)]
pub(crate) struct Scratch {
    best: Vec<Best>,
    path: Vec<Best>,
}

/// The best way to some place in a word: its sum, and its last piece.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    start: usize,
    end: usize,
    /// [`NONE`] for a character that is no piece.
    id: TokenId,
}

impl Unigram {
    /// With the scores of all tokens; `field` names their list in errors.
    pub fn new(
        vocabulary: &Vocabulary,
        scores: Vec<f64>,
        fallback: Fallback,
        field: &str,
    ) -> Result<Unigram> {
        let piece = |id: TokenId| vocabulary.pieces.get(id);
        // Those of bytes too, as in the library whose results count.
        let is_found = |id: TokenId, text: &[u8]| {
            vocabulary.kinds[id as usize] == TokenKind::Byte || vocabulary.find(text) == Some(id)
        };
        let ids = vocabulary.pieces.iter().filter(|&(id, text)| is_found(id, text));
        let mut ids: Vec<TokenId> =
            ids.map(|(id, _)| id).filter(|&id| (id as usize) < scores.len()).collect();
        if let Some(id) = ids.iter().find(|&&id| piece(id).len() > LONGEST_PIECE) {
            let what = format!("{field}[{id}]: a piece of {} bytes", piece(*id).len());
            return Err(TokenizerError::unsupported(what));
        }
        if let Some(id) = scores.iter().position(|score| !score.is_finite()) {
            return Err(TokenizerError::invalid(format!("{field}[{id}]"), "the score is not a number"));
        }
        ids.sort_unstable_by_key(|&id| piece(id));
        let mut sorted: Vec<Entry> = Vec::with_capacity(ids.len());
        // Those that the piece before begins with, each with the next one.
        let mut prefixes: Vec<u32> = Vec::new();
        for (place, &id) in ids.iter().enumerate() {
            while prefixes.pop_if(|&mut prefix| !piece(id).starts_with(piece(ids[prefix as usize]))).is_some()
            {
            }
            sorted.push(Entry { id, shorter: prefixes.last().copied().unwrap_or(NONE) });
            prefixes.push(place as u32);
        }
        let mut begins = Box::new([0; 257]);
        for (byte, begin) in begins.iter_mut().enumerate() {
            *begin = ids.partition_point(|&id| piece(id).first().is_none_or(|&first| (first as usize) < byte))
                as u32;
        }
        let lowest = scores.iter().copied().reduce(f64::min).unwrap_or(0.0);
        Ok(Unigram { sorted, begins, scores, unknown_score: lowest - UNKNOWN_PENALTY, fallback })
    }

    /// Appends the tokens of `word`.
    pub fn encode(&self, vocabulary: &Vocabulary, word: &str, scratch: &mut Scratch, ids: &mut Vec<TokenId>) {
        let Scratch { best, path } = scratch;
        best.clear();
        best.resize(word.len() + 1, Best { score: f64::NEG_INFINITY, start: 0, end: 0, id: NONE });
        best[0].score = 0.0;
        for (start, c) in word.char_indices() {
            let before = best[start].score;
            let mut is_piece = false;
            let mut reach = |len: usize, id: TokenId, score: f64| {
                let (end, score) = (start + len, before + score);
                if score > best[end].score {
                    best[end] = Best { score, start, end, id };
                }
            };
            self.for_each_prefix(vocabulary, &word.as_bytes()[start..], |id, len| {
                is_piece |= len == c.len_utf8();
                reach(len, id, self.scores[id as usize]);
            });
            if !is_piece {
                reach(c.len_utf8(), NONE, self.unknown_score);
            }
        }
        path.clear();
        let mut end = word.len();
        while end > 0 {
            path.push(best[end]);
            end = best[end].start;
        }
        path.reverse();
        // Neighbouring characters without a piece are one.
        for run in path.chunk_by(|a, b| a.id == NONE && b.id == NONE) {
            let (first, last) = (run[0], run[run.len() - 1]);
            match first.id {
                NONE => self.fallback.tokens(&word.as_bytes()[first.start..last.end], |id| ids.push(id)),
                id => ids.push(id),
            }
        }
    }

    /// The pieces that `text` begins with, the longest first, with their lengths.
    fn for_each_prefix(&self, vocabulary: &Vocabulary, text: &[u8], mut found: impl FnMut(TokenId, usize)) {
        let [begin, end] = [text[0] as usize, text[0] as usize + 1].map(|byte| self.begins[byte] as usize);
        let piece = |entry: &Entry| vocabulary.pieces.get(entry.id);
        // Whatever the text begins with comes before it, and is the start of all pieces from there to the text.
        let after = begin + self.sorted[begin..end].partition_point(|entry| piece(entry) <= text);
        let mut place = if after > begin { after as u32 - 1 } else { NONE };
        while let Some(entry) = self.sorted.get(place as usize) {
            if text.starts_with(piece(entry)) {
                found(entry.id, piece(entry).len());
            }
            place = entry.shorter;
        }
    }
}
