//! What is measured, and how long it takes.

use std::time::{Duration, Instant};

use akunu::{Result, Sequence};

/// Tokens chosen in one run while generating.
const CHAIN: usize = 32;

/// One test: a prompt or a generation, behind some tokens of context.
#[derive(Clone, Copy)]
pub struct Plan {
    pub prompt: usize,
    pub generate: usize,
    pub depth: usize,
    /// Sequences that are generated together, each so many tokens.
    pub sequences: usize,
}

impl Plan {
    /// As llama-bench calls it.
    pub fn name(self) -> String {
        let test =
            if self.prompt > 0 { format!("pp{}", self.prompt) } else { format!("tg{}", self.generate) };
        let test = if self.sequences > 1 { format!("{test} x{}", self.sequences) } else { test };
        if self.depth > 0 { format!("{test} @ d{}", self.depth) } else { test }
    }

    /// Tokens whose time is taken.
    pub fn tokens(self) -> usize {
        self.prompt + self.sequences * self.generate
    }

    /// Tokens the cache must hold of each sequence.
    pub fn context(self) -> usize {
        self.depth + self.prompt + self.generate
    }

    /// What llama-bench runs before it takes the time: the prompt, or one token. llama-batched-bench makes two runs, one of sixteen rows and
    /// one of the prompt, which is a token of each sequence where nothing comes before.
    pub fn warm_up(self) -> Plan {
        let runs = if self.sequences > 1 && self.depth == 0 { 2 } else { 1 };
        Plan { generate: self.generate.min(runs), depth: 0, ..self }
    }

    /// How long the test takes, its depth not counted. There are at least as many sequences as the plan has.
    pub fn time(self, sequences: &mut [Sequence]) -> Result<Duration> {
        let sequences = &mut sequences[..self.sequences];
        let vocabulary = sequences[0].model().vocabulary();
        let tokens = arbitrary_tokens(self.depth + self.prompt.max(1), vocabulary);
        let (before, prompt) = tokens.split_at(self.depth);
        for sequence in &mut *sequences {
            sequence.reset();
            sequence.feed(before)?;
        }
        let begin = Instant::now();
        if self.prompt > 0 {
            sequences[0].prefill(prompt)?;
        }
        match sequences {
            [sequence] => chain(sequence, prompt[0], self.generate)?,
            _ => {
                let mut tokens = arbitrary_tokens(self.sequences, vocabulary);
                for _ in 0..self.generate {
                    tokens = Sequence::step_together(sequences, &tokens)?;
                }
            }
        }
        Ok(begin.elapsed())
    }
}

/// Generates so many tokens.
fn chain(sequence: &mut Sequence, mut token: u32, mut left: usize) -> Result<()> {
    while left > 0 {
        let chosen = sequence.chain(token, left.min(CHAIN))?;
        token = chosen[chosen.len() - 1];
        let n = chosen.len();
        sequence.commit(n)?;
        left -= n;
    }
    Ok(())
}

/// Tokens without a pattern, the same each time: the constants are Knuth's.
fn arbitrary_tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocabulary as u64) as u32
    };
    (0..n).map(|_| next()).collect()
}
