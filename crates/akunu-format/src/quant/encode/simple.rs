//! Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: the scale follows from the extreme values of the block, the codes from the scale
//! before it is rounded to F16. Every operation is a single-precision one in this very order, so that the bytes equal
//! those of other writers of these formats.

use super::{Encode, greater, inverse, lesser, nibbles, stored};
use crate::quant::layout::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

impl Encode<32> for Q4_0 {
    fn encode(values: &[f32; 32]) -> Option<Self> {
        let (d, codes) = signed::<8>(values);
        Some(Self { d: stored(d)?, qs: nibbles(&codes) })
    }
}

impl Encode<32> for Q4_1 {
    fn encode(values: &[f32; 32]) -> Option<Self> {
        let (d, m, codes) = offset::<15>(values);
        Some(Self { d: stored(d)?, m: stored(m)?, qs: nibbles(&codes) })
    }
}

impl Encode<32> for Q5_0 {
    fn encode(values: &[f32; 32]) -> Option<Self> {
        let (d, codes) = signed::<16>(values);
        Some(Self { d: stored(d)?, qh: fifth_bits(&codes), qs: nibbles(&codes) })
    }
}

impl Encode<32> for Q5_1 {
    fn encode(values: &[f32; 32]) -> Option<Self> {
        let (d, m, codes) = offset::<31>(values);
        Some(Self { d: stored(d)?, m: stored(m)?, qh: fifth_bits(&codes), qs: nibbles(&codes) })
    }
}

impl Encode<32> for Q8_0 {
    fn encode(values: &[f32; 32]) -> Option<Self> {
        let d = largest_magnitude(values) / 127.0;
        let inverse = inverse(d);
        // Half away from zero. The largest float below one half keeps 0.49999997 from being pushed up to 1.
        let below_half = 0.5_f32.next_down();
        let qs = values.map(|v| {
            let scaled = v * inverse;
            (scaled + below_half.copysign(scaled)) as i8
        });
        Some(Self { d: stored(d)?, qs })
    }
}

/// The scale that maps the value of largest magnitude (the first of them) to code 0, which stands for `-HALF`; and the
/// codes, `0..2 * HALF`.
fn signed<const HALF: u8>(values: &[f32; 32]) -> (f32, [u8; 32]) {
    let half = f32::from(HALF);
    let largest = largest_magnitude(values);
    let extreme = values.iter().copied().find(|v| v.abs() == largest && largest > 0.0).unwrap_or(0.0);
    let d = extreme / -half;
    let inverse = inverse(d);
    let codes = values.map(|v| lesser(v * inverse + (half + 0.5), 2.0 * half - 1.0) as u8);
    (d, codes)
}

/// The scale and minimum that map the block's range to codes `0..=TOP`; and the codes.
fn offset<const TOP: u8>(values: &[f32; 32]) -> (f32, f32, [u8; 32]) {
    let top = f32::from(TOP);
    let min = reduce(values, lesser);
    let d = (reduce(values, greater) - min) / top;
    let inverse = inverse(d);
    let codes = values.map(|v| lesser((v - min) * inverse + 0.5, top) as u8);
    // Of a positive and a negative zero the first one is stored.
    let min = if min == 0.0 { values.iter().copied().find(|v| *v == 0.0).unwrap_or(min) } else { min };
    (d, min, codes)
}

fn largest_magnitude(values: &[f32; 32]) -> f32 {
    reduce(&values.map(f32::abs), greater)
}

/// Reduces in eight lanes, which the compiler may not do by itself: it has to keep the order of float operations.
fn reduce(values: &[f32; 32], pick: fn(f32, f32) -> f32) -> f32 {
    let [first, rest @ ..] = values.as_chunks::<8>().0 else { return 0.0 };
    let lanes = rest.iter().fold(*first, |lanes, v| std::array::from_fn(|l| pick(v[l], lanes[l])));
    lanes.into_iter().fold(lanes[0], pick)
}

/// Bit `i` is the fifth bit of element `i`.
fn fifth_bits(codes: &[u8; 32]) -> [u8; 4] {
    let bits = codes.iter().enumerate().fold(0, |bits, (i, code)| bits | u32::from(code >> 4) << i);
    bits.to_le_bytes()
}
