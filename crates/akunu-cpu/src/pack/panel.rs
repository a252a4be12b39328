//! From sixteen rows of a tensor to a panel.

use std::ops::Range;

use akunu_format::{Data, Tensor};

use super::assemble::{Assembly, Layout, Line};
use super::extract::{Part, STRETCH};
use super::form::{Codes, Form, Planes, Scales, TILE, TILES_PER_SUPER};
use super::interleave::interleave;
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
        (Form::F32, Data::Blocks { bytes, .. }) => floats::<4>(isa, data, bytes, cols, &rows),
        (Form::F16 | Form::Bf16, Data::Blocks { bytes, .. }) => floats::<2>(isa, data, bytes, cols, &rows),
        (Form::Int { codes, scales, .. }, Data::Blocks { dtype, bytes }) => {
            let size = |columns: usize| columns / dtype.block_len() * dtype.block_bytes();
            let (row_size, stretch) = (size(cols), size(STRETCH));
            let layout = Layout::of(dtype);
            integers(isa, data, &planes, (codes, scales, layout), cols, &rows, |row, columns, part| {
                let stored = &bytes[row * row_size..(row + 1) * row_size];
                let start = columns.start / STRETCH * stretch;
                // Sixteen rows are read side by side: too many places for the processor to foresee.
                for line in (0..stretch).step_by(64) {
                    ask(stored.as_ptr().wrapping_add(start + AHEAD * stretch + line));
                }
                part.blocks(dtype, &stored[start..row_size.min(start + stretch)])
            });
        }
        (Form::Int { codes, scales, .. }, Data::Affine(affine)) => {
            let layout = Layout::Bytes;
            integers(isa, data, &planes, (codes, scales, layout), cols, &rows, |row, columns, part| {
                part.affine(&affine, codes, row, columns);
                None
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

/// Rows of floats of `N` bytes.
fn floats<const N: usize>(isa: Isa, panel: &mut [u8], bytes: &[u8], cols: usize, rows: &Range<usize>) {
    let none = vec![0; if rows.len() < LANES { N * cols } else { 0 }];
    let mut lanes = [&none[..]; LANES];
    for (lane, row) in lanes.iter_mut().zip(rows.clone()) {
        *lane = &bytes[row * N * cols..(row + 1) * N * cols];
    }
    interleave::<N>(isa, panel, lanes);
}

/// [`interleave`] for numbers of one size.
type Interleave = fn(Isa, &mut [u8], [&[u8]; LANES]);

/// Rows of integers under scales: `take` takes some columns of one apart. A stretch of all rows is put side by side before the
/// next: what is between stays in the first cache.
fn integers<'a>(
    isa: Isa,
    panel: &mut [u8],
    planes: &Planes,
    (codes, scales, layout): (Codes, Scales, Layout),
    cols: usize,
    rows: &Range<usize>,
    take: impl Fn(usize, Range<usize>, &mut Part) -> Option<&'a [u8]>,
) {
    let put: Interleave = match scales.bytes() {
        1 => interleave::<1>,
        2 => interleave::<2>,
        _ => interleave::<4>,
    };
    let size = scales.bytes() * if scales.halves() { 2 } else { 1 };
    let mut parts = [const { Part::new() }; LANES];
    let mut lines = Lines([[0; 4 * LANES]; STRETCH / 4]);
    for from in (0..cols).step_by(STRETCH) {
        let columns = from..cols.min(from + STRETCH);
        let mut stored = [None; LANES];
        for ((part, stored), row) in parts.iter_mut().zip(&mut stored).zip(rows.clone()) {
            *stored = take(row, columns.clone(), part);
        }
        let (first, tiles) = (columns.start / TILE, columns.len() / TILE);
        let mut words = lanes(&parts, |part| &part.codes[..layout.bytes(codes, tiles)]);
        words.iter_mut().zip(stored).for_each(|(words, stored)| *words = stored.unwrap_or(words));
        let tiles_at = &mut panel[first * codes.tile_bytes()..][..tiles * codes.tile_bytes()];
        if layout == Layout::Tiles {
            interleave::<4>(isa, tiles_at, words);
        } else {
            interleave::<4>(isa, lines.0.as_flattened_mut(), words);
            isa.run(Assembly { layout, codes, stored: &lines.0, tiles: tiles_at.as_chunks_mut().0 });
        }
        let (at, len) = (size * first * LANES, size * tiles);
        put(isa, &mut panel[planes.scales + at..], lanes(&parts, |part| &part.scales[..len]));
        if scales.min_apart() {
            put(isa, &mut panel[planes.mins + at..], lanes(&parts, |part| &part.mins[..len]));
        }
        let at = 2 * (first / TILES_PER_SUPER) * LANES;
        if scales.supers() {
            interleave::<2>(isa, &mut panel[planes.supers + at..], lanes(&parts, |part| &part.supers[..]));
        }
        if scales.supers() && scales.min() {
            interleave::<2>(
                isa,
                &mut panel[planes.super_mins + at..],
                lanes(&parts, |part| &part.super_mins[..]),
            );
        }
    }
}

/// Room for what a stretch of sixteen rows has, side by side.
#[repr(align(64))]
struct Lines([Line; STRETCH / 4]);

/// What each row has of one kind.
fn lanes<'a>(parts: &'a [Part; LANES], of: impl Fn(&'a Part) -> &'a [u8]) -> [&'a [u8]; LANES] {
    let mut lanes: [&[u8]; LANES] = [&[]; LANES];
    for (lane, part) in lanes.iter_mut().zip(parts) {
        *lane = of(part);
    }
    lanes
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
