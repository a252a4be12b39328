//! Attention of a prompt over one block of keys and values, as online softmax, and how states are joined.
//!
//! A *query* is one head of one row. Several that read the same key and value head go over a block together. What a query
//! gets does not depend on its neighbours: positions it may not see have weight zero, and blocks are visited in the order of
//! their positions.

use akunu_program::BLOCK;

use crate::simd::{Kernel, LANES, Simd};

use super::cache::{WideTile, padded};

/// Queries worked on together at most.
pub(super) const QUERIES: usize = 4;

/// The same, of a prompt, with instruction sets that have registers for it.
const MANY_QUERIES: usize = 8;

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

/// Adds one block to the state of some queries.
pub(crate) struct AttendBlock<'a> {
    /// Keys and values, of heads of `dim` elements.
    pub(crate) tile: WideTile<'a>,
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

impl Kernel for AttendBlock<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let mut first = 0;
        while first < self.visible.len() {
            let left = self.visible.len() - first;
            first += match left {
                _ if !S::TOGETHER => self.together::<S, 1>(first),
                MANY_QUERIES.. if S::MANY_REGISTERS => self.together::<S, MANY_QUERIES>(first),
                QUERIES.. => self.together::<S, QUERIES>(first),
                3 => self.together::<S, 3>(first),
                2 => self.together::<S, 2>(first),
                _ => self.together::<S, 1>(first),
            };
        }
    }
}

impl AttendBlock<'_> {
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
        let mut weights = [[0.0; BLOCK]; Q];
        let subtiles = end.div_ceil(LANES);
        if S::MANY_REGISTERS {
            for subtile in (0..subtiles).step_by(2) {
                self.scores::<S, Q, 2>(queries, subtile, &mut weights);
            }
        } else {
            for subtile in 0..subtiles {
                self.scores::<S, Q, 1>(queries, subtile, &mut weights);
            }
        }
        let state = &mut self.state[first * state_len(dim)..(first + Q) * state_len(dim)];
        for ((weights, visible), state) in
            weights.iter_mut().zip(visible).zip(state.chunks_exact_mut(state_len(dim)))
        {
            soften::<S>(&mut weights[..subtiles * LANES], visible.map(usize::from), state);
        }
        let vectors = dim / LANES;
        let mut column = 0;
        while S::MANY_REGISTERS && column + 2 <= vectors {
            self.sum_columns::<S, Q, 2>(first, &weights, begin, end, column);
            column += 2;
        }
        while column < vectors {
            self.sum_columns::<S, Q, 1>(first, &weights, begin, end, column);
            column += 1;
        }
        Q
    }

    /// The scaled and capped scores of the positions of `V` vectors.
    #[inline(always)]
    fn scores<S: Simd, const Q: usize, const V: usize>(
        &self,
        queries: &[f32],
        first: usize,
        scores: &mut [[f32; BLOCK]; Q],
    ) {
        let dim = self.dim;
        let keys = &self.tile.keys.as_chunks::<LANES>().0[first * dim..(first + V) * dim];
        let mut sums = [[S::splat(0.0); V]; Q];
        for d in 0..dim {
            let mut vectors = [S::splat(0.0); V];
            for (i, vector) in vectors.iter_mut().enumerate() {
                // SAFETY: `keys` holds `V · dim` vectors.
                *vector = S::load(unsafe { keys.get_unchecked(i * dim + d) });
            }
            for (q, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `queries` holds `Q · dim` numbers.
                let x = S::splat(unsafe { *queries.get_unchecked(q * dim + d) });
                for i in 0..V {
                    sums[i] = S::fma(vectors[i], x, sums[i]);
                }
            }
        }
        let scale = S::splat(self.scale);
        for (sums, scores) in sums.into_iter().zip(scores) {
            for (sum, scores) in sums.into_iter().zip(&mut scores.as_chunks_mut().0[first..]) {
                S::store(scaled::<S>(sum, scale, self.cap), scores);
            }
        }
    }

    /// Adds the block's values by their weights, in some vectors of the head.
    #[inline(always)]
    fn sum_columns<S: Simd, const Q: usize, const C: usize>(
        &mut self,
        first: usize,
        weights: &[[f32; BLOCK]; Q],
        begin: usize,
        end: usize,
        column: usize,
    ) {
        let vectors = self.dim / LANES;
        assert!(end <= BLOCK);
        let values = &self.tile.values.as_chunks::<LANES>().0[..end * vectors];
        let state = self.state.as_chunks_mut::<LANES>().0;
        let at = |q: usize, c: usize| (first + q) * (1 + vectors) + 1 + column + c;
        let mut sums = [[S::splat(0.0); C]; Q];
        for (q, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = S::load(&state[at(q, c)]);
            }
        }
        for position in begin..end {
            let mut loaded = [S::splat(0.0); C];
            for (c, value) in loaded.iter_mut().enumerate() {
                // SAFETY: there are `end · vectors`, and `column + c` is below `vectors`.
                *value = S::load(unsafe { values.get_unchecked(position * vectors + column + c) });
            }
            for (q, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `position` is below `end`, and that at most `BLOCK`.
                let weight = S::splat(unsafe { *weights[q].get_unchecked(position) });
                for c in 0..C {
                    sums[c] = S::fma(loaded[c], weight, sums[c]);
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

/// A score as it is compared with others.
#[inline(always)]
pub(super) fn scaled<S: Simd>(sum: S::F, scale: S::F, cap: Option<f32>) -> S::F {
    let score = S::mul(sum, scale);
    match cap {
        Some(cap) => S::mul(S::splat(cap), S::tanh(S::div(score, S::splat(cap)))),
        None => score,
    }
}

/// Turns scores, whole vectors of them, into weights relative to the largest score so far, and brings the state to that scale.
#[inline(always)]
pub(super) fn soften<S: Simd>(scores: &mut [f32], [begin, end]: [usize; 2], state: &mut [f32]) {
    if begin >= end {
        scores.fill(0.0);
        return;
    }
    scores[..begin].fill(f32::NEG_INFINITY);
    scores[end..].fill(f32::NEG_INFINITY);
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
        let Merge { parts, stride, out } = self;
        let count = parts.len().div_ceil(stride);
        if count == 1 {
            out.copy_from_slice(&parts[STATE_HEAD..][..out.len()]);
            out.iter_mut().for_each(|out| *out /= parts[1]);
            return;
        }
        let mut largest = f32::NEG_INFINITY;
        for part in 0..count {
            largest = largest.max(parts[part * stride]);
        }
        let mut total = 0.0;
        // As many as a vector has weights at a time. What they come to is kept in the output meanwhile.
        for first in (0..count).step_by(LANES) {
            let end = count.min(first + LANES);
            let mut weights = [f32::NEG_INFINITY; LANES];
            for (i, weight) in weights[..end - first].iter_mut().enumerate() {
                *weight = parts[(first + i) * stride];
            }
            S::store(S::exp(S::sub(S::load(&weights), S::splat(largest))), &mut weights);
            for part in first..end {
                total += parts[part * stride + 1] * weights[part - first];
            }
            for column in (0..out.len()).step_by(LANES) {
                let out = &mut out[column..];
                let width = LANES.min(out.len());
                let mut sum = if first == 0 { S::splat(0.0) } else { padded::<S>(&out[..width]) };
                for part in first..end {
                    let x = &parts[part * stride + STATE_HEAD + column..].as_chunks().0[0];
                    sum = S::fma(S::load(x), S::splat(weights[part - first]), sum);
                }
                let mut sums = [0.0; LANES];
                S::store(sum, &mut sums);
                out[..width].copy_from_slice(&sums[..width]);
            }
        }
        out.iter_mut().for_each(|out| *out /= total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn parts_of_a_context_are_joined_as_one() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for (dim, count) in [(16, 1), (20, 16), (64, 17), (20, 33)] {
                let stride = state_len(usize::next_multiple_of(dim, LANES)) + LANES;
                let mut parts = vec![0.0; count * stride];
                for (p, part) in parts.chunks_exact_mut(stride).enumerate() {
                    clear(part);
                    // One of them has seen nothing.
                    if p != 1 {
                        part[0] = (p as f32 * 1.7).sin() * 5.0;
                        part[1] = 1.0 + p as f32;
                        part[STATE_HEAD..]
                            .iter_mut()
                            .enumerate()
                            .for_each(|(i, x)| *x = ((p * 31 + i) as f32).cos());
                    }
                }
                let mut out = vec![f32::NAN; dim];
                isa.run(Merge { parts: &parts, stride, out: &mut out });
                let weights = || parts.chunks_exact(stride).map(|part| f64::from(part[0]).exp());
                let of = |i: usize| parts.chunks_exact(stride).map(move |part| f64::from(part[i]));
                let total: f64 = weights().zip(of(1)).map(|(w, x)| w * x).sum();
                for (i, &out) in out.iter().enumerate() {
                    let sum: f64 = weights().zip(of(STATE_HEAD + i)).map(|(w, x)| w * x).sum();
                    assert!((f64::from(out) - sum / total).abs() < 1e-5, "{isa} {dim} {count}: {i}");
                }
            }
        }
    }
}
