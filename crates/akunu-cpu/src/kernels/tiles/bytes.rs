//! Products of words, sixteen rows by two panels at a time.
//!
//! A product of words is `2^16 high·high + 2^8 (high·low + low·high)`: three products of tiles, in two sets of sums. What is left
//! out, `low·low`, is below 2⁻¹⁶ of the largest product of a stretch. The sums of a stretch are whole numbers below 2²⁵; they
//! leave the tile registers as such and become floats while the next product's tiles are multiplied.

use std::arch::asm;
use std::arch::x86_64::*;

use crate::simd::LANES;

use super::words::WORDS_BYTES;
use super::{TILE_BYTES, TILE_ROWS};

/// Sums of one block of rows and two panels as they come out of the tiles: `[high·high, mixed][panel][row][output]`.
#[repr(C, align(64))]
pub(super) struct Whole([[[[i32; LANES]; TILE_ROWS]; 2]; 2]);

impl Whole {
    pub(super) fn new() -> Whole {
        Whole([[[[0; LANES]; TILE_ROWS]; 2]; 2])
    }
}

/// Where whole sums go.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// `[panel][row][output]`.
    pub(super) sums: *mut f32,
    /// The rows' scales.
    pub(super) rows: *const f32,
    /// The outputs' scales of both panels, of the sums of `high·low`.
    pub(super) outputs: *const f32,
}

impl Target {
    /// Adds one row of one panel. `FRESH`: the sums begin here.
    ///
    /// # Safety
    /// The processor has AVX-512 F; the target can be read and written.
    #[inline(always)]
    unsafe fn add<const FRESH: bool>(self, whole: *const Whole, line: usize) {
        let (panel, row) = (line / TILE_ROWS, line % TILE_ROWS);
        // SAFETY: the caller's promise.
        unsafe {
            let from: *const i32 = whole.cast::<i32>().add(LANES * line);
            let high = _mm512_cvtepi32_ps(_mm512_loadu_si512(from.cast()));
            let mixed = _mm512_cvtepi32_ps(_mm512_loadu_si512(from.add(2 * TILE_ROWS * LANES).cast()));
            let sum = _mm512_fmadd_ps(high, _mm512_set1_ps(256.0), mixed);
            let outputs = _mm512_loadu_ps(self.outputs.add(LANES * panel));
            let scale = _mm512_mul_ps(outputs, _mm512_set1_ps(*self.rows.add(row)));
            let to = self.sums.add(LANES * line);
            let sum = if FRESH {
                _mm512_mul_ps(sum, scale)
            } else {
                _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(to))
            };
            _mm512_storeu_ps(to, sum);
        }
    }

    /// Adds all rows of both panels.
    ///
    /// # Safety
    /// As [`Target::add`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn add_all<const FRESH: bool>(self, whole: *const Whole) {
        for line in 0..2 * TILE_ROWS {
            // SAFETY: the caller's promise.
            unsafe { self.add::<FRESH>(whole, line) };
        }
    }
}

/// Multiplies `STEPS` tiles of a block of rows by those of two panels, and adds the sums of an earlier product to where they
/// belong meanwhile: tiles leave the vector units idle.
///
/// # Safety
/// Tiles are configured on this thread, and the processor has AVX-512 F; all tiles can be read, `whole` and the target written.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply<const STEPS: usize, const FRESH: bool>(
    a: *const u8,
    b: [*const u8; 2],
    whole: *mut Whole,
    earlier: Option<(*const Whole, Target)>,
) {
    const { assert!(STEPS.is_power_of_two() && STEPS <= 4) };
    let lines = 2 * TILE_ROWS / (4 * STEPS);
    let mut line = 0;
    // SAFETY: the caller's promise; there are `4 · STEPS` calls.
    let mut meanwhile = || unsafe {
        if let Some((whole, target)) = earlier {
            for i in 0..lines {
                target.add::<FRESH>(whole, line + i);
            }
            line += lines;
        }
    };
    let [mut b0, mut b1] = b;
    let mut a = a;
    // SAFETY: as above.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack));
        tile!("tileloadd tmm4, [{at} + {line}*1]", a, 64);
        tile!("tileloadd tmm5, [{at} + {line}*1]", b0, 64);
        tile!("tileloadd tmm6, [{at} + {line}*1]", b1, 64);
        for step in 0..STEPS {
            tile!("tdpbssd tmm0, tmm4, tmm5");
            meanwhile();
            tile!("tileloadd tmm7, [{at} + {line}*1 + 1024]", b0, 64);
            tile!("tdpbssd tmm1, tmm4, tmm6");
            meanwhile();
            tile!("tdpbssd tmm2, tmm4, tmm7");
            tile!("tileloadd tmm7, [{at} + {line}*1 + 1024]", b1, 64);
            tile!("tdpbssd tmm3, tmm4, tmm7");
            meanwhile();
            tile!("tileloadd tmm4, [{at} + {line}*1 + 1024]", a, 64);
            tile!("tdpbssd tmm2, tmm4, tmm5");
            (a, b0, b1) = (a.add(WORDS_BYTES), b0.add(WORDS_BYTES), b1.add(WORDS_BYTES));
            if step + 1 < STEPS {
                tile!("tileloadd tmm5, [{at} + {line}*1]", b0, 64);
            }
            meanwhile();
            tile!("tdpbssd tmm3, tmm4, tmm6");
            if step + 1 < STEPS {
                tile!("tileloadd tmm6, [{at} + {line}*1]", b1, 64);
                tile!("tileloadd tmm4, [{at} + {line}*1]", a, 64);
            }
        }
        let whole: *mut u8 = whole.cast();
        tile!("tilestored [{at} + {line}*1], tmm0", whole, 64);
        tile!("tilestored [{at} + {line}*1], tmm1", whole.add(TILE_BYTES), 64);
        tile!("tilestored [{at} + {line}*1], tmm2", whole.add(2 * TILE_BYTES), 64);
        tile!("tilestored [{at} + {line}*1], tmm3", whole.add(3 * TILE_BYTES), 64);
    }
}
