//! Attention of prompt rows over one block of keys and values at a time, as online softmax.
//!
//! A *query* is one head of one row; sixteen of them make a tile. Scores are products of query tiles with keys, and sums are
//! products of the scores' weights with values, all split. What a query gets does not depend on its neighbours: blocks are
//! visited in the order of their positions, and positions it may not see have weight zero, which adds nothing.
//!
//! While tiles are in use, and for some hundred cycles after, processors do floats of 512 bits on one of two ports
//! (`docs/performance-notes.md`). So all queries are scored first, then all scores become weights, and then all sums are made.
//! Weights are powers of two: queries are multiplied by the scale and log₂ e when they are taken.

use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;
use std::ops::Range;

use akunu_program::{BLOCK, KV_GROUP};

use crate::kernels::cache::{SUBTILES, Tile};
use crate::memory::Shared;
use crate::pack::TILE;
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};

use super::amx::{Stretch, Tiles, WHOLE, multiply_one, multiply_two};
use super::split::{Split, store_split_line};
use super::unpack::put_pair;
use super::{SPLIT_BYTES, TILE_BYTES, TILE_ROWS};

/// Queries that should go over the context together: keys and values become tiles once for all of them.
pub(crate) const QUERIES_TOGETHER: usize = 128;

/// Tiles of positions in a block: pairs of vectors.
const STEPS: usize = BLOCK / TILE;

/// Bytes of the scores of two tiles of queries with a block.
const SCORES_BYTES: usize = SUBTILES / 2 * 4 * TILE_BYTES;

const _: () = assert!(KV_GROUP == TILE);

/// Room for one worker's attention.
pub(crate) struct AttentionScratch {
    /// `[query tile][step]`, split.
    queries: Shared,
    /// `[subtile][step]`, split.
    keys: Shared,
    /// `[vector of the head][step]`, split.
    values: Shared,
    /// `[pair of query tiles][pair of subtiles][query tile of two][subtile of two]`.
    scores: Shared,
    /// `[query tile][step]`, split.
    weights: Shared,
    /// `[pair of query tiles][pair of vectors][query tile of two][vector of two]`.
    sums: Shared,
    /// `[query]`: total weights of positions by their number modulo 16.
    totals: Shared,
    /// `[query]`: the largest score so far, to base 2 as all scores here.
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
            scores: Shared::new(pairs * SCORES_BYTES),
            weights: Shared::new(2 * pairs * STEPS * SPLIT_BYTES),
            sums: Shared::new(pairs * vector_pairs * 4 * TILE_BYTES),
            totals: Shared::new(pairs * 2 * TILE_BYTES),
            largest: Shared::new(pairs * 2 * TILE_ROWS * size_of::<f32>()),
            shrink: Shared::new(pairs * 2 * TILE_ROWS * size_of::<f32>()),
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
    /// compared, with the same results.
    ///
    /// # Safety
    /// The processor has AVX-512, and the line can be written in every tile of weights.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn soften<const WHOLE: bool>(self, cap: Option<f32>, [begin, end]: [u8; 2], seen: Range<usize>) {
        let Scored { scores, tile, row, line, total, largest, shrink } = self;
        *shrink = 1.0;
        let steps = if WHOLE { 0..STEPS } else { seen };
        if !WHOLE && begin >= end {
            let zero = _mm512_setzero_ps();
            // SAFETY: the caller's promise.
            steps.for_each(|step| unsafe { store_split_line(zero, zero, line.add(step * SPLIT_BYTES)) });
            return;
        }
        let none = _mm512_set1_ps(f32::NEG_INFINITY);
        let mut found = [[none; 2]; STEPS];
        let mut most = none;
        for step in steps.clone() {
            for half in 0..2 {
                let mut score = Avx512::load(&scores[4 * step + 2 * tile + half][row]);
                if let Some(cap) = cap {
                    score = _mm512_mul_ps(_mm512_set1_ps(cap * LOG2_E), Avx512::tanh(score));
                }
                if !WHOLE {
                    let below = |position: u8| {
                        let first = (step * TILE + half * LANES) as u32;
                        (1u32 << u32::from(position).saturating_sub(first).min(LANES as u32)) - 1
                    };
                    score = _mm512_mask_blend_ps((below(end) & !below(begin)) as u16, none, score);
                }
                found[step][half] = score;
                most = _mm512_max_ps(most, score);
            }
        }
        let mut sum = Avx512::load(total);
        let before = *largest;
        if Avx512::any_above(most, _mm512_set1_ps(before)) {
            *largest = _mm512_reduce_max_ps(most);
            let shrunk = Avx512::exp2(_mm512_set1_ps(before - *largest));
            *shrink = _mm512_cvtss_f32(shrunk);
            sum = _mm512_mul_ps(sum, shrunk);
        }
        let most = _mm512_set1_ps(*largest);
        for step in steps {
            let first = Avx512::exp2(_mm512_sub_ps(found[step][0], most));
            let second = Avx512::exp2(_mm512_sub_ps(found[step][1], most));
            sum = _mm512_add_ps(_mm512_add_ps(sum, first), second);
            // SAFETY: the caller's promise.
            unsafe { store_split_line(first, second, line.add(step * SPLIT_BYTES)) };
        }
        Avx512::store(sum, total);
    }
}

/// Two tiles of queries, and what they see of a block.
struct Pair<'a> {
    number: usize,
    /// By each query.
    visible: &'a [[u8; 2]],
    /// By any of them; not nothing.
    seen: Range<usize>,
}

impl<'a> Pair<'a> {
    /// Those that see anything.
    fn of(visible: &'a [[u8; 2]]) -> impl Iterator<Item = Pair<'a>> {
        let pairs = visible.chunks(2 * TILE_ROWS).enumerate();
        let pairs = pairs.map(|(number, visible)| Pair { number, visible, seen: steps_seen(visible) });
        pairs.filter(|pair| !pair.seen.is_empty())
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
        // Of capped scores, the logarithm's base is changed after that.
        let factor = match self.cap {
            Some(cap) => self.scale / cap,
            None => self.scale * LOG2_E,
        };
        unsafe { Split { x, factor, out: start.add(64 * line) }.run() };
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
            for pair in Pair::of(visible) {
                self.score(&pair);
            }
            for pair in Pair::of(visible) {
                self.soften(&pair);
                self.shrink(&pair);
            }
            for pair in Pair::of(visible) {
                self.sum(&pair);
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
                    unsafe { put_pair(element(d), element(d + 1), !T::SCALED, to.add(64 * pair)) };
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
                    let (x, y) = (element(position), element(position + 1));
                    unsafe { put_pair(x, y, !T::SCALED, to.add(64 * pair)) };
                }
            }
        }
    }

    /// Scores of two tiles of queries with what is seen of the block.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn score(&self, pair: &Pair<'_>) {
        let (s, bytes) = (self.scratch, self.steps() * SPLIT_BYTES);
        let queries: *mut u8 = s.queries.start_of(2 * pair.number * bytes, 2 * bytes);
        let keys: *mut u8 = s.keys.start_of(0, SUBTILES * bytes);
        let scores: *mut u8 = s.scores.start_of(pair.number * SCORES_BYTES, SCORES_BYTES);
        for step in pair.seen.clone() {
            unsafe {
                let b = keys.add(2 * step * bytes);
                let stretch = stretch([queries, queries.add(bytes)], [b, b.add(bytes)], self.steps());
                let c = scores.add(step * 4 * TILE_BYTES);
                if pair.visible.len() > TILE_ROWS {
                    multiply_two::<true, true>(stretch, c);
                } else {
                    multiply_one::<true, true>(stretch, c);
                }
            }
        }
    }

    /// Adds the values of what is seen of the block by their weights.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn sum(&self, pair: &Pair<'_>) {
        let (s, bytes) = (self.scratch, STEPS * SPLIT_BYTES);
        let weights: *mut u8 = s.weights.start_of(2 * pair.number * bytes, 2 * bytes);
        let values: *mut u8 = s.values.start_of(0, 2 * self.vector_pairs() * bytes);
        let sums_bytes = self.vector_pairs() * 4 * TILE_BYTES;
        let sums: *mut u8 = s.sums.start_of(pair.number * sums_bytes, sums_bytes);
        for vectors in 0..self.vector_pairs() {
            unsafe {
                let from = pair.seen.start * SPLIT_BYTES;
                let a = weights.add(from);
                let b = values.add(2 * vectors * bytes + from);
                let stretch = stretch([a, a.add(bytes)], [b, b.add(bytes)], pair.seen.len());
                let c = sums.add(vectors * 4 * TILE_BYTES);
                if pair.visible.len() > TILE_ROWS {
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
    fn soften(&self, pair: &Pair<'_>) {
        let s = self.scratch;
        let Pair { number, visible, ref seen } = *pair;
        let first = number * 2 * TILE_ROWS;
        let scores: &[f32] = unsafe { s.scores.get(number * SCORES_BYTES, SCORES_BYTES / size_of::<f32>()) };
        let scores = scores.as_chunks::<LANES>().0.as_chunks::<TILE_ROWS>().0;
        let bytes = 2 * STEPS * SPLIT_BYTES;
        let weights: *mut u8 = s.weights.start_of(number * bytes, bytes);
        let (totals, largest, shrink): (&mut [f32], &mut [f32], &mut [f32]) = unsafe {
            (
                s.totals.get_mut(first * LANES * size_of::<f32>(), visible.len() * LANES),
                s.largest.get_mut(first * size_of::<f32>(), visible.len()),
                s.shrink.get_mut(first * size_of::<f32>(), visible.len()),
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
                    query.soften::<true>(self.cap, visible, seen.clone());
                } else {
                    query.soften::<false>(self.cap, visible, seen.clone());
                }
            }
        }
    }

    /// Brings the sums of two tiles of queries to the scale of the new weights.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn shrink(&self, pair: &Pair<'_>) {
        let bytes = self.vector_pairs() * 4 * TILE_BYTES;
        let (sums, shrink): (&mut [f32], &[f32]) = unsafe {
            (
                self.scratch.sums.get_mut(pair.number * bytes, bytes / size_of::<f32>()),
                self.scratch.shrink.get(pair.number * 2 * TILE_ROWS * size_of::<f32>(), pair.visible.len()),
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
        let total = _mm512_set1_ps(Avx512::sum(unsafe { _mm512_loadu_ps(total.as_ptr()) }));
        for (vector, out) in out.chunks_mut(LANES).enumerate() {
            let sums = Avx512::load(&tiles[4 * (vector / 2) + 2 * tile + vector % 2][row]);
            // SAFETY: as many as there are.
            unsafe {
                let lanes = !0 >> (LANES - out.len());
                _mm512_mask_storeu_ps(out.as_mut_ptr(), lanes, _mm512_div_ps(sums, total));
            }
        }
    }
}

/// The tiles of positions that any of the queries sees, of which none begins or ends before the one in front of it.
fn steps_seen(visible: &[[u8; 2]]) -> Range<usize> {
    debug_assert!(visible.is_sorted_by(|a, b| a[0] <= b[0] && a[1] <= b[1]));
    let sees = |v: &&[u8; 2]| v[0] < v[1];
    match (visible.iter().find(sees), visible.iter().rfind(sees)) {
        (Some(first), Some(last)) => usize::from(first[0]) / TILE..usize::from(last[1]).div_ceil(TILE),
        _ => 0..0,
    }
}

#[inline]
fn stretch([a0, a1]: [*mut u8; 2], [b0, b1]: [*mut u8; 2], steps: usize) -> Stretch {
    Stretch { a: [a0, a1], b: [b0, b1], steps }
}
