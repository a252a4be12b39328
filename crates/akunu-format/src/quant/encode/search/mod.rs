//! The search for the scales of a super-block that leave the least squared error.
//!
//! A super-block holds sub-blocks of `N` values. Each sub-block is first fitted alone, with real-valued scales. The
//! largest of these set the super-block's own scales, in units of which the others become small integers, chosen by
//! trying the neighbours of the real-valued fit. The super-block's scales are then fitted to the codes chosen, and the
//! integers chosen once more; the better of the two rounds is kept.
//!
//! Eight sub-blocks are searched side by side, one per vector lane: values are transposed first, and loops over
//! [`Lanes`] become vector instructions. Their branches are therefore written as choices between two values.

mod offset;
mod signed;

use half::f16;

pub(super) use offset::OffsetSearch;
pub(super) use signed::SignedSearch;

use super::{greater, lesser};
use crate::SUPER_BLOCK;

const LANES: usize = 8;

/// One number for each of eight sub-blocks.
type Lanes = [f32; LANES];

/// Eight sub-blocks, transposed: `[value in sub-block][sub-block]`.
type Group<const N: usize> = [Lanes; N];

/// No format holds values this large, and below it no sum of squares overflows.
const TOO_LARGE: f32 = 1e15;

fn lanes(f: impl FnMut(usize) -> f32) -> Lanes {
    std::array::from_fn(f)
}

/// The super-block in `G` groups of eight sub-blocks, or `None` when its values are too large for any scale.
fn transpose<const N: usize, const G: usize>(values: &[f32; SUPER_BLOCK]) -> Option<[Group<N>; G]> {
    const { assert!(N * G * LANES == SUPER_BLOCK) };
    let fits = values.iter().fold(true, |fits, v| fits & (v.abs() < TOO_LARGE));
    let groups = std::array::from_fn(|g| {
        let sub_blocks = values[g * LANES * N..].as_chunks::<N>().0;
        std::array::from_fn(|i| lanes(|l| sub_blocks[l][i]))
    });
    fits.then_some(groups)
}

/// The opposite: codes of group `g` into the order of the values.
fn store_codes<const N: usize>(codes: &mut [i8; SUPER_BLOCK], g: usize, code: impl Fn(usize) -> Lanes) {
    let sub_blocks = codes[g * LANES * N..].as_chunks_mut::<N>().0;
    for i in 0..N {
        for (sub_block, code) in sub_blocks.iter_mut().zip(code(i)) {
            sub_block[i] = code as i8;
        }
    }
}

/// Rounds to the nearest integer, ties to even, for magnitudes below 2^22. Two additions, where `round_ties_even` is a
/// call on machines without the instruction.
fn round(x: f32) -> f32 {
    const SHIFT: f32 = (3 << 22) as f32;
    (x + SHIFT) - SHIFT
}

fn clamp(x: f32, low: f32, high: f32) -> f32 {
    lesser(greater(x, low), high)
}

fn total<const G: usize>(lanes: &[Lanes; G]) -> f32 {
    lanes.as_flattened().iter().sum()
}

/// A super-block's scale. Subnormals are coarse: rounded away from zero, they leave room for the largest sub-block. But one
/// that is hardly too small is kept: values that lie on its grid, even those rounded to F16 since, lead back to it.
fn to_f16(scale: f32) -> f16 {
    /// Of the scale: less than a sixteenth of a step in the largest of 32 codes.
    const HARDLY: f32 = 1.0 / 512.0;
    let nearest = f16::from_f32(scale);
    let subnormal = scale.abs() < f16::MIN_POSITIVE.to_f32();
    if subnormal && nearest.to_f32().abs() < scale.abs() * (1.0 - HARDLY) {
        f16::from_bits(nearest.to_bits() + 1)
    } else {
        nearest
    }
}
