//! The one definition of how the next token is chosen from logits; every backend follows it.
//!
//! In this order:
//!
//! 1. `logit_bias` is added.
//! 2. Penalties over the last `repeat_last_n` tokens up to and including the row's own: each distinct token has its logit
//!    divided (if positive) or multiplied (if negative) by `repeat_penalty`, then reduced by `presence_penalty` and by
//!    `frequency_penalty` times its count.
//! 3. A [`Mask`], where there is one, makes the logits of all tokens that may not come next −∞.
//! 4. With `temperature` 0 the largest logit wins, the lowest id among equals. Otherwise logits are divided by it.
//! 5. `top_k` keeps the k largest (0 keeps all; equal logits at the border are all kept).
//! 6. `top_p` keeps the largest until their share of the probability that step 5 left reaches p, the crossing one included
//!    (and every logit equal to it).
//! 7. `min_p` keeps those with at least p times the probability of the most likely.
//! 8. Gumbel noise is added to what is left, and the largest wins. The noise is a hash of (seed, position, token), so neither
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

/// Which tokens may come next: token `t` is bit `t % 32` of word `t / 32`. Tokens beyond the last word may not.
pub type Mask<'a> = &'a [u32];

/// Room for choosing, used again from token to token so that nothing is allocated.
#[derive(Debug)]
pub struct Scratch {
    /// Logits that filters may keep.
    candidates: Vec<f32>,
    /// Tokens that penalties look back on.
    window: Vec<u32>,
}

impl Scratch {
    /// Room for so many logits, and so many tokens of history.
    pub fn new(vocabulary: usize, context: usize) -> Scratch {
        Scratch { candidates: Vec::with_capacity(vocabulary), window: Vec::with_capacity(context) }
    }
}

/// Chooses the token that follows `position`. `history` holds the sequence's tokens up to and including that position;
/// `logits` are changed. `None` when no token may be chosen.
pub fn select(
    logits: &mut [f32],
    sampling: &Sampling,
    history: &[u32],
    position: u32,
    mask: Option<Mask<'_>>,
    scratch: &mut Scratch,
) -> Option<u32> {
    for &(token, bias) in &sampling.logit_bias {
        if let Some(z) = logits.get_mut(token as usize) {
            *z += bias;
        }
    }
    if sampling.penalizes() {
        penalize(logits, sampling, history, &mut scratch.window);
    }
    if let Some(mask) = mask {
        forbid(logits, mask);
    }
    if sampling.temperature <= 0.0 {
        return argmax(logits);
    }
    for z in logits.iter_mut() {
        *z /= sampling.temperature;
    }
    let max = largest(logits);
    if max == f32::NEG_INFINITY {
        return None;
    }
    let threshold = threshold(logits, max, sampling, &mut scratch.candidates);
    race(logits, threshold, sampling.seed, position)
}

fn penalize(logits: &mut [f32], sampling: &Sampling, history: &[u32], window: &mut Vec<u32>) {
    let from = history.len().saturating_sub(sampling.repeat_last_n as usize);
    window.clear();
    window.extend_from_slice(&history[from..]);
    window.sort_unstable();
    for same in window.chunk_by(|a, b| a == b) {
        let Some(z) = logits.get_mut(same[0] as usize) else { continue };
        *z = if *z > 0.0 { *z / sampling.repeat_penalty } else { *z * sampling.repeat_penalty };
        *z -= sampling.presence_penalty + sampling.frequency_penalty * same.len() as f32;
    }
}

fn forbid(logits: &mut [f32], mask: Mask<'_>) {
    let (within, beyond) = logits.split_at_mut(logits.len().min(mask.len() * 32));
    for (logits, &word) in within.chunks_mut(32).zip(mask) {
        match word {
            u32::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            _ => {
                for (bit, z) in logits.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *z = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
    beyond.fill(f32::NEG_INFINITY);
}

/// Logits gone through together, so that compilers find vectors in the loops.
const LANES: usize = 16;

/// The smallest logit that top-k, top-p and min-p leave; `max` is the largest.
fn threshold(logits: &[f32], max: f32, sampling: &Sampling, candidates: &mut Vec<f32>) -> f32 {
    let k = sampling.top_k as usize;
    let (by_rank, by_share) = (k > 0 && k < logits.len(), sampling.top_p < 1.0);
    let floor = if sampling.min_p > 0.0 { max + sampling.min_p.ln() } else { f32::MIN };
    if !by_rank && !by_share {
        return floor;
    }
    // Few logits come close to the largest: only those are put in order, and more only where they do not settle it. What
    // lies below the floor need not be known, unless shares are of what top-k leaves.
    let all = if by_rank && by_share { f32::MIN } else { floor };
    let total = if by_rank { 0.0 } else { total_weight(logits, max) };
    for cut in [max - 8.0, max - 16.0, all].map(|cut| cut.max(all)) {
        candidates.clear();
        for_chunks_above(logits, cut, |_, chunk| candidates.extend(chunk.iter().filter(|z| **z >= cut)));
        let last = cut == all;
        if by_rank && candidates.len() > k {
            let (_, kth, _) = candidates.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
            let kth = *kth;
            candidates.retain(|z| *z >= kth);
        } else if by_rank && candidates.len() < k && !last {
            continue;
        }
        candidates.sort_unstable_by(|a, b| b.total_cmp(a));
        let Some(&least) = candidates.last() else { return floor };
        if !by_share {
            return if candidates.len() < k { floor } else { least.max(floor) };
        }
        let weight = |z: &f32| f64::from(z - max).exp();
        let total = if by_rank { candidates.iter().map(weight).sum() } else { total };
        let enough = f64::from(sampling.top_p) * total;
        let mut sum = 0.0;
        let crossing = candidates.iter().find(|z| {
            sum += weight(z);
            sum >= enough
        });
        match crossing {
            Some(z) => return z.max(floor),
            None if by_rank || last => return if by_rank { least.max(floor) } else { floor },
            None => {}
        }
    }
    floor
}

/// Calls `f` with every stretch of logits that has one of at least `cut`, and where it begins.
fn for_chunks_above(logits: &[f32], cut: f32, mut f: impl FnMut(usize, &[f32])) {
    for (i, chunk) in logits.chunks(LANES).enumerate() {
        if chunk.iter().fold(false, |any, z| any | (*z >= cut)) {
            f(i * LANES, chunk);
        }
    }
}

/// The largest logit; NaN is never it.
fn largest(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, z) in lanes.iter_mut().zip(chunk) {
            *lane = if *z > *lane { *z } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, |most, z| if z > most { z } else { most })
}

/// The sum of `e^(z - max)`, within a few parts in 10⁷.
fn total_weight(logits: &[f32], max: f32) -> f64 {
    // Few enough terms for one f32 to lose nothing that counts.
    const TOGETHER: usize = 64 * LANES;
    let mut total = 0.0;
    for logits in logits.chunks(TOGETHER) {
        let mut lanes = [0f32; LANES];
        let (chunks, rest) = logits.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, z) in lanes.iter_mut().zip(chunk) {
                *lane += exp(z - max);
            }
        }
        total += f64::from(lanes.iter().sum::<f32>());
        total += rest.iter().map(|z| f64::from(exp(z - max))).sum::<f64>();
    }
    total
}

/// `e^x` for `x` up to 88, within 3 parts in 10⁷, without branches; next to nothing below -87 and for NaN.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding this leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = if x > -87.0 { x } else { -87.0 };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts, the first exact in few bits, so that the remainder loses nothing.
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let mut p = 1.0 / 720.0;
    for c in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * r + c;
    }
    let power = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    p * f32::from_bits(power)
}

/// The token with the largest sum of logit and noise among those at or above the threshold.
fn race(logits: &[f32], threshold: f32, seed: u64, position: u32) -> Option<u32> {
    let start = hash_start(seed, position);
    let mut best = (f32::NEG_INFINITY, None);
    for_chunks_above(logits, threshold, |first, chunk| {
        // Noise is at most -ln w (see `gumbel`): a token whose w is greater than e^(z - best) cannot win. The margin is far
        // more than what either side may be off.
        let mut promising = false;
        for (i, z) in chunk.iter().enumerate() {
            let ahead = (z - best.0).min(0.0);
            promising |= uniform(hash_end(start, (first + i) as u32)) <= exp(ahead) * 1.001;
        }
        if !promising {
            return;
        }
        for (i, z) in chunk.iter().enumerate().filter(|(_, z)| **z >= threshold) {
            let token = (first + i) as u32;
            let sum = z + gumbel(seed, position, token);
            if sum > best.0 {
                best = (sum, Some(token));
            }
        }
    });
    best.1
}

/// The index of the largest logit, the lowest among equals; `None` when all are −∞ or NaN.
fn argmax(logits: &[f32]) -> Option<u32> {
    let max = largest(logits);
    if max == f32::NEG_INFINITY {
        return None;
    }
    logits.iter().position(|z| *z == max).map(|at| at as u32)
}

/// Standard Gumbel noise for one candidate: `-ln(-ln(1 - w))` of a uniform `w`.
pub fn gumbel(seed: u64, position: u32, token: u32) -> f32 {
    let w = uniform(hash(seed, position, token));
    -(-(-w).ln_1p()).ln()
}

/// A uniform in (0, 1) with full relative precision near 0, where the winners of the race come from.
#[inline(always)]
fn uniform(bits: u32) -> f32 {
    ((bits as f32 + 0.5) * (1.0 / 4_294_967_296.0)).min(1.0 - f32::EPSILON / 2.0)
}

/// Mixes seed, position and token into 32 uniform bits, with 32-bit arithmetic only (GPUs follow it too).
pub fn hash(seed: u64, position: u32, token: u32) -> u32 {
    hash_end(hash_start(seed, position), token)
}

fn hash_start(seed: u64, position: u32) -> u32 {
    let h = mix(seed as u32 ^ 0x9e37_79b9);
    let h = mix(h ^ (seed >> 32) as u32);
    mix(h.wrapping_add(position.wrapping_mul(0x85eb_ca6b)))
}

#[inline(always)]
fn hash_end(start: u32, token: u32) -> u32 {
    mix(start.wrapping_add(token.wrapping_mul(0xc2b2_ae35)))
}

/// A bijection of 32 bits with good avalanche: xor-shifts and odd multipliers.
#[inline(always)]
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

    /// With room of its own.
    fn choose(logits: &mut [f32], sampling: &Sampling, history: &[u32], position: u32) -> Option<u32> {
        select(logits, sampling, history, position, None, &mut Scratch::new(0, 0))
    }

    const LOGITS: [f32; 8] = [2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -6.0];

    /// Draws at many positions and compares the counts with the distribution, by a chi-square test.
    fn follows(sampling: &Sampling, kept: &[usize]) {
        const DRAWS: u32 = 40_000;
        let mut counts = [0u32; 8];
        for position in 0..DRAWS {
            let token = choose(&mut LOGITS.clone(), sampling, &[], position).unwrap();
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
        assert_eq!(choose(&mut logits, &Sampling::GREEDY, &[], 0), Some(2));
        assert_eq!(choose(&mut [f32::NEG_INFINITY; 3], &Sampling::GREEDY, &[], 0), None);
        assert_eq!(choose(&mut [f32::NEG_INFINITY; 3], &warm(), &[], 0), None);
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
        choose(&mut logits, &sampling, &[2, 0, 1, 1], 3);
        assert_eq!(logits, [4.0 / 2.0 - 0.75, -2.0 - 1.0, 1.0, 0.0]);
    }

    #[test]
    fn bias_can_forbid_and_force() {
        let forbid = Sampling { logit_bias: vec![(0, f32::NEG_INFINITY), (99, 1.0)], ..warm() };
        assert!((0..200).all(|p| choose(&mut LOGITS.clone(), &forbid, &[], p) != Some(0)));
        let force = Sampling { logit_bias: vec![(7, 100.0)], ..warm() };
        assert!((0..200).all(|p| choose(&mut LOGITS.clone(), &force, &[], p) == Some(7)));
    }

    #[test]
    fn only_tokens_of_the_mask_are_chosen() {
        let masked = |sampling: &Sampling, mask: &[u32], position| {
            let mut logits: Vec<f32> = (0..70).map(|i| gumbel(5, 0, i)).collect();
            select(&mut logits, sampling, &[1, 2], position, Some(mask), &mut Scratch::new(0, 0))
        };
        // Bias and penalties do not bring a forbidden token back.
        let pushed = Sampling {
            logit_bias: vec![(0, f32::INFINITY), (69, 50.0)],
            repeat_penalty: 1.5,
            presence_penalty: -9.0,
            ..warm()
        };
        for sampling in [Sampling::GREEDY, warm(), Sampling { top_k: 5, top_p: 0.9, ..warm() }, pushed] {
            for position in 0..200 {
                let token = masked(&sampling, &[0b1010, 1], position).unwrap();
                assert!([1, 3, 32].contains(&token), "{token}");
                // Beyond the last word lies nothing.
                assert!(masked(&sampling, &[u32::MAX], position).unwrap() < 32);
            }
            assert_eq!(masked(&sampling, &[0, 0, 0], 0), None);
            assert_eq!(masked(&sampling, &[], 0), None);
        }
        let free = select(&mut LOGITS.clone(), &warm(), &[], 3, None, &mut Scratch::new(0, 0));
        assert_eq!(select(&mut LOGITS.clone(), &warm(), &[], 3, Some(&[255]), &mut Scratch::new(0, 0)), free);
    }

    /// The filters as the module's documentation has them, word by word.
    fn defined(logits: &[f32], sampling: &Sampling, position: u32) -> Option<u32> {
        let scaled: Vec<f32> = logits.iter().map(|z| z / sampling.temperature).collect();
        let mut sorted: Vec<f32> = scaled.iter().copied().filter(|z| *z > f32::NEG_INFINITY).collect();
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        let max = *sorted.first()?;
        if sampling.top_k > 0 && (sampling.top_k as usize) < sorted.len() {
            let least = sorted[sampling.top_k as usize - 1];
            sorted.retain(|z| *z >= least);
        }
        if sampling.top_p < 1.0 {
            let total: f64 = sorted.iter().map(|z| f64::from(z - max).exp()).sum();
            let mut sum = 0.0;
            let crossing = sorted.iter().position(|z| {
                sum += f64::from(z - max).exp();
                sum >= f64::from(sampling.top_p) * total
            });
            let least = crossing.map_or(f32::MIN, |at| sorted[at]);
            sorted.retain(|z| *z >= least);
        }
        let floor = if sampling.min_p > 0.0 { max + sampling.min_p.ln() } else { f32::MIN };
        let least = sorted.last().map_or(f32::MIN, |z| z.max(floor));
        let noisy =
            |(token, z): (usize, &f32)| (z + gumbel(sampling.seed, position, token as u32), token as u32);
        let kept = scaled.iter().enumerate().filter(|(_, z)| **z >= least).map(noisy);
        kept.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, token)| token)
    }

    #[test]
    fn shortcuts_choose_what_the_definition_chooses() {
        let mut scratch = Scratch::new(4000, 0);
        for position in 0..300u32 {
            // Peaked, flat and clumped distributions; some tokens are masked.
            let (spread, size) = ([1.0, 4.0, 0.05][position as usize % 3], 1 + position as usize * 13);
            let mut logits: Vec<f32> = (0..size).map(|i| gumbel(9, position, i as u32) * spread).collect();
            for i in (0..size).step_by(7) {
                logits[i] = [f32::NEG_INFINITY, logits[i].round(), f32::NAN][(position / 3) as usize % 3];
            }
            for (top_k, top_p, min_p) in [
                (0, 1.0, 0.0),
                (1, 1.0, 0.0),
                (40, 1.0, 0.0),
                (3000, 1.0, 0.0),
                (0, 0.5, 0.0),
                (0, 0.95, 0.05),
                (0, 0.999, 0.0),
                (0, 1.0, 0.2),
                (20, 0.9, 0.01),
                (500, 0.99, 0.0),
            ] {
                let temperature = 0.6 + (position % 4) as f32 * 0.4;
                let sampling = Sampling { temperature, top_k, top_p, min_p, seed: 3, ..Sampling::GREEDY };
                let expected = defined(&logits, &sampling, position);
                let actual = select(&mut logits.clone(), &sampling, &[], position, None, &mut scratch);
                assert_eq!(actual, expected, "{sampling:?} at {position}, {size} tokens");
            }
        }
    }

    #[test]
    fn the_quick_exponential_is_close() {
        for i in -8600..=8000 {
            let x = i as f32 / 100.0;
            let error = f64::from(exp(x)) / f64::from(x).exp() - 1.0;
            assert!(error.abs() < 3e-7 + 1e-7 * f64::from(x.abs()) / 10.0, "{x}: {error}");
        }
        assert!(exp(f32::NEG_INFINITY) < 1e-37 && exp(f32::NAN) < 1e-37);
    }
}
