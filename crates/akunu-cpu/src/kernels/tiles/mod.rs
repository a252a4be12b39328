//! Prompt rows on processors with AVX-512, and [many decode rows](mod@several) with AMX: blocks of sixteen rows, which are multiplied together.
//!
//! Without AMX a number is an integer of 16 bits under the scale of its stretch of columns, and instructions multiply [pairs] of
//! columns.
//!
//! With AMX products are of tiles. With integer weights a number is a [word](words), 16 bits under the scale of its stretch of columns, and a product is three of
//! tiles of bytes. With weights that are floats, and in attention, a number is split into two of bf16, `x = high + low` to 16 bits, and a product of splits is
//! `high·high + high·low + low·high`: what is left out is below 2⁻¹⁵ of it. A *tile* is sixteen rows of 64 bytes:
//!
//! | tile | row | holds |
//! |---|---|---|
//! | of activations | row `r` of sixteen | 32 consecutive columns |
//! | of weights | pair `p` of columns | columns `2 p` and `2 p + 1` of each of a panel's sixteen rows |
//! | of sums | row `r` of sixteen | `f32` for each of a panel's sixteen rows |
//!
//! A sum is added up tile by tile, or stretch by stretch, in the order of the columns, whatever its neighbours are.

/// A tile instruction and six that do nothing. Processors take six instructions at a time, and where another thread runs on the same
/// core, those that multiply, load or store tiles take nearly twice as long if two are among the same six.
macro_rules! apart {
    ($code:expr) => {
        concat!($code, "\nnop\nnop\nnop\nnop\nnop\nnop\n")
    };
}

/// One tile instruction, with a place in memory or without. None is moved past another, nor past a read or write of memory.
macro_rules! tile {
    ($code:expr) => {
        asm!(apart!($code), options(nostack))
    };
    ($code:expr, $at:expr, $line:expr) => {
        asm!(apart!($code), at = in(reg) $at, line = in(reg) $line as usize, options(nostack))
    };
}

mod amx;
mod attention;
mod bytes;
mod laid;
mod pair_product;
mod pairs;
mod product;
mod scaled;
mod several;
mod split;
mod stream;
mod stretch;
mod unpack;
mod word_product;
mod words;

pub(crate) use amx::is_available;
pub(crate) use attention::{AttentionScratch, QUERIES_TOGETHER, TileAttention};
pub(crate) use laid::{Laid, LaidForm, Lay};
pub(crate) use pairs::{Pairs, pack_pairs};
pub(crate) use product::{Scratch, TileProduct, TileProductFn, tile_product_fn};
pub(crate) use several::{Lines, SeveralFn, are_several, several_fn};
pub(crate) use split::Split;
pub(crate) use words::Words;

use crate::pack::TILE;
use crate::simd::LANES;
use crate::step::TileForm;

/// Rows of a tile: rows of the batch that are worked on together.
pub(crate) const TILE_ROWS: usize = 16;

/// Up to so many rows are laid out in half as many lines as a tile has.
const HALF: usize = TILE_ROWS / 2;

/// Bytes of a tile.
const TILE_BYTES: usize = 64 * TILE_ROWS;

/// Bytes of a split tile: the high numbers, then the low ones.
const SPLIT_BYTES: usize = 2 * TILE_BYTES;

const _: () = assert!(TILE_ROWS == LANES && TILE * size_of::<u16>() == 64);

/// Bytes each row of a buffer of tiles takes. Split activations: `[row / 16][tile][high, low][row % 16][32]` of bf16. Words:
/// `[row / 16]` of `[tile][high, low][row % 16][64]` bytes, followed by scales. Pairs: as [`pairs::Layout`] has them.
pub(crate) fn row_bytes(form: TileForm, width: usize) -> usize {
    match form {
        TileForm::Split => width.div_ceil(TILE) * SPLIT_BYTES / TILE_ROWS,
        TileForm::Words => words::Layout::of(width).block_bytes() / TILE_ROWS,
        TileForm::Pairs => pairs::Layout::of(width).block_bytes() / TILE_ROWS,
    }
}

/// Panels of a gate that one worker takes at a time, where the result is to be in this form.
pub(crate) fn gate_panels(form: TileForm) -> usize {
    match form {
        TileForm::Split => 1,
        TileForm::Words => words::STRETCH / LANES,
        TileForm::Pairs => pairs::VECTORS,
    }
}
