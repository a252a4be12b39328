//! Products of rows in tiles with packed weights.
//!
//! Weights are turned into tiles once for all rows: a stretch of columns of some panels at a time, small enough for the
//! second-level cache. Sums go to memory and back between stretches, which changes nothing in them.

use std::ops::Range;

use crate::kernels::float::{F16, F32};
use crate::kernels::int::{B2, B3, B4, B5, B6, B8, FloatScales, HalfScales, Iq4, SuperScales};
use crate::kernels::product::Product;
use crate::memory::Shared;
use crate::pack::{Codes, Form, Scales, TILE};
use crate::simd::LANES;
use crate::simd::avx512::Avx512;

use super::tiles::{Stretch, Tiles, multiply_one, multiply_two};
use super::unpack::{Exact, Floats, Ints, Weights, tile_bytes};
use super::{SPLIT_BYTES, TILE_BYTES, TILE_ROWS};

/// Panels whose tiles are made at a time.
const PANELS: usize = 8;

/// Tiles of a stretch of columns: two blocks of rows of it (32 KiB) stay in the first-level cache while panels pass.
const STEPS: usize = 8;

/// Blocks of rows worked on at a time.
const BLOCKS: usize = 32;

/// Room for one worker's tiles.
pub(crate) struct Scratch {
    /// `[panel][step]`.
    weights: Shared,
    /// `[pair of blocks][pair of panels][block][panel]` of tiles.
    sums: Shared,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch {
            weights: Shared::new(PANELS * STEPS * SPLIT_BYTES),
            sums: Shared::new(BLOCKS * PANELS * TILE_BYTES),
        }
    }
}

/// A product whose rows are in tiles.
pub(crate) struct TileProduct<'a> {
    /// Of which the rows come from `tiles`.
    pub(crate) product: Product<'a>,
    /// As [`super::row_bytes`] has it.
    pub(crate) tiles: &'a [u8],
    /// The blocks of sixteen rows to work on.
    pub(crate) blocks: &'a [u32],
    /// This worker's own.
    pub(crate) scratch: &'a Scratch,
}

/// The kernel for a form.
pub(crate) type TileProductFn = fn(&TileProduct<'_>);

/// Chooses the kernel for a form.
pub(crate) fn tile_product_fn(form: Form) -> TileProductFn {
    macro_rules! int {
        ($codes:ty, $scales:ty) => {
            // SAFETY: lowering chooses this kernel only where AMX is available.
            |p: &TileProduct<'_>| unsafe { p.run::<Ints<'_, $codes, $scales>>() }
        };
    }
    let (codes, scales) = match form {
        // SAFETY: as above.
        Form::F32 => return |p| unsafe { p.run::<Floats<'_, F32>>() },
        // SAFETY: as above.
        Form::F16 => return |p| unsafe { p.run::<Floats<'_, F16>>() },
        // SAFETY: as above.
        Form::Bf16 => return |p| unsafe { p.run::<Exact<'_>>() },
        Form::Int { codes, scales, .. } => (codes, scales),
    };
    for_codes_and_scales!(codes, scales, int)
}

impl TileProduct<'_> {
    /// # Safety
    /// AMX is available.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run<'a, W: Weights<'a>>(&'a self) {
        // SAFETY: the caller's promise.
        let _tiles = unsafe { Tiles::configure() };
        let steps = self.product.matrix.cols.div_ceil(TILE);
        let last = self.product.panels.end;
        for blocks in self.blocks.chunks(BLOCKS) {
            for first in self.product.panels.clone().step_by(PANELS) {
                let panels = first..last.min(first + PANELS);
                for from in (0..steps).step_by(STEPS) {
                    let stretch = from..steps.min(from + STEPS);
                    // SAFETY: the caller's promise, and tiles are configured.
                    unsafe {
                        self.unpack::<W>(panels.clone(), stretch.clone());
                        if from == 0 {
                            self.multiply::<W, true>(blocks, panels.len(), stretch);
                        } else {
                            self.multiply::<W, false>(blocks, panels.len(), stretch);
                        }
                    }
                }
                self.put(blocks, panels);
            }
        }
    }

    /// Makes tiles of a stretch of some panels.
    ///
    /// # Safety
    /// AMX is available.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn unpack<'a, W: Weights<'a>>(&'a self, panels: Range<usize>, stretch: Range<usize>) {
        let bytes = tile_bytes(W::SPLIT);
        let room = self.scratch.weights.start_of::<u8>(0, PANELS * STEPS * bytes);
        for (i, panel) in panels.enumerate() {
            let weights = W::view(self.product.matrix, panel);
            for (step, tile) in stretch.clone().enumerate() {
                // SAFETY: the scratch is this worker's own and has room for `PANELS` by `STEPS` tiles.
                unsafe { weights.unpack(tile, room.add((i * STEPS + step) * bytes)) };
            }
        }
    }

    /// Adds the products of a stretch to the sums.
    ///
    /// # Safety
    /// AMX is available, and tiles are configured on this thread.
    #[inline]
    unsafe fn multiply<'a, W: Weights<'a>, const FRESH: bool>(
        &self,
        blocks: &[u32],
        panels: usize,
        stretch: Range<usize>,
    ) {
        let block_bytes = self.product.matrix.cols.div_ceil(TILE) * SPLIT_BYTES;
        let panel_bytes = STEPS * tile_bytes(W::SPLIT);
        let weights = self.scratch.weights.start_of::<u8>(0, PANELS * panel_bytes);
        let sums = self.scratch.sums.start_of::<u8>(0, BLOCKS * PANELS * TILE_BYTES);
        let tiles = |block: u32| {
            let from = block as usize * block_bytes;
            self.tiles[from..from + block_bytes][stretch.start * SPLIT_BYTES..].as_ptr()
        };
        for (i, blocks) in blocks.chunks(2).enumerate() {
            let a = [tiles(blocks[0]), tiles(blocks[blocks.len() - 1])];
            for pair in 0..panels.div_ceil(2) {
                // SAFETY: within the scratch: there are at most `BLOCKS / 2` by `PANELS / 2` pairs. Where the second panel
                // of a pair is missing, what is left in its place makes sums that nobody reads.
                unsafe {
                    let b = weights.add(2 * pair * panel_bytes);
                    let b = [b, b.add(panel_bytes)].map(<*mut u8>::cast_const);
                    let c = sums.add((i * PANELS / 2 + pair) * 4 * TILE_BYTES);
                    let stretch = Stretch { a, b, steps: stretch.len() };
                    if blocks.len() == 2 {
                        match W::SPLIT {
                            true => multiply_two::<true, FRESH>(stretch, c),
                            false => multiply_two::<false, FRESH>(stretch, c),
                        }
                    } else {
                        match W::SPLIT {
                            true => multiply_one::<true, FRESH>(stretch, c),
                            false => multiply_one::<false, FRESH>(stretch, c),
                        }
                    }
                }
            }
        }
    }

    /// Writes the sums of some panels out.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn put(&self, blocks: &[u32], panels: Range<usize>) {
        use crate::simd::Simd;
        // SAFETY: the scratch is this worker's own.
        let sums: &[f32] =
            unsafe { self.scratch.sums.get(0, BLOCKS * PANELS * TILE_BYTES / size_of::<f32>()) };
        let sums = sums.as_chunks::<LANES>().0.as_chunks::<TILE_ROWS>().0;
        for (i, &block) in blocks.iter().enumerate() {
            let first = block as usize * TILE_ROWS;
            let rows = TILE_ROWS.min(self.product.count - first);
            for row in 0..rows {
                for (j, panel) in panels.clone().enumerate() {
                    let pair = i / 2 * PANELS / 2 + j / 2;
                    let tile = &sums[4 * pair + 2 * (i % 2) + j % 2];
                    self.product.put::<Avx512>(first + row, panel, Avx512::load(&tile[row]));
                }
            }
        }
    }
}
