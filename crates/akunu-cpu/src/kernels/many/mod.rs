//! Products of many rows, on processors without tiles: with AVX2, where registers are few and no instruction adds products of integers to
//! sums ([`mod@words`], [`mod@float`]), and with AVX-512 VNNI ([`mod@bytes`]).
//!
//! A stretch of a panel's weights is made into what is multiplied once for many rows, and stays in the first-level cache meanwhile.
//! Sums are added up in the same order as those of a single row, and go to memory and back between stretches, which changes nothing
//! in them: no bit is another one.

mod bytes;
mod float;
mod words;

use std::ops::Range;

use crate::Isa;
use crate::memory::Shared;
use crate::simd::LANES;

/// Fewer rows than this are not many: from here on, what is made of weights is worth making.
pub(super) const LEAST: usize = 8;

/// The same where bytes are multiplied. Fewer rows go by [two panels](super::two_panels), a tile at a time.
pub(super) const LEAST_OF_BYTES: usize = 24;

/// Room for what one worker multiplies.
pub(crate) struct Room {
    /// Of a stretch of one panel, or of two.
    weights: Shared,
    /// Integers of a stretch of rows, or of whole ones: `[row / TOGETHER][tile][row % TOGETHER]`.
    lines: Shared,
    /// `[panel][row][even, odd][output]`, or `[pair of panels][row][panel of these][output]`.
    sums: Shared,
}

impl Room {
    /// For an instruction set, if it multiplies many rows in a way of their own.
    pub(crate) fn new(isa: Isa) -> Option<Room> {
        match isa {
            Isa::Avx2 => Some(Room {
                weights: Shared::new(words::TILES * size_of::<words::Words>()),
                lines: Shared::new(words::ROWS * words::TILES * size_of::<words::Line>()),
                sums: Shared::new(words::PANELS * words::ROWS * LANES * size_of::<f32>()),
            }),
            Isa::Avx512 => Some(Room {
                weights: Shared::new(bytes::TILES * size_of::<bytes::Bytes>()),
                lines: Shared::new(bytes::TOGETHER * bytes::LINES * size_of::<bytes::Line>()),
                sums: Shared::new(bytes::PANELS * bytes::ROWS * LANES * size_of::<f32>()),
            }),
            Isa::Portable | Isa::Amx | Isa::Neon => None,
        }
    }
}

// There is as much room as floats need.
const _: () = assert!(float::COLUMNS * LANES * size_of::<f32>() <= words::TILES * size_of::<words::Words>());
const _: () = assert!(2 * float::PANELS * float::ROWS <= words::PANELS * words::ROWS);

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
