//! Formats with minima: Q2_K, Q4_K and Q5_K.

use half::f16;

use super::{Group, LANES, Lanes, clamp, lanes, round, store_codes, to_f16, total, transpose};
use crate::SUPER_BLOCK;
use crate::quant::encode::{greater, inverse, lesser};

/// A format with minima: `x = d * scale * code - dmin * min`.
pub(in crate::quant::encode) struct OffsetSearch {
    /// Codes are `0..=top`.
    pub top: f32,
    /// Scales and minima are `0..=scale_top`.
    pub scale_top: f32,
    /// The numbers of steps, whole or not, into which a sub-block's range is tentatively cut.
    pub targets: &'static [f32],
}

/// What was found for a super-block.
pub(in crate::quant::encode) struct OffsetFit<const G: usize> {
    pub d: f16,
    pub dmin: f16,
    /// Whole numbers in `0..=scale_top`.
    pub scales: [Lanes; G],
    /// Whole numbers in `0..=scale_top`.
    pub mins: [Lanes; G],
    /// `0..=top`, in the order of the values.
    pub codes: [i8; SUPER_BLOCK],
}

/// Integer scales and minima for given `d` and `dmin`, and the squared error they leave.
struct Choice<const G: usize> {
    d: f16,
    dmin: f16,
    scales: [Lanes; G],
    mins: [Lanes; G],
    error: f32,
}

/// Sums over the values `y` of a sub-block and their codes `q`.
struct Moments {
    q: Lanes,
    qq: Lanes,
    yq: Lanes,
}

impl OffsetSearch {
    /// Fits a super-block; `None` when a scale exceeds the range of F16.
    pub(in crate::quant::encode) fn fit<const N: usize, const G: usize>(
        &self,
        values: &[f32; SUPER_BLOCK],
    ) -> Option<OffsetFit<G>> {
        let groups = &transpose::<N, G>(values)?;
        let real: [(Lanes, Lanes); G] = std::array::from_fn(|g| self.real_fit(&groups[g]));
        let (scales, mins) = (real.map(|(scales, _)| scales), real.map(|(_, mins)| mins));
        let unit = |real: &[Lanes; G]| {
            to_f16(real.as_flattened().iter().copied().fold(0.0, greater) / self.scale_top)
        };
        let (d, dmin) = (unit(&scales), unit(&mins));
        if d.is_infinite() || dmin.is_infinite() {
            return None;
        }
        let whole = |real: [Lanes; G], unit: f16| real.map(|r| r.map(|r| round(r * inverse(unit.to_f32()))));
        let mut choice = self.choose(groups, (d, dmin), &whole(scales, d), &whole(mins, dmin));
        if let Some(refitted) = self.best_units(groups, &choice) {
            let again = self.choose(groups, refitted, &choice.scales, &choice.mins);
            if again.error < choice.error {
                choice = again;
            }
        }
        Some(self.encode(groups, &choice))
    }

    fn code(&self, x: f32) -> f32 {
        round(clamp(x, 0.0, self.top))
    }

    /// Per sub-block, the real-valued scale and minimum of least squared error among those that follow from the targets.
    fn real_fit<const N: usize>(&self, group: &Group<N>) -> (Lanes, Lanes) {
        // A minimum is never negative: values above zero alone are fitted from zero upwards.
        let low = group.iter().fold([0.0; LANES], |low, x| lanes(|l| lesser(low[l], x[l])));
        let high = group.iter().fold(low, |high, x| lanes(|l| greater(high[l], x[l])));
        // Measured from the lowest value, sums do not cancel when the range is small against the values.
        let above: Group<N> = std::array::from_fn(|i| lanes(|l| group[i][l] - low[l]));
        let sum = above.iter().fold([0.0; LANES], |sum, y| lanes(|l| sum[l] + y[l]));

        let mut best = RealFit { gain: [0.0; LANES], scales: [0.0; LANES], offsets: [0.0; LANES] };
        let per_step = lanes(|l| inverse(high[l] - low[l]));
        for target in self.targets {
            let moments = self.moments(&above, &per_step.map(|p| p * target), &[0.0; LANES]);
            best.improve(N as f32, &sum, &low, &moments);
        }
        // The codes nearest to the fit found may differ from the codes it was found with.
        let moments = self.moments(&above, &best.scales.map(inverse), &best.offsets.map(|o| -o));
        best.improve(N as f32, &sum, &low, &moments);
        (best.scales, lanes(|l| -(best.offsets[l] + low[l])))
    }

    /// Moves the integer scale and minimum of each sub-block to the best of themselves and their neighbours.
    fn choose<const N: usize, const G: usize>(
        &self,
        groups: &[Group<N>; G],
        (d, dmin): (f16, f16),
        centre_scales: &[Lanes; G],
        centre_mins: &[Lanes; G],
    ) -> Choice<G> {
        let (mut scales, mut mins, mut errors) = (*centre_scales, *centre_mins, [[f32::MAX; LANES]; G]);
        let within = |by: f32| move |s| clamp(s + by, 0.0, self.scale_top);
        for g in 0..G {
            for by in [-1.0, 0.0, 1.0] {
                let tried_scale = centre_scales[g].map(within(by));
                let steps = tried_scale.map(|s| d.to_f32() * s);
                for by in [-1.0, 0.0, 1.0] {
                    let tried_min = centre_mins[g].map(within(by));
                    let error = self.errors(&groups[g], &steps, &tried_min.map(|m| dmin.to_f32() * m));
                    let (least, scale, min) = (errors[g], scales[g], mins[g]);
                    scales[g] = lanes(|l| if error[l] < least[l] { tried_scale[l] } else { scale[l] });
                    mins[g] = lanes(|l| if error[l] < least[l] { tried_min[l] } else { min[l] });
                    errors[g] = lanes(|l| if error[l] < least[l] { error[l] } else { least[l] });
                }
            }
        }
        Choice { d, dmin, scales, mins, error: total(&errors) }
    }

    /// `d` and `dmin` of least squared error for the codes that `choice` gives; `None` when there are no such.
    fn best_units<const N: usize, const G: usize>(
        &self,
        groups: &[Group<N>; G],
        choice: &Choice<G>,
    ) -> Option<(f16, f16)> {
        // Least squares for x = d * a - dmin * b, with a = scale * code and b = min for each value.
        let (mut aa, mut ab, mut bb, mut xa, mut xb) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (g, group) in groups.iter().enumerate() {
            let (scales, mins) = (&choice.scales[g], &choice.mins[g]);
            let inverses = scales.map(|s| inverse(choice.d.to_f32() * s));
            let moments = self.moments(group, &inverses, &mins.map(|m| choice.dmin.to_f32() * m));
            let sum = group.iter().fold([0.0; LANES], |sum, x| lanes(|l| sum[l] + x[l]));
            for l in 0..LANES {
                aa += scales[l] * scales[l] * moments.qq[l];
                ab += scales[l] * mins[l] * moments.q[l];
                bb += mins[l] * mins[l] * N as f32;
                xa += scales[l] * moments.yq[l];
                xb += mins[l] * sum[l];
            }
        }
        let determinant = aa * bb - ab * ab;
        let d = f16::from_f32((xa * bb - xb * ab) / determinant);
        let dmin = f16::from_f32((xa * ab - xb * aa) / determinant);
        (d.is_finite() && dmin.is_finite()).then_some((d, dmin))
    }

    /// The moments of the codes of `(y + min) * inverse`.
    fn moments<const N: usize>(&self, group: &Group<N>, inverses: &Lanes, mins: &Lanes) -> Moments {
        let (mut q, mut qq, mut yq) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for y in group {
            for l in 0..LANES {
                let code = self.code((y[l] + mins[l]) * inverses[l]);
                q[l] += code;
                qq[l] += code * code;
                yq[l] += y[l] * code;
            }
        }
        Moments { q, qq, yq }
    }

    /// Squared errors with these steps from code to code and these minima.
    fn errors<const N: usize>(&self, group: &Group<N>, steps: &Lanes, mins: &Lanes) -> Lanes {
        let inverses = steps.map(inverse);
        let mut errors = [0.0; LANES];
        for x in group {
            for l in 0..LANES {
                let above = x[l] + mins[l];
                let miss = above - steps[l] * self.code(above * inverses[l]);
                errors[l] += miss * miss;
            }
        }
        errors
    }

    fn encode<const N: usize, const G: usize>(
        &self,
        groups: &[Group<N>; G],
        choice: &Choice<G>,
    ) -> OffsetFit<G> {
        let mut codes = [0; SUPER_BLOCK];
        for (g, group) in groups.iter().enumerate() {
            let inverses = choice.scales[g].map(|s| inverse(choice.d.to_f32() * s));
            let mins = choice.mins[g].map(|m| choice.dmin.to_f32() * m);
            store_codes::<N>(&mut codes, g, |i| lanes(|l| self.code((group[i][l] + mins[l]) * inverses[l])));
        }
        OffsetFit { d: choice.d, dmin: choice.dmin, scales: choice.scales, mins: choice.mins, codes }
    }
}

/// The best fit so far of `y = scale * code + offset`, per sub-block.
struct RealFit {
    /// By how much the fit lessens the squared error below the sum of `y^2`.
    gain: Lanes,
    scales: Lanes,
    offsets: Lanes,
}

impl RealFit {
    /// Takes the least-squares fit for the codes with these moments where it is better. `n` values make up `sum`;
    /// `y` is measured from `low`, and an offset may not rise above zero as measured from there.
    fn improve(&mut self, n: f32, sum: &Lanes, low: &Lanes, moments: &Moments) {
        let Moments { q, qq, yq } = moments;
        let free = lanes(|l| {
            let determinant = n * qq[l] - q[l] * q[l];
            (qq[l] * sum[l] - q[l] * yq[l]) / determinant
        });
        let offset = lanes(|l| lesser(free[l], -low[l]));
        let scale = lanes(|l| (yq[l] - offset[l] * q[l]) / qq[l]);
        let gain = lanes(|l| {
            let (a, b) = (scale[l], offset[l]);
            a * (2.0 * yq[l] - a * qq[l] - 2.0 * b * q[l]) + b * (2.0 * sum[l] - n * b)
        });
        let best = self.gain;
        self.scales = lanes(|l| if gain[l] > best[l] { scale[l] } else { self.scales[l] });
        self.offsets = lanes(|l| if gain[l] > best[l] { offset[l] } else { self.offsets[l] });
        self.gain = lanes(|l| if gain[l] > best[l] { gain[l] } else { best[l] });
    }
}
