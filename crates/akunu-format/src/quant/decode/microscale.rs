//! MXFP4 and NVFP4: 4-bit floats under a shared 8-bit scale.

use super::{Decode, nibbles};
use crate::quant::layout::{E2M1_DOUBLED, MXFP4, NVFP4};

impl Decode<32> for MXFP4 {
    fn decode(&self, values: &mut [f32; 32]) {
        let half_scale = half_power_of_two(self.e);
        *values = nibbles(&self.qs).map(|q| half_scale * f32::from(E2M1_DOUBLED[usize::from(q)]));
    }
}

impl Decode<64> for NVFP4 {
    fn decode(&self, values: &mut [f32; 64]) {
        for ((values, qs), scale) in values.as_chunks_mut::<16>().0.iter_mut().zip(&self.qs).zip(self.scales)
        {
            let half_scale = half_e4m3(scale);
            let (low, high) = values.split_at_mut(8);
            for ((byte, low), high) in qs.iter().zip(low).zip(high) {
                *low = half_scale * f32::from(E2M1_DOUBLED[usize::from(byte & 0x0F)]);
                *high = half_scale * f32::from(E2M1_DOUBLED[usize::from(byte >> 4)]);
            }
        }
    }
}

/// `2^(e - 128)`. The code 255, a NaN in the microscaling standard, is decoded like the others.
fn half_power_of_two(e: u8) -> f32 {
    // 2^-128 and 2^-127 are subnormal: a single mantissa bit.
    let bits = if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 };
    f32::from_bits(bits)
}

/// Half the 8-bit float of four exponent and three mantissa bits. The uppermost bit is ignored; 0x7F, the standard's
/// NaN, is decoded as zero.
fn half_e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (code >> 3 & 0x0F, f32::from(code & 7));
    match (code, exponent) {
        (0x7F, _) => 0.0,
        (_, 0) => mantissa / 1024.0,
        _ => (8.0 + mantissa) / 8.0 * f32::from_bits((u32::from(exponent) + 119) << 23),
    }
}
