//! What a query has seen of its context, as online softmax: how scores change it, and how states are joined.
//!
//! A *query* is one head of one row.

use akunu_program::BLOCK;

use crate::simd::{Kernel, LANES, Simd};

use super::cache::{SUBTILES, padded};

/// Queries worked on together at most.
pub(super) const QUERIES: usize = 4;

/// Room before the sums of a query's state: the largest score, the total weight, and padding to a vector. Of a prompt, a vector of
/// total weights.
pub(crate) const STATE_HEAD: usize = LANES;

/// `f32`s of the state of one query whose head has `dim` elements (padded to whole vectors).
pub(crate) const fn state_len(dim: usize) -> usize {
    STATE_HEAD + dim
}

/// The positions of a block.
pub(super) const POSITIONS: [[f32; LANES]; SUBTILES] = {
    let mut positions = [[0.0; LANES]; SUBTILES];
    let mut i = 0;
    while i < BLOCK {
        positions[i / LANES][i % LANES] = i as f32;
        i += 1;
    }
    positions
};

/// The state of a query that has seen nothing.
pub(crate) fn clear(state: &mut [f32]) {
    // Not at once: it is so little that a call would take longer.
    state.as_chunks_mut::<LANES>().0.iter_mut().for_each(|vector| *vector = [0.0; LANES]);
    state[0] = f32::NEG_INFINITY;
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

/// Turns scores of the first positions of a block into weights relative to the largest score so far, and brings the state to that
/// scale. Of the positions some are seen, from the first one to the one after the last.
#[inline(always)]
pub(super) fn soften<S: Simd, const V: usize>(
    mut scores: [S::F; V],
    [begin, end]: [usize; 2],
    state: &mut [f32],
) -> [S::F; V] {
    if begin >= end {
        return [S::splat(0.0); V];
    }
    let none = S::splat(f32::NEG_INFINITY);
    let mut block = none;
    for (i, score) in scores.iter_mut().enumerate() {
        if begin > i * LANES || end < (i + 1) * LANES {
            let positions = S::load(&POSITIONS[i]);
            *score = S::select_less(positions, S::splat(begin as f32), none, *score);
            *score = S::select_less(positions, S::splat(end as f32), *score, none);
        }
        block = S::max(block, *score);
    }
    let before = state[0];
    let largest = if S::any_above(block, S::splat(before)) { S::largest(block).max(before) } else { before };
    let mut total = S::splat(0.0);
    for score in &mut scores {
        *score = S::exp(S::sub(*score, S::splat(largest)));
        total = S::add(total, *score);
    }
    let sum = S::sum(total);
    state[0] = largest;
    if before == largest || before == f32::NEG_INFINITY {
        // There is nothing to bring to another scale.
        state[1] += sum;
        return scores;
    }
    let mut shrink = [0.0; LANES];
    S::store(S::exp(S::splat(before - largest)), &mut shrink);
    state[1] = state[1] * shrink[0] + sum;
    for sums in &mut state.as_chunks_mut::<LANES>().0[1..] {
        S::store(S::mul(S::load(sums), S::splat(shrink[0])), sums);
    }
    scores
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
