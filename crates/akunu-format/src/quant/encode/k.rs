//! K-quants: how the scales of each are searched, and how its fields are packed.

use super::Encode;
use super::search::{OffsetSearch, SignedSearch};
use crate::SUPER_BLOCK;
use crate::quant::layout::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};

type Values = [f32; SUPER_BLOCK];

// The targets cover the scales among which the best is found. They are dense enough that values which already lie on a
// format's grid are mapped to their own codes: code `c` survives a scale that is wrong by a fraction below `1 / (2 c)`.

const Q2: OffsetSearch =
    OffsetSearch { top: 3.0, scale_top: 15.0, targets: &[2.0, 2.25, 2.5, 2.75, 3.0, 3.25, 3.5, 3.75] };

const Q3: SignedSearch = SignedSearch {
    levels: 4.0,
    scale_levels: 32.0,
    targets: &[-3.0, -3.5, -4.0, -4.5, -5.0, 3.0, 3.5, 4.0],
    reach: 1,
};

const Q4: OffsetSearch = OffsetSearch {
    top: 15.0,
    scale_top: 63.0,
    targets: &[12.0, 12.5, 13.0, 13.5, 14.0, 14.5, 15.0, 15.5, 16.0, 16.5, 17.0],
};

const Q5: OffsetSearch = OffsetSearch {
    top: 31.0,
    scale_top: 63.0,
    targets: &[28.0, 28.5, 29.0, 29.5, 30.0, 30.5, 31.0, 31.5, 32.0, 32.5],
};

const Q6: SignedSearch = SignedSearch {
    levels: 32.0,
    scale_levels: 128.0,
    targets: &[-30.0, -30.5, -31.0, -31.5, -32.0, -32.5, -33.0, -33.5, -34.0],
    reach: 2,
};

impl Encode<SUPER_BLOCK> for Q2_K {
    fn encode(values: &Values) -> Option<Self> {
        let fit = Q2.fit::<16, 2>(values)?;
        let (s, m) = (fit.scales.as_flattened(), fit.mins.as_flattened());
        Some(Self {
            scales: std::array::from_fn(|sub| s[sub] as u8 | (m[sub] as u8) << 4),
            qs: two_bits(&fit.codes.map(|q| q as u8)),
            d: fit.d.to_le_bytes(),
            dmin: fit.dmin.to_le_bytes(),
        })
    }
}

impl Encode<SUPER_BLOCK> for Q3_K {
    fn encode(values: &Values) -> Option<Self> {
        let fit = Q3.fit::<16, 2>(values)?;
        let codes = fit.codes.map(|q| (q + 4) as u8);
        let mut hmask = [0; 32];
        for (bit, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
            hmask = std::array::from_fn(|l| hmask[l] | (codes[l] >> 2) << bit);
        }
        let mut scales = [0; 12];
        for (sub, scale) in fit.scales.as_flattened().iter().enumerate() {
            let scale = (scale + 32.0) as u8;
            scales[sub % 8] |= (scale & 0x0F) << (4 * (sub / 8));
            scales[8 + sub % 4] |= (scale >> 4) << (2 * (sub / 4));
        }
        Some(Self { hmask, qs: two_bits(&codes), scales, d: fit.d.to_le_bytes() })
    }
}

impl Encode<SUPER_BLOCK> for Q4_K {
    fn encode(values: &Values) -> Option<Self> {
        let fit = Q4.fit::<32, 1>(values)?;
        Some(Self {
            d: fit.d.to_le_bytes(),
            dmin: fit.dmin.to_le_bytes(),
            scales: scales_and_mins(&fit.scales[0], &fit.mins[0]),
            qs: low_nibbles(&fit.codes),
        })
    }
}

impl Encode<SUPER_BLOCK> for Q5_K {
    fn encode(values: &Values) -> Option<Self> {
        let fit = Q5.fit::<32, 1>(values)?;
        let mut qh = [0; 32];
        for (sub, codes) in fit.codes.as_chunks::<32>().0.iter().enumerate() {
            qh = std::array::from_fn(|l| qh[l] | (codes[l] as u8 >> 4) << sub);
        }
        Some(Self {
            d: fit.d.to_le_bytes(),
            dmin: fit.dmin.to_le_bytes(),
            scales: scales_and_mins(&fit.scales[0], &fit.mins[0]),
            qh,
            qs: low_nibbles(&fit.codes),
        })
    }
}

impl Encode<SUPER_BLOCK> for Q6_K {
    fn encode(values: &Values) -> Option<Self> {
        let fit = Q6.fit::<16, 2>(values)?;
        let codes = fit.codes.map(|q| (q + 32) as u8);
        let (mut ql, mut qh) = ([0; 128], [0; 64]);
        let halves = codes.as_chunks::<128>().0.iter();
        for ((q, ql), qh) in halves.zip(ql.as_chunks_mut::<64>().0).zip(qh.as_chunks_mut::<32>().0) {
            *ql = std::array::from_fn(|l| q[l] & 0x0F | q[l + 64] << 4);
            let upper = |l: usize, g: usize| q[l + 32 * g] >> 4 << (2 * g);
            *qh = std::array::from_fn(|l| upper(l, 0) | upper(l, 1) | upper(l, 2) | upper(l, 3));
        }
        let scales = std::array::from_fn(|sub| fit.scales.as_flattened()[sub] as i8);
        Some(Self { ql, qh, scales, d: fit.d.to_le_bytes() })
    }
}

/// The low two bits of element `128 h + 32 s + l` into bits `2 s ..` of byte `32 h + l`.
fn two_bits(codes: &[u8; SUPER_BLOCK]) -> [u8; 64] {
    let mut packed = [0; 64];
    for (q, packed) in codes.as_chunks::<128>().0.iter().zip(packed.as_chunks_mut::<32>().0) {
        let low = |l: usize, s: usize| (q[l + 32 * s] & 3) << (2 * s);
        *packed = std::array::from_fn(|l| low(l, 0) | low(l, 1) | low(l, 2) | low(l, 3));
    }
    packed
}

/// Sub-blocks of 32 in pairs: the low four bits of the first in the low nibbles, of the second in the high ones.
fn low_nibbles(codes: &[i8; SUPER_BLOCK]) -> [u8; 128] {
    let mut packed = [0; 128];
    for (q, packed) in codes.as_chunks::<64>().0.iter().zip(packed.as_chunks_mut::<32>().0) {
        *packed = std::array::from_fn(|l| q[l] as u8 & 0x0F | (q[l + 32] as u8) << 4);
    }
    packed
}

/// Eight 6-bit scales and eight 6-bit minima: the first four of each in the low bits of bytes 0..4 and 4..8; the low
/// nibbles of the others in bytes 8..12, with their upper two bits above those of the first four.
fn scales_and_mins(scales: &[f32; 8], mins: &[f32; 8]) -> [u8; 12] {
    let (s, m) = (scales.map(|s| s as u8), mins.map(|m| m as u8));
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = s[j] | s[j + 4] >> 4 << 6;
        packed[j + 4] = m[j] | m[j + 4] >> 4 << 6;
        packed[j + 8] = s[j + 4] & 0x0F | m[j + 4] << 4;
    }
    packed
}
