//! Formats without minima: Q3_K and Q6_K.

use half::f16;

use super::{Group, LANES, Lanes, clamp, lanes, round, store_codes, to_f16, total, transpose};
use crate::SUPER_BLOCK;
use crate::quant::encode::inverse;

/// A format without minima: `x = d * scale * code`.
pub(in crate::quant::encode) struct SignedSearch {
    /// Codes are `-levels..levels`.
    pub levels: f32,
    /// Scales are `-scale_levels..scale_levels`.
    pub scale_levels: f32,
    /// The codes, whole or not, to which a sub-block's value of largest magnitude is tentatively mapped.
    pub targets: &'static [f32],
    /// How far from the real-valued fit a sub-block's integer scale is looked for.
    pub reach: i8,
}

/// What was found for a super-block.
pub(in crate::quant::encode) struct SignedFit<const G: usize> {
    pub d: f16,
    /// Whole numbers in `-scale_levels..scale_levels`.
    pub scales: [Lanes; G],
    /// `-levels..levels`, in the order of the values.
    pub codes: [i8; SUPER_BLOCK],
}

/// Integer scales for a given `d`, and the squared error they leave.
struct Choice<const G: usize> {
    d: f16,
    scales: [Lanes; G],
    error: f32,
}

impl SignedSearch {
    /// Fits a super-block; `None` when its scale exceeds the range of F16.
    pub(in crate::quant::encode) fn fit<const N: usize, const G: usize>(
        &self,
        values: &[f32; SUPER_BLOCK],
    ) -> Option<SignedFit<G>> {
        let groups = &transpose::<N, G>(values)?;
        let real: [Lanes; G] = std::array::from_fn(|g| self.real_scales(&groups[g]));
        let largest = real.as_flattened().iter().copied().fold(0.0, larger_magnitude);
        // The lowest integer scale has no positive counterpart: it belongs to the largest.
        let d = to_f16(largest / -self.scale_levels);
        if d.is_infinite() {
            return None;
        }
        let whole = real.map(|real| real.map(|s| round(s * inverse(d.to_f32()))));
        let mut choice = self.choose(groups, d, &whole);
        let refitted = f16::from_f32(self.best_d(groups, &choice));
        if refitted.is_finite() {
            let again = self.choose(groups, refitted, &choice.scales);
            if again.error < choice.error {
                choice = again;
            }
        }
        Some(self.encode(groups, &choice))
    }

    fn code(&self, x: f32) -> f32 {
        round(clamp(x, -self.levels, self.levels - 1.0))
    }

    /// Per sub-block, the real-valued scale of least squared error among those that follow from the targets.
    fn real_scales<const N: usize>(&self, group: &Group<N>) -> Lanes {
        let extreme =
            group.iter().fold([0.0; LANES], |extreme, x| lanes(|l| larger_magnitude(extreme[l], x[l])));
        let per_code = extreme.map(inverse);
        let (mut best, mut scales) = ([0.0; LANES], [0.0; LANES]);
        for target in self.targets {
            let (xq, qq) = self.moments(group, &per_code.map(|p| p * target));
            // The best scale for given codes is xq / qq; it lessens the error by xq^2 / qq.
            let scale = lanes(|l| xq[l] / qq[l]);
            let gain = lanes(|l| xq[l] * scale[l]);
            scales = lanes(|l| if gain[l] > best[l] { scale[l] } else { scales[l] });
            best = lanes(|l| if gain[l] > best[l] { gain[l] } else { best[l] });
        }
        scales
    }

    /// Moves each integer scale to the best of its neighbours and itself.
    fn choose<const N: usize, const G: usize>(
        &self,
        groups: &[Group<N>; G],
        d: f16,
        centre: &[Lanes; G],
    ) -> Choice<G> {
        let (mut scales, mut errors) = (*centre, [[f32::MAX; LANES]; G]);
        for g in 0..G {
            for by in -self.reach..=self.reach {
                let within = |s| clamp(s + f32::from(by), -self.scale_levels, self.scale_levels - 1.0);
                let tried = centre[g].map(within);
                let error = self.errors(&groups[g], &tried.map(|s| d.to_f32() * s));
                let (least, scale) = (errors[g], scales[g]);
                scales[g] = lanes(|l| if error[l] < least[l] { tried[l] } else { scale[l] });
                errors[g] = lanes(|l| if error[l] < least[l] { error[l] } else { least[l] });
            }
        }
        Choice { d, scales, error: total(&errors) }
    }

    /// The super-block's scale of least squared error for the codes that `choice` gives.
    fn best_d<const N: usize, const G: usize>(&self, groups: &[Group<N>; G], choice: &Choice<G>) -> f32 {
        let (mut along, mut square) = ([[0.0; LANES]; G], [[0.0; LANES]; G]);
        for g in 0..G {
            let s = choice.scales[g];
            let (xq, qq) = self.moments(&groups[g], &s.map(|s| inverse(choice.d.to_f32() * s)));
            along[g] = lanes(|l| s[l] * xq[l]);
            square[g] = lanes(|l| s[l] * s[l] * qq[l]);
        }
        total(&along) * inverse(total(&square))
    }

    /// Sums of `x * code` and of `code^2`.
    fn moments<const N: usize>(&self, group: &Group<N>, inverses: &Lanes) -> (Lanes, Lanes) {
        let (mut xq, mut qq) = ([0.0; LANES], [0.0; LANES]);
        for x in group {
            for l in 0..LANES {
                let q = self.code(x[l] * inverses[l]);
                xq[l] += x[l] * q;
                qq[l] += q * q;
            }
        }
        (xq, qq)
    }

    /// Squared errors with these steps from code to code.
    fn errors<const N: usize>(&self, group: &Group<N>, steps: &Lanes) -> Lanes {
        let inverses = steps.map(inverse);
        let mut errors = [0.0; LANES];
        for x in group {
            for l in 0..LANES {
                let miss = x[l] - steps[l] * self.code(x[l] * inverses[l]);
                errors[l] += miss * miss;
            }
        }
        errors
    }

    fn encode<const N: usize, const G: usize>(
        &self,
        groups: &[Group<N>; G],
        choice: &Choice<G>,
    ) -> SignedFit<G> {
        let mut codes = [0; SUPER_BLOCK];
        for (g, group) in groups.iter().enumerate() {
            let inverses = choice.scales[g].map(|s| inverse(choice.d.to_f32() * s));
            store_codes::<N>(&mut codes, g, |i| lanes(|l| self.code(group[i][l] * inverses[l])));
        }
        SignedFit { d: choice.d, scales: choice.scales, codes }
    }
}

fn larger_magnitude(a: f32, b: f32) -> f32 {
    if b.abs() > a.abs() { b } else { a }
}
