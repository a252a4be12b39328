//! How likely tokens were, for those who ask.

/// How likely a token was, by the model's own logits: before penalties, temperature and filters.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbabilities {
    /// The token that was chosen.
    pub token: u32,
    /// Its log-probability.
    pub log_probability: f32,
    /// The likeliest tokens and their log-probabilities, the likeliest first.
    pub alternatives: Vec<(u32, f32)>,
}

impl LogProbabilities {
    /// Of `token` and of the `count` likeliest.
    pub(super) fn new(logits: &[f32], token: u32, count: usize) -> LogProbabilities {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|z| f64::from(z - max).exp()).sum();
        let log_sum = f64::from(max) + sum.ln();
        let log_probability = |token: u32| {
            logits.get(token as usize).map_or(f32::NEG_INFINITY, |z| (f64::from(*z) - log_sum) as f32)
        };
        let mut likeliest: Vec<u32> = (0..logits.len() as u32).collect();
        let order = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        if count < likeliest.len() {
            likeliest.select_nth_unstable_by(count, order);
            likeliest.truncate(count);
        }
        likeliest.sort_unstable_by(order);
        LogProbabilities {
            token,
            log_probability: log_probability(token),
            alternatives: likeliest.into_iter().map(|token| (token, log_probability(token))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_come_in_order() {
        let logits = [1.0, 3.0, 2.0, 3.0, -8.0];
        let all = LogProbabilities::new(&logits, 2, 5);
        let tokens: Vec<u32> = all.alternatives.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens, [1, 3, 2, 0, 4]);
        let sum: f64 = all.alternatives.iter().map(|(_, p)| f64::from(*p).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert_eq!(all.log_probability, all.alternatives[2].1);
        let two = LogProbabilities::new(&logits, 2, 2);
        assert_eq!(two.alternatives, all.alternatives[..2]);
        assert!(LogProbabilities::new(&logits, 2, 0).alternatives.is_empty());
    }
}
