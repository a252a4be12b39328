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
/// The share of a pause that chunks aim at: what a step takes varies, and few should take longer than the pause.
const AIM: f64 = 0.8;
/// By how many tokens a chunk that left time over grows at least.
const GROWTH: f64 = 4.0;
/// How many pauses texts may wait at a time, where more wait to begin than flow.
const MOST_PAUSES: f64 = 4.0;

/// What steps have cost so far.
#[derive(Debug)]
pub(super) struct Pace {
    chunk: Chunk,
    /// Seconds of a step in which texts flow and no prompt is read.
    quiet: Option<f64>,
    /// Tokens of prompts that are read within a pause. Not by a cost of each: a step that reads any has a cost of its own, so
    /// that twice as many take less than twice as long.
    tokens: Option<f64>,
}

impl Pace {
    pub(super) fn new(chunk: Chunk) -> Pace {
        Pace { chunk, quiet: None, tokens: None }
    }

    /// Seconds that reading prompts should take in a step: most of the pause that is allowed, or as long as the step takes without
    /// them; where that is longer, smaller chunks would cost much and even out little.
    fn pause(&self) -> Option<f64> {
        match self.chunk {
            Chunk::Tokens(_) => None,
            Chunk::Time(pause) => Some((AIM * pause.as_secs_f64()).max(self.quiet.unwrap_or(0.0))),
        }
    }

    /// Most tokens of prompts in the next step, if so many prompts wait and so many texts flow. By time, more where many wait
    /// for few: what those lose once, the others gain.
    pub(super) fn chunk(&self, waiting: usize, flowing: usize) -> usize {
        let pauses = (waiting as f64 / flowing.max(1) as f64).clamp(1.0, MOST_PAUSES);
        match (self.chunk, self.tokens) {
            (Chunk::Tokens(tokens), _) => tokens,
            (Chunk::Time(_), None) => FIRST,
            (Chunk::Time(_), Some(tokens)) => whole_tiles(tokens * pauses),
        }
    }

    /// A step took so long with so many rows of texts and of prompts.
    pub(super) fn observe(&mut self, decoded: usize, read: usize, took: Duration) {
        let took = took.as_secs_f64();
        if read == 0 {
            self.quiet = Some(self.quiet.map_or(took, |old| old + WEIGHT * (took - old)));
            return;
        }
        // A short step is mostly the reading of weights, which says nothing about one more token.
        let Some(pause) = self.pause().filter(|_| read >= TILE) else { return };
        // What texts cost is known, or unknown and small beside a prompt.
        let others = if decoded > 0 { self.quiet.unwrap_or(0.0) } else { 0.0 };
        let took = (took - others).max(took * 0.1);
        let fit = read as f64 * pause / took;
        let Some(tokens) = &mut self.tokens else {
            self.tokens = Some(fit);
            return;
        };
        // A tile more costs less than its share, since some of the cost is there already: half of it is a guess.
        let room_for_more = took * (1.0 + TILE as f64 / (2 * read) as f64) <= pause;
        if fit < *tokens && took > pause {
            *tokens += WEIGHT_OF_LONGER * (fit - *tokens);
        } else if room_for_more && read >= whole_tiles(*tokens) {
            *tokens += GROWTH.max(WEIGHT * (fit - *tokens));
        } else if fit > *tokens {
            *tokens += WEIGHT * (fit - *tokens);
        }
    }
}

fn whole_tiles(tokens: f64) -> usize {
    (tokens as usize / TILE * TILE).max(TILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// One of which chunks aim at 50 ms, a little more so that rounding takes nothing from it.
    fn pause() -> Duration {
        Duration::from_secs_f64(0.050_000_001 / AIM)
    }

    #[test]
    fn a_chunk_takes_as_long_as_the_pause_that_is_allowed() {
        let mut pace = Pace::new(Chunk::Time(pause()));
        assert_eq!(pace.chunk(1, 1), FIRST);
        pace.observe(0, 500, ms(500));
        assert_eq!(pace.chunk(1, 1), 48);
        // Four texts flow at 10 ms a step, then beside chunks of a prompt that gets dearer.
        for _ in 0..20 {
            pace.observe(4, 0, ms(10));
        }
        for _ in 0..40 {
            pace.observe(4, 48, ms(10 + 48 * 2));
        }
        assert_eq!(pace.chunk(1, 4), 16);
    }

    #[test]
    fn a_cost_that_every_chunk_has_does_not_keep_chunks_small() {
        let mut pace = Pace::new(Chunk::Time(pause()));
        // 20 ms for reading anything, and half a millisecond for each token: 60 of them fit.
        let took = |read: usize| ms(20) + Duration::from_micros(500 * read as u64);
        pace.observe(0, 16, took(16));
        assert_eq!(pace.chunk(1, 1), 16);
        let mut largest = 0;
        for _ in 0..40 {
            let read = pace.chunk(1, 1);
            pace.observe(0, read, took(read));
            largest = largest.max(read);
        }
        assert_eq!((largest, pace.chunk(1, 1)), (48, 48));
    }

    #[test]
    fn a_chunk_that_took_too_long_is_not_repeated() {
        let mut pace = Pace::new(Chunk::Time(pause()));
        pace.observe(0, 500, ms(250));
        assert_eq!(pace.chunk(1, 1), 96);
        pace.observe(1, 96, ms(96));
        assert_eq!(pace.chunk(1, 1), 48);
    }

    #[test]
    fn few_who_write_wait_longer_for_many_who_wait() {
        let mut pace = Pace::new(Chunk::Time(pause()));
        pace.observe(0, 500, ms(250));
        assert_eq!(pace.chunk(1, 7), 96);
        assert_eq!(pace.chunk(6, 2), 288);
        assert_eq!(pace.chunk(7, 1), 400);
    }

    #[test]
    fn a_slow_model_reads_as_long_as_it_writes() {
        let mut pace = Pace::new(Chunk::Time(pause()));
        pace.observe(1, 0, ms(400));
        pace.observe(0, 100, ms(500));
        assert_eq!(pace.chunk(1, 1), 80);
    }

    #[test]
    fn something_is_always_read() {
        let mut pace = Pace::new(Chunk::Time(Duration::ZERO));
        pace.observe(0, 100, ms(5000));
        assert_eq!(pace.chunk(1, 1), TILE);
        assert_eq!(Pace::new(Chunk::Tokens(7)).chunk(9, 1), 7);
    }
}
