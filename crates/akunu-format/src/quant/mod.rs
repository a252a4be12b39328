//! Reference conversions between `f32` and every readable dtype: plain, exact, and the definition of right for the
//! fast kernels above.

mod decode;
mod encode;
mod layout;

use crate::{DType, Error, Result};

/// Turns whole blocks of `dtype` into `f32`, with the bits the Python package `gguf` gives.
///
/// Every bit pattern decodes to something: infinite and NaN scales give infinite and NaN values. An error means that the
/// sizes do not match or that the dtype can only be inspected.
///
/// ```
/// use akunu_format::{DType, quant};
///
/// let mut block = [0x89; 18]; // 16 bytes of nibbles 9 and 8 ...
/// block[..2].copy_from_slice(&[0x00, 0x38]); // ... under the scale 0.5
/// let mut values = [0.0; 32];
/// quant::dequantize(DType::Q4_0, &block, &mut values)?;
/// assert_eq!((values[0], values[16]), (0.5, 0.0));
/// # Ok::<(), akunu_format::Error>(())
/// ```
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    check_sizes(dtype, bytes.len(), out.len())?;
    decode::dequantize(dtype, bytes, out)
}

/// Turns `f32` into whole blocks of `dtype`.
///
/// `values` are rows of one tensor, each a whole number of blocks; every block is encoded by itself.
///
/// F16 and BF16 are rounded to the nearest value, ties to even. Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 follow their
/// definitions to the bit. The K-quants and IQ4_NL are searched for the least squared error. A value that the dtype
/// cannot hold (NaN or an infinity in a quantised block, a scale beyond F16) is an error.
///
/// ```
/// use akunu_format::{DType, quant};
/// let mut block = [0; 34];
/// quant::quantize(DType::Q8_0, &[0.5; 32], &mut block)?;
/// let mut back = [0.0; 32];
/// quant::dequantize(DType::Q8_0, &block, &mut back)?;
/// assert!((back[0] - 0.5).abs() < 0.5 / 127.0);
/// # Ok::<(), akunu_format::Error>(())
/// ```
pub fn quantize(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<()> {
    check_sizes(dtype, out.len(), values.len())?;
    encode::quantize(dtype, values, out)
}

fn check_sizes(dtype: DType, bytes: usize, values: usize) -> Result<()> {
    let expected = dtype.row_bytes(values)?;
    if bytes != expected {
        return Err(Error::BufferSize { what: "quantised bytes", expected, actual: bytes });
    }
    Ok(())
}
