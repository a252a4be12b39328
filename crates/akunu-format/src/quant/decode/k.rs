//! K-quants: super-blocks of 256 whose sub-blocks have small integer scales.

use super::{Decode, f16, sub_blocks};
use crate::SUPER_BLOCK;
use crate::quant::layout::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};

impl Decode<SUPER_BLOCK> for Q2_K {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let (d, dmin) = (f16(self.d), f16(self.dmin));
        for (sub, values) in sub_blocks::<16>(values) {
            let scale = d * f32::from(self.scales[sub] & 0x0F);
            let min = dmin * f32::from(self.scales[sub] >> 4);
            let shift = sub / 2 % 4 * 2;
            let qs = &self.qs[sub / 8 * 32 + sub % 2 * 16..];
            for (x, q) in values.iter_mut().zip(qs) {
                *x = scale * f32::from(q >> shift & 3) - min;
            }
        }
    }
}

impl Decode<SUPER_BLOCK> for Q3_K {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        let scales = q3_k_scales(&self.scales);
        for (sub, values) in sub_blocks::<16>(values) {
            let scale = d * f32::from(scales[sub]);
            let (shift, high_shift) = (sub / 2 % 4 * 2, sub / 2);
            let qs = &self.qs[sub / 8 * 32 + sub % 2 * 16..];
            let high = &self.hmask[sub % 2 * 16..];
            for ((x, q), h) in values.iter_mut().zip(qs).zip(high) {
                let q = q >> shift & 3 | (h >> high_shift & 1) << 2;
                *x = scale * (f32::from(q) - 4.0);
            }
        }
    }
}

impl Decode<SUPER_BLOCK> for Q4_K {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let (d, dmin) = (f16(self.d), f16(self.dmin));
        let (scales, mins) = scales_and_mins(&self.scales);
        for (sub, values) in sub_blocks::<32>(values) {
            let (scale, min) = (d * f32::from(scales[sub]), dmin * f32::from(mins[sub]));
            let shift = sub % 2 * 4;
            for (x, q) in values.iter_mut().zip(&self.qs[sub / 2 * 32..]) {
                *x = scale * f32::from(q >> shift & 0x0F) - min;
            }
        }
    }
}

impl Decode<SUPER_BLOCK> for Q5_K {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let (d, dmin) = (f16(self.d), f16(self.dmin));
        let (scales, mins) = scales_and_mins(&self.scales);
        for (sub, values) in sub_blocks::<32>(values) {
            let (scale, min) = (d * f32::from(scales[sub]), dmin * f32::from(mins[sub]));
            let shift = sub % 2 * 4;
            for ((x, q), h) in values.iter_mut().zip(&self.qs[sub / 2 * 32..]).zip(&self.qh) {
                let q = q >> shift & 0x0F | (h >> sub & 1) << 4;
                *x = scale * f32::from(q) - min;
            }
        }
    }
}

impl Decode<SUPER_BLOCK> for Q6_K {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        for (sub, values) in sub_blocks::<16>(values) {
            let scale = d * f32::from(self.scales[sub]);
            // Half of the super-block, group of 32 in it, half of the group.
            let (half, group, side) = (sub / 8, sub / 2 % 4, sub % 2);
            let (low_shift, high_shift) = (group / 2 * 4, group * 2);
            let low = &self.ql[half * 64 + group % 2 * 32 + side * 16..];
            let high = &self.qh[half * 32 + side * 16..];
            for ((x, l), h) in values.iter_mut().zip(low).zip(high) {
                let q = l >> low_shift & 0x0F | (h >> high_shift & 3) << 4;
                *x = scale * (f32::from(q) - 32.0);
            }
        }
    }
}

/// The scales of a Q3_K block, -32..32.
fn q3_k_scales(packed: &[u8; 12]) -> [i8; 16] {
    std::array::from_fn(|i| {
        let low = packed[i % 8] >> (i / 8 * 4) & 0x0F;
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    })
}

/// The scales and minima of a Q4_K or Q5_K block, 0..64.
fn scales_and_mins(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let six_bits = |first: usize, sub: usize, low_four: u8| match sub {
        0..4 => packed[first + sub] & 0x3F,
        _ => low_four | packed[first + sub - 4] >> 6 << 4,
    };
    let scales = std::array::from_fn(|i| six_bits(0, i, packed[8 + i % 4] & 0x0F));
    let mins = std::array::from_fn(|i| six_bits(4, i, packed[8 + i % 4] >> 4));
    (scales, mins)
}
