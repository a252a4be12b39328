//! Attention over one block of keys and values, as online softmax.
//!
//! A *query* is one head of one row. All queries that read the same key and value head go over a block together, so that
//! it is read and converted once for several of them. What a query gets does not depend on its neighbours: positions it
//! may not see have weight zero, and blocks are visited in the order of their positions.

use std::marker::PhantomData;

use akunu_program::{BLOCK, KV_GROUP};

use crate::memory::{ALIGN, ask};
use crate::simd::{Kernel, LANES, Simd};

use super::cache::{SUBTILES, Tile};

/// Queries worked on together at most.
const QUERIES: usize = 4;

/// The same where nothing is converted on the way, by instruction sets with registers for it.
const MANY_QUERIES: usize = 8;

/// Elements of keys, or positions of values, between two times that the next tile is asked for.
const STRIDE: usize = 4;
const _: () = assert!(LANES.is_multiple_of(STRIDE) && KV_GROUP.is_multiple_of(STRIDE));

/// Vectors of a head's dimension worked on together when values are summed.
const COLUMNS: usize = 4;

/// Room before the sums of a query's state: the largest score, the total weight, and padding to a vector.
pub(crate) const STATE_HEAD: usize = LANES;

/// `f32`s of the state of one query whose head has `dim` elements (padded to whole vectors).
pub(crate) const fn state_len(dim: usize) -> usize {
    STATE_HEAD + dim
}

/// The state of a query that has seen nothing.
pub(crate) fn clear(state: &mut [f32]) {
    state.fill(0.0);
    state[0] = f32::NEG_INFINITY;
}

/// The tile that is read after another: tiles lie far apart, and the processor cannot foresee where.
#[derive(Clone, Copy)]
pub(crate) struct Next {
    pub(crate) keys: *const u8,
    /// From the first on; none if it is not known.
    pub(crate) positions: usize,
}

impl Next {
    pub(crate) const UNKNOWN: Next = Next { keys: std::ptr::null(), positions: 0 };
}

/// Asks for the next tile bit by bit, the keys and the values each in two places: a processor that is asked in four
/// places fetches more than one that is asked in fewer.
struct Ahead<T> {
    at: *const u8,
    /// From one place of the keys, or the values, to the other.
    half: usize,
    /// From the keys to the values.
    values: usize,
    /// Lines of each place not asked for yet.
    left: usize,
    tile: PhantomData<T>,
}

impl<T: Tile> Ahead<T> {
    #[inline(always)]
    fn new(next: Next, dim: usize) -> Self {
        // Keys lie by sixteens of positions, values behind those of the whole block.
        let half = next.positions.next_multiple_of(LANES) * dim * T::ASKED / 2;
        let values = BLOCK * dim * T::ASKED;
        Ahead { at: next.keys, half, values, left: half / ALIGN, tile: PhantomData }
    }

    /// The next lines of each place, as many as an element has bytes: so a tile is all asked for when another one has been worked on.
    #[inline(always)]
    fn ask(&mut self) {
        for _ in 0..T::ASKED {
            if self.left == 0 {
                return;
            }
            for place in [0, self.half, self.values, self.values + self.half] {
                ask(self.at.wrapping_add(place));
            }
            self.at = self.at.wrapping_add(ALIGN);
            self.left -= 1;
        }
    }
}

/// Adds one block to the state of some queries.
pub(crate) struct AttendBlock<'a, T> {
    /// Keys and values, of heads of `dim` elements.
    pub(crate) tile: T,
    /// What is read after this.
    pub(crate) next: Next,
    /// A multiple of the vector length.
    pub(crate) dim: usize,
    /// `[query][dim]`.
    pub(crate) queries: &'a [f32],
    /// The first position of the block that each query sees, and the one after the last.
    pub(crate) visible: &'a [[u8; 2]],
    pub(crate) scale: f32,
    pub(crate) cap: Option<f32>,
    /// `[query][state_len(dim)]`.
    pub(crate) state: &'a mut [f32],
}

impl<T: Tile> Kernel for AttendBlock<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let mut first = 0;
        while first < self.visible.len() {
            let left = self.visible.len() - first;
            first += match left {
                _ if !S::TOGETHER => self.together::<S, 1>(first),
                MANY_QUERIES.. if T::ASKED == 0 && S::MANY_REGISTERS => {
                    self.together::<S, MANY_QUERIES>(first)
                }
                QUERIES.. => self.together::<S, QUERIES>(first),
                3 => self.together::<S, 3>(first),
                2 => self.together::<S, 2>(first),
                _ => self.together::<S, 1>(first),
            };
        }
    }
}

impl<T: Tile> AttendBlock<'_, T> {
    /// `Q` queries; returns `Q`.
    #[inline(always)]
    fn together<S: Simd, const Q: usize>(&mut self, first: usize) -> usize {
        let dim = self.dim;
        let queries = &self.queries[first * dim..(first + Q) * dim];
        let visible: &[[u8; 2]] = &self.visible[first..first + Q];
        let (begin, end) = visible.iter().fold((BLOCK, 0), |(b, e), v| {
            if v[0] < v[1] { (b.min(usize::from(v[0])), e.max(usize::from(v[1]))) } else { (b, e) }
        });
        if begin >= end {
            return Q;
        }
        // Only the first of several groups of queries asks.
        let mut ahead = Ahead::<T>::new(if first == 0 { self.next } else { Next::UNKNOWN }, dim);
        let mut weights = [[0.0; BLOCK]; Q];
        let subtiles = end.div_ceil(LANES);
        if T::ASKED > 0 {
            match subtiles {
                1 => self.scores::<S, Q, 1>(queries, 0, &mut ahead, &mut weights),
                2 => self.scores::<S, Q, 2>(queries, 0, &mut ahead, &mut weights),
                _ => self.scores::<S, Q, SUBTILES>(queries, 0, &mut ahead, &mut weights),
            }
        } else if S::MANY_REGISTERS {
            for subtile in (0..subtiles).step_by(2) {
                self.scores::<S, Q, 2>(queries, subtile, &mut ahead, &mut weights);
            }
        } else {
            for subtile in 0..subtiles {
                self.scores::<S, Q, 1>(queries, subtile, &mut ahead, &mut weights);
            }
        }
        let state = &mut self.state[first * state_len(dim)..(first + Q) * state_len(dim)];
        for ((weights, visible), state) in
            weights.iter_mut().zip(visible).zip(state.chunks_exact_mut(state_len(dim)))
        {
            soften::<S>(&mut weights[..subtiles * LANES], *visible, state);
        }
        self.sum_values::<S, Q>(first, &weights, begin, end, &mut ahead);
        Q
    }

    /// The scaled and capped scores of the positions of `V` vectors.
    #[inline(always)]
    fn scores<S: Simd, const Q: usize, const V: usize>(
        &self,
        queries: &[f32],
        first: usize,
        ahead: &mut Ahead<T>,
        scores: &mut [[f32; BLOCK]; Q],
    ) {
        let dim = self.dim;
        let mut sums = [[S::splat(0.0); V]; Q];
        for group in 0..dim.div_ceil(KV_GROUP) {
            let scales = self.tile.key_scales::<S>(group);
            for part in (group * KV_GROUP..dim.min((group + 1) * KV_GROUP)).step_by(STRIDE) {
                ahead.ask();
                for d in part..part + STRIDE {
                    let mut keys = [S::splat(0.0); V];
                    for i in 0..V {
                        // SAFETY: the tile's heads have `dim` elements, a multiple of `STRIDE`, and `first + V` is at most the
                        // number of subtiles.
                        keys[i] = unsafe { self.tile.key::<S>(first + i, d, dim, scales[first + i]) };
                    }
                    for (q, sums) in sums.iter_mut().enumerate() {
                        // SAFETY: `queries` holds `Q · dim` numbers.
                        let x = S::splat(unsafe { *queries.get_unchecked(q * dim + d) });
                        for i in 0..V {
                            sums[i] = S::fma(keys[i], x, sums[i]);
                        }
                    }
                }
            }
        }
        let scale = S::splat(self.scale);
        for (sums, scores) in sums.into_iter().zip(scores) {
            for (sum, scores) in sums.into_iter().zip(&mut scores.as_chunks_mut().0[first..]) {
                let mut score = S::mul(sum, scale);
                if let Some(cap) = self.cap {
                    score = S::mul(S::splat(cap), S::tanh(S::div(score, S::splat(cap))));
                }
                S::store(score, scores);
            }
        }
    }

    /// Adds the block's values by their weights.
    #[inline(always)]
    fn sum_values<S: Simd, const Q: usize>(
        &mut self,
        first: usize,
        weights: &[[f32; BLOCK]; Q],
        begin: usize,
        end: usize,
        ahead: &mut Ahead<T>,
    ) {
        let vectors = self.dim / LANES;
        let mut column = 0;
        if T::ASKED > 0 {
            while column + COLUMNS <= vectors {
                self.sum_columns::<S, Q, COLUMNS>(first, weights, begin, end, column, ahead);
                column += COLUMNS;
            }
        } else if S::MANY_REGISTERS {
            while column + 2 <= vectors {
                self.sum_columns::<S, Q, 2>(first, weights, begin, end, column, ahead);
                column += 2;
            }
        }
        while column < vectors {
            self.sum_columns::<S, Q, 1>(first, weights, begin, end, column, ahead);
            column += 1;
        }
    }

    #[inline(always)]
    fn sum_columns<S: Simd, const Q: usize, const C: usize>(
        &mut self,
        first: usize,
        weights: &[[f32; BLOCK]; Q],
        begin: usize,
        end: usize,
        column: usize,
        ahead: &mut Ahead<T>,
    ) {
        let vectors = self.dim / LANES;
        let mut scales = [[1.0; BLOCK]; C];
        if T::SCALED {
            for (c, scales) in scales.iter_mut().enumerate() {
                *scales = self.tile.value_scales::<S>((column + c) * LANES / KV_GROUP);
            }
        }
        let state = self.state.as_chunks_mut::<LANES>().0;
        let at = |q: usize, c: usize| (first + q) * (1 + vectors) + 1 + column + c;
        let mut sums = [[S::splat(0.0); C]; Q];
        for (q, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = S::load(&state[at(q, c)]);
            }
        }
        for part in (begin..end).step_by(STRIDE) {
            ahead.ask();
            for position in part..end.min(part + STRIDE) {
                let mut values = [S::splat(0.0); C];
                for (c, value) in values.iter_mut().enumerate() {
                    // SAFETY: the tile has `BLOCK · vectors` vectors of values, `position` is below `BLOCK` and `column + c`
                    // below `vectors`.
                    *value = unsafe { self.tile.value::<S>(position * vectors + column + c) };
                    if T::SCALED {
                        *value = S::mul(*value, S::splat(scales[c][position]));
                    }
                }
                for q in 0..Q {
                    let weight = S::splat(weights[q][position]);
                    for c in 0..C {
                        sums[q][c] = S::fma(values[c], weight, sums[q][c]);
                    }
                }
            }
        }
        for q in 0..Q {
            for c in 0..C {
                S::store(sums[q][c], &mut state[at(q, c)]);
            }
        }
    }
}

/// Turns scores, whole vectors of them, into weights relative to the largest score so far, and brings the state to that scale.
#[inline(always)]
fn soften<S: Simd>(scores: &mut [f32], [begin, end]: [u8; 2], state: &mut [f32]) {
    if begin >= end {
        scores.fill(0.0);
        return;
    }
    scores[..usize::from(begin)].fill(f32::NEG_INFINITY);
    scores[usize::from(end)..].fill(f32::NEG_INFINITY);
    let scores = scores.as_chunks_mut::<LANES>().0;
    let mut block = S::splat(f32::NEG_INFINITY);
    for scores in &*scores {
        block = S::max(block, S::load(scores));
    }
    let before = state[0];
    let largest = if S::any_above(block, S::splat(before)) { S::largest(block).max(before) } else { before };
    let mut total = S::splat(0.0);
    for scores in scores {
        let weights = S::exp(S::sub(S::load(scores), S::splat(largest)));
        total = S::add(total, weights);
        S::store(weights, scores);
    }
    let sum = S::sum(total);
    if before == largest {
        state[1] += sum;
        return;
    }
    let mut shrink = [0.0; LANES];
    S::store(S::exp(S::splat(before - largest)), &mut shrink);
    state[0] = largest;
    state[1] = state[1] * shrink[0] + sum;
    for sums in &mut state.as_chunks_mut::<LANES>().0[1..] {
        S::store(S::mul(S::load(sums), S::splat(shrink[0])), sums);
    }
}

/// The scaled scores of one query with the first keys of a block.
pub(crate) struct ScoreBlock<'a, T> {
    pub(crate) tile: T,
    /// A multiple of the vector length.
    pub(crate) dim: usize,
    /// `[dim]`.
    pub(crate) query: &'a [f32],
    pub(crate) scale: f32,
    /// As many as are wanted.
    pub(crate) out: &'a mut [f32],
}

impl<T: Tile> Kernel for ScoreBlock<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let ScoreBlock { tile, dim, query, scale, out } = self;
        let block = AttendBlock {
            tile,
            next: Next::UNKNOWN,
            dim,
            queries: query,
            visible: &[],
            scale,
            cap: None,
            state: &mut [],
        };
        let mut scores = [[0.0; BLOCK]];
        let mut ahead = Ahead::new(block.next, dim);
        block.scores::<S, 1, SUBTILES>(query, 0, &mut ahead, &mut scores);
        out.copy_from_slice(&scores[0][..out.len()]);
    }
}

/// Turns scores into weights that sum to 1.
pub(crate) struct Soften<'a> {
    pub(crate) x: &'a mut [f32],
}

impl Kernel for Soften<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let largest = self.x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut total = S::splat(0.0);
        for part in self.x.chunks_mut(LANES) {
            let mut scores = [f32::NEG_INFINITY; LANES];
            scores[..part.len()].copy_from_slice(part);
            let weights = S::exp(S::sub(S::load(&scores), S::splat(largest)));
            total = S::add(total, weights);
            S::store(weights, &mut scores);
            part.copy_from_slice(&scores[..part.len()]);
        }
        let total = S::sum(total);
        self.x.iter_mut().for_each(|x| *x /= total);
    }
}

/// Joins the states of one query over consecutive parts of its context, in order, and divides by the total weight.
pub(crate) struct Merge<'a> {
    /// `[part]`, each `stride` long and beginning with the query's state.
    pub(crate) parts: &'a [f32],
    pub(crate) stride: usize,
    /// The head's own size, without padding.
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Merge<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let largest = self.parts.chunks(self.stride).fold(f32::NEG_INFINITY, |m, part| m.max(part[0]));
        let mut total = 0.0;
        self.out.fill(0.0);
        for part in self.parts.chunks(self.stride) {
            let mut weight = [0.0; LANES];
            S::store(S::exp(S::splat(part[0] - largest)), &mut weight);
            total += part[1] * weight[0];
            for (out, x) in self.out.iter_mut().zip(&part[STATE_HEAD..]) {
                *out += x * weight[0];
            }
        }
        for out in self.out {
            *out /= total;
        }
    }
}
