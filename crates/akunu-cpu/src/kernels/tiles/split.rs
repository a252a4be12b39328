//! Floats to split bf16.

use std::arch::x86_64::*;

use crate::pack::TILE;
use crate::simd::LANES;

use super::{SPLIT_BYTES, TILE_BYTES};

/// Half a unit in the last place of bf16, as bits of an `f32`: added, it makes cutting off a rounding.
const HALF: i32 = 0x8000;

/// Splits one row of activations.
pub(crate) struct Split<'a> {
    pub(crate) x: &'a [f32],
    /// What they are multiplied by.
    pub(crate) factor: f32,
    /// The row's line in its block's first tile.
    pub(crate) out: *mut u8,
}

impl Split<'_> {
    /// # Safety
    /// The processor has AVX-512 F, and nobody else touches the row's lines.
    #[target_feature(enable = "avx512f")]
    pub(crate) unsafe fn run(self) {
        for (tile, x) in self.x.chunks(TILE).enumerate() {
            let mut last = [0.0; TILE];
            let x = x.first_chunk().unwrap_or_else(|| {
                last[..x.len()].copy_from_slice(x);
                &last
            });
            for (half, x) in x.as_chunks::<LANES>().0.iter().enumerate() {
                // SAFETY: the vector is read from an array of its size; the row has lines in as many tiles as it needs.
                unsafe {
                    let to = self.out.add(tile * SPLIT_BYTES + half * size_of::<__m256i>());
                    let x = _mm512_mul_ps(_mm512_loadu_ps(x.as_ptr()), _mm512_set1_ps(self.factor));
                    store_split(x, to);
                }
            }
        }
    }
}

/// Writes half a line of a split tile: sixteen columns of one row.
///
/// # Safety
/// There are 32 bytes at `to` and as many a tile further on.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store_split(x: __m512, to: *mut u8) {
    let [high, low] = parts(x);
    // SAFETY: the caller's promise.
    unsafe {
        _mm256_storeu_si256(to.cast(), upper_halves(high));
        _mm256_storeu_si256(to.add(TILE_BYTES).cast(), upper_halves(low));
    }
}

/// Writes a line of a split tile: 32 columns of one row.
///
/// # Safety
/// There is a line at `to` and another a tile further on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn store_split_line(x: __m512, y: __m512, to: *mut u8) {
    /// The upper halves of one vector's numbers, then the other's.
    const UPPER: [u16; 32] = {
        let mut order = [0; 32];
        let mut i = 0;
        while i < order.len() {
            order[i] = 2 * i as u16 + 1;
            i += 1;
        }
        order
    };
    let ([xh, xl], [yh, yl]) = (parts(x), parts(y));
    // SAFETY: the caller's promise; as many words as a vector has.
    unsafe {
        let upper = _mm512_loadu_si512(UPPER.as_ptr().cast());
        _mm512_storeu_si512(to.cast(), _mm512_permutex2var_epi16(xh, upper, yh));
        _mm512_storeu_si512(to.add(TILE_BYTES).cast(), _mm512_permutex2var_epi16(xl, upper, yl));
    }
}

/// The high and low parts of numbers, in the upper halves of integers; the lower ones of the low parts are anything.
#[inline]
#[target_feature(enable = "avx512f")]
fn parts(x: __m512) -> [__m512i; 2] {
    let high = high_part(x);
    let low = _mm512_sub_ps(x, _mm512_castsi512_ps(high));
    [high, _mm512_add_epi32(_mm512_castps_si512(low), _mm512_set1_epi32(HALF))]
}

/// The numbers rounded to bf16, as bits of `f32`.
#[inline]
#[target_feature(enable = "avx512f")]
fn high_part(x: __m512) -> __m512i {
    let rounded = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(HALF));
    _mm512_and_si512(rounded, _mm512_set1_epi32(!0xffff))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn upper_halves(x: __m512i) -> __m256i {
    _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(x))
}

/// Sixteen rows' numbers of two columns, split: words of the first column's number in the lower half and the second's in
/// the upper one; high parts, then low parts.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn split_pair(x: __m512, y: __m512) -> [__m512i; 2] {
    let ([xh, xl], [yh, yl]) = (parts(x), parts(y));
    [join(xh, yh), join(xl, yl)]
}

/// [`split_pair`] of numbers that both parts have room for: nothing is rounded.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn split_short_pair(x: __m512, y: __m512) -> [__m512i; 2] {
    let ([xh, xl], [yh, yl]) = (short_parts(x), short_parts(y));
    [join(xh, yh), join(xl, yl)]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn short_parts(x: __m512) -> [__m512i; 2] {
    let high = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(!0xffff));
    [high, _mm512_castps_si512(_mm512_sub_ps(x, _mm512_castsi512_ps(high)))]
}

/// The upper halves of both, the first one's below.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn join(x: __m512i, y: __m512i) -> __m512i {
    _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(x), y)
}
