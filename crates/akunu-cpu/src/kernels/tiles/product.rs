//! Products of rows in tiles with packed weights.
//!
//! Weights are turned into tiles once for all rows: a stretch of columns of some panels at a time, small enough for the
//! second-level cache. With AMX integers become [`words`](super::word_product) and floats are [split](super::split); without, floats
//! become [`pairs`](super::pair_product).

use std::arch::x86_64::*;
use std::ops::Range;

use akunu_program::program::Activation;

use crate::Isa;
use crate::kernels::float::{Bf16, F16, F32};
use crate::kernels::int::{B2, B3, B4, B5, B6, B8, Listed};
use crate::kernels::product::Product;
use crate::kernels::rows::gate;
use crate::kernels::scales::{FloatScales, HalfScales, NibbleScales, SuperScales};
use crate::memory::Shared;
use crate::pack::{Codes, Form, Scales, TILE};
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};
use crate::step::TileForm;

use super::amx::{Stretch, Tiles, WHOLE, multiply_one, multiply_two};
use super::pair_product::{Made, Packed};
use super::split::store_split;
use super::unpack::{Exact, Floats, Weights, tile_bytes};
use super::word_product::SCALES;
use super::words::{Layout, STRETCH, store_stretch};
use super::{SPLIT_BYTES, TILE_BYTES, TILE_ROWS};

/// Panels whose sums are made at a time, and whose tiles are, but for words.
pub(super) const PANELS: usize = 16;

/// Tiles of a stretch of columns. Tiles of all panels (1 MiB) stay in the second-level cache while rows pass, with the sums
/// of all rows; the longer a stretch, the rarer sums go to memory and back.
pub(super) const STEPS: usize = 32;

/// Blocks of rows worked on at a time.
pub(super) const BLOCKS: usize = 32;

/// Room for one worker's tiles.
pub(crate) struct Scratch {
    /// `[panel][step]`, or pairs of several panels after another; `[pair of two][panel][step]` of words.
    pub(super) weights: Shared,
    /// `[pair][panel][output]`: scales of stretches of words.
    pub(super) scales: Shared,
    /// Of a product, and of another one beside it: `[pair of blocks][pair of panels][block][panel]` of tiles.
    sums: [Shared; 2],
}

impl Scratch {
    /// Bytes of `weights`.
    pub(super) const WEIGHTS_BYTES: usize = PANELS * STEPS * SPLIT_BYTES;

    pub(crate) fn new() -> Scratch {
        Scratch {
            weights: Shared::new(Scratch::WEIGHTS_BYTES),
            scales: Shared::new(SCALES * 2 * LANES * size_of::<f32>()),
            sums: [(); 2].map(|()| Shared::new(BLOCKS * PANELS * TILE_BYTES)),
        }
    }

    /// Room for the sums of so many panels and a block of rows.
    ///
    /// # Safety
    /// Nobody else uses the room for sums meanwhile.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn sums_of_panels(&self, panels: usize) -> &mut [[[f32; LANES]; TILE_ROWS]] {
        // SAFETY: the caller's promise.
        let sums: &mut [f32] = unsafe { self.sums[0].get_mut(0, panels * TILE_ROWS * LANES) };
        sums.as_chunks_mut().0.as_chunks_mut().0
    }
}

/// Whether all outputs of a panel are wanted.
pub(super) fn is_whole(product: &Product<'_>, panel: usize) -> bool {
    product.slice.start <= panel * LANES && (panel + 1) * LANES <= product.slice.end
}

/// A product whose rows are in tiles.
pub(crate) struct TileProduct<'a> {
    /// Of which the rows come from `tiles`.
    pub(crate) product: Product<'a>,
    pub(crate) kernel: TileProductFn,
    /// In the form that the matrix asks for, as [`super::row_bytes`] has it.
    pub(crate) tiles: &'a [u8],
    /// The blocks of sixteen rows to work on.
    pub(crate) blocks: &'a [u32],
    /// This worker's own.
    pub(crate) scratch: &'a Scratch,
}

/// The kernel for a form.
pub(crate) type TileProductFn = fn(&Group<'_>);

/// As many blocks and panels of a product as are worked on at a time.
pub(crate) struct Group<'a> {
    pub(super) whole: &'a TileProduct<'a>,
    pub(super) blocks: &'a [u32],
    pub(super) panels: Range<usize>,
    pub(super) sums: &'a Shared,
    /// Whether the sums are to be written out. Those of a gate stay where they are.
    pub(super) writes_out: bool,
}

/// Chooses the kernel for a form.
pub(crate) fn tile_product_fn(isa: Isa, form: Form) -> TileProductFn {
    /// A kernel as a function.
    macro_rules! kernel {
        ($run:ident, $($types:ty),+) => {
            // SAFETY: lowering asks only for what `TileForm::of` has for an instruction set, and that is available.
            |g: &Group<'_>| unsafe { g.$run::<$($types),+>() }
        };
    }
    macro_rules! words {
        ($codes:ty, $scales:ty) => {
            kernel!(run_words, $codes, $scales)
        };
    }
    match (form, isa) {
        (Form::Int { codes, scales, .. }, _) => for_codes_and_scales!(codes, scales, words),
        (Form::F32, Isa::Amx) => kernel!(run, Floats<'_, F32>),
        (Form::F16, Isa::Amx) => kernel!(run, Floats<'_, F16>),
        (Form::Bf16, Isa::Amx) => kernel!(run, Exact<'_>),
        (Form::F32, _) => kernel!(run_pairs, Made<F32>),
        (Form::F16, _) => kernel!(run_pairs, Made<F16>),
        (Form::Bf16, _) => kernel!(run_pairs, Made<Bf16>),
        (Form::Pairs, _) => kernel!(run_pairs, Packed),
    }
}

impl TileProduct<'_> {
    /// Writes the product out.
    pub(crate) fn run(&self) {
        for blocks in self.blocks.chunks(BLOCKS) {
            for first in self.product.panels.clone().step_by(PANELS) {
                (self.kernel)(&Group { writes_out: true, ..self.group(blocks, first, 0) });
            }
        }
    }

    /// Writes `activation(this) · up` out as tiles, where `up` is as large as this, neither has a bias, and their slices
    /// begin with whole panels; where there are stretches, panels begin with one. `out` is where the first block's tiles begin.
    pub(crate) fn run_gated(
        &self,
        up: &TileProduct<'_>,
        activation: Activation,
        form: TileForm,
        out: *mut u8,
    ) {
        let between = up.product.panels.start.wrapping_sub(self.product.panels.start);
        for blocks in self.blocks.chunks(BLOCKS) {
            for first in self.product.panels.clone().step_by(PANELS) {
                let gate = self.group(blocks, first, 0);
                let up = up.group(blocks, first.wrapping_add(between), 1);
                (self.kernel)(&gate);
                (up.whole.kernel)(&up);
                // SAFETY: there are no tiles without AVX-512; these have room for all rows of a block, and these columns are
                // this worker's own.
                unsafe {
                    match form {
                        TileForm::Split => gate.put_gated(&up, activation, out),
                        TileForm::Words => gate.put_gated_words(&up, activation, out),
                        TileForm::Pairs => gate.put_gated_pairs(Some(&up), activation, out),
                    }
                }
            }
        }
    }

    /// Writes `activation(this)` out as pairs, which this is a product of. The slice begins with a whole panel and the panels with
    /// a stretch of pairs. `out` is where the first block's pairs begin.
    pub(crate) fn run_activated(&self, activation: Activation, out: *mut u8) {
        for blocks in self.blocks.chunks(BLOCKS) {
            for first in self.product.panels.clone().step_by(PANELS) {
                let group = self.group(blocks, first, 0);
                (self.kernel)(&group);
                // SAFETY: as in `run_gated`.
                unsafe { group.put_gated_pairs(None, activation, out) };
            }
        }
    }

    fn group<'a>(&'a self, blocks: &'a [u32], first: usize, room: usize) -> Group<'a> {
        let panels = first..self.product.panels.end.min(first + PANELS);
        Group { whole: self, blocks, panels, sums: &self.scratch.sums[room], writes_out: false }
    }
}

impl Group<'_> {
    /// Computes the sums of split tiles, and writes them out if asked to. They go to memory and back between stretches, which changes nothing in them.
    ///
    /// # Safety
    /// AMX is available.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run<'a, W: Weights<'a>>(&'a self) {
        // SAFETY: the caller's promise.
        let _tiles = unsafe { Tiles::configure(&WHOLE) };
        let steps = self.whole.product.matrix.cols.div_ceil(TILE);
        for from in (0..steps).step_by(STEPS) {
            let stretch = from..steps.min(from + STEPS);
            // SAFETY: the caller's promise, and tiles are configured.
            unsafe {
                self.unpack::<W>(stretch.clone());
                if from == 0 {
                    self.multiply::<W, true>(stretch);
                } else {
                    self.multiply::<W, false>(stretch);
                }
            }
        }
        if self.writes_out {
            self.put();
        }
    }

    /// Makes tiles of a stretch of the panels.
    ///
    /// # Safety
    /// AMX is available.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn unpack<'a, W: Weights<'a>>(&'a self, stretch: Range<usize>) {
        let bytes = tile_bytes(W::SPLIT);
        let room = self.whole.scratch.weights.start_of::<u8>(0, PANELS * STEPS * bytes);
        for (i, panel) in self.panels.clone().enumerate() {
            let weights = W::view(self.whole.product.matrix, panel);
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
    unsafe fn multiply<'a, W: Weights<'a>, const FRESH: bool>(&self, stretch: Range<usize>) {
        let block_bytes = self.whole.product.matrix.cols.div_ceil(TILE) * SPLIT_BYTES;
        let panel_bytes = STEPS * tile_bytes(W::SPLIT);
        let weights = self.whole.scratch.weights.start_of::<u8>(0, PANELS * panel_bytes);
        let sums = self.sums.start_of::<u8>(0, BLOCKS * PANELS * TILE_BYTES);
        let tiles = |block: u32| {
            let from = block as usize * block_bytes;
            self.whole.tiles[from..from + block_bytes][stretch.start * SPLIT_BYTES..].as_ptr()
        };
        for (i, blocks) in self.blocks.chunks(2).enumerate() {
            let a = [tiles(blocks[0]), tiles(blocks[blocks.len() - 1])];
            for pair in 0..self.panels.len().div_ceil(2) {
                // SAFETY: within the scratch: there are at most `BLOCKS / 2` by `PANELS / 2` pairs. Where the second panel
                // of a pair is missing, what is left in its place makes sums that nobody reads.
                unsafe {
                    let b = weights.add(2 * pair * panel_bytes);
                    let b = [b.cast_const(), b.add(panel_bytes).cast_const()];
                    let c = sums.add((i * PANELS / 2 + pair) * 4 * TILE_BYTES);
                    let stretch = Stretch { a, b, steps: stretch.len() };
                    match (blocks.len() == 2, W::SPLIT) {
                        (true, true) => multiply_two::<true, FRESH>(stretch, c),
                        (true, false) => multiply_two::<false, FRESH>(stretch, c),
                        (false, true) => multiply_one::<true, FRESH>(stretch, c),
                        (false, false) => multiply_one::<false, FRESH>(stretch, c),
                    }
                }
            }
        }
    }

    /// The sums, which the caller has made.
    #[inline(always)]
    fn tiles(&self) -> &[[[f32; LANES]; TILE_ROWS]] {
        // SAFETY: the scratch is this worker's own.
        let sums: &[f32] = unsafe { self.sums.get(0, BLOCKS * PANELS * TILE_BYTES / size_of::<f32>()) };
        sums.as_chunks::<LANES>().0.as_chunks::<TILE_ROWS>().0
    }

    /// Writes the sums out.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) fn put(&self) {
        let product = &self.whole.product;
        if product.bias.is_some() || !self.panels.clone().all(|panel| is_whole(product, panel)) {
            self.put_panels(|_| true);
            return;
        }
        let tiles = self.tiles();
        let (start, end) = (self.panels.start * LANES, self.panels.end * LANES);
        for (i, row) in self.rows() {
            let at = row * product.out.stride + start - product.slice.start;
            // SAFETY: rows below `count` and the columns of this product's panels belong to this worker alone.
            let out: &mut [f32] =
                unsafe { std::slice::from_raw_parts_mut(product.out.start.add(at), end - start) };
            for (j, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
                Avx512::store(Avx512::load(&tiles[tile_of(i, j)][row % TILE_ROWS]), out);
            }
        }
    }

    /// Writes the sums of some panels out, as far as they are wanted.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) fn put_panels(&self, some: impl Fn(usize) -> bool) {
        let tiles = self.tiles();
        for (i, row) in self.rows() {
            for panel in self.panels.clone().filter(|&panel| some(panel)) {
                let tile = &tiles[tile_of(i, panel - self.panels.start)];
                self.whole.product.put::<Avx512>(row, panel, Avx512::load(&tile[row % TILE_ROWS]));
            }
        }
    }

    /// The rows there are of each block, with the number of the block among these.
    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        self.blocks.iter().enumerate().flat_map(|(i, &block)| {
            let first = block as usize * TILE_ROWS;
            (first..self.whole.product.count.min(first + TILE_ROWS)).map(move |row| (i, row))
        })
    }

    /// Writes `activation(these sums) · up` out as tiles.
    ///
    /// # Safety
    /// The processor has AVX-512; `out` has tiles for all blocks and columns.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn put_gated(&self, up: &Group<'_>, activation: Activation, out: *mut u8) {
        let slice = &self.whole.product.slice;
        let block_bytes = slice.len().div_ceil(TILE) * SPLIT_BYTES;
        let (gates, ups) = (self.tiles(), up.tiles());
        for (i, &block) in self.blocks.iter().enumerate() {
            for (j, panel) in self.panels.clone().enumerate() {
                let vector = panel - slice.start / LANES;
                let at = block as usize * block_bytes + vector / 2 * SPLIT_BYTES + vector % 2 * 32;
                let (gates, ups) = (&gates[tile_of(i, j)], &ups[tile_of(i, j)]);
                for (row, (g, u)) in gates.iter().zip(ups).enumerate() {
                    let x = gate::<Avx512>(activation, Avx512::load(g), Avx512::load(u));
                    // SAFETY: the caller's promise.
                    unsafe { store_split(x, out.add(at + 64 * row)) };
                }
            }
        }
    }

    /// Writes `activation(these sums) · up` out as a stretch of words.
    ///
    /// # Safety
    /// As [`Group::put_gated`]; the panels begin with a stretch.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn put_gated_words(&self, up: &Group<'_>, activation: Activation, out: *mut u8) {
        let slice = &self.whole.product.slice;
        let layout = Layout::of(slice.len());
        let stretch = (self.panels.start * LANES - slice.start) / STRETCH;
        let mut vectors = [_mm512_setzero_ps(); PANELS];
        for (i, &block) in self.blocks.iter().enumerate() {
            // SAFETY: the caller's promise.
            let block = unsafe { out.add(block as usize * layout.block_bytes()) };
            for row in 0..TILE_ROWS {
                let vectors = self.gated(Some(up), activation, i, row, &mut vectors);
                // SAFETY: the caller's promise.
                unsafe { store_stretch(vectors, layout, stretch, block, row) };
            }
        }
    }

    /// `activation(these sums) · up` of one row of a block, or without `up`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) fn gated<'v>(
        &self,
        up: Option<&Group<'_>>,
        activation: Activation,
        block: usize,
        row: usize,
        vectors: &'v mut [__m512; PANELS],
    ) -> &'v [__m512] {
        let vectors = &mut vectors[..self.panels.len()];
        for (j, vector) in vectors.iter_mut().enumerate() {
            let tile = tile_of(block, j);
            let up = up.map_or(Avx512::splat(1.0), |up| Avx512::load(&up.tiles()[tile][row]));
            *vector = gate::<Avx512>(activation, Avx512::load(&self.tiles()[tile][row]), up);
        }
        vectors
    }
}

// A group of panels makes a whole stretch of the next product's columns.
const _: () = assert!(PANELS * LANES == STRETCH);

/// Where the sums of a block and a panel of a group are.
#[inline]
pub(super) fn tile_of(block: usize, panel: usize) -> usize {
    4 * (block / 2 * (PANELS / 2) + panel / 2) + 2 * (block % 2) + panel % 2
}
