//! The lattice, ternary and 4-bit float dtypes, as short codes.
//!
//! All of them decode to one of a few small integers times a scale (once fractions such as IQ1's eighths are multiplied out), and
//! there are never more than sixteen of those. So a group is packed as a code of its integers each, under the scale that makes them
//! whole: nothing is lost but the last bit of the product.

use akunu_format::DType;

use super::form::Codes;

/// What the elements of a dtype are under their scale.
pub(super) struct Lattice {
    /// The integers' magnitudes, the smallest first.
    magnitudes: &'static [u8],
    /// The code of each integer from minus [`BOUND`] on, or [`NONE`].
    code_of: [u8; 2 * BOUND as usize],
    /// What four-bit codes stand for; those of two bits are distances from two.
    values: Option<[u8; 16]>,
    /// What scales are multiplied by: codes may stand for multiples of the integers.
    unit: f32,
    /// Whether there is a scale for every 16 elements; otherwise there is none for fewer than 32.
    pub(super) halves: bool,
}

/// More than any magnitude.
const BOUND: i32 = 64;

/// There is no code for the integer.
const NONE: u8 = u8::MAX;

/// Integers of these magnitudes, the smallest first, in four bits, of which the uppermost is their sign. Codes stand for multiples of
/// them, by two to the power of `up`: prompts are multiplied with words that have room for numbers of eight bits, and would lose what
/// is left empty.
const fn listed(magnitudes: &'static [u8], up: u32, halves: bool) -> Lattice {
    let (mut code_of, mut values) = ([NONE; 2 * BOUND as usize], [128; 16]);
    let mut i = 0;
    while i < magnitudes.len() {
        let magnitude = magnitudes[i] as i32;
        assert!(magnitude < BOUND && magnitude << up < 128);
        values[i] = (128 + (magnitude << up)) as u8;
        values[8 + i] = (128 - (magnitude << up)) as u8;
        code_of[(BOUND - magnitude) as usize] = 8 + i as u8;
        code_of[(BOUND + magnitude) as usize] = i as u8;
        i += 1;
    }
    Lattice { magnitudes, code_of, values: Some(values), unit: 1.0 / (1 << up) as f32, halves }
}

/// -1, 0 and 1 in two bits. Nothing keeps a file from holding 2 as well, so codes are two less the integer: minus the integer has
/// its zero in the middle.
const fn ternary() -> Lattice {
    let mut code_of = [NONE; 2 * BOUND as usize];
    let mut integer = -1;
    while integer <= 2 {
        code_of[(BOUND + integer) as usize] = (2 - integer) as u8;
        integer += 1;
    }
    Lattice { magnitudes: &[1, 2], code_of, values: None, unit: -1.0, halves: false }
}

static IQ3_XXS: Lattice = listed(&[4, 12, 20, 28, 36, 44, 52, 62], 1, false);
static IQ3_S: Lattice = listed(&[1, 3, 5, 7, 9, 11, 13, 15], 3, false);
static IQ2_XXS: Lattice = listed(&[8, 25, 43], 1, false);
static IQ2: Lattice = listed(&[8, 25, 43], 1, true);
static IQ1_S: Lattice = listed(&[1, 7, 9], 3, false);
static IQ1_M: Lattice = listed(&[1, 7, 9], 3, true);
// Twice the floats, whose codes are those of the files.
static MXFP4: Lattice = listed(&[0, 1, 2, 3, 4, 6, 8, 12], 3, false);
static NVFP4: Lattice = listed(&[0, 1, 2, 3, 4, 6, 8, 12], 3, true);
static TERNARY: Lattice = ternary();

impl Lattice {
    /// That of a dtype, where it has one.
    pub(super) fn of(dtype: DType) -> Option<&'static Lattice> {
        match dtype {
            DType::IQ3_XXS => Some(&IQ3_XXS),
            DType::IQ3_S => Some(&IQ3_S),
            DType::IQ2_XXS => Some(&IQ2_XXS),
            DType::IQ2_XS | DType::IQ2_S => Some(&IQ2),
            DType::IQ1_S => Some(&IQ1_S),
            DType::IQ1_M => Some(&IQ1_M),
            DType::MXFP4 => Some(&MXFP4),
            DType::NVFP4 => Some(&NVFP4),
            DType::TQ1_0 | DType::TQ2_0 => Some(&TERNARY),
            _ => None,
        }
    }

    /// How its codes are packed, and which of them stands for zero.
    pub(super) fn codes(&'static self) -> (Codes, i32) {
        match &self.values {
            Some(values) => (Codes::Listed(values), 128),
            None => (Codes::B2, 2),
        }
    }

    /// The scale of a group, and the codes of its elements. Numbers that are not of the lattice have none.
    pub(super) fn fit(&self, group: &[f32], codes: &mut [u8]) -> Option<f32> {
        let mut most = [0f32; 4];
        for four in group.as_chunks::<4>().0 {
            for (most, value) in most.iter_mut().zip(four) {
                *most = if value.abs() > *most { value.abs() } else { *most };
            }
        }
        let largest = most[0].max(most[1]).max(most[2].max(most[3]));
        // Below that, no scale's inverse is a number: nothing that small adds to anything.
        if largest < 127.0 / f32::MAX {
            codes.fill(0);
            return group.iter().all(|value| !value.is_nan()).then_some(0.0);
        }
        self.magnitudes.iter().rev().filter(|magnitude| **magnitude > 0).find_map(|magnitude| {
            let magnitude = f32::from(*magnitude);
            let inverse = magnitude / largest;
            let mut whole = true;
            for value in group {
                let x = value * inverse;
                // Far more than what rounding does to the product, far less than a step.
                whole &= (x - nearest(x)).abs() <= 1e-4;
            }
            (whole && self.encode(group, inverse, codes)).then_some(largest / magnitude * self.unit)
        })
    }

    /// Writes the codes of a group's integers; false where one has none.
    fn encode(&self, group: &[f32], inverse: f32, codes: &mut [u8]) -> bool {
        let mut all = true;
        for (code, value) in codes.iter_mut().zip(group) {
            *code = self.code_of[place(value * inverse)];
            all &= *code != NONE;
        }
        all
    }
}

/// Added to a number of less than 2^22, it leaves no bits behind the point.
const WHOLE: f32 = 12_582_912.0;

/// The integer nearest to a number: `round` is a call on processors that cannot do better.
fn nearest(x: f32) -> f32 {
    x + WHOLE - WHOLE
}

/// How far the integer nearest to a number is from minus [`BOUND`]. The lowest bits of the sum are those of the integer.
fn place(x: f32) -> usize {
    let bits = (x + WHOLE).to_bits().wrapping_sub(WHOLE.to_bits() - BOUND as u32);
    (bits % (2 * BOUND as u32)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that codes stand for.
    fn decoded(lattice: &'static Lattice, scale: f32, codes: &[u8]) -> Vec<f32> {
        let (kind, zero) = lattice.codes();
        codes.iter().map(|code| scale * (i32::from(kind.value(*code)) - zero) as f32).collect()
    }

    #[test]
    fn every_integer_of_every_lattice_is_found_in_any_company() {
        let dtypes = [
            (DType::IQ3_XXS, &[62, 52, 44, 36, 28, 20, 12, 4][..]),
            (DType::IQ3_S, &[15, 13, 11, 9, 7, 5, 3, 1]),
            (DType::IQ2_XXS, &[43, 25, 8]),
            (DType::IQ2_S, &[43, 25, 8]),
            (DType::IQ1_S, &[9, 7, 1]),
            (DType::IQ1_M, &[9, 7, 1]),
            (DType::MXFP4, &[12, 8, 6, 4, 3, 2, 1, 0]),
            (DType::NVFP4, &[12, 8, 6, 4, 3, 2, 1, 0]),
            (DType::TQ1_0, &[1, 0]),
        ];
        for (dtype, magnitudes) in dtypes {
            let lattice = Lattice::of(dtype).unwrap();
            // Groups of any two, three and four of the integers, under scales of other sizes.
            for pick in 0..4 * 16 * 16 {
                let step = 1 + pick % 5;
                let group: [f32; 16] = std::array::from_fn(|i| {
                    let magnitude = magnitudes[(pick / 4 + i % (1 + pick % 4) * step) % magnitudes.len()];
                    let sign = if (i * 7 + pick) % 3 == 0 { -1.0 } else { 1.0 };
                    sign * magnitude as f32 * 0.037_23 / (1 + pick) as f32
                });
                let mut codes = [0; 16];
                let scale = lattice.fit(&group, &mut codes).expect("numbers of the lattice");
                for (found, number) in decoded(lattice, scale, &codes).iter().zip(group) {
                    assert!((found - number).abs() <= 3e-7 * number.abs(), "{dtype:?}: {found} for {number}");
                }
            }
        }
    }

    #[test]
    fn two_is_ternary_enough_and_other_numbers_are_not() {
        let lattice = Lattice::of(DType::TQ2_0).unwrap();
        let mut codes = [0; 4];
        let scale = lattice.fit(&[0.5, -0.25, 0.0, 0.25], &mut codes).unwrap();
        assert_eq!(decoded(lattice, scale, &codes), [0.5, -0.25, 0.0, 0.25]);
        assert_eq!(lattice.fit(&[0.5, -0.2, 0.0, 0.25], &mut codes), None);
        assert_eq!(lattice.fit(&[f32::INFINITY, 0.0, 0.0, 0.25], &mut codes), None);
        for lattice in [&TERNARY, &IQ2, &NVFP4] {
            for group in [[f32::NAN, 0.0, 0.0, 0.25], [f32::NAN, 0.0, 0.0, 0.0], [f32::NAN; 4]] {
                assert_eq!(lattice.fit(&group, &mut codes), None);
            }
            assert_eq!(lattice.fit(&[0.5, -0.123, 0.077, 0.25], &mut codes), None);
        }
    }

    #[test]
    fn what_has_no_size_has_no_scale() {
        for lattice in [&IQ3_S, &MXFP4, &TERNARY] {
            let mut codes = [99; 4];
            assert_eq!(lattice.fit(&[0.0, 3.5e-38, 0.0, 0.0], &mut codes), Some(0.0));
            assert_eq!(codes, [0; 4]);
        }
    }
}
