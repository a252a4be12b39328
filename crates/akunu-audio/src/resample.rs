//! From the rate of a file to the one everything else uses.

use std::f64::consts::PI;

use crate::RATE;

/// How far the filter reaches to either side, in zeros of its sinc.
const ZEROS: f64 = 64.0;
/// Where it begins to end, as a part of the lower rate's highest frequency: it is down by half there, and silent at the end.
const EDGE: f64 = 0.95;
/// The form of Kaiser's window: what lies beyond is about 100 dB down.
const BETA: f64 = 10.0;
/// Weights that a filter of its own for every position between two samples may take. Rates that need more take a mean of two
/// neighbours among so many positions.
const MOST_WEIGHTS: u64 = 1 << 17;
const MEAN_PHASES: f64 = 256.0;

/// Samples whose products are added side by side.
const WIDTH: usize = 8;

/// Changes the rate of one channel, piece by piece, by a sinc under a window. What comes out is aligned with what went in.
pub(crate) struct Resampler {
    /// `up / down` is the new rate over the old, in lowest terms.
    up: u64,
    down: u64,
    phases: u64,
    /// For each position between two samples, the next whole one among them: the weights of the samples around it.
    filters: Vec<f32>,
    taps: usize,
    /// Samples of the file that filters to come will see, and how many came before. Silence before the beginning counts.
    waiting: Vec<f32>,
    dropped: u64,
    taken: u64,
    given: u64,
}

impl Resampler {
    /// A resampler from `rate`, which is not zero.
    pub fn new(rate: u32) -> Resampler {
        let shared = gcd(rate, RATE);
        let (up, down) = (u64::from(RATE / shared), u64::from(rate / shared));
        // Frequencies are cut at the lower of the two rates.
        let cut = (f64::from(RATE) / f64::from(rate)).min(1.0);
        let reach = ((ZEROS / cut).ceil() as usize).next_multiple_of(WIDTH / 2);
        let taps = 2 * reach;
        // A filter for lower frequencies is as much smoother.
        let enough = (MEAN_PHASES * cut).ceil().max(8.0) as u64;
        let phases = if up * taps as u64 <= MOST_WEIGHTS { up } else { enough };
        let mut filters = Vec::with_capacity((phases as usize + 1) * taps);
        for phase in 0..=phases {
            let position = phase as f64 / phases as f64 + (reach - 1) as f64;
            let weights: Vec<f64> = (0..taps)
                .map(|tap| {
                    let distance = position - tap as f64;
                    sinc(EDGE * cut * distance) * kaiser(distance / reach as f64)
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            filters.extend(weights.iter().map(|weight| (weight / sum) as f32));
        }
        let waiting = vec![0.0; reach - 1];
        Resampler { up, down, phases, filters, taps, waiting, dropped: 0, taken: 0, given: 0 }
    }

    /// Takes samples of the file and appends what they become.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        self.taken += samples.len() as u64;
        self.waiting.extend_from_slice(samples);
        self.run(u64::MAX, out);
    }

    /// Appends what is still on its way, so that all that came out is as long as what went in.
    pub fn finish(&mut self, out: &mut Vec<f32>) {
        self.waiting.resize(self.waiting.len() + self.taps, 0.0);
        self.run((self.taken * self.up).div_ceil(self.down), out);
    }

    /// Makes the samples whose surroundings are there, until there are `end` of them.
    fn run(&mut self, end: u64, out: &mut Vec<f32>) {
        let mut start = 0;
        while self.given < end {
            let position = self.given * self.down;
            start = (position / self.up - self.dropped) as usize;
            let Some(around) = self.waiting.get(start..start + self.taps) else { break };
            let between = position % self.up * self.phases;
            let (phase, rest) = ((between / self.up) as usize, between % self.up);
            let filter = |phase: usize| dot(around, &self.filters[phase * self.taps..][..self.taps]);
            let mut sample = filter(phase);
            if rest > 0 {
                let part = rest as f32 / self.up as f32;
                sample += (filter(phase + 1) - sample) * part;
            }
            out.push(sample);
            self.given += 1;
        }
        let done = start.min(self.waiting.len());
        self.waiting.drain(..done);
        self.dropped += done as u64;
    }
}

/// The sum of products, in an order that vectors can follow. Both are of one length, a multiple of [`WIDTH`].
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; WIDTH];
    for (a, b) in a.as_chunks::<WIDTH>().0.iter().zip(b.as_chunks::<WIDTH>().0) {
        for i in 0..WIDTH {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum()
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// Kaiser's window from -1 to 1, but for a factor.
fn kaiser(x: f64) -> f64 {
    let half = BETA / 2.0 * (1.0 - x * x).max(0.0).sqrt();
    // The modified Bessel function of order 0, as its series.
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..40 {
        term *= (half / f64::from(k)).powi(2);
        sum += term;
    }
    sum
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, count: usize) -> Vec<f32> {
        tone_of(1000.0, rate, count)
    }

    fn tone_of(hertz: f64, rate: u32, count: usize) -> Vec<f32> {
        let step = 2.0 * PI * hertz / f64::from(rate);
        (0..count).map(|i| (0.5 * (i as f64 * step).sin()) as f32).collect()
    }

    #[test]
    fn a_tone_stays_itself_at_any_rate_and_in_any_pieces() {
        for rate in [8000, 11_025, 22_050, 44_100, 44_056, 48_000, 192_000] {
            let input = tone(rate, rate as usize * 3 / 2);
            let mut whole = Vec::new();
            let mut resampler = Resampler::new(rate);
            resampler.push(&input, &mut whole);
            resampler.finish(&mut whole);

            let mut pieces = Vec::new();
            let mut resampler = Resampler::new(rate);
            for piece in input.chunks(777) {
                resampler.push(piece, &mut pieces);
            }
            resampler.finish(&mut pieces);
            assert_eq!(whole, pieces, "{rate}");

            let expected = tone(RATE, RATE as usize * 3 / 2);
            assert_eq!(whole.len(), expected.len(), "{rate}");
            // The ends are cut off a tone, which is no tone there.
            for (i, (a, b)) in whole.iter().zip(&expected).enumerate().skip(2000).take(expected.len() - 4000)
            {
                assert!((a - b).abs() < 1e-4, "{rate}: sample {i} is {a}, expected {b}");
            }
        }
    }

    #[test]
    fn a_single_sample_gives_as_much_as_its_time() {
        let mut out = Vec::new();
        let mut resampler = Resampler::new(48_000);
        resampler.push(&[0.5], &mut out);
        resampler.finish(&mut out);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn what_the_lower_rate_cannot_hold_is_gone() {
        for (rate, hertz) in [(48_000, 8_000.0), (44_100, 9_000.0), (44_056, 12_000.0), (192_000, 70_000.0)] {
            let mut out = Vec::new();
            let mut resampler = Resampler::new(rate);
            resampler.push(&tone_of(hertz, rate, rate as usize), &mut out);
            resampler.finish(&mut out);
            let loudest = out[500..out.len() - 500].iter().fold(0f32, |most, sample| most.max(sample.abs()));
            assert!(loudest < 5e-5, "{rate}: {hertz} Hz at {loudest}");
        }
    }
}
