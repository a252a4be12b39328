//! Attention of prompt rows outside of tiles, over one block of keys and values at a time, as online softmax.
//!
//! A *query* is one head of one row. Some that read the same key and value head go over a block together: first all are scored, then
//! all scores become weights, and then all sums are made, so that only the keys, or the values, have to stay in the first-level
//! cache. Weights are powers of two: queries come multiplied by the scale and log₂ e ([`factor`]).
//!
//! What a query gets does not depend on its neighbours: positions it may not see have weight zero, which adds nothing, and blocks
//! are visited in the order of their positions.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use akunu_program::BLOCK;

use crate::memory::{Plain, Shared};
use crate::simd::{Kernel, LANES, Simd};

use super::attention::{POSITIONS, state_len};
use super::cache::{SUBTILES, WideTile};

/// Queries worked on together: by four vectors of positions, or of a head, they are 24 vectors of sums, and there are 32 registers;
/// by one, twelve of sixteen, where a vector is two of them.
const QUERIES: usize = 6;

/// By how much scores may be above what weights are relative to, to base 2. Weights are floats: up to 2^8 they are as exact as up to 1,
/// and what was summed up before is hardly ever multiplied.
const SLACK: f32 = 8.0;

/// What queries are multiplied by. Of capped scores, the logarithm's base is changed after that.
pub(crate) fn factor(scale: f32, cap: Option<f32>) -> f32 {
    match cap {
        Some(cap) => scale / cap,
        None => scale * LOG2_E,
    }
}

/// What weights of a query are relative to.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Level {
    /// A score.
    at: f32,
    /// By how much the block's scores shrink the sums so far.
    shrink: f32,
}

// SAFETY: numbers without padding.
unsafe impl Plain for Level {}

impl Level {
    /// Nothing was seen.
    pub(crate) const NONE: Level = Level { at: f32::NEG_INFINITY, shrink: 1.0 };
}

/// Room for one worker's attention, beside that for queries and sums.
pub(crate) struct PromptScratch {
    /// The keys of a block, and then its values.
    pub(crate) wide: Shared,
    /// `[query][position]`
    pub(crate) weights: Shared,
    /// `[query]`
    pub(crate) levels: Shared,
}

impl PromptScratch {
    /// For so many queries, as [`PromptScratch::queries`] says, with heads of `dim` elements (padded to whole vectors).
    pub(crate) fn new(queries: usize, dim: usize) -> PromptScratch {
        PromptScratch {
            wide: Shared::new(2 * BLOCK * dim * size_of::<f32>()),
            weights: Shared::new(queries * BLOCK * size_of::<f32>()),
            levels: Shared::new(queries * size_of::<Level>()),
        }
    }

    /// For how many queries there has to be room if there are so many.
    pub(crate) const fn queries(count: usize) -> usize {
        count.next_multiple_of(QUERIES)
    }
}

/// Adds one block to the sums of some queries.
pub(crate) struct AttendBlock<'a> {
    /// Keys and values, of heads of `dim` elements.
    pub(crate) tile: WideTile<'a>,
    /// A multiple of the vector length.
    pub(crate) dim: usize,
    pub(crate) cap: Option<f32>,
    /// The first position of the block that each query sees, and the one after the last.
    pub(crate) visible: &'a [[u8; 2]],
    /// `[query][dim]`, and anything up to what [`PromptScratch::queries`] says.
    pub(crate) queries: &'a [f32],
    /// `[query][position]`: scores, and then weights.
    pub(crate) weights: &'a mut [[f32; BLOCK]],
    pub(crate) levels: &'a mut [Level],
    /// `[query][state_len(dim)]`: total weights of positions by their number modulo 16, and then values by their weights.
    pub(crate) sums: &'a mut [f32],
}

/// The positions of a block that some queries see together; not none.
struct Seen {
    start: usize,
    end: usize,
}

impl Seen {
    /// What is seen by the `Q` queries from that one on, or by those of them that there are.
    #[inline(always)]
    fn by<const Q: usize>(visible: &[[u8; 2]], query: usize) -> Option<Seen> {
        let (mut start, mut end) = (BLOCK as u8, 0);
        for v in &visible[query..visible.len().min(query + Q)] {
            if v[0] < v[1] {
                (start, end) = (start.min(v[0]), end.max(v[1]));
            }
        }
        (start < end).then_some(Seen { start: start.into(), end: end.into() })
    }

    /// The vectors of positions.
    #[inline(always)]
    fn subtiles(&self) -> Range<usize> {
        self.start / LANES..self.end.div_ceil(LANES)
    }
}

impl Kernel for AttendBlock<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        if S::TOGETHER { self.attend::<S, QUERIES>() } else { self.attend::<S, 1>() }
    }
}

impl AttendBlock<'_> {
    #[inline(always)]
    fn attend<S: Simd, const Q: usize>(mut self) {
        let (dim, visible) = (self.dim, self.visible);
        let room = visible.len().next_multiple_of(Q);
        assert!(
            self.queries.len() >= room * dim
                && self.weights.len() >= room
                && self.levels.len() >= room
                && self.sums.len() >= room * state_len(dim)
                && self.tile.keys.len() >= dim * BLOCK
                && self.tile.values.len() >= dim * BLOCK
        );
        for query in (0..visible.len()).step_by(Q) {
            let Some(seen) = Seen::by::<Q>(visible, query) else { continue };
            let subtiles = seen.subtiles();
            if !S::MANY_REGISTERS {
                for subtile in subtiles {
                    self.score::<S, Q, 1>(query, subtile);
                }
                continue;
            }
            match subtiles.len() {
                1 => self.score::<S, Q, 1>(query, subtiles.start),
                2 => self.score::<S, Q, 2>(query, subtiles.start),
                3 => self.score::<S, Q, 3>(query, subtiles.start),
                _ => self.score::<S, Q, 4>(query, 0),
            }
        }
        for first in (0..visible.len()).step_by(Q) {
            let Some(seen) = Seen::by::<Q>(visible, first) else { continue };
            for query in first..visible.len().min(first + Q) {
                let visible = visible[query];
                if visible == [0, BLOCK as u8] {
                    self.soften::<S, true>(query, visible, 0..SUBTILES);
                } else {
                    self.soften::<S, false>(query, visible, seen.subtiles());
                }
            }
        }
        let vectors = dim / LANES;
        for query in (0..visible.len()).step_by(Q) {
            let Some(seen) = Seen::by::<Q>(visible, query) else { continue };
            let mut vector = 0;
            while vector < vectors {
                vector += match vectors - vector {
                    4.. if S::MANY_REGISTERS => self.sum::<S, Q, 4>(query, &seen, vector),
                    2.. if S::MANY_REGISTERS => self.sum::<S, Q, 2>(query, &seen, vector),
                    _ => self.sum::<S, Q, 1>(query, &seen, vector),
                };
            }
        }
    }

    /// The scores of `Q` queries and the positions of `V` vectors.
    #[inline(always)]
    fn score<S: Simd, const Q: usize, const V: usize>(&mut self, query: usize, subtile: usize) {
        let dim = self.dim;
        let queries = &self.queries[query * dim..(query + Q) * dim];
        let keys = &self.tile.keys.as_chunks::<LANES>().0[..dim * SUBTILES];
        assert!(subtile + V <= SUBTILES && dim.is_multiple_of(LANES));
        let mut sums = [[S::splat(0.0); V]; Q];
        // Two elements at a time: so places of queries are counted once for both.
        for first in (0..dim).step_by(2) {
            for d in first..first + 2 {
                let mut vectors = [S::splat(0.0); V];
                for (i, vector) in vectors.iter_mut().enumerate() {
                    // SAFETY: there are `SUBTILES` vectors for each element, and `dim` is even.
                    *vector = S::load(unsafe { keys.get_unchecked(d * SUBTILES + subtile + i) });
                }
                for (q, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: there are `Q · dim` numbers.
                    let x = S::splat(unsafe { *queries.get_unchecked(q * dim + d) });
                    for i in 0..V {
                        sums[i] = S::fma(vectors[i], x, sums[i]);
                    }
                }
            }
        }
        let scores: &mut [[f32; BLOCK]; Q] = &mut self.weights[query..].as_chunks_mut().0[0];
        for q in 0..Q {
            let scores = scores[q].as_chunks_mut::<LANES>().0;
            for i in 0..V {
                S::store(sums[q][i], &mut scores[subtile + i]);
            }
        }
    }

    /// Turns scores into weights. `WHOLE`: the query sees all of the block; then nothing is compared, with the same results.
    #[inline(always)]
    fn soften<S: Simd, const WHOLE: bool>(
        &mut self,
        query: usize,
        [begin, end]: [u8; 2],
        seen: Range<usize>,
    ) {
        let weights = self.weights[query].as_chunks_mut::<LANES>().0;
        let level = &mut self.levels[query];
        level.shrink = 1.0;
        if !WHOLE && begin >= end {
            weights[seen].as_flattened_mut().fill(0.0);
            return;
        }
        let seen = if WHOLE { 0..SUBTILES } else { seen };
        let none = S::splat(f32::NEG_INFINITY);
        let mut scores = [none; SUBTILES];
        let mut most = none;
        for i in seen.clone() {
            let mut score = S::load(&weights[i]);
            if let Some(cap) = self.cap {
                score = S::mul(S::splat(cap * LOG2_E), S::tanh(score));
            }
            if !WHOLE {
                let positions = S::load(&POSITIONS[i]);
                score = S::select_less(positions, S::splat(f32::from(begin)), none, score);
                score = S::select_less(positions, S::splat(f32::from(end)), score, none);
            }
            scores[i] = score;
            most = S::max(most, score);
        }
        let totals = &mut self.sums[query * state_len(self.dim)..].as_chunks_mut().0[0];
        let mut total = S::load(totals);
        if S::any_above(most, S::splat(level.at + SLACK)) {
            let largest = S::largest(most);
            let mut shrink = [0.0; LANES];
            S::store(S::exp2(S::splat(level.at - largest)), &mut shrink);
            *level = Level { at: largest, shrink: shrink[0] };
            total = S::mul(total, S::splat(level.shrink));
        }
        let level = S::splat(level.at);
        for i in seen {
            let weight = S::exp2(S::sub(scores[i], level));
            total = S::add(total, weight);
            S::store(weight, &mut weights[i]);
        }
        S::store(total, totals);
    }

    /// Adds the block's values by their weights, in `C` vectors of the head; returns `C`.
    #[inline(always)]
    fn sum<S: Simd, const Q: usize, const C: usize>(
        &mut self,
        query: usize,
        seen: &Seen,
        vector: usize,
    ) -> usize {
        let vectors = self.dim / LANES;
        assert!(seen.end <= BLOCK && vector + C <= vectors);
        let values = &self.tile.values.as_chunks::<LANES>().0[..BLOCK * vectors];
        let weights: &[[f32; BLOCK]; Q] = &self.weights[query..].as_chunks().0[0];
        let levels: &[Level; Q] = &self.levels[query..].as_chunks().0[0];
        let all =
            &mut self.sums.as_chunks_mut::<LANES>().0[query * (1 + vectors)..(query + Q) * (1 + vectors)];
        let at = |q: usize, c: usize| q * (1 + vectors) + 1 + vector + c;
        let mut sums = [[S::splat(0.0); C]; Q];
        for (q, sums) in sums.iter_mut().enumerate() {
            let shrink = S::splat(levels[q].shrink);
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = S::mul(S::load(&all[at(q, c)]), shrink);
            }
        }
        for position in seen.start..seen.end {
            let mut loaded = [S::splat(0.0); C];
            for (c, value) in loaded.iter_mut().enumerate() {
                // SAFETY: `position` is below `BLOCK`, and `vector + c` below `vectors`.
                *value = S::load(unsafe { values.get_unchecked(position * vectors + vector + c) });
            }
            for (q, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `position` is below `BLOCK`.
                let weight = S::splat(unsafe { *weights[q].get_unchecked(position) });
                for c in 0..C {
                    sums[c] = S::fma(loaded[c], weight, sums[c]);
                }
            }
        }
        for q in 0..Q {
            for c in 0..C {
                S::store(sums[q][c], &mut all[at(q, c)]);
            }
        }
        C
    }
}

/// What some queries found.
pub(crate) struct Finish<'a> {
    /// `[query][state_len(dim)]`.
    pub(crate) sums: &'a [f32],
    /// A multiple of the vector length.
    pub(crate) dim: usize,
    /// The head's own size, without padding.
    pub(crate) head_dim: usize,
    /// `[query][head_dim]`.
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Finish<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let queries =
            self.sums.chunks_exact(state_len(self.dim)).zip(self.out.chunks_exact_mut(self.head_dim));
        for (sums, out) in queries {
            let [total, sums @ ..] = sums.as_chunks::<LANES>().0 else { continue };
            let total = S::splat(S::sum(S::load(total)));
            let (whole, rest) = out.as_chunks_mut::<LANES>();
            for (sums, out) in sums.iter().zip(whole.iter_mut()) {
                S::store(S::div(S::load(sums), total), out);
            }
            if !rest.is_empty() {
                let mut lanes = [0.0; LANES];
                S::store(S::div(S::load(&sums[whole.len()]), total), &mut lanes);
                rest.copy_from_slice(&lanes[..rest.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// Numbers around zero.
    fn numbers(count: usize, seed: f32) -> Vec<f32> {
        (0..count).map(|i| (seed + i as f32 * 0.77).sin() * 1.5).collect()
    }

    struct Case {
        dim: usize,
        cap: Option<f32>,
        /// `[block][query]`
        visible: Vec<Vec<[u8; 2]>>,
        /// `[block]`
        tiles: Vec<[Vec<f32>; 2]>,
        /// `[query][dim]`
        queries: Vec<f32>,
    }

    impl Case {
        fn new(dim: usize, cap: Option<f32>, visible: Vec<Vec<[u8; 2]>>) -> Case {
            let tile = |i: usize| [3.0, 5.0].map(|seed| numbers(dim * BLOCK, seed + i as f32));
            let queries = numbers(visible[0].len() * dim, 0.1);
            Case { dim, cap, tiles: (0..visible.len()).map(tile).collect(), visible, queries }
        }

        /// What some of the queries find.
        fn attend(&self, isa: Isa, some: Range<usize>) -> Vec<f32> {
            let Case { dim, cap, .. } = *self;
            let room = PromptScratch::queries(some.len());
            let mut queries = self.queries[some.start * dim..some.end * dim].to_vec();
            queries.iter_mut().for_each(|x| *x *= factor(1.0, cap));
            queries.resize(room * dim, f32::NAN);
            let mut weights = vec![[f32::NAN; BLOCK]; room];
            let mut levels = vec![Level::NONE; room];
            let mut sums = vec![0.0; room * state_len(dim)];
            for ([keys, values], visible) in self.tiles.iter().zip(&self.visible) {
                isa.run(AttendBlock {
                    tile: WideTile { keys, values },
                    dim,
                    cap,
                    visible: &visible[some.clone()],
                    queries: &queries,
                    weights: &mut weights,
                    levels: &mut levels,
                    sums: &mut sums,
                });
            }
            let head_dim = dim - 3;
            let mut out = vec![f32::NAN; some.len() * head_dim];
            isa.run(Finish { sums: &sums[..some.len() * state_len(dim)], dim, head_dim, out: &mut out });
            out
        }

        /// The same of one query, exactly.
        fn exact(&self, query: usize) -> Vec<f64> {
            let dim = self.dim;
            let (mut total, mut sums) = (0.0, vec![0.0; dim]);
            for ([keys, values], visible) in self.tiles.iter().zip(&self.visible) {
                for position in visible[query][0]..visible[query][1] {
                    let position = usize::from(position);
                    let key = |d: usize| f64::from(keys[d * BLOCK + position]);
                    let score: f64 =
                        (0..dim).map(|d| key(d) * f64::from(self.queries[query * dim + d])).sum();
                    let weight = self.cap.map_or(score, |cap| {
                        let cap = f64::from(cap);
                        cap * (score / cap).tanh()
                    });
                    total += weight.exp();
                    for (d, sum) in sums.iter_mut().enumerate() {
                        *sum += weight.exp() * f64::from(values[position * dim + d]);
                    }
                }
            }
            sums.into_iter().map(|sum| sum / total).collect()
        }
    }

    #[test]
    fn queries_find_the_same_together_and_alone_and_what_they_should() {
        let window = |i: usize| {
            // Of three blocks, some of which some queries do not see at all.
            let (begin, end) = (i * 7, 60 + 7 * i);
            (0..3).map(|b| [begin, end].map(|p| p.saturating_sub(b * BLOCK).min(BLOCK) as u8)).collect()
        };
        let windows: Vec<Vec<[u8; 2]>> = (0..17).map(window).collect();
        let visible: Vec<Vec<[u8; 2]>> = (0..3).map(|b| windows.iter().map(|w| w[b]).collect()).collect();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for (dim, cap) in [(16, None), (48, Some(20.0)), (64, None), (80, None), (128, Some(4.0))] {
                let case = Case::new(dim, cap, visible.clone());
                let count = visible[0].len();
                let head_dim = dim - 3;
                let together = case.attend(isa, 0..count);
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                for query in 0..count {
                    let found = &together[query * head_dim..(query + 1) * head_dim];
                    assert_eq!(
                        bits(found),
                        bits(&case.attend(isa, query..query + 1)),
                        "{isa} {dim}: {query}"
                    );
                    for (found, exact) in found.iter().zip(case.exact(query)) {
                        // Scores are up to some hundred, in `f32`.
                        assert!(
                            (f64::from(*found) - exact).abs() < 1e-4,
                            "{isa} {dim} {query}: {found} {exact}"
                        );
                    }
                }
            }
        }
    }
}
