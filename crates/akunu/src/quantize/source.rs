//! The tensors of the new file and where their values come from.

use std::borrow::Cow;
use std::ops::Range;

use akunu_format::{Data, Error, Result, Tensor};

/// A tensor of the new file.
pub(super) struct Source<'a> {
    pub name: String,
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    pub values: Values<'a>,
}

/// Where a tensor's values come from.
pub(super) enum Values<'a> {
    /// A tensor as it is.
    Stored(Tensor<'a>),
    /// Matrices of the same shape, one after the other.
    Stacked(Vec<Tensor<'a>>),
    /// A matrix whose rows change place, or that is multiplied by a number.
    Changed {
        tensor: Tensor<'a>,
        /// Rows of a head whose two halves become even and odd rows.
        interleaved: Option<usize>,
        factor: f32,
    },
    /// Values at hand, and what they were made from.
    Computed(Vec<f32>, Cow<'static, str>),
}

impl<'a> Source<'a> {
    /// A tensor as it is.
    pub fn stored(name: impl Into<String>, tensor: Tensor<'a>) -> Self {
        Self { name: name.into(), shape: tensor.shape.to_vec(), values: Values::Stored(tensor) }
    }

    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// What the values are stored as, such as `F16`.
    pub fn dtype_name(&self) -> Cow<'static, str> {
        match &self.values {
            Values::Stored(tensor) | Values::Changed { tensor, .. } => tensor.dtype_name(),
            Values::Stacked(tensors) => tensors.first().map_or(Cow::Borrowed("F32"), Tensor::dtype_name),
            Values::Computed(_, from) => from.clone(),
        }
    }

    /// Bytes that are read.
    pub fn byte_len(&self) -> usize {
        match &self.values {
            Values::Stored(tensor) | Values::Changed { tensor, .. } => tensor.byte_len(),
            Values::Stacked(tensors) => tensors.iter().map(Tensor::byte_len).sum(),
            Values::Computed(values, _) => 4 * values.len(),
        }
    }

    /// The bytes of the whole tensor, where they need no change.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match &self.values {
            Values::Stored(Tensor { data: Data::Blocks { bytes, .. }, .. }) => Some(bytes),
            _ => None,
        }
    }

    /// Writes the given rows into `out`.
    pub fn read(&self, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        match &self.values {
            Values::Stored(tensor) => tensor.dequantize_rows(rows, out),
            Values::Stacked(tensors) => {
                let per_tensor = tensors.first().map_or(1, Tensor::rows).max(1);
                for (row, out) in rows.zip(out.chunks_exact_mut(self.row_len())) {
                    let at = row % per_tensor;
                    tensors[row / per_tensor].dequantize_rows(at..at + 1, out)?;
                }
                Ok(())
            }
            Values::Changed { tensor, interleaved, factor } => {
                for (row, out) in rows.zip(out.chunks_exact_mut(self.row_len())) {
                    let from = interleaved.map_or(row, |head| interleaved_from(row, head));
                    tensor.dequantize_rows(from..from + 1, out)?;
                    out.iter_mut().for_each(|value| *value *= factor);
                }
                Ok(())
            }
            Values::Computed(values, _) => {
                let range = rows.start * self.row_len()..rows.end * self.row_len();
                let actual = out.len();
                let expected = range.len();
                match values.get(range) {
                    Some(values) if expected == actual => out.copy_from_slice(values),
                    _ => return Err(Error::BufferSize { what: "output values", expected, actual }),
                }
                Ok(())
            }
        }
    }
}

/// Which row becomes row `to` when the halves of heads of `head` rows become even and odd rows.
pub(super) fn interleaved_from(to: usize, head: usize) -> usize {
    let within = to % head;
    to - within + within / 2 + within % 2 * (head / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_heads_become_even_and_odd_rows() {
        let from: Vec<_> = (0..12).map(|to| interleaved_from(to, 6)).collect();
        assert_eq!(from, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    }
}
