//! A tensor as it lies in a file: a name, a shape, and borrowed bytes that are touched only when used.

use std::borrow::Cow;
use std::ops::Range;

use crate::{DType, Error, Result, mlx, quant};

/// A view of one tensor in an open model file.
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    /// The name in the file.
    pub name: &'a str,
    /// Dimensions, outermost first: a linear layer is `[out, in]` and rows lie along `in`.
    /// (GGUF stores the reverse; readers turn it round.)
    pub shape: &'a [usize],
    /// The values.
    pub data: Data<'a>,
}

/// Where a tensor's values lie and how they are encoded.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Plain values or GGUF blocks, row after row.
    Blocks {
        /// The element type.
        dtype: DType,
        /// The bytes of the whole tensor.
        bytes: &'a [u8],
    },
    /// MLX's affine quantisation: packed words, scales and biases in three arrays.
    Affine(mlx::Affine<'a>),
    /// Values of an element type that SafeTensors has and GGUF does not, such as masks: listed, not read as weights.
    Opaque {
        /// The element type as the file spells it, such as `BOOL`, `U8` or `F8_E4M3`.
        dtype: &'static str,
        /// The bytes of the whole tensor.
        bytes: &'a [u8],
    },
}

impl Tensor<'_> {
    /// The element type as people name it: a [`DType`]'s name, SafeTensors' own, or `affine 4-bit` for MLX.
    pub fn dtype_name(&self) -> Cow<'static, str> {
        match self.data {
            Data::Blocks { dtype, .. } => dtype.name().into(),
            Data::Affine(affine) => format!("affine {}-bit", affine.bits).into(),
            Data::Opaque { dtype, .. } => dtype.into(),
        }
    }

    /// Elements in the tensor (1 for a scalar).
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tensor holds no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements in a row: the innermost dimension.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Rows: all dimensions but the innermost, multiplied.
    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// Bytes the tensor occupies in its file, scales and biases included.
    pub fn byte_len(&self) -> usize {
        match self.data {
            Data::Blocks { bytes, .. } | Data::Opaque { bytes, .. } => bytes.len(),
            Data::Affine(affine) => affine.byte_len(),
        }
    }

    /// Writes the given rows as `f32` into `out`, which holds `rows.len() * self.row_len()` values.
    pub fn dequantize_rows(&self, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        if rows.start > rows.end || rows.end > self.rows() {
            let (tensor, Range { start, end }) = (self.name.to_owned(), rows);
            return Err(Error::RowRange { tensor, start, end, rows: self.rows() });
        }
        match self.data {
            Data::Blocks { dtype, bytes } => {
                let row = dtype.row_bytes(self.row_len())?;
                quant::dequantize(dtype, &bytes[rows.start * row..rows.end * row], out)
            }
            Data::Affine(affine) => affine.dequantize_rows(rows, out),
            Data::Opaque { dtype, .. } => Err(Error::OpaqueValues { tensor: self.name.to_owned(), dtype }),
        }
    }

    /// The whole tensor as `f32`.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut out = vec![0.0; self.len()];
        self.dequantize_rows(0..self.rows(), &mut out)?;
        Ok(out)
    }
}
