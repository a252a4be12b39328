//! Attention of prompt rows over one block of keys and values at a time, as online softmax.
//!
//! A *query* is one head of one row; sixteen of them make a tile. Scores are products of query tiles with keys, and sums are
//! products of the scores' weights with values, all split. What a query gets does not depend on its neighbours: blocks are
//! visited in the order of their positions, and positions it may not see have weight zero, which adds nothing.

use std::arch::x86_64::*;
use std::ops::Range;

use akunu_program::{BLOCK, KV_GROUP};

use crate::kernels::cache::{SUBTILES, Tile};
use crate::memory::Shared;
use crate::pack::TILE;
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};

use super::amx::{Stretch, Tiles, WHOLE, multiply_one, multiply_two};
use super::split::{Split, store_split};
use super::unpack::put_pair;
use super::{SPLIT_BYTES, TILE_BYTES, TILE_ROWS};

/// Queries that should go over the context together: keys and values become tiles once for all of them.
pub(crate) const QUERIES_TOGETHER: usize = 128;

/// Tiles of positions in a block: pairs of vectors.
const STEPS: usize = BLOCK / TILE;

const _: () = assert!(KV_GROUP == TILE);

/// Room for one worker's attention.
pub(crate) struct AttentionScratch {
    /// `[query tile][step]`, split.
    queries: Shared,
    /// `[subtile][step]`, split.
    keys: Shared,
    /// `[vector of the head][step]`, split.
    values: Shared,
    /// `[pair of subtiles][query tile of two][subtile of two]`.
    scores: Shared,
    /// `[query tile of two][step]`, split.
    weights: Shared,
    /// `[pair of query tiles][pair of vectors][query tile of two][vector of two]`.
    sums: Shared,
    /// `[query]`: total weights of positions by their number modulo 16.
    totals: Shared,
    /// `[query]`: the largest score so far.
    largest: Shared,
    /// `[query]`: by how much the block's scores shrink the sums so far.
    shrink: Shared,
}

impl AttentionScratch {
    /// Room for so many queries with heads of `dim` elements (padded to whole vectors).
    pub(crate) fn new(queries: usize, dim: usize) -> AttentionScratch {
        let pairs = queries.div_ceil(2 * TILE_ROWS);
        let vector_pairs = dim.div_ceil(2 * LANES);
        let steps = dim.div_ceil(TILE);
        AttentionScratch {
            queries: Shared::new(2 * pairs * steps * SPLIT_BYTES),
            keys: Shared::new(SUBTILES * steps * SPLIT_BYTES),
            values: Shared::new(2 * vector_pairs * STEPS * SPLIT_BYTES),
            scores: Shared::new(SUBTILES / 2 * 4 * TILE_BYTES),
            weights: Shared::new(2 * STEPS * SPLIT_BYTES),
            sums: Shared::new(pairs * vector_pairs * 4 * TILE_BYTES),
            totals: Shared::new(pairs * 2 * TILE_BYTES),
            largest: Shared::new(pairs * 2 * TILE_ROWS * size_of::<f32>()),
            shrink: Shared::new(2 * TILE_ROWS * size_of::<f32>()),
        }
    }
}

/// The scores of one query with a block, and what they change.
struct Scored<'a> {
    /// As [`AttentionScratch::scores`] has them.
    scores: &'a [[[f32; LANES]; TILE_ROWS]],
    tile: usize,
    row: usize,
    /// The query's line in the first tile of weights.
    line: *mut u8,
    total: &'a mut [f32; LANES],
    largest: &'a mut f32,
    shrink: &'a mut f32,
}

impl Scored<'_> {
    /// Turns scores into weights relative to the largest one so far. `WHOLE`: the query sees all of the block; then nothing is
    /// compared and everything stays in registers, with the same results.
    ///
    /// # Safety
    /// The processor has AVX-512, and the line can be written in every tile of weights.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn soften<const WHOLE: bool>(
        self,
        scale: f32,
        cap: Option<f32>,
        [begin, end]: [u8; 2],
        seen: Range<usize>,
    ) {
        let Scored { scores, tile, row, line, total, largest, shrink } = self;
        // SAFETY: the caller's promise.
        let part = |subtile: usize| unsafe {
            line.add(subtile / 2 * SPLIT_BYTES + subtile % 2 * size_of::<__m256i>())
        };
        *shrink = 1.0;
        let subtiles = if WHOLE { 0..SUBTILES } else { 2 * seen.start..2 * seen.end };
        if !WHOLE && begin >= end {
            // SAFETY: as above.
            subtiles.for_each(|subtile| unsafe { store_split(_mm512_setzero_ps(), part(subtile)) });
            return;
        }
        let (begin, end) = (i32::from(begin), i32::from(end));
        let none = _mm512_set1_ps(f32::NEG_INFINITY);
        let numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let score = |subtile: usize| {
            let sums = Avx512::load(&scores[4 * (subtile / 2) + 2 * tile + subtile % 2][row]);
            let mut score = _mm512_mul_ps(sums, _mm512_set1_ps(scale));
            if let Some(cap) = cap {
                let cap = _mm512_set1_ps(cap);
                score = _mm512_mul_ps(cap, Avx512::tanh(_mm512_div_ps(score, cap)));
            }
            if WHOLE {
                return score;
            }
            let position = _mm512_add_epi32(numbers, _mm512_set1_epi32((subtile * LANES) as i32));
            let after = _mm512_cmpge_epi32_mask(position, _mm512_set1_epi32(begin));
            let before = _mm512_cmplt_epi32_mask(position, _mm512_set1_epi32(end));
            _mm512_mask_blend_ps(after & before, none, score)
        };
        let mut found = [none; SUBTILES];
        let mut most = none;
        for subtile in subtiles.clone() {
            found[subtile] = score(subtile);
            most = _mm512_max_ps(most, found[subtile]);
        }
        let before = *largest;
        let most = _mm512_reduce_max_ps(most).max(before);
        let mut sum = Avx512::load(total);
        if most != before {
            let shrunk = Avx512::exp(_mm512_set1_ps(before - most));
            *shrink = _mm512_cvtss_f32(shrunk);
            *largest = most;
            sum = _mm512_mul_ps(sum, shrunk);
        }
        for subtile in subtiles {
            let weight = Avx512::exp(_mm512_sub_ps(found[subtile], _mm512_set1_ps(most)));
            sum = _mm512_add_ps(sum, weight);
            // SAFETY: as above.
            unsafe { store_split(weight, part(subtile)) };
        }
        Avx512::store(sum, total);
    }
}

/// Some queries that read the same key and value head.
pub(crate) struct TileAttention<'a> {
    /// This worker's own.
    pub(crate) scratch: &'a AttentionScratch,
    pub(crate) queries: usize,
    /// The head's size, padded to whole vectors.
    pub(crate) dim: usize,
    pub(crate) scale: f32,
    pub(crate) cap: Option<f32>,
}

// SAFETY of every block below that has no line of its own: the scratch is the worker's own and has room for the queries
// and the head; AMX is available.
#[allow(clippy::undocumented_unsafe_blocks)]
impl TileAttention<'_> {
    fn vector_pairs(&self) -> usize {
        self.dim.div_ceil(2 * LANES)
    }

    /// Tiles of a query or key.
    fn steps(&self) -> usize {
        self.dim.div_ceil(TILE)
    }

    /// Takes a query; none has seen anything yet.
    ///
    /// # Safety
    /// AMX is available.
    pub(crate) unsafe fn take(&self, query: usize, x: &[f32]) {
        let (tile, line) = (query / TILE_ROWS, query % TILE_ROWS);
        let bytes = self.steps() * SPLIT_BYTES;
        let start: *mut u8 = self.scratch.queries.start_of(tile * bytes, bytes);
        unsafe { Split { x, out: start.add(64 * line) }.run() };
    }

    /// Forgets what was seen before.
    pub(crate) fn clear(&self) {
        let pairs = self.queries.div_ceil(2 * TILE_ROWS);
        unsafe {
            self.scratch.sums.get_mut::<u8>(0, pairs * self.vector_pairs() * 4 * TILE_BYTES).fill(0);
            self.scratch.totals.get_mut::<u8>(0, pairs * 2 * TILE_BYTES).fill(0);
            self.scratch.largest.get_mut(0, pairs * 2 * TILE_ROWS).fill(f32::NEG_INFINITY);
        }
    }

    /// Adds one block. `visible` has the first position of the block that each query sees, and the one after the last.
    ///
    /// # Safety
    /// AMX is available.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(crate) unsafe fn block<T: Tile>(&self, tile: T, visible: &[[u8; 2]]) {
        let seen = steps_seen(visible);
        if seen.is_empty() {
            return;
        }
        unsafe {
            let _tiles = Tiles::configure(&WHOLE);
            self.unpack(tile, seen);
            for (pair, visible) in visible.chunks(2 * TILE_ROWS).enumerate() {
                let seen = steps_seen(visible);
                if !seen.is_empty() {
                    self.add(pair, visible, seen);
                }
            }
        }
    }

    /// Makes tiles of the keys and values that are seen.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn unpack<T: Tile>(&self, tile: T, seen: Range<usize>) {
        let (dim, steps) = (self.dim, self.steps());
        let room: *mut u8 = self.scratch.keys.start_of(0, SUBTILES * steps * SPLIT_BYTES);
        for step in 0..steps {
            let scales = tile.key_scales::<Avx512>(step);
            for (subtile, &scale) in scales.iter().enumerate().take(2 * seen.end).skip(2 * seen.start) {
                let element = |d: usize| {
                    if d >= dim {
                        return _mm512_setzero_ps();
                    }
                    // SAFETY: an element of the head.
                    unsafe { tile.key::<Avx512>(subtile, d, dim, scale) }
                };
                let to = unsafe { room.add((subtile * steps + step) * SPLIT_BYTES) };
                for pair in 0..TILE / 2 {
                    let d = step * TILE + 2 * pair;
                    unsafe { put_pair(element(d), element(d + 1), to.add(64 * pair)) };
                }
            }
        }
        let vectors = dim / LANES;
        let room: *mut u8 = self.scratch.values.start_of(0, vectors * STEPS * SPLIT_BYTES);
        for vector in 0..vectors {
            let scales = tile.value_scales::<Avx512>(vector * LANES / KV_GROUP);
            let element = |position: usize| {
                // SAFETY: a position of the block.
                let value = unsafe { tile.value::<Avx512>(position * vectors + vector) };
                if T::SCALED { _mm512_mul_ps(value, _mm512_set1_ps(scales[position])) } else { value }
            };
            for step in seen.clone() {
                let to = unsafe { room.add((vector * STEPS + step) * SPLIT_BYTES) };
                for pair in 0..TILE / 2 {
                    let position = step * TILE + 2 * pair;
                    unsafe { put_pair(element(position), element(position + 1), to.add(64 * pair)) };
                }
            }
        }
    }

    /// Adds what is seen of the block to two tiles of queries.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn add(&self, pair: usize, visible: &[[u8; 2]], seen: Range<usize>) {
        let s = self.scratch;
        let both = visible.len() > TILE_ROWS;
        let query_bytes = self.steps() * SPLIT_BYTES;
        let queries: *mut u8 = s.queries.start_of(2 * pair * query_bytes, 2 * query_bytes);
        let keys: *mut u8 = s.keys.start_of(0, SUBTILES * query_bytes);
        let scores: *mut u8 = s.scores.start_of(0, SUBTILES / 2 * 4 * TILE_BYTES);
        for step in seen.clone() {
            unsafe {
                let b = keys.add(2 * step * query_bytes);
                let stretch =
                    stretch([queries, queries.add(query_bytes)], [b, b.add(query_bytes)], self.steps());
                let c = scores.add(step * 4 * TILE_BYTES);
                if both {
                    multiply_two::<true, true>(stretch, c);
                } else {
                    multiply_one::<true, true>(stretch, c);
                }
            }
        }
        self.soften(pair, visible, seen.clone());
        self.shrink(pair, visible.len());
        let weight_bytes = STEPS * SPLIT_BYTES;
        let weights: *mut u8 = s.weights.start_of(0, 2 * weight_bytes);
        let values: *mut u8 = s.values.start_of(0, 2 * self.vector_pairs() * weight_bytes);
        let sums: *mut u8 = s
            .sums
            .start_of(pair * self.vector_pairs() * 4 * TILE_BYTES, self.vector_pairs() * 4 * TILE_BYTES);
        for vectors in 0..self.vector_pairs() {
            unsafe {
                let from = seen.start * SPLIT_BYTES;
                let a = weights.add(from);
                let b = values.add(2 * vectors * weight_bytes + from);
                let stretch = stretch([a, a.add(weight_bytes)], [b, b.add(weight_bytes)], seen.len());
                let c = sums.add(vectors * 4 * TILE_BYTES);
                if both {
                    multiply_two::<true, false>(stretch, c);
                } else {
                    multiply_one::<true, false>(stretch, c);
                }
            }
        }
    }

    /// Turns scores into weights relative to the largest score so far.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn soften(&self, pair: usize, visible: &[[u8; 2]], seen: Range<usize>) {
        let s = self.scratch;
        let first = pair * 2 * TILE_ROWS;
        let scores: &[f32] = unsafe { s.scores.get(0, SUBTILES / 2 * 4 * TILE_BYTES / size_of::<f32>()) };
        let scores = scores.as_chunks::<LANES>().0.as_chunks::<TILE_ROWS>().0;
        let weights: *mut u8 = s.weights.start_of(0, 2 * STEPS * SPLIT_BYTES);
        let (totals, largest, shrink): (&mut [f32], &mut [f32], &mut [f32]) = unsafe {
            (
                s.totals.get_mut(first * LANES * size_of::<f32>(), visible.len() * LANES),
                s.largest.get_mut(first * size_of::<f32>(), visible.len()),
                s.shrink.get_mut(0, visible.len()),
            )
        };
        let totals = totals.as_chunks_mut::<LANES>().0;
        for (query, &visible) in visible.iter().enumerate() {
            let (tile, row) = (query / TILE_ROWS, query % TILE_ROWS);
            let query = Scored {
                scores,
                tile,
                row,
                line: unsafe { weights.add(tile * STEPS * SPLIT_BYTES + 64 * row) },
                total: &mut totals[query],
                largest: &mut largest[query],
                shrink: &mut shrink[query],
            };
            unsafe {
                if visible == [0, BLOCK as u8] {
                    query.soften::<true>(self.scale, self.cap, visible, seen.clone());
                } else {
                    query.soften::<false>(self.scale, self.cap, visible, seen.clone());
                }
            }
        }
    }

    /// Brings the sums of two tiles of queries to the scale of the new weights.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn shrink(&self, pair: usize, queries: usize) {
        let bytes = self.vector_pairs() * 4 * TILE_BYTES;
        let (sums, shrink): (&mut [f32], &[f32]) = unsafe {
            (
                self.scratch.sums.get_mut(pair * bytes, bytes / size_of::<f32>()),
                self.scratch.shrink.get(0, queries),
            )
        };
        let tiles = sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<TILE_ROWS>().0;
        for (query, &shrink) in shrink.iter().enumerate().filter(|(_, s)| **s != 1.0) {
            let (tile, row) = (query / TILE_ROWS, query % TILE_ROWS);
            for tiles in tiles.as_chunks_mut::<4>().0 {
                for sums in &mut tiles[2 * tile..2 * tile + 2] {
                    let shrunk = _mm512_mul_ps(Avx512::load(&sums[row]), _mm512_set1_ps(shrink));
                    Avx512::store(shrunk, &mut sums[row]);
                }
            }
        }
    }

    /// What a query found.
    ///
    /// # Safety
    /// AMX is available.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(crate) unsafe fn finish(&self, query: usize, out: &mut [f32]) {
        let (pair, tile, row) = (query / (2 * TILE_ROWS), query / TILE_ROWS % 2, query % TILE_ROWS);
        let bytes = self.vector_pairs() * 4 * TILE_BYTES;
        let (sums, total): (&[f32], &[f32]) = unsafe {
            (
                self.scratch.sums.get(pair * bytes, bytes / size_of::<f32>()),
                self.scratch.totals.get(query * LANES * size_of::<f32>(), LANES),
            )
        };
        let tiles = sums.as_chunks::<LANES>().0.as_chunks::<TILE_ROWS>().0;
        let total = Avx512::sum(unsafe { _mm512_loadu_ps(total.as_ptr()) });
        for (vector, out) in out.chunks_mut(LANES).enumerate() {
            let sums = &tiles[4 * (vector / 2) + 2 * tile + vector % 2][row];
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum / total);
        }
    }
}

/// The tiles of positions that any of the queries sees.
fn steps_seen(visible: &[[u8; 2]]) -> Range<usize> {
    let seen = visible.iter().filter(|v| v[0] < v[1]);
    let (begin, end) =
        seen.fold((BLOCK, 0), |(b, e), v| (b.min(usize::from(v[0])), e.max(usize::from(v[1]))));
    if begin < end { begin / TILE..end.div_ceil(TILE) } else { 0..0 }
}

#[inline]
fn stretch([a0, a1]: [*mut u8; 2], [b0, b1]: [*mut u8; 2], steps: usize) -> Stretch {
    Stretch { a: [a0, a1], b: [b0, b1], steps }
}
