//! Sixteen numbers as 8-bit integers under one scale.
//!
//! The lattice, ternary and 4-bit float dtypes all decode to a small integer times a scale (their grids have entries up to
//! 127, once fractions such as IQ1's eighths are multiplied out), so there is a scale under which the integers come out
//! whole and nothing is lost but the last bit of the product. Numbers that are not of that kind are rounded to the nearest
//! of 255 steps, as in Q8_0.

/// The scale and the integers, -127..=127.
pub(super) fn fit_group(values: &[f32; 16]) -> (f32, [i8; 16]) {
    let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return (0.0, [0; 16]);
    }
    // The largest value is the scale times an integer no greater than 127: try them all, the smallest first.
    let exact = (1..=127).find_map(|n| {
        let scale = largest / n as f32;
        let fits = |v: &f32| {
            let x = v / scale;
            (x - x.round()).abs() <= 1e-5 * x.abs().max(1.0)
        };
        values.iter().all(fits).then_some(scale)
    });
    let scale = exact.unwrap_or(largest / 127.0);
    (scale, values.map(|v| (v / scale).round() as i8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_of_one_number_lose_nothing() {
        let scale = 0.037_23;
        let integers: [i8; 16] = [43, -25, 8, 8, -8, 25, 0, 43, -43, 25, 8, 8, 25, -8, -25, 43];
        let (found, codes) = fit_group(&integers.map(|i| f32::from(i) * scale));
        for (code, integer) in codes.iter().zip(integers) {
            let (a, b) = (f32::from(*code) * found, f32::from(integer) * scale);
            assert!((a - b).abs() <= 2e-7 * b.abs(), "{a} for {b}");
        }
    }

    #[test]
    fn other_numbers_are_rounded_to_the_nearest_step() {
        let values = std::array::from_fn(|i| (i as f32 * 1.7).sin());
        let (scale, codes) = fit_group(&values);
        for (code, value) in codes.iter().zip(values) {
            assert!((f32::from(*code) * scale - value).abs() <= scale / 2.0 + 1e-6);
        }
        assert_eq!(fit_group(&[0.0; 16]), (0.0, [0; 16]));
    }
}
