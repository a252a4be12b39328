//! IQ types: super-blocks of 256 whose elements are found four or eight at a time in a fixed grid of points.

use super::iq_grids::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};
use super::{Decode, f16, nibble, nibbles, sub_blocks};
use crate::SUPER_BLOCK;
use crate::quant::layout::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, IQ4_VALUES, IQ4_XS};

impl Decode<SUPER_BLOCK> for IQ4_XS {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        let high = u16::from_le_bytes(self.scales_h);
        for (sub, values) in sub_blocks::<32>(values) {
            let scale = nibble(&self.scales_l, sub) | ((high >> (2 * sub) & 3) as u8) << 4;
            let scale = d * (f32::from(scale) - 32.0);
            *values = nibbles(&self.qs[sub]).map(|q| scale * f32::from(IQ4_VALUES[usize::from(q)]));
        }
    }
}

impl Decode<SUPER_BLOCK> for IQ3_S {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        for (octet, values) in sub_blocks::<8>(values) {
            let scale = d * f32::from(2 * nibble(&self.scales, octet / 4) + 1);
            let point = |quad: usize| {
                let ninth_bit = usize::from(self.qh[quad / 8] >> (quad % 8) & 1);
                IQ3_S_GRID[usize::from(self.qs[quad]) | ninth_bit << 8]
            };
            signed_pair(scale, [point(2 * octet), point(2 * octet + 1)], self.signs[octet], values);
        }
    }
}

impl Decode<SUPER_BLOCK> for IQ3_XXS {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        for (octet, values) in sub_blocks::<8>(values) {
            let signs_scale = u32::from_le_bytes(self.signs_scales[octet / 4]);
            let scale = d * half_step_scale(signs_scale >> 28) * 0.5;
            let point = |quad: usize| IQ3_XXS_GRID[usize::from(self.qs[quad])];
            let signs = even_signs(signs_scale >> (7 * (octet % 4)));
            signed_pair(scale, [point(2 * octet), point(2 * octet + 1)], signs, values);
        }
    }
}

impl Decode<SUPER_BLOCK> for IQ2_S {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        for (octet, values) in sub_blocks::<8>(values) {
            let scale = d * half_step_scale(nibble(&self.scales, octet / 2).into()) * 0.25;
            let high = usize::from(self.qh[octet / 4] >> (octet % 4 * 2) & 3);
            let point = IQ2_S_GRID[usize::from(self.qs[octet]) | high << 8];
            signed(scale, point, self.signs[octet], values);
        }
    }
}

impl Decode<SUPER_BLOCK> for IQ2_XS {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        for (octet, values) in sub_blocks::<8>(values) {
            let scale = d * half_step_scale(nibble(&self.scales, octet / 2).into()) * 0.25;
            let q = u16::from_le_bytes(self.qs[octet]);
            let point = IQ2_XS_GRID[usize::from(q & 0x1FF)];
            signed(scale, point, even_signs(u32::from(q >> 9)), values);
        }
    }
}

impl Decode<SUPER_BLOCK> for IQ2_XXS {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        for (octet, values) in sub_blocks::<8>(values) {
            let sub = &self.qs[octet / 4];
            let signs_scale = u32::from_le_bytes(sub.signs_scale);
            let scale = d * half_step_scale(signs_scale >> 28) * 0.25;
            let point = IQ2_XXS_GRID[usize::from(sub.grid[octet % 4])];
            signed(scale, point, even_signs(signs_scale >> (7 * (octet % 4))), values);
        }
    }
}

impl Decode<SUPER_BLOCK> for IQ1_S {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let d = f16(self.d);
        for (octet, values) in sub_blocks::<8>(values) {
            let word = u16::from_le_bytes(self.qh[octet / 4]);
            let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
            let high = usize::from(word >> (octet % 4 * 3) & 7);
            let point = IQ1_GRID[usize::from(self.qs[octet]) | high << 8];
            shifted(scale, point, word & 0x8000 != 0, values);
        }
    }
}

impl Decode<SUPER_BLOCK> for IQ1_M {
    fn decode(&self, values: &mut [f32; SUPER_BLOCK]) {
        let words = self.scales.map(u16::from_le_bytes);
        let d = words.iter().rev().fold(0, |d, word| d << 4 | word >> 12);
        let d = half::f16::from_bits(d).to_f32();
        for (octet, values) in sub_blocks::<8>(values) {
            let sub = octet / 2;
            let scale = d * f32::from(2 * (words[sub / 4] >> (sub % 4 * 3) & 7) + 1);
            let high = nibble(&self.qh, octet);
            let point = IQ1_GRID[usize::from(self.qs[octet]) | usize::from(high & 7) << 8];
            shifted(scale, point, high & 8 != 0, values);
        }
    }
}

/// `scale + 1/2`.
fn half_step_scale(scale: u32) -> f32 {
    scale as f32 + 0.5
}

/// Seven signs as stored in the low bits of `index`, and an eighth that makes the number of negative elements even.
fn even_signs(index: u32) -> u8 {
    let seven = (index & 0x7F) as u8;
    seven | ((seven.count_ones() % 2) as u8) << 7
}

/// `values[i] = scale * point[i]`, negated where bit `i` of `signs` is set.
fn signed(scale: f32, point: [i8; 8], signs: u8, values: &mut [f32; 8]) {
    for (i, (x, p)) in values.iter_mut().zip(point).enumerate() {
        let sign = if signs >> i & 1 == 0 { 1.0 } else { -1.0 };
        *x = scale * f32::from(p) * sign;
    }
}

/// As [`signed`] with the two halves of the point apart.
fn signed_pair(scale: f32, [low, high]: [[i8; 4]; 2], signs: u8, values: &mut [f32; 8]) {
    let [a, b, c, d] = low;
    let [e, f, g, h] = high;
    signed(scale, [a, b, c, d, e, f, g, h], signs, values);
}

/// The distance by which the IQ1 grid is moved off the integers, up or down.
const DELTA: f32 = 0.125;

/// `values[i] = scale * (point[i] + delta)`.
fn shifted(scale: f32, point: [i8; 8], down: bool, values: &mut [f32; 8]) {
    let delta = if down { -DELTA } else { DELTA };
    *values = point.map(|p| scale * (f32::from(p) + delta));
}
