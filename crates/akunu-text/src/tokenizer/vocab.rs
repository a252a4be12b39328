//! The vocabulary's storage: one arena for all texts, a table that finds a text's id, and what each token is for.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The number of a token, its row in the model's embedding table.
pub type TokenId = u32;

/// "No token", inside tables only.
pub(crate) const NONE: TokenId = TokenId::MAX;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for something that is not text, such as the end of a turn.
    Control,
    /// Text that the model's makers want kept whole: runs of spaces, markup.
    UserDefined,
    /// One byte, for text the other pieces cannot spell.
    Byte,
    /// A row of the embedding table that no text leads to.
    Unused,
    /// Stands for text the vocabulary cannot spell.
    Unknown,
}

impl TokenKind {
    /// The kind SentencePiece and GGUF have this code for.
    pub(crate) fn from_code(code: i128) -> Option<Self> {
        Some(match code {
            // GGUF's "undefined".
            0 | 1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// Byte strings by number, back to back in one allocation.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// Where each piece ends; it begins where the one before ends.
    ends: Vec<u32>,
}

impl Pieces {
    pub fn with_capacity(pieces: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(pieces) }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a piece; false once the pieces would exceed 4 GiB.
    #[must_use]
    pub fn push(&mut self, piece: &[u8]) -> bool {
        self.bytes.extend_from_slice(piece);
        let end = u32::try_from(self.bytes.len());
        self.ends.push(end.unwrap_or(u32::MAX));
        end.is_ok()
    }

    /// The piece with this number; empty when there is none.
    pub fn get(&self, id: TokenId) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (TokenId, &[u8])> {
        let mut start = 0;
        self.ends.iter().zip(0..).map(move |(&end, id)| {
            let piece = &self.bytes[start..end as usize];
            start = end as usize;
            (id, piece)
        })
    }
}

/// Finds a piece's number by its bytes: open addressing with linear probing.
#[derive(Debug)]
pub(crate) struct PieceIndex {
    /// (lower half of the hash, id); an id of [`NONE`] marks a free slot.
    slots: Vec<(u32, TokenId)>,
    /// Differs from run to run, so that no file can be made to collide.
    seed: u64,
    /// Bytes of the longest piece in the index.
    longest: usize,
}

/// Slots for a table of so many entries: at most two thirds are taken.
fn slots_for(entries: usize) -> usize {
    entries.max(8) * 3 / 2
}

/// The slot out of `slots` with which the search for a hash begins. Any number of slots will do, which saves a third of
/// the memory that a power of two would take.
fn first_slot(hash: u64, slots: usize) -> usize {
    ((u128::from(hash) * slots as u128) >> 64) as usize
}

/// The slot that is tried after `slot`.
fn next_slot(slot: usize, slots: usize) -> usize {
    if slot + 1 == slots { 0 } else { slot + 1 }
}

impl PieceIndex {
    pub fn with_capacity(pieces: usize) -> Self {
        Self { slots: vec![(0, NONE); slots_for(pieces)], seed: random_seed(), longest: 0 }
    }

    /// Adds piece `id`, or gives the id that has the same bytes already. No more pieces than the capacity said.
    pub fn insert(&mut self, pieces: &Pieces, id: TokenId) -> Result<(), TokenId> {
        self.insert_hashed(pieces, id, self.hash(pieces.get(id)))
    }

    /// The same for a piece whose hash is known.
    pub fn insert_hashed(&mut self, pieces: &Pieces, id: TokenId, hash: u64) -> Result<(), TokenId> {
        let piece = pieces.get(id);
        match self.probe(pieces, piece, hash) {
            Ok(existing) => Err(existing),
            Err(slot) => {
                self.slots[slot] = (tag(hash), id);
                self.longest = self.longest.max(piece.len());
                Ok(())
            }
        }
    }

    /// Adds many pieces, or gives the first that has the same bytes as another, and that other.
    ///
    /// Every slot misses the cache: those of a batch are touched first, so that the misses overlap.
    pub fn extend(
        &mut self,
        pieces: &Pieces,
        mut ids: impl Iterator<Item = TokenId>,
    ) -> Result<(), (TokenId, TokenId)> {
        let mut hashes = [0; 64];
        let mut batch = Vec::with_capacity(hashes.len());
        loop {
            batch.clear();
            batch.extend(ids.by_ref().take(hashes.len()));
            if batch.is_empty() {
                return Ok(());
            }
            batch.iter().zip(&mut hashes).for_each(|(&id, hash)| *hash = self.hash(pieces.get(id)));
            std::hint::black_box(hashes[..batch.len()].iter().fold(0, |sum, &hash| sum ^ self.touch(hash)));
            for (&id, &hash) in batch.iter().zip(&hashes) {
                self.insert_hashed(pieces, id, hash).map_err(|other| (id, other))?;
            }
        }
    }

    pub fn get(&self, pieces: &Pieces, text: &[u8]) -> Option<TokenId> {
        if text.len() > self.longest {
            return None;
        }
        self.get_hashed(pieces, text, self.hash(text))
    }

    /// The same for a text whose hash is known.
    pub fn get_hashed(&self, pieces: &Pieces, text: &[u8], hash: u64) -> Option<TokenId> {
        self.probe(pieces, text, hash).ok()
    }

    pub fn hash(&self, text: &[u8]) -> u64 {
        hash_bytes(text, self.seed)
    }

    /// Brings the slot a look-up will begin with into the cache. What it gives back means nothing.
    pub fn touch(&self, hash: u64) -> u32 {
        self.slots[first_slot(hash, self.slots.len())].1
    }

    /// The same for the piece that is in that slot.
    pub fn touch_piece(&self, pieces: &Pieces, hash: u64) -> u32 {
        pieces.get(self.touch(hash)).first().copied().map_or(0, u32::from)
    }

    /// Bytes of the longest piece.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The id with these bytes, or the free slot where it would be.
    fn probe(&self, pieces: &Pieces, text: &[u8], hash: u64) -> Result<TokenId, usize> {
        let tag = tag(hash);
        let mut slot = first_slot(hash, self.slots.len());
        loop {
            let (other, id) = self.slots[slot];
            if id == NONE {
                return Err(slot);
            }
            if other == tag && pieces.get(id) == text {
                return Ok(id);
            }
            slot = next_slot(slot, self.slots.len());
        }
    }
}

/// The part of a hash that is kept to tell pieces apart; the upper part chose the slot.
fn tag(hash: u64) -> u32 {
    hash as u32
}

/// What joining two neighbouring tokens gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    /// Joins of lower rank come first.
    pub rank: u32,
    pub id: TokenId,
}

/// Finds the join of two tokens: open addressing with linear probing.
#[derive(Debug)]
pub(crate) struct PairTable {
    /// (left, right, join); a left of [`NONE`] marks a free slot.
    slots: Vec<(TokenId, TokenId, Join)>,
    seed: u64,
}

impl PairTable {
    pub fn with_capacity(pairs: usize) -> Self {
        let free = (NONE, NONE, Join { rank: 0, id: NONE });
        Self { slots: vec![free; slots_for(pairs)], seed: random_seed() }
    }

    /// Adds a join; a later one for the same pair replaces the earlier. No more joins than the capacity said.
    pub fn insert(&mut self, left: TokenId, right: TokenId, join: Join) {
        let mut slot = self.slot(left, right);
        while self.slots[slot].0 != NONE && (self.slots[slot].0, self.slots[slot].1) != (left, right) {
            slot = next_slot(slot, self.slots.len());
        }
        self.slots[slot] = (left, right, join);
    }

    /// Brings the slot a pair will be looked for first into the cache. What it gives back means nothing.
    pub fn touch(&self, left: TokenId, right: TokenId) -> u32 {
        self.slots[self.slot(left, right)].0
    }

    pub fn get(&self, left: TokenId, right: TokenId) -> Option<Join> {
        let mut slot = self.slot(left, right);
        loop {
            let (l, r, join) = self.slots[slot];
            if l == NONE {
                return None;
            }
            if (l, r) == (left, right) {
                return Some(join);
            }
            slot = next_slot(slot, self.slots.len());
        }
    }

    fn slot(&self, left: TokenId, right: TokenId) -> usize {
        let key = u64::from(left) << 32 | u64::from(right);
        first_slot(fold(key ^ self.seed, MIX), self.slots.len())
    }
}

/// An odd number with well spread bits: the fraction of the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Both halves of the 128-bit product, so that every input bit reaches every output bit.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    let mut hash = fold(seed ^ bytes.len() as u64, MIX);
    let (words, rest) = bytes.as_chunks();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), MIX);
    }
    let tail = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    fold(hash ^ tail, MIX)
}

fn random_seed() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_found_by_their_bytes() {
        let texts: Vec<String> = (0..5000).map(|i| "x".repeat(i % 37) + &i.to_string()).collect();
        let mut pieces = Pieces::with_capacity(0, 0);
        let mut index = PieceIndex::with_capacity(texts.len());
        for (id, text) in (0..).zip(&texts) {
            assert!(pieces.push(text.as_bytes()));
            assert_eq!(index.insert(&pieces, id), Ok(()));
        }
        for (id, text) in (0..).zip(&texts) {
            assert_eq!(index.get(&pieces, text.as_bytes()), Some(id));
            assert_eq!(pieces.get(id), text.as_bytes());
        }
        assert_eq!(index.get(&pieces, b"absent"), None);
        assert!(pieces.push(b"37"));
        assert_eq!(index.insert(&pieces, 5000), Err(37));
    }

    #[test]
    fn a_later_join_of_the_same_pair_replaces_the_earlier() {
        let mut table = PairTable::with_capacity(2000);
        for i in 0..2000 {
            table.insert(i, i + 1, Join { rank: i, id: i * 2 });
        }
        table.insert(7, 8, Join { rank: 1, id: 2 });
        assert_eq!(table.get(7, 8), Some(Join { rank: 1, id: 2 }));
        assert_eq!(table.get(1999, 2000), Some(Join { rank: 1999, id: 3998 }));
        assert_eq!(table.get(8, 7), None);
    }
}
