//! Plain Rust: the definition the other instruction sets follow.
//!
//! Nobody's first choice, and every kernel is compiled for it: what takes much code is a function of its own, which kernels call.

use half::{bf16, f16};

use super::{Kernel, LANES, LOW_BITS, Simd};

/// Runs a kernel.
#[inline(never)]
pub(crate) fn launch<K: Kernel>(kernel: K) {
    kernel.run::<Portable>();
}

/// Plain Rust arrays.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// What `f` makes of each index: a loop, because the closures inside of `array::map` and `array::from_fn` may stay calls.
#[inline(always)]
fn filled<const N: usize, R: Copy + Default>(f: impl Fn(usize) -> R) -> [R; N] {
    let mut all = [R::default(); N];
    let mut i = 0;
    while i < N {
        all[i] = f(i);
        i += 1;
    }
    all
}

#[inline(always)]
fn each<const N: usize, T: Copy, R: Copy + Default>(x: [T; N], f: impl Fn(T) -> R) -> [R; N] {
    filled(|i| f(x[i]))
}

#[inline(always)]
fn pairs<const N: usize, T: Copy, R: Copy + Default>(x: [T; N], y: [T; N], f: impl Fn(T, T) -> R) -> [R; N] {
    filled(|i| f(x[i], y[i]))
}

/// Sixteen times a choice of ways and a processor's question: too much to be repeated wherever F16 is read.
#[inline(never)]
fn load_f16(from: &[u16; LANES]) -> [f32; LANES] {
    each(*from, |x| f16::from_bits(x).to_f32())
}

#[inline(never)]
fn store_f16(x: [f32; LANES], to: &mut [u16; LANES]) {
    *to = each(x, |x| f16::from_f32(x).to_bits());
}

#[inline(never)]
fn round(x: [f32; LANES]) -> [i32; LANES] {
    each(x, |x| x.round_ties_even() as i32)
}

#[inline(never)]
fn exp(x: [f32; LANES]) -> [f32; LANES] {
    super::exp::<Portable>(x)
}

#[inline(never)]
fn tanh(x: [f32; LANES]) -> [f32; LANES] {
    super::tanh::<Portable>(x)
}

#[inline(never)]
fn erf(x: [f32; LANES]) -> [f32; LANES] {
    super::erf::<Portable>(x)
}

#[inline(never)]
fn and(x: [u8; 64], mask: u8) -> [u8; 64] {
    each(x, |x| x & mask)
}

#[inline(never)]
fn or(x: [u8; 64], y: [u8; 64]) -> [u8; 64] {
    pairs(x, y, |x, y| x | y)
}

#[inline(never)]
fn shift_right(x: [u8; 64], bits: u32) -> [u8; 64] {
    each(x, |x| x >> bits)
}

#[inline(never)]
fn shift_left(x: [u8; 64], bits: u32) -> [u8; 64] {
    each(x, |x| x << bits)
}

#[inline(never)]
fn lookup(x: [u8; 64], table: &[u8; 16]) -> [u8; 64] {
    each(x, |x| table[usize::from(x & 15)])
}

#[inline(never)]
fn dot(init: i32, codes: &[[u8; 64]], high: &[i32], low: &[i32]) -> [i32; LANES] {
    let mut sums = [init; LANES];
    for (codes, (high, low)) in codes.iter().zip(high.iter().zip(low)) {
        let (high, low) = (high.to_le_bytes(), low.to_le_bytes());
        let x: [i32; 4] = filled(|i| (i32::from(high[i] as i8) << LOW_BITS) + i32::from(low[i] as i8));
        for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<4>().0) {
            for (code, x) in codes.iter().zip(x) {
                *sum += i32::from(*code) * x;
            }
        }
    }
    sums
}

impl Simd for Portable {
    const TOGETHER: bool = false;

    type F = [f32; LANES];
    type I = [i32; LANES];
    type C = [u8; 64];

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        *from
    }
    #[inline(always)]
    fn store(x: Self::F, to: &mut [f32; LANES]) {
        *to = x;
    }
    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self::F {
        load_f16(from)
    }
    #[inline(always)]
    fn store_f16(x: Self::F, to: &mut [u16; LANES]) {
        store_f16(x, to);
    }
    #[inline(always)]
    fn load_bf16(from: &[u16; LANES]) -> Self::F {
        each(*from, |x| bf16::from_bits(x).to_f32())
    }
    #[inline(always)]
    fn load_i8(from: &[i8; LANES]) -> Self::F {
        each(*from, f32::from)
    }
    #[inline(always)]
    fn load_nibbles(from: &[u8; LANES]) -> [Self::F; 2] {
        [each(*from, |x| f32::from(x & 15)), each(*from, |x| f32::from(x >> 4))]
    }
    #[inline(always)]
    fn add(x: Self::F, y: Self::F) -> Self::F {
        pairs(x, y, |x, y| x + y)
    }
    #[inline(always)]
    fn sub(x: Self::F, y: Self::F) -> Self::F {
        pairs(x, y, |x, y| x - y)
    }
    #[inline(always)]
    fn mul(x: Self::F, y: Self::F) -> Self::F {
        pairs(x, y, |x, y| x * y)
    }
    #[inline(always)]
    fn div(x: Self::F, y: Self::F) -> Self::F {
        pairs(x, y, |x, y| x / y)
    }
    #[inline(always)]
    fn fma(x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        filled(|i| x[i] * y[i] + z[i])
    }
    #[inline(always)]
    fn max(x: Self::F, y: Self::F) -> Self::F {
        pairs(x, y, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    fn min(x: Self::F, y: Self::F) -> Self::F {
        pairs(x, y, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    fn select_less(x: Self::F, y: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        filled(|i| if x[i] < y[i] { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn sum(x: Self::F) -> f32 {
        x.iter().sum()
    }
    #[inline(always)]
    fn largest(x: Self::F) -> f32 {
        x.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    fn any_above(x: Self::F, y: Self::F) -> bool {
        x.iter().zip(&y).any(|(x, y)| x > y)
    }
    #[inline(always)]
    fn any_unknown(x: Self::F, y: Self::F) -> bool {
        x.iter().chain(&y).any(|x| x.is_nan())
    }
    #[inline(always)]
    fn round(x: Self::F) -> Self::I {
        round(x)
    }
    #[inline(always)]
    fn to_float(x: Self::I) -> Self::F {
        each(x, |x| x as f32)
    }
    #[inline(always)]
    fn power_of_two(x: Self::I) -> Self::F {
        each(x, |x| f32::from_bits(((x + 127) << 23) as u32))
    }
    #[inline(always)]
    fn store_i8(x: Self::I, to: &mut [i8; LANES]) {
        *to = each(x, |x| x as i8);
    }
    #[inline(always)]
    fn sum_i(x: Self::I) -> i32 {
        x.iter().sum()
    }
    #[inline(always)]
    fn codes(from: &[u8; 64]) -> Self::C {
        *from
    }
    #[inline(always)]
    fn store_codes(x: Self::C, to: &mut [u8; 64]) {
        *to = x;
    }
    #[inline(always)]
    fn and(x: Self::C, mask: u8) -> Self::C {
        and(x, mask)
    }
    #[inline(always)]
    fn or(x: Self::C, y: Self::C) -> Self::C {
        or(x, y)
    }
    #[inline(always)]
    fn shift_right<const BITS: u32>(x: Self::C) -> Self::C {
        shift_right(x, BITS)
    }
    #[inline(always)]
    fn shift_left<const BITS: u32>(x: Self::C) -> Self::C {
        shift_left(x, BITS)
    }
    #[inline(always)]
    fn lookup(x: Self::C, table: &[u8; 16]) -> Self::C {
        lookup(x, table)
    }
    #[inline(always)]
    fn dot<const N: usize>(
        _bits: usize,
        init: i32,
        codes: &[Self::C; N],
        high: &[i32; N],
        low: &[i32; N],
    ) -> Self::I {
        dot(init, codes, high, low)
    }
    #[inline(always)]
    fn exp(x: Self::F) -> Self::F {
        exp(x)
    }
    #[inline(always)]
    fn tanh(x: Self::F) -> Self::F {
        tanh(x)
    }
    #[inline(always)]
    fn erf(x: Self::F) -> Self::F {
        erf(x)
    }
}
