//! Sixteen numbers as 8-bit integers under one scale.
//!
//! The lattice, ternary and 4-bit float dtypes all decode to a small integer times a scale (once fractions such as IQ1's
//! eighths are multiplied out), so there is a scale under which the integers come out whole and nothing is lost but the last
//! bit of the product. Numbers that are not of that kind are rounded to the nearest of 255 steps, as in Q8_0.

use akunu_format::DType;

/// The magnitudes that a dtype's elements can have under their scale, the largest first.
pub(super) fn magnitudes(dtype: DType) -> &'static [u8] {
    match dtype {
        DType::IQ3_XXS => &[62, 52, 44, 36, 28, 20, 12, 4],
        DType::IQ3_S => &[15, 13, 11, 9, 7, 5, 3, 1],
        DType::IQ2_XXS | DType::IQ2_XS | DType::IQ2_S => &[43, 25, 8],
        DType::IQ1_S | DType::IQ1_M => &[9, 7, 1],
        DType::MXFP4 | DType::NVFP4 => &[12, 8, 6, 4, 3, 2, 1],
        // Ternary, but nothing keeps two bits from holding a fourth number.
        DType::TQ2_0 => &[2, 1],
        _ => &[1],
    }
}

/// The scale and the integers, -127..=127. The largest of them is one of `magnitudes`, if the numbers are such.
pub(super) fn fit_group(values: &[f32; 16], magnitudes: &[u8]) -> (f32, [i8; 16]) {
    let mut most = [0f32; 4];
    for four in values.as_chunks::<4>().0 {
        for (most, value) in most.iter_mut().zip(four) {
            *most = if value.abs() > *most { value.abs() } else { *most };
        }
    }
    let largest = most[0].max(most[1]).max(most[2].max(most[3]));
    // Below that, no scale's inverse is a number: nothing that small adds to anything.
    if largest < 127.0 / f32::MAX || !largest.is_finite() {
        return (0.0, [0; 16]);
    }
    let whole = |magnitude: &&u8| {
        let inverse = f32::from(**magnitude) / largest;
        let mut whole = true;
        for value in values {
            let x = value * inverse;
            // Far more than what rounding does to the product, far less than a step.
            whole &= (x - nearest(x)).abs() <= 1e-4;
        }
        whole
    };
    let magnitude = f32::from(*magnitudes.iter().find(whole).unwrap_or(&127));
    let (scale, inverse) = (largest / magnitude, magnitude / largest);
    let mut integers = [0; 16];
    for (integer, value) in integers.iter_mut().zip(values) {
        *integer = nearest(value * inverse) as i8;
    }
    (scale, integers)
}

/// The integer nearest to a number of less than 2^22, by adding a number that leaves no bits behind the point: `round` is a call
/// on processors that cannot do better.
fn nearest(x: f32) -> f32 {
    const WHOLE: f32 = 12_582_912.0;
    x + WHOLE - WHOLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_of_one_number_lose_nothing() {
        let scale = 0.037_23;
        let integers: [i8; 16] = [43, -25, 8, 8, -8, 25, 0, 43, -43, 25, 8, 8, 25, -8, -25, 43];
        let (found, codes) = fit_group(&integers.map(|i| f32::from(i) * scale), magnitudes(DType::IQ2_S));
        for (code, integer) in codes.iter().zip(integers) {
            let (a, b) = (f32::from(*code) * found, f32::from(integer) * scale);
            assert!((a - b).abs() <= 2e-7 * b.abs(), "{a} for {b}");
        }
    }

    #[test]
    fn other_numbers_are_rounded_to_the_nearest_step() {
        let values = std::array::from_fn(|i| (i as f32 * 1.7).sin());
        let (scale, codes) = fit_group(&values, &[43, 25, 8]);
        for (code, value) in codes.iter().zip(values) {
            assert!((f32::from(*code) * scale - value).abs() <= scale / 2.0 + 1e-6);
        }
        assert_eq!(fit_group(&[0.0; 16], &[1]), (0.0, [0; 16]));
        assert_eq!(fit_group(&[3.5e-38; 16], &[12, 6, 1]), (0.0, [0; 16]));
    }
}
