//! The one definition of how the next token is chosen from logits; every backend follows it.
//!
//! In this order:
//!
//! 1. `logit_bias` is added.
//! 2. Penalties over the last `repeat_last_n` tokens up to and including the row's own: each distinct token has its logit
//!    divided (if positive) or multiplied (if negative) by `repeat_penalty`, then reduced by `presence_penalty` and by
//!    `frequency_penalty` times its count.
//! 3. With `temperature` 0 the largest logit wins, the lowest id among equals. Otherwise logits are divided by it.
//! 4. `top_k` keeps the k largest (0 keeps all; equal logits at the border are all kept).
//! 5. `top_p` keeps the largest until their share of the probability that step 4 left reaches p, the crossing one included
//!    (and every logit equal to it).
//! 6. `min_p` keeps those with at least p times the probability of the most likely.
//! 7. Gumbel noise is added to what is left, and the largest wins. The noise is a hash of (seed, position, token), so neither
//!    batching, chunking nor speculation can change it.
//!
//! A logit of −∞ is never chosen; NaN counts as −∞.

/// How one sequence chooses its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep this many; 0 keeps all.
    pub top_k: u32,
    /// Keep this share of the probability; 1 keeps all.
    pub top_p: f32,
    /// Keep what has this share of the best one's probability; 0 keeps all.
    pub min_p: f32,
    /// 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted per occurrence.
    pub frequency_penalty: f32,
    /// Subtracted once.
    pub presence_penalty: f32,
    /// Tokens the penalties look back on.
    pub repeat_last_n: u32,
    /// Where the noise comes from.
    pub seed: u64,
    /// Added to single tokens' logits.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Sampling {
    /// Always the most likely token.
    pub const GREEDY: Sampling = Sampling {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repeat_penalty: 1.0,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
        repeat_last_n: 64,
        seed: 0,
        logit_bias: Vec::new(),
    };

    /// Whether any penalty changes a logit.
    pub fn penalizes(&self) -> bool {
        self.repeat_last_n > 0
            && (self.repeat_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0)
    }
}

/// Chooses the token that follows `position`. `history` holds the sequence's tokens up to and including that position;
/// `logits` are changed. `None` when no token may be chosen.
pub fn select(logits: &mut [f32], sampling: &Sampling, history: &[u32], position: u32) -> Option<u32> {
    for z in logits.iter_mut().filter(|z| z.is_nan()) {
        *z = f32::NEG_INFINITY;
    }
    for &(token, bias) in &sampling.logit_bias {
        if let Some(z) = logits.get_mut(token as usize) {
            *z += bias;
        }
    }
    if sampling.penalizes() {
        penalize(logits, sampling, history);
    }
    if sampling.temperature <= 0.0 {
        return argmax(logits.iter().copied());
    }
    for z in logits.iter_mut() {
        *z /= sampling.temperature;
    }
    let threshold = threshold(logits, sampling);
    argmax(logits.iter().enumerate().map(|(token, &z)| {
        if z >= threshold { z + gumbel(sampling.seed, position, token as u32) } else { f32::NEG_INFINITY }
    }))
}

fn penalize(logits: &mut [f32], sampling: &Sampling, history: &[u32]) {
    let from = history.len().saturating_sub(sampling.repeat_last_n as usize);
    let mut window = history[from..].to_vec();
    window.sort_unstable();
    for same in window.chunk_by(|a, b| a == b) {
        let Some(z) = logits.get_mut(same[0] as usize) else { continue };
        *z = if *z > 0.0 { *z / sampling.repeat_penalty } else { *z * sampling.repeat_penalty };
        *z -= sampling.presence_penalty + sampling.frequency_penalty * same.len() as f32;
    }
}

/// The smallest logit that top-k, top-p and min-p leave.
fn threshold(logits: &[f32], sampling: &Sampling) -> f32 {
    let mut sorted: Vec<f32> = logits.iter().copied().filter(|z| *z > f32::NEG_INFINITY).collect();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let Some(&max) = sorted.first() else { return f32::INFINITY };
    let mut least = *sorted.last().unwrap_or(&max);
    if sampling.top_k > 0 && (sampling.top_k as usize) < sorted.len() {
        least = sorted[sampling.top_k as usize - 1];
        sorted.truncate(sorted.partition_point(|z| *z >= least));
    }
    if sampling.top_p < 1.0 {
        let total: f64 = sorted.iter().map(|z| f64::from(z - max).exp()).sum();
        let mut sum = 0.0;
        for &z in &sorted {
            sum += f64::from(z - max).exp();
            least = z;
            if sum >= f64::from(sampling.top_p) * total {
                break;
            }
        }
    }
    if sampling.min_p > 0.0 {
        least = least.max(max + sampling.min_p.ln());
    }
    least
}

/// The index of the largest value, the lowest among equals; `None` when all are −∞.
fn argmax(values: impl Iterator<Item = f32>) -> Option<u32> {
    let mut best = (f32::NEG_INFINITY, None);
    for (i, z) in values.enumerate() {
        if z > best.0 {
            best = (z, Some(i as u32));
        }
    }
    best.1
}

/// Standard Gumbel noise for one candidate.
pub fn gumbel(seed: u64, position: u32, token: u32) -> f32 {
    // A uniform in (0, 1) with full relative precision near 0, where the winners of the race come from.
    let w =
        ((hash(seed, position, token) as f32 + 0.5) * (1.0 / 4_294_967_296.0)).min(1.0 - f32::EPSILON / 2.0);
    -(-(-w).ln_1p()).ln()
}

/// Mixes seed, position and token into 32 uniform bits, with 32-bit arithmetic only (GPUs follow it too).
pub fn hash(seed: u64, position: u32, token: u32) -> u32 {
    let mut h = mix(seed as u32 ^ 0x9e37_79b9);
    h = mix(h ^ (seed >> 32) as u32);
    h = mix(h.wrapping_add(position.wrapping_mul(0x85eb_ca6b)));
    mix(h.wrapping_add(token.wrapping_mul(0xc2b2_ae35)))
}

/// A bijection of 32 bits with good avalanche: xor-shifts and odd multipliers.
fn mix(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x7feb_352d);
    h ^= h >> 15;
    h = h.wrapping_mul(0x846c_a68b);
    h ^ (h >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 8] = [2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -6.0];

    /// Draws at many positions and compares the counts with the distribution, by a chi-square test.
    fn follows(sampling: &Sampling, kept: &[usize]) {
        const DRAWS: u32 = 40_000;
        let mut counts = [0u32; 8];
        for position in 0..DRAWS {
            let token = select(&mut LOGITS.clone(), sampling, &[], position).unwrap();
            counts[token as usize] += 1;
        }
        let weight = |i: &usize| (f64::from(LOGITS[*i]) / f64::from(sampling.temperature)).exp();
        let total: f64 = kept.iter().map(weight).sum();
        let mut chi2 = 0.0;
        for (i, &count) in counts.iter().enumerate() {
            if kept.contains(&i) {
                let expected = weight(&i) / total * f64::from(DRAWS);
                chi2 += (f64::from(count) - expected).powi(2) / expected;
            } else {
                assert_eq!(count, 0, "token {i} was filtered out");
            }
        }
        // The 99.99th percentile for 7 degrees of freedom is 29.9.
        assert!(chi2 < 29.9, "chi-square {chi2} for {sampling:?}: {counts:?}");
    }

    fn warm() -> Sampling {
        Sampling { temperature: 1.0, seed: 7, ..Sampling::GREEDY }
    }

    #[test]
    fn every_filter_gives_its_exact_distribution() {
        let all: Vec<usize> = (0..8).collect();
        follows(&warm(), &all);
        follows(&Sampling { temperature: 0.7, ..warm() }, &all);
        follows(&Sampling { temperature: 2.0, seed: u64::MAX, ..warm() }, &all);
        follows(&Sampling { top_k: 3, ..warm() }, &all[..3]);
        // Shares: 0.397, 0.241, 0.146, ...: the second crosses 0.5, the third 0.7.
        follows(&Sampling { top_p: 0.5, ..warm() }, &all[..2]);
        follows(&Sampling { top_p: 0.7, ..warm() }, &all[..3]);
        // exp(-1) = 0.37 of the best passes 0.3, exp(-1.5) = 0.22 does not.
        follows(&Sampling { min_p: 0.3, ..warm() }, &all[..3]);
        follows(&Sampling { top_k: 4, top_p: 0.9, min_p: 0.01, ..warm() }, &all[..4]);
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals_and_never_nan() {
        let mut logits = [f32::NAN, 1.0, 3.0, 3.0];
        assert_eq!(select(&mut logits, &Sampling::GREEDY, &[], 0), Some(2));
        assert_eq!(select(&mut [f32::NEG_INFINITY; 3], &Sampling::GREEDY, &[], 0), None);
        assert_eq!(select(&mut [f32::NEG_INFINITY; 3], &warm(), &[], 0), None);
    }

    #[test]
    fn penalties_count_each_distinct_token_in_the_window() {
        let sampling = Sampling {
            repeat_penalty: 2.0,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            repeat_last_n: 3,
            ..Sampling::GREEDY
        };
        let mut logits = [4.0, -1.0, 1.0, 0.0];
        // Token 2 lies outside the window of three.
        select(&mut logits, &sampling, &[2, 0, 1, 1], 3);
        assert_eq!(logits, [4.0 / 2.0 - 0.75, -2.0 - 1.0, 1.0, 0.0]);
    }

    #[test]
    fn bias_can_forbid_and_force() {
        let forbid = Sampling { logit_bias: vec![(0, f32::NEG_INFINITY), (99, 1.0)], ..warm() };
        assert!((0..200).all(|p| select(&mut LOGITS.clone(), &forbid, &[], p) != Some(0)));
        let force = Sampling { logit_bias: vec![(7, 100.0)], ..warm() };
        assert!((0..200).all(|p| select(&mut LOGITS.clone(), &force, &[], p) == Some(7)));
    }
}
