//! From sixteen rows of a tensor to a panel.

use std::borrow::Cow;
use std::ops::Range;

use akunu_format::{Data, Tensor};

use super::extract::{Parts, STRETCH, Stretch};
use super::finite::{BF16_EXPONENT, F16_EXPONENT, first_bad_16, first_bad_32};
use super::form::{Codes, Form, Planes, Scales, TILE};
use super::interleave::{Pieces, Rows, WHOLE, interleave};
use crate::Isa;
use crate::simd::LANES;

/// How many stretches ahead of their use a row's bytes are asked for.
const AHEAD: usize = 2;

/// Writes up to sixteen rows into the panel of zeros that `data` is, in any form but pairs. The error is a row with something
/// that is not finite.
pub(super) fn write(
    data: &mut [u8],
    form: Form,
    tensor: &Tensor<'_>,
    rows: Range<usize>,
    isa: Isa,
) -> Result<(), usize> {
    let cols = tensor.row_len();
    let planes = form.planes(cols);
    match (form, tensor.data) {
        (Form::F32, Data::Blocks { bytes, .. }) => {
            let rows = &stored(bytes, 4 * cols, &rows);
            interleave::<4, WHOLE>(isa, data, of_panel(rows), Pieces::whole(0, 4 * cols));
        }
        (Form::F16 | Form::Bf16, Data::Blocks { bytes, .. }) => {
            let rows = &stored(bytes, 2 * cols, &rows);
            interleave::<2, WHOLE>(isa, data, of_panel(rows), Pieces::whole(0, 2 * cols));
        }
        (Form::Int { codes, scales, .. }, Data::Blocks { dtype, bytes }) => {
            let size = |columns: usize| columns / dtype.block_len() * dtype.block_bytes();
            let rows = &stored(bytes, size(cols), &rows);
            let Rows { bytes, stride, .. } = of_panel(rows);
            integers(isa, data, &planes, (codes, scales), cols, |stretch, columns, parts| {
                let (start, len) = (size(columns.start), size(columns.len()));
                let next = AHEAD * size(STRETCH);
                let ahead = if start + next < stride { next } else { next + (LANES - 1) * stride };
                stretch.blocks(dtype, codes, Rows { bytes: &bytes[start..], stride, ahead }, len, parts);
            });
        }
        (Form::Int { codes, scales, .. }, Data::Affine(affine)) => {
            integers(isa, data, &planes, (codes, scales), cols, |stretch, columns, parts| {
                stretch.affine(&affine, codes, rows.clone(), columns, parts);
            });
        }
        _ => unreachable!("pairs are made by their kernel, and the rest has no form"),
    }
    let bad = match form {
        Form::F32 => first_bad_32(data),
        Form::F16 => first_bad_16(data, F16_EXPONENT),
        Form::Bf16 => first_bad_16(data, BF16_EXPONENT),
        Form::Pairs => None,
        Form::Int { scales: Scales::Float { .. }, .. } => first_bad_32(&data[planes.scales..]),
        Form::Int { scales: Scales::Half { .. }, .. } => first_bad_16(&data[planes.scales..], F16_EXPONENT),
        Form::Int { scales: Scales::Super { .. } | Scales::Nibbles, .. } => {
            first_bad_16(&data[planes.supers..], F16_EXPONENT)
        }
    };
    bad.map_or(Ok(()), |number| Err(rows.start + number % LANES))
}

/// The bytes of sixteen rows of so many. Where there are fewer, of rows of zeros, too: those are finite in every dtype, and nothing is made of
/// them.
fn stored<'a>(bytes: &'a [u8], size: usize, rows: &Range<usize>) -> Cow<'a, [u8]> {
    let stored = &bytes[rows.start * size..rows.end * size];
    if rows.len() == LANES {
        return Cow::Borrowed(stored);
    }
    let mut all = vec![0; LANES * size];
    all[..stored.len()].copy_from_slice(stored);
    Cow::Owned(all)
}

fn of_panel(bytes: &[u8]) -> Rows<'_> {
    Rows { bytes, stride: bytes.len() / LANES, ahead: 0 }
}

/// Integers under scales: `take` takes some columns of all rows. What is between the file and the panel stays in the first cache.
fn integers(
    isa: Isa,
    panel: &mut [u8],
    planes: &Planes,
    (codes, scales): (Codes, Scales),
    cols: usize,
    take: impl Fn(&mut Stretch<'_>, Range<usize>, &mut Parts),
) {
    let size = LANES * scales.bytes() * if scales.halves() { 2 } else { 1 };
    let min_size = if scales.min_apart() { size } else { 0 };
    let super_size = if scales.supers() { 2 * LANES } else { 0 };
    let super_min_size = if scales.supers() && scales.min() { 2 * LANES } else { 0 };
    let mut parts = Parts::new();
    for from in (0..cols).step_by(STRETCH) {
        let columns = from..cols.min(from + STRETCH);
        let (first, tiles, block) = (from / TILE, columns.len() / TILE, from / STRETCH);
        let of = |plane: usize, size: usize, first: usize, count: usize| {
            plane + first * size..plane + (first + count) * size
        };
        let [codes, scales, mins, supers, super_mins] = panel
            .get_disjoint_mut([
                of(0, codes.tile_bytes(), first, tiles),
                of(planes.scales, size, first, tiles),
                of(planes.mins, min_size, first, tiles),
                of(planes.supers, super_size, block, 1),
                of(planes.super_mins, super_min_size, block, 1),
            ])
            .expect("parts of the panel's planes");
        take(&mut Stretch { isa, codes, scales, mins, supers, super_mins }, columns, &mut parts);
    }
}
