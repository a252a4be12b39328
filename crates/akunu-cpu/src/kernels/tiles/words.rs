//! Floats to words: integers of 16 bits under one scale for each stretch of columns, as a high and a low byte.

use std::arch::x86_64::*;

use crate::simd::LANES;

use super::stretch::{self, SMALLEST};
use super::{TILE_BYTES, TILE_ROWS};

/// Columns under one scale.
pub(super) const STRETCH: usize = 256;

/// Columns of a tile of bytes.
pub(super) const STEP: usize = 64;

/// Tiles of a whole stretch.
pub(super) const STRETCH_STEPS: usize = STRETCH / STEP;

/// Bytes of a tile of words: the high bytes, then the low ones.
pub(super) const WORDS_BYTES: usize = 2 * TILE_BYTES;

/// The largest word: 127 in the high byte, 0 in the low one.
pub(super) const LARGEST: f32 = (127 << 8) as f32;

/// Where the words of a block of sixteen rows lie: its tiles one after the other, then `[stretch][row]` of scales.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    width: usize,
}

impl Layout {
    #[inline]
    pub(super) fn of(width: usize) -> Layout {
        Layout { width }
    }

    #[inline]
    pub(super) fn stretches(self) -> usize {
        self.width.div_ceil(STRETCH)
    }

    /// Tiles of a stretch: one, two or four. Where columns are missing, weights are zero.
    #[inline]
    pub(super) fn steps(self, stretch: usize) -> usize {
        (self.width - stretch * STRETCH).min(STRETCH).div_ceil(STEP).next_power_of_two()
    }

    /// Where the scales begin.
    #[inline]
    fn tile_bytes(self) -> usize {
        let last = self.stretches().saturating_sub(1);
        if self.width == 0 { 0 } else { (last * STRETCH_STEPS + self.steps(last)) * WORDS_BYTES }
    }

    #[inline]
    pub(super) fn block_bytes(self) -> usize {
        self.tile_bytes() + self.stretches() * TILE_ROWS * size_of::<f32>()
    }

    /// Where a stretch's tiles begin in a block.
    #[inline]
    pub(super) fn tiles(self, stretch: usize) -> usize {
        stretch * STRETCH_STEPS * WORDS_BYTES
    }

    /// Where a stretch's scales begin in a block.
    #[inline]
    pub(super) fn scales(self, stretch: usize) -> usize {
        self.tile_bytes() + stretch * TILE_ROWS * size_of::<f32>()
    }
}

/// Turns one row of activations into words.
pub(crate) struct Words<'a> {
    pub(crate) x: &'a [f32],
    /// Where the row's block begins.
    pub(crate) block: *mut u8,
    /// Which of the block's rows it is.
    pub(crate) line: usize,
}

impl Words<'_> {
    /// # Safety
    /// The processor has AVX-512 F, the block has room for rows as wide as this, and nobody else touches this row.
    #[target_feature(enable = "avx512f")]
    pub(crate) unsafe fn run(self) {
        let layout = Layout::of(self.x.len());
        for (i, x) in self.x.chunks(STRETCH).enumerate() {
            let vectors = stretch::load::<{ STRETCH / LANES }>(x);
            // SAFETY: the caller's promise.
            unsafe {
                store_stretch(&vectors[..x.len().div_ceil(LANES)], layout, i, self.block, self.line);
            }
        }
    }
}

/// Writes one row's stretch of columns, the `number`th of its row.
///
/// # Safety
/// As [`Words::run`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store_stretch(x: &[__m512], layout: Layout, number: usize, block: *mut u8, line: usize) {
    let largest = stretch::largest(x);
    let inverse = _mm512_set1_ps(if largest > SMALLEST { LARGEST / largest } else { 0.0 });
    // SAFETY: the caller's promise.
    unsafe {
        block.add(layout.scales(number)).cast::<f32>().add(line).write(largest / LARGEST);
        let start = block.add(layout.tiles(number) + 64 * line);
        for (i, &x) in x.iter().enumerate() {
            let word = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
            let high = _mm512_srai_epi32::<8>(_mm512_add_epi32(word, _mm512_set1_epi32(128)));
            let to = start.add(i / (STEP / LANES) * WORDS_BYTES + i % (STEP / LANES) * LANES);
            _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(high));
            _mm_storeu_si128(to.add(TILE_BYTES).cast(), _mm512_cvtepi32_epi8(word));
        }
    }
}
