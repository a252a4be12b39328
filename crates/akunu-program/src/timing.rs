//! What the steps of an executable took: for profiles.

use std::time::Duration;

use crate::program::WeightId;

/// One step of an executable, over all runs since its timing began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// What the step does, in the backend's words: `linear`, `attend`, ...
    pub kind: &'static str,
    /// The weights it reads, as the program numbers them.
    pub weights: Vec<WeightId>,
    /// What it took.
    pub tally: Tally,
}

/// Time and work, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Time from the end of the step before to its own end, waiting for other workers included.
    pub time: Duration,
    /// How often it ran.
    pub runs: u64,
    /// Bytes of weights and of the cache that it had to read.
    pub bytes: u64,
    /// Additions and multiplications of its products; 0 for steps whose arithmetic does not count.
    pub operations: u64,
}

impl Tally {
    /// One more run.
    pub fn add(&mut self, time: Duration, cost: Cost) {
        self.time += time;
        self.runs += 1;
        self.bytes += cost.bytes as u64;
        self.operations += cost.operations as u64;
    }
}

/// What one run of a step had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes read.
    pub bytes: usize,
    /// Additions and multiplications.
    pub operations: usize,
}

impl Cost {
    /// Both at once.
    pub fn plus(self, other: Cost) -> Cost {
        Cost { bytes: self.bytes + other.bytes, operations: self.operations + other.operations }
    }

    /// A product of `rows` rows with a matrix of so many elements and bytes, each read once.
    pub fn product(rows: usize, elements: usize, bytes: usize) -> Cost {
        if rows == 0 { Cost::default() } else { Cost { bytes, operations: 2 * rows * elements } }
    }

    /// Attention of one row with `heads` query heads of `head_dim` to `positions`, whose keys and values take so many bytes each.
    pub fn attention(positions: usize, heads: usize, head_dim: usize, bytes: usize) -> Cost {
        Cost { bytes: positions * bytes, operations: 4 * positions * heads * head_dim }
    }
}
