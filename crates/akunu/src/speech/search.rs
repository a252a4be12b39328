//! The transcript of one window: the likeliest token at a time, samples, or the best of several hypotheses.

use akunu_program::StopFlag;

use super::model::SpeechModel;
use super::rules::{Rules, exp, log_sum_exp};
use crate::{Error, Result};

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Search {
    /// The likeliest of all, or of each of several samples.
    Sample { temperature: f32, samples: usize, seed: u64 },
    /// Hypotheses that are kept in mind, and how many times as many must end before the search does.
    Beam { beams: usize, patience: f32 },
}

/// A transcript of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Without the end.
    pub tokens: Vec<u32>,
    /// The logarithm of each token's probability among all text; only where it was asked for.
    pub text_log_probabilities: Vec<f32>,
    /// The mean over tokens and the end.
    pub mean_log_probability: f32,
    pub no_speech: f32,
}

/// A transcript that is not done, or just was.
#[derive(Clone, Debug, Default)]
struct Hypothesis {
    tokens: Vec<u32>,
    text_log_probabilities: Vec<f32>,
    log_probability: f32,
}

impl Hypothesis {
    fn with(&self, next: &Candidate) -> Hypothesis {
        let mut hypothesis = self.clone();
        hypothesis.tokens.push(next.token);
        hypothesis.text_log_probabilities.extend(next.text_log_probability);
        hypothesis.log_probability = next.log_probability;
        hypothesis
    }
}

/// A token that could come next.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    from: usize,
    token: u32,
    /// Of the whole hypothesis with it.
    log_probability: f32,
    text_log_probability: Option<f32>,
}

/// One window being searched, which the model has encoded.
pub(super) struct Searcher<'a> {
    pub model: &'a mut SpeechModel,
    pub rules: Rules<'a>,
    /// What the decoder sees before the transcript.
    pub prompt: &'a [u32],
    /// By how much length counts when transcripts are compared; by default fully.
    pub length_penalty: Option<f32>,
    /// Whether [`Found::text_log_probabilities`] are wanted.
    pub words: bool,
    pub stop: &'a StopFlag,
}

impl Searcher<'_> {
    /// Searches.
    pub fn run(&mut self, search: Search) -> Result<Found> {
        let begun = self.model.begin(self.prompt, self.stop)?;
        let no_speech = match begun.start.get(self.rules.tokens.no_speech as usize) {
            Some(logit) => (logit - log_sum_exp(&begun.start)).exp(),
            None => 0.0,
        };
        let mut done = match search {
            Search::Beam { beams, patience } => self.beam(&begun.last, beams, patience)?,
            Search::Sample { temperature, samples, seed } => {
                self.sample(&begun.last, temperature, samples, seed)?
            }
        };
        if done.is_empty() {
            return Err(Error::Usage {
                problem: "the model's answers are no numbers".to_owned(),
                hint: "its weights, or the samples it was given, are broken".to_owned(),
            });
        }
        let best = self.best(&done);
        let Hypothesis { tokens, text_log_probabilities, log_probability } = done.swap_remove(best);
        let mean_log_probability = log_probability / (tokens.len() + 1) as f32;
        Ok(Found { tokens, text_log_probabilities, mean_log_probability, no_speech })
    }

    /// Most tokens of a transcript: half of what the decoder holds, and what the prompt leaves. One more is chosen than is fed.
    fn most(&self) -> usize {
        (self.model.context() / 2).min(self.model.context() + 1 - self.prompt.len())
    }

    /// The hypothesis whose tokens are likeliest on the whole.
    fn best(&self, done: &[Hypothesis]) -> usize {
        let score = |hypothesis: &Hypothesis| {
            let length = hypothesis.tokens.len().max(1) as f32;
            hypothesis.log_probability
                / self.length_penalty.map_or(length, |power| ((5.0 + length) / 6.0).powf(power))
        };
        let mut best = 0;
        for i in 1..done.len() {
            if score(&done[i]) > score(&done[best]) {
                best = i;
            }
        }
        best
    }

    fn sample(
        &mut self,
        first: &[f32],
        temperature: f32,
        samples: usize,
        seed: u64,
    ) -> Result<Vec<Hypothesis>> {
        let mut all = vec![Hypothesis::default(); samples];
        let width = first.len();
        // Those that go on, and the model's logits for each.
        let mut running: Vec<usize> = (0..samples).collect();
        let mut logits = first.to_vec();
        let mut row = Vec::with_capacity(width);
        for step in 0..self.most() {
            let mut next = Vec::with_capacity(running.len());
            for (i, &index) in running.iter().enumerate() {
                // Before the first token there is one hypothesis, of which all come.
                let parent = if step == 0 { 0 } else { i };
                let raw = &logits[parent * width..(parent + 1) * width];
                row.clear();
                row.extend_from_slice(raw);
                let hypothesis = &mut all[index];
                self.rules.apply(&mut row, &hypothesis.tokens);
                let token = if temperature == 0.0 {
                    likeliest(&row)
                } else {
                    draw(&row, temperature, noise(seed, index as u64, step as u64))
                };
                hypothesis.log_probability += row[token as usize] - log_sum_exp(&row);
                if token != self.rules.tokens.end {
                    hypothesis.tokens.push(token);
                    if self.words {
                        let log_probability = raw[token as usize] - self.text_log_sum(raw);
                        hypothesis.text_log_probabilities.push(log_probability);
                    }
                    next.push((index, (parent, token)));
                }
            }
            if next.is_empty() || step + 1 == self.most() {
                break;
            }
            running = next.iter().map(|&(index, _)| index).collect();
            let from: Vec<(usize, u32)> = next.iter().map(|&(_, from)| from).collect();
            let after = self.model.step(&from, self.stop)?;
            logits.clear();
            logits.extend_from_slice(after);
        }
        Ok(all)
    }

    fn beam(&mut self, first: &[f32], beams: usize, patience: f32) -> Result<Vec<Hypothesis>> {
        let enough = ((beams as f32 * patience).round() as usize).max(1);
        let width = first.len();
        let mut running = vec![Hypothesis::default()];
        let mut done: Vec<Hypothesis> = Vec::new();
        let mut logits = first.to_vec();
        for step in 0..self.most() {
            let mut candidates: Vec<Candidate> = Vec::with_capacity(running.len() * (beams + 1));
            for (from, (row, hypothesis)) in logits.chunks_exact_mut(width).zip(&running).enumerate() {
                let text = self.words.then(|| (self.text_log_sum(row), row.to_vec()));
                self.rules.apply(row, &hypothesis.tokens);
                let sum = log_sum_exp(row);
                for (token, logit) in highest(row, beams + 1) {
                    candidates.push(Candidate {
                        from,
                        token,
                        log_probability: hypothesis.log_probability + (logit - sum),
                        text_log_probability: text.as_ref().map(|(sum, raw)| raw[token as usize] - sum),
                    });
                }
            }
            candidates.sort_by(|a, b| b.log_probability.total_cmp(&a.log_probability));
            let mut next = Vec::with_capacity(beams);
            for candidate in &candidates {
                if candidate.token != self.rules.tokens.end {
                    next.push(*candidate);
                    if next.len() == beams {
                        break;
                    }
                } else if done.len() < enough {
                    let hypothesis = &running[candidate.from];
                    done.push(Hypothesis {
                        log_probability: candidate.log_probability,
                        ..hypothesis.clone()
                    });
                }
            }
            running = next.iter().map(|candidate| running[candidate.from].with(candidate)).collect();
            if done.len() >= enough || next.is_empty() || step + 1 == self.most() {
                break;
            }
            let from: Vec<(usize, u32)> =
                next.iter().map(|candidate| (candidate.from, candidate.token)).collect();
            let after = self.model.step(&from, self.stop)?;
            logits.clear();
            logits.extend_from_slice(after);
        }
        // Those that never ended count where too few did; they are in the order of their likelihood.
        let missing = beams.saturating_sub(done.len());
        done.extend(running.into_iter().take(missing));
        Ok(done)
    }

    /// What makes logits of text into logarithms of probabilities among text.
    fn text_log_sum(&self, row: &[f32]) -> f32 {
        log_sum_exp(&row[..(self.rules.tokens.end as usize).min(row.len())])
    }
}

fn likeliest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = i;
        }
    }
    best as u32
}

/// The `count` highest logits that are not forbidden, the highest first.
fn highest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut found: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
    let mut least = f32::NEG_INFINITY;
    for (i, &logit) in logits.iter().enumerate() {
        if logit > least {
            let at = found.partition_point(|&(_, other)| other >= logit);
            found.insert(at, (i as u32, logit));
            found.truncate(count);
            if found.len() == count {
                least = found[count - 1].1;
            }
        }
    }
    found
}

/// A token with the probability that its logit gives it at a temperature; `chance` is from 0 to 1.
fn draw(logits: &[f32], temperature: f32, chance: f64) -> u32 {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| {
        if logit == f32::NEG_INFINITY { 0.0 } else { f64::from(exp((logit - top) / temperature)) }
    };
    let mut left = chance * logits.iter().map(|&logit| weight(logit)).sum::<f64>();
    for (i, &logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return i as u32;
        }
    }
    likeliest(logits)
}

/// A number from 0 to 1 that looks random and depends on nothing else: the finaliser of SplitMix64, thrice.
fn noise(seed: u64, sample: u64, step: u64) -> f64 {
    let mix = |mut x: u64| {
        x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let bits = mix(mix(mix(seed) ^ sample) ^ step);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_come_first_and_ties_in_their_order() {
        let forbidden = f32::NEG_INFINITY;
        let logits = [1.0, 5.0, forbidden, 5.0, 2.0, 7.0, 0.5];
        assert_eq!(highest(&logits, 3), [(5, 7.0), (1, 5.0), (3, 5.0)]);
        assert_eq!(highest(&[forbidden, 1.0], 3), [(1, 1.0)]);
        assert_eq!(likeliest(&logits), 5);
    }

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_likely() {
        let logits = [0.0, f32::NEG_INFINITY, 1.0, 2.0];
        let mut counts = [0; 4];
        for step in 0..10_000 {
            counts[draw(&logits, 0.5, noise(7, 0, step)) as usize] += 1;
        }
        let sum = 1.0 + 2f64.exp() + 4f64.exp();
        for (i, expected) in [1.0 / sum, 0.0, 2f64.exp() / sum, 4f64.exp() / sum].into_iter().enumerate() {
            let share = f64::from(counts[i]) / 10_000.0;
            // Four standard deviations of a share of 10,000 draws are at most 0.02.
            assert!((share - expected).abs() < 0.02, "{i}: {share}, expected {expected}");
        }
    }
}
