//! Integers, some rows by two panels, where an instruction adds products of bytes to sums (AVX-512 VNNI).
//!
//! Each tile of codes is unpacked to the first-level cache once for all rows, so every activation that is read serves both panels. Where
//! each dot reads its activation itself, the processor has too few loads for them.

use std::ops::Range;

use crate::memory::{ALIGN, ask};
use crate::pack::{TILE, TILES_PER_SUPER};
use crate::simd::{LANES, Simd};

use super::beside::Pair;
use super::int::{IntProduct, Unpack, part};
use super::product::{Group, sum_of};
use super::scales::ScaleView;

/// Fewer rows than this are multiplied by one panel after the other: unpacking to memory takes as long as it saves.
pub(super) const LEAST: usize = 8;

/// Rows and panels whose sums are in registers.
const TOGETHER: usize = 4;
const BESIDE: usize = 2;

/// Rows that a tile is unpacked for at most.
const ROWS: usize = 24;

/// How far ahead of their use activations are asked for, in bytes, and how many lines of them: those of the next tile but one. Of wide
/// matrices they come from the second-level cache.
const AHEAD: usize = 2 * size_of::<Group>();
const LINES: usize = size_of::<Group>().div_ceil(ALIGN);

/// What is multiplied of a tile of two panels.
#[repr(align(64))]
struct Tile {
    codes: [[[u8; 64]; BESIDE]; TILE / 4],
    /// Of both halves, or of all in the first.
    scales: [[[f32; LANES]; BESIDE]; 2],
    mins: [[[f32; LANES]; BESIDE]; 2],
}

/// Of four rows by two panels.
type Four = [[[f32; LANES]; BESIDE]; TOGETHER];

#[repr(align(64))]
struct Sums([Four; ROWS / TOGETHER]);

impl Sums {
    const ZERO: Sums = Sums([[[[0.0; LANES]; BESIDE]; TOGETHER]; ROWS / TOGETHER]);
}

impl<'a, U: Unpack, Z: ScaleView<'a>> IntProduct<'a, U, Z> {
    /// Some rows by all panels.
    ///
    /// Where the middle code stands for zero, codes are raised, so that it is 128. What it takes from a dot is the sum of the activations
    /// then, times 2^[`LOW_BITS`](crate::simd::LOW_BITS), as often as their high parts count.
    #[inline(always)]
    pub(super) fn by_two_panels<S: Simd>(&self, rows: Range<usize>) {
        for first in self.product.panels.clone().step_by(BESIDE) {
            for row in rows.clone().step_by(ROWS) {
                self.rows_by_two::<S>(row..rows.end.min(row + ROWS), first);
            }
        }
    }

    /// At most [`ROWS`] rows by two panels, in the same order of sums as [`IntProduct::block`].
    #[inline(always)]
    fn rows_by_two<S: Simd>(&self, rows: Range<usize>, first: usize) {
        let tiles = self.product.matrix.cols / TILE;
        let pair = self.pair(first, BESIDE);
        // Where fewer than four are left, the last one is there more than once.
        let mut x = [&self.x[..0]; ROWS];
        for (i, x) in x.iter_mut().enumerate() {
            let row = (rows.start + i).min(rows.end - 1);
            *x = &self.x[row * tiles..(row + 1) * tiles];
        }
        let x = &x[..rows.len().next_multiple_of(TOGETHER)];
        let (mut sums, mut mins) = (Sums::ZERO, Sums::ZERO);
        if Z::SUPER {
            for block in 0..tiles / TILES_PER_SUPER {
                let mut parts = Sums::ZERO;
                mins = Sums::ZERO;
                for tile in TILES_PER_SUPER * block..TILES_PER_SUPER * (block + 1) {
                    self.rows_by_tile::<S>(&pair, x, tile, &mut parts, &mut mins);
                }
                let [[s, min_s], [t, min_t]] =
                    [pair.scales[0].outer::<S>(block), pair.scales[1].outer::<S>(block)];
                add::<S>(&parts, [s, t], rows.len(), &mut sums);
                if Z::MIN {
                    add::<S>(&mins, [min_s, min_t], rows.len(), &mut sums);
                }
            }
        } else {
            for tile in 0..tiles {
                self.rows_by_tile::<S>(&pair, x, tile, &mut sums, &mut mins);
            }
        }
        for (i, sums) in sums.0.as_flattened().iter().enumerate().take(rows.len()) {
            self.product.put::<S>(rows.start + i, first, S::load(&sums[0]));
            if first + 1 < self.product.panels.end {
                self.product.put::<S>(rows.start + i, first + 1, S::load(&sums[1]));
            }
        }
    }

    /// Adds the products with one tile of two panels to the sums of some rows. Minima go to `mins` where super-blocks scale them apart,
    /// else to `sums`.
    #[inline(always)]
    fn rows_by_tile<S: Simd>(
        &self,
        pair: &Pair<'a, Z>,
        x: &[&[Group]],
        tile: usize,
        sums: &mut Sums,
        mins: &mut Sums,
    ) {
        let mut made = Tile {
            codes: [[[0; 64]; BESIDE]; TILE / 4],
            scales: [[[0.0; LANES]; BESIDE]; 2],
            mins: [[[0.0; LANES]; BESIDE]; 2],
        };
        self.make_tile::<S>(pair, tile, &mut made);
        for (four, [a, b, c, d]) in x.as_chunks::<TOGETHER>().0.iter().enumerate() {
            // SAFETY: a row has as many groups as the matrix has tiles, of which this is one.
            let x = unsafe {
                [a.get_unchecked(tile), b.get_unchecked(tile), c.get_unchecked(tile), d.get_unchecked(tile)]
            };
            for x in x {
                for line in 0..LINES {
                    ask(std::ptr::from_ref(x).cast::<u8>().wrapping_add(AHEAD + line * ALIGN));
                }
            }
            // SAFETY: there are at most `ROWS` rows.
            let (sums, mins) = unsafe { (sums.0.get_unchecked_mut(four), mins.0.get_unchecked_mut(four)) };
            if Z::HALVES {
                made.add_dots::<S, 4>(Self::CENTRED, 0, x, sums);
                made.add_dots::<S, 4>(Self::CENTRED, 1, x, sums);
            } else {
                made.add_dots::<S, 8>(Self::CENTRED, 0, x, sums);
            }
            if Z::MIN {
                let to = if Z::SUPER { mins } else { sums };
                if Z::HALVES {
                    made.add_minima::<S, 4>(0, x, to);
                    made.add_minima::<S, 4>(1, x, to);
                } else {
                    made.add_minima::<S, 8>(0, x, to);
                }
            }
        }
    }

    /// Makes what is multiplied of one tile of two panels.
    #[inline(always)]
    fn make_tile<S: Simd>(&self, pair: &Pair<'a, Z>, tile: usize, to: &mut Tile) {
        for p in 0..BESIDE {
            let codes = pair.codes_ahead(p, tile, U::BITS);
            let codes = if Self::CENTRED {
                U::raised::<S>(codes, self.values)
            } else {
                U::unpack::<S>(codes, self.values)
            };
            let made = &mut to.codes;
            for i in 0..TILE / 4 {
                S::store_codes(codes[i], &mut made[i][p]);
            }
            let scales = &pair.scales[p];
            // Of codes that are raised: an exact power of two.
            let down = S::splat(if Self::CENTRED { 1.0 / (1 << U::UP) as f32 } else { 1.0 });
            for half in 0..if Z::HALVES { 2 } else { 1 } {
                S::store(S::mul(scales.scale::<S>(tile, half), down), &mut to.scales[half][p]);
                if Z::MIN {
                    S::store(scales.min::<S>(tile, half), &mut to.mins[half][p]);
                }
            }
        }
    }
}

impl Tile {
    /// Adds `scale · Σ (code - zero) · x` of a tile (`N` is 8), or of one half of it, to the sums of four rows.
    #[inline(always)]
    fn add_dots<S: Simd, const N: usize>(
        &self,
        centred: bool,
        half: usize,
        x: [&Group; TOGETHER],
        sums: &mut Four,
    ) {
        let [a, b, c, d] = x;
        let which = sum_of::<N>(half);
        let init =
            [a.negated_sums[which], b.negated_sums[which], c.negated_sums[which], d.negated_sums[which]];
        let high = [part(&a.high, half), part(&b.high, half), part(&c.high, half), part(&d.high, half)];
        let low = [part(&a.low, half), part(&b.low, half), part(&c.low, half), part(&d.low, half)];
        let codes = &self.codes.as_chunks::<N>().0[half];
        let dots = S::byte_dots::<N, true>(if centred { init } else { [0; 4] }, codes, high, low);
        for m in 0..TOGETHER {
            let scale = S::splat(x[m].scale);
            for p in 0..BESIDE {
                let sum = &mut sums[m][p];
                let scale = S::mul(S::load(&self.scales[half][p]), scale);
                S::store(S::fma(S::to_float(dots[m][p]), scale, S::load(sum)), sum);
            }
        }
    }

    /// Adds `minimum · Σ x` of a tile, or of one half of it, to the sums of four rows.
    #[inline(always)]
    fn add_minima<S: Simd, const N: usize>(&self, half: usize, x: [&Group; TOGETHER], sums: &mut Four) {
        let mins = &self.mins[half];
        for m in 0..TOGETHER {
            let total = S::splat(x[m].scaled_sums[sum_of::<N>(half)]);
            for p in 0..BESIDE {
                let sum = &mut sums[m][p];
                S::store(S::fma(S::load(&mins[p]), total, S::load(sum)), sum);
            }
        }
    }
}

/// Adds the totals of a super-block, under its scales, to the sums.
#[inline(always)]
fn add<S: Simd>(totals: &Sums, outer: [S::F; BESIDE], rows: usize, sums: &mut Sums) {
    let (totals, sums) = (totals.0.as_flattened(), sums.0.as_flattened_mut());
    for m in 0..rows {
        for p in 0..BESIDE {
            S::store(S::fma(S::load(&totals[m][p]), outer[p], S::load(&sums[m][p])), &mut sums[m][p]);
        }
    }
}
