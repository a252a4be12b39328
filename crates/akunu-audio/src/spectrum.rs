//! The power spectrum of a window of sound.

use std::f64::consts::PI;

/// Samples of a window.
pub(crate) const SIZE: usize = 400;
/// Frequencies of a power spectrum.
pub(crate) const BINS: usize = SIZE / 2 + 1;

/// Samples are transformed in pairs, each one complex number.
const PAIRS: usize = SIZE / 2;
/// What the number of pairs is a product of: a step of the transform for each.
const FACTORS: [usize; 4] = [5, 5, 4, 2];

#[derive(Clone, Copy, Debug, Default)]
struct Complex {
    re: f32,
    im: f32,
}

/// A fast Fourier transform of [`SIZE`] real samples, in Stockham's order: each step reads one buffer and writes the other, and the
/// last leaves the frequencies sorted.
pub(crate) struct Spectrum {
    steps: Vec<Step>,
    /// `e^(-2 pi i k / SIZE)`, which take the pairs' spectrum apart.
    turns: Vec<Complex>,
    pairs: Vec<Complex>,
    other: Vec<Complex>,
}

/// Transforms of `radix` numbers each.
struct Step {
    radix: usize,
    /// How many neighbours share their turns: the factors of the steps before.
    stride: usize,
    /// `[group][frequency][number]`.
    turns: Vec<Complex>,
}

impl Spectrum {
    pub fn new() -> Spectrum {
        let mut steps = Vec::with_capacity(FACTORS.len());
        let mut stride = 1;
        for radix in FACTORS {
            let groups = PAIRS / stride / radix;
            let mut turns = Vec::with_capacity(groups * radix * radix);
            for group in 0..groups {
                for frequency in 0..radix {
                    for number in 0..radix {
                        turns.push(turn(frequency * (number * PAIRS / radix + group * stride), PAIRS));
                    }
                }
            }
            steps.push(Step { radix, stride, turns });
            stride *= radix;
        }
        Spectrum {
            steps,
            turns: (0..BINS).map(|bin| turn(bin, SIZE)).collect(),
            pairs: vec![Complex::default(); PAIRS],
            other: vec![Complex::default(); PAIRS],
        }
    }

    /// The power at each frequency of what the window holds.
    pub fn power(&mut self, window: &[f32; SIZE], power: &mut [f32; BINS]) {
        for (pair, [re, im]) in self.pairs.iter_mut().zip(window.as_chunks().0) {
            *pair = Complex { re: *re, im: *im };
        }
        for step in &self.steps {
            step.run(&self.pairs, &mut self.other);
            std::mem::swap(&mut self.pairs, &mut self.other);
        }
        // Even samples are the part of the pairs' spectrum that is its own mirror image, odd ones the rest.
        for (bin, (power, turn)) in power.iter_mut().zip(&self.turns).enumerate() {
            let (a, b) = (self.pairs[bin % PAIRS], self.pairs[(PAIRS - bin) % PAIRS]);
            let even = Complex { re: a.re + b.re, im: a.im - b.im };
            let odd = Complex { re: a.im + b.im, im: b.re - a.re };
            let re = even.re + turn.re * odd.re - turn.im * odd.im;
            let im = even.im + turn.re * odd.im + turn.im * odd.re;
            *power = (re * re + im * im) / 4.0;
        }
    }
}

impl Step {
    fn run(&self, from: &[Complex], to: &mut [Complex]) {
        let (radix, stride) = (self.radix, self.stride);
        let apart = PAIRS / radix;
        for (i, (to, turns)) in to.chunks_exact_mut(stride).zip(self.turns.chunks_exact(radix)).enumerate() {
            let group = i / radix;
            to.fill(Complex::default());
            for (number, turn) in turns.iter().enumerate() {
                let from = &from[group * stride + number * apart..][..stride];
                for (to, from) in to.iter_mut().zip(from) {
                    to.re += turn.re * from.re - turn.im * from.im;
                    to.im += turn.re * from.im + turn.im * from.re;
                }
            }
        }
    }
}

/// `e^(-2 pi i part / whole)`.
fn turn(part: usize, whole: usize) -> Complex {
    let angle = -2.0 * PI * (part % whole) as f64 / whole as f64;
    Complex { re: angle.cos() as f32, im: angle.sin() as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_sum_that_defines_it() {
        let window: [f32; SIZE] =
            std::array::from_fn(|i| ((i * i * 37 + i * 11) % 1009) as f32 / 504.5 - 1.0);
        let mut power = [0.0; BINS];
        Spectrum::new().power(&window, &mut power);
        for (bin, power) in power.into_iter().enumerate() {
            let (mut re, mut im) = (0.0, 0.0);
            for (i, sample) in window.iter().enumerate() {
                let angle = -2.0 * PI * (bin * i % SIZE) as f64 / SIZE as f64;
                re += f64::from(*sample) * angle.cos();
                im += f64::from(*sample) * angle.sin();
            }
            let expected = re * re + im * im;
            assert!(
                (f64::from(power) - expected).abs() < 1e-4 + 1e-5 * expected,
                "{bin}: {power}, {expected}"
            );
        }
    }
}
