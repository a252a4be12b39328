//! Products of rows in [`pairs`] with packed floats, or with packed pairs.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use akunu_program::program::Activation;

use crate::kernels::float::Float;
use crate::pack::Matrix;
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};

use super::pairs::{
    self, Layout, PANEL_STRETCH, STRETCH, Stretch, Sums, VECTORS, Weights, store_panel, store_vectors,
};
use super::product::{BLOCKS, Group, PANELS, STEPS, is_whole, tile_of};
use super::{SPLIT_BYTES, TILE_BYTES, TILE_ROWS};

/// `i32`s of a stretch of one panel in the scratch: pairs, then scales.
const ROOM: usize = PANEL_STRETCH + LANES;

/// Where the pairs of weights come from.
pub(super) trait PairWeights {
    /// A stretch of a panel, which may be made at `room`.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW, VL, DQ and VNNI; at `room` there are [`ROOM`] numbers that nobody else uses.
    unsafe fn stretch(matrix: &Matrix, panel: usize, stretch: usize, room: *mut i32) -> Weights;
}

/// Pairs of packed floats, which are made when they are needed.
pub(super) struct Made<T>(PhantomData<T>);

impl<T: Float> PairWeights for Made<T> {
    #[inline]
    unsafe fn stretch(matrix: &Matrix, panel: usize, stretch: usize, room: *mut i32) -> Weights {
        let columns = stretch * STRETCH..matrix.cols.min((stretch + 1) * STRETCH);
        let panel = matrix.plane::<T::Bits>(panel, 0, matrix.cols * LANES).as_chunks().0;
        let scales = room.wrapping_add(PANEL_STRETCH).cast::<f32>();
        // SAFETY: the caller's promise.
        unsafe { store_panel::<T>(&panel[columns], room, scales) };
        Weights { pairs: room, scales }
    }
}

/// Packed pairs.
pub(super) struct Packed;

impl PairWeights for Packed {
    #[inline]
    unsafe fn stretch(matrix: &Matrix, panel: usize, stretch: usize, _: *mut i32) -> Weights {
        let layout = Layout::of(matrix.cols);
        let pairs: &[i32] = matrix.plane(panel, 0, matrix.cols.next_multiple_of(LANES) / 2 * LANES);
        let scales: &[f32] = matrix.plane(panel, matrix.planes.scales, layout.stretches() * LANES);
        Weights {
            pairs: pairs[stretch * PANEL_STRETCH..].as_ptr(),
            scales: scales[stretch * LANES..].as_ptr(),
        }
    }
}

impl Group<'_> {
    /// Computes the sums of pairs: of whole panels where they are to be in the end.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW, VL, DQ and VNNI.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) unsafe fn run_pairs<W: PairWeights>(&self) {
        let layout = Layout::of(self.whole.product.matrix.cols);
        for stretch in 0..layout.stretches() {
            let mut first = 0;
            while first < self.panels.len() {
                // SAFETY: the caller's promise.
                first += unsafe {
                    match self.panels.len() - first {
                        pairs::PANELS.. => self.some_pairs::<W, { pairs::PANELS }>(layout, stretch, first),
                        2.. => self.some_pairs::<W, 2>(layout, stretch, first),
                        _ => self.some_pairs::<W, 1>(layout, stretch, first),
                    }
                };
            }
        }
        if self.writes_out {
            self.put_panels(|panel| !is_whole(&self.whole.product, panel));
        }
    }

    /// The bias that the sums of a whole panel begin with, and where its outputs of the first row are to be, unless its sums are
    /// made in the scratch.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn outputs_of(&self, panel: usize) -> (__m512, Option<*mut f32>) {
        let product = &self.whole.product;
        if !is_whole(&self.whole.product, panel) {
            return (_mm512_setzero_ps(), None);
        }
        let column = panel * LANES - product.slice.start;
        let bias = product.bias.and_then(|bias| bias[column..].first_chunk());
        let start = self.writes_out.then(|| product.out.start.wrapping_add(column));
        (bias.map_or(_mm512_setzero_ps(), Avx512::load), start)
    }

    /// Adds the products of a stretch of `P` panels, which stays in the first-level cache, with all rows to the sums; returns `P`.
    ///
    /// # Safety
    /// As [`Group::run_pairs`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn some_pairs<W: PairWeights, const P: usize>(
        &self,
        layout: Layout,
        stretch: usize,
        first: usize,
    ) -> usize {
        let room = self.whole.scratch.weights.start_of::<i32>(0, pairs::PANELS * ROOM);
        let mut panels = [Weights { pairs: std::ptr::null(), scales: std::ptr::null() }; P];
        for (p, panel) in panels.iter_mut().enumerate() {
            let number = self.panels.start + first + p;
            // SAFETY: the caller's promise; the scratch is this worker's own and has room for a stretch of so many panels.
            *panel = unsafe { W::stretch(self.whole.product.matrix, number, stretch, room.add(p * ROOM)) };
        }
        let outputs: [_; P] = std::array::from_fn(|p| self.outputs_of(self.panels.start + first + p));
        let scratch = self.sums.start_of::<f32>(0, BLOCKS * PANELS * TILE_BYTES / size_of::<f32>());
        let stride = self.whole.product.out.stride;
        for (i, &block) in self.blocks.iter().enumerate() {
            let tiles = &self.whole.tiles[block as usize * layout.block_bytes()..][..layout.block_bytes()];
            let row = block as usize * TILE_ROWS;
            let sums = std::array::from_fn(|p| match outputs[p] {
                (bias, Some(start)) => Sums { start: start.wrapping_add(row * stride), stride, bias },
                (bias, None) => {
                    let start = scratch.wrapping_add(tile_of(i, first + p) * TILE_ROWS * LANES);
                    Sums { start, stride: LANES, bias }
                }
            });
            let stretch = Stretch {
                block: tiles.as_ptr(),
                rows: (self.whole.product.count - row).min(TILE_ROWS),
                layout,
                stretch,
                panels,
            };
            // SAFETY: as above, and the sums are this worker's own.
            unsafe { stretch.multiply(&sums) };
        }
        P
    }

    /// Writes `activation(these sums) · up` out as stretches of pairs, or without `up`.
    ///
    /// # Safety
    /// As [`Group::put_gated`]; the panels begin with a stretch.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) unsafe fn put_gated_pairs(
        &self,
        up: Option<&Group<'_>>,
        activation: Activation,
        out: *mut u8,
    ) {
        let slice = &self.whole.product.slice;
        let layout = Layout::of(slice.len());
        let stretch = (self.panels.start * LANES - slice.start) / STRETCH;
        let mut vectors = [_mm512_setzero_ps(); PANELS];
        for (i, &block) in self.blocks.iter().enumerate() {
            // SAFETY: the caller's promise.
            let block = unsafe { out.add(block as usize * layout.block_bytes()) };
            for row in 0..TILE_ROWS {
                let vectors = self.gated(up, activation, i, row, &mut vectors);
                // SAFETY: the caller's promise.
                unsafe { store_vectors(vectors, layout, stretch, block, row) };
            }
        }
    }
}

const _: () = assert!(pairs::PANELS * ROOM * size_of::<i32>() <= PANELS * STEPS * SPLIT_BYTES);
// A group of panels makes whole stretches of the next product's columns.
const _: () = assert!(PANELS.is_multiple_of(VECTORS));
