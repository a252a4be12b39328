//! Guessing the next tokens from the sequence's own history: where the last few tokens stood before, what followed them
//! then may follow now. Guesses are verified together in one run, so that text that repeats itself comes faster; what is
//! chosen never depends on them.

use std::collections::HashMap;
use std::time::Duration;

/// Lengths of the endings that are looked up, longest first.
const ENDINGS: [usize; 3] = [5, 3, 2];
/// Guesses in the first round.
const FIRST_GUESSES: usize = 4;
/// Tokens without guesses after a round that did not pay; doubled each time in a row.
const FIRST_PAUSE: usize = 16;
const LONGEST_PAUSE: usize = 1024;
/// How much of an average the newest measurement makes.
const NEWEST: f64 = 0.3;

/// When tokens are guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculate {
    /// Never.
    #[default]
    Off,
    /// As long as it saves time.
    Auto,
    /// Whenever there is a guess, for measurements.
    Always,
}

/// Guesses tokens and watches whether that pays.
#[derive(Debug)]
pub(crate) struct Speculator {
    mode: Speculate,
    history: Vec<u32>,
    /// The position after the newest occurrence of each ending, by its hash.
    after: HashMap<u64, u32>,
    /// `[ending]`: the position after the newest *earlier* occurrence of what the history ends with.
    found: [Option<u32>; ENDINGS.len()],
    /// Guesses the next round may have.
    guesses: usize,
    /// Seconds per token with guesses and without, averaged.
    with: Option<f64>,
    without: Option<f64>,
    /// Tokens to go without guesses.
    pause: usize,
    next_pause: usize,
}

impl Speculator {
    pub(crate) fn new(mode: Speculate, prompt: &[u32]) -> Speculator {
        let mut speculator = Speculator {
            mode,
            history: Vec::new(),
            after: HashMap::new(),
            found: [None; ENDINGS.len()],
            guesses: FIRST_GUESSES,
            with: None,
            without: None,
            pause: 0,
            next_pause: FIRST_PAUSE,
        };
        prompt.iter().for_each(|&token| speculator.push(token));
        speculator
    }

    /// Takes note of the next token of the sequence.
    pub(crate) fn push(&mut self, token: u32) {
        if self.mode == Speculate::Off {
            return;
        }
        self.history.push(token);
        for (found, length) in self.found.iter_mut().zip(ENDINGS) {
            *found = self.history.len().checked_sub(length).and_then(|from| {
                let ending = &self.history[from..];
                let earlier = self.after.insert(hash(ending), self.history.len() as u32)?;
                // Another ending may have the same hash.
                let same = self.history[..earlier as usize].ends_with(ending);
                same.then_some(earlier)
            });
        }
    }

    /// At most `most` guesses of what comes next; none where there is no reason to guess.
    pub(crate) fn guess(&self, most: usize, guesses: &mut Vec<u32>) {
        guesses.clear();
        let wanted = match self.mode {
            Speculate::Off => return,
            // Nothing to compare with yet, or it did not pay lately.
            Speculate::Auto if self.without.is_none() || self.pause > 0 => return,
            Speculate::Auto | Speculate::Always => self.guesses.min(most),
        };
        let Some(from) = self.found.iter().flatten().next() else { return };
        for at in (*from as usize..).take(wanted) {
            // A repetition that overlaps the present goes on repeating.
            let token = self.history.get(at).copied().unwrap_or_else(|| guesses[at - self.history.len()]);
            guesses.push(token);
        }
    }

    /// A round with guesses took `time` for `tokens` tokens; `right` of `guessed` were right.
    pub(crate) fn verified(&mut self, guessed: usize, right: usize, tokens: usize, time: Duration) {
        self.guesses = if right == guessed { (2 * guessed).max(FIRST_GUESSES) } else { (right + 1).max(2) };
        average(&mut self.with, time.as_secs_f64() / tokens.max(1) as f64);
        if let (Some(with), Some(without)) = (self.with, self.without) {
            if with > without {
                self.pause = self.next_pause;
                self.next_pause = (2 * self.next_pause).min(LONGEST_PAUSE);
                self.with = None;
                self.guesses = FIRST_GUESSES;
            } else {
                self.next_pause = FIRST_PAUSE;
            }
        }
    }

    /// A run without guesses took `time` for `tokens` tokens.
    pub(crate) fn chained(&mut self, tokens: usize, time: Duration) {
        average(&mut self.without, time.as_secs_f64() / tokens.max(1) as f64);
        self.pause = self.pause.saturating_sub(tokens);
    }

    /// Tokens until guessing may be worth it again, as far as is known.
    pub(crate) fn chain_limit(&self) -> usize {
        match self.mode {
            Speculate::Off => usize::MAX,
            // A short run, so that a repetition is noticed soon.
            Speculate::Auto | Speculate::Always => self.pause.max(2),
        }
    }
}

fn average(average: &mut Option<f64>, newest: f64) {
    *average = Some(average.map_or(newest, |old| old + NEWEST * (newest - old)));
}

/// FNV-1a over whole tokens.
fn hash(tokens: &[u32]) -> u64 {
    let step = |h: u64, token: &u32| (h ^ u64::from(*token)).wrapping_mul(0x100_0000_01b3);
    tokens.iter().fold(0xcbf2_9ce4_8422_2325 ^ tokens.len() as u64, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(speculator: &Speculator, most: usize) -> Vec<u32> {
        let mut guesses = Vec::new();
        speculator.guess(most, &mut guesses);
        guesses
    }

    #[test]
    fn what_followed_before_is_guessed_again() {
        let speculator = Speculator::new(Speculate::Always, &[1, 2, 3, 4, 5, 6, 7, 8, 2, 3]);
        assert_eq!(guess(&speculator, 16), [4, 5, 6, 7]);
        assert_eq!(guess(&speculator, 2), [4, 5]);
    }

    #[test]
    fn the_longest_ending_counts_and_of_those_the_newest() {
        let history = [9, 1, 2, 50, 8, 1, 2, 60, 9, 1, 2, 70, 7, 1, 2, 80, 9, 1, 2];
        assert_eq!(guess(&Speculator::new(Speculate::Always, &history), 1), [70]);
    }

    #[test]
    fn a_loop_is_followed_round_and_round() {
        let speculator = Speculator::new(Speculate::Always, &[1, 2, 3, 1, 2, 3]);
        assert_eq!(guess(&speculator, 16), [1, 2, 3, 1]);
        let speculator = Speculator::new(Speculate::Always, &[7, 7, 7]);
        assert_eq!(guess(&speculator, 16), [7, 7, 7, 7]);
    }

    #[test]
    fn nothing_is_guessed_without_a_precedent() {
        assert!(guess(&Speculator::new(Speculate::Always, &[1, 2, 3, 4]), 16).is_empty());
        assert!(guess(&Speculator::new(Speculate::Always, &[]), 16).is_empty());
        assert!(guess(&Speculator::new(Speculate::Off, &[1, 2, 1, 2, 1, 2]), 16).is_empty());
    }

    #[test]
    fn right_guesses_lead_to_more_and_wrong_ones_to_fewer() {
        let mut speculator = Speculator::new(Speculate::Always, &[7; 20]);
        speculator.verified(4, 4, 5, Duration::from_millis(5));
        assert_eq!(guess(&speculator, 16).len(), 8);
        speculator.verified(8, 2, 3, Duration::from_millis(5));
        assert_eq!(guess(&speculator, 16).len(), 3);
    }

    #[test]
    fn guessing_pauses_when_it_costs_more_than_it_saves() {
        let mut speculator = Speculator::new(Speculate::Auto, &[7; 20]);
        assert!(guess(&speculator, 16).is_empty(), "nothing is known yet");
        speculator.chained(1, Duration::from_millis(10));
        assert_eq!(guess(&speculator, 16).len(), 4);
        // 5 tokens in 20 ms: better than 10 ms each.
        speculator.verified(4, 4, 5, Duration::from_millis(20));
        assert_eq!(guess(&speculator, 16).len(), 8);
        speculator.verified(8, 0, 1, Duration::from_millis(40));
        assert!(guess(&speculator, 16).is_empty());
        speculator.chained(FIRST_PAUSE, Duration::from_millis(10 * FIRST_PAUSE as u64));
        assert_eq!(guess(&speculator, 16).len(), 4);
        speculator.verified(4, 0, 1, Duration::from_millis(40));
        speculator.chained(FIRST_PAUSE, Duration::from_millis(10 * FIRST_PAUSE as u64));
        assert!(guess(&speculator, 16).is_empty(), "the second pause in a row is longer");
    }
}
