//! Packed weights to tiles.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use crate::kernels::float::Float;
use crate::kernels::int::Unpack;
use crate::kernels::scales::ScaleView;
use crate::memory::ask;
use crate::pack::{Form, Matrix, TILE, TILES_PER_SUPER};
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};

use super::split::{join, split_pair, split_short_pair};
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
    /// What codes are looked up in, if they are.
    values: &'static [u8; 16],
    ahead: usize,
    kind: PhantomData<U>,
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Ints<'a, U, Z> {
    /// Whether a number is a scale times the distance of its code from the middle. Words are then made of integers alone: with
    /// minima, two roundings would be too many.
    const DISTANCES: bool = !Z::MIN;

    /// Bits of a code once it is unpacked.
    const BITS: usize = if U::WIDE { 8 } else { U::BITS };

    /// The code in the middle.
    const MIDDLE: f32 = (1 << (Self::BITS - 1)) as f32;

    /// One panel. Whoever reads scales or takes a tile asks for those `ahead` bytes further on.
    #[inline(always)]
    pub(super) fn view(matrix: &'a Matrix, panel: usize, ahead: usize) -> Self {
        let Form::Int { codes, zero, .. } = matrix.form else { unreachable!("chosen by form") };
        let values = codes.values();
        let codes = matrix.plane::<u8>(panel, 0, matrix.cols / TILE * U::BITS * 64).as_chunks().0;
        Ints {
            codes,
            scales: Z::view(matrix, panel, ahead),
            zero: zero as f32,
            values,
            ahead,
            kind: PhantomData,
        }
    }

    /// The scale and the minimum of half a tile; the same for both where groups are as long as tiles.
    #[inline(always)]
    fn group(&self, tile: usize, half: usize) -> [__m512; 2] {
        let half = if Z::HALVES { half } else { 0 };
        let mut scale = self.scales.scale::<Avx512>(tile, half);
        let mut min = if Z::MIN { self.scales.min::<Avx512>(tile, half) } else { Avx512::splat(0.0) };
        if Z::SUPER {
            let [outer, outer_min] = self.scales.outer::<Avx512>(tile / TILES_PER_SUPER);
            (scale, min) = (Avx512::mul(scale, outer), Avx512::mul(min, outer_min));
        }
        [scale, min]
    }

    /// Bounds of the numbers of some tiles, one for each of the panel's rows.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW, VL, DQ and VNNI, and the tiles are the panel's.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) unsafe fn largest(&self, tiles: Range<usize>) -> __m512 {
        // The smallest code there may be and the largest, less the zero point.
        let last = if U::WIDE { f32::from(u8::MAX) } else { ((1 << U::BITS) - 1) as f32 };
        let (first, last) = (_mm512_set1_ps(-self.zero), _mm512_set1_ps(last - self.zero));
        let mut largest = _mm512_setzero_ps();
        for tile in tiles {
            for half in 0..if Z::HALVES { 2 } else { 1 } {
                let [scale, min] = self.group(tile, half);
                let (first, last) = (_mm512_fmadd_ps(first, scale, min), _mm512_fmadd_ps(last, scale, min));
                largest = _mm512_max_ps(largest, _mm512_max_ps(_mm512_abs_ps(first), _mm512_abs_ps(last)));
            }
        }
        largest
    }

    /// One tile whose numbers, times `inverse`, are to become words.
    ///
    /// # Safety
    /// As [`Ints::largest`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) unsafe fn tile(&self, tile: usize, inverse: __m512) -> IntTile<'a, U, Z> {
        let vectors = &self.codes[tile * U::BITS..(tile + 1) * U::BITS];
        for vector in vectors {
            ask(vector.as_ptr().wrapping_add(self.ahead));
        }
        let codes = U::unpack::<Avx512>(vectors, self.values);
        let factors = |half| {
            let [scale, min] = self.group(tile, half);
            if Self::DISTANCES {
                let middle = _mm512_mul_ps(_mm512_set1_ps(Self::MIDDLE), inverse);
                return [_mm512_castsi512_ps(twice(_mm512_mul_ps(scale, middle))), min];
            }
            [_mm512_mul_ps(scale, inverse), _mm512_mul_ps(min, inverse)]
        };
        let first = factors(0);
        let second = if Z::HALVES { factors(1) } else { first };
        IntTile { codes, factors: [first, second], zero: self.zero, kind: PhantomData }
    }
}

/// A tile of [`Ints`] on its way to words.
pub(super) struct IntTile<'a, U, Z> {
    /// Of four columns each.
    codes: [__m512i; 8],
    /// Of each half: what distances from the middle are multiplied by, or scale and minimum.
    factors: [[__m512; 2]; 2],
    zero: f32,
    kind: PhantomData<(&'a (), U, Z)>,
}

impl<'a, U: Unpack, Z: ScaleView<'a>> IntTile<'a, U, Z> {
    /// Writes one of the eight lines.
    ///
    /// # Safety
    /// As [`Ints::largest`]; there is room for eight lines at `to`, and for eight more a tile further on.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) unsafe fn put(&self, line: usize, to: *mut u8) {
        let codes = self.codes[line];
        let [scale, min] = self.factors[line / 4];
        let (even, odd) = if Ints::<'a, U, Z>::DISTANCES {
            let scale = _mm512_castps_si512(scale);
            let [even, odd] = distances(codes, Ints::<'a, U, Z>::BITS);
            (_mm512_mulhrs_epi16(even, scale), _mm512_mulhrs_epi16(odd, scale))
        } else {
            let zero = _mm512_set1_ps(self.zero);
            let low_byte = _mm512_set1_epi32(0xff);
            // Not multiplied out: (code - zero) is exact, and so a weight of zero stays zero.
            let word = |code: __m512i| {
                let code = _mm512_cvtepi32_ps(code);
                // Short codes with minima have no zero point.
                let code = if Z::MIN && !U::WIDE { code } else { _mm512_sub_ps(code, zero) };
                _mm512_cvtps_epi32(_mm512_fmadd_ps(code, scale, min))
            };
            let w0 = word(_mm512_and_si512(codes, low_byte));
            let w1 = word(_mm512_and_si512(_mm512_srli_epi32::<8>(codes), low_byte));
            let w2 = word(_mm512_and_si512(_mm512_srli_epi32::<16>(codes), low_byte));
            let w3 = word(_mm512_srli_epi32::<24>(codes));
            let even = _mm512_mask_blend_epi16(0xaaaa_aaaa, w0, _mm512_slli_epi32::<16>(w2));
            let odd = _mm512_mask_blend_epi16(0xaaaa_aaaa, w1, _mm512_slli_epi32::<16>(w3));
            (even, odd)
        };
        // SAFETY: the caller's promise.
        unsafe { put_words(even, odd, to.add(64 * line)) };
    }
}

/// Each number as an integer of sixteen bits, twice.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn twice(x: __m512) -> __m512i {
    let x = _mm512_cvtps_epi32(x);
    _mm512_mask_blend_epi16(0xaaaa_aaaa, x, _mm512_slli_epi32::<16>(x))
}

/// How far codes of so many bits are from the middle, in the highest bits of sixteen: of the even and of the odd columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn distances(codes: __m512i, bits: usize) -> [__m512i; 2] {
    /// `(a & b) ^ c`, as a truth table.
    const PART: i32 = 0x6a;
    let (even, odd) = match bits {
        2 => (_mm512_slli_epi16::<14>(codes), _mm512_slli_epi16::<6>(codes)),
        3 => (_mm512_slli_epi16::<13>(codes), _mm512_slli_epi16::<5>(codes)),
        4 => (_mm512_slli_epi16::<12>(codes), _mm512_slli_epi16::<4>(codes)),
        5 => (_mm512_slli_epi16::<11>(codes), _mm512_slli_epi16::<3>(codes)),
        6 => (_mm512_slli_epi16::<10>(codes), _mm512_slli_epi16::<2>(codes)),
        _ => (_mm512_slli_epi16::<8>(codes), codes),
    };
    let middle = _mm512_set1_epi16(i16::MIN);
    let odd = _mm512_ternarylogic_epi32::<PART>(odd, _mm512_set1_epi16(0xff << 8), middle);
    [_mm512_xor_si512(even, middle), odd]
}

/// Writes words of two even and of two odd columns: their high bytes, and their low ones a tile further on.
///
/// # Safety
/// There is a line at `to` and another a tile further on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn put_words(even: __m512i, odd: __m512i, to: *mut u8) {
    /// `(a & c) | b` and `a | (b & !c)`, as truth tables.
    const LOW: i32 = 0xec;
    const HIGH: i32 = 0xf4;
    let lower_bytes = _mm512_set1_epi16(0xff);
    let half = _mm512_set1_epi16(128);
    let low = _mm512_ternarylogic_epi32::<LOW>(even, _mm512_slli_epi16::<8>(odd), lower_bytes);
    let (even, odd) = (_mm512_add_epi16(even, half), _mm512_add_epi16(odd, half));
    let high = _mm512_ternarylogic_epi32::<HIGH>(_mm512_srli_epi16::<8>(even), odd, lower_bytes);
    // SAFETY: the caller's promise.
    unsafe {
        _mm512_storeu_si512(to.cast(), high);
        _mm512_storeu_si512(to.add(TILE_BYTES).cast(), low);
    }
}

/// Writes a line of a split tile: sixteen numbers of two columns, which are `short` if they have no more bits than
/// both parts, as those of F16.
///
/// # Safety
/// There is a line at `to` and another a tile further on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn put_pair(x: __m512, y: __m512, short: bool, to: *mut u8) {
    let [high, low] = if short { split_short_pair(x, y) } else { split_pair(x, y) };
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
            unsafe { put_pair(column(k), column(k + 1), false, to.add(64 * pair)) };
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
