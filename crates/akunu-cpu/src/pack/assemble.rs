//! From codes as a file has them, of sixteen rows side by side, to those of tiles.

use super::form::Codes;
use crate::simd::{Kernel, LANES, Simd};

/// Four bytes of each of sixteen rows.
pub(super) type Line = [u8; 4 * LANES];

/// Lines that hold a step of a tile each, where a code is a byte.
const STEPS: usize = 8;

/// How codes that are not in tiles lie in a row.
#[derive(Clone, Copy)]
pub(super) enum Layout {
    /// A byte for each.
    Bytes,
    /// As in a super-block of the K-quants, or what it has but scales.
    Super,
}

/// Makes tiles of a stretch.
pub(super) struct Assembly<'a> {
    pub(super) layout: Layout,
    pub(super) codes: Codes,
    pub(super) stored: &'a [Line],
    /// For each tile a vector for each bit.
    pub(super) tiles: &'a mut [Line],
}

impl Kernel for Assembly<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let Assembly { layout, codes, stored, tiles } = self;
        for (i, tile) in tiles.chunks_exact_mut(codes.bits()).enumerate() {
            let (half, quarter) = (i / 4, i % 4);
            match (layout, codes) {
                (Layout::Super, Codes::B2) => twos::<S>(&stored[STEPS * half..], 2 * quarter, tile),
                (Layout::Super, Codes::B3) => {
                    twos::<S>(&stored[STEPS * (1 + half)..], 2 * quarter, &mut tile[..2]);
                    ones::<S>(stored, i, &mut tile[2]);
                }
                (Layout::Super, Codes::B5) => {
                    fours::<S>(&stored[STEPS * (1 + i / 2)..], i % 2 * 4, tile);
                    ones::<S>(stored, i, &mut tile[4]);
                }
                (Layout::Super, Codes::B6) => {
                    fours::<S>(&stored[STEPS * (2 * half + quarter % 2)..], quarter / 2 * 4, tile);
                    twos::<S>(&stored[STEPS * (4 + half)..], 2 * quarter, &mut tile[4..]);
                }
                (Layout::Super, Codes::B8) => unreachable!("no super-block has such codes"),
                (Layout::Super, Codes::B4 | Codes::Listed(_)) => {
                    fours::<S>(&stored[STEPS * (i / 2)..], i % 2 * 4, tile);
                }
                (Layout::Bytes, codes) => {
                    let stored = &stored[STEPS * i..];
                    match codes {
                        Codes::B2 | Codes::B3 => twos::<S>(stored, 0, &mut tile[..2]),
                        Codes::B4 | Codes::Listed(_) | Codes::B5 | Codes::B6 => fours::<S>(stored, 0, tile),
                        Codes::B8 => tile.copy_from_slice(&stored[..STEPS]),
                    }
                    match codes {
                        Codes::B3 => ones::<S>(stored, 2, &mut tile[2]),
                        Codes::B5 => ones::<S>(stored, 4, &mut tile[4]),
                        Codes::B6 => twos::<S>(stored, 4, &mut tile[4..]),
                        Codes::B2 | Codes::B4 | Codes::Listed(_) | Codes::B8 => {}
                    }
                }
            }
        }
    }
}

/// The vectors of four-bit codes of a tile: the four bits of each byte that begin at `place`.
#[inline(always)]
fn fours<S: Simd>(steps: &[Line], place: usize, vectors: &mut [Line]) {
    match place {
        0 => fours_at::<S, 0>(steps, vectors),
        4 => fours_at::<S, 4>(steps, vectors),
        _ => unreachable!("there are two places"),
    }
}

#[inline(always)]
fn fours_at<S: Simd, const PLACE: u32>(steps: &[Line], vectors: &mut [Line]) {
    for (i, vector) in vectors[..4].iter_mut().enumerate() {
        let (low, high) = (S::codes(&steps[i]), S::codes(&steps[i + 4]));
        S::store_codes(S::or(S::field::<PLACE, 4, 0>(low), S::field::<PLACE, 4, 4>(high)), vector);
    }
}

/// The same for two bits.
#[inline(always)]
fn twos<S: Simd>(steps: &[Line], place: usize, vectors: &mut [Line]) {
    match place {
        0 => twos_at::<S, 0>(steps, vectors),
        2 => twos_at::<S, 2>(steps, vectors),
        4 => twos_at::<S, 4>(steps, vectors),
        6 => twos_at::<S, 6>(steps, vectors),
        _ => unreachable!("there are four places"),
    }
}

#[inline(always)]
fn twos_at<S: Simd, const PLACE: u32>(steps: &[Line], vectors: &mut [Line]) {
    for (vector, [a, b, c, d]) in vectors[..2].iter_mut().zip(steps.as_chunks().0) {
        let low = S::or(S::field::<PLACE, 2, 0>(S::codes(a)), S::field::<PLACE, 2, 2>(S::codes(b)));
        let high = S::or(S::field::<PLACE, 2, 4>(S::codes(c)), S::field::<PLACE, 2, 6>(S::codes(d)));
        S::store_codes(S::or(low, high), vector);
    }
}

/// The same for one bit.
#[inline(always)]
fn ones<S: Simd>(steps: &[Line], place: usize, vector: &mut Line) {
    match place {
        0 => ones_at::<S, 0>(steps, vector),
        1 => ones_at::<S, 1>(steps, vector),
        2 => ones_at::<S, 2>(steps, vector),
        3 => ones_at::<S, 3>(steps, vector),
        4 => ones_at::<S, 4>(steps, vector),
        5 => ones_at::<S, 5>(steps, vector),
        6 => ones_at::<S, 6>(steps, vector),
        7 => ones_at::<S, 7>(steps, vector),
        _ => unreachable!("there are eight places"),
    }
}

#[inline(always)]
fn ones_at<S: Simd, const PLACE: u32>(steps: &[Line], vector: &mut Line) {
    let [a, b, c, d, e, f, g, h] = steps.first_chunk::<STEPS>().expect("a tile");
    let ab = S::or(S::field::<PLACE, 1, 0>(S::codes(a)), S::field::<PLACE, 1, 1>(S::codes(b)));
    let cd = S::or(S::field::<PLACE, 1, 2>(S::codes(c)), S::field::<PLACE, 1, 3>(S::codes(d)));
    let ef = S::or(S::field::<PLACE, 1, 4>(S::codes(e)), S::field::<PLACE, 1, 5>(S::codes(f)));
    let gh = S::or(S::field::<PLACE, 1, 6>(S::codes(g)), S::field::<PLACE, 1, 7>(S::codes(h)));
    S::store_codes(S::or(S::or(ab, cd), S::or(ef, gh)), vector);
}
