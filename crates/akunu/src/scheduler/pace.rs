//! How much of the prompts a step may read while texts flow.

use std::time::Duration;

use super::Chunk;

/// A chunk before anything was measured.
const FIRST: usize = 64;
/// Chunks by time are multiples of this: kernels work on tiles of so many rows.
const TILE: usize = 16;
/// The weight of a new measurement. Costs drift slowly, with the lengths of texts.
const WEIGHT: f64 = 0.25;
/// The weight of one that took longer than was thought: a pause that is too long is felt, one that is too short is not.
const WEIGHT_OF_LONGER: f64 = 0.75;

/// What steps have cost so far.
#[derive(Debug)]
pub(super) struct Pace {
    chunk: Chunk,
    /// Seconds of a step in which texts flow and no prompt is read.
    quiet: Option<f64>,
    /// Seconds that one more token of a prompt adds to a step.
    per_token: Option<f64>,
}

impl Pace {
    pub(super) fn new(chunk: Chunk) -> Pace {
        Pace { chunk, quiet: None, per_token: None }
    }

    /// Most tokens of prompts in the next step. By time, reading them takes no longer than the pause that is allowed, or
    /// than the step itself takes without them: where that is longer, smaller chunks would cost much and even out little.
    pub(super) fn chunk(&self) -> usize {
        let pause = match self.chunk {
            Chunk::Tokens(tokens) => return tokens,
            Chunk::Time(pause) => pause.as_secs_f64().max(self.quiet.unwrap_or(0.0)),
        };
        match self.per_token {
            Some(seconds) => ((pause / seconds) as usize / TILE * TILE).max(TILE),
            None => FIRST,
        }
    }

    /// A step took so long with so many rows of texts and of prompts.
    pub(super) fn observe(&mut self, decoded: usize, read: usize, took: Duration) {
        let took = took.as_secs_f64();
        if read == 0 {
            mix(&mut self.quiet, took, WEIGHT);
            return;
        }
        // What texts cost is known, or unknown and small beside a prompt.
        let others = if decoded > 0 { self.quiet.unwrap_or(0.0) } else { 0.0 };
        // A short step is mostly the reading of weights, which says nothing about one more token.
        if read >= TILE {
            let new = (took - others).max(took * 0.1) / read as f64;
            let longer = self.per_token.is_some_and(|old| new > old);
            mix(&mut self.per_token, new, if longer { WEIGHT_OF_LONGER } else { WEIGHT });
        }
    }
}

fn mix(mean: &mut Option<f64>, new: f64, weight: f64) {
    *mean = Some(mean.map_or(new, |old| old + weight * (new - old)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_chunk_takes_as_long_as_the_pause_that_is_allowed() {
        let mut pace = Pace::new(Chunk::Time(ms(50)));
        assert_eq!(pace.chunk(), FIRST);
        pace.observe(0, 500, ms(500));
        assert_eq!(pace.chunk(), 48);
        // Four texts flow at 10 ms a step, then beside chunks of a prompt that gets dearer.
        for _ in 0..20 {
            pace.observe(4, 0, ms(10));
        }
        for _ in 0..40 {
            pace.observe(4, 48, ms(10 + 48 * 2));
        }
        assert_eq!(pace.chunk(), 16);
    }

    #[test]
    fn a_chunk_that_took_too_long_is_not_repeated() {
        let mut pace = Pace::new(Chunk::Time(ms(50)));
        pace.observe(0, 500, ms(250));
        assert_eq!(pace.chunk(), 96);
        pace.observe(1, 96, ms(96));
        assert_eq!(pace.chunk(), 48);
    }

    #[test]
    fn a_slow_model_reads_as_long_as_it_writes() {
        let mut pace = Pace::new(Chunk::Time(ms(50)));
        pace.observe(1, 0, ms(400));
        pace.observe(0, 100, ms(500));
        assert_eq!(pace.chunk(), 80);
    }

    #[test]
    fn something_is_always_read() {
        let mut pace = Pace::new(Chunk::Time(Duration::ZERO));
        pace.observe(0, 100, ms(5000));
        assert_eq!(pace.chunk(), TILE);
        assert_eq!(Pace::new(Chunk::Tokens(7)).chunk(), 7);
    }
}
