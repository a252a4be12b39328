//! Attention of one row over a part of its context, straight from the cache, as online softmax.
//!
//! The tiles of a part are gone over one after another, by all queries that read the same key and value head together, so
//! that each is read and converted once for several of them. What a query gets does not depend on its neighbours.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use akunu_program::{BLOCK, KV_GROUP};

use crate::memory::{ALIGN, ask};
use crate::simd::{Kernel, LANES, Simd};

use super::attention::{QUERIES, clear, scaled, soften, state_len};
use super::cache::{AnyTile, SUBTILES, Tile};

/// Elements of keys, or positions of values, between two times that the next tile is asked for.
const STRIDE: usize = 4;
const _: () =
    assert!(LANES.is_multiple_of(STRIDE) && KV_GROUP.is_multiple_of(STRIDE) && BLOCK.is_multiple_of(STRIDE));

/// Vectors of a head's dimension worked on together when values are summed.
const COLUMNS: usize = 4;

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
    keys: Halves,
    values: Halves,
    tile: PhantomData<T>,
}

/// Two places of the same length, one behind the other.
struct Halves {
    at: *const u8,
    /// From one to the other.
    half: usize,
    /// Lines of each not asked for yet.
    left: usize,
}

impl Halves {
    /// Of so many bytes together, or some more, so that each is a multiple of as many lines as [`Halves::ask`] is given.
    #[inline(always)]
    fn new(at: *const u8, bytes: usize, lines: usize) -> Halves {
        let half = (bytes / 2).next_multiple_of(lines * ALIGN);
        Halves { at, half, left: half / ALIGN }
    }

    /// The next lines of each place.
    #[inline(always)]
    fn ask(&mut self, lines: usize) {
        if self.left < lines {
            return;
        }
        for line in 0..lines {
            let at = self.at.wrapping_add(line * ALIGN);
            ask(at);
            ask(at.wrapping_add(self.half));
        }
        self.at = self.at.wrapping_add(lines * ALIGN);
        self.left -= lines;
    }
}

impl<T: Tile> Ahead<T> {
    #[inline(always)]
    fn new(next: Next, dim: usize) -> Self {
        // Keys lie by sixteens of positions, values one by one behind those of the whole block.
        let position = dim * T::BYTES;
        let keys = Halves::new(next.keys, next.positions.next_multiple_of(LANES) * position, T::BYTES);
        let values = next.keys.wrapping_add(BLOCK * position);
        let values = Halves::new(values, next.positions * position, T::BYTES);
        Ahead { keys, values, tile: PhantomData }
    }

    /// The next lines of each place, as many as an element has bytes: so a tile is all asked for when another one has been
    /// worked on.
    #[inline(always)]
    fn ask(&mut self) {
        self.keys.ask(T::BYTES);
        self.values.ask(T::BYTES);
    }
}

/// Weights of the first positions of a tile for some queries. What they are made for is written, and the rest is not there.
struct Weights<const Q: usize>([[MaybeUninit<[f32; LANES]>; SUBTILES]; Q]);

impl<const Q: usize> Weights<Q> {
    const NONE: Self = Weights([const { [const { MaybeUninit::uninit() }; SUBTILES] }; Q]);

    /// The weight of a position.
    ///
    /// # Safety
    /// It has been written.
    #[inline(always)]
    unsafe fn of(&self, query: usize, position: usize) -> f32 {
        // SAFETY: the caller's promise.
        unsafe {
            self.0.get_unchecked(query).get_unchecked(position / LANES).assume_init_ref()[position % LANES]
        }
    }
}

/// Attends to the tiles of one part.
pub(crate) struct AttendPart<'a> {
    /// Of one head in consecutive blocks; not none.
    pub(crate) tiles: &'a [AnyTile<'a>],
    /// The first position that is seen of the first tile.
    pub(crate) begin: usize,
    /// The one after the last that is seen of the last tile.
    pub(crate) end: usize,
    /// What is read after them.
    pub(crate) next: Next,
    /// A multiple of the vector length.
    pub(crate) dim: usize,
    /// `[query][dim]`.
    pub(crate) queries: &'a [f32],
    pub(crate) scale: f32,
    pub(crate) cap: Option<f32>,
    /// `[query][state_len(dim)]`, to be written.
    pub(crate) state: &'a mut [f32],
}

impl Kernel for AttendPart<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let AttendPart { tiles, begin, end, next, dim, queries, scale, cap, state } = self;
        state.chunks_exact_mut(state_len(dim)).for_each(clear);
        let last = tiles.len() - 1;
        for (i, &tile) in tiles.iter().enumerate() {
            let seen = [if i == 0 { begin } else { 0 }, if i == last { end } else { BLOCK }];
            let next = match tiles.get(i + 1) {
                Some(tile) => Next { keys: tile.keys(), positions: if i + 1 == last { end } else { BLOCK } },
                None => next,
            };
            match tile {
                AnyTile::Half(tile) => {
                    SeenTile { tile, dim, seen, scale, cap, next }.add::<S>(queries, state);
                }
                AnyTile::Byte(tile) => {
                    SeenTile { tile, dim, seen, scale, cap, next }.add::<S>(queries, state);
                }
            }
        }
    }
}

/// One tile, and what is seen of it.
#[derive(Clone, Copy)]
struct SeenTile<T> {
    tile: T,
    dim: usize,
    /// The first position, and the one after the last.
    seen: [usize; 2],
    scale: f32,
    cap: Option<f32>,
    next: Next,
}

impl<T: Tile> SeenTile<T> {
    /// Adds the tile to the states of all queries.
    #[inline(always)]
    fn add<S: Simd>(mut self, queries: &[f32], state: &mut [f32]) {
        let (dim, length) = (self.dim, state_len(self.dim));
        let count = queries.len() / dim;
        let mut first = 0;
        while first < count {
            let (queries, state) = (&queries[first * dim..], &mut state[first * length..]);
            first += match count - first {
                _ if !S::TOGETHER => self.add_to::<S, 1>(queries, state),
                QUERIES.. => self.add_to::<S, QUERIES>(queries, state),
                3 => self.add_to::<S, 3>(queries, state),
                2 => self.add_to::<S, 2>(queries, state),
                _ => self.add_to::<S, 1>(queries, state),
            };
            // Only the first of several groups of queries asks for what is next.
            self.next = Next::UNKNOWN;
        }
    }

    /// The first `Q` queries; returns `Q`.
    #[inline(always)]
    fn add_to<S: Simd, const Q: usize>(self, queries: &[f32], state: &mut [f32]) -> usize {
        // Most tiles are seen as a whole, and most heads have one of these sizes. Loops whose length is known are faster ones,
        // where the time goes to them.
        let known = S::MANY_REGISTERS && !T::SCALED && self.seen == [0, BLOCK];
        match self.dim {
            64 if known => SeenTile { seen: [0, BLOCK], dim: 64, ..self }.add_seen::<S, Q>(queries, state),
            128 if known => SeenTile { seen: [0, BLOCK], dim: 128, ..self }.add_seen::<S, Q>(queries, state),
            _ => self.add_seen::<S, Q>(queries, state),
        }
        Q
    }

    #[inline(always)]
    fn add_seen<S: Simd, const Q: usize>(self, queries: &[f32], state: &mut [f32]) {
        let SeenTile { dim, seen: [_, end], .. } = self;
        let (queries, state) = (&queries[..Q * dim], &mut state[..Q * state_len(dim)]);
        let mut ahead = Ahead::<T>::new(self.next, dim);
        let mut weights = Weights::<Q>::NONE;
        match end.div_ceil(LANES) {
            1 => self.weigh::<S, Q, 1>(queries, state, &mut ahead, &mut weights),
            2 => self.weigh::<S, Q, 2>(queries, state, &mut ahead, &mut weights),
            _ => self.weigh::<S, Q, SUBTILES>(queries, state, &mut ahead, &mut weights),
        }
        let vectors = dim / LANES;
        let mut column = 0;
        while column + COLUMNS <= vectors {
            self.sum_values::<S, Q, COLUMNS>(column, &weights, state, &mut ahead);
            column += COLUMNS;
        }
        while column < vectors {
            self.sum_values::<S, Q, 1>(column, &weights, state, &mut ahead);
            column += 1;
        }
    }

    /// The weights of the positions of the first `V` vectors.
    #[inline(always)]
    fn weigh<S: Simd, const Q: usize, const V: usize>(
        &self,
        queries: &[f32],
        state: &mut [f32],
        ahead: &mut Ahead<T>,
        weights: &mut Weights<Q>,
    ) {
        let scores = self.scores::<S, Q, V>(queries, ahead);
        let states = state.chunks_exact_mut(state_len(self.dim));
        for ((scores, state), weights) in scores.into_iter().zip(states).zip(&mut weights.0) {
            let softened = soften::<S, V>(scores, self.seen, state);
            for (weight, to) in softened.into_iter().zip(weights) {
                let mut lanes = [0.0; LANES];
                S::store(weight, &mut lanes);
                to.write(lanes);
            }
        }
    }

    /// The scaled and capped scores of the positions of the first `V` vectors.
    #[inline(always)]
    fn scores<S: Simd, const Q: usize, const V: usize>(
        &self,
        queries: &[f32],
        ahead: &mut Ahead<T>,
    ) -> [[S::F; V]; Q] {
        let dim = self.dim;
        assert!(queries.len() == Q * dim && V <= SUBTILES);
        let mut sums = [[S::splat(0.0); V]; Q];
        for group in 0..dim.div_ceil(KV_GROUP) {
            let scales = self.tile.key_scales::<S>(group);
            for from in (group * KV_GROUP..dim.min((group + 1) * KV_GROUP)).step_by(STRIDE) {
                ahead.ask();
                for d in from..from + STRIDE {
                    let mut keys = [S::splat(0.0); V];
                    for i in 0..V {
                        // SAFETY: the tile's heads have `dim` elements, a multiple of `STRIDE`, and `V` is at most the number of
                        // subtiles.
                        keys[i] = unsafe { self.tile.key::<S>(i, d, dim, scales[i]) };
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
        for sum in sums.as_flattened_mut() {
            *sum = scaled::<S>(*sum, scale, self.cap);
        }
        sums
    }

    /// Adds the values by their weights, in some vectors of the head.
    #[inline(always)]
    fn sum_values<S: Simd, const Q: usize, const C: usize>(
        &self,
        column: usize,
        weights: &Weights<Q>,
        state: &mut [f32],
        ahead: &mut Ahead<T>,
    ) {
        let (vectors, [begin, end]) = (self.dim / LANES, self.seen);
        assert!(end <= BLOCK && column + C <= vectors);
        let mut scales = [[1.0; BLOCK]; C];
        if T::SCALED {
            for (c, scales) in scales.iter_mut().enumerate() {
                *scales = self.tile.value_scales::<S>((column + c) * LANES / KV_GROUP);
            }
        }
        let state = state.as_chunks_mut::<LANES>().0;
        let at = |q: usize, c: usize| q * (1 + vectors) + 1 + column + c;
        let mut sums = [[S::splat(0.0); C]; Q];
        for (q, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = S::load(&state[at(q, c)]);
            }
        }
        for from in (begin..end).step_by(STRIDE) {
            ahead.ask();
            for position in from..end.min(from + STRIDE) {
                let mut values = [S::splat(0.0); C];
                for (c, value) in values.iter_mut().enumerate() {
                    // SAFETY: the tile has `BLOCK · vectors` vectors of values, `position` is below `BLOCK` and `column + c`
                    // below `vectors`.
                    *value = unsafe { self.tile.value::<S>(position * vectors + column + c) };
                    if T::SCALED {
                        // SAFETY: `position` is below `end`, and that at most `BLOCK`.
                        *value = S::mul(*value, S::splat(unsafe { *scales[c].get_unchecked(position) }));
                    }
                }
                for (q, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: `position` is below `end`, up to which there are weights.
                    let weight = S::splat(unsafe { weights.of(q, position) });
                    for c in 0..C {
                        sums[c] = S::fma(values[c], weight, sums[c]);
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
        let tile = SeenTile { tile, dim, seen: [0, out.len()], scale, cap: None, next: Next::UNKNOWN };
        let [scores] = tile.scores::<S, 1, SUBTILES>(&query[..dim], &mut Ahead::new(Next::UNKNOWN, dim));
        for (score, out) in scores.into_iter().zip(out.chunks_mut(LANES)) {
            let mut lanes = [0.0; LANES];
            S::store(score, &mut lanes);
            out.copy_from_slice(&lanes[..out.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::cache::{ByteTile, HalfTile};

    fn asked<T: Tile>(positions: usize, dim: usize) {
        let Ahead { keys, values, .. } = Ahead::<T>::new(Next { keys: std::ptr::null(), positions }, dim);
        let seen = positions * dim * T::BYTES;
        for (halves, begin) in [(keys, 0), (values, BLOCK * dim * T::BYTES)] {
            assert_eq!(halves.at.addr(), begin);
            assert!((seen..=BLOCK * dim * T::BYTES).contains(&(2 * halves.half)), "{positions} {dim}");
            assert_eq!(halves.left * ALIGN, halves.half);
            // Nothing is left at the end of as many times as there are for a tile.
            assert!(halves.left.is_multiple_of(T::BYTES) && halves.left / T::BYTES <= 2 * dim / STRIDE);
        }
    }

    #[test]
    fn all_that_is_seen_of_the_next_tile_is_asked_for_and_nothing_behind_it() {
        for positions in 1..=BLOCK {
            for dim in [16, 64, 80, 128] {
                asked::<HalfTile<'_>>(positions, dim);
                asked::<ByteTile<'_>>(positions, dim);
            }
        }
    }
}
