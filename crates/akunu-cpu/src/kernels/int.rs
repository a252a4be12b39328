//! Products of packed integer weights with 15-bit activations.
//!
//! For each output: the integer dot of every group is exact; groups are added in `f32` in column order, scale first, then
//! minimum. Nothing depends on how many rows or panels are worked on together, as long as products of scales are numbers an `f32` can hold:
//! some kernels multiply them by a power of two first.

use std::marker::PhantomData;

use crate::memory::ask;
use crate::pack::{Form, TILE, TILES_PER_SUPER};
use crate::simd::{Kernel, Simd};

use super::many;
use super::product::{Group, Input, Product, sum_of};
use super::scales::ScaleView;
use super::two_panels;

/// Rows worked on together, where there is no other way for so many: weights are unpacked once for all of them.
const MANY: usize = 8;

/// Whether there is none.
const fn takes_many<S: Simd>() -> bool {
    !S::MANY_APART && !S::BYTE_DOTS && !S::FIELDS
}

/// How far ahead of their use weights are asked for: the time a cache line takes from the third-level cache or memory, in bytes
/// of a stream.
const AHEAD: usize = 4 << 10;

/// Bytes of activations that should stay in the second-level cache while panels pass over them.
const CACHED: usize = 512 << 10;

/// Does something with each of eight vectors.
macro_rules! each {
    ($x:ident in $vectors:expr => $body:expr) => {{
        let vectors = $vectors;
        each!(@ $x, vectors, $body; 0, 1, 2, 3, 4, 5, 6, 7)
    }};
    (@ $x:ident, $vectors:ident, $body:expr; $($i:literal),+) => {
        [$({
            let $x = $vectors[$i];
            $body
        }),+]
    };
}

/// Turns a tile's stored bytes into one vector of unsigned codes for each of its eight steps.
pub(crate) trait Unpack {
    const BITS: usize;
    const WIDE: bool = false;
    /// `values` are what codes are looked up in, if they are.
    fn unpack<S: Simd>(vectors: &[[u8; 64]], values: &[u8; 16]) -> [S::C; 8];

    /// By how many bits [`Unpack::raised`] codes are raised: as far as a byte has room.
    const UP: usize = if Self::WIDE { 0 } else { 8 - Self::BITS };

    /// The same in the highest bits of their bytes, where the middle one is 128.
    #[inline(always)]
    fn raised<S: Simd>(vectors: &[[u8; 64]], values: &[u8; 16]) -> [S::C; 8] {
        let codes = Self::unpack::<S>(vectors, values);
        match Self::UP {
            0 => codes,
            2 => each!(x in codes => S::shift_left::<2>(x)),
            3 => each!(x in codes => S::shift_left::<3>(x)),
            4 => each!(x in codes => S::shift_left::<4>(x)),
            5 => each!(x in codes => S::shift_left::<5>(x)),
            6 => each!(x in codes => S::shift_left::<6>(x)),
            _ => unreachable!("codes of two to six bits, or of eight"),
        }
    }
}

/// The four bits of each step, whatever is above them.
#[inline(always)]
fn four_and_more<S: Simd>(vectors: &[[u8; 64]]) -> [S::C; 8] {
    let [a, b] = [S::codes(&vectors[0]), S::codes(&vectors[1])];
    let [c, d] = [S::codes(&vectors[2]), S::codes(&vectors[3])];
    let [e, f] = [S::shift_right::<4>(a), S::shift_right::<4>(b)];
    let [g, h] = [S::shift_right::<4>(c), S::shift_right::<4>(d)];
    [a, b, c, d, e, f, g, h]
}

/// The four bits of each step.
#[inline(always)]
fn fours<S: Simd>(vectors: &[[u8; 64]]) -> [S::C; 8] {
    let [a, b] = [S::codes(&vectors[0]), S::codes(&vectors[1])];
    let [c, d] = [S::codes(&vectors[2]), S::codes(&vectors[3])];
    [
        S::field::<0, 4, 0>(a),
        S::field::<0, 4, 0>(b),
        S::field::<0, 4, 0>(c),
        S::field::<0, 4, 0>(d),
        S::field::<4, 4, 0>(a),
        S::field::<4, 4, 0>(b),
        S::field::<4, 4, 0>(c),
        S::field::<4, 4, 0>(d),
    ]
}

/// The two bits of each step, moved to begin at `TO`.
#[inline(always)]
fn twos<S: Simd, const TO: u32>(vectors: &[[u8; 64]]) -> [S::C; 8] {
    let [x, y] = [S::codes(&vectors[0]), S::codes(&vectors[1])];
    [
        S::field::<0, 2, TO>(x),
        S::field::<2, 2, TO>(x),
        S::field::<4, 2, TO>(x),
        S::field::<6, 2, TO>(x),
        S::field::<0, 2, TO>(y),
        S::field::<2, 2, TO>(y),
        S::field::<4, 2, TO>(y),
        S::field::<6, 2, TO>(y),
    ]
}

/// The bit of each step, moved to `TO`.
#[inline(always)]
fn ones<S: Simd, const TO: u32>(vector: &[u8; 64]) -> [S::C; 8] {
    let x = S::codes(vector);
    [
        S::field::<0, 1, TO>(x),
        S::field::<1, 1, TO>(x),
        S::field::<2, 1, TO>(x),
        S::field::<3, 1, TO>(x),
        S::field::<4, 1, TO>(x),
        S::field::<5, 1, TO>(x),
        S::field::<6, 1, TO>(x),
        S::field::<7, 1, TO>(x),
    ]
}

/// Joins two sets of bits.
#[inline(always)]
fn join<S: Simd>(x: [S::C; 8], y: [S::C; 8]) -> [S::C; 8] {
    each!(i in [0, 1, 2, 3, 4, 5, 6, 7] => S::or(x[i], y[i]))
}

macro_rules! unpack {
    ($name:ident, $bits:literal, $wide:literal, |$S:ident, $v:ident, $values:pat_param| $body:expr) => {
        pub(crate) struct $name;
        impl Unpack for $name {
            const BITS: usize = $bits;
            const WIDE: bool = $wide;
            #[inline(always)]
            fn unpack<$S: Simd>($v: &[[u8; 64]], $values: &[u8; 16]) -> [$S::C; 8] {
                $body
            }
        }
    };
}

unpack!(B2, 2, false, |S, v, _| twos::<S, 0>(v));
unpack!(B3, 3, false, |S, v, _| join::<S>(twos::<S, 0>(v), ones::<S, 2>(&v[2])));
unpack!(B4, 4, false, |S, v, _| fours::<S>(v));
unpack!(B5, 5, false, |S, v, _| join::<S>(fours::<S>(v), ones::<S, 4>(&v[4])));
unpack!(B6, 6, false, |S, v, _| join::<S>(fours::<S>(v), twos::<S, 4>(&v[4..])));
unpack!(B8, 8, true, |S, v, _| each!(i in [0, 1, 2, 3, 4, 5, 6, 7] => S::codes(&v[i])));
unpack!(Listed, 4, true, |S, v, values| each!(x in four_and_more::<S>(v) => S::lookup(x, values)));

/// A product with weights of these codes and scales.
pub(crate) struct IntProduct<'a, U, Z> {
    pub(super) product: &'a Product<'a>,
    pub(super) x: &'a [Group],
    pub(super) zero: i32,
    /// What codes are looked up in, if they are.
    pub(super) values: &'static [u8; 16],
    kind: PhantomData<(U, Z)>,
}

impl<'a, U: Unpack, Z: ScaleView<'a>> IntProduct<'a, U, Z> {
    /// Whether the middle code stands for zero; else short codes have a minimum, and none does.
    pub(super) const CENTRED: bool = U::WIDE || !Z::MIN;

    /// Bits of a code once it is unpacked.
    pub(super) const CODE_BITS: usize = if U::WIDE { 8 } else { U::BITS };

    pub(crate) fn new(product: &'a Product<'a>) -> Self {
        let Form::Int { codes, zero, .. } = product.matrix.form else { unreachable!("chosen by form") };
        let Input::Groups(x) = product.x else { unreachable!("lowered with quantised activations") };
        assert!(x.len() >= product.count * (product.matrix.cols / TILE));
        assert_eq!(zero << U::UP, if Self::CENTRED { 128 } else { 0 });
        IntProduct { product, x, zero, values: codes.values(), kind: PhantomData }
    }
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Kernel for IntProduct<'a, U, Z> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let Product { matrix, count, .. } = *self.product;
        let tiles = matrix.cols / TILE;
        let rows_cached = (CACHED / (tiles * size_of::<Group>())).max(1).next_multiple_of(MANY);
        let done = match self.product.room {
            Some(room) if S::MANY_APART && count >= many::LEAST => self.many::<S>(room),
            Some(room) if S::BYTE_DOTS && count >= many::LEAST_OF_BYTES => {
                self.many_by_bytes::<S>(room);
                count
            }
            _ => 0,
        };
        for first in (done..count).step_by(rows_cached) {
            let end = count.min(first + rows_cached);
            if S::BYTE_DOTS && end - first >= two_panels::LEAST {
                self.by_two_panels::<S>(first..end);
                continue;
            }
            let mut panels = self.product.panels.clone();
            if end - first == 1 && S::TOGETHER {
                panels = self.beside::<S>(panels, first);
            }
            for panel in panels {
                let codes = matrix.plane::<u8>(panel, 0, tiles * U::BITS * 64).as_chunks().0;
                let scales = Z::view(matrix, panel, AHEAD);
                let mut row = first;
                while row < end {
                    row += match end - row {
                        _ if !S::TOGETHER => self.block::<S, 1>(codes, &scales, panel, row),
                        MANY.. if const { takes_many::<S>() } => {
                            self.block::<S, MANY>(codes, &scales, panel, row)
                        }
                        4.. => self.block::<S, 4>(codes, &scales, panel, row),
                        2.. => self.block::<S, 2>(codes, &scales, panel, row),
                        _ => self.block::<S, 1>(codes, &scales, panel, row),
                    };
                }
            }
        }
    }
}

impl<'a, U: Unpack, Z: ScaleView<'a>> IntProduct<'a, U, Z> {
    /// One panel by `M` rows; returns `M`.
    #[inline(always)]
    fn block<S: Simd, const M: usize>(
        &self,
        codes: &[[u8; 64]],
        scales: &Z,
        panel: usize,
        row: usize,
    ) -> usize {
        let tiles = self.product.matrix.cols / TILE;
        let x = &self.x[row * tiles..(row + M) * tiles];
        let mut sums = [S::splat(0.0); M];
        if Z::SUPER {
            for (i, codes) in codes.chunks_exact(TILES_PER_SUPER * U::BITS).enumerate() {
                let (mut parts, mut mins) = ([S::splat(0.0); M], [S::splat(0.0); M]);
                for (tile, vectors) in codes.chunks_exact(U::BITS).enumerate() {
                    let tile = TILES_PER_SUPER * i + tile;
                    self.scaled::<S, M>(vectors, scales, x, tile, AHEAD, &mut parts);
                    add_minima::<S, Z, M>(scales, x, tile, &mut mins);
                }
                let [scale, min] = scales.outer::<S>(i);
                for m in 0..M {
                    sums[m] = S::fma(parts[m], scale, sums[m]);
                    if Z::MIN {
                        sums[m] = S::fma(mins[m], min, sums[m]);
                    }
                }
            }
        } else {
            for (tile, vectors) in codes.chunks_exact(U::BITS).enumerate() {
                self.scaled::<S, M>(vectors, scales, x, tile, AHEAD, &mut sums);
                add_minima::<S, Z, M>(scales, x, tile, &mut sums);
            }
        }
        for (m, sum) in sums.into_iter().enumerate() {
            self.product.put::<S>(row + m, panel, sum);
        }
        M
    }

    /// Adds `scale · Σ (code - zero) · x` of one tile to the sums of `M` rows, and asks for codes `ahead` bytes further on.
    #[inline(always)]
    pub(super) fn scaled<S: Simd, const M: usize>(
        &self,
        vectors: &[[u8; 64]],
        scales: &Z,
        x: &[Group],
        tile: usize,
        ahead: usize,
        sums: &mut [S::F; M],
    ) {
        ask_for(vectors, ahead);
        let codes = U::unpack::<S>(vectors, self.values);
        if Z::HALVES {
            let [a, b, c, d, e, f, g, h] = codes;
            let scale = scales.scale::<S>(tile, 0);
            self.add_dots::<S, M, 4>(&[a, b, c, d], 0, scale, x, tile, sums);
            let scale = scales.scale::<S>(tile, 1);
            self.add_dots::<S, M, 4>(&[e, f, g, h], 1, scale, x, tile, sums);
        } else {
            self.add_dots::<S, M, 8>(&codes, 0, scales.scale::<S>(tile, 0), x, tile, sums);
        }
    }

    /// Adds `scale · Σ (code - zero) · x` of a tile, or of one half of it, to the sums of `M` rows.
    #[inline(always)]
    fn add_dots<S: Simd, const M: usize, const N: usize>(
        &self,
        codes: &[S::C; N],
        half: usize,
        scale: S::F,
        x: &[Group],
        tile: usize,
        sums: &mut [S::F; M],
    ) {
        // Not a loop: sums must be in registers from the beginning.
        const { assert!(M <= 2 || M == 4 || M == MANY) };
        if M >= 4 {
            self.add_four::<S, M, N>(codes, half, scale, x, tile, 0, sums);
        }
        if M == MANY {
            self.add_four::<S, M, N>(codes, half, scale, x, tile, 4, sums);
        }
        if M <= 2 {
            for (m, sum) in sums.iter_mut().enumerate() {
                let group = group::<M>(x, m, tile);
                let init = self.init::<N>(group, half);
                let (high, low) = (part::<N>(&group.high, half), part::<N>(&group.low, half));
                let dot = S::dot(Self::CODE_BITS, init, codes, high, low);
                *sum = S::fma(S::to_float(dot), S::mul(scale, S::splat(group.scale)), *sum);
            }
        }
    }

    /// [`IntProduct::add_dots`] for four of the rows.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn add_four<S: Simd, const M: usize, const N: usize>(
        &self,
        codes: &[S::C; N],
        half: usize,
        scale: S::F,
        x: &[Group],
        tile: usize,
        m: usize,
        sums: &mut [S::F; M],
    ) {
        let a = group::<M>(x, m, tile);
        let b = group::<M>(x, m + 1, tile);
        let c = group::<M>(x, m + 2, tile);
        let d = group::<M>(x, m + 3, tile);
        let init = [
            self.init::<N>(a, half),
            self.init::<N>(b, half),
            self.init::<N>(c, half),
            self.init::<N>(d, half),
        ];
        let high = [
            part::<N>(&a.high, half),
            part::<N>(&b.high, half),
            part::<N>(&c.high, half),
            part::<N>(&d.high, half),
        ];
        let low = [
            part::<N>(&a.low, half),
            part::<N>(&b.low, half),
            part::<N>(&c.low, half),
            part::<N>(&d.low, half),
        ];
        let [p, q, r, s] = S::four_dots(Self::CODE_BITS, init, codes, high, low);
        sums[m] = S::fma(S::to_float(p), S::mul(scale, S::splat(a.scale)), sums[m]);
        sums[m + 1] = S::fma(S::to_float(q), S::mul(scale, S::splat(b.scale)), sums[m + 1]);
        sums[m + 2] = S::fma(S::to_float(r), S::mul(scale, S::splat(c.scale)), sums[m + 2]);
        sums[m + 3] = S::fma(S::to_float(s), S::mul(scale, S::splat(d.scale)), sums[m + 3]);
    }

    /// What the zero point takes from a dot with a tile (`N` is 8) or with one half of it.
    #[inline(always)]
    pub(super) fn init<const N: usize>(&self, group: &Group, half: usize) -> i32 {
        if !Self::CENTRED {
            return 0;
        }
        self.zero * group.negated_sums[sum_of::<N>(half)]
    }
}

/// The words of a tile (`N` is 8), or of one half of it.
#[inline(always)]
pub(super) fn part<const N: usize>(words: &[i32; TILE / 4], half: usize) -> &[i32; N] {
    &words.as_chunks().0[half]
}

/// Asks for vectors so many bytes further on than these.
#[inline(always)]
pub(super) fn ask_for(vectors: &[[u8; 64]], ahead: usize) {
    for vector in vectors {
        ask(vector.as_ptr().wrapping_add(ahead));
    }
}

/// The activations of one of `M` rows in one tile.
#[inline(always)]
pub(super) fn group<const M: usize>(x: &[Group], m: usize, tile: usize) -> &Group {
    // SAFETY: `x` holds `M` rows of equally many groups, `m` is below `M` and `tile` below that number.
    unsafe { x.get_unchecked(m * (x.len() / M) + tile) }
}

/// Adds `minimum · Σ x` of one tile to the sums of `M` rows.
#[inline(always)]
pub(super) fn add_minima<'a, S: Simd, Z: ScaleView<'a>, const M: usize>(
    scales: &Z,
    x: &[Group],
    tile: usize,
    sums: &mut [S::F; M],
) {
    if !Z::MIN {
        return;
    }
    for half in 0..if Z::HALVES { 2 } else { 1 } {
        let min = scales.min::<S>(tile, half);
        for (m, sum) in sums.iter_mut().enumerate() {
            let total = group::<M>(x, m, tile).scaled_sums[if Z::HALVES { half } else { 2 }];
            *sum = S::fma(min, S::splat(total), *sum);
        }
    }
}
