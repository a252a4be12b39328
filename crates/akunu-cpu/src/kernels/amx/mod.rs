//! Prompt rows on processors with AMX: products of bf16 tiles.
//!
//! A number is split into two of bf16, `x = high + low` to 16 bits, and a product of splits is
//! `high·high + high·low + low·high`: what is left out is below 2⁻¹⁶ of it. A *tile* is sixteen rows of 64 bytes:
//!
//! | tile | row | holds |
//! |---|---|---|
//! | of activations | row `r` of sixteen | 32 consecutive columns |
//! | of weights | pair `p` of columns | columns `2 p` and `2 p + 1` of each of a panel's sixteen rows |
//! | of sums | row `r` of sixteen | `f32` for each of a panel's sixteen rows |
//!
//! A sum is added up tile by tile in the order of the columns, whatever its neighbours are.

mod attention;
mod product;
mod split;
mod tiles;
mod unpack;

pub(crate) use attention::{AttentionScratch, QUERIES_TOGETHER, TileAttention};
pub(crate) use product::{Scratch, TileProduct, TileProductFn, tile_product_fn};
pub(crate) use split::Split;
pub(crate) use tiles::is_available;

use crate::pack::TILE;
use crate::simd::LANES;

/// Rows of a tile: rows of the batch that are worked on together.
pub(crate) const TILE_ROWS: usize = 16;

/// Bytes of a tile.
const TILE_BYTES: usize = 64 * TILE_ROWS;

/// Bytes of a split tile: the high numbers, then the low ones.
const SPLIT_BYTES: usize = 2 * TILE_BYTES;

const _: () = assert!(TILE_ROWS == LANES && TILE * size_of::<u16>() == 64);

/// Bytes each row of a buffer of split activations takes: `[row / 16][tile][high, low][row % 16][32]` of bf16.
pub(crate) fn row_bytes(width: usize) -> usize {
    width.div_ceil(TILE) * SPLIT_BYTES / TILE_ROWS
}
