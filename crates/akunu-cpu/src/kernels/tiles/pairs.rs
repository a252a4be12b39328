//! Products by AVX-512 alone: numbers are integers of 16 bits under one scale for each stretch of columns, and an instruction
//! multiplies two columns of sixteen outputs.
//!
//! Sums of a stretch are exact in 32 bits. What keeps them from overflowing is that an activation is at most [`LARGEST`], and the
//! integers of a weight's stretch at most [`LARGEST_SUM`] all together.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::kernels::float::{F32, Float};
use crate::pack::PAIRS_STRETCH;
use crate::simd::LANES;
use crate::simd::avx512::Avx512;

use super::TILE_ROWS;
use super::stretch::{self, SMALLEST};

/// Columns under one scale.
pub(super) const STRETCH: usize = PAIRS_STRETCH;

/// Vectors of a stretch.
pub(super) const VECTORS: usize = STRETCH / LANES;

/// Pairs of columns of a stretch.
const PAIRS: usize = STRETCH / 2;

/// Rows worked on together.
const ROWS: usize = 4;

/// Panels worked on together at most: with [`ROWS`], each number that is read serves four products.
pub(super) const PANELS: usize = 4;

/// `i32`s of the pairs of a stretch of a block: `[row][pair]`.
const BLOCK_STRETCH: usize = TILE_ROWS * PAIRS;

/// `i32`s of the pairs of a stretch of a panel: `[pair][16 outputs]`.
pub(super) const PANEL_STRETCH: usize = PAIRS * LANES;

/// Stretches of a row that become pairs together: what each waits for, its largest number and a division, is long in coming.
const TOGETHER: usize = 2;

/// The largest integer of an activation.
const LARGEST: f32 = (1 << 14) as f32;

/// The largest sum of the magnitudes of the weights of a stretch, with room for as many roundings.
const LARGEST_SUM: f32 = ((1 << 17) - STRETCH) as f32;

/// The largest weight.
const LARGEST_WEIGHT: f32 = (i16::MAX - 1) as f32;

/// Where the pairs of a block of sixteen rows lie: `[stretch][row][pair]`, then `[stretch][row]` of scales.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    width: usize,
}

impl Layout {
    #[inline]
    pub(super) fn of(width: usize) -> Layout {
        Layout { width }
    }

    #[inline]
    pub(super) fn stretches(self) -> usize {
        self.width.div_ceil(STRETCH)
    }

    /// Vectors of columns that a stretch has. What is missing of the last one is zero.
    #[inline]
    pub(super) fn vectors(self, stretch: usize) -> usize {
        (self.width - stretch * STRETCH).min(STRETCH).div_ceil(LANES)
    }

    #[inline]
    pub(super) fn block_bytes(self) -> usize {
        self.stretches() * (BLOCK_STRETCH * size_of::<i32>() + TILE_ROWS * size_of::<f32>())
    }

    /// Where the pairs of a row's stretch begin in a block.
    #[inline]
    fn pairs(self, stretch: usize, line: usize) -> usize {
        size_of::<i32>() * (stretch * BLOCK_STRETCH + line * PAIRS)
    }

    /// Where the scale of a row's stretch is in a block.
    #[inline]
    fn scale(self, stretch: usize, line: usize) -> usize {
        let scales = self.stretches() * BLOCK_STRETCH * size_of::<i32>();
        scales + size_of::<f32>() * (stretch * TILE_ROWS + line)
    }
}

/// Turns one row of activations into pairs.
pub(crate) struct Pairs<'a> {
    pub(crate) x: &'a [f32],
    /// Where the row's block begins.
    pub(crate) block: *mut u8,
    /// Which of the block's rows it is.
    pub(crate) line: usize,
}

impl Pairs<'_> {
    /// # Safety
    /// The processor has AVX-512 F, the block has room for rows as wide as this, and nobody else touches this row.
    #[target_feature(enable = "avx512f")]
    pub(crate) unsafe fn run(self) {
        let layout = Layout::of(self.x.len());
        for (i, x) in self.x.chunks(TOGETHER * STRETCH).enumerate() {
            let vectors = stretch::load::<{ TOGETHER * VECTORS }>(x);
            let vectors = &vectors[..x.len().div_ceil(LANES)];
            // SAFETY: the caller's promise.
            unsafe { store_vectors(vectors, layout, i * TOGETHER, self.block, self.line) };
        }
    }
}

/// Writes columns of one row, from the `first`th stretch on.
///
/// # Safety
/// As [`Pairs::run`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store_vectors(x: &[__m512], layout: Layout, first: usize, block: *mut u8, line: usize) {
    let (together, rest) = x.as_chunks::<{ TOGETHER * VECTORS }>();
    let after = first + together.len() * TOGETHER;
    // SAFETY: the caller's promise.
    unsafe {
        for (i, x) in together.iter().enumerate() {
            store_stretches(x.as_chunks().0, layout, first + i * TOGETHER, block, line);
        }
        for (i, x) in rest.chunks(VECTORS).enumerate() {
            let mut whole = [_mm512_setzero_ps(); VECTORS];
            whole[..x.len()].copy_from_slice(x);
            store_stretches(&[whole], layout, after + i, block, line);
        }
    }
}

/// Writes stretches of columns of one row, from the `first`th on.
///
/// # Safety
/// As [`Pairs::run`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_stretches(
    x: &[[__m512; VECTORS]],
    layout: Layout,
    first: usize,
    block: *mut u8,
    line: usize,
) {
    let mut inverses = [0.0; TOGETHER];
    for (i, (inverse, x)) in inverses.iter_mut().zip(x).enumerate() {
        let largest = stretch::largest(x);
        *inverse = if largest > SMALLEST { LARGEST / largest } else { 0.0 };
        // SAFETY: the caller's promise.
        unsafe { block.add(layout.scale(first + i, line)).cast::<f32>().write(largest / LARGEST) };
    }
    for (i, (inverse, x)) in inverses.into_iter().zip(x).enumerate() {
        // SAFETY: the caller's promise; there is room for whole stretches.
        unsafe {
            let to = block.add(layout.pairs(first + i, line)).cast::<__m256i>();
            for (i, &x) in x.iter().enumerate() {
                let words = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse)));
                _mm256_storeu_si256(to.add(i), _mm512_cvtepi32_epi16(words));
            }
        }
    }
}

/// Makes pairs of a panel of floats, `[column][16 outputs]`, with their scales: `[pair][16 outputs]` and `[stretch][16 outputs]`.
///
/// # Safety
/// The processor has AVX-512 F, BW, VL, DQ and VNNI.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(crate) unsafe fn pack_pairs(columns: &[[f32; LANES]], pairs: &mut [i32], scales: &mut [f32]) {
    let stretches = columns.chunks(STRETCH).zip(pairs.chunks_mut(PANEL_STRETCH));
    for ((columns, pairs), scales) in stretches.zip(scales.chunks_mut(LANES)) {
        assert!(pairs.len() == columns.len().next_multiple_of(LANES) / 2 * LANES && scales.len() == LANES);
        // SAFETY: the caller's promise, and there is room.
        unsafe { store_panel::<F32>(columns, pairs.as_mut_ptr(), scales.as_mut_ptr()) };
    }
}

/// Writes the pairs of a stretch of one panel to `to`, and the scale of each of its outputs to `scales`. `columns` are its
/// numbers; what they lack of whole vectors is zero.
///
/// # Safety
/// The processor has AVX-512 F, BW, VL, DQ and VNNI; there are as many vectors as pairs at `to`, and one at `scales`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn store_panel<T: Float>(columns: &[[T::Bits; LANES]], to: *mut i32, scales: *mut f32) {
    let (mut sum, mut most) = (_mm512_setzero_ps(), _mm512_setzero_ps());
    for column in columns {
        let size = _mm512_abs_ps(T::load::<Avx512>(column));
        sum = _mm512_add_ps(sum, size);
        most = _mm512_max_ps(most, size);
    }
    let by_most = _mm512_mul_ps(most, _mm512_set1_ps(1.0 / LARGEST_WEIGHT));
    // Of the second if it is not a number.
    let scale = _mm512_max_ps(by_most, _mm512_mul_ps(sum, _mm512_set1_ps(1.0 / LARGEST_SUM)));
    let some = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(scale, _mm512_set1_ps(SMALLEST));
    let inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(1.0), scale);
    // SAFETY: the caller's promise.
    unsafe { _mm512_storeu_ps(scales, scale) };
    let word = |k: usize| match columns.get(k) {
        Some(column) => _mm512_cvtps_epi32(_mm512_mul_ps(T::load::<Avx512>(column), inverse)),
        None => _mm512_setzero_si512(),
    };
    for pair in 0..columns.len().next_multiple_of(LANES) / 2 {
        let (even, odd) = (word(2 * pair), word(2 * pair + 1));
        let words = _mm512_mask_blend_epi16(0xaaaa_aaaa, even, _mm512_slli_epi32::<16>(odd));
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(to.add(pair * LANES).cast(), words) };
    }
}

/// `sums + w · x`, the products of both halves of each lane. As an intrinsic, every second one would become two instructions: the
/// compiler takes a chain of them for slow, and does not see how many there are side by side.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn add_products(mut sums: __m512i, w: __m512i, x: __m512i) -> __m512i {
    // SAFETY: registers alone.
    unsafe {
        asm!(
            "vpdpwssd {sums}, {w}, {x}",
            sums = inout(zmm_reg) sums,
            w = in(zmm_reg) w,
            x = in(zmm_reg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Where the sums of a panel go.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// Of the block's first row.
    pub(super) start: *mut f32,
    /// Elements from one row to the next.
    pub(super) stride: usize,
    /// What the first stretch is added to.
    pub(super) bias: __m512,
}

/// A stretch of a panel.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    /// `[pair][output]`.
    pub(super) pairs: *const i32,
    /// `[output]`.
    pub(super) scales: *const f32,
}

/// A stretch of the rows of a block by some panels.
pub(super) struct Stretch<const P: usize> {
    /// The block.
    pub(super) block: *const u8,
    /// How many of its rows are wanted.
    pub(super) rows: usize,
    pub(super) layout: Layout,
    pub(super) stretch: usize,
    pub(super) panels: [Weights; P],
}

impl<const P: usize> Stretch<P> {
    /// Adds the products to the sums of each panel. Those of the first stretch begin with the bias.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW, VL, DQ and VNNI; pairs, scales and sums are there and are the caller's.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) unsafe fn multiply(&self, sums: &[Sums; P]) {
        let mut line = 0;
        while line < self.rows {
            // SAFETY: the caller's promise.
            line += unsafe {
                match (self.rows - line, self.stretch) {
                    (ROWS.., 0) => self.lines::<ROWS, true>(line, sums),
                    (ROWS.., _) => self.lines::<ROWS, false>(line, sums),
                    (_, 0) => self.lines::<1, true>(line, sums),
                    _ => self.lines::<1, false>(line, sums),
                }
            };
        }
    }

    /// `R` rows; returns `R`. The first stretch is told apart here, and not for each sum.
    ///
    /// # Safety
    /// As [`Stretch::multiply`].
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn lines<const R: usize, const FIRST: bool>(&self, line: usize, sums: &[Sums; P]) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let x = self.block.add(self.layout.pairs(self.stretch, line)).cast::<i32>();
            let mut dots = [[_mm512_setzero_si512(); P]; R];
            // Two pairs a turn: a vector has eight.
            for turn in 0..self.layout.vectors(self.stretch) * (LANES / 4) {
                for pair in 2 * turn..2 * turn + 2 {
                    let mut w = [_mm512_setzero_si512(); P];
                    for (p, w) in w.iter_mut().enumerate() {
                        *w = _mm512_loadu_si512(self.panels[p].pairs.add(pair * LANES).cast());
                    }
                    for (r, dots) in dots.iter_mut().enumerate() {
                        let x = _mm512_set1_epi32(x.add(r * PAIRS + pair).read());
                        for p in 0..P {
                            dots[p] = add_products(dots[p], w[p], x);
                        }
                    }
                }
            }
            let scales = self.block.add(self.layout.scale(self.stretch, line)).cast::<f32>();
            let mut rows = [_mm512_setzero_ps(); R];
            for (r, row) in rows.iter_mut().enumerate() {
                *row = _mm512_set1_ps(scales.add(r).read());
            }
            for (p, sums) in sums.iter().enumerate() {
                let outputs = _mm512_loadu_ps(self.panels[p].scales);
                let mut to = sums.start.add(line * sums.stride);
                for (dots, row) in dots.iter().zip(rows) {
                    let dot = _mm512_mul_ps(_mm512_cvtepi32_ps(dots[p]), outputs);
                    let sum = if FIRST { sums.bias } else { _mm512_loadu_ps(to) };
                    _mm512_storeu_ps(to, _mm512_fmadd_ps(dot, row, sum));
                    to = to.wrapping_add(sums.stride);
                }
            }
        }
        R
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// The sums of one panel by one block, with the columns of both as `number(row or output, column)` has them.
    fn product(
        width: usize,
        x: impl Fn(usize, usize) -> f32,
        w: impl Fn(usize, usize) -> f32,
    ) -> [[f32; LANES]; TILE_ROWS] {
        let layout = Layout::of(width);
        let mut block = vec![0_i32; layout.block_bytes() / size_of::<i32>()];
        let mut weights = vec![0; PAIRS * LANES];
        let mut sums = [[0.0; LANES]; TILE_ROWS];
        // SAFETY: the caller has looked for AVX-512; all memory is of the size that the layout asks for.
        unsafe {
            for line in 0..TILE_ROWS {
                let row: Vec<f32> = (0..width).map(|k| x(line, k)).collect();
                Pairs { x: &row, block: block.as_mut_ptr().cast(), line }.run();
            }
            for stretch in 0..layout.stretches() {
                let columns = stretch * STRETCH..width.min((stretch + 1) * STRETCH);
                let columns: Vec<[f32; LANES]> =
                    columns.map(|k| std::array::from_fn(|output| w(output, k))).collect();
                let mut scales = [0.0; LANES];
                store_panel::<F32>(&columns, weights.as_mut_ptr(), scales.as_mut_ptr());
                let stretch = Stretch {
                    block: block.as_ptr().cast(),
                    rows: TILE_ROWS,
                    layout,
                    stretch,
                    panels: [Weights { pairs: weights.as_ptr(), scales: scales.as_ptr() }],
                };
                let start = sums.as_flattened_mut().as_mut_ptr();
                stretch.multiply(&[Sums { start, stride: LANES, bias: _mm512_setzero_ps() }]);
            }
        }
        sums
    }

    #[test]
    fn sums_are_right_and_the_largest_do_not_overflow() {
        if !Isa::Avx512.is_available() {
            return;
        }
        for width in [1, 31, 128, 200, 576] {
            let wave = |i: usize, k: usize| (0.7 * i as f32 + 1.3 * k as f32).sin();
            let outlier = |i: usize, k: usize| if k == 3 * i { 1000.0 } else { wave(i, k) };
            let numbers: [&dyn Fn(usize, usize) -> f32; 5] =
                [&wave, &outlier, &|_, _| 1.0, &|_, k| if k % 2 == 0 { 1.0 } else { -1.0 }, &|_, _| 0.0];
            for x in numbers {
                for w in numbers {
                    let sums = product(width, x, w);
                    for (row, sums) in sums.iter().enumerate() {
                        for (output, &sum) in sums.iter().enumerate() {
                            let products = (0..width).map(|k| f64::from(x(row, k)) * f64::from(w(output, k)));
                            let [norm_x, norm_w] = [(x, row), (w, output)].map(|(f, i)| {
                                (0..width).map(|k| f64::from(f(i, k)).powi(2)).sum::<f64>().sqrt()
                            });
                            let error = (f64::from(sum) - products.sum::<f64>()).abs();
                            assert!(
                                error <= 3e-4 * norm_x * norm_w,
                                "{width} columns, row {row}, output {output}: {error}"
                            );
                        }
                    }
                }
            }
        }
    }
}
