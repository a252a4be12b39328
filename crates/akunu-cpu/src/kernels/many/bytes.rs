//! Integers, where an instruction adds products of bytes to sums (AVX-512 VNNI): a stretch of two panels' codes is made bytes.
//!
//! Beside few rows, unpacking takes as long as multiplying. Here codes are unpacked once for up to [`ROWS`] rows, and each activation that
//! is read serves two panels.

use std::ops::Range;

use crate::kernels::int::{IntProduct, Unpack, part};
use crate::kernels::scales::ScaleView;
use crate::memory::{ALIGN, Plain, ask};
use crate::pack::{TILE, TILES_PER_SUPER};
use crate::simd::{LANES, Simd};

use super::{Room, blocks};

/// Rows worked on at a time at most.
pub(super) const ROWS: usize = 64;

/// Panels worked on at a time, where activations do not stay in the second-level cache: a stretch of them then serves so many.
pub(super) const PANELS: usize = 32;

/// Rows and panels whose sums are in registers.
pub(super) const TOGETHER: usize = 4;
const BESIDE: usize = 2;

/// Tiles of a stretch of columns at most: half of the first-level cache. Where there are super-blocks, it is one of these.
pub(super) const TILES: usize = 16;

/// How far ahead of their use scales are asked for, in bytes: about a stretch.
const AHEAD: usize = 512;

/// Tiles of four rows that there is room for: they should stay in the second-level cache while panels pass over them.
pub(super) const LINES: usize = 1024;

/// A tile's activations of one row.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Line {
    high: [i32; TILE / 4],
    low: [i32; TILE / 4],
    scale: f32,
    /// What the zero point takes from a dot: with both halves, or with all in the first.
    init: [i32; 2],
    /// What minima are multiplied by, alike.
    sums: [f32; 2],
}

// SAFETY: numbers without padding: 32 + 32 + 4 + 8 + 8 bytes.
unsafe impl Plain for Line {}
const _: () =
    assert!(size_of::<Line>() == 84 && ROWS / TOGETHER * TILES <= LINES && TILES_PER_SUPER <= TILES);
const _: () = assert!(ROWS.is_multiple_of(TOGETHER) && PANELS.is_multiple_of(BESIDE));

/// The codes of a tile of two panels, side by side.
pub(super) type Bytes = [[[u8; 64]; BESIDE]; TILE / 4];

/// A vector for each half of a tile (of which the first may be for both) of each panel.
type Halves = [[[f32; LANES]; 2]; BESIDE];

/// The sums of four rows by two panels.
pub(super) type Sums = [[[f32; LANES]; BESIDE]; TOGETHER];

/// A stretch of two panels.
struct Stretch<'a> {
    codes: &'a mut [Bytes],
    scales: [Halves; TILES],
    mins: [Halves; TILES],
    /// What the scales and the minima of a super-block are to be multiplied by.
    outer: Halves,
}

/// What is asked for while a stretch is multiplied: codes of two panels, some lines with each four rows.
struct Ahead {
    at: [usize; BESIDE],
    /// That are left.
    lines: usize,
    each: usize,
}

impl Ahead {
    #[inline(always)]
    fn ask(&mut self) {
        for _ in 0..self.each.min(self.lines) {
            for at in &mut self.at {
                ask(std::ptr::without_provenance(*at));
                *at += ALIGN;
            }
            self.lines -= 1;
        }
    }
}

impl<'a, U: Unpack, Z: ScaleView<'a>> IntProduct<'a, U, Z> {
    /// All rows by all panels.
    #[inline(always)]
    pub(in crate::kernels) fn many_by_bytes<S: Simd>(&self, room: &Room) {
        let all = self.product.matrix.cols / TILE;
        let product = self.product.panels.clone();
        for (rows, _) in blocks(self.product.count, (ROWS, TOGETHER), &(0..1), 1) {
            let fours = rows.len().div_ceil(TOGETHER);
            // Whole rows are made lines of once, where they stay in the cache; else a stretch of them, for several panels.
            let whole = fours * all <= LINES;
            let (tiles, panels) = if whole { (all, BESIDE) } else { (Self::stretch(all), PANELS) };
            // SAFETY: a worker has one room, one product at a time, and these are different parts of the room.
            let lines: &mut [Line] = unsafe { room.lines.get_mut(0, fours * tiles * TOGETHER) };
            let lines: &mut [[Line; TOGETHER]] = lines.as_chunks_mut().0;
            if whole {
                self.make_lines(rows.clone(), 0..all, lines);
            }
            for first in product.clone().step_by(panels) {
                let panels = first..product.end.min(first + panels);
                self.rows_by_panels_of_bytes::<S>(room, rows.clone(), panels, lines, whole);
            }
        }
    }

    /// Tiles of a stretch, of so many in all.
    #[inline(always)]
    fn stretch(all: usize) -> usize {
        if Z::SUPER { TILES_PER_SUPER } else { all.div_ceil(all.div_ceil(TILES).max(1)) }
    }

    /// Some rows by some panels. There are lines of `whole` rows, or room for those of a stretch.
    #[inline(always)]
    fn rows_by_panels_of_bytes<S: Simd>(
        &self,
        room: &Room,
        rows: Range<usize>,
        panels: Range<usize>,
        lines: &mut [[Line; TOGETHER]],
        whole: bool,
    ) {
        let all = self.product.matrix.cols / TILE;
        let fours = rows.len().div_ceil(TOGETHER);
        // SAFETY: a worker has one room, one product at a time, and these are different parts of the room.
        let (codes, sums) = unsafe {
            let codes: &mut [u8] = room.weights.get_mut(0, TILES * size_of::<Bytes>());
            let pairs = panels.len().div_ceil(BESIDE);
            let sums: &mut [f32] = room.sums.get_mut(0, pairs * fours * size_of::<Sums>() / size_of::<f32>());
            (codes.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0, sums)
        };
        let sums: &mut [Sums] = sums.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0;
        let nothing = [[[0.0; LANES]; 2]; BESIDE];
        let mut stretch = Stretch { codes, scales: [nothing; TILES], mins: [nothing; TILES], outer: nothing };
        sums.fill([[[0.0; LANES]; BESIDE]; TOGETHER]);
        let each = Self::stretch(all);
        for from in (0..all).step_by(each) {
            let tiles = from..all.min(from + each);
            if !whole {
                self.make_lines(rows.clone(), tiles.clone(), lines);
            }
            for (first, sums) in panels.clone().step_by(BESIDE).zip(sums.chunks_exact_mut(fours)) {
                // Where one is left, it is there twice.
                let pair = [first, (first + 1).min(panels.end - 1)];
                self.make_bytes::<S>(pair, tiles.clone(), &mut stretch);
                let mut ahead = Ahead {
                    at: self.next_codes(&panels, first, &tiles, rows.end == self.product.count),
                    lines: tiles.len() * U::BITS,
                    each: (tiles.len() * U::BITS).div_ceil(fours),
                };
                let (row, skip) = if whole { (all, from) } else { (tiles.len(), 0) };
                for (i, (lines, sums)) in lines.chunks_exact(row).zip(sums).enumerate() {
                    if tiles.end == all {
                        for row in (rows.start + i * TOGETHER..rows.end).take(TOGETHER) {
                            for panel in (first..panels.end).take(BESIDE) {
                                self.product.ask_for_outputs(row, panel);
                            }
                        }
                    }
                    stretch.add::<S, Z>(&lines[skip..skip + tiles.len()], sums, &mut ahead);
                }
            }
        }
        for (first, sums) in panels.clone().step_by(BESIDE).zip(sums.chunks_exact(fours)) {
            for (row, sums) in rows.clone().zip(sums.as_flattened()) {
                for (panel, sums) in (first..panels.end).zip(sums) {
                    self.product.put::<S>(row, panel, S::load(sums));
                }
            }
        }
    }

    /// Makes lines of some tiles of rows. What is behind the last row is multiplied, and not looked at.
    #[inline(always)]
    fn make_lines(&self, rows: Range<usize>, tiles: Range<usize>, lines: &mut [[Line; TOGETHER]]) {
        let all = self.product.matrix.cols / TILE;
        for (i, row) in rows.enumerate() {
            let lines = &mut lines[i / TOGETHER * tiles.len()..][..tiles.len()];
            for (group, line) in self.x[row * all..][tiles.clone()].iter().zip(lines) {
                // Field by field: a line that is put together elsewhere would have to wait to be read back.
                let line = &mut line[i % TOGETHER];
                line.high = group.high;
                line.low = group.low;
                line.scale = group.scale;
                let ([a, b, both], [c, d, total]) = (group.negated_sums, group.scaled_sums);
                line.init = if Z::HALVES { [self.zero * a, self.zero * b] } else { [self.zero * both, 0] };
                line.sums = if Z::HALVES { [c, d] } else { [total, 0.0] };
            }
        }
    }

    /// Where the codes lie that are multiplied after some tiles of two panels, by the `last` rows or by others before these.
    #[inline(always)]
    fn next_codes(
        &self,
        panels: &Range<usize>,
        first: usize,
        tiles: &Range<usize>,
        last: bool,
    ) -> [usize; BESIDE] {
        let product = self.product;
        let beside = first + BESIDE;
        let (matrix, panel, tile) = if beside < panels.end {
            (product.matrix, beside, tiles.start)
        } else if tiles.end < product.matrix.cols / TILE {
            (product.matrix, panels.start, tiles.end)
        } else if beside < product.panels.end {
            (product.matrix, beside, 0)
        } else if last {
            let (matrix, panel) = product.next.unwrap_or((product.matrix, first));
            (matrix, panel, 0)
        } else {
            (product.matrix, product.panels.start, 0)
        };
        let skip = tile * U::BITS * 64;
        [matrix.address(panel, 0) + skip, matrix.address(panel + 1, 0) + skip]
    }

    /// Makes what is multiplied of some tiles of two panels.
    #[inline(always)]
    fn make_bytes<S: Simd>(&self, panels: [usize; BESIDE], tiles: Range<usize>, to: &mut Stretch<'_>) {
        let matrix = self.product.matrix;
        for (p, panel) in panels.into_iter().enumerate() {
            let stored = self.codes(panel, tiles.clone()).chunks_exact(U::BITS);
            for (stored, codes) in stored.zip(&mut *to.codes) {
                let unpacked = U::unpack::<S>(stored, self.values);
                for i in 0..TILE / 4 {
                    S::store_codes(unpacked[i], &mut codes[i][p]);
                }
            }
            let view = Z::view(matrix, panel, AHEAD);
            for (i, tile) in tiles.clone().enumerate() {
                for half in 0..if Z::HALVES { 2 } else { 1 } {
                    S::store(view.scale::<S>(tile, half), &mut to.scales[i][p][half]);
                    if Z::MIN {
                        S::store(view.min::<S>(tile, half), &mut to.mins[i][p][half]);
                    }
                }
            }
            if Z::SUPER {
                let [scale, min] = view.outer::<S>(tiles.start / TILES_PER_SUPER);
                S::store(scale, &mut to.outer[p][0]);
                S::store(min, &mut to.outer[p][1]);
            }
        }
    }
}

impl Stretch<'_> {
    /// Adds the products with tiles of four rows to their sums.
    #[inline(always)]
    fn add<'a, S: Simd, Z: ScaleView<'a>>(
        &self,
        lines: &[[Line; TOGETHER]],
        sums: &mut Sums,
        ahead: &mut Ahead,
    ) {
        let mut totals = [[S::splat(0.0); BESIDE]; TOGETHER];
        if !Z::SUPER {
            load::<S>(sums, &mut totals);
        }
        ahead.ask();
        assert!(lines.len() <= self.codes.len().min(TILES));
        for (tile, lines) in lines.iter().enumerate() {
            if Z::HALVES {
                self.add_dots::<S, 4>(lines, tile, 0, &mut totals);
                self.add_dots::<S, 4>(lines, tile, 1, &mut totals);
            } else {
                self.add_dots::<S, 8>(lines, tile, 0, &mut totals);
            }
            if !Z::SUPER {
                self.add_minima::<S, Z>(lines, tile, &mut totals);
            }
        }
        if Z::SUPER {
            self.add_totals::<S>(&totals, 0, sums);
        } else {
            store::<S>(&totals, sums);
        }
        // Only now: there are no registers for these beside the totals.
        if Z::SUPER && Z::MIN {
            let mut mins = [[S::splat(0.0); BESIDE]; TOGETHER];
            for (tile, lines) in lines.iter().enumerate() {
                self.add_minima::<S, Z>(lines, tile, &mut mins);
            }
            self.add_totals::<S>(&mins, 1, sums);
        }
    }

    /// Adds `scale · Σ (code - zero) · x` of a tile (`N` is 8), or of one half of it.
    #[inline(always)]
    fn add_dots<S: Simd, const N: usize>(
        &self,
        lines: &[Line; TOGETHER],
        tile: usize,
        half: usize,
        totals: &mut [[S::F; BESIDE]; TOGETHER],
    ) {
        let [a, b, c, d] = lines;
        let init = [a.init[half], b.init[half], c.init[half], d.init[half]];
        let high = [part(&a.high, half), part(&b.high, half), part(&c.high, half), part(&d.high, half)];
        let low = [part(&a.low, half), part(&b.low, half), part(&c.low, half), part(&d.low, half)];
        // SAFETY: there are codes and scales of as many tiles as lines, and of both halves.
        let (codes, [s, t]) = unsafe {
            (
                self.codes.get_unchecked(tile).as_chunks().0.get_unchecked(half),
                self.scales.get_unchecked(tile),
            )
        };
        let dots = S::byte_dots::<N, false>(init, codes, high, low);
        let scales = [S::load(&s[half]), S::load(&t[half])];
        for m in 0..TOGETHER {
            let scale = S::splat(lines[m].scale);
            for p in 0..BESIDE {
                totals[m][p] = S::fma(S::to_float(dots[m][p]), S::mul(scales[p], scale), totals[m][p]);
            }
        }
    }

    /// Adds `minimum · Σ x` of a tile, where there are minima.
    #[inline(always)]
    fn add_minima<'a, S: Simd, Z: ScaleView<'a>>(
        &self,
        lines: &[Line; TOGETHER],
        tile: usize,
        totals: &mut [[S::F; BESIDE]; TOGETHER],
    ) {
        if !Z::MIN {
            return;
        }
        for half in 0..if Z::HALVES { 2 } else { 1 } {
            let [s, t] = &self.mins[tile];
            let mins = [S::load(&s[half]), S::load(&t[half])];
            for m in 0..TOGETHER {
                let sum = S::splat(lines[m].sums[half]);
                for p in 0..BESIDE {
                    totals[m][p] = S::fma(mins[p], sum, totals[m][p]);
                }
            }
        }
    }

    /// Adds the totals of a super-block, under its scale (`which` is 0) or that of its minima (1), to the sums.
    #[inline(always)]
    fn add_totals<S: Simd>(&self, totals: &[[S::F; BESIDE]; TOGETHER], which: usize, sums: &mut Sums) {
        let outer = [S::load(&self.outer[0][which]), S::load(&self.outer[1][which])];
        for m in 0..TOGETHER {
            for p in 0..BESIDE {
                let sum = S::fma(totals[m][p], outer[p], S::load(&sums[m][p]));
                S::store(sum, &mut sums[m][p]);
            }
        }
    }
}

#[inline(always)]
fn load<S: Simd>(sums: &Sums, totals: &mut [[S::F; BESIDE]; TOGETHER]) {
    for m in 0..TOGETHER {
        for p in 0..BESIDE {
            totals[m][p] = S::load(&sums[m][p]);
        }
    }
}

#[inline(always)]
fn store<S: Simd>(totals: &[[S::F; BESIDE]; TOGETHER], sums: &mut Sums) {
    for m in 0..TOGETHER {
        for p in 0..BESIDE {
            S::store(totals[m][p], &mut sums[m][p]);
        }
    }
}
