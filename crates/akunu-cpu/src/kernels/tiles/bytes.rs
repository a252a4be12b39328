//! Products of words, sixteen rows by two panels at a time.
//!
//! A product of words is `2^16 high·high + 2^8 (high·low + low·high)`: three products of tiles, in two sets of sums. What is left
//! out, `low·low`, is below 2⁻¹⁶ of the largest product of a stretch. The sums of a stretch are whole numbers below 2²⁵; they
//! leave the tile registers as such and become floats while the next product's tiles are multiplied.

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

use crate::memory::ask;
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
    /// Which lanes of the sums are added to; the others begin here.
    pub(super) old: __mmask16,
}

impl Target {
    /// Adds one row of one panel.
    ///
    /// # Safety
    /// The processor has AVX-512 F; the target can be read and written.
    #[inline(always)]
    unsafe fn add(self, whole: *const Whole, line: usize) {
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
            let sum = _mm512_fmadd_ps(sum, scale, _mm512_maskz_loadu_ps(self.old, to));
            _mm512_storeu_ps(to, sum);
        }
    }
}

/// A product whose sums are yet to become floats.
pub(super) struct Earlier {
    whole: *const Whole,
    target: Target,
    /// How many lines have been added.
    done: usize,
}

impl Earlier {
    pub(super) fn new(whole: *const Whole, target: Target) -> Earlier {
        Earlier { whole, target, done: 0 }
    }

    /// Adds the next lines of all.
    ///
    /// # Safety
    /// As [`Target::add`]; there are as many.
    #[inline(always)]
    unsafe fn add(&mut self, lines: usize) {
        for line in self.done..self.done + lines {
            // SAFETY: the caller's promise.
            unsafe { self.target.add(self.whole, line) };
        }
        self.done += lines;
    }

    /// Adds what is left.
    ///
    /// # Safety
    /// As [`Target::add`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn add_all(mut self) {
        // SAFETY: the caller's promise.
        unsafe { self.add(2 * TILE_ROWS - self.done) };
    }
}

/// Work in small pieces that can be done while tiles are multiplied.
pub(super) trait Meanwhile {
    /// What is done in [`PIECES`] pieces.
    type Task;
    /// The next task, if there is one.
    ///
    /// # Safety
    /// The processor has what the work asks for.
    unsafe fn next(&mut self) -> Option<Self::Task>;
    /// One piece of a task.
    ///
    /// # Safety
    /// As [`Meanwhile::next`].
    unsafe fn piece(task: &Self::Task, piece: usize);
}

/// Pieces of a task.
pub(super) const PIECES: usize = 8;

/// Multiplies `steps` tiles (one, two or four) of a block of rows by those of two panels. Tiles leave the vector units idle: the sums
/// of an earlier product are added to where they belong meanwhile, and a task is done with each step. The rows of the product after
/// this are at `next`.
///
/// High words of weights are loaded twice, to the register of the others: the more tile registers hold something, the fewer are left
/// for renaming, and where another thread runs on the same core there are hardly any.
///
/// # Safety
/// Tiles are configured on this thread, and the processor has AVX-512 F and what the tasks ask for; all tiles can be read, `whole`
/// and the target written.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn multiply<M: Meanwhile>(
    a: *const u8,
    next: *const u8,
    b: [*const u8; 2],
    steps: usize,
    whole: *mut Whole,
    earlier: &mut Option<Earlier>,
    tasks: &mut M,
) {
    let lines = 2 * TILE_ROWS / (4 * steps);
    let [mut b0, mut b1] = b;
    let mut a = a;
    // SAFETY: the caller's promise; sums are added in `4 · steps` places.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack));
        for step in 0..steps {
            let task = tasks.next();
            let pieces = |pieces: Range<usize>| {
                if let Some(task) = &task {
                    pieces.for_each(|piece| M::piece(task, piece));
                }
            };
            let later = if step + 1 < steps { a.wrapping_add(WORDS_BYTES) } else { next };
            let mut asked = 0;
            // In four places: some of the sums, and a quarter of the rows that are multiplied in the next step are asked for.
            let mut add = || {
                if let Some(earlier) = earlier {
                    earlier.add(lines);
                }
                for line in (asked..asked + WORDS_BYTES / 4).step_by(64) {
                    ask(later.wrapping_add(line));
                }
                asked += WORDS_BYTES / 4;
            };
            tile!("tileloadd tmm4, [{at} + {line}*1]", a, 64);
            tile!("tileloadd tmm6, [{at} + {line}*1]", b0, 64);
            tile!("tdpbssd tmm0, tmm4, tmm6");
            add();
            tile!("tileloadd tmm6, [{at} + {line}*1]", b1, 64);
            pieces(0..2);
            tile!("tdpbssd tmm1, tmm4, tmm6");
            add();
            tile!("tileloadd tmm6, [{at} + {line}*1 + 1024]", b0, 64);
            tile!("tdpbssd tmm2, tmm4, tmm6");
            pieces(2..4);
            tile!("tileloadd tmm6, [{at} + {line}*1 + 1024]", b1, 64);
            tile!("tdpbssd tmm3, tmm4, tmm6");
            add();
            tile!("tileloadd tmm4, [{at} + {line}*1 + 1024]", a, 64);
            pieces(4..6);
            tile!("tileloadd tmm6, [{at} + {line}*1]", b0, 64);
            tile!("tdpbssd tmm2, tmm4, tmm6");
            add();
            tile!("tileloadd tmm6, [{at} + {line}*1]", b1, 64);
            tile!("tdpbssd tmm3, tmm4, tmm6");
            pieces(6..8);
            (a, b0, b1) = (a.add(WORDS_BYTES), b0.add(WORDS_BYTES), b1.add(WORDS_BYTES));
        }
        let whole: *mut u8 = whole.cast();
        tile!("tilestored [{at} + {line}*1], tmm0", whole, 64);
        tile!("tilestored [{at} + {line}*1], tmm1", whole.add(TILE_BYTES), 64);
        tile!("tilestored [{at} + {line}*1], tmm2", whole.add(2 * TILE_BYTES), 64);
        tile!("tilestored [{at} + {line}*1], tmm3", whole.add(3 * TILE_BYTES), 64);
    }
}
