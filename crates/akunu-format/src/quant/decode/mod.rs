//! From stored blocks to `f32`, one file per family of dtypes.
//!
//! Every product of a scale and a code is exact in `f32` (save that the largest MXFP4 scales overflow to infinity); where
//! a minimum is added or subtracted there is one rounding. Scales are used as they are: an infinite or NaN scale gives
//! infinite or NaN values, as IEEE arithmetic has it.

mod float;
mod iq;
mod iq_grids;
mod k;
mod microscale;
mod simple;
mod ternary;

use super::layout::{self, Block, F16};
use crate::{DType, Error, Result, SUPER_BLOCK};

/// A block whose `N` values can be computed.
trait Decode<const N: usize>: Block {
    fn decode(&self, values: &mut [f32; N]);
}

/// Decodes `bytes` into `out`. The sizes must match.
pub(super) fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    match dtype {
        DType::F32 => float::f32_to_f32(bytes, out),
        DType::F16 => float::f16_to_f32(bytes, out),
        DType::BF16 => float::bf16_to_f32(bytes, out),
        DType::Q4_0 => blocks::<layout::Q4_0, _>(bytes, out),
        DType::Q4_1 => blocks::<layout::Q4_1, _>(bytes, out),
        DType::Q5_0 => blocks::<layout::Q5_0, _>(bytes, out),
        DType::Q5_1 => blocks::<layout::Q5_1, _>(bytes, out),
        DType::Q8_0 => blocks::<layout::Q8_0, _>(bytes, out),
        DType::Q2_K => blocks::<layout::Q2_K, _>(bytes, out),
        DType::Q3_K => blocks::<layout::Q3_K, _>(bytes, out),
        DType::Q4_K => blocks::<layout::Q4_K, _>(bytes, out),
        DType::Q5_K => blocks::<layout::Q5_K, _>(bytes, out),
        DType::Q6_K => blocks::<layout::Q6_K, _>(bytes, out),
        DType::IQ4_NL => blocks::<layout::IQ4_NL, _>(bytes, out),
        DType::IQ4_XS => blocks::<layout::IQ4_XS, _>(bytes, out),
        DType::IQ3_S => blocks::<layout::IQ3_S, _>(bytes, out),
        DType::IQ3_XXS => blocks::<layout::IQ3_XXS, _>(bytes, out),
        DType::IQ2_S => blocks::<layout::IQ2_S, _>(bytes, out),
        DType::IQ2_XS => blocks::<layout::IQ2_XS, _>(bytes, out),
        DType::IQ2_XXS => blocks::<layout::IQ2_XXS, _>(bytes, out),
        DType::IQ1_S => blocks::<layout::IQ1_S, _>(bytes, out),
        DType::IQ1_M => blocks::<layout::IQ1_M, _>(bytes, out),
        DType::TQ1_0 => blocks::<layout::TQ1_0, _>(bytes, out),
        DType::TQ2_0 => blocks::<layout::TQ2_0, _>(bytes, out),
        DType::MXFP4 => blocks::<layout::MXFP4, _>(bytes, out),
        DType::NVFP4 => blocks::<layout::NVFP4, _>(bytes, out),
        DType::Q8_1
        | DType::Q8_K
        | DType::Q1_0
        | DType::Q2_0
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::F64 => return Err(Error::NoConversion { dtype, action: "read" }),
    }
    Ok(())
}

fn blocks<B: Decode<N>, const N: usize>(bytes: &[u8], out: &mut [f32]) {
    const { assert!(B::LEN == N) }
    for (block, values) in bytemuck::cast_slice::<u8, B>(bytes).iter().zip(out.as_chunks_mut().0) {
        block.decode(values);
    }
}

fn f16(bytes: F16) -> f32 {
    half::f16::from_le_bytes(bytes).to_f32()
}

/// The sub-blocks of a super-block, numbered.
fn sub_blocks<const N: usize>(
    values: &mut [f32; SUPER_BLOCK],
) -> impl Iterator<Item = (usize, &mut [f32; N])> {
    values.as_chunks_mut().0.iter_mut().enumerate()
}

/// Sixteen low nibbles, then sixteen high ones.
fn nibbles(bytes: &[u8; 16]) -> [u8; 32] {
    let mut nibbles = [0; 32];
    let (low, high) = nibbles.split_at_mut(16);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = byte & 0x0F;
        *high = byte >> 4;
    }
    nibbles
}

/// Nibble `i` of a byte string, the low one of each byte first.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (4 * (i % 2)) & 0x0F
}
