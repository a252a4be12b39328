//! Products of many rows, where registers are few and no instruction adds products of integers to sums: AVX2 alone.
//!
//! A stretch of a panel's weights is made into what is multiplied once for many rows, and stays in the first-level cache meanwhile.
//! Sums are added up in the same order as those of a single row, and go to memory and back between stretches, which changes nothing
//! in them: no bit is another one.

mod float;
mod int;

use crate::memory::Shared;
use crate::simd::LANES;

/// Fewer rows than this are not many: from here on, what is made of weights is worth making.
pub(super) const LEAST: usize = 8;

/// Room for what one worker multiplies.
pub(crate) struct Room {
    /// Of a stretch of one panel.
    weights: Shared,
    /// Integers of a stretch of rows: `[row / TOGETHER][tile][row % TOGETHER]`.
    lines: Shared,
    /// `[panel][row][output]`, or `[panel][row][even, odd][output]`.
    sums: Shared,
}

impl Room {
    pub(crate) fn new() -> Room {
        Room {
            weights: Shared::new(int::TILES * size_of::<int::Words>()),
            lines: Shared::new(int::ROWS * int::TILES * size_of::<int::Line>()),
            sums: Shared::new(int::PANELS * int::ROWS * LANES * size_of::<f32>()),
        }
    }
}

// There is as much room as floats need.
const _: () = assert!(float::COLUMNS * LANES * size_of::<f32>() <= int::TILES * size_of::<int::Words>());
const _: () = assert!(2 * float::PANELS * float::ROWS <= int::PANELS * int::ROWS);

/// Into blocks of how many rows so many are cut: of about equal ones, since each makes the weights anew.
fn rows_each(count: usize, most: usize, together: usize) -> usize {
    assert!(most.is_multiple_of(together));
    count.div_ceil(count.div_ceil(most)).next_multiple_of(together)
}
