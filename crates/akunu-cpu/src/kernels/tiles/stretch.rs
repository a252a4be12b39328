//! Stretches of columns of a row, whose numbers become integers under one scale.

use std::arch::x86_64::*;

use crate::simd::LANES;

/// Numbers so small that quotients with them would overflow are taken for zero.
pub(super) const SMALLEST: f32 = 1e-30;

/// A stretch as `N` vectors. What is missing of it is zero.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load<const N: usize>(x: &[f32]) -> [__m512; N] {
    let mut vectors = [_mm512_setzero_ps(); N];
    for (vector, x) in vectors.iter_mut().zip(x.chunks(LANES)) {
        let mut last = [0.0; LANES];
        let x: &[f32; LANES] = x.first_chunk().unwrap_or_else(|| {
            last[..x.len()].copy_from_slice(x);
            &last
        });
        // SAFETY: an array of the size that is read.
        *vector = unsafe { _mm512_loadu_ps(x.as_ptr()) };
    }
    vectors
}

/// The largest magnitude of a stretch, or what is not a number.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn largest(x: &[__m512]) -> f32 {
    // The bits of magnitudes are in their order, and what is not a number is above all.
    let mut most = _mm512_setzero_si512();
    for &x in x {
        most = _mm512_max_epu32(most, _mm512_castps_si512(_mm512_abs_ps(x)));
    }
    f32::from_bits(_mm512_reduce_max_epu32(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn the_largest_magnitude_is_found_and_what_is_not_a_number_stays_so() {
        if !Isa::Avx512.is_available() {
            return;
        }
        // SAFETY: the processor has AVX-512.
        let of = |x: &[f32]| unsafe { largest(&load::<2>(x)) };
        let mut x: Vec<f32> = (0..20).map(|i| (i as f32 * 1.7).sin()).collect();
        x[17] = -3.0;
        assert_eq!(of(&x), 3.0);
        assert_eq!(of(&[]), 0.0);
        x[2] = -f32::NAN;
        assert!(of(&x).is_nan());
    }
}
