//! From a tensor's rows, as its file lays them out, to codes and scales.
//!
//! Loading a model is this: sixteen rows, a stretch at a time, go from the file to the planes of their panel. What the file has as it
//! should be is put side by side from where it lies; the rest goes through [`Parts`] that stay in the first cache.

use std::ops::Range;

use akunu_format::mlx::Affine;
use akunu_format::quant::dequantize;
use akunu_format::{DType, SUPER_BLOCK};
use half::f16;

use super::assemble::{Assembly, Layout, Line};
use super::fit::Lattice;
use super::form::{Codes, TILE, TILES_PER_SUPER};
use super::interleave::{Pieces, Rows, WHOLE, interleave};
use crate::Isa;
use crate::simd::LANES;

/// Columns that are taken apart at a time: a super-block of the K-quants, some blocks of the others.
pub(super) const STRETCH: usize = SUPER_BLOCK;

/// Elements of the smallest groups.
const GROUP: usize = 16;

/// Bytes that a row of a stretch has for its scales, or for its minima, at most.
const NUMBERS: usize = 4 * STRETCH / GROUP;

/// A stretch of sixteen rows: the part of each plane of their panel that it takes.
pub(super) struct Stretch<'a> {
    pub(super) isa: Isa,
    pub(super) codes: &'a mut [u8],
    pub(super) scales: &'a mut [u8],
    pub(super) mins: &'a mut [u8],
    pub(super) supers: &'a mut [u8],
    pub(super) super_mins: &'a mut [u8],
}

/// Room for what is computed of the rows of a stretch.
#[repr(align(64))]
pub(super) struct Parts {
    /// Codes side by side, when they are not in tiles yet.
    lines: [Line; STRETCH / 4],
    /// Of each row, in column order and little-endian.
    codes: [[u8; STRETCH]; LANES],
    scales: [[u8; NUMBERS]; LANES],
    mins: [[u8; NUMBERS]; LANES],
}

impl Parts {
    pub(super) const fn new() -> Parts {
        Parts {
            lines: [[0; 4 * LANES]; STRETCH / 4],
            codes: [[0; STRETCH]; LANES],
            scales: [[0; NUMBERS]; LANES],
            mins: [[0; NUMBERS]; LANES],
        }
    }
}

impl Stretch<'_> {
    /// Takes the blocks of a stretch: `rows` begin with its first block, and have `bytes` of it.
    pub(super) fn blocks(
        &mut self,
        dtype: DType,
        codes: Codes,
        rows: Rows<'_>,
        bytes: usize,
        parts: &mut Parts,
    ) {
        let step = dtype.block_bytes();
        match dtype {
            DType::Q4_0 | DType::IQ4_NL => {
                self.f16_scales(rows, 0, step);
                self.tiles::<16>(rows, 2, step, 0);
            }
            DType::Q4_1 => {
                self.f16_scales(rows, 0, step);
                self.f16_mins(rows, 2, step);
                self.tiles::<16>(rows, 4, step, 0);
            }
            DType::Q5_0 => {
                self.f16_scales(rows, 0, step);
                self.tiles_of_five(rows, 2, step);
            }
            DType::Q5_1 => {
                self.f16_scales(rows, 0, step);
                self.f16_mins(rows, 2, step);
                self.tiles_of_five(rows, 4, step);
            }
            DType::Q8_0 => {
                self.f16_scales(rows, 0, step);
                self.tiles::<TILE>(rows, 2, step, 0x80);
            }
            DType::MXFP4 => {
                parts.each_row(rows, bytes, |b, _, scales| mxfp4_scales(b, scales));
                self.floats(parts);
                self.tiles::<16>(rows, 1, step, 0);
            }
            DType::Q2_K => {
                interleave::<1, WHOLE>(self.isa, self.scales, rows, Pieces::whole(0, 16));
                self.super_block(codes, rows, 16, 0, parts);
                self.supers(rows, 80);
                self.super_mins(rows, 82);
            }
            DType::Q3_K => {
                self.q3_k_scales(rows);
                self.super_block(codes, rows, 0, 0, parts);
                self.supers(rows, 108);
            }
            DType::Q4_K | DType::Q5_K => {
                self.k_scales(rows);
                self.super_block(codes, rows, 16, 0, parts);
                self.supers(rows, 0);
                self.super_mins(rows, 2);
            }
            DType::Q6_K => {
                interleave::<1, WHOLE>(self.isa, self.scales, rows, Pieces::whole(192, 16));
                self.super_block(codes, rows, 0, 0, parts);
                self.supers(rows, 208);
            }
            DType::TQ2_0 => {
                parts.each_row(rows, bytes, |b, _, scales| {
                    let scale = -f16::from_le_bytes([b[64], b[65]]).to_f32();
                    scales.as_chunks_mut().0.fill(scale.to_le_bytes());
                });
                self.floats(parts);
                self.super_block(codes, rows, 0, 0xff, parts);
            }
            DType::IQ4_XS => {
                parts.each_row(rows, bytes, |b, _, scales| iq4_xs_scales(b, scales));
                let pieces = Pieces::whole(0, TILES_PER_SUPER);
                interleave::<1, WHOLE>(self.isa, self.scales, side_by_side(&parts.scales), pieces);
                self.tiles::<WHOLE>(rows, 8, WHOLE, 0);
                self.supers(rows, 0);
            }
            _ => {
                parts.each_row(rows, bytes, |b, codes, scales| fitted(dtype, b, codes, scales));
                self.floats(parts);
                self.bytes(codes, parts);
            }
        }
    }

    /// MLX's groups of 32, 64 or 128: the scale and bias of each, repeated for every tile of it.
    pub(super) fn affine(
        &mut self,
        affine: &Affine<'_>,
        codes: Codes,
        rows: Range<usize>,
        columns: Range<usize>,
        parts: &mut Parts,
    ) {
        for (lane, row) in rows.enumerate() {
            let (bits, count) = (affine.bits as usize, columns.len());
            let first = row * affine.row_len + columns.start;
            let stored = affine.codes[first * bits / 8..][..count * bits / 8].chunks_exact(bits);
            for (elements, eight) in parts.codes[lane].as_chunks_mut::<8>().0.iter_mut().zip(stored) {
                let stream = eight.iter().rev().fold(0, |stream, byte| stream << 8 | u64::from(*byte));
                for (i, element) in elements.iter_mut().enumerate() {
                    *element = (stream >> (i * bits)) as u8 & (0xFF >> (8 - bits));
                }
            }
            let number = |numbers: &[u8], group: usize| {
                let (size, mut number) = (affine.scale_dtype.block_bytes(), [0.0]);
                dequantize(affine.scale_dtype, &numbers[group * size..][..size], &mut number)
                    .expect("a number");
                number[0]
            };
            for tile in 0..count / TILE {
                let group = (first + tile * TILE) / affine.group_size;
                let (scale, bias) = (number(affine.scales, group), number(affine.biases, group));
                // Eight-bit codes are used as signed numbers around 128.
                let min = if codes == Codes::B8 { bias + 128.0 * scale } else { bias };
                parts.scales[lane].as_chunks_mut().0[tile] = scale.to_le_bytes();
                parts.mins[lane].as_chunks_mut().0[tile] = min.to_le_bytes();
            }
        }
        self.floats(parts);
        let pieces = Pieces::whole(0, self.mins.len() / LANES);
        interleave::<4, WHOLE>(self.isa, self.mins, side_by_side(&parts.mins), pieces);
        self.bytes(codes, parts);
    }

    /// Codes that lie in every block as in a tile, in `PIECE` bytes from `at` on.
    fn tiles<const PIECE: usize>(&mut self, rows: Rows<'_>, at: usize, step: usize, turned: u8) {
        let pieces = Pieces { at, step, bytes: self.codes.len() / LANES, turned };
        interleave::<4, PIECE>(self.isa, self.codes, rows, pieces);
    }

    /// Codes whose fifth bits lie in every block from `at` on, element after element, before the other four.
    fn tiles_of_five(&mut self, rows: Rows<'_>, at: usize, step: usize) {
        for (i, tile) in self.codes.chunks_exact_mut(Codes::B5.tile_bytes()).enumerate() {
            let (fours, ones) = tile.split_at_mut(Codes::B4.tile_bytes());
            interleave::<4, WHOLE>(self.isa, ones, rows, Pieces::whole(at + i * step, 4));
            ones.as_chunks_mut().0.iter_mut().for_each(|bits| *bits = every_fourth_bit(*bits));
            interleave::<4, WHOLE>(self.isa, fours, rows, Pieces::whole(at + i * step + 4, 16));
        }
    }

    /// Codes of a super-block of the K-quants, from `at` on.
    fn super_block(&mut self, codes: Codes, rows: Rows<'_>, at: usize, turned: u8, parts: &mut Parts) {
        let pieces = Pieces { turned, ..Pieces::whole(at, self.codes.len() / LANES) };
        interleave::<4, WHOLE>(self.isa, parts.lines.as_flattened_mut(), rows, pieces);
        self.assemble(Layout::Super, codes, &parts.lines);
    }

    /// Codes of which each is a byte.
    fn bytes(&mut self, codes: Codes, parts: &mut Parts) {
        let pieces = Pieces::whole(0, self.codes.len() / codes.tile_bytes() * TILE);
        interleave::<4, WHOLE>(self.isa, parts.lines.as_flattened_mut(), side_by_side(&parts.codes), pieces);
        self.assemble(Layout::Bytes, codes, &parts.lines);
    }

    fn assemble(&mut self, layout: Layout, codes: Codes, stored: &[Line]) {
        self.isa.run(Assembly { layout, codes, stored, tiles: self.codes.as_chunks_mut().0 });
    }

    /// Scales of two bytes, at the same place of every block.
    fn f16_scales(&mut self, rows: Rows<'_>, at: usize, step: usize) {
        let pieces = Pieces { at, step, bytes: self.scales.len() / LANES, turned: 0 };
        interleave::<2, 2>(self.isa, self.scales, rows, pieces);
    }

    /// The same for minima.
    fn f16_mins(&mut self, rows: Rows<'_>, at: usize, step: usize) {
        let pieces = Pieces { at, step, bytes: self.mins.len() / LANES, turned: 0 };
        interleave::<2, 2>(self.isa, self.mins, rows, pieces);
    }

    /// Scales of four bytes.
    fn floats(&mut self, parts: &Parts) {
        let pieces = Pieces::whole(0, self.scales.len() / LANES);
        interleave::<4, WHOLE>(self.isa, self.scales, side_by_side(&parts.scales), pieces);
    }

    /// The super-block's scale.
    fn supers(&mut self, rows: Rows<'_>, at: usize) {
        interleave::<2, WHOLE>(self.isa, self.supers, rows, Pieces::whole(at, 2));
    }

    /// The same for minima, with their signs turned: K-quants subtract them, packed forms add them.
    fn super_mins(&mut self, rows: Rows<'_>, at: usize) {
        interleave::<2, WHOLE>(self.isa, self.super_mins, rows, Pieces::whole(at, 2));
        self.super_mins.as_chunks_mut().0.iter_mut().for_each(|[_, upper]| *upper ^= 0x80);
    }

    /// Eight 6-bit scales and minima in twelve bytes of a Q4_K or Q5_K block, after four others.
    fn k_scales(&mut self, rows: Rows<'_>) {
        let mut head = [[0; 4 * LANES]; 4];
        interleave::<1, WHOLE>(self.isa, head.as_flattened_mut(), rows, Pieces::whole(0, 16));
        // Six bits of the first four of each, four bits of the others, whose upper two lie with the first.
        let [_, scales, mins, others] = &head;
        let [first, last] = lines(self.scales);
        for i in 0..4 * LANES {
            first[i] = scales[i] & 63;
            last[i] = others[i] & 15 | scales[i] >> 6 << 4;
        }
        let [first, last] = lines(self.mins);
        for i in 0..4 * LANES {
            first[i] = mins[i] & 63;
            last[i] = others[i] >> 4 | mins[i] >> 6 << 4;
        }
    }

    /// Four bits of each of sixteen scales, and then their upper two: less 32, they are numbers with a sign. The two bytes before them
    /// and those after them are others.
    fn q3_k_scales(&mut self, rows: Rows<'_>) {
        let mut tail = [0; 16 * LANES];
        interleave::<1, WHOLE>(self.isa, &mut tail, rows, Pieces::whole(94, 16));
        let [lows @ .., high] = lines::<3>(&mut tail[2 * LANES..14 * LANES]);
        for (four, scales) in lines::<4>(self.scales).iter_mut().enumerate() {
            let low = &lows[four % 2];
            for i in 0..4 * LANES {
                let low = low[i] >> (four / 2 * 4) & 15;
                scales[i] = (low | (high[i] >> (2 * four) & 3) << 4).wrapping_sub(32);
            }
        }
    }
}

/// Scales of a super-block, four of each row in a line. Of a known size, without which compilers check every byte.
fn lines<const N: usize>(scales: &mut [u8]) -> &mut [Line; N] {
    scales.as_chunks_mut().0.first_chunk_mut().expect("the scales of a super-block")
}

impl Parts {
    /// Does something with `bytes` of each row, and its codes and scales.
    fn each_row(
        &mut self,
        rows: Rows<'_>,
        bytes: usize,
        mut take: impl FnMut(&[u8], &mut [u8; STRETCH], &mut [u8; NUMBERS]),
    ) {
        let of_rows = self.codes.iter_mut().zip(&mut self.scales);
        for ((codes, scales), row) in of_rows.zip(rows.bytes.chunks(rows.stride)) {
            take(&row[..bytes], codes, scales);
        }
    }
}

/// The rows of parts.
fn side_by_side<const N: usize>(parts: &[[u8; N]; LANES]) -> Rows<'_> {
    Rows { bytes: parts.as_flattened(), stride: N, ahead: 0 }
}

fn mxfp4_scales(bytes: &[u8], scales: &mut [u8; NUMBERS]) {
    for (b, scale) in bytes.as_chunks::<17>().0.iter().zip(scales.as_chunks_mut().0) {
        // Under the largest scales, some numbers are not finite.
        let mut values = [0.0; TILE];
        let finite = b[0] < 253 || {
            dequantize(DType::MXFP4, b, &mut values).expect("a block");
            values.iter().all(|value| value.is_finite())
        };
        // Codes stand for sixteen times the floats.
        let whole = 2f64.powi(i32::from(b[0]) - 131) as f32;
        *scale = if finite { whole } else { f32::NAN }.to_le_bytes();
    }
}

fn iq4_xs_scales(b: &[u8], scales: &mut [u8; NUMBERS]) {
    let high = u16::from_le_bytes([b[2], b[3]]);
    for (tile, scale) in scales[..TILES_PER_SUPER].iter_mut().enumerate() {
        let all = b[4 + tile / 2] >> (tile % 2 * 4) & 15 | ((high >> (2 * tile) & 3) as u8) << 4;
        *scale = all.wrapping_sub(32);
    }
}

/// Blocks of a lattice whose points the file keeps in ways of its own.
fn fitted(dtype: DType, bytes: &[u8], codes: &mut [u8; STRETCH], scales: &mut [u8; NUMBERS]) {
    let lattice = Lattice::of(dtype).expect("a dtype that is packed so");
    let mut values = [0.0; STRETCH];
    let count = bytes.len() / dtype.block_bytes() * dtype.block_len();
    let values = &mut values[..count];
    dequantize(dtype, bytes, values).expect("whole blocks");
    let size = if lattice.halves { GROUP } else { TILE };
    let groups = values.chunks_exact(size).zip(codes.chunks_exact_mut(size));
    for ((values, codes), scale) in groups.zip(scales.as_chunks_mut().0) {
        // Whatever has finite numbers has them of the lattice. What is not finite shows in the scale, as it does with the other
        // dtypes.
        *scale = lattice.fit(values, codes).unwrap_or(f32::NAN).to_le_bytes();
    }
}

/// The vector of one-bit codes of a tile that has them element after element.
#[inline(always)]
fn every_fourth_bit(bits: [u8; 4]) -> [u8; 4] {
    let bits = u32::from_le_bytes(bits);
    let mut all = 0;
    for step in 0..8 {
        // Bit `j` of four goes to the lowest bit of byte `j`.
        let spread = ((bits >> (4 * step) & 15) * 0x0020_4081) & 0x0101_0101;
        all |= spread << step;
    }
    all.to_le_bytes()
}
