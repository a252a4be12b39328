//! Products of many rows, where registers are few and no instruction adds products of integers to sums: AVX2 alone.
//!
//! A stretch of a panel's weights is made into what is multiplied once for many rows, and stays in the first-level cache meanwhile.
//! Sums are added up in the same order as those of a single row, and go to memory and back between stretches, which changes nothing
//! in them: no bit is another one.

mod float;
mod int;

use std::ops::Range;

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

/// The rows and panels that are worked on at a time: at most `rows.0` of as many rows, a multiple of `rows.1`, and at most `most` of the panels.
/// Blocks have about equally many rows, since each makes the weights anew.
fn blocks(
    count: usize,
    rows: (usize, usize),
    panels: &Range<usize>,
    most: usize,
) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let (most_rows, together) = rows;
    assert!(most_rows.is_multiple_of(together));
    let each = count.div_ceil(count.div_ceil(most_rows)).next_multiple_of(together);
    let cut = |all: Range<usize>, each| {
        all.clone().step_by(each).map(move |first| first..all.end.min(first + each))
    };
    let panels = panels.clone();
    cut(0..count, each)
        .flat_map(move |rows| cut(panels.clone(), most).map(move |panels| (rows.clone(), panels)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_about_equal_and_whole() {
        let blocks: Vec<_> = blocks(68, (64, 4), &(3..22), 16).collect();
        assert_eq!(blocks, [(0..36, 3..19), (0..36, 19..22), (36..68, 3..19), (36..68, 19..22)]);
    }
}
