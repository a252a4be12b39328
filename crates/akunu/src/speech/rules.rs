//! Which tokens may come next, and how likely tokens are.

use super::tokens::Tokens;

/// The latest time a transcript may begin with, in steps of 20 ms: a second.
const LATEST_BEGINNING: u32 = 50;

/// What a transcript must look like.
pub(super) struct Rules<'a> {
    pub tokens: &'a Tokens,
    /// Whether it has times; otherwise it has none.
    pub times: bool,
}

impl Rules<'_> {
    /// Forbids tokens that may not follow `said`, by a logit of negative infinity.
    pub fn apply(&self, logits: &mut [f32], said: &[u32]) {
        let tokens = self.tokens;
        if said.is_empty() {
            tokens.blank.iter().for_each(|&token| forbid(logits, token..token + 1));
            forbid(logits, tokens.end..tokens.end + 1);
        }
        tokens.suppressed.iter().for_each(|&token| forbid(logits, token..token + 1));
        if self.times {
            self.apply_times(logits, said);
        }
    }

    /// Times come in pairs, the end of a segment and the beginning of the next, and never go back.
    fn apply_times(&self, logits: &mut [f32], said: &[u32]) {
        let (first, end) = (self.tokens.first_time, self.tokens.end);
        let all = logits.len() as u32;
        forbid(logits, self.tokens.no_timestamps..self.tokens.no_timestamps + 1);
        let is_time = |back: usize| said.len() >= back && self.tokens.is_time(said[said.len() - back]);
        let after_time = is_time(1);
        let after_text_and_time = after_time && said.len() >= 2 && !is_time(2);
        if after_text_and_time {
            forbid(logits, 0..end);
        } else if after_time {
            forbid(logits, first..all);
        }
        if let Some(&last) = said.iter().rev().find(|&&token| self.tokens.is_time(token)) {
            // A segment may begin where the one before ends, but not end where it begins.
            forbid(logits, first..if after_text_and_time { last } else { last + 1 });
        }
        if said.is_empty() {
            forbid(logits, 0..first);
            forbid(logits, first + LATEST_BEGINNING + 1..all);
        }
        // A time whose exact value is unsure is a time nevertheless.
        let (text, times) = logits.split_at(first as usize);
        let likeliest = text.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if log_sum_exp(times) > likeliest {
            forbid(logits, 0..first);
        }
    }
}

fn forbid(logits: &mut [f32], tokens: std::ops::Range<u32>) {
    let end = (tokens.end as usize).min(logits.len());
    if let Some(logits) = logits.get_mut(tokens.start as usize..end) {
        logits.fill(f32::NEG_INFINITY);
    }
}

/// The logarithm of the sum of exponentials.
pub(super) fn log_sum_exp(values: &[f32]) -> f32 {
    let highest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if highest == f32::NEG_INFINITY {
        return highest;
    }
    // Sums of lanes, so that compilers make vectors of it; short ones, so that little is lost.
    let mut sum = 0.0f64;
    for block in values.chunks(1024) {
        let mut lanes = [0.0f32; 8];
        let mut pieces = block.chunks_exact(8);
        for piece in &mut pieces {
            for (lane, value) in lanes.iter_mut().zip(piece) {
                *lane += exp(value - highest);
            }
        }
        let rest: f32 = pieces.remainder().iter().map(|value| exp(value - highest)).sum();
        sum += f64::from(lanes.iter().sum::<f32>() + rest);
    }
    highest + sum.ln() as f32
}

/// The exponential of a number that is not above zero, to 2e-7 of it. Far below zero it stays at the smallest numbers there are.
pub(super) fn exp(x: f32) -> f32 {
    /// Adding it leaves a whole number in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    // The logarithm of 2 in two parts, of which the first has few bits: its products are exact.
    let part = x - whole * 0.693_359_4 + whole * 2.121_944_4e-4;
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(0x3f80_0000));
    let series = 1.0 / 720.0;
    let series = series * part + 1.0 / 120.0;
    let series = series * part + 1.0 / 24.0;
    let series = series * part + 1.0 / 6.0;
    let series = series * part + 0.5;
    let series = series * part + 1.0;
    (series * part + 1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small vocabulary: 0 to 9 text, of which 3 is a blank and 4 no speech; special tokens; 100 times.
    fn tokens() -> Tokens {
        Tokens {
            end: 10,
            start: 11,
            translate: 14,
            transcribe: 15,
            previous: 16,
            no_speech: 17,
            no_timestamps: 18,
            first_time: 20,
            languages: 12..14,
            blank: vec![3],
            suppressed: vec![4, 11, 14, 15, 16, 17],
        }
    }

    /// What may follow, when text is likely.
    fn allowed(said: &[u32], times: bool) -> Vec<u32> {
        let mut logits = vec![0.0; 120];
        logits[..11].fill(20.0);
        Rules { tokens: &tokens(), times }.apply(&mut logits, said);
        (0..120).filter(|&token| logits[token as usize] > f32::NEG_INFINITY).collect()
    }

    #[test]
    fn a_transcript_begins_with_a_time_of_the_first_second() {
        assert_eq!(allowed(&[], true), (20..=70).collect::<Vec<u32>>());
    }

    #[test]
    fn a_transcript_without_times_begins_with_text() {
        assert_eq!(
            allowed(&[], false),
            [0, 1, 2, 5, 6, 7, 8, 9, 12, 13, 18, 19].into_iter().chain(20..120).collect::<Vec<u32>>()
        );
    }

    #[test]
    fn text_follows_the_beginning_of_a_segment() {
        let text = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 12, 13, 19];
        assert_eq!(allowed(&[25], true), text);
        assert_eq!(allowed(&[20, 1, 30, 30], true), text);
    }

    #[test]
    fn times_do_not_go_back_and_segments_are_not_empty() {
        let after_text = allowed(&[25, 1], true);
        assert!(!after_text.contains(&25) && after_text.contains(&26) && after_text.contains(&2));
        // After the end of a segment comes the beginning of the next, or the end of all.
        let after_end = allowed(&[25, 1, 30], true);
        assert_eq!(after_end, [10, 12, 13, 19].into_iter().chain(30..120).collect::<Vec<u32>>());
    }

    #[test]
    fn many_unsure_times_outweigh_one_word() {
        let mut logits = vec![0.0; 120];
        logits[1] = 4.0;
        let rules = Rules { tokens: &tokens(), times: true };
        let mut likely = logits.clone();
        rules.apply(&mut likely, &[25, 2]);
        assert_eq!(
            likely[1],
            f32::NEG_INFINITY,
            "94 times of weight 1 are likelier than a word of weight 55"
        );
        logits[1] = 5.0;
        rules.apply(&mut logits, &[25, 2]);
        assert_eq!(logits[1], 5.0);
    }

    #[test]
    fn exponentials_are_right_to_the_last_bits() {
        for i in 0..=8600 {
            let x = -(i as f32) * 0.01;
            let expected = f64::from(x).exp();
            assert!((f64::from(exp(x)) - expected).abs() <= 3e-7 * expected, "{x}: {} {expected}", exp(x));
        }
        assert!(exp(f32::NEG_INFINITY) < 1e-37);
        let values: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.37).sin() * 10.0).collect();
        let expected = values.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        assert!((f64::from(log_sum_exp(&values)) - expected).abs() < 1e-5);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY]), f32::NEG_INFINITY);
    }
}
