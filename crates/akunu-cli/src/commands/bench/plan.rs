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
}

impl Plan {
    /// As llama-bench calls it.
    pub fn name(self) -> String {
        let test =
            if self.prompt > 0 { format!("pp{}", self.prompt) } else { format!("tg{}", self.generate) };
        if self.depth > 0 { format!("{test} @ d{}", self.depth) } else { test }
    }

    /// Tokens whose time is taken.
    pub fn tokens(self) -> usize {
        self.prompt + self.generate
    }

    /// Tokens the cache must hold.
    pub fn context(self) -> usize {
        self.depth + self.tokens()
    }

    /// What llama-bench runs before it takes the time: the prompt, or one token.
    pub fn warm_up(self) -> Plan {
        Plan { prompt: self.prompt, generate: self.generate.min(1), depth: 0 }
    }

    /// How long the test takes, its depth not counted.
    pub fn time(self, sequence: &mut Sequence) -> Result<Duration> {
        let tokens = arbitrary_tokens(self.depth + self.prompt.max(1), sequence.model().vocabulary());
        let (before, prompt) = tokens.split_at(self.depth);
        sequence.reset();
        sequence.feed(before)?;
        let begin = Instant::now();
        if self.prompt > 0 {
            sequence.prefill(prompt)?;
        }
        let (mut token, mut left) = (prompt[0], self.generate);
        while left > 0 {
            let chosen = sequence.chain(token, left.min(CHAIN))?;
            token = chosen[chosen.len() - 1];
            let n = chosen.len();
            sequence.commit(n)?;
            left -= n;
        }
        Ok(begin.elapsed())
    }
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
