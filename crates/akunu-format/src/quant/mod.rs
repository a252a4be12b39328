//! Reference conversions between `f32` and every readable dtype: plain, exact, and the definition of right for the
//! fast kernels above.

mod decode;
mod layout;

use crate::{DType, Error, Result};

/// Turns whole blocks of `dtype` into `f32`.
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    check_sizes(dtype, bytes.len(), out.len())?;
    decode::dequantize(dtype, bytes, out)
}

fn check_sizes(dtype: DType, bytes: usize, values: usize) -> Result<()> {
    let expected = dtype.row_bytes(values)?;
    if bytes != expected {
        return Err(Error::BufferSize { what: "quantised bytes", expected, actual: bytes });
    }
    Ok(())
}
