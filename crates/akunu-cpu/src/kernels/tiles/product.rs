//! Products of rows in tiles with packed weights.
//!
//! Weights are turned into tiles once for all rows: a stretch of columns of some panels at a time, small enough for the
//! second-level cache. With AMX integers become [`words`](super::words) and floats are [split](super::split); without, floats become
//! [`pairs`](super::pair_product).

use std::arch::x86_64::*;
use std::ops::Range;

use akunu_program::program::Activation;

use crate::Isa;
use crate::kernels::float::{Bf16, F16, F32};
use crate::kernels::int::{
    B2, B3, B4, B5, B6, B8, FloatScales, HalfScales, Iq4, ScaleView, SuperScales, Unpack,
};
use crate::kernels::product::Product;
use crate::kernels::rows::gate;
use crate::memory::Shared;
use crate::pack::{Codes, Form, Scales, TILE};
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};
use crate::step::TileForm;

use super::amx::{Stretch, Tiles, WHOLE, multiply_one, multiply_two};
use super::bytes::{Earlier, Meanwhile, PIECES, Target, Whole, multiply};
use super::pair_product::{Made, Packed};
use super::split::store_split;
use super::stretch::SMALLEST;
use super::unpack::{Exact, Floats, IntTile, Ints, Weights, tile_bytes};
use super::words::{LARGEST, Layout, STRETCH, STRETCH_STEPS, WORDS_BYTES, store_stretch};
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
    /// `[panel][step]`, or pairs of several panels after another; `[pair of two][panel][step]` of words; or decode rows that are
    /// laid out.
    pub(super) weights: Shared,
    /// `[pair][panel][output]`: scales of stretches of words.
    scales: Shared,
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

    /// Computes the sums of words, and writes them out if asked to: two panels by all rows, a stretch of columns at a time. The words
    /// that are next are made meanwhile.
    ///
    /// # Safety
    /// AMX is available.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run_words<'a, U: Unpack, Z: ScaleView<'a>>(&'a self) {
        // SAFETY: the caller's promise.
        let _tiles = unsafe { Tiles::configure(&WHOLE) };
        let layout = Layout::of(self.whole.product.matrix.cols);
        let sums = self.sums.start_of::<f32>(0, BLOCKS * PANELS * TILE_BYTES / size_of::<f32>());
        let (mut one, mut other) = (Whole::new(), Whole::new());
        let (mut now, mut before) = (&raw mut one, &raw mut other);
        let mut earlier = None;
        // SAFETY: the caller's promise, and tiles are configured. All that is written is within the scratch: there are at most
        // `BLOCKS` by `PANELS / 2` pairs. Where the second panel of a pair is missing, what is left in its place makes sums
        // that nobody reads.
        unsafe {
            let mut ready = Making::<U, Z>::new(self, layout, 0);
            ready.finish();
            while let Some(Pair { stretch, pair, words, outputs }) = ready.pair {
                let mut making = Making::new(self, layout, ready.number + 1);
                let start = |block: u32, stretch: usize| {
                    let at = block as usize * layout.block_bytes() + layout.tiles(stretch);
                    self.whole.tiles.as_ptr().wrapping_add(at)
                };
                let after = start(self.blocks[0], making.pair.map_or(stretch, |pair| pair.stretch));
                for (i, &block) in self.blocks.iter().enumerate() {
                    let from = block as usize * layout.block_bytes();
                    let tiles = &self.whole.tiles[from..from + layout.block_bytes()];
                    let a = tiles.as_ptr().add(layout.tiles(stretch));
                    let next = self.blocks.get(i + 1).map_or(after, |&block| start(block, stretch));
                    let b = [words.cast_const(), words.add(PANEL_WORDS).cast_const()];
                    multiply(a, next, b, layout.steps(stretch), now, &mut earlier, &mut making);
                    let target = Target {
                        sums: sums.add(tile_of(i, 2 * pair) * TILE_ROWS * LANES),
                        rows: tiles.as_ptr().add(layout.scales(stretch)).cast(),
                        outputs,
                        old: if stretch == 0 { 0 } else { __mmask16::MAX },
                    };
                    earlier = Some(Earlier::new(now, target));
                    (now, before) = (before, now);
                }
                making.finish();
                ready = making;
            }
            if let Some(earlier) = earlier {
                earlier.add_all();
            }
        }
        if self.writes_out {
            self.put();
        }
    }

    /// Whether all outputs of a panel are wanted.
    pub(super) fn is_whole(&self, panel: usize) -> bool {
        let slice = &self.whole.product.slice;
        slice.start <= panel * LANES && (panel + 1) * LANES <= slice.end
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
    fn put(&self) {
        let product = &self.whole.product;
        if product.bias.is_some() || !self.panels.clone().all(|panel| self.is_whole(panel)) {
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

/// A stretch of columns of two panels of a group.
#[derive(Clone, Copy)]
struct Pair {
    stretch: usize,
    pair: usize,
    /// Where the words of both panels are.
    words: *mut u8,
    /// What the sums of mixed bytes are to be multiplied by.
    outputs: *mut f32,
}

/// The words of a [`Pair`], made a tile at a time.
struct Making<'a, U, Z> {
    /// The how manyth of its group.
    number: usize,
    /// None after the last one.
    pair: Option<Pair>,
    /// As many panels as there are, and what their numbers are multiplied by.
    panels: [Option<(Ints<'a, U, Z>, __m512)>; 2],
    /// Those of the stretch.
    tiles: Range<usize>,
    /// How many have been made, of both panels together.
    made: usize,
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Making<'a, U, Z> {
    /// # Safety
    /// The processor has AVX-512 F, BW, VL, DQ and VNNI; words of the pair two before this one, and scales of the one three before,
    /// are not used any more.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn new(group: &'a Group<'_>, layout: Layout, number: usize) -> Self {
        let matrix = group.whole.product.matrix;
        let pairs = group.panels.len().div_ceil(2);
        let (stretch, pair) = (number / pairs, number % pairs);
        if stretch >= layout.stretches() {
            return Making { number, pair: None, panels: [None, None], tiles: 0..0, made: 0 };
        }
        let scratch = group.whole.scratch;
        // SAFETY: within the scratch, which is this worker's own.
        let (words, outputs) = unsafe {
            let words: *mut u8 = scratch.weights.start_of(0, 4 * PANEL_WORDS);
            let outputs: *mut f32 = scratch.scales.start_of(0, SCALES * 2 * LANES);
            (words.add(number % 2 * 2 * PANEL_WORDS), outputs.add(number % SCALES * 2 * LANES))
        };
        let first = stretch * (STRETCH / TILE);
        let tiles = first..(matrix.cols / TILE).min(first + STRETCH / TILE);
        debug_assert!(!tiles.is_empty(), "rows are of whole tiles");
        let made = |of: usize| {
            let panel = group.panels.start + 2 * pair + of;
            if !group.panels.contains(&panel) {
                return None;
            }
            // The next pair's are needed after these; what comes after the last pair of a stretch is not asked for.
            let weights = Ints::<U, Z>::view(matrix, panel, 2 * matrix.planes.end);
            // SAFETY: the caller's promise; there is room for the scales, and for words of a whole stretch.
            unsafe {
                let largest = weights.largest(tiles.clone());
                let some = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(largest, _mm512_set1_ps(SMALLEST));
                let inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(LARGEST), largest);
                let scale = _mm512_mul_ps(largest, _mm512_set1_ps(256.0 / LARGEST));
                _mm512_storeu_ps(outputs.add(LANES * of), scale);
                for tile in tiles.len()..2 * layout.steps(stretch) {
                    let to = words.add(of * PANEL_WORDS + lines_of(tile));
                    to.write_bytes(0, TILE_BYTES / 2);
                    to.add(TILE_BYTES).write_bytes(0, TILE_BYTES / 2);
                }
                Some((weights, inverse))
            }
        };
        let panels = [made(0), made(1)];
        Making { number, pair: Some(Pair { stretch, pair, words, outputs }), panels, tiles, made: 0 }
    }

    /// Makes what has not been made.
    ///
    /// # Safety
    /// As [`Making::new`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn finish(&mut self) {
        // SAFETY: the caller's promise.
        unsafe {
            while let Some(task) = self.next() {
                (0..PIECES).for_each(|piece| Self::piece(&task, piece));
            }
        }
    }
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Meanwhile for Making<'a, U, Z> {
    type Task = (IntTile<'a, U, Z>, *mut u8);

    #[inline(always)]
    unsafe fn next(&mut self) -> Option<Self::Task> {
        let Pair { words, .. } = self.pair?;
        let (of, tile) = (self.made / self.tiles.len(), self.made % self.tiles.len());
        let (weights, inverse) = self.panels.get(of)?.as_ref()?;
        self.made += 1;
        // SAFETY: the caller's promise; the tile is one of the stretch.
        unsafe {
            let to = words.add(of * PANEL_WORDS + lines_of(tile));
            Some((weights.tile(self.tiles.start + tile, *inverse), to))
        }
    }

    #[inline(always)]
    unsafe fn piece((tile, to): &Self::Task, piece: usize) {
        // SAFETY: the caller's promise; there is room for the lines of a tile.
        unsafe { tile.put(piece, *to) };
    }
}

/// Where the lines of a tile's words begin in a panel's words of a stretch: two tiles of columns make one of bytes.
fn lines_of(tile: usize) -> usize {
    tile / 2 * WORDS_BYTES + tile % 2 * (TILE_BYTES / 2)
}

/// Bytes from one panel's words of a stretch to the next one's.
const PANEL_WORDS: usize = STRETCH_STEPS * WORDS_BYTES;

/// Pairs whose scales are kept: the one that is multiplied, the one before it, whose last sums are yet to become floats, and the next.
const SCALES: usize = 3;

const _: () = assert!(4 * PANEL_WORDS <= Scratch::WEIGHTS_BYTES);
// A group of panels makes a whole stretch of the next product's columns.
const _: () = assert!(PANELS * LANES == STRETCH);

/// Where the sums of a block and a panel of a group are.
#[inline]
pub(super) fn tile_of(block: usize, panel: usize) -> usize {
    4 * (block / 2 * (PANELS / 2) + panel / 2) + 2 * (block % 2) + panel % 2
}
