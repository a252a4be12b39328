//! Sixteen lanes, whatever the processor: the vocabulary every kernel is written in.
//!
//! A kernel is a [`Kernel`] with one generic body; [`crate::Isa::run`] compiles it once for each instruction set, inside
//! a function that has the instruction set's features enabled. Everything a kernel calls must be `#[inline(always)]`, or
//! the intrinsics inside become function calls. Closures cannot be, so none may hold a vector: no `map` and no `from_fn` over
//! vectors, but loops and the macros of the instruction sets.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;

/// Lanes of a vector, and rows of a weight panel.
pub(crate) const LANES: usize = 16;

/// Bits of the low part of an activation: see [`Simd::dot`].
pub(crate) const LOW_BITS: u32 = 7;

/// Work that is the same for every instruction set but for its vectors.
pub(crate) trait Kernel {
    /// Does the work. `#[inline(always)]`.
    fn run<S: Simd>(self);
}

/// Vectors of sixteen lanes.
///
/// Values of the types exist only inside functions compiled for the instruction set; [`crate::Isa::run`] sees to that.
pub(crate) trait Simd: Copy {
    /// Whether kernels work on several rows together. Slow instruction sets do not: what their kernels take to compile is
    /// not worth it.
    const TOGETHER: bool = true;

    /// Whether sixteen vectors of sums, and what they are made of, are in registers.
    const MANY_REGISTERS: bool = false;

    /// Whether many rows are multiplied [as words or floats](crate::kernels::many), and few of them four at most together: there are not
    /// registers for eight.
    const MANY_APART: bool = false;

    /// Whether some rows are multiplied by [two panels](crate::kernels::two_panels), and many [as bytes](crate::kernels::many): with
    /// [`Self::byte_dots`].
    const BYTE_DOTS: bool = false;

    /// Whether one instruction cuts a [field](Self::field) out of bytes. Only kernels of [few rows](crate::Isa::run_few) are compiled so,
    /// which have no use for [`Self::BYTE_DOTS`].
    const FIELDS: bool = false;

    /// Sixteen `f32`.
    type F: Copy;
    /// Sixteen `i32`.
    type I: Copy;
    /// Sixty-four bytes: four codes for each of sixteen rows.
    type C: Copy;

    fn splat(x: f32) -> Self::F;
    fn load(from: &[f32; LANES]) -> Self::F;
    fn store(x: Self::F, to: &mut [f32; LANES]);
    /// From F16 bits.
    fn load_f16(from: &[u16; LANES]) -> Self::F;
    /// To F16 bits, rounding to nearest even.
    fn store_f16(x: Self::F, to: &mut [u16; LANES]);
    /// From BF16 bits.
    fn load_bf16(from: &[u16; LANES]) -> Self::F;
    fn load_i8(from: &[i8; LANES]) -> Self::F;
    /// The lower four bits of each byte, and the upper four.
    fn load_nibbles(from: &[u8; LANES]) -> [Self::F; 2];

    fn add(x: Self::F, y: Self::F) -> Self::F;
    fn sub(x: Self::F, y: Self::F) -> Self::F;
    fn mul(x: Self::F, y: Self::F) -> Self::F;
    fn div(x: Self::F, y: Self::F) -> Self::F;
    /// `x * y + z`.
    fn fma(x: Self::F, y: Self::F, z: Self::F) -> Self::F;
    fn max(x: Self::F, y: Self::F) -> Self::F;
    fn min(x: Self::F, y: Self::F) -> Self::F;
    /// Where `x < y`, `yes`, else `no`.
    fn select_less(x: Self::F, y: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// The sum of all lanes, always in the same order.
    fn sum(x: Self::F) -> f32;
    fn largest(x: Self::F) -> f32;
    /// Whether any lane of `x` is larger than that of `y`.
    fn any_above(x: Self::F, y: Self::F) -> bool;
    /// Whether any lane of either is not a number.
    fn any_unknown(x: Self::F, y: Self::F) -> bool;

    /// To the nearest integer, ties to even.
    fn round(x: Self::F) -> Self::I;
    fn to_float(x: Self::I) -> Self::F;
    /// `2^x` for `x` in -126..=127.
    fn power_of_two(x: Self::I) -> Self::F;
    /// The largest magnitude, which is not finite if any number is not.
    #[inline(always)]
    fn magnitude(x: [Self::F; 2]) -> f32 {
        // Instruction sets differ in what their maxima are of what is not a number.
        if Self::any_unknown(x[0], x[1]) {
            return f32::NAN;
        }
        let (most, least) = (Self::max(x[0], x[1]), Self::min(x[0], x[1]));
        Self::largest(Self::max(most, Self::sub(Self::splat(0.0), least)))
    }
    /// Numbers times `factor` as the nearest integers, which are to be within 127 · 2^LOW_BITS: the high parts of all, and then the
    /// low ones, as [`Self::dot`] has them. Gives the sums of the first sixteen and of the last.
    #[inline(always)]
    fn store_parts(x: [Self::F; 2], factor: f32, to: &mut [[i8; LANES]; 4]) -> [i32; 2] {
        let low = (1 << LOW_BITS) as f32;
        let mut sums = [0; 2];
        for i in 0..2 {
            let whole = Self::round(Self::mul(x[i], Self::splat(factor)));
            // Whole numbers below 2^24: all of this is exact.
            let x = Self::to_float(whole);
            let upper = Self::round(Self::mul(x, Self::splat(1.0 / low)));
            let lower = Self::round(Self::fma(Self::to_float(upper), Self::splat(-low), x));
            Self::store_i8(upper, &mut to[i]);
            Self::store_i8(lower, &mut to[2 + i]);
            sums[i] = Self::sum_i(whole);
        }
        sums
    }
    /// The low byte of each lane.
    fn store_i8(x: Self::I, to: &mut [i8; LANES]);
    fn sum_i(x: Self::I) -> i32;

    fn codes(from: &[u8; 64]) -> Self::C;
    fn store_codes(x: Self::C, to: &mut [u8; 64]);
    fn and(x: Self::C, mask: u8) -> Self::C;
    fn or(x: Self::C, y: Self::C) -> Self::C;
    /// Bytes shifted right; bits that come in from a neighbouring byte must be masked off by the caller.
    fn shift_right<const BITS: u32>(x: Self::C) -> Self::C;
    /// As [`Self::shift_right`], to the left.
    fn shift_left<const BITS: u32>(x: Self::C) -> Self::C;
    /// Of each byte `WIDTH` bits from `FROM` on, moved to begin at `TO`, and nothing else.
    #[inline(always)]
    fn field<const FROM: u32, const WIDTH: u32, const TO: u32>(x: Self::C) -> Self::C {
        field::<Self, FROM, WIDTH, TO>(x)
    }
    /// What a table has for the lowest four bits of every byte.
    fn lookup(x: Self::C, table: &[u8; 16]) -> Self::C;
    /// For each row: `init` plus the sum over `4 N` elements of the unsigned code times the activation
    /// `high · 2^LOW_BITS + low`, with `high` within ±127 and `low` within ±64, four of each in a word. Codes have `bits`,
    /// six at most, or eight, and then `init` must be -128 times the sum of the activations (so that instruction sets with signed products
    /// may leave both out). They are an argument, since constants of a type cannot be those of a
    /// function, but known when this is compiled: so loops are written out.
    fn dot<const N: usize>(
        bits: usize,
        init: i32,
        codes: &[Self::C; N],
        high: &[i32; N],
        low: &[i32; N],
    ) -> Self::I;

    /// A number, made before anything that is read from memory later: a compiler would unpack what comes next first, and keep in memory
    /// what it has no registers for.
    #[inline(always)]
    fn settled(x: Self::F) -> Self::F {
        x
    }

    /// [`Self::dot`] of one row with the codes of two panels, side by side where dots wait for one another.
    #[inline(always)]
    fn dots_beside<const N: usize>(
        bits: usize,
        init: i32,
        codes: [&[Self::C; N]; 2],
        high: &[i32; N],
        low: &[i32; N],
    ) -> [Self::I; 2] {
        let a = Self::dot(bits, init, codes[0], high, low);
        let b = Self::dot(bits, init, codes[1], high, low);
        [a, b]
    }

    /// [`Self::dot`] of four rows of activations with the same codes, side by side where dots wait for one another.
    #[inline(always)]
    fn four_dots<const N: usize>(
        bits: usize,
        init: [i32; 4],
        codes: &[Self::C; N],
        high: [&[i32; N]; 4],
        low: [&[i32; N]; 4],
    ) -> [Self::I; 4] {
        let a = Self::dot(bits, init[0], codes, high[0], low[0]);
        let b = Self::dot(bits, init[1], codes, high[1], low[1]);
        let c = Self::dot(bits, init[2], codes, high[2], low[2]);
        let d = Self::dot(bits, init[3], codes, high[3], low[3]);
        [a, b, c, d]
    }

    /// [`Self::dot`] of each of four rows with the codes of two panels: codes of any number of bits, and any `init`, which counts
    /// 2^LOW_BITS times if `UPPER`.
    fn byte_dots<const N: usize, const UPPER: bool>(
        _init: [i32; 4],
        _codes: &[[[u8; 64]; 2]; N],
        _high: [&[i32; N]; 4],
        _low: [&[i32; N]; 4],
    ) -> [[Self::I; 2]; 4] {
        unreachable!("codes are multiplied where they are unpacked")
    }

    /// The codes of a vector less `zero`, as words of 16 bits: of each lane's four the first and the third, then the second and the fourth.
    /// Words exist only where [many rows](Self::MANY_APART) are made of them.
    fn store_words(_codes: Self::C, _zero: i32, _to: [&mut [i32; LANES]; 2]) {
        unreachable!("words are not multiplied")
    }

    /// Activations, as [`Self::dot`] has them, as words in the same order.
    fn activation_words(_high: &[i32; 8], _low: &[i32; 8], _to: &mut [[i32; 2]; 8]) {
        unreachable!("words are not multiplied")
    }

    /// For each of two rows and of two panels' sixteen outputs: the sum of the products of all words. `N` is 4 or 8.
    fn word_dots<const N: usize>(
        _weights: &[[[[i32; LANES]; 2]; 2]; N],
        _x: [&[[i32; 2]; N]; 2],
    ) -> [[Self::I; 2]; 2] {
        unreachable!("words are not multiplied")
    }

    /// `e^x`, within 2 units in the last place: 0 below -87.3, no more than at 88.3 above that, and not a number of what is none.
    #[inline(always)]
    fn exp(x: Self::F) -> Self::F {
        exp::<Self>(x)
    }

    /// `2^x`, within 2e-7 of itself, for `x` up to 127: below -126 that or 0, and not a number of what is none.
    #[inline(always)]
    fn exp2(x: Self::F) -> Self::F {
        exp2::<Self>(x)
    }

    /// `1 / x` of numbers from 1 on, within 2e-7 of itself up to 2^126, and at most 2^-126 above.
    #[inline(always)]
    fn reciprocal(x: Self::F) -> Self::F {
        Self::div(Self::splat(1.0), x)
    }

    /// `tanh(x)`, within 1e-7, and as close relative to itself near 0.
    #[inline(always)]
    fn tanh(x: Self::F) -> Self::F {
        tanh::<Self>(x)
    }

    /// The error function, within 2e-7 (Abramowitz and Stegun 7.1.26).
    #[inline(always)]
    fn erf(x: Self::F) -> Self::F {
        erf::<Self>(x)
    }
}

/// [`Simd::field`], by shifts of words.
#[inline(always)]
fn field<S: Simd, const FROM: u32, const WIDTH: u32, const TO: u32>(x: S::C) -> S::C {
    const { assert!(FROM + WIDTH <= 8 && TO + WIDTH <= 8) };
    let moved = match const { FROM as i32 - TO as i32 } {
        0 => x,
        1 => S::shift_right::<1>(x),
        2 => S::shift_right::<2>(x),
        3 => S::shift_right::<3>(x),
        4 => S::shift_right::<4>(x),
        5 => S::shift_right::<5>(x),
        6 => S::shift_right::<6>(x),
        7 => S::shift_right::<7>(x),
        -1 => S::shift_left::<1>(x),
        -2 => S::shift_left::<2>(x),
        -3 => S::shift_left::<3>(x),
        -4 => S::shift_left::<4>(x),
        -5 => S::shift_left::<5>(x),
        -6 => S::shift_left::<6>(x),
        _ => S::shift_left::<7>(x),
    };
    S::and(moved, const { mask(WIDTH) << TO })
}

/// So many of the lowest bits.
const fn mask(width: u32) -> u8 {
    ((1 << width) - 1) as u8
}

/// Below this [`Simd::exp`] is 0.
const EXP_LEAST: f32 = -87.3;

/// Above this [`Simd::exp`] grows no more.
const EXP_MOST: f32 = 88.3;

/// [`Simd::exp`].
#[inline(always)]
fn exp<S: Simd>(x: S::F) -> S::F {
    // In this order what is not a number stays so.
    let clamped = S::min(S::splat(EXP_MOST), S::max(S::splat(EXP_LEAST), x));
    let n = S::round(S::mul(clamped, S::splat(std::f32::consts::LOG2_E)));
    let y = S::mul(exp_of_rest::<S>(clamped, S::to_float(n)), S::power_of_two(n));
    S::select_less(x, S::splat(EXP_LEAST), S::splat(0.0), y)
}

/// `e^(x - n ln 2)`, where that is `e` to the power of about half of ln 2 at most, or of as little below 0.
#[inline(always)]
fn exp_of_rest<S: Simd>(x: S::F, n: S::F) -> S::F {
    // ln 2 in two parts, the first exact in few bits, so that the remainder loses nothing.
    let r = S::fma(n, S::splat(-0.693_359_4), x);
    let r = S::fma(n, S::splat(2.121_944_4e-4), r);
    // 1 + r + r² / 2 at 0, and within 1.1e-8 everywhere: by way of Chebyshev's points.
    let mut p = S::splat(1.392_618_4e-3);
    for c in [8.363_179e-3, 4.166_655_6e-2, 0.166_665_76, 0.5, 1.0, 1.0] {
        p = S::fma(p, r, S::splat(c));
    }
    p
}

/// [`Simd::exp2`].
#[inline(always)]
fn exp2<S: Simd>(x: S::F) -> S::F {
    let least = S::splat(-126.0);
    let clamped = S::max(least, x);
    let n = S::round(S::sub(clamped, S::splat(0.5)));
    let y = S::mul(exp2_of_fraction::<S>(S::sub(clamped, S::to_float(n))), S::power_of_two(n));
    S::select_less(x, least, S::splat(0.0), y)
}

/// `2^x` for `x` from 0 to 1.
#[inline(always)]
fn exp2_of_fraction<S: Simd>(x: S::F) -> S::F {
    // As close as can be in proportion to it, with the ends exact.
    let mut y = S::splat(0.001_879_318_6);
    for c in [0.008_990_995, 0.055_818_676, 0.240_159_27, 0.693_151_7, 1.0] {
        y = S::fma(y, x, S::splat(c));
    }
    y
}

/// [`Simd::tanh`].
#[inline(always)]
fn tanh<S: Simd>(x: S::F) -> S::F {
    let e = S::exp(S::mul(x, S::splat(2.0)));
    let one = S::splat(1.0);
    let far = S::sub(one, S::mul(S::splat(2.0), S::reciprocal(S::add(e, one))));
    // Near 0 the difference above loses digits; the Taylor series to x⁹ does not.
    let square = S::mul(x, x);
    let mut p = S::splat(62.0 / 2835.0);
    for c in [-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0] {
        p = S::fma(p, square, S::splat(c));
    }
    S::select_less(square, S::splat(0.0625), S::mul(x, p), far)
}

/// [`Simd::erf`].
#[inline(always)]
fn erf<S: Simd>(x: S::F) -> S::F {
    let negative = S::sub(S::splat(0.0), x);
    let a = S::max(x, negative);
    let one = S::splat(1.0);
    let t = S::reciprocal(S::fma(a, S::splat(0.327_591_1), one));
    let mut p = S::splat(1.061_405_4);
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        p = S::fma(p, t, S::splat(c));
    }
    let e = S::exp(S::mul(a, S::sub(S::splat(0.0), a)));
    let y = S::sub(one, S::mul(S::mul(p, t), e));
    S::select_less(x, S::splat(0.0), S::sub(S::splat(0.0), y), y)
}

#[cfg(test)]
mod tests;
