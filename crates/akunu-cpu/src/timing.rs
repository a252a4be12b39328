//! Timing the steps of a run, when somebody asks for it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use akunu_program::program::{Slice, WeightId};
use akunu_program::{Cost, Tally, Timing};

use crate::exec::Machine;
use crate::state::State;
use crate::step::{IntegerForm, Integers, Step};

/// What each step took, and after the last of them choosing the tokens. Only worker 0 writes, so that nobody ever waits for the lock.
pub(crate) struct Timings(Mutex<Vec<Tally>>);

impl Timings {
    pub(crate) fn new(steps: usize) -> Timings {
        Timings(Mutex::new(vec![Tally::default(); steps + 1]))
    }

    fn add(&self, index: usize, time: Duration, cost: Cost) {
        let mut tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tally) = tallies.get_mut(index) {
            tally.add(time, cost);
        }
    }

    /// The same with what the steps are.
    pub(crate) fn timings(&self, steps: &[Step]) -> Vec<Timing> {
        let tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = steps.iter().map(|step| (step.kind(), step.weights())).chain([("select", Vec::new())]);
        kinds.zip(tallies.iter()).map(|((kind, weights), &tally)| Timing { kind, weights, tally }).collect()
    }
}

/// A worker's clock, which stands still unless steps are timed.
pub(crate) struct Clock<'a>(Option<(&'a Timings, Instant)>);

impl<'a> Clock<'a> {
    pub(crate) fn new(timings: Option<&'a Timings>) -> Clock<'a> {
        Clock(timings.map(|timings| (timings, Instant::now())))
    }

    /// Ends a step.
    #[inline]
    pub(crate) fn lap(&mut self, index: usize, cost: impl FnOnce() -> Cost) {
        if let Some((timings, last)) = &mut self.0 {
            timings.add(index, last.elapsed(), cost());
            *last = Instant::now();
        }
    }
}

impl Step {
    fn kind(&self) -> &'static str {
        match self {
            Step::Unfold { .. } => "unfold",
            Step::Store(_) => "store",
            Step::Weights(_) => "weights",
            Step::Embed { .. } => "embed",
            Step::Norm { .. } => "norm",
            Step::Add { .. } => "add",
            Step::Gate { .. } => "gate",
            Step::Activate { .. } => "activate",
            Step::Cap { .. } => "cap",
            Step::Integers(Integers { form: IntegerForm::Groups { .. }, .. }) => "quantize",
            Step::Integers(Integers { form: IntegerForm::Laid { .. }, .. }) => "lay",
            Step::Split { .. } => "split",
            Step::Rotate(_) => "rotate",
            Step::Merge { .. } => "merge",
            Step::Route { .. } => "route",
            Step::Gather { .. } => "gather",
            Step::Linear(_) => "linear",
            Step::Attend { .. } => "attend",
            Step::ExpertsUp(_) => "experts, up",
            Step::ExpertsDown(_) => "experts, down",
        }
    }

    fn weights(&self) -> Vec<WeightId> {
        let mut weights: Vec<WeightId> = match self {
            Step::Embed { table: slice, .. } | Step::Norm { weight: slice, .. } => vec![slice.weight],
            Step::Linear(linear) => linear.parts.iter().map(|part| part.weight.weight).collect(),
            Step::ExpertsUp(step) => {
                step.experts.iter().take(1).flat_map(|e| [e.gate.weight, e.up.weight]).collect()
            }
            Step::ExpertsDown(step) => step.downs.iter().take(1).map(|down| down.weight).collect(),
            _ => Vec::new(),
        };
        weights.dedup();
        weights
    }
}

impl Machine {
    /// What a step has to do in this run.
    pub(crate) fn cost(&self, step: &Step, state: &State) -> Cost {
        match step {
            Step::Embed { table, .. } => {
                let row = self.weights.rows(*table).map_or(0, |rows| rows.row_bytes());
                Cost { bytes: row * state.rows.len(), operations: 0 }
            }
            Step::Linear(linear) => sum(linear.parts.iter().map(|part| {
                let domain = self.lowered.buffers[part.out.0].domain;
                self.product(part.weight, self.count(state, domain))
            })),
            Step::Attend { attention, .. } => {
                let heads = attention.kv_heads * attention.sharing;
                let bytes = self.kv.position_bytes(attention.cache);
                sum(state.blocks.iter().map(|block| {
                    let rows = &state.rows[block.first..block.first + block.rows];
                    let ranges = || rows.iter().map(|row| attention.range(*row));
                    let seen: usize = ranges().map(|(from, to)| to - from).sum();
                    // Rows that attend together read what any of them sees once.
                    let from = ranges().map(|(from, _)| from).min().unwrap_or(0);
                    let to = ranges().map(|(_, to)| to).max().unwrap_or(0);
                    let Cost { operations, .. } = Cost::attention(seen, heads, attention.head_dim, 0);
                    Cost { bytes: (to - from) * bytes, operations }
                }))
            }
            Step::Weights(step) => {
                let rows = state.rows.len() * step.positions;
                let dims: usize = step.heads.iter().map(|head| head.head_dim).sum();
                Cost { bytes: 0, operations: 2 * rows * dims }
            }
            Step::ExpertsUp(step) => sum(step
                .experts
                .iter()
                .take(1)
                .flat_map(|e| [e.gate, e.up])
                .map(|slice| self.experts(slice, state.rows.len() * step.chosen, step.experts.len()))),
            Step::ExpertsDown(step) => sum(step
                .downs
                .iter()
                .take(1)
                .map(|&slice| self.experts(slice, state.rows.len() * step.chosen, step.downs.len()))),
            _ => Cost::default(),
        }
    }

    fn product(&self, slice: Slice, rows: usize) -> Cost {
        self.weights.matrix(slice).map_or(Cost::default(), |matrix| {
            let bytes = matrix.bytes() * slice.rows / matrix.rows.max(1);
            Cost::product(rows, slice.rows * matrix.cols, bytes)
        })
    }

    /// `pairs` of a row and an expert: each expert's weights are read at most once.
    fn experts(&self, one: Slice, pairs: usize, experts: usize) -> Cost {
        let Cost { bytes, operations } = self.product(one, 1);
        Cost { bytes: bytes * pairs.min(experts), operations: operations * pairs }
    }
}

fn sum(costs: impl Iterator<Item = Cost>) -> Cost {
    costs.fold(Cost::default(), Cost::plus)
}
