//! Products of rows in [`pairs`] with packed floats.

use std::arch::x86_64::*;

use akunu_program::program::Activation;

use crate::kernels::float::Float;
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};

use super::pairs::{self, Layout, STRETCH, Stretch, Sums, VECTORS};
use super::product::{BLOCKS, Group, PANELS, STEPS, tile_of};
use super::{SPLIT_BYTES, TILE_BYTES, TILE_ROWS};

impl Group<'_> {
    /// Computes the sums of pairs: of whole panels where they are to be in the end.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW, VL, DQ and VNNI.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) unsafe fn run_pairs<T: Float>(&self) {
        let layout = Layout::of(self.whole.product.matrix.cols);
        for stretch in 0..layout.stretches() {
            let mut first = 0;
            while first < self.panels.len() {
                // SAFETY: the caller's promise.
                first += unsafe {
                    match self.panels.len() - first {
                        pairs::PANELS.. => self.some_pairs::<T, { pairs::PANELS }>(layout, stretch, first),
                        2.. => self.some_pairs::<T, 2>(layout, stretch, first),
                        _ => self.some_pairs::<T, 1>(layout, stretch, first),
                    }
                };
            }
        }
        if self.writes_out {
            self.put_panels(|panel| !self.is_whole(panel));
        }
    }

    /// Where pairs have the sums of a block and a panel of the group.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn sums_of(&self, block: usize, panel: usize) -> Sums {
        let product = &self.whole.product;
        if !self.writes_out || !self.is_whole(self.panels.start + panel) {
            let sums = self.sums.start_of::<f32>(0, BLOCKS * PANELS * TILE_BYTES / size_of::<f32>());
            let start = sums.wrapping_add(tile_of(block, panel) * TILE_ROWS * LANES);
            return Sums { start, stride: LANES, bias: _mm512_setzero_ps() };
        }
        let column = (self.panels.start + panel) * LANES - product.slice.start;
        let row = self.blocks[block] as usize * TILE_ROWS;
        let bias = product.bias.and_then(|bias| bias[column..].first_chunk());
        Sums {
            start: product.out.start.wrapping_add(row * product.out.stride + column),
            stride: product.out.stride,
            bias: bias.map_or(_mm512_setzero_ps(), Avx512::load),
        }
    }

    /// Makes pairs of a stretch of `P` panels, which stay in the first-level cache, and adds their products with all rows to the
    /// sums; returns `P`.
    ///
    /// # Safety
    /// As [`Group::run_pairs`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn some_pairs<T: Float, const P: usize>(
        &self,
        layout: Layout,
        stretch: usize,
        first: usize,
    ) -> usize {
        let room = pairs::PANELS_STRETCH * size_of::<i32>();
        let weights = self.whole.scratch.weights.start_of::<u8>(0, room).cast::<i32>();
        let matrix = self.whole.product.matrix;
        let columns = stretch * STRETCH..matrix.cols.min((stretch + 1) * STRETCH);
        let mut scales = [[0.0; LANES]; P];
        for (p, scales) in scales.iter_mut().enumerate() {
            let panel = self.panels.start + first + p;
            let panel = matrix.plane::<T::Bits>(panel, 0, matrix.cols * LANES).as_chunks().0;
            // SAFETY: the caller's promise; the scratch is this worker's own and has room for a stretch.
            unsafe { pairs::store_panel::<T>(&panel[columns.clone()], weights, [p, P], scales) };
        }
        for (i, &block) in self.blocks.iter().enumerate() {
            let tiles = &self.whole.tiles[block as usize * layout.block_bytes()..][..layout.block_bytes()];
            let sums = std::array::from_fn(|p| self.sums_of(i, first + p));
            let stretch = Stretch {
                block: tiles.as_ptr(),
                rows: (self.whole.product.count - block as usize * TILE_ROWS).min(TILE_ROWS),
                layout,
                stretch,
                weights,
                scales: scales.as_flattened().as_ptr(),
            };
            // SAFETY: as above, and the sums are this worker's own.
            unsafe { stretch.multiply::<P>(&sums) };
        }
        P
    }

    /// Writes `activation(these sums) · up` out as stretches of pairs.
    ///
    /// # Safety
    /// As [`Group::put_gated`]; the panels begin with a stretch.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) unsafe fn put_gated_pairs(&self, up: &Group<'_>, activation: Activation, out: *mut u8) {
        let slice = &self.whole.product.slice;
        let layout = Layout::of(slice.len());
        let stretch = (self.panels.start * LANES - slice.start) / STRETCH;
        let mut vectors = [_mm512_setzero_ps(); PANELS];
        for (i, &block) in self.blocks.iter().enumerate() {
            // SAFETY: the caller's promise.
            let block = unsafe { out.add(block as usize * layout.block_bytes()) };
            for row in 0..TILE_ROWS {
                let vectors = self.gated(up, activation, i, row, &mut vectors);
                for (further, vectors) in vectors.chunks(VECTORS).enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { pairs::store_stretch(vectors, layout, stretch + further, block, row) };
                }
            }
        }
    }
}

const _: () = assert!(pairs::PANELS_STRETCH * size_of::<i32>() <= PANELS * STEPS * SPLIT_BYTES);
// A group of panels makes whole stretches of the next product's columns.
const _: () = assert!(PANELS.is_multiple_of(VECTORS));
