//! From sixteen rows of a tensor to a panel.

use std::borrow::Cow;
use std::ops::Range;

use akunu_format::{Data, Tensor};

use super::extract::{Parts, STRETCH, Stretch};
use super::form::{Codes, Form, Planes, Scales, TILE};
use super::interleave::{Pieces, Rows, WHOLE, interleave};
use crate::Isa;
use crate::memory::ask;
use crate::simd::LANES;

/// How many stretches ahead of their use a row's bytes are asked for.
const AHEAD: usize = 2;

/// The bits of an exponent that are all set where a number is not finite.
const F32_EXPONENT: u32 = 0x7F80_0000;
const F16_EXPONENT: u16 = 0x7C00;
const BF16_EXPONENT: u16 = 0x7F80;

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
            let Rows { bytes, stride } = of_panel(rows);
            integers(isa, data, &planes, (codes, scales), cols, |stretch, columns, parts| {
                let (start, len) = (size(columns.start), size(columns.len()));
                ask_ahead(Rows { bytes, stride }, start + AHEAD * size(STRETCH), len);
                stretch.blocks(dtype, codes, Rows { bytes: &bytes[start..], stride }, len, parts);
            });
        }
        (Form::Int { codes, scales, .. }, Data::Affine(affine)) => {
            integers(isa, data, &planes, (codes, scales), cols, |stretch, columns, parts| {
                stretch.affine(&affine, codes, rows.clone(), columns, parts);
            });
        }
        _ => unreachable!("pairs are made by their kernel, and the rest has no form"),
    }
    let lane = match form {
        Form::F32 => not_finite_32(data),
        Form::F16 => not_finite_16(data, F16_EXPONENT),
        Form::Bf16 => not_finite_16(data, BF16_EXPONENT),
        Form::Pairs => None,
        Form::Int { scales: Scales::Float { .. }, .. } => not_finite_32(&data[planes.scales..]),
        Form::Int { scales: Scales::Half { .. }, .. } => not_finite_16(&data[planes.scales..], F16_EXPONENT),
        Form::Int { scales: Scales::Super { .. } | Scales::Nibbles, .. } => {
            not_finite_16(&data[planes.supers..], F16_EXPONENT)
        }
    };
    lane.map_or(Ok(()), |lane| Err(rows.start + lane))
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
    Rows { bytes, stride: bytes.len() / LANES }
}

/// Asks for `len` bytes of each row, from `start` on, which may be those of the rows of the next panel. Sixteen rows are read side
/// by side: too many places for the processor to foresee.
fn ask_ahead(rows: Rows<'_>, start: usize, len: usize) {
    let Rows { bytes, stride } = rows;
    for row in 0..LANES {
        for at in (start..start + len).step_by(64) {
            // Past the end of a row is the next row; in its place is that of the next panel.
            let at = if at < stride { at } else { at + (LANES - 1) * stride };
            ask(bytes.as_ptr().wrapping_add(row * stride + at));
        }
    }
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

/// The lane of a number that is not finite.
fn not_finite_16(planes: &[u8], exponent: u16) -> Option<usize> {
    let bad = |number: &[u8; 2]| u16::from_le_bytes(*number) & exponent == exponent;
    lane_of(planes.as_chunks().0, bad)
}

fn not_finite_32(planes: &[u8]) -> Option<usize> {
    let bad = |number: &[u8; 4]| u32::from_le_bytes(*number) & F32_EXPONENT == F32_EXPONENT;
    lane_of(planes.as_chunks().0, bad)
}

/// The lane of a number that is bad. There is hardly ever one: many are looked at before anything hangs on what was seen.
#[inline(always)]
fn lane_of<const N: usize>(numbers: &[[u8; N]], bad: impl Fn(&[u8; N]) -> bool) -> Option<usize> {
    const MANY: usize = 64 * LANES;
    let any = |numbers: &&[[u8; N]]| numbers.iter().fold(false, |any, number| any | bad(number));
    numbers.chunks(MANY).find(any).and_then(|many| many.iter().position(bad)).map(|at| at % LANES)
}
