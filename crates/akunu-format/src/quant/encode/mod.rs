//! From `f32` to stored blocks, one file per family of dtypes.
//!
//! The simple types have a definition each, followed to the bit. The K-quants and IQ4_NL leave the choice of scales to
//! whoever writes them: here they are searched for the least squared error.

mod float;
mod iq4_nl;
mod k;
mod search;
mod simple;

use half::f16;

use super::layout::{self, Block, F16};
use crate::{DType, Error, Result};

/// A block that can be made from `N` values.
trait Encode<const N: usize>: Block {
    /// `None` when a scale exceeds the range of F16. The values are finite.
    fn encode(values: &[f32; N]) -> Option<Self>;
}

/// Encodes `values` into `out`. The sizes must match.
pub(super) fn quantize(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<()> {
    match dtype {
        DType::F32 => float::f32_to_f32(values, out),
        DType::F16 => float::f32_to_f16(values, out)?,
        DType::BF16 => float::f32_to_bf16(values, out),
        DType::Q4_0 => blocks::<layout::Q4_0, _>(values, out)?,
        DType::Q4_1 => blocks::<layout::Q4_1, _>(values, out)?,
        DType::Q5_0 => blocks::<layout::Q5_0, _>(values, out)?,
        DType::Q5_1 => blocks::<layout::Q5_1, _>(values, out)?,
        DType::Q8_0 => blocks::<layout::Q8_0, _>(values, out)?,
        DType::Q2_K => blocks::<layout::Q2_K, _>(values, out)?,
        DType::Q3_K => blocks::<layout::Q3_K, _>(values, out)?,
        DType::Q4_K => blocks::<layout::Q4_K, _>(values, out)?,
        DType::Q5_K => blocks::<layout::Q5_K, _>(values, out)?,
        DType::Q6_K => blocks::<layout::Q6_K, _>(values, out)?,
        DType::IQ4_NL => blocks::<layout::IQ4_NL, _>(values, out)?,
        _ => return Err(Error::NoConversion { dtype, action: "written" }),
    }
    Ok(())
}

fn blocks<B: Encode<N>, const N: usize>(values: &[f32], out: &mut [u8]) -> Result<()> {
    const { assert!(B::LEN == N) }
    let refuse =
        |index: usize, problem| Error::Value { dtype: B::DTYPE, index, value: values[index], problem };
    let blocks = values.as_chunks::<N>().0.iter().zip(bytemuck::cast_slice_mut::<u8, B>(out));
    for (i, (values, block)) in blocks.enumerate() {
        // No early exit: this way the test is a few vector instructions.
        if !values.iter().fold(true, |finite, v| finite & v.is_finite()) {
            let at = values.iter().position(|v| !v.is_finite()).unwrap_or(0);
            return Err(refuse(i * N + at, "it is not a finite number"));
        }
        *block = B::encode(values).ok_or_else(|| {
            let at = (0..N).max_by(|&a, &b| values[a].abs().total_cmp(&values[b].abs())).unwrap_or(0);
            refuse(i * N + at, "the scale of its block would exceed the range of F16")
        })?;
    }
    Ok(())
}

/// A scale as it is stored, or `None` when it would become infinite.
fn stored(scale: f32) -> Option<F16> {
    let scale = f16::from_f32(scale);
    scale.is_finite().then(|| scale.to_le_bytes())
}

/// `1 / step`, or 0, which maps everything to code 0.
fn inverse(step: f32) -> f32 {
    if step == 0.0 { 0.0 } else { 1.0 / step }
}

/// Of two numbers that are not NaN: one instruction, where `f32::max` is several.
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Of two numbers that are not NaN: one instruction, where `f32::min` is several.
fn lesser(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// Low nibble: element `j`; high: element `j + 16`.
fn nibbles(codes: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| codes[j] & 0x0F | codes[j + 16] << 4)
}
