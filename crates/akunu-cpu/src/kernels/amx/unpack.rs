//! Packed weights to tiles.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::kernels::float::Float;
use crate::kernels::int::{AHEAD, ScaleView, Unpack};
use crate::pack::{Form, Matrix, TILE, TILES_PER_SUPER};
use crate::simd::LANES;
use crate::simd::avx512::Avx512;

use super::split::{join, split_pair};
use super::{SPLIT_BYTES, TILE_BYTES};

/// Weights that can be turned into tiles.
pub(super) trait Weights<'a> {
    /// Whether there are low parts: tiles are then split.
    const SPLIT: bool;

    /// One panel.
    fn view(matrix: &'a Matrix, panel: usize) -> Self;

    /// Writes one tile, `SPLIT` as it may be.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW, VL, DQ and VNNI; the tile is the panel's, and `to` has room for it.
    unsafe fn unpack(&self, tile: usize, to: *mut u8);
}

/// Bytes from one tile of weights to the next.
pub(super) const fn tile_bytes(split: bool) -> usize {
    if split { SPLIT_BYTES } else { TILE_BYTES }
}

/// Integers under scales.
pub(super) struct Ints<'a, U, Z> {
    codes: &'a [[u8; 64]],
    scales: Z,
    zero: f32,
    kind: PhantomData<U>,
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Weights<'a> for Ints<'a, U, Z> {
    const SPLIT: bool = true;

    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize) -> Self {
        let Form::Int { zero, .. } = matrix.form else { unreachable!("chosen by form") };
        let codes = matrix.plane::<u8>(panel, 0, matrix.cols / TILE * U::BITS * 64).as_chunks().0;
        Ints { codes, scales: Z::view(matrix, panel, AHEAD), zero: zero as f32, kind: PhantomData }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn unpack(&self, tile: usize, to: *mut u8) {
        let codes = U::unpack::<Avx512>(&self.codes[tile * U::BITS..(tile + 1) * U::BITS]);
        let zero = _mm512_set1_ps(self.zero);
        let none = _mm512_setzero_ps();
        let one = _mm512_set1_ps(1.0);
        let [outer, outer_min] =
            if Z::SUPER { self.scales.outer::<Avx512>(tile / TILES_PER_SUPER) } else { [one, one] };
        let group = |half: usize| {
            let min = if Z::MIN { self.scales.min::<Avx512>(tile, half) } else { none };
            let scale = self.scales.scale::<Avx512>(tile, half);
            (_mm512_mul_ps(scale, outer), _mm512_mul_ps(min, outer_min))
        };
        let first = group(0);
        let groups = [first, if Z::HALVES { group(1) } else { first }];
        let low_byte = _mm512_set1_epi32(0xff);
        for (step, codes) in codes.into_iter().enumerate() {
            let (scale, min) = groups[step / 4];
            // Not multiplied out: (code - zero) is exact, and so a weight of zero stays zero.
            let number =
                |code: __m512i| _mm512_fmadd_ps(_mm512_sub_ps(_mm512_cvtepi32_ps(code), zero), scale, min);
            let w0 = number(_mm512_and_si512(codes, low_byte));
            let w1 = number(_mm512_and_si512(_mm512_srli_epi32::<8>(codes), low_byte));
            let w2 = number(_mm512_and_si512(_mm512_srli_epi32::<16>(codes), low_byte));
            let w3 = number(_mm512_srli_epi32::<24>(codes));
            // SAFETY: a split tile has sixteen lines for high and sixteen for low parts; a step is two of each.
            unsafe {
                put_pair(w0, w1, to.add(128 * step));
                put_pair(w2, w3, to.add(128 * step + 64));
            }
        }
    }
}

/// Writes a line of a split tile: sixteen numbers of two columns.
///
/// # Safety
/// There is a line at `to` and another a tile further on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn put_pair(x: __m512, y: __m512, to: *mut u8) {
    let [high, low] = split_pair(x, y);
    // SAFETY: the caller's promise.
    unsafe {
        _mm512_storeu_si512(to.cast(), high);
        _mm512_storeu_si512(to.add(TILE_BYTES).cast(), low);
    }
}

/// F32 or F16: columns of sixteen rows.
pub(super) struct Floats<'a, T: Float>(&'a [[T::Bits; LANES]]);

impl<'a, T: Float> Weights<'a> for Floats<'a, T> {
    const SPLIT: bool = true;

    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize) -> Self {
        Floats(matrix.plane::<T::Bits>(panel, 0, matrix.cols * LANES).as_chunks().0)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn unpack(&self, tile: usize, to: *mut u8) {
        let column = |k: usize| match self.0.get(k) {
            Some(column) => T::load::<Avx512>(column),
            None => _mm512_setzero_ps(),
        };
        for pair in 0..TILE / 2 {
            let k = tile * TILE + 2 * pair;
            // SAFETY: a split tile has sixteen lines of each part.
            unsafe { put_pair(column(k), column(k + 1), to.add(64 * pair)) };
        }
    }
}

/// BF16, which has no low parts.
pub(super) struct Exact<'a>(&'a [[u16; LANES]]);

impl<'a> Weights<'a> for Exact<'a> {
    const SPLIT: bool = false;

    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize) -> Self {
        Exact(matrix.plane::<u16>(panel, 0, matrix.cols * LANES).as_chunks().0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn unpack(&self, tile: usize, to: *mut u8) {
        let column = |k: usize| match self.0.get(k) {
            Some(column) => {
                // SAFETY: an array of the size that is read.
                let bits = unsafe { _mm256_loadu_si256(column.as_ptr().cast()) };
                _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))
            }
            None => _mm512_setzero_si512(),
        };
        for pair in 0..TILE / 2 {
            let k = tile * TILE + 2 * pair;
            // SAFETY: a tile has sixteen lines.
            unsafe { _mm512_storeu_si512(to.add(64 * pair).cast(), join(column(k), column(k + 1))) };
        }
    }
}
