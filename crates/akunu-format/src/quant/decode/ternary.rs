//! TQ1_0 and TQ2_0: one scale for 256 values of -1, 0 or 1.

use super::{Decode, f16, sub_blocks};
use crate::SUPER_BLOCK;
use crate::quant::layout::{TQ1_0, TQ2_0};

impl Decode<SUPER_BLOCK> for TQ1_0 {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        let (wide, narrow) = self.qs.split_at(32);
        let (of_wide, rest) = values.split_at_mut(160);
        let (of_narrow, of_high) = rest.split_at_mut(80);
        base_3_digits(d, wide, of_wide);
        base_3_digits(d, narrow, of_narrow);
        base_3_digits(d, &self.qh, of_high);
    }
}

impl Decode<SUPER_BLOCK> for TQ2_0 {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        for (group, values) in sub_blocks::<32>(values) {
            let shift = group % 4 * 2;
            for (x, q) in values.iter_mut().zip(&self.qs[group / 4 * 32..]) {
                *x = d * (f32::from(q >> shift & 3) - 1.0);
            }
        }
    }
}

/// Writes the first digit of every byte, then the second of every byte, until `values` is full.
fn base_3_digits(d: f32, bytes: &[u8], values: &mut [f32]) {
    let mut power = 1u8;
    for values in values.chunks_exact_mut(bytes.len()) {
        for (x, byte) in values.iter_mut().zip(bytes) {
            // Drop the digits already read out of the byte, then let the next one carry.
            let rest = byte.wrapping_mul(power);
            let digit = (u16::from(rest) * 3) >> 8;
            *x = d * (f32::from(digit) - 1.0);
        }
        power = power.wrapping_mul(3);
    }
}
