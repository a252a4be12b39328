//! How weights lie on the device: every dtype cut into planes, value for value.
//!
//! Codes are packed eight at a time: 2 bits in 16, 4 in 32, 8 in 64; of 3-, 5- and 6-bit codes the upper one or two bits lie in a
//! plane of their own. Scales lie in another, those of K-quants' super-blocks in a fourth. The kernels' side is
//! `kernels/forms.metal`.

use std::ops::Range;

use akunu_format::{DType, Data, Tensor};
use akunu_program::{Error, Result};

/// A layout that kernels are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    F32,
    F16,
    BF16,
    Quantised(DType),
    /// MLX's, with so many bits.
    Affine(u32),
}

/// Where the bytes of a matrix go, plane by plane.
#[derive(Debug)]
pub(crate) struct Planes<'a> {
    low: Plane<'a>,
    high: Plane<'a>,
    scale: Plane<'a>,
    super_scale: Plane<'a>,
}

/// What is still to be written of a plane.
#[derive(Debug)]
struct Plane<'a>(&'a mut [u8]);

impl<'a> Planes<'a> {
    /// Planes of so many bytes, one behind the other.
    pub(crate) fn new(bytes: &'a mut [u8], sizes: [usize; 4]) -> Planes<'a> {
        let mut rest = bytes;
        let [low, high, scale, super_scale] = sizes.map(|size| {
            let (plane, after) = std::mem::take(&mut rest).split_at_mut(size);
            rest = after;
            Plane(plane)
        });
        Planes { low, high, scale, super_scale }
    }

    fn are_full(&self) -> bool {
        [&self.low, &self.high, &self.scale, &self.super_scale].iter().all(|plane| plane.0.is_empty())
    }
}

impl Plane<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let (to, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        to.copy_from_slice(bytes);
        self.0 = rest;
    }
}

impl Form {
    /// The form a tensor is kept in. Dtypes without kernels of their own become F32.
    pub(crate) fn of(tensor: &Tensor<'_>) -> Form {
        match tensor.data {
            Data::Affine(affine) if matches!(affine.bits, 2..=6 | 8) => Form::Affine(affine.bits),
            Data::Blocks { dtype: DType::F16, .. } => Form::F16,
            Data::Blocks { dtype: DType::BF16, .. } => Form::BF16,
            Data::Blocks { dtype, .. } if split_block(dtype).is_some() => Form::Quantised(dtype),
            _ => Form::F32,
        }
    }

    /// Columns that a lane of a wide product takes at once.
    pub(crate) fn unit(self) -> u32 {
        match self {
            Form::F32 | Form::F16 | Form::BF16 => 8,
            Form::Quantised(DType::Q8_0) | Form::Affine(8) => 16,
            Form::Quantised(_) | Form::Affine(_) => 32,
        }
    }

    /// Rows of inputs that a wide product of several takes together.
    pub(crate) fn together(self) -> u32 {
        if self == Form::Quantised(DType::IQ4_NL) { 4 } else { 8 }
    }

    /// Bytes of threadgroup memory that is enough for a row of so many columns, as `kernels/several.metal` has it there.
    pub(crate) fn room(self, cols: u32) -> u32 {
        let unit = self.unit();
        let bytes = match self {
            Form::F32 | Form::F16 | Form::BF16 | Form::Quantised(DType::IQ4_NL) => 4 * unit,
            // Two bytes of each column; a factor and up to two sums of a unit.
            Form::Quantised(_) | Form::Affine(_) => 2 * unit + 12,
        };
        (cols / unit).saturating_mul(bytes).saturating_add(9 * 16)
    }

    /// The kernel of a family that reads this form.
    pub(crate) fn kernel(self, family: Family) -> &'static str {
        macro_rules! names {
            ($($form:pat => $name:literal,)*) => {
                match (self, family) {
                    $(
                        ($form, Family::Gemv1) => concat!("gemv_", $name, "_1"),
                        ($form, Family::Gemv8) => concat!("gemv_", $name, "_8"),
                        ($form, Family::Wide(1)) => concat!("wide1_", $name),
                        ($form, Family::Wide(2)) => concat!("wide2_", $name),
                        ($form, Family::Wide(_)) => concat!("wide4_", $name),
                        ($form, Family::Several) => concat!("several_", $name),
                        ($form, Family::Gemm) => concat!("gemm_", $name),
                        ($form, Family::Tensor) => concat!("tensor_", $name),
                        ($form, Family::Embed) => concat!("embed_", $name),
                    )*
                }
            };
        }
        names! {
            Form::F16 => "f16",
            Form::BF16 => "bf16",
            Form::Quantised(DType::Q4_0) => "q4_0",
            Form::Quantised(DType::Q4_1) => "q4_1",
            Form::Quantised(DType::Q5_0) => "q5_0",
            Form::Quantised(DType::Q5_1) => "q5_1",
            Form::Quantised(DType::Q8_0) => "q8_0",
            Form::Quantised(DType::IQ4_NL) => "iq4_nl",
            Form::Quantised(DType::Q2_K) => "q2_k",
            Form::Quantised(DType::Q3_K) => "q3_k",
            Form::Quantised(DType::Q4_K) => "q4_k",
            Form::Quantised(DType::Q5_K) => "q5_k",
            Form::Quantised(DType::Q6_K) => "q6_k",
            Form::Affine(2) => "affine2",
            Form::Affine(3) => "affine3",
            Form::Affine(4) => "affine4",
            Form::Affine(5) => "affine5",
            Form::Affine(6) => "affine6",
            Form::Affine(_) => "affine8",
            Form::F32 | Form::Quantised(_) => "f32",
        }
    }

    /// The bytes of a tensor, where they are the only plane it is cut into.
    pub(crate) fn plane_of<'t>(self, tensor: &Tensor<'t>) -> Option<&'t [u8]> {
        match (self, tensor.data) {
            (Form::F16 | Form::BF16, Data::Blocks { bytes, .. })
            | (Form::F32, Data::Blocks { dtype: DType::F32, bytes }) => {
                tensor.row_len().is_multiple_of(8).then_some(bytes)
            }
            _ => None,
        }
    }

    /// Cuts some rows of a tensor of this form into planes, which they fill.
    pub(crate) fn cut(self, tensor: &Tensor<'_>, rows: Range<usize>, mut planes: Planes<'_>) -> Result<()> {
        let Range { start, end } = rows;
        let rows_of = |row_bytes: usize| start * row_bytes..end * row_bytes;
        match (self, tensor.data) {
            (Form::F16 | Form::BF16, Data::Blocks { dtype, bytes }) => {
                let part = rows_of(dtype.row_bytes(tensor.row_len())?);
                padded(&bytes[part], tensor.row_len(), 2, &mut planes.low);
            }
            (Form::Quantised(dtype), Data::Blocks { bytes, .. }) => {
                let part = rows_of(dtype.row_bytes(tensor.row_len())?);
                quantised(dtype, &bytes[part], &mut planes);
            }
            (Form::Affine(bits), Data::Affine(affine)) => {
                let row_bytes = affine.row_len * bits as usize / 8;
                for row in affine.codes[rows_of(row_bytes)].chunks_exact(row_bytes.max(1)) {
                    pack(&stream(row, bits, affine.row_len), bits, &mut planes);
                }
                let groups = affine.row_len / affine.group_size;
                let [scales, biases] = [affine.scales, affine.biases].map(|bytes| {
                    let part = rows_of(affine.scale_dtype.row_bytes(groups)?);
                    let mut numbers = vec![0.0; rows.len() * groups];
                    akunu_format::quant::dequantize(affine.scale_dtype, &bytes[part], &mut numbers)?;
                    Ok::<_, Error>(numbers)
                });
                for (scale, bias) in scales?.iter().zip(&biases?) {
                    planes.scale.put(bytemuck::bytes_of(&[scale.to_le_bytes(), bias.to_le_bytes()]));
                }
            }
            _ => {
                let mut floats = vec![0f32; rows.len() * tensor.row_len()];
                tensor.dequantize_rows(rows, &mut floats)?;
                padded(bytemuck::cast_slice(&floats), tensor.row_len(), 4, &mut planes.low);
            }
        }
        // What is left would be whatever the memory held before.
        if !planes.are_full() {
            return Err(Error::Batch(format!("tensor \"{}\" is shorter than its planes", tensor.name)));
        }
        Ok(())
    }
}

/// Kernels that exist for every form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Gemv1,
    Gemv8,
    /// With so many rows of weights in a block: 1, 2 or 4.
    Wide(u32),
    /// The same for several rows of inputs.
    Several,
    Gemm,
    Tensor,
    Embed,
}

/// Rows of floats, each to whole groups of eight with zeros.
fn padded(bytes: &[u8], row_len: usize, size: usize, plane: &mut Plane<'_>) {
    if row_len.is_multiple_of(8) {
        return plane.put(bytes);
    }
    let missing = (row_len.next_multiple_of(8) - row_len) * size;
    for row in bytes.chunks_exact(row_len * size) {
        plane.put(row);
        plane.put(&[0; 7 * size_of::<f32>()][..missing]);
    }
}

/// The codes of an MLX row.
fn stream(bytes: &[u8], bits: u32, count: usize) -> Vec<u8> {
    let code = |i: usize| {
        let (at, shift) = (i * bits as usize / 8, i * bits as usize % 8);
        let word = u32::from(bytes[at]) | u32::from(bytes.get(at + 1).copied().unwrap_or(0)) << 8;
        (word >> shift & ((1 << bits) - 1)) as u8
    };
    (0..count).map(code).collect()
}

/// Appends codes, a multiple of eight of them, to the planes.
fn pack(codes: &[u8], bits: u32, planes: &mut Planes<'_>) {
    match bits {
        2 => pack_as::<2, 0>(codes, planes),
        3 => pack_as::<2, 1>(codes, planes),
        4 => pack_as::<4, 0>(codes, planes),
        5 => pack_as::<4, 1>(codes, planes),
        6 => pack_as::<4, 2>(codes, planes),
        _ => pack_as::<8, 0>(codes, planes),
    }
}

/// The same, where codes have so many low and high bits.
#[inline]
fn pack_as<const LOW: usize, const HIGH: usize>(codes: &[u8], planes: &mut Planes<'_>) {
    for eight in codes.as_chunks::<8>().0 {
        let eight = u64::from_le_bytes(*eight);
        planes.low.put(&join::<LOW>(eight).to_le_bytes()[..LOW]);
        if HIGH > 0 {
            planes.high.put(&join::<HIGH>(eight >> LOW).to_le_bytes()[..HIGH]);
        }
    }
}

/// The lowest bits of eight bytes, side by side: of two bytes, of two pairs, of two fours.
#[inline]
fn join<const BITS: usize>(bytes: u64) -> u64 {
    if BITS == 8 {
        return bytes;
    }
    let ones = u64::MAX / 0xFF * ((1 << BITS) - 1);
    let pairs = (bytes & ones) | (bytes & ones) >> (8 - BITS);
    let pairs = pairs & (u64::MAX / 0xFFFF * ((1 << (2 * BITS)) - 1));
    let fours = (pairs | pairs >> (16 - 2 * BITS)) & (u64::MAX / 0xFFFF_FFFF * ((1 << (4 * BITS)) - 1));
    (fours | fours >> (32 - 4 * BITS)) & ((1 << (8 * BITS)) - 1)
}

fn quantised(dtype: DType, bytes: &[u8], planes: &mut Planes<'_>) {
    let Some((bits, split)) = split_block(dtype) else { return };
    let mut codes = [0; akunu_format::SUPER_BLOCK];
    for block in bytes.chunks_exact(dtype.block_bytes()) {
        split(block, &mut codes, planes);
        pack(&codes[..dtype.block_len()], bits, planes);
    }
}

/// Writes a block's codes and appends its scales.
type Split = fn(&[u8], &mut [u8; akunu_format::SUPER_BLOCK], &mut Planes<'_>);

/// The bits of a dtype's codes, and how its blocks are cut; `None` for dtypes that have no form of their own. Layouts are those of
/// `akunu_format`'s decoders.
fn split_block(dtype: DType) -> Option<(u32, Split)> {
    Some(match dtype {
        DType::Q4_0 | DType::IQ4_NL => (4, |b, codes, planes| {
            planes.scale.put(&b[..2]);
            nibbles(&b[2..], codes);
        }),
        DType::Q4_1 => (4, |b, codes, planes| {
            planes.scale.put(&b[..4]);
            nibbles(&b[4..], codes);
        }),
        DType::Q5_0 => (5, |b, codes, planes| {
            planes.scale.put(&b[..2]);
            nibbles(&b[6..], codes);
            (0..32).for_each(|i| codes[i] |= (b[2 + i / 8] >> (i % 8) & 1) << 4);
        }),
        DType::Q5_1 => (5, |b, codes, planes| {
            planes.scale.put(&b[..4]);
            nibbles(&b[8..], codes);
            (0..32).for_each(|i| codes[i] |= (b[4 + i / 8] >> (i % 8) & 1) << 4);
        }),
        DType::Q8_0 => (8, |b, codes, planes| {
            planes.scale.put(&b[..2]);
            // Signed bytes become codes around 128.
            (0..32).for_each(|i| codes[i] = b[2 + i] ^ 0x80);
        }),
        DType::Q2_K => (2, |b, codes, planes| {
            b[..16].iter().for_each(|s| planes.scale.put(&[s & 15, s >> 4]));
            planes.super_scale.put(&b[80..84]);
            (0..256).for_each(|e| codes[e] = two_bits(&b[16..80], e));
        }),
        DType::Q3_K => (3, |b, codes, planes| {
            let packed = &b[96..108];
            for i in 0..16 {
                let low = if i < 8 { packed[i] & 15 } else { packed[i - 8] >> 4 };
                let scale = low | (packed[8 + i % 4] >> (2 * (i / 4)) & 3) << 4;
                planes.scale.put(&[scale.wrapping_sub(32)]);
            }
            planes.super_scale.put(&b[108..110]);
            (0..256).for_each(|e| codes[e] = two_bits(&b[32..96], e) | (b[e % 32] >> (e / 32) & 1) << 2);
        }),
        DType::Q4_K => (4, |b, codes, planes| {
            super_scales(b, planes);
            (0..256).for_each(|e| codes[e] = b[16 + e / 64 * 32 + e % 32] >> (4 * (e / 32 % 2)) & 15);
        }),
        DType::Q5_K => (5, |b, codes, planes| {
            super_scales(b, planes);
            for (e, code) in codes.iter_mut().enumerate() {
                let low = b[48 + e / 64 * 32 + e % 32] >> (4 * (e / 32 % 2)) & 15;
                *code = low | (b[16 + e % 32] >> (e / 32) & 1) << 4;
            }
        }),
        DType::Q6_K => (6, |b, codes, planes| {
            planes.scale.put(&b[192..208]);
            planes.super_scale.put(&b[208..210]);
            for (e, code) in codes.iter_mut().enumerate() {
                let (half, group, l) = (e / 128, e / 32 % 4, e % 32);
                let low = b[64 * half + 32 * (group & 1) + l] >> (4 * (group / 2)) & 15;
                *code = low | (b[128 + 32 * half + l] >> (2 * group) & 3) << 4;
            }
        }),
        _ => return None,
    })
}

/// Thirty-two codes: the low nibbles, then the high ones.
fn nibbles(bytes: &[u8], codes: &mut [u8; akunu_format::SUPER_BLOCK]) {
    for (i, byte) in bytes[..16].iter().enumerate() {
        (codes[i], codes[i + 16]) = (byte & 15, byte >> 4);
    }
}

/// Code `e` of Q2_K, or the low bits of Q3_K's.
fn two_bits(bytes: &[u8], e: usize) -> u8 {
    bytes[e / 128 * 32 + e % 32] >> (2 * (e / 32 % 4)) & 3
}

/// The scales and minima of Q4_K and Q5_K.
fn super_scales(b: &[u8], planes: &mut Planes<'_>) {
    planes.super_scale.put(&b[..4]);
    let packed = &b[4..16];
    for i in 0..8 {
        let pair = if i < 4 {
            [packed[i] & 63, packed[i + 4] & 63]
        } else {
            [packed[i + 4] & 15 | (packed[i - 4] >> 6) << 4, packed[i + 4] >> 4 | (packed[i] >> 6) << 4]
        };
        planes.scale.put(&pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_cut_into_low_and_high_bits() {
        let codes = [0, 31, 16, 15, 1, 2, 4, 8];
        let mut bytes = [0; 5];
        let mut planes = Planes::new(&mut bytes, [4, 1, 0, 0]);
        pack(&codes, 5, &mut planes);
        assert!(planes.are_full());
        assert_eq!(bytes, [0xF0, 0xF0, 0x21, 0x84, 0b110]);
    }

    #[test]
    fn bits_of_eight_bytes_are_joined() {
        let bytes = [0xFEu8, 0x01, 0x82, 0x43, 0x74, 0xA5, 0x96, 0x17];
        let joined = |bits: u32| {
            let part = |(i, byte): (usize, &u8)| u64::from(byte & (0xFF >> (8 - bits))) << (i as u32 * bits);
            bytes.iter().enumerate().map(part).sum::<u64>()
        };
        let eight = u64::from_le_bytes(bytes);
        assert_eq!(join::<1>(eight), joined(1));
        assert_eq!(join::<2>(eight), joined(2));
        assert_eq!(join::<4>(eight), joined(4));
        assert_eq!(join::<8>(eight), joined(8));
    }

    #[test]
    fn rows_of_a_tensor_are_cut_as_the_whole_is() {
        let random = |count: usize| -> Vec<u8> {
            let mut state = 7u32;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8 & 0x3F
            };
            (0..count).map(|_| next()).collect()
        };
        let (rows, cols) = (5, 256);
        let bytes = random(rows * cols * 4);
        let affine = |bits: u32| {
            Data::Affine(akunu_format::mlx::Affine {
                bits,
                group_size: 64,
                row_len: cols,
                scale_dtype: DType::F16,
                codes: &bytes[..rows * cols * bits as usize / 8],
                scales: &bytes[..rows * cols / 64 * 2],
                biases: &bytes[100..][..rows * cols / 64 * 2],
            })
        };
        let blocks =
            [DType::F32, DType::F16, DType::Q4_0, DType::Q5_1, DType::Q3_K, DType::Q6_K].map(|dtype| {
                let bytes = &bytes[..rows * dtype.row_bytes(cols).unwrap_or(0)];
                Data::Blocks { dtype, bytes }
            });
        for data in blocks.into_iter().chain([3, 4, 8].map(affine)) {
            let tensor = Tensor { name: "w", shape: &[rows, cols], data };
            let form = Form::of(&tensor);
            let sizes = |rows: usize| crate::weights::plane_bytes(form, &tensor, rows * cols / 8);
            let cut = |part: Range<usize>| {
                let sizes = sizes(part.len());
                let mut out = vec![0xEE; sizes.iter().sum()];
                form.cut(&tensor, part, Planes::new(&mut out, sizes))
                    .unwrap_or_else(|error| panic!("{error}"));
                let mut rest = &out[..];
                sizes.map(|size| rest.split_off(..size).unwrap_or_default().to_vec())
            };
            let (whole, first, last) = (cut(0..rows), cut(0..2), cut(2..rows));
            for (plane, whole) in whole.iter().enumerate() {
                assert_eq!(*whole, [&first[plane][..], &last[plane]].concat(), "{form:?}, plane {plane}");
            }
            // A plane that is larger than the rows would keep what was there before.
            let mut out = vec![0; sizes(3).iter().sum()];
            assert!(form.cut(&tensor, 0..2, Planes::new(&mut out, sizes(3))).is_err());
        }
    }

    #[test]
    fn codes_of_a_bit_stream_may_straddle_bytes() {
        // 3 bits each, from the lowest: 1, 2, 3, 4, 5, 6, 7, 0.
        let bits = (1..8u32).enumerate().map(|(i, code)| code << (3 * i)).sum::<u32>();
        assert_eq!(stream(&bits.to_le_bytes()[..3], 3, 8), [1, 2, 3, 4, 5, 6, 7, 0]);
    }

    #[test]
    fn ragged_rows_are_padded_with_zeros() {
        let mut bytes = [0xEE; 16];
        padded(&[1, 2, 3, 4, 5, 6], 3, 1, &mut Plane(&mut bytes));
        assert_eq!(bytes, [1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0]);
    }
}
