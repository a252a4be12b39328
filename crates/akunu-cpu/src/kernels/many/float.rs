//! Floats: weights are made `f32`, and as many rows are worked on together as there are registers for their sums.

use std::ops::Range;

use crate::kernels::float::{Float, FloatProduct};
use crate::simd::{LANES, Simd};

use super::{Room, blocks};

/// Rows worked on at a time at most.
pub(super) const ROWS: usize = 63;

/// Panels worked on at a time, while a stretch of the rows stays in the second-level cache.
pub(super) const PANELS: usize = 8;

/// Rows whose sums are in registers.
const TOGETHER: usize = 3;

/// Columns of a stretch: even, so that sums of even and of odd columns stay what they are.
pub(super) const COLUMNS: usize = 128;

const _: () = assert!(COLUMNS.is_multiple_of(2));

/// The sums of even and of odd columns of one row.
type Sums = [[f32; LANES]; 2];

impl<T: Float> FloatProduct<'_, T> {
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
        let matrix = self.product.matrix;
        let cols = matrix.cols;
        // SAFETY: a worker has one room, and one product at a time.
        let (weights, sums) = unsafe {
            let weights: &mut [f32] = room.weights.get_mut(0, COLUMNS * LANES);
            let sums: &mut [f32] = room.sums.get_mut(0, panels.len() * rows.len() * 2 * LANES);
            let sums: &mut [Sums] = sums.as_chunks_mut().0.as_chunks_mut().0;
            (weights.as_chunks_mut::<LANES>().0, sums)
        };
        sums.fill([[0.0; LANES]; 2]);
        for from in (0..cols).step_by(COLUMNS) {
            let columns = from..cols.min(from + COLUMNS);
            let weights = &mut weights[..columns.len()];
            for panel in panels.clone() {
                let stored = matrix.plane::<T::Bits>(panel, 0, cols * LANES).as_chunks().0;
                for (weights, stored) in weights.iter_mut().zip(&stored[columns.clone()]) {
                    S::store(T::load::<S>(stored), weights);
                }
                let first = (panel - panels.start) * rows.len();
                let sums = sums[first..first + rows.len()].as_chunks_mut().0;
                for (row, sums) in rows.clone().step_by(TOGETHER).zip(sums) {
                    if columns.end == cols {
                        (row..row + TOGETHER).for_each(|row| self.product.ask_for_outputs(row, panel));
                    }
                    let x = &self.x[row * cols + from..][..(TOGETHER - 1) * cols + columns.len()];
                    add::<S>(weights, x, cols, sums);
                }
            }
        }
        for (i, row) in rows.clone().enumerate() {
            for panel in panels.clone() {
                let [even, odd] = &sums[(panel - panels.start) * rows.len() + i];
                self.product.put::<S>(row, panel, S::add(S::load(even), S::load(odd)));
            }
        }
    }
}

/// Adds the products of a stretch with rows, which are `stride` apart, to their sums.
#[inline(always)]
fn add<S: Simd>(weights: &[[f32; LANES]], x: &[f32], stride: usize, sums: &mut [Sums; TOGETHER]) {
    assert!(x.len() >= (TOGETHER - 1) * stride + weights.len());
    let [mut even, mut odd] = [[S::splat(0.0); TOGETHER]; 2];
    for m in 0..TOGETHER {
        [even[m], odd[m]] = [S::load(&sums[m][0]), S::load(&sums[m][1])];
    }
    let (pairs, last) = weights.as_chunks::<2>();
    for (i, [w0, w1]) in pairs.iter().enumerate() {
        let (w0, w1) = (S::load(w0), S::load(w1));
        for m in 0..TOGETHER {
            // SAFETY: asserted above: there are as many columns of each row as weights.
            let (x0, x1) = unsafe {
                let at = x.as_ptr().add(m * stride + 2 * i);
                (*at, *at.add(1))
            };
            even[m] = S::fma(w0, S::splat(x0), even[m]);
            odd[m] = S::fma(w1, S::splat(x1), odd[m]);
        }
    }
    for w in last {
        let w = S::load(w);
        for m in 0..TOGETHER {
            even[m] = S::fma(w, S::splat(x[m * stride + weights.len() - 1]), even[m]);
        }
    }
    for m in 0..TOGETHER {
        S::store(even[m], &mut sums[m][0]);
        S::store(odd[m], &mut sums[m][1]);
    }
}
