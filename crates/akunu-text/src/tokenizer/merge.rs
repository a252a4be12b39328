//! Byte-pair merging: of all neighbouring symbols that can be joined, join the pair of lowest rank (the leftmost of
//! equals), and again, until nothing can be joined.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::vocab::{Join, NONE, TokenId};

/// Where the joins of a vocabulary come from.
pub(crate) trait Joins {
    /// The join of two neighbouring symbols that together spell `text`.
    fn join(&self, left: TokenId, right: TokenId, text: &[u8]) -> Option<Join>;
}

/// A stretch of a word, beginning where the symbol before ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// [`NONE`] for a character the vocabulary does not have, which may still be part of a longer piece.
    pub id: TokenId,
    /// Byte offset in the word.
    pub end: u32,
}

/// Memory that merging needs, kept from word to word.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The join of each symbol with its successor.
    joins: Vec<Join>,
    links: Vec<Link>,
    /// (rank, symbol), packed so that the lowest rank and then the leftmost symbol compares lowest.
    queue: BinaryHeap<Reverse<u64>>,
}

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// A symbol that has no successor or cannot be joined with it. No join has this rank.
const NO_JOIN: Join = Join { rank: u32::MAX, id: NONE };

/// "No symbol" in a link.
const END: u32 = u32::MAX;

/// Up to this many symbols, searching all pairs again after each join is faster than keeping a queue.
const SHORT: usize = 40;

/// Joins the symbols that make up `word` in place. Takes O(n log n) for n symbols.
pub(crate) fn merge(word: &[u8], symbols: &mut Vec<Symbol>, joins: &impl Joins, scratch: &mut Scratch) {
    if symbols.len() < 2 {
        return;
    }
    scratch.joins.clear();
    let mut start = 0;
    for pair in symbols.windows(2) {
        let text = &word[start..pair[1].end as usize];
        scratch.joins.push(joins.join(pair[0].id, pair[1].id, text).unwrap_or(NO_JOIN));
        start = pair[0].end as usize;
    }
    scratch.joins.push(NO_JOIN);
    if symbols.len() <= SHORT {
        merge_by_search(word, symbols, joins, &mut scratch.joins);
    } else {
        merge_by_queue(word, symbols, joins, scratch);
    }
}

fn merge_by_search(word: &[u8], symbols: &mut Vec<Symbol>, joins: &impl Joins, found: &mut Vec<Join>) {
    let start = |symbols: &[Symbol], i: usize| if i == 0 { 0 } else { symbols[i - 1].end as usize };
    while let Some((i, join)) = found.iter().copied().enumerate().min_by_key(|(_, join)| join.rank)
        && join.rank != NO_JOIN.rank
    {
        symbols[i] = Symbol { id: join.id, end: symbols[i + 1].end };
        symbols.remove(i + 1);
        found.remove(i);
        for left in [i.wrapping_sub(1), i] {
            if let (Some(a), Some(b)) = (symbols.get(left), symbols.get(left.wrapping_add(1))) {
                let text = &word[start(symbols, left)..b.end as usize];
                found[left] = joins.join(a.id, b.id, text).unwrap_or(NO_JOIN);
            }
        }
    }
}

fn merge_by_queue(word: &[u8], symbols: &mut Vec<Symbol>, joins: &impl Joins, scratch: &mut Scratch) {
    let Scratch { joins: found, links, queue } = scratch;
    let count = symbols.len() as u32;
    links.clear();
    links.extend((0..count).map(|i| Link {
        previous: i.checked_sub(1).unwrap_or(END),
        next: if i + 1 < count { i + 1 } else { END },
    }));
    let entry = |rank: u32, symbol: u32| Reverse(u64::from(rank) << 32 | u64::from(symbol));
    queue.clear();
    queue.extend(
        (0..count)
            .zip(found.iter())
            .filter(|(_, join)| join.rank != NO_JOIN.rank)
            .map(|(i, join)| entry(join.rank, i)),
    );
    while let Some(Reverse(top)) = queue.pop() {
        let (rank, left) = ((top >> 32) as u32, top as u32 as usize);
        let join = found[left];
        if join.rank != rank {
            continue; // one of the two was joined with another since
        }
        let right = links[left].next as usize;
        symbols[left] = Symbol { id: join.id, end: symbols[right].end };
        found[right] = NO_JOIN;
        let after = links[right].next;
        links[left].next = after;
        if let Some(after) = links.get_mut(after as usize) {
            after.previous = left as u32;
        }
        for left in [links[left].previous, left as u32] {
            let Some(&link) = links.get(left as usize) else { continue };
            let left_symbol = symbols[left as usize];
            let Some(right_symbol) = symbols.get(link.next as usize) else {
                found[left as usize] = NO_JOIN;
                continue;
            };
            let start = symbols.get(link.previous as usize).map_or(0, |symbol| symbol.end);
            let text = &word[start as usize..right_symbol.end as usize];
            let join = joins.join(left_symbol.id, right_symbol.id, text).unwrap_or(NO_JOIN);
            found[left as usize] = join;
            if join.rank != NO_JOIN.rank {
                queue.push(entry(join.rank, left));
            }
        }
    }
    // Every survivor lies at or behind the place it moves to.
    let (mut kept, mut i) = (0, 0);
    while let Some(&symbol) = symbols.get(i as usize) {
        symbols[kept] = symbol;
        kept += 1;
        i = links[i as usize].next;
    }
    symbols.truncate(kept);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Joins two symbols when the sum of their ids is divisible by the modulus; ids are lengths.
    struct Lengths(u32);

    impl Joins for Lengths {
        fn join(&self, left: TokenId, right: TokenId, text: &[u8]) -> Option<Join> {
            assert_eq!(text.len() as u32, left + right);
            let rank = text.iter().fold(left * 7, |rank, &byte| rank * 3 % 101 + u32::from(byte));
            (rank % 5 < self.0).then_some(Join { rank: rank % 23, id: left + right })
        }
    }

    fn letters(word: &[u8]) -> Vec<Symbol> {
        (1..=word.len() as u32).map(|end| Symbol { id: 1, end }).collect()
    }

    proptest! {
        #[test]
        fn searching_and_queueing_join_the_same_pairs(word in "[ab]{2,120}", modulus in 1u32..5) {
            let (word, joins) = (word.as_bytes(), Lengths(modulus));
            let mut scratch = Scratch::default();
            let (mut searched, mut queued) = (letters(word), letters(word));
            let first: Vec<Join> = (2..=word.len())
                .map(|end| joins.join(1, 1, &word[end - 2..end]).unwrap_or(NO_JOIN))
                .chain([NO_JOIN])
                .collect();
            scratch.joins = first.clone();
            merge_by_queue(word, &mut queued, &joins, &mut scratch);
            merge_by_search(word, &mut searched, &joins, &mut first.clone());
            prop_assert_eq!(searched, queued);
        }
    }
}
