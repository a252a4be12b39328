//! The row steps.

use std::ops::Range;

use akunu_program::Phase;
use akunu_program::program::{Domain, FRAMES_PER_TOKEN};

use crate::exec::{Machine, PART};
use crate::kernels::attention::Merge;
use crate::kernels::cache::{Order, Remember};
use crate::kernels::product::Group;
use crate::kernels::rows::{Activate, Add, Cap, Gate, Norm, Quantize, Rotate};
use crate::kernels::tiles;
use crate::kv::padded;
use crate::memory::Plain;
use crate::pack::TILE;
use crate::plan::BufferId;
use crate::state::State;
use crate::step::{Attention, IntegerForm, Integers, Rotation, Step, Stored, TileForm};

/// A row step's view: one worker, one row.
pub(crate) struct RowView<'a> {
    machine: &'a Machine,
    state: &'a State,
    worker: usize,
    row: usize,
}

impl<'a> RowView<'a> {
    pub(crate) fn new(machine: &'a Machine, state: &'a State, worker: usize, row: usize) -> Self {
        RowView { machine, state, worker, row }
    }

    fn place<T>(&self, id: BufferId, row: usize) -> (usize, usize) {
        let bytes = self.machine.lowered.buffers[id.0].row_bytes;
        (self.machine.start(self.state, id, self.worker) + row * bytes, bytes / size_of::<T>())
    }

    /// A row of a buffer, complete since the last barrier or written by this worker.
    pub(crate) fn read<T: Plain>(&self, id: BufferId) -> &'a [T] {
        let (offset, count) = self.place::<T>(id, self.row);
        // SAFETY: a row is written by the one worker that has it in this step, in steps before this one.
        unsafe { self.machine.arena.get(offset, count) }
    }

    /// The row of a buffer this step writes.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn write<T: Plain>(&self, id: BufferId) -> &'a mut [T] {
        let (offset, count) = self.place::<T>(id, self.row);
        // SAFETY: only the worker that has the row touches it in this step; steps never read what they write.
        unsafe { self.machine.arena.get_mut(offset, count) }
    }

    /// Where some columns of a buffer's row begin, or some groups.
    fn columns_at<T>(&self, id: BufferId, columns: &Range<usize>) -> usize {
        self.place::<T>(id, self.row).0 + columns.start * size_of::<T>()
    }

    /// Some columns of a buffer's row, complete since the last barrier or written by this worker.
    fn columns(&self, id: BufferId, columns: &Range<usize>) -> &'a [f32] {
        // SAFETY: nobody writes these columns in this step but this worker, and not while they are looked at.
        unsafe { self.machine.arena.get(self.columns_at::<f32>(id, columns), columns.len()) }
    }

    /// Some columns, or groups, that this worker makes.
    #[allow(clippy::mut_from_ref)]
    fn columns_mut<T: Plain>(&self, id: BufferId, columns: &Range<usize>) -> &'a mut [T] {
        // SAFETY: nobody else touches them in this step, and this worker looks at them only when they are made.
        unsafe { self.machine.arena.get_mut(self.columns_at::<T>(id, columns), columns.len()) }
    }

    /// Does a row step for this row.
    pub(crate) fn step(&self, step: &Step) {
        let machine = self.machine;
        let isa = machine.isa;
        match step {
            Step::Unfold { x, out } => self.unfold(*x, *out),
            Step::Store(stored) => self.store(stored),
            Step::Embed { table, by, scale, out } => {
                let out = self.write(*out);
                if let Ok(rows) = machine.weights.rows(*table) {
                    rows.row(table.first + self.state.rows[self.row].index(*by), out);
                }
                if *scale != 1.0 {
                    isa.run(Cap { x: out, scale: *scale, cap: None });
                }
            }
            Step::Norm { x, kind, eps, weight, bias, out } => {
                let Ok(weight) = machine.weights.vector(*weight) else { return };
                let bias = bias.and_then(|b| machine.weights.vector(b).ok());
                let (kind, eps) = (*kind, *eps);
                isa.run(Norm { x: self.read(*x), kind, eps, weight, bias, out: self.write(*out) });
            }
            Step::Add { x, y, out } => {
                isa.run(Add { x: self.read(*x), y: self.read(*y), out: self.write(*out) });
            }
            Step::Gate { gate, up, activation, out } => {
                let (gate, up) = (self.read(*gate), self.read(*up));
                isa.run(Gate { gate, up, activation: *activation, out: self.write(*out) });
            }
            Step::Activate { x, activation, out } => {
                let out = self.write(*out);
                out.copy_from_slice(self.read(*x));
                isa.run(Activate { x: out, activation: *activation });
            }
            Step::Cap { x, scale, cap, out } => {
                let out = self.write(*out);
                out.copy_from_slice(self.read(*x));
                isa.run(Cap { x: out, scale: *scale, cap: *cap });
            }
            Step::Integers(integers) => {
                if !self.state.is_made(integers.by, self.row) {
                    let buffer = &machine.lowered.buffers[integers.x.0];
                    self.make(integers, 0..buffer.row_bytes / size_of::<f32>());
                }
            }
            Step::Split { x, form, out } => {
                if self.is_tiled(*out) {
                    self.split(self.read(*x), *form, *out);
                }
            }
            Step::Rotate(rotation) => self.rotate(rotation),
            Step::Merge { attention } => self.merge(attention),
            Step::Route { logits, normalize, experts, out } => {
                route(&self.read::<f32>(*logits)[..*experts], *normalize, self.write(*out));
            }
            Step::Gather { x, out } => {
                let from = self.state.outputs[self.row] as usize;
                let (offset, count) = self.place::<f32>(*x, from);
                // SAFETY: complete since the last barrier, or this worker's own copy.
                let x: &[f32] = unsafe { machine.arena.get(offset, count) };
                self.write(*out).copy_from_slice(x);
            }
            Step::Linear(_)
            | Step::Attend { .. }
            | Step::Weights(_)
            | Step::ExpertsUp(_)
            | Step::ExpertsDown(_) => unreachable!("wide steps are not done by rows"),
        }
    }

    /// Whether products take the row of a buffer in tiles.
    fn is_tiled(&self, id: BufferId) -> bool {
        let row = match self.machine.lowered.buffers[id.0].domain {
            Domain::Frames => self.row / FRAMES_PER_TOKEN,
            Domain::Tokens | Domain::Outputs => self.row,
        };
        self.machine.scratch[self.worker].tiles.is_some() && self.state.rows[row].phase == Phase::Prompt
    }

    /// Whether products take the row of a buffer together with others of its block.
    fn is_one_of_several(&self, id: BufferId) -> bool {
        self.state.is_one_of_several(self.machine.lowered.buffers[id.0].domain, self.row)
    }

    /// A frame beside its neighbours, column by column.
    fn unfold(&self, x: BufferId, out: BufferId) {
        let stride = match self.machine.lowered.buffers[out.0].domain {
            Domain::Frames => 1,
            Domain::Tokens | Domain::Outputs => FRAMES_PER_TOKEN,
        };
        let frame = self.row * stride;
        let row = &self.state.rows[frame / FRAMES_PER_TOKEN];
        let at = FRAMES_PER_TOKEN * row.position as usize + frame % FRAMES_PER_TOKEN;
        let last = FRAMES_PER_TOKEN * row.end as usize - 1;
        let taps = [(at > 0).then(|| frame - 1), Some(frame), (at < last).then(|| frame + 1)];
        let out: &mut [f32] = self.write(out);
        for (tap, frame) in taps.into_iter().enumerate() {
            let places = out.iter_mut().skip(tap).step_by(3);
            let Some(frame) = frame else {
                places.for_each(|out| *out = 0.0);
                continue;
            };
            let (offset, count) = self.place::<f32>(x, frame);
            // SAFETY: frames are complete since the last barrier.
            let x: &[f32] = unsafe { self.machine.arena.get(offset, count) };
            places.zip(x).for_each(|(out, x)| *out = *x);
        }
    }

    /// Writes the row's lines in the tiles of its block.
    fn split(&self, x: &[f32], form: TileForm, out: BufferId) {
        let buffer = &self.machine.lowered.buffers[out.0];
        let (block, line) = (self.row / tiles::TILE_ROWS, self.row % tiles::TILE_ROWS);
        let bytes = tiles::TILE_ROWS * buffer.row_bytes;
        let block: *mut u8 = self.machine.arena.start_of(buffer.offset + block * bytes, bytes);
        // SAFETY: the tiles of the block are within the buffer, and only the worker that has the row touches its lines.
        // Tiles are used only where the processor has them.
        unsafe {
            match form {
                TileForm::Split => tiles::Split { x, factor: 1.0, out: block.add(64 * line) }.run(),
                TileForm::Words => tiles::Words { x, block, line }.run(),
                TileForm::Pairs => tiles::Pairs { x, block, line }.run(),
            }
        }
    }

    /// Makes integers of some columns, whole tiles of them, if the row is one of those that are multiplied so.
    pub(crate) fn make(&self, integers: &Integers, columns: Range<usize>) {
        debug_assert!(columns.start.is_multiple_of(TILE) && columns.end.is_multiple_of(TILE));
        let (out, tiles) = (integers.out, columns.start / TILE..columns.end / TILE);
        let x = self.columns(integers.x, &columns);
        match integers.form {
            IntegerForm::Groups { all, laid } => {
                if (all || !self.is_tiled(out)) && (laid || !self.is_one_of_several(out)) {
                    self.machine.isa.run(Quantize { x, out: self.columns_mut::<Group>(out, &tiles) });
                }
            }
            IntegerForm::Laid { form, sums } => {
                if self.is_one_of_several(out) {
                    let (block, line) = (self.row / tiles::TILE_ROWS, self.row % tiles::TILE_ROWS);
                    let width = self.machine.lowered.buffers[integers.x.0].row_bytes / size_of::<f32>();
                    let out = self.machine.laid(self.state, out, form, block, width / TILE);
                    // SAFETY: only this worker touches these tiles of the row, and tiles are used only where the processor has
                    // them.
                    unsafe { tiles::Lay { x, out, first: tiles.start, line, sums }.run() };
                }
            }
        }
    }

    fn rotate(&self, r: &Rotation) {
        if let Some(rope) = r.rope {
            for (from, to) in [(r.q, r.q_out), (r.k, r.stored.k)] {
                let x = self.write::<f32>(to);
                x.copy_from_slice(self.read(from));
                self.turn(r, rope, x);
            }
        }
        if !self.state.writes_late {
            self.store(&r.stored);
        }
    }

    /// Rotates some heads of the row.
    fn turn(&self, r: &Rotation, rope: usize, x: &mut [f32]) {
        let rope = &self.machine.ropes[rope];
        let (cos, sin) = rope.row(self.state.rows[self.row].position as usize);
        self.machine.isa.run(Rotate { x, head_dim: r.stored.head_dim, layout: rope.layout, cos, sin });
    }

    /// Rotates the key of a head, and the queries that share it, and writes the key and the value to the cache.
    pub(crate) fn rotate_head(&self, r: &Rotation, head: usize, sharing: usize) {
        if let Some(rope) = r.rope {
            for (from, to, heads) in [(r.q, r.q_out, sharing), (r.k, r.stored.k, 1)] {
                let length = heads * r.stored.head_dim;
                let columns = head * length..(head + 1) * length;
                let x = self.columns_mut(to, &columns);
                x.copy_from_slice(self.columns(from, &columns));
                self.turn(r, rope, x);
            }
        }
        self.remember(&r.stored, head);
    }

    /// Writes the row's keys and values to the cache.
    fn store(&self, stored: &Stored) {
        // In redundant runs every worker is here with this row: one of them writes.
        if !self.state.redundant || self.row % self.machine.scratch.len() == self.worker {
            (0..stored.kv_heads).for_each(|head| self.remember(stored, head));
        }
    }

    /// Writes the row's key and value of one head to the cache.
    pub(crate) fn remember(&self, r: &Stored, head: usize) {
        let row = self.state.rows[self.row];
        let position = row.position as usize;
        let block = self.state.slots.block(row.slot, r.cache.group, position);
        let columns = head * r.head_dim..(head + 1) * r.head_dim;
        for (from, order) in [(r.k, Order::Keys), (r.v, Order::Values)] {
            self.machine.isa.run(Remember {
                x: self.columns(from, &columns),
                plane: self.machine.kv.plane(r.cache, block, head, order),
                order,
                dim: padded(r.head_dim),
                position: position % akunu_program::BLOCK,
            });
        }
    }

    /// Joins the parts of the context that were attended to apart; only redundant runs have such.
    fn merge(&self, a: &Attention) {
        let row = self.state.rows[self.row];
        if row.phase == Phase::Prompt {
            if self.worker > 0 {
                let buffer = &self.machine.lowered.buffers[a.out.0];
                // SAFETY: worker 0's copy, written in the step before, and by nobody in this one.
                let whole: &[f32] = unsafe {
                    self.machine.arena.get(buffer.offset + self.row * buffer.row_bytes, buffer.row_bytes / 4)
                };
                self.write(a.out).copy_from_slice(whole);
            }
            return;
        }
        let out: &mut [f32] = self.write(a.out);
        let (begin, end) = a.range(row);
        let parts = (end - 1) / PART - begin / PART + 1;
        let stride = a.sharing * a.state_len();
        for (i, out) in out.chunks_exact_mut(a.head_dim).enumerate() {
            let (head, query) = (i / a.sharing, i % a.sharing);
            let (offset, len) = self.machine.part(a, self.row, head, 0, parts);
            // SAFETY: complete since the barrier after the attention.
            let states: &[f32] = unsafe { self.machine.parts.get(offset, len) };
            self.machine.isa.run(Merge { parts: &states[query * a.state_len()..], stride, out });
        }
    }
}

/// The best experts of one row, as index and weight; lower indices first among equals.
fn route(logits: &[f32], normalize: bool, out: &mut [f32]) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |z: f32| f64::from(z - max).exp();
    let pairs = out.as_chunks_mut::<2>().0;
    let mut last: Option<usize> = None;
    for pair in pairs.iter_mut() {
        // The best one after `last` in the order of falling logits, then rising indices.
        let follows = |e: usize| last.is_none_or(|l| logits[e].total_cmp(&logits[l]).then(l.cmp(&e)).is_lt());
        let best = (0..logits.len())
            .filter(|&e| follows(e))
            .reduce(|best, e| if logits[e].total_cmp(&logits[best]).is_gt() { e } else { best });
        let Some(best) = best else { break };
        last = Some(best);
        *pair = [best as f32, weight(logits[best]) as f32];
    }
    let total: f64 = if normalize {
        pairs.iter().map(|p| weight(logits[p[0] as usize])).sum()
    } else {
        logits.iter().map(|z| weight(*z)).sum()
    };
    for pair in pairs {
        pair[1] = (weight(logits[pair[0] as usize]) / total) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::route;

    #[test]
    fn the_best_experts_come_first_and_ties_go_to_the_lower_index() {
        let mut out = [0.0; 6];
        route(&[1.0, 3.0, 3.0, 0.0], true, &mut out[..4]);
        assert_eq!(out[..4], [1.0, 0.5, 2.0, 0.5]);
        route(&[0.0, 0.0, 0.0, 0.0], false, &mut out);
        assert_eq!(out, [0.0, 0.25, 1.0, 0.25, 2.0, 0.25]);
    }
}
