//! Products of packed integer weights with 15-bit activations.
//!
//! For each output: the integer dot of every group is exact; groups are added in `f32` in column order, scale first, then
//! minimum. Nothing depends on how many rows or panels are worked on together.

use std::marker::PhantomData;

use crate::pack::{Form, IQ4_CODES, Matrix, TILE, TILES_PER_SUPER};
use crate::simd::{Kernel, LANES, Simd};

use super::product::{Group, Input, Product};

/// Rows worked on together, from the most to one: weights are unpacked once for all of them.
const MANY: usize = 16;
const SOME: usize = 4;

/// Bytes of activations that should stay in the second-level cache while panels pass over them.
const CACHED: usize = 512 << 10;

/// Turns a tile's stored bytes into one vector of unsigned codes for each of its eight steps.
pub(crate) trait Unpack {
    const BITS: usize;
    const WIDE: bool = false;
    fn unpack<S: Simd>(vectors: &[[u8; 64]]) -> [S::C; 8];
}

#[inline(always)]
fn low_four<S: Simd>(vectors: &[[u8; 64]]) -> [S::C; 8] {
    let stored: [S::C; 4] = std::array::from_fn(|i| S::codes(&vectors[i]));
    std::array::from_fn(|s| {
        if s < 4 { S::and(stored[s], 15) } else { S::and(S::shift_right::<4>(stored[s - 4]), 15) }
    })
}

/// The two bits of each step, moved up by `UP` bits (0, 2 or 4).
#[inline(always)]
fn low_two<S: Simd, const UP: u32>(vectors: &[[u8; 64]]) -> [S::C; 8] {
    let mask = 3 << UP;
    let four = |stored: S::C| {
        let shifted = match UP {
            4 => {
                [S::shift_left::<4>(stored), S::shift_left::<2>(stored), stored, S::shift_right::<2>(stored)]
            }
            _ => [
                stored,
                S::shift_right::<2>(stored),
                S::shift_right::<4>(stored),
                S::shift_right::<6>(stored),
            ],
        };
        shifted.map(|x| S::and(x, mask))
    };
    let ([a, b, c, d], [e, f, g, h]) = (four(S::codes(&vectors[0])), four(S::codes(&vectors[1])));
    [a, b, c, d, e, f, g, h]
}

/// Joins two sets of bits.
#[inline(always)]
fn join<S: Simd>(x: [S::C; 8], y: [S::C; 8]) -> [S::C; 8] {
    std::array::from_fn(|i| S::or(x[i], y[i]))
}

/// The bit of each step, moved to bit 4.
#[inline(always)]
fn bit_at_four<S: Simd>(vector: &[u8; 64]) -> [S::C; 8] {
    let x = S::codes(vector);
    [
        S::shift_left::<4>(x),
        S::shift_left::<3>(x),
        S::shift_left::<2>(x),
        S::shift_left::<1>(x),
        x,
        S::shift_right::<1>(x),
        S::shift_right::<2>(x),
        S::shift_right::<3>(x),
    ]
    .map(|x| S::and(x, 1 << 4))
}

/// The bit of each step, moved to bit 2.
#[inline(always)]
fn bit_at_two<S: Simd>(vector: &[u8; 64]) -> [S::C; 8] {
    let x = S::codes(vector);
    [
        S::shift_left::<2>(x),
        S::shift_left::<1>(x),
        x,
        S::shift_right::<1>(x),
        S::shift_right::<2>(x),
        S::shift_right::<3>(x),
        S::shift_right::<4>(x),
        S::shift_right::<5>(x),
    ]
    .map(|x| S::and(x, 1 << 2))
}

macro_rules! unpack {
    ($name:ident, $bits:literal, $wide:literal, |$S:ident, $v:ident| $body:expr) => {
        pub(crate) struct $name;
        impl Unpack for $name {
            const BITS: usize = $bits;
            const WIDE: bool = $wide;
            #[inline(always)]
            fn unpack<$S: Simd>($v: &[[u8; 64]]) -> [$S::C; 8] {
                $body
            }
        }
    };
}

unpack!(B2, 2, false, |S, v| low_two::<S, 0>(v));
unpack!(B3, 3, false, |S, v| join::<S>(low_two::<S, 0>(v), bit_at_two::<S>(&v[2])));
unpack!(B4, 4, false, |S, v| low_four::<S>(v));
unpack!(B5, 5, false, |S, v| join::<S>(low_four::<S>(v), bit_at_four::<S>(&v[4])));
unpack!(B6, 6, false, |S, v| join::<S>(low_four::<S>(v), low_two::<S, 4>(&v[4..])));
unpack!(B8, 8, true, |S, v| std::array::from_fn(|s| S::codes(&v[s])));
unpack!(Iq4, 4, true, |S, v| low_four::<S>(v).map(|x| S::lookup(x, &IQ4_CODES)));

/// The scales and minima of one panel.
pub(crate) trait ScaleView<'a> {
    /// Whether groups of 16 have their own.
    const HALVES: bool;
    /// Whether there are minima.
    const MIN: bool;
    fn view(matrix: &'a Matrix, panel: usize) -> Self;
    fn scale<S: Simd>(&self, tile: usize, half: usize) -> S::F;
    fn min<S: Simd>(&self, tile: usize, half: usize) -> S::F;
}

/// F16, one per tile.
pub(crate) struct HalfScales<'a, const MIN: bool> {
    scales: &'a [[u16; LANES]],
    mins: &'a [[u16; LANES]],
}

impl<'a, const MIN: bool> ScaleView<'a> for HalfScales<'a, MIN> {
    const HALVES: bool = false;
    const MIN: bool = MIN;
    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize) -> Self {
        let plane = |at| matrix.plane::<u16>(panel, at, matrix.cols / TILE * LANES).as_chunks().0;
        let scales = plane(matrix.planes.scales);
        HalfScales { scales, mins: if MIN { plane(matrix.planes.mins) } else { scales } }
    }
    #[inline(always)]
    fn scale<S: Simd>(&self, tile: usize, _: usize) -> S::F {
        S::load_f16(&self.scales[tile])
    }
    #[inline(always)]
    fn min<S: Simd>(&self, tile: usize, _: usize) -> S::F {
        S::load_f16(&self.mins[tile])
    }
}

/// Integers per group under F16 per super-block.
pub(crate) struct SuperScales<'a, const HALVES: bool, const MIN: bool> {
    scales: &'a [[i8; LANES]],
    mins: &'a [[i8; LANES]],
    supers: &'a [[u16; LANES]],
    super_mins: &'a [[u16; LANES]],
}

impl<'a, const HALVES: bool, const MIN: bool> ScaleView<'a> for SuperScales<'a, HALVES, MIN> {
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize) -> Self {
        let tiles = matrix.cols / TILE;
        let groups = if HALVES { 2 * tiles } else { tiles };
        let small = |at| matrix.plane::<i8>(panel, at, groups * LANES).as_chunks().0;
        let large = |at| matrix.plane::<u16>(panel, at, tiles / TILES_PER_SUPER * LANES).as_chunks().0;
        let (scales, supers) = (small(matrix.planes.scales), large(matrix.planes.supers));
        let (mins, super_mins) =
            if MIN { (small(matrix.planes.mins), large(matrix.planes.super_mins)) } else { (scales, supers) };
        SuperScales { scales, mins, supers, super_mins }
    }
    #[inline(always)]
    fn scale<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        let group = if HALVES { 2 * tile + half } else { tile };
        S::mul(S::load_i8(&self.scales[group]), S::load_f16(&self.supers[tile / TILES_PER_SUPER]))
    }
    #[inline(always)]
    fn min<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        let group = if HALVES { 2 * tile + half } else { tile };
        S::mul(S::load_i8(&self.mins[group]), S::load_f16(&self.super_mins[tile / TILES_PER_SUPER]))
    }
}

/// F32 per group.
pub(crate) struct FloatScales<'a, const HALVES: bool, const MIN: bool> {
    scales: &'a [[f32; LANES]],
    mins: &'a [[f32; LANES]],
}

impl<'a, const HALVES: bool, const MIN: bool> ScaleView<'a> for FloatScales<'a, HALVES, MIN> {
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize) -> Self {
        let tiles = matrix.cols / TILE;
        let groups = if HALVES { 2 * tiles } else { tiles };
        let plane = |at| matrix.plane::<f32>(panel, at, groups * LANES).as_chunks().0;
        let scales = plane(matrix.planes.scales);
        FloatScales { scales, mins: if MIN { plane(matrix.planes.mins) } else { scales } }
    }
    #[inline(always)]
    fn scale<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        S::load(&self.scales[if HALVES { 2 * tile + half } else { tile }])
    }
    #[inline(always)]
    fn min<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        S::load(&self.mins[if HALVES { 2 * tile + half } else { tile }])
    }
}

/// A product with weights of these codes and scales.
pub(crate) struct IntProduct<'a, U, Z> {
    product: &'a Product<'a>,
    x: &'a [Group],
    zero: i32,
    kind: PhantomData<(U, Z)>,
}

impl<'a, U, Z> IntProduct<'a, U, Z> {
    pub(crate) fn new(product: &'a Product<'a>) -> Self {
        let Form::Int { zero, .. } = product.matrix.form else { unreachable!("chosen by form") };
        let Input::Groups(x) = product.x else { unreachable!("lowered with quantised activations") };
        assert!(x.len() >= product.count * (product.matrix.cols / TILE));
        IntProduct { product, x, zero, kind: PhantomData }
    }
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Kernel for IntProduct<'a, U, Z> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let Product { matrix, count, .. } = *self.product;
        let tiles = matrix.cols / TILE;
        let rows_cached = (CACHED / (tiles * size_of::<Group>())).next_multiple_of(MANY);
        for first in (0..count).step_by(rows_cached) {
            let end = count.min(first + rows_cached);
            for panel in self.product.panels.clone() {
                let codes = matrix.plane::<u8>(panel, 0, tiles * U::BITS * 64).as_chunks().0;
                let scales = Z::view(matrix, panel);
                let mut row = first;
                while row + MANY <= end {
                    self.block::<S, MANY>(codes, &scales, panel, row);
                    row += MANY;
                }
                while row + SOME <= end {
                    self.block::<S, SOME>(codes, &scales, panel, row);
                    row += SOME;
                }
                while row < end {
                    self.block::<S, 1>(codes, &scales, panel, row);
                    row += 1;
                }
            }
        }
    }
}

impl<'a, U: Unpack, Z: ScaleView<'a>> IntProduct<'a, U, Z> {
    /// One panel by `M` rows.
    #[inline(always)]
    fn block<S: Simd, const M: usize>(&self, codes: &[[u8; 64]], scales: &Z, panel: usize, row: usize) {
        let tiles = self.product.matrix.cols / TILE;
        let x = &self.x[row * tiles..(row + M) * tiles];
        let mut sums = [S::splat(0.0); M];
        for (tile, vectors) in codes.chunks_exact(U::BITS).enumerate() {
            let codes = U::unpack::<S>(vectors);
            // SAFETY: `x` holds `M` rows of `tiles` groups, and `tile` is below `tiles`.
            let group = |m: usize| unsafe { x.get_unchecked(m * tiles + tile) };
            if Z::HALVES {
                let [a, b, c, d, e, f, g, h] = codes;
                let halves = [[a, b, c, d], [e, f, g, h]];
                for (half, codes) in halves.iter().enumerate() {
                    let scale = scales.scale::<S>(tile, half);
                    for (m, sum) in sums.iter_mut().enumerate() {
                        let group = group(m);
                        let init = -(self.zero * group.sums[half]);
                        let high = [0, 1, 2, 3].map(|i| group.high[4 * half + i]);
                        let low = [0, 1, 2, 3].map(|i| group.low[4 * half + i]);
                        let dot = S::to_float(dot::<S, U, 4>(init, codes, &high, &low));
                        *sum = S::fma(dot, S::mul(scale, S::splat(group.scale)), *sum);
                    }
                    if Z::MIN {
                        let min = scales.min::<S>(tile, half);
                        for (m, sum) in sums.iter_mut().enumerate() {
                            *sum = S::fma(min, S::splat(group(m).scaled_sums[half]), *sum);
                        }
                    }
                }
            } else {
                let scale = scales.scale::<S>(tile, 0);
                for (m, sum) in sums.iter_mut().enumerate() {
                    let group = group(m);
                    let init = -(self.zero * (group.sums[0] + group.sums[1]));
                    let dot = S::to_float(dot::<S, U, 8>(init, &codes, &group.high, &group.low));
                    *sum = S::fma(dot, S::mul(scale, S::splat(group.scale)), *sum);
                }
                if Z::MIN {
                    let min = scales.min::<S>(tile, 0);
                    for (m, sum) in sums.iter_mut().enumerate() {
                        let [a, b] = group(m).scaled_sums;
                        *sum = S::fma(min, S::splat(a + b), *sum);
                    }
                }
            }
        }
        for (m, sum) in sums.into_iter().enumerate() {
            self.product.put::<S>(row + m, panel, sum);
        }
    }
}

#[inline(always)]
fn dot<S: Simd, U: Unpack, const N: usize>(
    init: i32,
    codes: &[S::C; N],
    high: &[i32; N],
    low: &[i32; N],
) -> S::I {
    if U::WIDE {
        S::dot::<N, true>(init, codes, high, low)
    } else {
        S::dot::<N, false>(init, codes, high, low)
    }
}
