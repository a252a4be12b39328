//! What the operations of a run have to do, when somebody times them.

use std::time::{Duration, Instant};

use super::ReferenceExecutable;
use crate::program::{Domain, Expert, FRAMES_PER_TOKEN, Op, Slice, WeightId};
use crate::slots::Row;
use crate::{Cost, Tally, Timing};

/// What each operation took, and after the last of them choosing the tokens.
pub(super) struct Timings(Vec<Tally>);

impl Timings {
    pub(super) fn new(ops: usize) -> Timings {
        Timings(vec![Tally::default(); ops + 1])
    }

    pub(super) fn add(&mut self, index: usize, time: Duration, cost: Cost) {
        if let Some(tally) = self.0.get_mut(index) {
            tally.add(time, cost);
        }
    }

    pub(super) fn timings(&self, ops: &[Op]) -> Vec<Timing> {
        let kinds = ops.iter().map(|op| (kind(op), weights(op))).chain([("select", Vec::new())]);
        kinds.zip(&self.0).map(|((kind, weights), &tally)| Timing { kind, weights, tally }).collect()
    }
}

impl ReferenceExecutable {
    /// Does something and, if steps are timed, counts it.
    pub(super) fn timed<T>(
        &mut self,
        index: usize,
        cost: impl FnOnce(&Self) -> Cost,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        if self.timings.is_none() {
            return work(self);
        }
        let begin = Instant::now();
        let done = work(self);
        let (time, cost) = (begin.elapsed(), cost(self));
        if let Some(timings) = &mut self.timings {
            timings.add(index, time, cost);
        }
        done
    }

    /// Weights are F32 here, whatever they are in the file.
    pub(super) fn cost(&self, op: &Op, rows: &[Row], outputs: &[u32]) -> Cost {
        match op {
            Op::Embed { out, .. } => Cost { bytes: rows.len() * self.width(*out) * 4, operations: 0 },
            Op::Linear { x, parts } => {
                let count = match self.program.value(*x).domain {
                    Domain::Tokens => rows.len(),
                    Domain::Outputs => outputs.len(),
                    Domain::Frames => FRAMES_PER_TOKEN * rows.len(),
                };
                sum(parts.iter().map(|part| self.product(part.weight, count)))
            }
            Op::Attend { q, mask, cache, .. } => {
                let group = &self.program.groups[cache.group.0 as usize];
                let heads = self.width(*q) / group.head_dim;
                sum(rows.iter().map(|row| {
                    let seen = (row.sees(*mask) as usize).min(group.window.unwrap_or(usize::MAX));
                    Cost::attention(seen, heads, group.head_dim, 2 * 4 * group.kv_heads * group.head_dim)
                }))
            }
            Op::Experts { routes, experts, .. } => {
                let pairs = rows.len() * self.width(*routes);
                let one = experts.iter().take(1).flat_map(|Expert { gate, up, down }| [gate, up, down]);
                let Cost { bytes, operations } = sum(one.map(|slice| self.product(*slice, 1)));
                Cost { bytes: bytes * pairs.min(experts.len()), operations: operations * pairs }
            }
            _ => Cost::default(),
        }
    }

    fn product(&self, slice: Slice, rows: usize) -> Cost {
        let elements = self.weights.rows(slice).len();
        Cost::product(rows, elements, 4 * elements)
    }
}

fn kind(op: &Op) -> &'static str {
    match op {
        Op::Input { .. } => "input",
        Op::Unfold { .. } => "unfold",
        Op::Store { .. } => "store",
        Op::Weights { .. } => "weights",
        Op::Embed { .. } => "embed",
        Op::Norm { .. } => "norm",
        Op::Linear { .. } => "linear",
        Op::RopeKv { .. } => "rotate",
        Op::Attend { .. } => "attend",
        Op::Gate { .. } => "gate",
        Op::Activate { .. } => "activate",
        Op::Add { .. } => "add",
        Op::Route { .. } => "route",
        Op::Experts { .. } => "experts",
        Op::Gather { .. } => "gather",
        Op::Cap { .. } => "cap",
    }
}

fn weights(op: &Op) -> Vec<WeightId> {
    let mut weights: Vec<WeightId> = match op {
        Op::Embed { table: slice, .. } | Op::Norm { weight: slice, .. } => vec![slice.weight],
        Op::Linear { parts, .. } => parts.iter().map(|part| part.weight.weight).collect(),
        Op::Experts { experts, .. } => {
            experts.iter().take(1).flat_map(|e| [e.gate.weight, e.up.weight, e.down.weight]).collect()
        }
        _ => Vec::new(),
    };
    weights.dedup();
    weights
}

fn sum(costs: impl Iterator<Item = Cost>) -> Cost {
    costs.fold(Cost::default(), Cost::plus)
}
