//! AVX-512 with VNNI: one register a vector.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{EXP_LEAST, EXP_MOST, Kernel, LANES, LOW_BITS, Simd, exp_of_rest, exp2_of_fraction, field, mask};

/// One 512-bit register. With `FIELDS`, only on processors that cut fields out of bytes (GFNI) and look any bytes up (VBMI).
#[derive(Clone, Copy)]
pub(crate) struct Wide<const FIELDS: bool>;

/// For any processor with AVX-512.
pub(crate) type Avx512 = Wide<false>;

/// Runs a kernel with the features on.
///
/// # Safety
/// The processor has the features.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(crate) unsafe fn launch<K: Kernel>(kernel: K) {
    kernel.run::<Avx512>();
}

/// Whether [`launch_with_fields`] may be called where [`launch`] may.
pub(crate) fn has_fields() -> bool {
    is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx512vbmi")
}

/// As [`launch`], with instructions for fields of bytes.
///
/// # Safety
/// The processor has the features.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
pub(crate) unsafe fn launch_with_fields<K: Kernel>(kernel: K) {
    kernel.run::<Wide<true>>();
}

/// What `vgf2p8affineqb` takes for a [field](Simd::field): the mask of each bit of the result, the highest one's first.
const fn field_matrix(from: u32, width: u32, to: u32) -> i64 {
    let mut rows = [0u8; 8];
    let mut i = 0;
    while i < width {
        rows[(7 - to - i) as usize] = 1 << (from + i);
        i += 1;
    }
    i64::from_le_bytes(rows)
}

/// Of larger numbers, the reciprocal is that of this one.
const LARGEST_RECIPROCAL: f32 = 8.507_059e37; // 2^126

// SAFETY of every block below: these methods run only inside `launch`, or `launch_with_fields` if they are of `FIELDS`, so the processor
// has the features; loads and stores go through references to arrays of exactly their size and need no alignment.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<const FIELDS: bool> Simd for Wide<FIELDS> {
    const MANY_REGISTERS: bool = true;
    const BYTE_DOTS: bool = !FIELDS;
    const FIELDS: bool = FIELDS;
    type F = __m512;
    type I = __m512i;
    type C = __m512i;

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn store(x: Self::F, to: &mut [f32; LANES]) {
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
    }
    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self::F {
        // Exact, whatever the rounding; the function without one cannot read from memory.
        unsafe { _mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(_mm256_loadu_si256(from.as_ptr().cast())) }
    }
    #[inline(always)]
    fn store_f16(x: Self::F, to: &mut [u16; LANES]) {
        unsafe {
            let half = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(x);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), half);
        }
    }
    #[inline(always)]
    fn load_bf16(from: &[u16; LANES]) -> Self::F {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    fn load_i8(from: &[i8; LANES]) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn load_nibbles(from: &[u8; LANES]) -> [Self::F; 2] {
        // What is above a number's own four bits makes no difference to the permutation.
        const NUMBERS: [f32; LANES] =
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
        unsafe {
            let both = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast()));
            let numbers = _mm512_loadu_ps(NUMBERS.as_ptr());
            [_mm512_permutexvar_ps(both, numbers), _mm512_permutexvar_ps(shifted_by_four(both), numbers)]
        }
    }
    #[inline(always)]
    fn add(x: Self::F, y: Self::F) -> Self::F {
        unsafe { _mm512_add_ps(x, y) }
    }
    #[inline(always)]
    fn sub(x: Self::F, y: Self::F) -> Self::F {
        unsafe { _mm512_sub_ps(x, y) }
    }
    #[inline(always)]
    fn mul(x: Self::F, y: Self::F) -> Self::F {
        unsafe { _mm512_mul_ps(x, y) }
    }
    #[inline(always)]
    fn div(x: Self::F, y: Self::F) -> Self::F {
        unsafe { _mm512_div_ps(x, y) }
    }
    /// The same bits in fewer instructions: one multiplies by a power of two, and leaves 0 where there is less than what is least, so
    /// that nothing has to be clamped there.
    #[inline(always)]
    fn exp(x: Self::F) -> Self::F {
        unsafe {
            let clamped = _mm512_min_ps(_mm512_set1_ps(EXP_MOST), x);
            let n = _mm512_mul_ps(clamped, _mm512_set1_ps(std::f32::consts::LOG2_E));
            let n = _mm512_roundscale_ps::<_MM_FROUND_TO_NEAREST_INT>(n);
            let some = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(EXP_LEAST));
            _mm512_maskz_scalef_ps(some, exp_of_rest::<Self>(clamped, n), n)
        }
    }
    /// Nearly the same in fewer instructions, and less where there is less than what is least.
    #[inline(always)]
    fn exp2(x: Self::F) -> Self::F {
        /// Less the largest whole number that is not above it.
        const FRACTION: i32 = 0b1001;
        // Times two to the power of that whole number.
        unsafe { _mm512_scalef_ps(exp2_of_fraction::<Self>(_mm512_reduce_ps::<FRACTION>(x)), x) }
    }
    /// A division takes sixteen cycles. What processors have for it instead need not be the same to the bit on all of them: this
    /// begins with a guess from the exponent, and has twice as many digits after each turn.
    #[inline(always)]
    fn reciprocal(x: Self::F) -> Self::F {
        unsafe {
            let x = _mm512_min_ps(_mm512_set1_ps(LARGEST_RECIPROCAL), x);
            let guess = _mm512_sub_epi32(_mm512_set1_epi32(0x7ef3_11c7), _mm512_castps_si512(x));
            let mut y = _mm512_castsi512_ps(guess);
            for _ in 0..3 {
                let rest = _mm512_fnmadd_ps(x, y, _mm512_set1_ps(1.0));
                y = _mm512_fmadd_ps(y, rest, y);
            }
            y
        }
    }
    #[inline(always)]
    fn fma(x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        unsafe { _mm512_fmadd_ps(x, y, z) }
    }
    #[inline(always)]
    fn max(x: Self::F, y: Self::F) -> Self::F {
        unsafe { _mm512_max_ps(x, y) }
    }
    #[inline(always)]
    fn min(x: Self::F, y: Self::F) -> Self::F {
        unsafe { _mm512_min_ps(x, y) }
    }
    #[inline(always)]
    fn select_less(x: Self::F, y: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, y), no, yes) }
    }
    #[inline(always)]
    fn sum(x: Self::F) -> f32 {
        unsafe { _mm512_reduce_add_ps(x) }
    }
    #[inline(always)]
    fn largest(x: Self::F) -> f32 {
        unsafe { _mm512_reduce_max_ps(x) }
    }
    #[inline(always)]
    fn any_above(x: Self::F, y: Self::F) -> bool {
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, y) != 0 }
    }
    #[inline(always)]
    fn any_unknown(x: Self::F, y: Self::F) -> bool {
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, y) != 0 }
    }
    #[inline(always)]
    fn round(x: Self::F) -> Self::I {
        unsafe { _mm512_cvtps_epi32(x) }
    }
    #[inline(always)]
    fn to_float(x: Self::I) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(x) }
    }
    #[inline(always)]
    fn power_of_two(x: Self::I) -> Self::F {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(x, _mm512_set1_epi32(127)))) }
    }
    #[inline(always)]
    fn magnitude(x: [Self::F; 2]) -> f32 {
        // Without their signs, what is larger is so as an integer, too, and what is no number is the largest.
        unsafe {
            let [x, y] = [_mm512_abs_ps(x[0]), _mm512_abs_ps(x[1])];
            let largest = _mm512_max_epu32(_mm512_castps_si512(x), _mm512_castps_si512(y));
            f32::from_bits(_mm512_reduce_max_epu32(largest))
        }
    }
    #[inline(always)]
    fn store_parts(x: [Self::F; 2], factor: f32, to: &mut [[i8; LANES]; 4]) -> [i32; 2] {
        /// Packing works on 128-bit parts, each of which then has four bytes of the first sixteen high parts, of the last, and of both
        /// halves of the low ones.
        const ORDER: [i32; LANES] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
        unsafe {
            let factor = _mm512_set1_ps(factor);
            let [x, y] = [_mm512_mul_ps(x[0], factor), _mm512_mul_ps(x[1], factor)];
            let words = _mm512_packs_epi32(_mm512_cvtps_epi32(x), _mm512_cvtps_epi32(y));
            let odd = _mm512_and_si512(_mm512_srli_epi16::<LOW_BITS>(words), _mm512_set1_epi16(1));
            let half = _mm512_add_epi16(odd, _mm512_set1_epi16((1 << (LOW_BITS - 1)) - 1));
            let upper = _mm512_srai_epi16::<LOW_BITS>(_mm512_add_epi16(words, half));
            let lower = _mm512_sub_epi16(words, _mm512_slli_epi16::<LOW_BITS>(upper));
            let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
            let parts = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(upper, lower));
            _mm512_storeu_si512(to.as_mut_ptr().cast(), parts);
            let pairs = _mm512_madd_epi16(words, _mm512_set1_epi16(1));
            let pairs =
                _mm256_add_epi32(_mm512_castsi512_si256(pairs), _mm512_extracti64x4_epi64::<1>(pairs));
            let pairs = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
            let sums = _mm_hadd_epi32(pairs, pairs);
            [_mm_cvtsi128_si32(sums), _mm_extract_epi32::<1>(sums)]
        }
    }
    #[inline(always)]
    fn store_i8(x: Self::I, to: &mut [i8; LANES]) {
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(x)) }
    }
    #[inline(always)]
    fn sum_i(x: Self::I) -> i32 {
        unsafe { _mm512_reduce_add_epi32(x) }
    }
    #[inline(always)]
    fn codes(from: &[u8; 64]) -> Self::C {
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }
    #[inline(always)]
    fn and(x: Self::C, mask: u8) -> Self::C {
        unsafe { _mm512_and_si512(x, _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    fn or(x: Self::C, y: Self::C) -> Self::C {
        unsafe { _mm512_or_si512(x, y) }
    }
    #[inline(always)]
    fn shift_right<const BITS: u32>(x: Self::C) -> Self::C {
        unsafe { _mm512_srli_epi16::<BITS>(x) }
    }
    #[inline(always)]
    fn shift_left<const BITS: u32>(x: Self::C) -> Self::C {
        unsafe { _mm512_slli_epi16::<BITS>(x) }
    }
    #[inline(always)]
    fn field<const FROM: u32, const WIDTH: u32, const TO: u32>(x: Self::C) -> Self::C {
        // What need not be moved is only masked, which more ports can do.
        if !FIELDS || FROM == TO {
            return field::<Self, FROM, WIDTH, TO>(x);
        }
        unsafe {
            let matrix = _mm512_set1_epi64(const { field_matrix(FROM, WIDTH, TO) });
            _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix)
        }
    }
    #[inline(always)]
    fn lookup(x: Self::C, table: &[u8; 16]) -> Self::C {
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            if FIELDS {
                // Of the six bits this takes, two make no difference: the table is there four times.
                _mm512_permutexvar_epi8(x, table)
            } else {
                _mm512_shuffle_epi8(table, _mm512_and_si512(x, _mm512_set1_epi8(mask(4) as i8)))
            }
        }
    }
    #[inline(always)]
    fn dot<const N: usize>(
        _bits: usize,
        init: i32,
        codes: &[Self::C; N],
        high: &[i32; N],
        low: &[i32; N],
    ) -> Self::I {
        unsafe {
            // Two chains, so that one's latency hides behind the other's.
            let (mut upper, mut lower) = (_mm512_setzero_si512(), _mm512_set1_epi32(init));
            for i in 0..N {
                upper = _mm512_dpbusd_epi32(upper, codes[i], _mm512_set1_epi32(high[i]));
                lower = _mm512_dpbusd_epi32(lower, codes[i], _mm512_set1_epi32(low[i]));
            }
            _mm512_add_epi32(_mm512_slli_epi32::<LOW_BITS>(upper), lower)
        }
    }
    #[inline(always)]
    fn settled(x: Self::F) -> Self::F {
        unsafe { settled(x) }
    }
    #[inline(always)]
    fn dots_beside<const N: usize>(
        _bits: usize,
        init: i32,
        codes: [&[Self::C; N]; 2],
        high: &[i32; N],
        low: &[i32; N],
    ) -> [Self::I; 2] {
        unsafe {
            let mut upper = [_mm512_setzero_si512(); 2];
            let mut lower = [_mm512_set1_epi32(init); 2];
            for i in 0..N {
                let (high, low) = (_mm512_set1_epi32(high[i]), _mm512_set1_epi32(low[i]));
                for p in 0..2 {
                    upper[p] = _mm512_dpbusd_epi32(upper[p], codes[p][i], high);
                    lower[p] = _mm512_dpbusd_epi32(lower[p], codes[p][i], low);
                }
            }
            for p in 0..2 {
                lower[p] = joined(upper[p], lower[p]);
            }
            lower
        }
    }
    #[inline(always)]
    fn four_dots<const N: usize>(
        _bits: usize,
        init: [i32; 4],
        codes: &[Self::C; N],
        high: [&[i32; N]; 4],
        low: [&[i32; N]; 4],
    ) -> [Self::I; 4] {
        let high = [high[0].as_ptr(), high[1].as_ptr(), high[2].as_ptr(), high[3].as_ptr()];
        let low = [low[0].as_ptr(), low[1].as_ptr(), low[2].as_ptr(), low[3].as_ptr()];
        unsafe {
            match N {
                4 => dots_of_sixteen([codes[0], codes[1], codes[2], codes[3]], init, high, low),
                8 => {
                    let [a, b, c, d] = [codes[0], codes[1], codes[2], codes[3]];
                    let [e, f, g, h] = [codes[4], codes[5], codes[6], codes[7]];
                    dots_of_a_tile([a, b, c, d, e, f, g, h], init, high, low)
                }
                _ => unreachable!("a tile, or half of one"),
            }
        }
    }
    #[inline(always)]
    fn store_codes(codes: Self::C, to: &mut [u8; 64]) {
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), codes) }
    }
    #[inline(always)]
    fn byte_dots<const N: usize, const UPPER: bool>(
        init: [i32; 4],
        codes: &[[[u8; 64]; 2]; N],
        high: [&[i32; N]; 4],
        low: [&[i32; N]; 4],
    ) -> [[Self::I; 2]; 4] {
        unsafe {
            let zero = [_mm512_setzero_si512(); 2];
            let mut upper = [zero; 4];
            let mut lower = [zero; 4];
            for m in 0..4 {
                let begin = if UPPER { &mut upper[m] } else { &mut lower[m] };
                *begin = [_mm512_set1_epi32(init[m]); 2];
            }
            for i in 0..N {
                let a = _mm512_loadu_si512(codes[i][0].as_ptr().cast());
                let b = _mm512_loadu_si512(codes[i][1].as_ptr().cast());
                for m in 0..4 {
                    let x = _mm512_set1_epi32(high[m][i]);
                    upper[m][0] = _mm512_dpbusd_epi32(upper[m][0], a, x);
                    upper[m][1] = _mm512_dpbusd_epi32(upper[m][1], b, x);
                    let x = _mm512_set1_epi32(low[m][i]);
                    lower[m][0] = _mm512_dpbusd_epi32(lower[m][0], a, x);
                    lower[m][1] = _mm512_dpbusd_epi32(lower[m][1], b, x);
                }
            }
            for m in 0..4 {
                for p in 0..2 {
                    lower[m][p] = joined(upper[m][p], lower[m][p]);
                }
            }
            lower
        }
    }
}

/// A function that adds the products of codes with the high and the low parts of four rows.
///
/// A dot waits some cycles for the one before it in its chain, and the processor looks ahead too little to find the next row's
/// by itself; compilers order them row by row again, so this is not left to them. (Those of two panels they leave as they are.)
macro_rules! dots {
    ($name:ident, $($codes:ident = $i:literal at $at:literal),+) => {
        /// # Safety
        /// The processor has the features, and there is a word at each pointer for every vector of codes.
        #[inline]
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        unsafe fn $name(
            codes: [__m512i; [$($i),+].len()],
            init: [i32; 4],
            high: [*const i32; 4],
            low: [*const i32; 4],
        ) -> [__m512i; 4] {
            let zero = _mm512_setzero_si512();
            let (u0, u1, u2, u3);
            let (l0, l1, l2, l3);
            // SAFETY: the caller's promise.
            unsafe {
                asm!(
                    $(
                        concat!("vpdpbusd {u0}, {", stringify!($codes), "}, dword ptr [{h0} + ", $at, "]{{1to16}}"),
                        concat!("vpdpbusd {l0}, {", stringify!($codes), "}, dword ptr [{d0} + ", $at, "]{{1to16}}"),
                        concat!("vpdpbusd {u1}, {", stringify!($codes), "}, dword ptr [{h1} + ", $at, "]{{1to16}}"),
                        concat!("vpdpbusd {l1}, {", stringify!($codes), "}, dword ptr [{d1} + ", $at, "]{{1to16}}"),
                        concat!("vpdpbusd {u2}, {", stringify!($codes), "}, dword ptr [{h2} + ", $at, "]{{1to16}}"),
                        concat!("vpdpbusd {l2}, {", stringify!($codes), "}, dword ptr [{d2} + ", $at, "]{{1to16}}"),
                        concat!("vpdpbusd {u3}, {", stringify!($codes), "}, dword ptr [{h3} + ", $at, "]{{1to16}}"),
                        concat!("vpdpbusd {l3}, {", stringify!($codes), "}, dword ptr [{d3} + ", $at, "]{{1to16}}"),
                    )+
                    $($codes = in(zmm_reg) codes[$i],)+
                    u0 = inout(zmm_reg) zero => u0,
                    u1 = inout(zmm_reg) zero => u1,
                    u2 = inout(zmm_reg) zero => u2,
                    u3 = inout(zmm_reg) zero => u3,
                    l0 = inout(zmm_reg) _mm512_set1_epi32(init[0]) => l0,
                    l1 = inout(zmm_reg) _mm512_set1_epi32(init[1]) => l1,
                    l2 = inout(zmm_reg) _mm512_set1_epi32(init[2]) => l2,
                    l3 = inout(zmm_reg) _mm512_set1_epi32(init[3]) => l3,
                    h0 = in(reg) high[0],
                    h1 = in(reg) high[1],
                    h2 = in(reg) high[2],
                    h3 = in(reg) high[3],
                    d0 = in(reg) low[0],
                    d1 = in(reg) low[1],
                    d2 = in(reg) low[2],
                    d3 = in(reg) low[3],
                    options(pure, nostack, readonly, preserves_flags),
                );
            }
            [joined(u0, l0), joined(u1, l1), joined(u2, l2), joined(u3, l3)]
        }
    };
}

dots!(dots_of_sixteen, c0 = 0 at 0, c1 = 1 at 4, c2 = 2 at 8, c3 = 3 at 12);
dots!(
    dots_of_a_tile,
    c0 = 0 at 0,
    c1 = 1 at 4,
    c2 = 2 at 8,
    c3 = 3 at 12,
    c4 = 4 at 16,
    c5 = 5 at 20,
    c6 = 6 at 24,
    c7 = 7 at 28
);

/// The dot with an activation, of those with its parts.
#[inline]
#[target_feature(enable = "avx512f")]
fn joined(upper: __m512i, lower: __m512i) -> __m512i {
    _mm512_add_epi32(_mm512_slli_epi32::<LOW_BITS>(upper), lower)
}

/// Words of 32 bits, shifted to the right. Not with the compiler's function: it would shift bytes before they are words, and make words of
/// them once more.
#[inline]
#[target_feature(enable = "avx512f")]
fn shifted_by_four(mut x: __m512i) -> __m512i {
    // SAFETY: an instruction of the features of this function.
    unsafe { asm!("vpsrld {0}, {0}, 4", inout(zmm_reg) x, options(pure, nomem, nostack, preserves_flags)) };
    x
}

/// No instruction. It might write to memory, as far as the compiler knows (not `pure`, `nomem` or `readonly`): what is read later is not read
/// before it.
#[inline]
#[target_feature(enable = "avx512f")]
fn settled(mut x: __m512) -> __m512 {
    // SAFETY: no instruction.
    unsafe { asm!("/* {0} */", inout(zmm_reg) x, options(nostack, preserves_flags)) };
    x
}
