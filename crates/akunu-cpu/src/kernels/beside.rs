//! One row by panels of integers side by side: a core gets more from memory in several streams than in one.
//!
//! Panels go in pairs. Where there are registers for it, the dots of a pair are made in turn: fewer of them wait for one another, of
//! which a processor can hold only so many.

use std::ops::Range;

use crate::kernels::int::{IntProduct, Unpack, add_minima, ask_for, group, part};
use crate::kernels::product::{Group, sum_of};
use crate::kernels::scales::ScaleView;
use crate::pack::{TILE, TILES_PER_SUPER};
use crate::simd::Simd;

/// Panels that a single row goes over side by side.
const BESIDE: usize = 4;

/// How far ahead of their use weights are asked for, in bytes of each of these streams.
const AHEAD: usize = 2 << 10;

/// Tiles of a super-block that ask equally far ahead.
const STEP: usize = TILES_PER_SUPER / 2;

/// Two panels.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a, Z> {
    codes: [&'a [[u8; 64]]; 2],
    pub(super) scales: [Z; 2],
    /// How many bytes further on codes are asked for.
    ahead: usize,
    /// The first tile that asks for codes of the panels that streams go on with.
    leaves: usize,
    /// Bytes from the end of each panel's codes to those.
    past: [usize; 2],
}

impl<'a, Z: ScaleView<'a>> Pair<'a, Z> {
    /// The codes of a panel's tile, of as many bits as the matrix has.
    #[inline(always)]
    fn codes(&self, panel: usize, tile: usize, bits: usize) -> &'a [[u8; 64]] {
        let codes = self.codes[panel];
        debug_assert!((tile + 1) * bits <= codes.len());
        // SAFETY: there are so many vectors for each tile of the matrix, of which this is one.
        unsafe { codes.get_unchecked(tile * bits..(tile + 1) * bits) }
    }

    /// How many bytes further on to ask for codes of each panel.
    #[inline(always)]
    fn ahead(&self, tile: usize) -> [usize; 2] {
        let [a, b] = if tile < self.leaves { [0; 2] } else { self.past };
        [self.ahead.wrapping_add(a), self.ahead.wrapping_add(b)]
    }

    /// The codes of a panel's tile, with those further on asked for.
    #[inline(always)]
    pub(super) fn codes_ahead(&self, panel: usize, tile: usize, bits: usize) -> &'a [[u8; 64]] {
        let vectors = self.codes(panel, tile, bits);
        ask_for(vectors, self.ahead(tile)[panel]);
        vectors
    }

    /// Adds what a super-block came to.
    #[inline(always)]
    fn add_super<S: Simd>(&self, block: usize, parts: [S::F; 2], mins: [S::F; 2], sums: &mut [S::F; 2]) {
        let [a, b] = &self.scales;
        sums[0] = plus_super::<S, Z>(a, block, parts[0], mins[0], sums[0]);
        sums[1] = plus_super::<S, Z>(b, block, parts[1], mins[1], sums[1]);
    }
}

/// A sum and what one panel's super-block came to. Neither this nor what is below is a loop or a closure: the one would begin with sums in
/// memory, and the other be called.
#[inline(always)]
fn plus_super<'a, S: Simd, Z: ScaleView<'a>>(
    scales: &Z,
    block: usize,
    part: S::F,
    min: S::F,
    sum: S::F,
) -> S::F {
    let [scale, min_scale] = scales.outer::<S>(block);
    let sum = S::fma(part, scale, sum);
    if Z::MIN { S::fma(min, min_scale, sum) } else { sum }
}

/// Adds the dot of a tile, or of one half of it, and what the minimum takes, to one panel's sums.
#[inline(always)]
fn add_dot<'a, S: Simd, Z: ScaleView<'a>, const N: usize>(
    scales: &Z,
    (tile, half): (usize, usize),
    group: &Group,
    dot: S::I,
    sum: &mut S::F,
    min: &mut S::F,
) {
    let scale = S::mul(scales.scale::<S>(tile, half), S::splat(group.scale));
    *sum = S::fma(S::to_float(dot), scale, *sum);
    if Z::MIN {
        let minimum = scales.min::<S>(tile, half);
        let total = S::splat(group.scaled_sums[sum_of::<N>(half)]);
        if Z::SUPER {
            *min = S::settled(S::fma(minimum, total, *min));
        } else {
            *sum = S::fma(minimum, total, *sum);
        }
    }
    *sum = S::settled(*sum);
}

impl<'a, U: Unpack, Z: ScaleView<'a>> IntProduct<'a, U, Z> {
    /// Panels by one row; returns the last one where it is alone.
    #[inline(always)]
    pub(super) fn beside<S: Simd>(&self, mut panels: Range<usize>, row: usize) -> Range<usize> {
        while panels.len() > 1 {
            panels.start += match panels.len() {
                BESIDE.. => self.panels::<S, BESIDE>(panels.start, row),
                _ => self.panels::<S, 2>(panels.start, row),
            };
        }
        panels
    }

    /// Two panels, each of which goes on with the one `beside` further on. Where only one is left, it is there twice.
    #[inline(always)]
    pub(super) fn pair(&self, first: usize, beside: usize) -> Pair<'a, Z> {
        let matrix = self.product.matrix;
        let second = (first + 1).min(self.product.panels.end - 1);
        let further = [self.product.further(first, beside), self.product.further(second, beside)];
        let tiles = matrix.cols / TILE;
        let (tile, all) = (U::BITS * 64, tiles * U::BITS * 64);
        // The nearest number of whole steps.
        let step = if Z::SUPER { STEP } else { 1 };
        let early = ((AHEAD / tile + step / 2) / step * step).clamp(1, tiles);
        let codes = |panel| matrix.plane::<u8>(panel, 0, all).as_chunks().0;
        Pair {
            codes: [codes(first), codes(second)],
            scales: [Z::view(matrix, first, further[0].scales), Z::view(matrix, second, further[1].scales)],
            ahead: early * tile,
            leaves: tiles - early,
            past: [further[0].codes.wrapping_sub(all), further[1].codes.wrapping_sub(all)],
        }
    }

    /// `P` panels by one row, in the same order of sums as [`IntProduct::block`]; returns `P`.
    #[inline(always)]
    fn panels<S: Simd, const P: usize>(&self, first: usize, row: usize) -> usize {
        const { assert!(P == 2 || P == 4) };
        let tiles = self.product.matrix.cols / TILE;
        let a = self.pair(first, P);
        let b = if P == 4 { self.pair(first + 2, P) } else { a };
        let x = &self.x[row * tiles..(row + 1) * tiles];
        let zero = [[S::splat(0.0); 2]; 2];
        let mut sums = zero;
        if Z::SUPER {
            for block in 0..tiles / TILES_PER_SUPER {
                let (mut parts, mut mins) = (zero, zero);
                let begin = TILES_PER_SUPER * block;
                for step in [begin..begin + STEP, begin + STEP..begin + TILES_PER_SUPER] {
                    self.tiles_beside::<S, P>([&a, &b], x, step, &mut parts, &mut mins);
                }
                a.add_super::<S>(block, parts[0], mins[0], &mut sums[0]);
                if P == 4 {
                    b.add_super::<S>(block, parts[1], mins[1], &mut sums[1]);
                }
            }
        } else {
            for part in [0..a.leaves, a.leaves..tiles] {
                self.tiles_beside::<S, P>([&a, &b], x, part, &mut sums, &mut [zero[0]; 2]);
            }
        }
        self.product.put::<S>(row, first, sums[0][0]);
        self.product.put::<S>(row, first + 1, sums[0][1]);
        if P == 4 {
            self.product.put::<S>(row, first + 2, sums[1][0]);
            self.product.put::<S>(row, first + 3, sums[1][1]);
        }
        P
    }

    /// Some tiles of one pair of panels or of two, all of which ask equally far ahead.
    #[inline(always)]
    fn tiles_beside<S: Simd, const P: usize>(
        &self,
        [a, b]: [&Pair<'a, Z>; 2],
        x: &[Group],
        tiles: Range<usize>,
        sums: &mut [[S::F; 2]; 2],
        mins: &mut [[S::F; 2]; 2],
    ) {
        let ahead = [a.ahead(tiles.start), b.ahead(tiles.start)];
        for tile in tiles {
            self.tile_of_pair::<S>(a, x, tile, ahead[0], &mut sums[0], &mut mins[0]);
            if P == 4 {
                self.tile_of_pair::<S>(b, x, tile, ahead[1], &mut sums[1], &mut mins[1]);
            }
        }
    }

    /// [`IntProduct::scaled`] and [`add_minima`] of one tile of two panels. Minima go to `mins` where super-blocks scale them apart, else to
    /// `sums`.
    #[inline(always)]
    fn tile_of_pair<S: Simd>(
        &self,
        pair: &Pair<'a, Z>,
        x: &[Group],
        tile: usize,
        ahead: [usize; 2],
        sums: &mut [S::F; 2],
        mins: &mut [S::F; 2],
    ) {
        let codes = [pair.codes(0, tile, U::BITS), pair.codes(1, tile, U::BITS)];
        if S::MANY_REGISTERS {
            ask_for(codes[0], ahead[0]);
            ask_for(codes[1], ahead[1]);
            let codes = [U::unpack::<S>(codes[0], self.values), U::unpack::<S>(codes[1], self.values)];
            if Z::HALVES {
                self.add_pair::<S, 4>(pair, &codes, x, tile, 0, sums, mins);
                self.add_pair::<S, 4>(pair, &codes, x, tile, 1, sums, mins);
            } else {
                self.add_pair::<S, 8>(pair, &codes, x, tile, 0, sums, mins);
            }
            return;
        }
        let ([sum_a, sum_b], [min_a, min_b]) = (sums, mins);
        self.tile_of_one::<S>(&pair.scales[0], codes[0], x, tile, ahead[0], sum_a, min_a);
        self.tile_of_one::<S>(&pair.scales[1], codes[1], x, tile, ahead[1], sum_b, min_b);
    }

    /// One panel's part of [`IntProduct::tile_of_pair`].
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn tile_of_one<S: Simd>(
        &self,
        scales: &Z,
        codes: &[[u8; 64]],
        x: &[Group],
        tile: usize,
        ahead: usize,
        sum: &mut S::F,
        min: &mut S::F,
    ) {
        self.scaled::<S, 1>(codes, scales, x, tile, ahead, std::array::from_mut(sum));
        add_minima::<S, Z, 1>(scales, x, tile, std::array::from_mut(if Z::SUPER { min } else { sum }));
    }

    /// A tile of two panels, or one half of it, with dots side by side.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn add_pair<S: Simd, const N: usize>(
        &self,
        pair: &Pair<'a, Z>,
        codes: &[[S::C; 8]; 2],
        x: &[Group],
        tile: usize,
        half: usize,
        sums: &mut [S::F; 2],
        mins: &mut [S::F; 2],
    ) {
        // Else minima of the first half would be added before the dots of the second.
        const { assert!(Z::SUPER || !(Z::HALVES && Z::MIN)) };
        let group = group::<1>(x, 0, tile);
        let init = self.init::<N>(group, half);
        let (high, low) = (part::<N>(&group.high, half), part::<N>(&group.low, half));
        let codes = [&codes[0].as_chunks().0[half], &codes[1].as_chunks().0[half]];
        let dots = S::dots_beside(Self::CODE_BITS, init, codes, high, low);
        let ([sum_a, sum_b], [min_a, min_b]) = (sums, mins);
        add_dot::<S, Z, N>(&pair.scales[0], (tile, half), group, dots[0], sum_a, min_a);
        add_dot::<S, Z, N>(&pair.scales[1], (tile, half), group, dots[1], sum_b, min_b);
    }
}
