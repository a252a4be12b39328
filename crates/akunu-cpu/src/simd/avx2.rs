//! AVX2 with FMA and F16C: two registers a vector.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{Kernel, LANES, LOW_BITS, Simd};

/// Two 256-bit registers.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// Runs a kernel with the features on.
///
/// # Safety
/// The processor has the features.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn launch<K: Kernel>(kernel: K) {
    kernel.run::<Avx2>();
}

/// Applies an intrinsic to both halves.
macro_rules! both {
    ($f:path; $($x:expr),+) => { [unsafe { $f($($x[0]),+) }, unsafe { $f($($x[1]),+) }] };
}

/// Does something with both halves.
macro_rules! each {
    ($x:ident in $halves:expr => $body:expr) => {{
        let [low, high] = $halves;
        [
            {
                let $x = low;
                unsafe { $body }
            },
            {
                let $x = high;
                unsafe { $body }
            },
        ]
    }};
}

/// The two halves of an array of sixteen.
#[inline(always)]
fn halves<T>(x: &[T; LANES]) -> [&[T; 8]; 2] {
    let [low, high] = x.as_chunks::<8>().0 else { unreachable!() };
    [low, high]
}

// SAFETY of every block below: these methods run only inside `launch`, so the processor has the features; loads and
// stores go through references to arrays of at least their size and need no alignment.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx2 {
    const MANY_APART: bool = true;

    type F = [__m256; 2];
    type I = [__m256i; 2];
    type C = [__m256i; 2];

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        each!(x in halves(from) => _mm256_loadu_ps(x.as_ptr()))
    }
    // Vectors are stored one by one: `zip` would be called, and they would be in memory for it.
    #[inline(always)]
    fn store(x: Self::F, to: &mut [f32; LANES]) {
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(to[8..].as_mut_ptr(), x[1]);
        }
    }
    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self::F {
        each!(x in halves(from) => _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn store_f16(x: Self::F, to: &mut [u16; LANES]) {
        let [low, high] = each!(x in x => _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(x));
        unsafe {
            _mm_storeu_si128(to.as_mut_ptr().cast(), low);
            _mm_storeu_si128(to[8..].as_mut_ptr().cast(), high);
        }
    }
    #[inline(always)]
    fn load_bf16(from: &[u16; LANES]) -> Self::F {
        each!(x in halves(from) => {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    fn load_i8(from: &[i8; LANES]) -> Self::F {
        each!(x in halves(from) => {
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(x.as_ptr().cast())))
        })
    }
    #[inline(always)]
    fn load_nibbles(from: &[u8; LANES]) -> [Self::F; 2] {
        let lower = each!(x in halves(from) => {
            let both = _mm256_cvtepu8_epi32(_mm_loadl_epi64(x.as_ptr().cast()));
            _mm256_cvtepi32_ps(_mm256_and_si256(both, _mm256_set1_epi32(15)))
        });
        let upper = each!(x in halves(from) => {
            let both = _mm256_cvtepu8_epi32(_mm_loadl_epi64(x.as_ptr().cast()));
            _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(both))
        });
        [lower, upper]
    }
    #[inline(always)]
    fn add(x: Self::F, y: Self::F) -> Self::F {
        both!(_mm256_add_ps; x, y)
    }
    #[inline(always)]
    fn sub(x: Self::F, y: Self::F) -> Self::F {
        both!(_mm256_sub_ps; x, y)
    }
    #[inline(always)]
    fn mul(x: Self::F, y: Self::F) -> Self::F {
        both!(_mm256_mul_ps; x, y)
    }
    #[inline(always)]
    fn div(x: Self::F, y: Self::F) -> Self::F {
        both!(_mm256_div_ps; x, y)
    }
    #[inline(always)]
    fn fma(x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        both!(_mm256_fmadd_ps; x, y, z)
    }
    #[inline(always)]
    fn max(x: Self::F, y: Self::F) -> Self::F {
        both!(_mm256_max_ps; x, y)
    }
    #[inline(always)]
    fn min(x: Self::F, y: Self::F) -> Self::F {
        both!(_mm256_min_ps; x, y)
    }
    #[inline(always)]
    fn select_less(x: Self::F, y: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        let less = both!(_mm256_cmp_ps::<_CMP_LT_OQ>; x, y);
        both!(_mm256_blendv_ps; no, yes, less)
    }
    #[inline(always)]
    fn sum(x: Self::F) -> f32 {
        unsafe {
            let x = _mm256_add_ps(x[0], x[1]);
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
    #[inline(always)]
    fn largest(x: Self::F) -> f32 {
        unsafe {
            let x = _mm256_max_ps(x[0], x[1]);
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
    #[inline(always)]
    fn any_above(x: Self::F, y: Self::F) -> bool {
        unsafe {
            let low = _mm256_cmp_ps::<_CMP_GT_OQ>(x[0], y[0]);
            let high = _mm256_cmp_ps::<_CMP_GT_OQ>(x[1], y[1]);
            _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0
        }
    }
    #[inline(always)]
    fn any_unknown(x: Self::F, y: Self::F) -> bool {
        unsafe {
            let low = _mm256_cmp_ps::<_CMP_UNORD_Q>(x[0], y[0]);
            let high = _mm256_cmp_ps::<_CMP_UNORD_Q>(x[1], y[1]);
            _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0
        }
    }
    #[inline(always)]
    fn round(x: Self::F) -> Self::I {
        both!(_mm256_cvtps_epi32; x)
    }
    #[inline(always)]
    fn to_float(x: Self::I) -> Self::F {
        both!(_mm256_cvtepi32_ps; x)
    }
    #[inline(always)]
    fn power_of_two(x: Self::I) -> Self::F {
        each!(x in x => {
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(x, _mm256_set1_epi32(127))))
        })
    }
    #[inline(always)]
    fn magnitude(x: [Self::F; 2]) -> f32 {
        // Without their signs, what is larger is so as an integer, too, and what is no number is the largest.
        let first = each!(x in x[0] => _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0), x)));
        let last = each!(x in x[1] => _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0), x)));
        let [x, y] = both!(_mm256_max_epu32; first, last);
        unsafe {
            let x = _mm256_max_epu32(x, y);
            let x = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            let x = _mm_max_epu32(x, _mm_shuffle_epi32::<0b00_00_11_10>(x));
            f32::from_bits(_mm_cvtsi128_si32(_mm_max_epu32(x, _mm_shuffle_epi32::<1>(x))) as u32)
        }
    }
    #[inline(always)]
    fn store_parts(x: [Self::F; 2], factor: f32, to: &mut [[i8; LANES]; 4]) -> [i32; 2] {
        const BITS: i32 = LOW_BITS as i32;
        let factor = Self::splat(factor);
        let [first, last] = [Self::round(Self::mul(x[0], factor)), Self::round(Self::mul(x[1], factor))];
        let words = both!(_mm256_packs_epi32; [first[0], last[0]], [first[1], last[1]]);
        let upper = each!(x in words => {
            let odd = _mm256_and_si256(_mm256_srli_epi16::<BITS>(x), _mm256_set1_epi16(1));
            let half = _mm256_add_epi16(odd, _mm256_set1_epi16((1 << (BITS - 1)) - 1));
            _mm256_srai_epi16::<BITS>(_mm256_add_epi16(x, half))
        });
        let whole = both!(_mm256_slli_epi16::<BITS>; upper);
        let lower = both!(_mm256_sub_epi16; words, whole);
        // Packing works on 128-bit halves.
        let parts = each!(x in [upper, lower] => {
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            _mm256_permutevar8x32_epi32(_mm256_packs_epi16(x[0], x[1]), order)
        });
        let pairs = each!(x in words => _mm256_madd_epi16(x, _mm256_set1_epi16(1)));
        unsafe {
            let to = to.as_mut_ptr().cast::<__m256i>();
            _mm256_storeu_si256(to, parts[0]);
            _mm256_storeu_si256(to.add(1), parts[1]);
            let sums = _mm256_hadd_epi32(pairs[0], pairs[1]);
            let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
            let sums = _mm_hadd_epi32(sums, sums);
            [_mm_cvtsi128_si32(sums), _mm_extract_epi32::<1>(sums)]
        }
    }
    #[inline(always)]
    fn store_i8(x: Self::I, to: &mut [i8; LANES]) {
        unsafe {
            // Packing works on 128-bit halves: words 0-3, 8-11, 4-7, 12-15, put in order by the permutation.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(x[0], x[1]));
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes);
        }
    }
    #[inline(always)]
    fn sum_i(x: Self::I) -> i32 {
        unsafe {
            let x = _mm256_add_epi32(x[0], x[1]);
            let x = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            let x = _mm_add_epi32(x, _mm_shuffle_epi32::<0b00_00_11_10>(x));
            _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32::<1>(x)))
        }
    }
    #[inline(always)]
    fn codes(from: &[u8; 64]) -> Self::C {
        let [low, high] = from.as_chunks::<32>().0 else { unreachable!() };
        each!(x in [low, high] => _mm256_loadu_si256(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn store_codes(x: Self::C, to: &mut [u8; 64]) {
        unsafe {
            _mm256_storeu_si256(to.as_mut_ptr().cast(), x[0]);
            _mm256_storeu_si256(to[32..].as_mut_ptr().cast(), x[1]);
        }
    }
    #[inline(always)]
    fn and(x: Self::C, mask: u8) -> Self::C {
        each!(x in x => _mm256_and_si256(x, _mm256_set1_epi8(mask as i8)))
    }
    #[inline(always)]
    fn or(x: Self::C, y: Self::C) -> Self::C {
        both!(_mm256_or_si256; x, y)
    }
    #[inline(always)]
    fn shift_right<const BITS: u32>(x: Self::C) -> Self::C {
        each!(x in x => _mm256_srl_epi16(x, _mm_cvtsi32_si128(BITS as i32)))
    }
    #[inline(always)]
    fn shift_left<const BITS: u32>(x: Self::C) -> Self::C {
        each!(x in x => _mm256_sll_epi16(x, _mm_cvtsi32_si128(BITS as i32)))
    }
    #[inline(always)]
    fn lookup(x: Self::C, table: &[u8; 16]) -> Self::C {
        each!(x in x => {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, _mm256_and_si256(x, _mm256_set1_epi8(15)))
        })
    }
    #[inline(always)]
    fn dot<const N: usize>(
        bits: usize,
        init: i32,
        codes: &[Self::C; N],
        high: &[i32; N],
        low: &[i32; N],
    ) -> Self::I {
        if bits == 8 { wide_dot(init, codes, high, low) } else { narrow_dot(bits, init, codes, high, low) }
    }
    #[inline(always)]
    fn store_words(codes: Self::C, zero: i32, to: [&mut [i32; LANES]; 2]) {
        let even = each!(x in codes => {
            _mm256_sub_epi16(_mm256_and_si256(x, _mm256_set1_epi16(255)), _mm256_set1_epi16(zero as i16))
        });
        let odd = each!(x in codes => {
            _mm256_sub_epi16(_mm256_srli_epi16::<8>(x), _mm256_set1_epi16(zero as i16))
        });
        let [first, second] = to;
        let (first, second) = (first.as_mut_ptr().cast::<__m256i>(), second.as_mut_ptr().cast::<__m256i>());
        unsafe {
            _mm256_storeu_si256(first, even[0]);
            _mm256_storeu_si256(first.add(1), even[1]);
            _mm256_storeu_si256(second, odd[0]);
            _mm256_storeu_si256(second.add(1), odd[1]);
        }
    }
    #[inline(always)]
    fn activation_words(high: &[i32; 8], low: &[i32; 8], to: &mut [[i32; 2]; 8]) {
        let parts = each!(x in [high, low] => _mm256_loadu_si256(x.as_ptr().cast()));
        let even = each!(x in parts => _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x)));
        let odd = both!(_mm256_srai_epi16::<8>; parts);
        let upper = both!(_mm256_slli_epi16::<{ LOW_BITS as i32 }>; [even[0], odd[0]]);
        let [first, second] = both!(_mm256_add_epi16; upper, [even[1], odd[1]]);
        unsafe {
            // Both work on 128-bit halves.
            let (a, b) = (_mm256_unpacklo_epi32(first, second), _mm256_unpackhi_epi32(first, second));
            let to = to.as_mut_ptr().cast::<__m256i>();
            _mm256_storeu_si256(to, _mm256_permute2x128_si256::<0x20>(a, b));
            _mm256_storeu_si256(to.add(1), _mm256_permute2x128_si256::<0x31>(a, b));
        }
    }
    #[inline(always)]
    fn word_dots<const N: usize>(
        weights: &[[[[i32; LANES]; 2]; 2]; N],
        x: [&[[i32; 2]; N]; 2],
    ) -> [[Self::I; 2]; 2] {
        let (weights, x) = (weights.as_ptr().cast(), [x[0].as_ptr().cast(), x[1].as_ptr().cast()]);
        // SAFETY: there are two words of each row for each of so many steps, and 128 bytes of weights for each of those.
        match N {
            4 => unsafe { word_dots_of_half(weights, x) },
            8 => unsafe { word_dots_of_tile(weights, x) },
            _ => unreachable!("tiles and halves of tiles"),
        }
    }
}

/// [`Simd::word_dots`] of some steps. Each vector of weights is an operand in memory twice: with one instruction less for each than what
/// the compiler makes of the same, which also adds sums as a tree, for which there are no registers.
macro_rules! word_dots {
    ($(#[$doc:meta])* $name:ident, $but_the_first:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// For each word of a row, of which a step has two, there are 128 bytes of weights.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $name(weights: *const i32, x: [*const i32; 2]) -> [[[__m256i; 2]; 2]; 2] {
            let (a, b, c, d, e, f, g, h);
            // SAFETY: the caller's promise.
            unsafe {
                asm!(
                    "vpbroadcastd {x}, [{first}]",
                    "vpbroadcastd {y}, [{second}]",
                    "vpmaddwd {a}, {x}, [{weights}]",
                    "vpmaddwd {b}, {x}, [{weights} + 32]",
                    "vpmaddwd {c}, {x}, [{weights} + 64]",
                    "vpmaddwd {d}, {x}, [{weights} + 96]",
                    "vpmaddwd {e}, {y}, [{weights}]",
                    "vpmaddwd {f}, {y}, [{weights} + 32]",
                    "vpmaddwd {g}, {y}, [{weights} + 64]",
                    "vpmaddwd {h}, {y}, [{weights} + 96]",
                    concat!(".irp i, ", $but_the_first),
                    "vpbroadcastd {x}, [{first} + 4*\\i]",
                    "vpbroadcastd {y}, [{second} + 4*\\i]",
                    "vpmaddwd {product}, {x}, [{weights} + 128*\\i]",
                    "vpaddd {a}, {a}, {product}",
                    "vpmaddwd {product}, {y}, [{weights} + 128*\\i]",
                    "vpaddd {e}, {e}, {product}",
                    "vpmaddwd {product}, {x}, [{weights} + 128*\\i + 32]",
                    "vpaddd {b}, {b}, {product}",
                    "vpmaddwd {product}, {y}, [{weights} + 128*\\i + 32]",
                    "vpaddd {f}, {f}, {product}",
                    "vpmaddwd {product}, {x}, [{weights} + 128*\\i + 64]",
                    "vpaddd {c}, {c}, {product}",
                    "vpmaddwd {product}, {y}, [{weights} + 128*\\i + 64]",
                    "vpaddd {g}, {g}, {product}",
                    "vpmaddwd {product}, {x}, [{weights} + 128*\\i + 96]",
                    "vpaddd {d}, {d}, {product}",
                    "vpmaddwd {product}, {y}, [{weights} + 128*\\i + 96]",
                    "vpaddd {h}, {h}, {product}",
                    ".endr",
                    weights = in(reg) weights,
                    first = in(reg) x[0],
                    second = in(reg) x[1],
                    a = out(ymm_reg) a,
                    b = out(ymm_reg) b,
                    c = out(ymm_reg) c,
                    d = out(ymm_reg) d,
                    e = out(ymm_reg) e,
                    f = out(ymm_reg) f,
                    g = out(ymm_reg) g,
                    h = out(ymm_reg) h,
                    x = out(ymm_reg) _,
                    y = out(ymm_reg) _,
                    product = out(ymm_reg) _,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            [[[a, b], [c, d]], [[e, f], [g, h]]]
        }
    };
}

word_dots! {
    /// Of a tile.
    word_dots_of_tile, "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15"
}
word_dots! {
    /// Of one half of a tile.
    word_dots_of_half, "1, 2, 3, 4, 5, 6, 7"
}

/// The dots of codes of eight bits. As bytes, pairs of them would take one instruction more for each, since a product of bytes has to have one
/// with a sign and one without, and few fit 16 bits together. Not by `zip`, which would be called, and everything kept in memory for it.
// SAFETY of every block below: as above.
#[allow(clippy::undocumented_unsafe_blocks)]
#[inline(always)]
fn wide_dot<const N: usize>(
    init: i32,
    codes: &[[__m256i; 2]; N],
    high: &[i32; N],
    low: &[i32; N],
) -> [__m256i; 2] {
    const { assert!(N <= 8) }
    let (mut parts, mut words) = ([[0; 8]; 2], [[0; 2]; 8]);
    parts[0][..N].copy_from_slice(high);
    parts[1][..N].copy_from_slice(low);
    Avx2::activation_words(&parts[0], &parts[1], &mut words);
    unsafe {
        let mut sums = [_mm256_set1_epi32(init); 2];
        for i in 0..N {
            let [even, odd] = [_mm256_set1_epi32(words[i][0]), _mm256_set1_epi32(words[i][1])];
            for half in 0..2 {
                let codes = codes[i][half];
                let first = _mm256_madd_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(255)), even);
                let second = _mm256_madd_epi16(_mm256_srli_epi16::<8>(codes), odd);
                sums[half] = _mm256_add_epi32(sums[half], _mm256_add_epi32(first, second));
            }
        }
        sums
    }
}

/// The dots of codes of at most six bits.
// SAFETY of every block below: as above.
#[allow(clippy::undocumented_unsafe_blocks)]
#[inline(always)]
fn narrow_dot<const N: usize>(
    bits: usize,
    init: i32,
    codes: &[[__m256i; 2]; N],
    high: &[i32; N],
    low: &[i32; N],
) -> [__m256i; 2] {
    // So many sums of pairs, each at most 2 · 127 times a code, fit in 16 bits together.
    let together = match bits {
        0..=4 => 8,
        5 => 4,
        _ => 2,
    };
    unsafe {
        let mut sums = [_mm256_set1_epi32(init); 2];
        for (x, unit) in [(high, 1 << LOW_BITS), (low, 1)] {
            for first in (0..N).step_by(together) {
                for (half, sum) in sums.iter_mut().enumerate() {
                    let mut pairs = _mm256_maddubs_epi16(codes[first][half], _mm256_set1_epi32(x[first]));
                    for i in first + 1..N.min(first + together) {
                        let more = _mm256_maddubs_epi16(codes[i][half], _mm256_set1_epi32(x[i]));
                        pairs = _mm256_add_epi16(pairs, more);
                    }
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(unit)));
                }
            }
        }
        sums
    }
}
