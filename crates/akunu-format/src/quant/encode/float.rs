//! F32, F16 and BF16: rounded to the nearest value, ties to even. Infinities and NaN stay what they are; a finite value
//! too large for F16 is an error.

use half::{bf16, f16};

use crate::{DType, Error, Result};

pub(super) fn f32_to_f32(values: &[f32], out: &mut [u8]) {
    for (value, bytes) in values.iter().zip(out.as_chunks_mut().0) {
        *bytes = value.to_le_bytes();
    }
}

pub(super) fn f32_to_f16(values: &[f32], out: &mut [u8]) -> Result<()> {
    let mut overflow = false;
    for (value, bytes) in values.iter().zip(out.as_chunks_mut().0) {
        let half = f16::from_f32(*value);
        overflow |= half.is_infinite() & value.is_finite();
        *bytes = half.to_le_bytes();
    }
    if overflow {
        let too_large = |v: &f32| v.is_finite() && f16::from_f32(*v).is_infinite();
        let index = values.iter().position(too_large).unwrap_or(0);
        let problem = "it exceeds the largest F16, 65504; BF16 would hold it";
        return Err(Error::Value { dtype: DType::F16, index, value: values[index], problem });
    }
    Ok(())
}

pub(super) fn f32_to_bf16(values: &[f32], out: &mut [u8]) {
    for (value, bytes) in values.iter().zip(out.as_chunks_mut().0) {
        *bytes = bf16::from_f32(*value).to_le_bytes();
    }
}
