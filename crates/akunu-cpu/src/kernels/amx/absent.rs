//! Processors without AMX: it is never available, so nothing here is ever called.

use crate::kernels::product::Product;
use crate::pack::Form;

const CALLED: &str = "there is no AMX on this kind of processor";

pub(crate) const TILE_ROWS: usize = 16;

pub(crate) fn row_bytes(_: usize) -> usize {
    unreachable!("{CALLED}")
}

#[allow(dead_code)] // as in the real one
pub(crate) struct Split<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) out: *mut u8,
}

impl Split<'_> {
    pub(crate) unsafe fn run(self) {
        unreachable!("{CALLED}")
    }
}

pub(crate) struct Scratch;

impl Scratch {
    pub(crate) fn new() -> Scratch {
        unreachable!("{CALLED}")
    }
}

#[allow(dead_code)] // as in the real one
pub(crate) struct TileProduct<'a> {
    pub(crate) product: Product<'a>,
    pub(crate) tiles: &'a [u8],
    pub(crate) blocks: &'a [u32],
    pub(crate) scratch: &'a Scratch,
}

pub(crate) type TileProductFn = fn(&TileProduct<'_>);

pub(crate) fn tile_product_fn(_: Form) -> TileProductFn {
    unreachable!("{CALLED}")
}
