//! Merge lists: which pairs of pieces can be joined, resolved to ids.
//!
//! Lists are long (half a million pairs) and every look-up of a piece misses the cache. They are resolved in batches:
//! first all memory of a batch is touched, so that the misses overlap, then it is used.

use super::byte_level;
use super::error::{Result, TokenizerError};
use super::vocab::{Join, PairTable, TokenId, TokenKind};
use super::{Spelling, Vocabulary};

/// Pairs to a batch.
const BATCH: usize = 64;

/// Turns a merge list into a table.
pub(super) struct MergeList<'a> {
    vocabulary: &'a Vocabulary,
    spelling: Spelling,
    table: PairTable,
    rank: u32,
    /// The pairs not yet in the table.
    batch: Vec<Pair<'a>>,
    /// What their pieces stand for, back to back.
    spelled: Vec<u8>,
    /// The id of the last join: the next is often one higher.
    last: TokenId,
}

struct Pair<'a> {
    left: &'a [u8],
    right: &'a [u8],
    /// Where the left piece begins in `spelled`, where the right one does, where it ends, and their hashes. `None` for
    /// pieces that stand for no bytes.
    spelled: Option<([usize; 3], [u64; 2])>,
}

impl<'a> MergeList<'a> {
    pub fn new(vocabulary: &'a Vocabulary, spelling: Spelling, pairs: usize) -> Self {
        let batch = Vec::with_capacity(BATCH);
        let table = PairTable::with_capacity(pairs);
        Self { vocabulary, spelling, table, rank: 0, batch, spelled: Vec::new(), last: 0 }
    }

    /// Adds the pair of the next rank. `is_token` tells of a piece that no text leads to whether it exists; `field` names
    /// the list in errors.
    pub fn push(
        &mut self,
        left: &'a [u8],
        right: &'a [u8],
        field: &str,
        is_token: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let start = self.spelled.len();
        let middle = self.spell(left);
        let end = middle.and_then(|_| self.spell(right));
        let spelled = middle.zip(end).map(|(middle, end)| {
            let hash = |range| self.vocabulary.index.hash(&self.spelled[range]);
            ([start, middle, end], [hash(start..middle), hash(middle..end)])
        });
        self.batch.push(Pair { left, right, spelled });
        if self.batch.len() == BATCH { self.resolve(field, is_token) } else { Ok(()) }
    }

    pub fn finish(mut self, field: &str, is_token: &dyn Fn(&[u8]) -> bool) -> Result<PairTable> {
        self.resolve(field, is_token)?;
        Ok(self.table)
    }

    /// Appends the bytes `piece` stands for and tells where they end.
    fn spell(&mut self, piece: &[u8]) -> Option<usize> {
        let spelled = match self.spelling {
            Spelling::Bytes => byte_level::decode(piece, &mut self.spelled),
            Spelling::Text => {
                self.spelled.extend_from_slice(piece);
                true
            }
        };
        spelled.then_some(self.spelled.len())
    }

    fn resolve(&mut self, field: &str, is_token: &dyn Fn(&[u8]) -> bool) -> Result<()> {
        let Vocabulary { pieces, index, kinds } = self.vocabulary;
        let hashes = || self.batch.iter().filter_map(|pair| pair.spelled).flat_map(|(_, hashes)| hashes);
        let slots = hashes().fold(0, |sum, hash| sum ^ index.touch(hash));
        let texts = hashes().fold(0, |sum, hash| sum ^ index.touch_piece(pieces, hash));
        std::hint::black_box((slots, texts));
        for pair in self.batch.drain(..) {
            let rank = self.rank;
            self.rank += 1;
            let join = pair.spelled.and_then(|([start, middle, end], [left_hash, right_hash])| {
                let left = index.get_hashed(pieces, &self.spelled[start..middle], left_hash)?;
                let right = index.get_hashed(pieces, &self.spelled[middle..end], right_hash)?;
                let joined = &self.spelled[start..end];
                let next = self.last + 1;
                let guessed =
                    kinds.get(next as usize) == Some(&TokenKind::Normal) && pieces.get(next) == joined;
                let id = if guessed { next } else { index.get(pieces, joined)? };
                Some((left, right, id))
            });
            if let Some((left, right, id)) = join {
                self.last = id;
                self.table.insert(left, right, Join { rank, id });
                continue;
            }
            // A pair that involves a token no text leads to is never met; one that names no token is a mistake.
            let whole = [pair.left, pair.right].concat();
            if let Some(name) = [pair.left, pair.right, &whole].into_iter().find(|name| !is_token(name)) {
                return Err(TokenizerError::invalid(
                    format!("{field}[{rank}]"),
                    format!("{name:?} is no token"),
                ));
            }
        }
        self.spelled.clear();
        Ok(())
    }
}
