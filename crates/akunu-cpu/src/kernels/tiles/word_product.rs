//! Products of rows in [words](super::words) with packed integers: two panels by all rows, a stretch of columns at a time. The words of
//! the two panels that are next are made meanwhile.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::kernels::int::Unpack;
use crate::kernels::scales::ScaleView;
use crate::pack::TILE;
use crate::simd::LANES;

use super::amx::{Tiles, WHOLE};
use super::bytes::{Earlier, Meanwhile, PIECES, Target, Whole, multiply};
use super::product::{BLOCKS, Group, PANELS, Scratch, tile_of};
use super::stretch::SMALLEST;
use super::unpack::{IntTile, Ints};
use super::words::{LARGEST, Layout, STRETCH, STRETCH_STEPS, WORDS_BYTES};
use super::{TILE_BYTES, TILE_ROWS};

impl Group<'_> {
    /// Computes the sums of words, and writes them out if asked to.
    ///
    /// # Safety
    /// AMX is available.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) unsafe fn run_words<'a, U: Unpack, Z: ScaleView<'a>>(&'a self) {
        // SAFETY: the caller's promise.
        let _tiles = unsafe { Tiles::configure(&WHOLE) };
        let layout = Layout::of(self.whole.product.matrix.cols);
        let sums = self.sums.start_of::<f32>(0, BLOCKS * PANELS * TILE_BYTES / size_of::<f32>());
        let (mut one, mut other) = (Whole::new(), Whole::new());
        let (mut now, mut before) = (&raw mut one, &raw mut other);
        let mut earlier = None;
        // SAFETY: the caller's promise, and tiles are configured. All that is written is within the scratch: there are at most
        // `BLOCKS` by `PANELS / 2` pairs. Where the second panel of a pair is missing, what is left in its place makes sums
        // that nobody reads.
        unsafe {
            let mut ready = Making::<U, Z>::new(self, layout, 0);
            ready.finish();
            while let Some(Pair { stretch, pair, words, outputs }) = ready.pair {
                let mut making = Making::new(self, layout, ready.number + 1);
                let start = |block: u32, stretch: usize| {
                    let at = block as usize * layout.block_bytes() + layout.tiles(stretch);
                    self.whole.tiles.as_ptr().wrapping_add(at)
                };
                let after = start(self.blocks[0], making.pair.map_or(stretch, |pair| pair.stretch));
                for (i, &block) in self.blocks.iter().enumerate() {
                    let from = block as usize * layout.block_bytes();
                    let tiles = &self.whole.tiles[from..from + layout.block_bytes()];
                    let a = tiles.as_ptr().add(layout.tiles(stretch));
                    let next = self.blocks.get(i + 1).map_or(after, |&block| start(block, stretch));
                    let b = [words.cast_const(), words.add(PANEL_WORDS).cast_const()];
                    multiply(a, next, b, layout.steps(stretch), now, &mut earlier, &mut making);
                    let target = Target {
                        sums: sums.add(tile_of(i, 2 * pair) * TILE_ROWS * LANES),
                        rows: tiles.as_ptr().add(layout.scales(stretch)).cast(),
                        outputs,
                        old: if stretch == 0 { 0 } else { __mmask16::MAX },
                    };
                    earlier = Some(Earlier::new(now, target));
                    (now, before) = (before, now);
                }
                making.finish();
                ready = making;
            }
            if let Some(earlier) = earlier {
                earlier.add_all();
            }
        }
        if self.writes_out {
            self.put();
        }
    }
}

/// A stretch of columns of two panels of a group.
#[derive(Clone, Copy)]
struct Pair {
    stretch: usize,
    pair: usize,
    /// Where the words of both panels are.
    words: *mut u8,
    /// What the sums of mixed bytes are to be multiplied by.
    outputs: *mut f32,
}

/// The words of a [`Pair`], made a tile at a time.
struct Making<'a, U, Z> {
    /// The how manyth of its group.
    number: usize,
    /// None after the last one.
    pair: Option<Pair>,
    /// As many panels as there are, and what their numbers are multiplied by.
    panels: [Option<(Ints<'a, U, Z>, __m512)>; 2],
    /// Those of the stretch.
    tiles: Range<usize>,
    /// How many have been made, of both panels together.
    made: usize,
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Making<'a, U, Z> {
    /// # Safety
    /// The processor has AVX-512 F, BW, VL, DQ and VNNI; words of the pair two before this one, and scales of the one three before,
    /// are not used any more.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn new(group: &'a Group<'_>, layout: Layout, number: usize) -> Self {
        let matrix = group.whole.product.matrix;
        let pairs = group.panels.len().div_ceil(2);
        let (stretch, pair) = (number / pairs, number % pairs);
        if stretch >= layout.stretches() {
            return Making { number, pair: None, panels: [None, None], tiles: 0..0, made: 0 };
        }
        let scratch = group.whole.scratch;
        // SAFETY: within the scratch, which is this worker's own.
        let (words, outputs) = unsafe {
            let words: *mut u8 = scratch.weights.start_of(0, 4 * PANEL_WORDS);
            let outputs: *mut f32 = scratch.scales.start_of(0, SCALES * 2 * LANES);
            (words.add(number % 2 * 2 * PANEL_WORDS), outputs.add(number % SCALES * 2 * LANES))
        };
        let first = stretch * (STRETCH / TILE);
        let tiles = first..(matrix.cols / TILE).min(first + STRETCH / TILE);
        debug_assert!(!tiles.is_empty(), "rows are of whole tiles");
        let made = |of: usize| {
            let panel = group.panels.start + 2 * pair + of;
            if !group.panels.contains(&panel) {
                return None;
            }
            // The next pair's are needed after these; what comes after the last pair of a stretch is not asked for.
            let weights = Ints::<U, Z>::view(matrix, panel, 2 * matrix.planes.end);
            // SAFETY: the caller's promise; there is room for the scales, and for words of a whole stretch.
            unsafe {
                let largest = weights.largest(tiles.clone());
                let some = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(largest, _mm512_set1_ps(SMALLEST));
                let inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(LARGEST), largest);
                let scale = _mm512_mul_ps(largest, _mm512_set1_ps(256.0 / LARGEST));
                _mm512_storeu_ps(outputs.add(LANES * of), scale);
                for tile in tiles.len()..2 * layout.steps(stretch) {
                    let to = words.add(of * PANEL_WORDS + lines_of(tile));
                    to.write_bytes(0, TILE_BYTES / 2);
                    to.add(TILE_BYTES).write_bytes(0, TILE_BYTES / 2);
                }
                Some((weights, inverse))
            }
        };
        let panels = [made(0), made(1)];
        Making { number, pair: Some(Pair { stretch, pair, words, outputs }), panels, tiles, made: 0 }
    }

    /// Makes what has not been made.
    ///
    /// # Safety
    /// As [`Making::new`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn finish(&mut self) {
        // SAFETY: the caller's promise.
        unsafe {
            while let Some(task) = self.next() {
                (0..PIECES).for_each(|piece| Self::piece(&task, piece));
            }
        }
    }
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Meanwhile for Making<'a, U, Z> {
    type Task = (IntTile<'a, U, Z>, *mut u8);

    #[inline(always)]
    unsafe fn next(&mut self) -> Option<Self::Task> {
        let Pair { words, .. } = self.pair?;
        let (of, tile) = (self.made / self.tiles.len(), self.made % self.tiles.len());
        let (weights, inverse) = self.panels.get(of)?.as_ref()?;
        self.made += 1;
        // SAFETY: the caller's promise; the tile is one of the stretch.
        unsafe {
            let to = words.add(of * PANEL_WORDS + lines_of(tile));
            Some((weights.tile(self.tiles.start + tile, *inverse), to))
        }
    }

    #[inline(always)]
    unsafe fn piece((tile, to): &Self::Task, piece: usize) {
        // SAFETY: the caller's promise; there is room for the lines of a tile.
        unsafe { tile.put(piece, *to) };
    }
}

/// Where the lines of a tile's words begin in a panel's words of a stretch: two tiles of columns make one of bytes.
fn lines_of(tile: usize) -> usize {
    tile / 2 * WORDS_BYTES + tile % 2 * (TILE_BYTES / 2)
}

/// Bytes from one panel's words of a stretch to the next one's.
const PANEL_WORDS: usize = STRETCH_STEPS * WORDS_BYTES;

/// Pairs whose scales are kept: the one that is multiplied, the one before it, whose last sums are yet to become floats, and the next.
pub(super) const SCALES: usize = 3;

const _: () = assert!(4 * PANEL_WORDS <= Scratch::WEIGHTS_BYTES);
