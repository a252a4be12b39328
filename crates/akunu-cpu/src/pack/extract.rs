//! From a tensor's rows, as its file lays them out, to codes and scales.
//!
//! Loading a model is this: a stretch of one row at a time goes through a [`Part`] that stays in the first cache.

use std::ops::Range;

use akunu_format::mlx::Affine;
use akunu_format::quant::dequantize;
use akunu_format::{DType, SUPER_BLOCK};
use half::f16;

use super::fit::Lattice;
use super::form::{Codes, TILE};

/// Columns that are taken apart at a time: a super-block of the K-quants, some blocks of the others.
pub(super) const STRETCH: usize = SUPER_BLOCK;

/// Elements of the smallest groups.
const GROUP: usize = 16;

/// What one row of a tensor has in a stretch: its numbers in each plane, in column order and little-endian. What the tensor's dtype
/// does not have stays zero.
pub(super) struct Part {
    /// As their [`Layout`](super::assemble::Layout) says, unless they are taken from where the file has them.
    pub(super) codes: [u8; STRETCH],
    pub(super) scales: [u8; 4 * STRETCH / GROUP],
    pub(super) mins: [u8; 4 * STRETCH / GROUP],
    pub(super) supers: [u8; 2],
    pub(super) super_mins: [u8; 2],
}

impl Part {
    pub(super) const fn new() -> Part {
        Part {
            codes: [0; STRETCH],
            scales: [0; 4 * STRETCH / GROUP],
            mins: [0; 4 * STRETCH / GROUP],
            supers: [0; 2],
            super_mins: [0; 2],
        }
    }

    #[inline(always)]
    fn set_scale<const N: usize>(&mut self, group: usize, scale: [u8; N]) {
        self.scales.as_chunks_mut().0[group] = scale;
    }

    #[inline(always)]
    fn set_min<const N: usize>(&mut self, group: usize, min: [u8; N]) {
        self.mins.as_chunks_mut().0[group] = min;
    }

    #[inline(always)]
    fn set_codes<const N: usize>(&mut self, at: usize, codes: [u8; N]) {
        *self.codes[at..].first_chunk_mut().expect("bytes of the stretch") = codes;
    }

    /// Takes the blocks of a stretch apart. Returns the codes, if they are as they should be where they are.
    pub(super) fn blocks<'a>(&mut self, dtype: DType, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match dtype {
            DType::Q4_0 | DType::IQ4_NL => {
                for (i, b) in bytes.as_chunks::<18>().0.iter().enumerate() {
                    self.set_scale::<2>(i, cut(b, 0));
                    self.set_codes::<16>(16 * i, cut(b, 2));
                }
            }
            DType::Q4_1 => {
                for (i, b) in bytes.as_chunks::<20>().0.iter().enumerate() {
                    self.set_scale::<2>(i, cut(b, 0));
                    self.set_min::<2>(i, cut(b, 2));
                    self.set_codes::<16>(16 * i, cut(b, 4));
                }
            }
            DType::Q5_0 => {
                for (i, b) in bytes.as_chunks::<22>().0.iter().enumerate() {
                    self.set_scale::<2>(i, cut(b, 0));
                    self.set_codes::<16>(20 * i, cut(b, 6));
                    self.set_codes(20 * i + 16, every_fourth_bit(cut(b, 2)));
                }
            }
            DType::Q5_1 => {
                for (i, b) in bytes.as_chunks::<24>().0.iter().enumerate() {
                    self.set_scale::<2>(i, cut(b, 0));
                    self.set_min::<2>(i, cut(b, 2));
                    self.set_codes::<16>(20 * i, cut(b, 8));
                    self.set_codes(20 * i + 16, every_fourth_bit(cut(b, 4)));
                }
            }
            DType::Q8_0 => {
                for (i, b) in bytes.as_chunks::<34>().0.iter().enumerate() {
                    self.set_scale::<2>(i, cut(b, 0));
                    self.set_codes(TILE * i, turned::<TILE>(cut(b, 2), 0x80));
                }
            }
            DType::Q2_K => return Some(self.q2_k(super_block(bytes))),
            DType::Q3_K => return Some(self.q3_k(super_block(bytes))),
            DType::Q4_K => return Some(self.q4_k(super_block(bytes))),
            DType::Q5_K => return Some(self.q5_k(super_block(bytes))),
            DType::Q6_K => return Some(self.q6_k(super_block(bytes))),
            DType::MXFP4 => {
                for (i, b) in bytes.as_chunks::<17>().0.iter().enumerate() {
                    // Under the largest scales, some numbers are not finite.
                    let mut values = [0.0; TILE];
                    let finite = b[0] < 253 || {
                        dequantize(dtype, b, &mut values).expect("a block");
                        values.iter().all(|value| value.is_finite())
                    };
                    // Codes stand for sixteen times the floats.
                    let scale = 2f64.powi(i32::from(b[0]) - 131) as f32;
                    self.set_scale(i, if finite { scale } else { f32::NAN }.to_le_bytes());
                    self.set_codes::<16>(16 * i, cut(b, 1));
                }
            }
            DType::TQ2_0 => bytes.as_chunks().0.iter().for_each(|block| self.tq2_0(block)),
            DType::IQ4_XS => bytes.as_chunks().0.iter().for_each(|block| self.iq4_xs(block)),
            _ => self.fitted(dtype, bytes),
        }
        None
    }

    fn q2_k<'a>(&mut self, b: &'a [u8; 84]) -> &'a [u8] {
        self.set_scale::<16>(0, cut(b, 0));
        (self.supers, self.super_mins) = (cut(b, 80), negative(cut(b, 82)));
        &b[16..80]
    }

    fn q3_k<'a>(&mut self, b: &'a [u8; 110]) -> &'a [u8] {
        // Four bits of each scale, and its upper two apart: less 32, they are numbers with a sign.
        let (low, high) = (u64::from_le_bytes(cut(b, 96)), u64::from(u32::from_le_bytes(cut(b, 104))));
        for i in 0..2 {
            let upper = high >> (4 * i) & 0x0303_0303 | (high >> (4 * i + 2) & 0x0303_0303) << 32;
            let turned = (low >> (4 * i) & all(15) | upper << 4) ^ all(32);
            let sign = turned & all(32);
            self.set_scale(i, (turned | sign << 1 | sign << 2).to_le_bytes());
        }
        self.supers = cut(b, 108);
        &b[..96]
    }

    fn q4_k<'a>(&mut self, b: &'a [u8; 144]) -> &'a [u8] {
        self.k_scales(&cut(b, 0));
        &b[16..]
    }

    fn q5_k<'a>(&mut self, b: &'a [u8; 176]) -> &'a [u8] {
        self.k_scales(&cut(b, 0));
        &b[16..]
    }

    fn q6_k<'a>(&mut self, b: &'a [u8; 210]) -> &'a [u8] {
        self.set_scale::<16>(0, cut(b, 192));
        self.supers = cut(b, 208);
        &b[..192]
    }

    /// The head of a Q4_K or Q5_K block: `d`, `dmin`, eight 6-bit scales and minima in twelve bytes.
    fn k_scales(&mut self, head: &[u8; 16]) {
        (self.supers, self.super_mins) = ([head[0], head[1]], negative([head[2], head[3]]));
        // Four of each in a word: six bits of the first four, four bits of the others, whose upper two lie with the first.
        let word = |at| u32::from_le_bytes(cut(head, at));
        let (scales, mins, others) = (word(4), word(8), word(12));
        let (six, four, two) = (0x3f3f_3f3f, 0x0f0f_0f0f, 0x0303_0303);
        self.set_scale(0, (scales & six).to_le_bytes());
        self.set_scale(1, (others & four | (scales >> 6 & two) << 4).to_le_bytes());
        self.set_min(0, (mins & six).to_le_bytes());
        self.set_min(1, (others >> 4 & four | (mins >> 6 & two) << 4).to_le_bytes());
    }

    fn iq4_xs(&mut self, b: &[u8; 136]) {
        let high = u16::from_le_bytes(cut(b, 2));
        for tile in 0..8 {
            let scale = b[4 + tile / 2] >> (tile % 2 * 4) & 15 | ((high >> (2 * tile) & 3) as u8) << 4;
            self.set_scale(tile, [scale.wrapping_sub(32)]);
            self.set_codes::<16>(16 * tile, cut(b, 8 + 16 * tile));
        }
        self.supers = cut(b, 0);
    }

    fn tq2_0(&mut self, b: &[u8; 66]) {
        let scale = -f16::from_le_bytes(cut(b, 64)).to_f32();
        (0..8).for_each(|tile| self.set_scale(tile, scale.to_le_bytes()));
        self.set_codes(0, turned::<64>(cut(b, 0), 0xff));
    }

    /// A dtype of a lattice whose points the file keeps in ways of its own.
    fn fitted(&mut self, dtype: DType, bytes: &[u8]) {
        let lattice = Lattice::of(dtype).expect("a dtype that is packed so");
        let mut values = [0.0; STRETCH];
        let count = bytes.len() / dtype.block_bytes() * dtype.block_len();
        let values = &mut values[..count];
        dequantize(dtype, bytes, values).expect("whole blocks");
        let size = if lattice.halves { GROUP } else { TILE };
        for (i, group) in values.chunks_exact(size).enumerate() {
            // Whatever has finite numbers has them of the lattice. What is not finite shows in the scale, as it does with the
            // other dtypes.
            let scale = lattice.fit(group, &mut self.codes[i * size..][..size]).unwrap_or(f32::NAN);
            self.set_scale(i, scale.to_le_bytes());
        }
    }

    /// MLX's groups of 32, 64 or 128: the scale and bias of each, repeated for every tile of it.
    pub(super) fn affine(&mut self, affine: &Affine<'_>, codes: Codes, row: usize, columns: Range<usize>) {
        let (bits, count) = (affine.bits as usize, columns.len());
        let first = row * affine.row_len + columns.start;
        let stored = affine.codes[first * bits / 8..][..count * bits / 8].chunks_exact(bits);
        for (elements, eight) in self.codes.as_chunks_mut::<8>().0.iter_mut().zip(stored) {
            let stream = eight.iter().rev().fold(0, |stream, byte| stream << 8 | u64::from(*byte));
            for (i, element) in elements.iter_mut().enumerate() {
                *element = (stream >> (i * bits)) as u8 & (0xFF >> (8 - bits));
            }
        }
        let number = |numbers: &[u8], group: usize| {
            let (size, mut number) = (affine.scale_dtype.block_bytes(), [0.0]);
            dequantize(affine.scale_dtype, &numbers[group * size..][..size], &mut number).expect("a number");
            number[0]
        };
        for tile in 0..count / TILE {
            let group = (first + tile * TILE) / affine.group_size;
            let (scale, bias) = (number(affine.scales, group), number(affine.biases, group));
            // Eight-bit codes are used as signed numbers around 128.
            let min = if codes == Codes::B8 { bias + 128.0 * scale } else { bias };
            self.set_scale(tile, scale.to_le_bytes());
            self.set_min(tile, min.to_le_bytes());
        }
    }
}

/// The super-block that a stretch is.
#[inline(always)]
fn super_block<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("a super-block")
}

/// `M` bytes of a block.
#[inline(always)]
fn cut<const N: usize, const M: usize>(block: &[u8; N], at: usize) -> [u8; M] {
    *block[at..].first_chunk().expect("part of the block")
}

/// The same bits of all bytes of a number.
const fn all(bits: u8) -> u64 {
    u64::from_le_bytes([bits; 8])
}

/// Bytes, whole words of them, with some bits of each turned. By words, since the compiler turns single bytes one after another here.
#[inline(always)]
fn turned<const N: usize>(mut bytes: [u8; N], bits: u8) -> [u8; N] {
    let (words, []) = bytes.as_chunks_mut() else { unreachable!("whole words") };
    words.iter_mut().for_each(|word| *word = (u64::from_le_bytes(*word) ^ all(bits)).to_le_bytes());
    bytes
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

/// An F16 with its sign turned: K-quants subtract their minima, packed forms add them.
fn negative(bytes: [u8; 2]) -> [u8; 2] {
    [bytes[0], bytes[1] ^ 0x80]
}
