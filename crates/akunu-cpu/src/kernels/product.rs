//! `out = x · weightsᵀ + bias` for a range of panels: what all matrix products have in common.

use std::ops::Range;

use crate::Isa;
use crate::memory::{Plain, ask};
use crate::pack::{Codes, Form, Matrix, Scales, TILE};
use crate::simd::{LANES, LOW_BITS, Simd};

use super::float::{Bf16, F16, F32, FloatProduct};
use super::int::{B2, B3, B4, B5, B6, B8, IntProduct, Listed};
use super::many::Room;
use super::scales::{FloatScales, HalfScales, NibbleScales, SuperScales};
use super::two_panels;

/// The largest integer activations become: 127 in the high byte, 0 in the low one.
pub(crate) const LARGEST: i32 = 127 << LOW_BITS;

/// A tile's worth of activations of one row, as integers within ±[`LARGEST`] under one scale. Each is
/// `high · 2^LOW_BITS + low` with `high` within ±127 and `low` within ±64, which byte-wise dot products take one after the other.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Group {
    /// Four high parts in each word, the first in the lowest byte.
    pub(crate) high: [i32; TILE / 4],
    /// The low parts, alike.
    pub(crate) low: [i32; TILE / 4],
    pub(crate) scale: f32,
    /// The negated sums of the first and the last sixteen integers, and of all of them.
    pub(crate) negated_sums: [i32; 3],
    /// The sums themselves, times the scale.
    pub(crate) scaled_sums: [f32; 3],
}

// SAFETY: numbers without padding: 32 + 32 + 4 + 12 + 12 bytes.
unsafe impl Plain for Group {}
const _: () = assert!(size_of::<Group>() == 92);

/// Which of a group's three sums goes with a tile's dot (`N` is 8), or with that of one of its halves.
#[inline(always)]
pub(super) const fn sum_of<const N: usize>(half: usize) -> usize {
    if N == TILE / 4 { 2 } else { half }
}

/// The rows a product multiplies: contiguous, row after row.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// `[row][column]`.
    Floats(&'a [f32]),
    /// `[row][tile]`.
    Groups(&'a [Group]),
}

/// One product over some of a matrix's panels.
#[derive(Clone)]
pub(crate) struct Product<'a> {
    pub(crate) matrix: &'a Matrix,
    /// The panels to work on.
    pub(crate) panels: Range<usize>,
    /// The rows of the matrix that are wanted; the first is column 0 of the output.
    pub(crate) slice: Range<usize>,
    /// How many rows of `x`.
    pub(crate) count: usize,
    pub(crate) x: Input<'a>,
    pub(crate) out: Columns,
    /// One for each row of the slice.
    pub(crate) bias: Option<&'a [f32]>,
    /// The matrix that the worker goes on with, and the panel it begins at.
    pub(crate) next: Option<(&'a Matrix, usize)>,
    /// This worker's own, where many rows are multiplied in a way of their own.
    pub(crate) room: Option<&'a Room>,
}

/// Bytes from a panel to the one that its stream goes on with.
#[derive(Clone, Copy)]
pub(crate) struct Further {
    pub(crate) codes: usize,
    pub(crate) scales: usize,
}

/// A matrix in shared memory, of which each worker writes its own columns.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) start: *mut f32,
    /// Elements from one row to the next.
    pub(crate) stride: usize,
}

impl Product<'_> {
    /// How far it is from a panel, one of `beside` side by side, to the one that its stream goes on with: of this product, or of the
    /// next one. For asking the processor ahead of time: what is said of minima and of other forms may be off.
    #[inline(always)]
    pub(crate) fn further(&self, panel: usize, beside: usize) -> Further {
        let (then, end) = (panel + beside, self.panels.end);
        let (matrix, then) = match self.next {
            _ if then < end => (self.matrix, then),
            Some((next, first)) => (next, first + then - end),
            None => (self.matrix, panel),
        };
        let from = |plane: fn(&Matrix) -> usize| {
            matrix.address(then, plane(matrix)).wrapping_sub(self.matrix.address(panel, plane(self.matrix)))
        };
        Further { codes: from(|_| 0), scales: from(|matrix| matrix.planes.scales) }
    }

    /// Asks for the memory that sixteen outputs of one row go to, for who writes them a while later: of many rows, each write would
    /// have to wait for its line.
    #[inline(always)]
    pub(crate) fn ask_for_outputs(&self, row: usize, panel: usize) {
        let column = (panel * LANES).wrapping_sub(self.slice.start);
        ask(self.out.start.wrapping_add((row * self.out.stride).wrapping_add(column)).cast());
    }

    /// Writes what is wanted of sixteen outputs of one row.
    #[inline(always)]
    pub(crate) fn put<S: Simd>(&self, row: usize, panel: usize, sums: S::F) {
        let base = panel * LANES;
        let (from, to) = (self.slice.start.max(base), self.slice.end.min(base + LANES));
        let at = row * self.out.stride + from - self.slice.start;
        if to - from == LANES {
            let mut sums = sums;
            if let Some(bias) = self.bias
                && let Some(bias) = bias[from - self.slice.start..].first_chunk()
            {
                sums = S::add(sums, S::load(bias));
            }
            // SAFETY: rows below `count` and the columns of this product's panels belong to the caller alone: the
            // executor gives each worker its own panels and has room for every row.
            let out = unsafe { &mut *self.out.start.add(at).cast::<[f32; LANES]>() };
            S::store(sums, out);
            return;
        }
        let mut lanes = [0.0; LANES];
        S::store(sums, &mut lanes);
        // SAFETY: as above.
        let out = unsafe { std::slice::from_raw_parts_mut(self.out.start.add(at), to - from) };
        for (i, out) in out.iter_mut().enumerate() {
            let bias = self.bias.map_or(0.0, |bias| bias[from - self.slice.start + i]);
            *out = lanes[from - base + i] + bias;
        }
    }
}

/// The kernel for a form.
pub(crate) type ProductFn = fn(&Product<'_>);

macro_rules! product {
    ($isa:expr, $kernel:ty) => {{
        match $isa {
            Isa::Portable => |p: &Product<'_>| Isa::Portable.run(<$kernel>::new(p)),
            Isa::Avx2 => |p: &Product<'_>| Isa::Avx2.run(<$kernel>::new(p)),
            Isa::Avx512 | Isa::Amx => |p: &Product<'_>| Isa::Avx512.run(<$kernel>::new(p)),
            Isa::Neon => |p: &Product<'_>| Isa::Neon.run(<$kernel>::new(p)),
        }
    }};
}

/// Chooses the kernel for a form, once, at compile time of the program.
pub(crate) fn product_fn(isa: Isa, form: Form) -> ProductFn {
    let (codes, scales) = match form {
        Form::F32 => return product!(isa, FloatProduct<'_, F32>),
        Form::F16 => return product!(isa, FloatProduct<'_, F16>),
        Form::Bf16 => return product!(isa, FloatProduct<'_, Bf16>),
        Form::Pairs => return |_| unreachable!("all rows are prompts, whose products are of tiles"),
        Form::Int { codes, scales, .. } => (codes, scales),
    };
    macro_rules! int {
        ($codes:ty, $scales:ty) => {
            match isa {
                // More rows are multiplied by kernels of their own, which are not compiled for few.
                Isa::Avx512 | Isa::Amx => |p: &Product<'_>| {
                    let kernel = IntProduct::<'_, $codes, $scales>::new(p);
                    if p.count < two_panels::LEAST {
                        Isa::Avx512.run_few(kernel);
                    } else {
                        Isa::Avx512.run(kernel);
                    }
                },
                _ => product!(isa, IntProduct<'_, $codes, $scales>),
            }
        };
    }
    for_codes_and_scales!(codes, scales, int)
}
