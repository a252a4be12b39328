//! Plain Rust: the definition the other instruction sets follow.

use half::{bf16, f16};

use super::{LANES, LOW_BITS, Simd};

/// Plain Rust arrays.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[inline(always)]
fn each<T: Copy, R>(x: [T; LANES], f: impl Fn(T) -> R) -> [R; LANES] {
    x.map(f)
}

#[inline(always)]
fn pairs<T: Copy, R>(x: [T; LANES], y: [T; LANES], f: impl Fn(T, T) -> R) -> [R; LANES] {
    std::array::from_fn(|i| f(x[i], y[i]))
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
        each(*from, |x| f16::from_bits(x).to_f32())
    }
    #[inline(always)]
    fn store_f16(x: Self::F, to: &mut [u16; LANES]) {
        *to = each(x, |x| f16::from_f32(x).to_bits());
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
        std::array::from_fn(|i| x[i] * y[i] + z[i])
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
        std::array::from_fn(|i| if x[i] < y[i] { yes[i] } else { no[i] })
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
    fn round(x: Self::F) -> Self::I {
        each(x, |x| x.round_ties_even() as i32)
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
    fn prefetch(_: *const u8) {}
    #[inline(always)]
    fn codes(from: &[u8; 64]) -> Self::C {
        *from
    }
    #[inline(always)]
    fn and(x: Self::C, mask: u8) -> Self::C {
        x.map(|x| x & mask)
    }
    #[inline(always)]
    fn or(x: Self::C, y: Self::C) -> Self::C {
        std::array::from_fn(|i| x[i] | y[i])
    }
    #[inline(always)]
    fn shift_right<const BITS: u32>(x: Self::C) -> Self::C {
        x.map(|x| x >> BITS)
    }
    #[inline(always)]
    fn shift_left<const BITS: u32>(x: Self::C) -> Self::C {
        x.map(|x| x << BITS)
    }
    #[inline(always)]
    fn lookup(x: Self::C, table: &[u8; 16]) -> Self::C {
        x.map(|x| table[usize::from(x & 15)])
    }
    #[inline(always)]
    fn dot<const N: usize, const WIDE: bool>(
        init: i32,
        codes: &[Self::C; N],
        high: &[i32; N],
        low: &[i32; N],
    ) -> Self::I {
        let mut sums = [init; LANES];
        for (codes, (high, low)) in codes.iter().zip(high.iter().zip(low)) {
            let (high, low) = (high.to_le_bytes(), low.to_le_bytes());
            let x: [i32; 4] =
                std::array::from_fn(|i| (i32::from(high[i] as i8) << LOW_BITS) + i32::from(low[i] as i8));
            for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<4>().0) {
                for (code, x) in codes.iter().zip(x) {
                    *sum += i32::from(*code) * x;
                }
            }
        }
        sums
    }
}
