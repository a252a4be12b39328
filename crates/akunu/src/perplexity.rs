//! Perplexity, as llama.cpp defines it: the text is cut into windows as long as the context; each window is fed on its own,
//! beginning with the model's beginning token, and its second half is scored.

use akunu_program::Phase;

use crate::model::Model;
use crate::{Error, Result};

/// How well a model predicts a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Perplexity {
    /// Tokens scored.
    pub tokens: usize,
    /// Sum of the negative log-probabilities, and of their squares.
    sum: f64,
    squares: f64,
}

impl Perplexity {
    /// `exp` of the mean negative log-probability.
    pub fn value(&self) -> f64 {
        self.mean().exp()
    }

    /// The standard error of [`value`](Self::value).
    pub fn error(&self) -> f64 {
        if self.tokens < 2 {
            return 0.0;
        }
        let variance = self.squares / self.tokens as f64 - self.mean().powi(2);
        (variance.max(0.0) / (self.tokens - 1) as f64).sqrt() * self.value()
    }

    fn mean(&self) -> f64 {
        self.sum / self.tokens.max(1) as f64
    }

    fn add(&mut self, logits: &[f32], token: u32) {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = logits.iter().map(|z| f64::from(z - max).exp()).sum();
        let nll = total.ln() - f64::from(logits[token as usize] - max);
        self.tokens += 1;
        self.sum += nll;
        self.squares += nll * nll;
    }
}

/// Scores `tokens` in windows as long as the model's context, at most `most_windows` of them. `progress` hears of every
/// window that is done: its number, of how many, and the figures so far; it breaks off by returning false.
pub fn perplexity(
    model: &Model,
    tokens: &[u32],
    most_windows: Option<usize>,
    mut progress: impl FnMut(usize, usize, &Perplexity) -> bool,
) -> Result<Perplexity> {
    let window = model.context();
    if tokens.len() < 2 * window {
        return Err(Error::Usage {
            problem: format!("the text has {} tokens, too few for windows of {window}", tokens.len()),
            hint: format!("give it at least {}, or use a smaller context", 2 * window),
        });
    }
    let tokenizer = model.tokenizer()?;
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let windows = (tokens.len() / window).min(most_windows.unwrap_or(usize::MAX));
    let mut sequence = model.sequence()?;
    let mut result = Perplexity::default();
    let first = window / 2;
    for (number, scored) in tokens.chunks_exact(window).take(windows).enumerate() {
        let mut fed = scored.to_vec();
        if let Some(bos) = bos {
            fed[0] = bos;
        }
        sequence.reset();
        sequence.feed(&fed[..first])?;
        // The last token has no successor to score.
        let positions: Vec<usize> = (first..window - 1).collect();
        for rows in positions.chunks(model.outputs()) {
            let logits = sequence.logits(&fed[rows[0]..=rows[rows.len() - 1]], Phase::Prompt)?;
            for (row, &position) in logits.chunks_exact(model.vocabulary()).zip(rows) {
                result.add(row, scored[position + 1]);
            }
        }
        if !progress(number + 1, windows, &result) {
            return Err(Error::Stopped);
        }
    }
    Ok(result)
}
