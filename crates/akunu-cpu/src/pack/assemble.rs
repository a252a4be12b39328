//! From codes as a file has them, of sixteen rows side by side, to those of tiles.

use super::form::{Codes, TILES_PER_SUPER};
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
    /// Everything is decided before a loop begins: what is in it then is vectors alone.
    #[inline(always)]
    fn run<S: Simd>(self) {
        let Assembly { layout, codes, stored, tiles } = self;
        let steps = stored.as_chunks().0;
        match (layout, codes) {
            (Layout::Super, Codes::B2) => twos_of_super::<S, 2, 0>(steps, of_super(tiles)),
            (Layout::Super, Codes::B3) => {
                let tiles = of_super::<3>(tiles);
                twos_of_super::<S, 3, 0>(&steps[1..], tiles);
                ones_of_super::<S, 3>(&steps[0], tiles);
            }
            (Layout::Super, Codes::B4 | Codes::Listed(_)) => {
                fours_of_super::<S, 4, 1>(steps, of_super(tiles));
            }
            (Layout::Super, Codes::B5) => {
                let tiles = of_super::<5>(tiles);
                fours_of_super::<S, 5, 1>(&steps[1..], tiles);
                ones_of_super::<S, 5>(&steps[0], tiles);
            }
            (Layout::Super, Codes::B6) => {
                let tiles = of_super::<6>(tiles);
                fours_of_super::<S, 6, 2>(steps, tiles);
                twos_of_super::<S, 6, 4>(&steps[4..], tiles);
            }
            (Layout::Super, Codes::B8) => unreachable!("no super-block has such codes"),
            (Layout::Bytes, Codes::B2) => {
                for (tile, steps) in tiles.as_chunks_mut::<2>().0.iter_mut().zip(steps) {
                    twos::<S, 0>(steps, tile);
                }
            }
            (Layout::Bytes, Codes::B3) => {
                for (tile, steps) in tiles.as_chunks_mut::<3>().0.iter_mut().zip(steps) {
                    twos::<S, 0>(steps, part::<3, 2>(tile, 0));
                    ones::<S, 2>(steps, &mut tile[2]);
                }
            }
            (Layout::Bytes, Codes::B4 | Codes::Listed(_)) => {
                for (tile, steps) in tiles.as_chunks_mut::<4>().0.iter_mut().zip(steps) {
                    fours::<S, 0>(steps, tile);
                }
            }
            (Layout::Bytes, Codes::B5) => {
                for (tile, steps) in tiles.as_chunks_mut::<5>().0.iter_mut().zip(steps) {
                    fours::<S, 0>(steps, part::<5, 4>(tile, 0));
                    ones::<S, 4>(steps, &mut tile[4]);
                }
            }
            (Layout::Bytes, Codes::B6) => {
                for (tile, steps) in tiles.as_chunks_mut::<6>().0.iter_mut().zip(steps) {
                    fours::<S, 0>(steps, part::<6, 4>(tile, 0));
                    twos::<S, 4>(steps, part::<6, 2>(tile, 4));
                }
            }
            (Layout::Bytes, Codes::B8) => tiles.copy_from_slice(&stored[..tiles.len()]),
        }
    }
}

/// The lines that a tile's codes are in.
type Steps = [Line; STEPS];

/// The tiles of a super-block, of `BITS` vectors each.
#[inline(always)]
fn of_super<const BITS: usize>(tiles: &mut [Line]) -> &mut [[Line; BITS]; TILES_PER_SUPER] {
    tiles.as_chunks_mut().0.first_chunk_mut().expect("a super-block")
}

/// Some vectors of a tile.
#[inline(always)]
fn part<const BITS: usize, const COUNT: usize>(tile: &mut [Line; BITS], at: usize) -> &mut [Line; COUNT] {
    tile[at..].first_chunk_mut().expect("vectors of the tile")
}

/// The first four vectors of the tiles of a super-block: the lower four bits of the steps of `RUN` tiles are followed by their upper ones.
#[inline(always)]
fn fours_of_super<S: Simd, const BITS: usize, const RUN: usize>(
    steps: &[Steps],
    tiles: &mut [[Line; BITS]; TILES_PER_SUPER],
) {
    for (tiles, steps) in tiles.chunks_exact_mut(2 * RUN).zip(steps.chunks_exact(RUN)) {
        for i in 0..RUN {
            fours::<S, 0>(&steps[i], part::<BITS, 4>(&mut tiles[i], 0));
            fours::<S, 4>(&steps[i], part::<BITS, 4>(&mut tiles[RUN + i], 0));
        }
    }
}

/// Two vectors of each tile, from vector `AT` on: each quarter of the bits of a tile's steps is one tile's.
#[inline(always)]
fn twos_of_super<S: Simd, const BITS: usize, const AT: usize>(
    steps: &[Steps],
    tiles: &mut [[Line; BITS]; TILES_PER_SUPER],
) {
    for ([a, b, c, d], steps) in tiles.as_chunks_mut().0.iter_mut().zip(steps) {
        twos::<S, 0>(steps, part::<BITS, 2>(a, AT));
        twos::<S, 2>(steps, part::<BITS, 2>(b, AT));
        twos::<S, 4>(steps, part::<BITS, 2>(c, AT));
        twos::<S, 6>(steps, part::<BITS, 2>(d, AT));
    }
}

/// The last vector of each tile: a bit of the steps is one tile's.
#[inline(always)]
fn ones_of_super<S: Simd, const BITS: usize>(steps: &Steps, tiles: &mut [[Line; BITS]; TILES_PER_SUPER]) {
    let [a, b, c, d, e, f, g, h] = tiles;
    ones::<S, 0>(steps, &mut a[BITS - 1]);
    ones::<S, 1>(steps, &mut b[BITS - 1]);
    ones::<S, 2>(steps, &mut c[BITS - 1]);
    ones::<S, 3>(steps, &mut d[BITS - 1]);
    ones::<S, 4>(steps, &mut e[BITS - 1]);
    ones::<S, 5>(steps, &mut f[BITS - 1]);
    ones::<S, 6>(steps, &mut g[BITS - 1]);
    ones::<S, 7>(steps, &mut h[BITS - 1]);
}

/// The vectors of four-bit codes of a tile: the four bits of each byte that begin at `PLACE`.
#[inline(always)]
fn fours<S: Simd, const PLACE: u32>(steps: &Steps, vectors: &mut [Line; 4]) {
    for (i, vector) in vectors.iter_mut().enumerate() {
        let (low, high) = (S::codes(&steps[i]), S::codes(&steps[i + 4]));
        S::store_codes(S::or(S::field::<PLACE, 4, 0>(low), S::field::<PLACE, 4, 4>(high)), vector);
    }
}

/// The same for two bits.
#[inline(always)]
fn twos<S: Simd, const PLACE: u32>(steps: &Steps, vectors: &mut [Line; 2]) {
    // Not by `zip`, which would be called.
    for (i, vector) in vectors.iter_mut().enumerate() {
        let [a, b, c, d] = steps.as_chunks().0[i];
        let low = S::or(S::field::<PLACE, 2, 0>(S::codes(&a)), S::field::<PLACE, 2, 2>(S::codes(&b)));
        let high = S::or(S::field::<PLACE, 2, 4>(S::codes(&c)), S::field::<PLACE, 2, 6>(S::codes(&d)));
        S::store_codes(S::or(low, high), vector);
    }
}

/// The same for one bit.
#[inline(always)]
fn ones<S: Simd, const PLACE: u32>(steps: &Steps, vector: &mut Line) {
    let [a, b, c, d, e, f, g, h] = steps;
    let ab = S::or(S::field::<PLACE, 1, 0>(S::codes(a)), S::field::<PLACE, 1, 1>(S::codes(b)));
    let cd = S::or(S::field::<PLACE, 1, 2>(S::codes(c)), S::field::<PLACE, 1, 3>(S::codes(d)));
    let ef = S::or(S::field::<PLACE, 1, 4>(S::codes(e)), S::field::<PLACE, 1, 5>(S::codes(f)));
    let gh = S::or(S::field::<PLACE, 1, 6>(S::codes(g)), S::field::<PLACE, 1, 7>(S::codes(h)));
    S::store_codes(S::or(S::or(ab, cd), S::or(ef, gh)), vector);
}
