//! Unigram: of all ways to cut a word into pieces, the one whose scores have the highest sum.

use super::Vocabulary;
use super::bpe::Fallback;
use super::error::{Result, TokenizerError};
use super::vocab::{NONE, TokenId};

/// The longest piece that is taken, in bytes: finding the best way may take time in proportion to it. Models have pieces of up to 48.
const LONGEST_PIECE: usize = 512;

/// The highest score, and the lowest below zero: sums of them stay numbers. Models have scores of up to 20.
const HIGHEST_SCORE: f64 = 1e30;

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
    /// The piece's first bytes: most comparisons need no more, and all others wait for memory.
    head: u64,
    id: TokenId,
    /// The place of the longest other piece that this one begins with; [`NONE`] where there is none.
    shorter: u32,
}

/// Memory that encoding needs, kept from word to word.
#[derive(Default)]
pub(crate) struct Scratch {
    /// For each place in the word.
    best: Vec<Best>,
    /// Where the pieces of the best way end.
    ends: Vec<usize>,
}

/// The best way to some place in a word: its sum, and its last piece.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    /// Bytes of the piece.
    len: u32,
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
        let is_found = |id: TokenId, text: &[u8]| !text.is_empty() && vocabulary.find(text) == Some(id);
        let ids = vocabulary.pieces.iter().filter(|&(id, text)| is_found(id, text));
        let mut ids: Vec<TokenId> =
            ids.map(|(id, _)| id).filter(|&id| (id as usize) < scores.len()).collect();
        if let Some(id) = ids.iter().find(|&&id| piece(id).len() > LONGEST_PIECE) {
            let what = format!("{field}[{id}]: a piece of {} bytes", piece(*id).len());
            return Err(TokenizerError::unsupported(what));
        }
        if let Some(id) = scores.iter().position(|score| score.abs() > HIGHEST_SCORE) {
            return Err(TokenizerError::invalid(format!("{field}[{id}]"), "no score is that far from zero"));
        }
        ids.sort_unstable_by_key(|&id| piece(id));
        let mut sorted: Vec<Entry> = Vec::with_capacity(ids.len());
        // Those that the piece before begins with, each with the next one.
        let mut prefixes: Vec<u32> = Vec::new();
        for (place, &id) in ids.iter().enumerate() {
            while prefixes.pop_if(|&mut prefix| !piece(id).starts_with(piece(ids[prefix as usize]))).is_some()
            {
            }
            let head = head(piece(id));
            sorted.push(Entry { head, id, shorter: prefixes.last().copied().unwrap_or(NONE) });
            prefixes.push(place as u32);
        }
        let mut begins = Box::new([0; 257]);
        for (byte, begin) in begins.iter_mut().enumerate() {
            *begin = ids.partition_point(|&id| (piece(id)[0] as usize) < byte) as u32;
        }
        let lowest = scores.iter().copied().reduce(f64::min).unwrap_or(0.0);
        Ok(Unigram { sorted, begins, scores, unknown_score: lowest - UNKNOWN_PENALTY, fallback })
    }

    /// Appends the tokens of `word`.
    pub fn encode(&self, vocabulary: &Vocabulary, word: &str, scratch: &mut Scratch, ids: &mut Vec<TokenId>) {
        let Scratch { best, ends } = scratch;
        best.clear();
        best.resize(word.len() + 1, Best { score: f64::NEG_INFINITY, len: 0, id: NONE });
        best[0].score = 0.0;
        for (start, c) in word.char_indices() {
            let before = best[start].score;
            let mut is_piece = false;
            let mut reach = |len: usize, id: TokenId, score: f64| {
                let (end, score) = (start + len, before + score);
                if score > best[end].score {
                    best[end] = Best { score, len: len as u32, id };
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
        ends.clear();
        let mut end = word.len();
        while end > 0 {
            ends.push(end);
            end -= best[end].len as usize;
        }
        ends.reverse();
        // Neighbouring characters without a piece are one.
        for run in ends.chunk_by(|&a, &b| best[a].id == NONE && best[b].id == NONE) {
            let (first, last) = (best[run[0]], run[run.len() - 1]);
            let start = run[0] - first.len as usize;
            match first.id {
                NONE => self.fallback.tokens(&word.as_bytes()[start..last], |id| ids.push(id)),
                id => ids.push(id),
            }
        }
    }

    /// The pieces that `text` begins with, the longest first, with their lengths.
    fn for_each_prefix(&self, vocabulary: &Vocabulary, text: &[u8], mut found: impl FnMut(TokenId, usize)) {
        let [begin, end] = [text[0] as usize, text[0] as usize + 1].map(|byte| self.begins[byte] as usize);
        let piece = |entry: &Entry| vocabulary.pieces.get(entry.id);
        // Whatever the text begins with comes before it, and is the start of all pieces from there to the text.
        let head = head(text);
        let is_before = |entry: &Entry| entry.head < head || (entry.head == head && piece(entry) <= text);
        let after = begin + self.sorted[begin..end].partition_point(is_before);
        let mut place = if after > begin { after as u32 - 1 } else { NONE };
        let mut is_prefix = false;
        while let Some(entry) = self.sorted.get(place as usize) {
            is_prefix = is_prefix || text.starts_with(piece(entry));
            if is_prefix {
                found(entry.id, piece(entry).len());
            }
            place = entry.shorter;
        }
    }
}

/// The first eight bytes as a number, with zeros after a shorter text: in the order of texts where they differ.
fn head(text: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = text.len().min(bytes.len());
    bytes[..len].copy_from_slice(&text[..len]);
    u64::from_be_bytes(bytes)
}
