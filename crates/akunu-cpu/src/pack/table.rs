//! A matrix whose rows are looked up, and nothing else: it stays where it lies in its file. A token reads a row of it, for which
//! no layout is faster than another; making a packed one would take memory and time for all rows.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use akunu_format::quant::dequantize;
use akunu_format::{DType, Data, Mapping, Tensor};
use akunu_program::Error;
use akunu_program::program::Role;

use super::finite::{BF16_EXPONENT, F16_EXPONENT, first_bad_16, first_bad_32};

/// Bytes that are looked at together, about: as many as are packed together.
const PIECE: usize = 2 << 20;

/// Such a matrix.
pub(crate) struct Table {
    file: Mapping,
    /// Where the first row begins in the file.
    start: usize,
    dtype: DType,
    pub(crate) rows: usize,
    pub(crate) row_bytes: usize,
    /// The first row with something that is not finite, of those that were looked at.
    bad_row: AtomicUsize,
}

impl Table {
    /// A tensor that is wanted for nothing else and lies in a mapped file, in a dtype that tells at the same places of every block whether
    /// numbers are finite. Its shape has been checked.
    pub(crate) fn of(tensor: &Tensor<'_>, role: Role, file: Option<&Mapping>) -> Option<Table> {
        let Data::Blocks { dtype, bytes } = tensor.data else { return None };
        let only_lookup = role.lookup && !role.multiply && !role.encode && !role.vector;
        let (file, rows) = (file.filter(|_| only_lookup)?, tensor.rows());
        scales(dtype)?;
        let start = bytes.as_ptr().addr().checked_sub(file.bytes().as_ptr().addr())?;
        let row_bytes = dtype.row_bytes(tensor.row_len()).ok()?;
        let end = start.checked_add(rows.checked_mul(row_bytes)?)?;
        let is_inside = end <= file.bytes().len() && row_bytes > 0;
        let bad_row = AtomicUsize::new(usize::MAX);
        is_inside.then(|| Table { file: file.clone(), start, dtype, rows, row_bytes, bad_row })
    }

    /// All rows, some at a time.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Range<usize>> {
        let rows = (PIECE / self.row_bytes).max(1);
        (0..self.rows).step_by(rows).map(move |first| first..self.rows.min(first + rows))
    }

    /// Looks at some rows. Returns whether all their numbers are finite.
    pub(crate) fn check(&self, rows: Range<usize>) -> bool {
        let bytes = self.bytes(rows.clone());
        let bad = match self.dtype {
            DType::F32 => first_bad_32(bytes).map(|at| 4 * at),
            DType::F16 => first_bad_16(bytes, F16_EXPONENT).map(|at| 2 * at),
            DType::BF16 => first_bad_16(bytes, BF16_EXPONENT).map(|at| 2 * at),
            dtype => {
                let (size, scales) = (dtype.block_bytes(), scales(dtype).unwrap_or_default());
                let is_bad = |block: &[u8]| {
                    scales.iter().any(|at| first_bad_16(&block[*at..at + 2], F16_EXPONENT).is_some())
                };
                bytes.chunks_exact(size).position(is_bad).map(|at| size * at)
            }
        };
        if let Some(at) = bad {
            self.bad_row.fetch_min(rows.start + at / self.row_bytes, Ordering::Relaxed);
        }
        bad.is_none()
    }

    /// The table, when all of it has been looked at.
    pub(crate) fn finish(self, name: &str) -> Result<Table, Error> {
        match self.bad_row.load(Ordering::Relaxed) {
            usize::MAX => Ok(self),
            row => Err(Error::NotFinite { name: name.to_owned(), row }),
        }
    }

    /// Writes one row as `f32`.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        dequantize(self.dtype, self.bytes(row..row + 1), out).expect("a row of as many numbers");
    }

    fn bytes(&self, rows: Range<usize>) -> &[u8] {
        &self.file.bytes()[self.start..][rows.start * self.row_bytes..rows.end * self.row_bytes]
    }
}

/// Where in a block those numbers of two bytes are that all others are multiplied by or added to; nowhere in particular where all
/// are floats themselves.
fn scales(dtype: DType) -> Option<&'static [usize]> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Some(&[]),
        DType::Q4_0 | DType::Q5_0 | DType::Q8_0 | DType::IQ4_NL | DType::IQ4_XS => Some(&[0]),
        DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => Some(&[0, 2]),
        DType::Q2_K => Some(&[80, 82]),
        DType::Q3_K => Some(&[108]),
        DType::Q6_K => Some(&[208]),
        _ => None,
    }
}
