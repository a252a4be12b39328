//! How weights lie on the device: every dtype cut into planes, value for value.
//!
//! Codes are packed eight at a time: 2 bits in 16, 4 in 32, 8 in 64; of 3-, 5- and 6-bit codes the upper one or two bits lie in a
//! plane of their own. Scales lie in another, those of K-quants' super-blocks in a fourth. The kernels' side is
//! `kernels/forms.metal`.

use akunu_format::{DType, Data, Tensor};
use akunu_program::Result;

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

/// The bytes of a matrix, plane by plane.
#[derive(Debug, Default)]
pub(crate) struct Planes {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Vec<u8>,
    pub(crate) scale: Vec<u8>,
    pub(crate) super_scale: Vec<u8>,
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

    /// Cuts a tensor of this form into planes.
    pub(crate) fn planes(self, tensor: &Tensor<'_>) -> Result<Planes> {
        match (self, tensor.data) {
            (Form::F16 | Form::BF16, Data::Blocks { bytes, .. }) => {
                Ok(Planes { low: padded(bytes, tensor.row_len(), 2), ..Planes::default() })
            }
            (Form::Quantised(dtype), Data::Blocks { bytes, .. }) => Ok(quantised(dtype, bytes)),
            (Form::Affine(bits), Data::Affine(affine)) => {
                let mut planes = Planes::default();
                let row_bytes = affine.row_len * bits as usize / 8;
                for row in affine.codes.chunks_exact(row_bytes.max(1)) {
                    pack(&stream(row, bits, affine.row_len), bits, &mut planes);
                }
                let count = tensor.len() / affine.group_size;
                let (mut scales, mut biases) = (vec![0.0; count], vec![0.0; count]);
                akunu_format::quant::dequantize(affine.scale_dtype, affine.scales, &mut scales)?;
                akunu_format::quant::dequantize(affine.scale_dtype, affine.biases, &mut biases)?;
                let pairs = scales.iter().zip(&biases).flat_map(|(s, b)| [*s, *b]);
                planes.scale = pairs.flat_map(f32::to_le_bytes).collect();
                Ok(planes)
            }
            _ => {
                let floats = tensor.to_f32()?;
                let bytes: &[u8] = bytemuck::cast_slice(&floats);
                Ok(Planes { low: padded(bytes, tensor.row_len(), 4), ..Planes::default() })
            }
        }
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
fn padded(bytes: &[u8], row_len: usize, size: usize) -> Vec<u8> {
    if row_len.is_multiple_of(8) || row_len == 0 {
        return bytes.to_vec();
    }
    let row_bytes = row_len.next_multiple_of(8) * size;
    let mut out = Vec::with_capacity(bytes.len() / (row_len * size) * row_bytes);
    for row in bytes.chunks_exact(row_len * size) {
        out.extend_from_slice(row);
        out.resize(out.len() + row_bytes - row_len * size, 0);
    }
    out
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
fn pack(codes: &[u8], bits: u32, planes: &mut Planes) {
    let high_bits = match bits {
        3 | 5 => 1,
        6 => 2,
        _ => 0,
    };
    let low_bits = bits - high_bits;
    for eight in codes.as_chunks::<8>().0 {
        let gather = |shift: u32, width: u32| {
            let part = |(i, &code): (usize, &u8)| {
                u64::from(code >> shift & (0xFF >> (8 - width))) << (i as u32 * width)
            };
            eight.iter().enumerate().map(part).fold(0, |a, b| a | b)
        };
        planes.low.extend_from_slice(&gather(0, low_bits).to_le_bytes()[..low_bits as usize]);
        if high_bits > 0 {
            planes.high.extend_from_slice(&gather(low_bits, high_bits).to_le_bytes()[..high_bits as usize]);
        }
    }
}

fn quantised(dtype: DType, bytes: &[u8]) -> Planes {
    let mut planes = Planes::default();
    let Some((bits, split)) = split_block(dtype) else { return planes };
    let mut codes = [0; akunu_format::SUPER_BLOCK];
    for block in bytes.chunks_exact(dtype.block_bytes()) {
        split(block, &mut codes, &mut planes);
        pack(&codes[..dtype.block_len()], bits, &mut planes);
    }
    planes
}

/// Writes a block's codes and appends its scales.
type Split = fn(&[u8], &mut [u8; akunu_format::SUPER_BLOCK], &mut Planes);

/// The bits of a dtype's codes, and how its blocks are cut; `None` for dtypes that have no form of their own. Layouts are those of
/// `akunu_format`'s decoders.
fn split_block(dtype: DType) -> Option<(u32, Split)> {
    Some(match dtype {
        DType::Q4_0 | DType::IQ4_NL => (4, |b, codes, planes| {
            planes.scale.extend_from_slice(&b[..2]);
            nibbles(&b[2..], codes);
        }),
        DType::Q4_1 => (4, |b, codes, planes| {
            planes.scale.extend_from_slice(&b[..4]);
            nibbles(&b[4..], codes);
        }),
        DType::Q5_0 => (5, |b, codes, planes| {
            planes.scale.extend_from_slice(&b[..2]);
            nibbles(&b[6..], codes);
            (0..32).for_each(|i| codes[i] |= (b[2 + i / 8] >> (i % 8) & 1) << 4);
        }),
        DType::Q5_1 => (5, |b, codes, planes| {
            planes.scale.extend_from_slice(&b[..4]);
            nibbles(&b[8..], codes);
            (0..32).for_each(|i| codes[i] |= (b[4 + i / 8] >> (i % 8) & 1) << 4);
        }),
        DType::Q8_0 => (8, |b, codes, planes| {
            planes.scale.extend_from_slice(&b[..2]);
            // Signed bytes become codes around 128.
            (0..32).for_each(|i| codes[i] = b[2 + i] ^ 0x80);
        }),
        DType::Q2_K => (2, |b, codes, planes| {
            b[..16].iter().for_each(|s| planes.scale.extend_from_slice(&[s & 15, s >> 4]));
            planes.super_scale.extend_from_slice(&b[80..84]);
            (0..256).for_each(|e| codes[e] = two_bits(&b[16..80], e));
        }),
        DType::Q3_K => (3, |b, codes, planes| {
            let packed = &b[96..108];
            for i in 0..16 {
                let low = if i < 8 { packed[i] & 15 } else { packed[i - 8] >> 4 };
                let scale = low | (packed[8 + i % 4] >> (2 * (i / 4)) & 3) << 4;
                planes.scale.push(scale.wrapping_sub(32));
            }
            planes.super_scale.extend_from_slice(&b[108..110]);
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
            planes.scale.extend_from_slice(&b[192..208]);
            planes.super_scale.extend_from_slice(&b[208..210]);
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
fn super_scales(b: &[u8], planes: &mut Planes) {
    planes.super_scale.extend_from_slice(&b[..4]);
    let packed = &b[4..16];
    for i in 0..8 {
        let pair = if i < 4 {
            [packed[i] & 63, packed[i + 4] & 63]
        } else {
            [packed[i + 4] & 15 | (packed[i - 4] >> 6) << 4, packed[i + 4] >> 4 | (packed[i] >> 6) << 4]
        };
        planes.scale.extend_from_slice(&pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_cut_into_low_and_high_bits() {
        let codes = [0, 31, 16, 15, 1, 2, 4, 8];
        let mut planes = Planes::default();
        pack(&codes, 5, &mut planes);
        assert_eq!(planes.low, [0xF0, 0xF0, 0x21, 0x84]);
        assert_eq!(planes.high, [0b110]);
    }

    #[test]
    fn codes_of_a_bit_stream_may_straddle_bytes() {
        // 3 bits each, from the lowest: 1, 2, 3, 4, 5, 6, 7, 0.
        let bits = (1..8u32).enumerate().map(|(i, code)| code << (3 * i)).sum::<u32>();
        assert_eq!(stream(&bits.to_le_bytes()[..3], 3, 8), [1, 2, 3, 4, 5, 6, 7, 0]);
    }

    #[test]
    fn ragged_rows_are_padded_with_zeros() {
        assert_eq!(padded(&[1, 2, 3, 4, 5, 6], 3, 1), [1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0]);
    }
}
