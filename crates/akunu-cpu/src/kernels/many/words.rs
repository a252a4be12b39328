//! Integers: a stretch of a panel's weights is made [`Words`].
//!
//! A product of words needs two instructions; one of bytes, of which each activation has two, needs five and more for twice as many columns.
//! Sums are the same integers as those of bytes.

use std::ops::Range;

use crate::kernels::int::{IntProduct, Unpack};
use crate::kernels::scales::ScaleView;
use crate::memory::{Plain, ask};
use crate::pack::{TILE, TILES_PER_SUPER};
use crate::simd::{LANES, Simd};

use super::{Room, blocks};

/// Rows worked on at a time at most: with more, activations leave the caches sooner than words are worth.
pub(super) const ROWS: usize = 64;

/// Panels worked on at a time: activations become words once for all of them.
pub(super) const PANELS: usize = 16;

/// Rows whose sums are in registers.
const TOGETHER: usize = 4;

/// Tiles of a stretch of columns: a super-block, where there are such.
pub(super) const TILES: usize = TILES_PER_SUPER;

/// A tile's activations of one row.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Line {
    /// Words of 16 bits. Of each four columns, the first has the first and the third, and the second the others: that is how bytes
    /// come apart.
    words: [[i32; 2]; TILE / 4],
    scale: f32,
    /// What minima are multiplied by: of both halves, or of all in the first.
    sums: [f32; 2],
}

// SAFETY: numbers without padding: 64 + 4 + 8 bytes.
unsafe impl Plain for Line {}
const _: () = assert!(size_of::<Line>() == 76);

/// The words of a tile's weights, of a panel's sixteen outputs.
pub(super) type Words = [[[i32; LANES]; 2]; TILE / 4];

/// A vector for each half of a tile, of which the first may be for both.
type Halves = [[f32; LANES]; 2];

/// A stretch of one panel.
struct Stretch<'a> {
    words: &'a mut [Words],
    scales: [Halves; TILES],
    mins: [Halves; TILES],
    /// What the scales and the minima of a super-block are to be multiplied by.
    outer: Halves,
}

impl<'a, U: Unpack, Z: ScaleView<'a>> IntProduct<'a, U, Z> {
    /// As many rows as can be worked on together; returns how many.
    #[inline(always)]
    pub(in crate::kernels) fn many<S: Simd>(&self, room: &Room) -> usize {
        let count = self.product.count / TOGETHER * TOGETHER;
        for (rows, panels) in blocks(count, (ROWS, TOGETHER), &self.product.panels, PANELS) {
            self.rows_by_panels::<S>(room, rows, panels);
        }
        count
    }

    /// Some rows by some panels.
    #[inline(always)]
    fn rows_by_panels<S: Simd>(&self, room: &Room, rows: Range<usize>, panels: Range<usize>) {
        let all = self.product.matrix.cols / TILE;
        // SAFETY: a worker has one room, and one product at a time.
        let (words, lines, sums) = unsafe {
            let words: &mut [i32] = room.weights.get_mut(0, TILES * size_of::<Words>() / size_of::<i32>());
            let lines: &mut [Line] = room.lines.get_mut(0, rows.len() * TILES);
            let sums: &mut [f32] = room.sums.get_mut(0, panels.len() * rows.len() * LANES);
            let lines: &mut [[[Line; TOGETHER]; TILES]] = lines.as_chunks_mut().0.as_chunks_mut().0;
            (words, lines, sums.as_chunks_mut::<LANES>().0)
        };
        let mut stretch = Stretch {
            words: words.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0,
            scales: [[[0.0; LANES]; 2]; TILES],
            mins: [[[0.0; LANES]; 2]; TILES],
            outer: [[0.0; LANES]; 2],
        };
        sums.fill([0.0; LANES]);
        for from in (0..all).step_by(TILES) {
            let tiles = from..all.min(from + TILES);
            for (i, row) in rows.clone().enumerate() {
                let lines = &mut lines[i / TOGETHER];
                for (group, line) in self.x[row * all..][tiles.clone()].iter().zip(lines) {
                    let line = &mut line[i % TOGETHER];
                    S::activation_words(&group.high, &group.low, &mut line.words);
                    let [a, b, total] = group.scaled_sums;
                    (line.scale, line.sums) = (group.scale, if Z::HALVES { [a, b] } else { [total, 0.0] });
                }
            }
            for panel in panels.clone() {
                let codes = self.codes(panel, tiles.clone());
                let next = match panel + 1 {
                    next if next < panels.end => self.codes(next, tiles.clone()),
                    _ => self.codes(panels.start, tiles.end..all.min(tiles.end + TILES)),
                };
                self.make::<S>(codes, panel, tiles.clone(), &mut stretch);
                let first = (panel - panels.start) * rows.len();
                let sums = sums[first..first + rows.len()].as_chunks_mut().0;
                let mut next = next.chunks(next.len().div_ceil(lines.len()).max(1));
                for (i, (lines, sums)) in lines.iter().zip(sums).enumerate() {
                    for code in next.next().unwrap_or_default() {
                        ask(code.as_ptr());
                    }
                    if tiles.end == all {
                        let row = rows.start + i * TOGETHER;
                        (row..row + TOGETHER).for_each(|row| self.product.ask_for_outputs(row, panel));
                    }
                    stretch.add::<S, Z>(&lines[..tiles.len()], sums);
                }
            }
        }
        for (i, row) in rows.clone().enumerate() {
            for panel in panels.clone() {
                let sums = &sums[(panel - panels.start) * rows.len() + i];
                self.product.put::<S>(row, panel, S::load(sums));
            }
        }
    }

    /// The codes of some tiles of a panel.
    #[inline(always)]
    pub(super) fn codes(&self, panel: usize, tiles: Range<usize>) -> &[[u8; 64]] {
        let matrix = self.product.matrix;
        let codes = matrix.plane::<u8>(panel, 0, matrix.cols / TILE * U::BITS * 64).as_chunks().0;
        &codes[tiles.start * U::BITS..tiles.end * U::BITS]
    }

    /// Makes what is multiplied of some tiles of a panel.
    #[inline(always)]
    fn make<S: Simd>(&self, codes: &[[u8; 64]], panel: usize, tiles: Range<usize>, to: &mut Stretch<'_>) {
        for (codes, words) in codes.chunks_exact(U::BITS).zip(&mut *to.words) {
            let codes = U::unpack::<S>(codes, self.values);
            for i in 0..TILE / 4 {
                S::store_words(codes[i], self.zero, &mut words[i]);
            }
        }
        let view = Z::view(self.product.matrix, panel, 0);
        for (i, tile) in tiles.clone().enumerate() {
            for half in 0..if Z::HALVES { 2 } else { 1 } {
                S::store(view.scale::<S>(tile, half), &mut to.scales[i][half]);
                if Z::MIN {
                    S::store(view.min::<S>(tile, half), &mut to.mins[i][half]);
                }
            }
        }
        if Z::SUPER {
            let [scale, min] = view.outer::<S>(tiles.start / TILES);
            S::store(scale, &mut to.outer[0]);
            S::store(min, &mut to.outer[1]);
        }
    }
}

impl Stretch<'_> {
    /// Adds the products with tiles of rows to their sums.
    #[inline(always)]
    fn add<'a, S: Simd, Z: ScaleView<'a>>(
        &self,
        lines: &[[Line; TOGETHER]],
        sums: &mut [[f32; LANES]; TOGETHER],
    ) {
        let mut totals = [S::splat(0.0); TOGETHER];
        if !Z::SUPER {
            for m in 0..TOGETHER {
                totals[m] = S::load(&sums[m]);
            }
        }
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
            let scale = S::load(&self.outer[0]);
            for m in 0..TOGETHER {
                totals[m] = S::fma(totals[m], scale, S::load(&sums[m]));
            }
        }
        for m in 0..TOGETHER {
            S::store(totals[m], &mut sums[m]);
        }
        // Only now: there are no registers for these beside the totals.
        if Z::SUPER && Z::MIN {
            let mut mins = [S::splat(0.0); TOGETHER];
            for (tile, lines) in lines.iter().enumerate() {
                self.add_minima::<S, Z>(lines, tile, &mut mins);
            }
            let min = S::load(&self.outer[1]);
            for m in 0..TOGETHER {
                S::store(S::fma(mins[m], min, S::load(&sums[m])), &mut sums[m]);
            }
        }
    }

    /// Adds `scale · Σ weight · x` of a tile (`N` is 8), or of one half of it.
    #[inline(always)]
    fn add_dots<S: Simd, const N: usize>(
        &self,
        lines: &[Line; TOGETHER],
        tile: usize,
        half: usize,
        sums: &mut [S::F; TOGETHER],
    ) {
        let [a, b, c, d] = lines;
        let x = [part::<N>(a, half), part::<N>(b, half), part::<N>(c, half), part::<N>(d, half)];
        let dots = S::word_dots(&self.words[tile].as_chunks::<N>().0[half], x);
        let scale = S::load(&self.scales[tile][half]);
        for m in 0..TOGETHER {
            sums[m] = S::fma(S::to_float(dots[m]), S::mul(scale, S::splat(lines[m].scale)), sums[m]);
        }
    }

    /// Adds `minimum · Σ x` of a tile, where there are minima.
    #[inline(always)]
    fn add_minima<'a, S: Simd, Z: ScaleView<'a>>(
        &self,
        lines: &[Line; TOGETHER],
        tile: usize,
        sums: &mut [S::F; TOGETHER],
    ) {
        if !Z::MIN {
            return;
        }
        for half in 0..if Z::HALVES { 2 } else { 1 } {
            let min = S::load(&self.mins[tile][half]);
            for m in 0..TOGETHER {
                sums[m] = S::fma(min, S::splat(lines[m].sums[half]), sums[m]);
            }
        }
    }
}

/// The words of a tile (`N` is 8), or of one half of it.
#[inline(always)]
fn part<const N: usize>(line: &Line, half: usize) -> &[[i32; 2]; N] {
    &line.words.as_chunks().0[half]
}
