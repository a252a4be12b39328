//! Rotary position embeddings: every scaling folded into one table of frequencies when a program is built.

use std::f64::consts::PI;

use crate::{Error, Result};

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// Elements `2 i` and `2 i + 1`: GGUF files of the Llama family, whose rows were permuted for it.
    Interleaved,
    /// Elements `i` and `i + dims / 2`: everything else.
    SplitHalf,
}

/// A rotation as a model describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements pair up.
    pub layout: RopeLayout,
    /// Elements of a head that are rotated; the rest pass through.
    pub dims: usize,
    /// The base of the geometric series of wavelengths.
    pub theta: f64,
    /// How the frequencies are stretched for longer contexts.
    pub scaling: Scaling,
}

/// How a rotation was stretched to reach beyond the context it was trained with.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All frequencies divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Each frequency divided by its own factor, as GGUF stores Llama 3's scaling (`rope_freqs.weight`).
    Factors {
        /// One divisor per pair.
        factors: Vec<f32>,
    },
    /// Llama 3: low frequencies divided, high ones kept, a smooth ramp between.
    Llama3 {
        /// The divisor of the lowest frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high` are kept.
        high_freq_factor: f64,
        /// The context before stretching.
        original_context: usize,
    },
    /// YaRN: interpolation by wavelength, with a correction of the attention's temperature.
    Yarn {
        /// How much longer the context became.
        factor: f64,
        /// The context before stretching.
        original_context: usize,
        /// Rotations above which a frequency is kept (usually 32).
        beta_fast: f64,
        /// Rotations below which a frequency is divided (usually 1).
        beta_slow: f64,
        /// Multiplies cosine and sine; derived from `factor` when absent.
        attention_factor: Option<f64>,
        /// Whether the ramp's ends are rounded to whole dimensions.
        truncate: bool,
    },
    /// LongRoPE: two lists of divisors, for contexts up to and beyond the original one.
    Long {
        /// Divisors within the original context.
        short: Vec<f32>,
        /// Divisors beyond it.
        long: Vec<f32>,
        /// The context before stretching.
        original_context: usize,
        /// Multiplies cosine and sine.
        attention_factor: f64,
    },
}

/// A rotation ready to use: the angle of pair `i` at position `p` is `p · frequencies[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Which elements pair up.
    pub layout: RopeLayout,
    /// Radians per position, one for each rotated pair.
    pub frequencies: Vec<f32>,
    /// Multiplies cosine and sine.
    pub magnitude: f32,
}

/// The fastest pair of any model turns by one radian per position; no scaling has a reason to make it much faster.
const MOST_TURN: f64 = 100.0;

impl Rope {
    /// The table for runs of up to `context` positions.
    pub fn table(&self, context: usize) -> Result<RopeTable> {
        if self.dims == 0 || !self.dims.is_multiple_of(2) {
            return Err(Error::config(
                "rope dimensions",
                format!("{} is not a positive even number", self.dims),
            ));
        }
        if !(self.theta.is_finite() && self.theta > 1.0) {
            return Err(Error::config("rope base", format!("{} is not a number above 1", self.theta)));
        }
        let pairs = self.dims / 2;
        let base: Vec<f64> =
            (0..pairs).map(|i| self.theta.powf(-((2 * i) as f64) / self.dims as f64)).collect();
        let (frequencies, magnitude) = self.scaling.apply(&base, self, context)?;
        if let Some(bad) = frequencies.iter().find(|f| !(f.is_finite() && **f > 0.0 && **f <= MOST_TURN)) {
            let problem = format!("it gives {bad} radians per position");
            return Err(Error::config("rope scaling", problem));
        }
        if !(magnitude.is_finite() && magnitude > 0.0) {
            return Err(Error::config("rope scaling", format!("it gives a magnitude of {magnitude}")));
        }
        Ok(RopeTable {
            layout: self.layout,
            frequencies: frequencies.iter().map(|&f| f as f32).collect(),
            magnitude: magnitude as f32,
        })
    }
}

impl Scaling {
    /// Scaled frequencies and the magnitude.
    fn apply(&self, base: &[f64], rope: &Rope, context: usize) -> Result<(Vec<f64>, f64)> {
        let divided = |factors: &[f32]| {
            if factors.len() != base.len() {
                let problem = format!("{} factors for {} rotated pairs", factors.len(), base.len());
                return Err(Error::config("rope factors", problem));
            }
            Ok(base.iter().zip(factors).map(|(f, &d)| f / f64::from(d)).collect())
        };
        Ok(match self {
            Scaling::None => (base.to_vec(), 1.0),
            Scaling::Linear { factor } => (base.iter().map(|f| f / factor).collect(), 1.0),
            Scaling::Factors { factors } => (divided(factors)?, 1.0),
            Scaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let original = *original_context as f64;
                let scale = |f: &f64| {
                    let wavelength = 2.0 * PI / f;
                    if wavelength < original / high_freq_factor {
                        *f
                    } else if wavelength > original / low_freq_factor {
                        f / factor
                    } else {
                        let keep =
                            (original / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                        (1.0 - keep) * f / factor + keep * f
                    }
                };
                (base.iter().map(scale).collect(), 1.0)
            }
            Scaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor, truncate } => {
                // The pair that turns `rotations` times over the original context.
                let pair = |rotations: f64| {
                    rope.dims as f64 * (*original_context as f64 / (rotations * 2.0 * PI)).ln()
                        / (2.0 * rope.theta.ln())
                };
                let (mut low, mut high) = (pair(*beta_fast), pair(*beta_slow));
                if *truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(rope.dims as f64 - 1.0));
                if low == high {
                    high += 0.001; // a ramp of no width would divide by zero
                }
                let scale = |(i, f): (usize, &f64)| {
                    let divide = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    f / factor * divide + f * (1.0 - divide)
                };
                let derived = if *factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 };
                (base.iter().enumerate().map(scale).collect(), attention_factor.unwrap_or(derived))
            }
            Scaling::Long { short, long, original_context, attention_factor } => {
                let factors = if context > *original_context { long } else { short };
                (divided(factors)?, *attention_factor)
            }
        })
    }
}
