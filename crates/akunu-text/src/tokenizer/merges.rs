//! Merge lists: which pairs of pieces can be joined, resolved to ids.
//!
//! Lists are long (half a million pairs) and every look-up of a piece misses the cache. They are resolved in batches:
//! first all memory of a batch is touched, so that the misses overlap, then it is used. Long lists are cut in parts, each
//! of which has a thread.

use std::num::NonZero;
use std::thread;

use super::byte_level;
use super::error::{Result, TokenizerError};
use super::vocab::{Join, NONE, PairTable, TokenId, TokenKind};
use super::{Spelling, Vocabulary};

/// Pairs to a batch.
const BATCH: usize = 64;

/// Fewer pairs than this are not worth a thread.
const PAIRS_PER_THREAD: usize = 1 << 15;
const MOST_THREADS: usize = 4;

/// Into how many parts to cut a list of so many pairs.
pub(super) fn parts(pairs: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    (pairs / PAIRS_PER_THREAD).clamp(1, cores.min(MOST_THREADS))
}

/// Turns merge lists into tables.
pub(super) struct Merges<'a> {
    pub vocabulary: &'a Vocabulary,
    pub spelling: Spelling,
    /// What the list is called in errors.
    pub field: &'a str,
    /// Tells of a piece that no text leads to whether it is a token all the same.
    pub is_token: &'a (dyn Fn(&[u8]) -> bool + Sync),
}

/// The tokens of a pair and of what they join to; of [`NONE`] where no text leads to the pair.
type Resolved = (TokenId, TokenId, TokenId);

impl Merges<'_> {
    /// The table of a list that comes in parts: how many pairs each has, and the pairs.
    pub fn table<'p, I>(&self, lists: Vec<(usize, I)>) -> Result<PairTable>
    where
        I: Iterator<Item = Result<(&'p [u8], &'p [u8])>> + Send,
    {
        let pairs = lists.iter().map(|(pairs, _)| pairs).sum();
        // A pair joins to a token, and a token can be cut in no more places than it has bytes.
        if pairs > self.vocabulary.pieces.total_bytes() {
            let problem = format!("{pairs} pairs are more than the tokens can be made of");
            return Err(TokenizerError::invalid(self.field, problem));
        }
        let mut table = PairTable::with_capacity(pairs);
        let mut first = 0;
        let jobs = lists.into_iter().map(|(pairs, list)| {
            let job = Job::new(self, first, pairs);
            first += pairs;
            move || job.run(list)
        });
        let mut jobs: Vec<_> = jobs.collect();
        let last = jobs.pop();
        let parts: Vec<Result<Vec<Resolved>>> = thread::scope(|scope| {
            let spawn = |job| thread::Builder::new().spawn_scoped(scope, job);
            let threads: Vec<_> = jobs.into_iter().map(spawn).collect();
            let last = last.map(|job| job());
            let join = |thread: std::io::Result<thread::ScopedJoinHandle<'_, _>>| {
                let thread =
                    thread.map_err(|source| TokenizerError::Io { path: "a thread".into(), source })?;
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).chain(last).collect()
        });
        let mut rank = 0;
        for part in parts {
            for batch in part?.chunks(BATCH) {
                let touched = batch.iter().fold(0, |sum, &(left, right, _)| sum ^ table.touch(left, right));
                std::hint::black_box(touched);
                for &(left, right, id) in batch {
                    if id != NONE {
                        table.insert(left, right, Join { rank, id });
                    }
                    rank += 1;
                }
            }
        }
        Ok(table)
    }

    /// Appends the bytes `piece` stands for and tells where they end.
    fn spell(&self, piece: &[u8], spelled: &mut Vec<u8>) -> Option<usize> {
        let possible = match self.spelling {
            Spelling::Bytes => byte_level::decode(piece, spelled),
            Spelling::Text => {
                spelled.extend_from_slice(piece);
                true
            }
        };
        possible.then_some(spelled.len())
    }

    /// A pair that involves a token no text leads to is never met; one that names no token is a mistake.
    fn check_tokens(&self, rank: usize, left: &[u8], right: &[u8]) -> Result<()> {
        let whole = [left, right].concat();
        let known = |piece: &[u8]| {
            let mut spelled = Vec::new();
            self.spell(piece, &mut spelled).is_some_and(|_| self.vocabulary.find(&spelled).is_some())
                || (self.is_token)(piece)
        };
        match [left, right, &whole].into_iter().find(|piece| !known(piece)) {
            None => Ok(()),
            Some(piece) => Err(TokenizerError::invalid(
                format!("{}[{rank}]", self.field),
                format!("{:?} is no token", String::from_utf8_lossy(piece)),
            )),
        }
    }
}

/// A part of a list on its way to being resolved.
struct Job<'a, 'p> {
    merges: &'a Merges<'a>,
    /// The place of the part's first pair in the whole list.
    first: usize,
    resolved: Vec<Resolved>,
    /// The pairs not yet resolved.
    batch: Vec<Pair<'p>>,
    /// What their pieces stand for, back to back.
    spelled: Vec<u8>,
    /// The id of the last join: the next is often one higher.
    last: TokenId,
}

struct Pair<'p> {
    left: &'p [u8],
    right: &'p [u8],
    /// Where the left piece begins in `spelled`, where the right one does, where it ends, and their hashes. `None` for
    /// pieces that stand for no bytes.
    spelled: Option<([usize; 3], [u64; 2])>,
}

impl<'a, 'p> Job<'a, 'p> {
    fn new(merges: &'a Merges<'a>, first: usize, pairs: usize) -> Self {
        let (resolved, batch) = (Vec::with_capacity(pairs), Vec::with_capacity(BATCH));
        Self { merges, first, resolved, batch, spelled: Vec::new(), last: 0 }
    }

    fn run(mut self, list: impl Iterator<Item = Result<(&'p [u8], &'p [u8])>>) -> Result<Vec<Resolved>> {
        for pair in list {
            let (left, right) = pair?;
            let start = self.spelled.len();
            let middle = self.merges.spell(left, &mut self.spelled);
            let end = middle.and_then(|_| self.merges.spell(right, &mut self.spelled));
            let spelled = middle.zip(end).map(|(middle, end)| {
                let hash = |range| self.merges.vocabulary.index.hash(&self.spelled[range]);
                ([start, middle, end], [hash(start..middle), hash(middle..end)])
            });
            self.batch.push(Pair { left, right, spelled });
            if self.batch.len() == BATCH {
                self.resolve()?;
            }
        }
        self.resolve()?;
        Ok(self.resolved)
    }

    fn resolve(&mut self) -> Result<()> {
        let Vocabulary { pieces, index, kinds } = self.merges.vocabulary;
        let hashes = || self.batch.iter().filter_map(|pair| pair.spelled).flat_map(|(_, hashes)| hashes);
        let slots = hashes().fold(0, |sum, hash| sum ^ index.touch(hash));
        let texts = hashes().fold(0, |sum, hash| sum ^ index.touch_piece(pieces, hash));
        std::hint::black_box((slots, texts));
        for pair in self.batch.drain(..) {
            let joined = pair.spelled.and_then(|([start, middle, end], [left_hash, right_hash])| {
                let left = index.get_hashed(pieces, &self.spelled[start..middle], left_hash)?;
                let right = index.get_hashed(pieces, &self.spelled[middle..end], right_hash)?;
                let joined = &self.spelled[start..end];
                let next = self.last + 1;
                let guessed =
                    kinds.get(next as usize) == Some(&TokenKind::Normal) && pieces.get(next) == joined;
                let id = if guessed { next } else { index.get(pieces, joined)? };
                Some((left, right, id))
            });
            if let Some((_, _, id)) = joined {
                self.last = id;
            } else {
                self.merges.check_tokens(self.first + self.resolved.len(), pair.left, pair.right)?;
            }
            self.resolved.push(joined.unwrap_or((NONE, NONE, NONE)));
        }
        self.spelled.clear();
        Ok(())
    }
}
