//! IQ4_NL: a scale times one of sixteen levels, which lie closer together near zero.

use half::f16;

use super::{Encode, inverse, nibbles};
use crate::quant::layout::{IQ4_NL, IQ4_VALUES};

/// The levels, whole or not, to which the value of largest magnitude is tentatively mapped, with either sign: the
/// levels reach from -127 to 113 and are dense enough there for eight to cover them.
const TARGETS: Lanes = [95.0, 101.0, 107.0, 113.0, 119.0, 125.0, 131.0, 137.0];

/// One number for each of eight scales that are tried side by side, one per vector lane.
type Lanes = [f32; 8];

impl Encode<32> for IQ4_NL {
    fn encode(values: &[f32; 32]) -> Option<Self> {
        let extreme = values.iter().fold(0.0_f32, |most, v| if v.abs() > most.abs() { *v } else { most });
        let d = f16::from_f32(best_scale(values, extreme));
        let inverse = inverse(d.to_f32());
        let codes = values.map(|v| code(v * inverse));
        // Too large a value has an infinite scale, or a NaN one where the sums overflowed.
        d.is_finite().then(|| Self { d: d.to_le_bytes(), qs: nibbles(&codes) })
    }
}

fn best_scale(values: &[f32; 32], extreme: f32) -> f32 {
    let (mut best, mut scale) = (0.0, 0.0);
    for sign in [-1.0, 1.0] {
        let inverses = TARGETS.map(|target| target * sign * inverse(extreme));
        let (xv, vv) = moments(values, &inverses);
        for (xv, vv) in xv.into_iter().zip(vv) {
            // The best scale for given levels is xv / vv; it lessens the error by xv^2 / vv.
            let gain = xv * (xv / vv);
            if gain > best {
                (best, scale) = (gain, xv / vv);
            }
        }
    }
    scale
}

/// Sums of `x * level` and of `level^2`, for the levels nearest to `x * inverse`.
fn moments(values: &[f32; 32], inverses: &Lanes) -> (Lanes, Lanes) {
    let (mut xv, mut vv) = ([0.0; 8], [0.0; 8]);
    for x in values {
        let level = levels(&inverses.map(|i| x * i));
        for l in 0..8 {
            xv[l] += x * level[l];
            vv[l] += level[l] * level[l];
        }
    }
    (xv, vv)
}

/// Up to which value each level is the nearest; the last one has no bound.
const BOUNDS: [f32; 15] = {
    let mut bounds = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        bounds[i] = (IQ4_VALUES[i] as f32 + IQ4_VALUES[i + 1] as f32) / 2.0;
        i += 1;
    }
    bounds
};

/// The nearest levels: the lowest, and a step up for every bound exceeded.
fn levels(x: &Lanes) -> Lanes {
    let mut nearest = [f32::from(IQ4_VALUES[0]); 8];
    for (bound, pair) in BOUNDS.iter().zip(IQ4_VALUES.windows(2)) {
        let step = f32::from(pair[1]) - f32::from(pair[0]);
        for l in 0..8 {
            nearest[l] += if x[l] > *bound { step } else { 0.0 };
        }
    }
    nearest
}

/// The code of the nearest level.
fn code(x: f32) -> u8 {
    BOUNDS.iter().map(|bound| u8::from(x > *bound)).sum()
}
