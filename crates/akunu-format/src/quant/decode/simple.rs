//! Blocks of 32 with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.

use super::{Decode, f16, nibbles};
use crate::quant::layout::{IQ4_NL, IQ4_VALUES, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

impl Decode<32> for Q4_0 {
    fn decode(&self, values: &mut [f32; 32]) {
        let d = f16(self.d);
        *values = nibbles(&self.qs).map(|q| d * (f32::from(q) - 8.0));
    }
}

impl Decode<32> for Q4_1 {
    fn decode(&self, values: &mut [f32; 32]) {
        let (d, m) = (f16(self.d), f16(self.m));
        *values = nibbles(&self.qs).map(|q| d * f32::from(q) + m);
    }
}

impl Decode<32> for Q5_0 {
    fn decode(&self, values: &mut [f32; 32]) {
        let d = f16(self.d);
        *values = five_bits(&self.qs, self.qh).map(|q| d * (f32::from(q) - 16.0));
    }
}

impl Decode<32> for Q5_1 {
    fn decode(&self, values: &mut [f32; 32]) {
        let (d, m) = (f16(self.d), f16(self.m));
        *values = five_bits(&self.qs, self.qh).map(|q| d * f32::from(q) + m);
    }
}

impl Decode<32> for Q8_0 {
    fn decode(&self, values: &mut [f32; 32]) {
        let d = f16(self.d);
        *values = self.qs.map(|q| d * f32::from(q));
    }
}

impl Decode<32> for IQ4_NL {
    fn decode(&self, values: &mut [f32; 32]) {
        let d = f16(self.d);
        *values = nibbles(&self.qs).map(|q| d * f32::from(IQ4_VALUES[usize::from(q)]));
    }
}

fn five_bits(low_four: &[u8; 16], fifth: [u8; 4]) -> [u8; 32] {
    let fifth = u32::from_le_bytes(fifth);
    let mut codes = nibbles(low_four);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (fifth >> i & 1) as u8 * 16;
    }
    codes
}
