//! Sums of [several rows](super::several) on their way from tiles to outputs.

use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::kernels::scales::ScaleView;
use crate::simd::Simd;
use crate::simd::avx512::Avx512;

use super::laid::{Laid, Numbers};

/// Moves the bytes of integers up by one.
const UP: [u8; 64] = {
    let mut order = [0; 64];
    let mut i = 0;
    while i < order.len() {
        order[i] = if i % 4 == 0 { 0x80 } else { (i % 16 - 1) as u8 };
        i += 1;
    }
    order
};

/// `sum + scale · (high + low)`, of integers. Not with the compiler's functions: it would do it later, and keep all that it takes in
/// memory until then.
///
/// # Safety
/// `low` is a vector.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn join_and_add(high: __m512i, low: *const __m512i, scale: __m512, sum: __m512) -> __m512 {
    let mut sum = sum;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "vpaddd {dot}, {dot}, [{low}]",
            "vcvtdq2ps {dot}, {dot}",
            "vfmadd231ps {sum}, {dot}, {scale}",
            dot = inout(zmm_reg) high => _,
            low = in(reg) low,
            sum = inout(zmm_reg) sum,
            scale = in(zmm_reg) scale,
            options(nostack, readonly, preserves_flags),
        );
    }
    sum
}

/// What the sums of one group are scaled by.
pub(super) struct Scaled<Z> {
    scale: __m512,
    min: __m512,
    rows: *const Numbers,
    kind: PhantomData<Z>,
}

impl<'a, Z: ScaleView<'a>> Scaled<Z> {
    /// # Safety
    /// The processor has AVX-512, and there is such a tile.
    #[inline(always)]
    pub(super) unsafe fn of(x: Laid, scales: &Z, tile: usize, half: usize) -> Scaled<Z> {
        let scale = scales.scale::<Avx512>(tile, half);
        let min = if Z::MIN && !Z::SUPER { scales.min::<Avx512>(tile, half) } else { scale };
        Scaled { scale, min, rows: x.numbers(tile), kind: PhantomData }
    }

    /// Where there is nothing to add.
    #[inline(always)]
    pub(super) fn none() -> Scaled<Z> {
        let zero = Avx512::splat(0.0);
        Scaled { scale: zero, min: zero, rows: std::ptr::null(), kind: PhantomData }
    }

    /// Adds a group's sums of one row, which are `floats` or two integers: with low parts they are so many bytes behind those with high
    /// ones.
    ///
    /// # Safety
    /// As [`Scaled::of`], which this is; `done` has sums of all rows, and so has what is `low_sums` bytes behind it if they are integers.
    #[inline(always)]
    pub(super) unsafe fn add(
        &self,
        floats: bool,
        done: *const u8,
        low_sums: usize,
        row: usize,
        sum: __m512,
    ) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            let numbers = self.rows.add(row);
            let sum = if floats {
                _mm512_fmadd_ps(_mm512_load_ps(done.add(64 * row).cast()), self.scale, sum)
            } else {
                let high = _mm512_load_si512(done.add(64 * row).cast());
                // Bytes are moved, not shifted: the port that shifts is the one that does floats.
                let up = _mm512_loadu_si512(UP.as_ptr().cast());
                let scale = _mm512_mul_ps(self.scale, _mm512_set1_ps((*numbers).scale));
                let low = done.add(low_sums + 64 * row).cast();
                join_and_add(_mm512_shuffle_epi8(high, up), low, scale, sum)
            };
            if Z::MIN && !Z::SUPER {
                _mm512_fmadd_ps(self.min, _mm512_set1_ps((*numbers).sum), sum)
            } else {
                sum
            }
        }
    }
}
