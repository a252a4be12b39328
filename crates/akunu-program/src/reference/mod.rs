//! The reference backend: plain f32, one thread, no SIMD, one function per operation. It is the definition of right for
//! every other backend, and reads like the formulas.
//!
//! Weights are turned into `f32` when they are loaded; sums run in `f64`.

mod kv;
pub(crate) mod ops;
mod timing;

use std::any::Any;
use std::sync::Arc;

use crate::backend::{
    Backend, Batch, Executable, KvStore, Limits, Outputs, StopFlag, TensorSource, Weights, Work,
};
use crate::program::{Domain, FRAMES_PER_TOKEN, KvGroup, Mask, Op, Program, Slice, ValueId, WeightUse};
use crate::select::{Scratch, select};
use crate::slots::{Row, Slots};
use crate::{Cost, Error, KvType, Result, Timing};

use kv::ReferenceKv;
use timing::Timings;

/// The plain f32 backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

struct ReferenceWeights {
    /// `[weight][rows · cols]`.
    data: Vec<Vec<f32>>,
    cols: Vec<usize>,
}

impl Weights for ReferenceWeights {}

impl ReferenceWeights {
    fn rows(&self, slice: Slice) -> &[f32] {
        let w = slice.weight.0 as usize;
        &self.data[w][slice.first * self.cols[w]..(slice.first + slice.rows) * self.cols[w]]
    }
}

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn load(&self, source: &dyn TensorSource, uses: &[WeightUse]) -> Result<Arc<dyn Weights>> {
        let mut data = Vec::with_capacity(uses.len());
        let bytes = |uses: &[WeightUse]| uses.iter().map(|used| 4 * (used.rows * used.cols) as u64).sum();
        for used in uses {
            let tensor = source.find(&used.name).ok_or_else(|| Error::NoWeight(used.name.clone()))?;
            if tensor.len() != used.rows * used.cols {
                let (actual, expected) = (tensor.shape.to_vec(), vec![used.rows, used.cols]);
                return Err(Error::Shape { name: used.name.clone(), actual, expected });
            }
            let values = tensor.to_f32()?;
            if let Some(bad) = values.iter().position(|v| !v.is_finite()) {
                return Err(Error::NotFinite { name: used.name.clone(), row: bad / used.cols });
            }
            data.push(values);
            source.release(&used.name);
            if source.loaded(bytes(&uses[..data.len()]), bytes(uses)).is_break() {
                return Err(Error::Stopped);
            }
        }
        Ok(Arc::new(ReferenceWeights { data, cols: uses.iter().map(|u| u.cols).collect() }))
    }

    fn kv(&self, groups: &[KvGroup], blocks: &[u32], kind: KvType) -> Result<Arc<dyn KvStore>> {
        Ok(Arc::new(ReferenceKv::new(groups, blocks, kind)?))
    }

    fn compile(
        &self,
        program: &Program,
        weights: Arc<dyn Weights>,
        kv: Arc<dyn KvStore>,
        limits: &Limits,
    ) -> Result<Box<dyn Executable>> {
        let kv: Arc<ReferenceKv> = own(kv, "KV store")?;
        if !kv.fits(&program.groups) {
            return Err(Error::Batch("the KV store was made for other groups".into()));
        }
        Ok(Box::new(ReferenceExecutable {
            program: program.clone(),
            weights: own(weights, "weights")?,
            slots: Slots::new(limits, program, &kv.blocks()),
            kv,
            values: vec![Vec::new(); program.values.len()],
            timings: None,
            scratch: Scratch::new(program.value(program.logits).width, limits.context as usize),
        }))
    }
}

/// The concrete type behind what this backend itself made.
fn own<T: Any + Send + Sync>(any: Arc<dyn Any + Send + Sync>, what: &str) -> Result<Arc<T>> {
    any.downcast().map_err(|_| Error::Batch(format!("the {what} belong to another backend")))
}

struct ReferenceExecutable {
    program: Program,
    weights: Arc<ReferenceWeights>,
    kv: Arc<ReferenceKv>,
    slots: Slots,
    /// The contents of each value: `[rows][width]`, routes as (index, weight) pairs.
    values: Vec<Vec<f32>>,
    timings: Option<Timings>,
    scratch: Scratch,
}

impl Executable for ReferenceExecutable {
    fn run(&mut self, batch: &Batch<'_>, work: Work, stop: &StopFlag, out: &mut Outputs) -> Result<()> {
        out.logits.clear();
        out.tokens.clear();
        let mut rows = Vec::new();
        self.slots.prepare(batch, work, &mut rows)?;
        batch.copies.iter().for_each(|copy| self.kv.copy(*copy));
        batch.shifts.iter().for_each(|shift| self.kv.shift(*shift, &self.program));
        if let Some(Op::Input { out }) = self.program.body.iter().find(|op| matches!(op, Op::Input { .. })) {
            self.values[out.0 as usize] = batch.inputs.to_vec();
        }
        match work {
            Work::Forward => {
                self.forward(&rows, batch.outputs, stop)?;
                out.logits.extend_from_slice(&self.values[self.program.logits.0 as usize]);
            }
            Work::Step => {
                self.forward(&rows, batch.outputs, stop)?;
                self.select(&rows, batch, &mut out.tokens)?;
            }
            Work::Chain(n) => {
                for _ in 0..n {
                    self.forward(&rows, batch.outputs, stop)?;
                    let first = out.tokens.len();
                    self.select(&rows, batch, &mut out.tokens)?;
                    for (row, &token) in rows.iter_mut().zip(&out.tokens[first..]) {
                        *row = row.next(token);
                        self.slots.set_token(*row);
                    }
                }
            }
        }
        Ok(())
    }

    fn set_timing(&mut self, on: bool) -> bool {
        self.timings = on.then(|| Timings::new(self.program.body.len()));
        true
    }

    fn timings(&self) -> Vec<Timing> {
        self.timings.as_ref().map_or(Vec::new(), |timings| timings.timings(&self.program.body))
    }
}

impl ReferenceExecutable {
    /// Runs the body over the rows, in order.
    fn forward(&mut self, rows: &[Row], outputs: &[u32], stop: &StopFlag) -> Result<()> {
        let program = std::mem::take(&mut self.program.body);
        let result = program.iter().enumerate().try_for_each(|(index, op)| {
            stop.check()?;
            let cost = |own: &Self| own.cost(op, rows, outputs);
            self.timed(index, cost, |own| own.execute(op, rows, outputs));
            Ok(())
        });
        self.program.body = program;
        result
    }

    fn select(&mut self, rows: &[Row], batch: &Batch<'_>, tokens: &mut Vec<u32>) -> Result<()> {
        let index = self.program.body.len();
        self.timed(index, |_| Cost::default(), |own| own.choose(rows, batch, tokens))
    }

    fn choose(&mut self, rows: &[Row], batch: &Batch<'_>, tokens: &mut Vec<u32>) -> Result<()> {
        let logits = self.program.logits;
        let width = self.program.value(logits).width;
        let logits = &mut self.values[logits.0 as usize];
        for (i, logits) in logits.chunks_exact_mut(width).enumerate() {
            let row = rows[batch.outputs[i] as usize];
            let mask = batch.masks.get(i).copied().flatten();
            let slot = self.slots.slot(row.slot);
            let history = &slot.tokens[..=row.position as usize];
            let token = select(logits, &slot.sampling, history, row.position, mask, &mut self.scratch);
            tokens.push(token.ok_or(Error::NoChoice { position: row.position })?);
        }
        Ok(())
    }

    fn width(&self, id: ValueId) -> usize {
        self.program.value(id).width
    }

    fn read(&self, id: ValueId) -> &[f32] {
        &self.values[id.0 as usize]
    }

    fn write(&mut self, id: ValueId, value: Vec<f32>) {
        self.values[id.0 as usize] = value;
    }

    fn execute(&mut self, op: &Op, rows: &[Row], outputs: &[u32]) {
        match op {
            // It was written before the run.
            Op::Input { .. } => {}
            Op::Unfold { x, out } => {
                let stride =
                    if self.program.value(*out).domain == Domain::Frames { 1 } else { FRAMES_PER_TOKEN };
                let value = ops::unfold(self.read(*x), self.width(*x), stride, rows);
                self.write(*out, value);
            }
            Op::Store { k, v, cache } => {
                self.kv.write(*cache, self.read(*k), self.read(*v), rows, &self.slots);
            }
            Op::Weights { heads, positions, out } => {
                let mut value = Vec::new();
                for (i, row) in rows.iter().enumerate() {
                    for head in heads {
                        let attention = self.kv.layer(head.cache, Mask::Stored(*positions), head.scale, None);
                        let width = self.width(head.q);
                        let q = &self.read(head.q)[i * width..(i + 1) * width];
                        value.extend(attention.weights(q, head.head, *row, &self.slots));
                    }
                }
                self.write(*out, value);
            }
            Op::Embed { table, by, scale, out } => {
                let value = ops::embed(self.weights.rows(*table), self.width(*out), *by, *scale, rows);
                self.write(*out, value);
            }
            Op::Norm { x, kind, eps, weight, bias, groups, out } => {
                let bias = bias.map(|b| self.weights.rows(b));
                let width = self.width(*x) / groups;
                let value = ops::norm(self.read(*x), width, *kind, *eps, self.weights.rows(*weight), bias);
                self.write(*out, value);
            }
            Op::Linear { x, parts } => {
                for part in parts {
                    let bias = part.bias.map(|b| self.weights.rows(b));
                    let value =
                        ops::linear(self.read(*x), self.width(*x), self.weights.rows(part.weight), bias);
                    self.write(part.out, value);
                }
            }
            Op::RopeKv { q, k, v, rope, cache, out } => {
                let table = rope.map(|r| &self.program.ropes[r.0 as usize]);
                let dim = self.program.groups[cache.group.0 as usize].head_dim;
                let rotate = |id: ValueId| {
                    let mut value = self.read(id).to_vec();
                    if let Some(table) = table {
                        ops::rope(&mut value, self.width(id), dim, table, rows);
                    }
                    value
                };
                let (query, key) = (rotate(*q), rotate(*k));
                self.kv.write(*cache, &key, self.read(*v), rows, &self.slots);
                self.write(*out, query);
            }
            Op::Attend { q, mask, cache, scale, cap, out } => {
                let attention = self.kv.layer(*cache, *mask, *scale, *cap);
                let value = attention.attend(self.read(*q), self.width(*q), rows, &self.slots);
                drop(attention);
                self.write(*out, value);
            }
            Op::Gate { gate, up, activation, out } => {
                let value = ops::gate(self.read(*gate), self.read(*up), *activation);
                self.write(*out, value);
            }
            Op::Activate { x, activation, out } => {
                let value = self.read(*x).iter().map(|x| ops::activate(*x, *activation)).collect();
                self.write(*out, value);
            }
            Op::Add { x, y, out } => {
                let value = self.read(*x).iter().zip(self.read(*y)).map(|(x, y)| x + y).collect();
                self.write(*out, value);
            }
            Op::Route { logits, normalize, out } => {
                let value = ops::route(self.read(*logits), self.width(*logits), self.width(*out), *normalize);
                self.write(*out, value);
            }
            Op::Experts { x, routes, experts, activation, out } => {
                let networks: Vec<_> = experts
                    .iter()
                    .map(|e| [e.gate, e.up, e.down].map(|slice| self.weights.rows(slice)))
                    .collect();
                let (x, routes) =
                    ((self.read(*x), self.width(*x)), (self.read(*routes), self.width(*routes)));
                let value = ops::experts(x, routes, &networks, *activation);
                self.write(*out, value);
            }
            Op::Gather { x, out } => {
                let width = self.width(*x);
                let x = self.read(*x);
                let value =
                    outputs.iter().flat_map(|&r| &x[r as usize * width..][..width]).copied().collect();
                self.write(*out, value);
            }
            Op::Cap { x, scale, cap, out } => {
                let value = self.read(*x).iter().map(|x| ops::cap(scale * x, *cap)).collect();
                self.write(*out, value);
            }
        }
    }
}
