//! Integers: a stretch of two panels' weights is made [`Words`].
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
pub(super) const PANELS: usize = 32;

/// Rows and panels whose sums are in registers.
const TOGETHER: usize = 2;
const BESIDE: usize = 2;

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
const _: () = assert!(ROWS.is_multiple_of(TOGETHER) && PANELS.is_multiple_of(BESIDE));

/// The words of a tile's weights, of two panels side by side.
pub(super) type Words = [[[[i32; LANES]; BESIDE]; 2]; TILE / 4];

/// A vector for each half of a tile (of which the first may be for both) of each panel.
type Halves = [[[f32; LANES]; BESIDE]; 2];

/// The sums of two rows by two panels.
type Sums = [[[f32; LANES]; BESIDE]; TOGETHER];

/// A stretch of two panels.
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
        let twos = rows.len() / TOGETHER;
        // SAFETY: a worker has one room, and one product at a time.
        let (words, lines, sums) = unsafe {
            let words: &mut [i32] = room.weights.get_mut(0, TILES * size_of::<Words>() / size_of::<i32>());
            let lines: &mut [Line] = room.lines.get_mut(0, rows.len() * TILES);
            let pairs = panels.len().div_ceil(BESIDE);
            let sums: &mut [f32] = room.sums.get_mut(0, pairs * twos * size_of::<Sums>() / size_of::<f32>());
            let lines: &mut [[[Line; TOGETHER]; TILES]] = lines.as_chunks_mut().0.as_chunks_mut().0;
            (words.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0, lines, sums)
        };
        let sums: &mut [Sums] = sums.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0;
        let nothing = [[[0.0; LANES]; BESIDE]; 2];
        let mut stretch = Stretch { words, scales: [nothing; TILES], mins: [nothing; TILES], outer: nothing };
        sums.fill([[[0.0; LANES]; BESIDE]; TOGETHER]);
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
            for (first, sums) in panels.clone().step_by(BESIDE).zip(sums.chunks_exact_mut(twos)) {
                // Where one is left, it is there twice.
                let pair = [first, (first + 1).min(panels.end - 1)];
                self.make::<S>(pair, tiles.clone(), &mut stretch);
                let (next, following) = match first + BESIDE {
                    next if next < panels.end => (next, tiles.clone()),
                    _ => (panels.start, tiles.end..all.min(tiles.end + TILES)),
                };
                let a = self.codes(next, following.clone());
                let b = self.codes((next + 1).min(panels.end - 1), following);
                let each = a.len().div_ceil(twos).max(1);
                let mut next = a.chunks(each).zip(b.chunks(each));
                for (i, (lines, sums)) in lines.iter().zip(sums).enumerate() {
                    if let Some((a, b)) = next.next() {
                        for (a, b) in a.iter().zip(b) {
                            ask(a.as_ptr());
                            ask(b.as_ptr());
                        }
                    }
                    if tiles.end == all {
                        let row = rows.start + i * TOGETHER;
                        for row in row..row + TOGETHER {
                            self.product.ask_for_outputs(row, pair[0]);
                            self.product.ask_for_outputs(row, pair[1]);
                        }
                    }
                    stretch.add::<S, Z>(&lines[..tiles.len()], sums);
                }
            }
        }
        for (first, sums) in panels.clone().step_by(BESIDE).zip(sums.chunks_exact(twos)) {
            for (row, sums) in rows.clone().zip(sums.as_flattened()) {
                for (panel, sums) in (first..panels.end).zip(sums) {
                    self.product.put::<S>(row, panel, S::load(sums));
                }
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

    /// Makes what is multiplied of some tiles of two panels.
    #[inline(always)]
    fn make<S: Simd>(&self, panels: [usize; BESIDE], tiles: Range<usize>, to: &mut Stretch<'_>) {
        for (p, panel) in panels.into_iter().enumerate() {
            let codes = self.codes(panel, tiles.clone()).chunks_exact(U::BITS);
            for (codes, words) in codes.zip(&mut *to.words) {
                let codes = U::unpack::<S>(codes, self.values);
                for i in 0..TILE / 4 {
                    let [even, odd] = &mut words[i];
                    S::store_words(codes[i], self.zero, [&mut even[p], &mut odd[p]]);
                }
            }
            let view = Z::view(self.product.matrix, panel, 0);
            for (i, tile) in tiles.clone().enumerate() {
                for half in 0..if Z::HALVES { 2 } else { 1 } {
                    S::store(view.scale::<S>(tile, half), &mut to.scales[i][half][p]);
                    if Z::MIN {
                        S::store(view.min::<S>(tile, half), &mut to.mins[i][half][p]);
                    }
                }
            }
            if Z::SUPER {
                let [scale, min] = view.outer::<S>(tiles.start / TILES);
                S::store(scale, &mut to.outer[0][p]);
                S::store(min, &mut to.outer[1][p]);
            }
        }
    }
}

impl Stretch<'_> {
    /// Adds the products with tiles of two rows to their sums.
    #[inline(always)]
    fn add<'a, S: Simd, Z: ScaleView<'a>>(&self, lines: &[[Line; TOGETHER]], sums: &mut Sums) {
        let mut totals = [[S::splat(0.0); BESIDE]; TOGETHER];
        if !Z::SUPER {
            for m in 0..TOGETHER {
                for p in 0..BESIDE {
                    totals[m][p] = S::load(&sums[m][p]);
                }
            }
        }
        assert!(lines.len() <= self.words.len().min(TILES));
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
            for m in 0..TOGETHER {
                for p in 0..BESIDE {
                    S::store(totals[m][p], &mut sums[m][p]);
                }
            }
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

    /// Adds `scale · Σ weight · x` of a tile (`N` is 8), or of one half of it.
    #[inline(always)]
    fn add_dots<S: Simd, const N: usize>(
        &self,
        lines: &[Line; TOGETHER],
        tile: usize,
        half: usize,
        totals: &mut [[S::F; BESIDE]; TOGETHER],
    ) {
        let [a, b] = lines;
        let words = &self.words[tile].as_chunks::<N>().0[half];
        let dots = S::word_dots(words, [part::<N>(a, half), part::<N>(b, half)]);
        let [s, t] = &self.scales[tile][half];
        let scales = [S::load(s), S::load(t)];
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
            let [s, t] = &self.mins[tile][half];
            let mins = [S::load(s), S::load(t)];
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
        let [s, t] = &self.outer[which];
        let outer = [S::load(s), S::load(t)];
        for m in 0..TOGETHER {
            for p in 0..BESIDE {
                let sum = S::fma(totals[m][p], outer[p], S::load(&sums[m][p]));
                S::store(sum, &mut sums[m][p]);
            }
        }
    }
}

/// The words of a tile (`N` is 8), or of one half of it.
#[inline(always)]
fn part<const N: usize>(line: &Line, half: usize) -> &[[i32; 2]; N] {
    &line.words.as_chunks().0[half]
}
