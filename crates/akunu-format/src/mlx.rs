//! MLX's affine quantisation: `value = scale * q + bias`, one scale and bias per group along a row.
//!
//! A row of codes is one bit stream, least significant bit first, over little-endian 32-bit words: code `j` lies in
//! bits `j * bits .. (j + 1) * bits` and may straddle two words.

use std::ops::Range;

use crate::{DType, Error, Result, quant};

/// One quantised matrix of an MLX checkpoint: `X.weight`, `X.scales` and `X.biases`.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// Bits per code: 2, 3, 4, 5, 6 or 8.
    pub bits: u32,
    /// Elements that share a scale: 32, 64 or 128.
    pub group_size: usize,
    /// Elements in a row; a multiple of `group_size`.
    pub row_len: usize,
    /// The element type of `scales` and `biases`: F16, BF16 or F32.
    pub scale_dtype: DType,
    /// Codes, `row_len * bits / 8` bytes a row.
    pub codes: &'a [u8],
    /// One scale per group, row after row.
    pub scales: &'a [u8],
    /// One bias per group, row after row.
    pub biases: &'a [u8],
}

impl Affine<'_> {
    /// Bytes of the three arrays together.
    pub fn byte_len(&self) -> usize {
        self.codes.len() + self.scales.len() + self.biases.len()
    }

    /// Writes the given rows as `f32` into `out`, which holds `rows.len() * self.row_len` values.
    pub fn dequantize_rows(&self, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        let expected = rows.len() * self.row_len;
        if out.len() != expected {
            return Err(Error::BufferSize { what: "output values", expected, actual: out.len() });
        }
        if out.is_empty() {
            return Ok(());
        }
        let groups = self.row_len / self.group_size;
        let code_bytes = self.row_len * self.bits as usize / 8;
        let scale_bytes = self.scale_dtype.row_bytes(groups)?;
        for (what, array, row_bytes) in [
            ("bytes of codes", self.codes, code_bytes),
            ("bytes of scales", self.scales, scale_bytes),
            ("bytes of biases", self.biases, scale_bytes),
        ] {
            let expected = rows.end * row_bytes;
            if array.len() < expected {
                return Err(Error::BufferSize { what, expected, actual: array.len() });
            }
        }
        let (mut scales, mut biases) = (vec![0.0; groups], vec![0.0; groups]);
        for (row, out) in rows.zip(out.chunks_exact_mut(self.row_len)) {
            let at = row * scale_bytes..(row + 1) * scale_bytes;
            quant::dequantize(self.scale_dtype, &self.scales[at.clone()], &mut scales)?;
            quant::dequantize(self.scale_dtype, &self.biases[at], &mut biases)?;
            let mut codes = Codes::new(&self.codes[row * code_bytes..(row + 1) * code_bytes], self.bits);
            for ((out, scale), bias) in out.chunks_exact_mut(self.group_size).zip(&scales).zip(&biases) {
                for value in out {
                    *value = scale * codes.next() as f32 + bias;
                }
            }
        }
        Ok(())
    }
}

/// Reads codes of a fixed width from a row's bit stream.
struct Codes<'a> {
    bytes: std::slice::Iter<'a, u8>,
    bits: u32,
    /// Bits read but not yet handed out, in the low `held` bits.
    window: u32,
    held: u32,
}

impl<'a> Codes<'a> {
    fn new(bytes: &'a [u8], bits: u32) -> Self {
        Self { bytes: bytes.iter(), bits, window: 0, held: 0 }
    }

    /// The next code; zero beyond the end of the row.
    fn next(&mut self) -> u32 {
        while self.held < self.bits {
            self.window |= u32::from(self.bytes.next().copied().unwrap_or(0)) << self.held;
            self.held += 8;
        }
        let code = self.window & ((1 << self.bits) - 1);
        self.window >>= self.bits;
        self.held -= self.bits;
        code
    }
}
