//! Mixtures of experts. Rows that chose the same expert are multiplied together: its weights are read once for all of them. What a row
//! gets does not depend on who they are.

use std::ops::Range;

use akunu_program::program::Slice;

use crate::exec::{Machine, State};
use crate::kernels::product::{Columns, Group, Input, Product, ProductFn};
use crate::kernels::rows::Gate;
use crate::memory::Shared;
use crate::pack::{Form, Matrix, TILE};
use crate::plan::BufferId;
use crate::simd::LANES;
use crate::step::{ExpertsDown, ExpertsUp, Step};
use crate::weights::CpuWeights;

/// Rows that are multiplied together at most.
const TOGETHER: usize = 32;

/// One worker's room for the rows of an expert.
pub(crate) struct ExpertRows {
    /// What is multiplied, side by side.
    x: Shared,
    /// The worker's columns of up to two products.
    out: [Shared; 2],
}

impl ExpertRows {
    /// For these steps, if there are experts among them.
    pub(crate) fn new(steps: &[Step], weights: &CpuWeights, workers: usize) -> Option<ExpertRows> {
        let slices = steps.iter().flat_map(|step| match step {
            Step::ExpertsUp(step) => step.experts.first().map_or(Vec::new(), |e| vec![e.gate, e.up]),
            Step::ExpertsDown(step) => step.downs.first().copied().into_iter().collect(),
            _ => Vec::new(),
        });
        let sizes = slices.filter_map(|slice| {
            let columns = slice.rows.div_ceil(LANES).div_ceil(workers) * LANES;
            Some((row_bytes(weights.matrix(slice).ok()?), size_of::<f32>() * columns))
        });
        let (x, out) = sizes.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
        let out = [(); 2].map(|()| Shared::new(TOGETHER * out));
        Some(ExpertRows { x: Shared::new(TOGETHER * x), out })
    }
}

/// Bytes of a row that is multiplied with a matrix.
fn row_bytes(matrix: &Matrix) -> usize {
    match matrix.form {
        Form::Int { .. } => matrix.cols / TILE * size_of::<Group>(),
        Form::F32 | Form::F16 | Form::Bf16 | Form::Pairs => matrix.cols * size_of::<f32>(),
    }
}

impl Machine {
    /// The routes of a row: expert and weight.
    fn routes(&self, state: &State, id: BufferId, worker: usize, row: usize) -> &[[f32; 2]] {
        let bytes = self.lowered.buffers[id.0].row_bytes;
        // SAFETY: completed before the last barrier, or this worker's own copy.
        let pairs: &[f32] =
            unsafe { self.arena.get(self.start(state, id, worker) + row * bytes, bytes / size_of::<f32>()) };
        pairs.as_chunks().0
    }

    /// Some of the rows that chose an expert, after one another for all rows and experts: each with which of its routes it is.
    fn each_expert(
        &self,
        state: &State,
        routes: BufferId,
        experts: usize,
        worker: usize,
        mut work: impl FnMut(usize, &[(usize, usize)]),
    ) {
        let mut chosen = [(0, 0); TOGETHER];
        for expert in 0..experts {
            let mut count = 0;
            for row in 0..state.rows.len() {
                for (route, [index, _]) in self.routes(state, routes, worker, row).iter().enumerate() {
                    if *index as usize != expert {
                        continue;
                    }
                    chosen[count] = (row, route);
                    count += 1;
                    if count == TOGETHER {
                        work(expert, &chosen);
                        count = 0;
                    }
                }
            }
            if count > 0 {
                work(expert, &chosen[..count]);
            }
        }
    }

    /// Some rows' product with a slice of a matrix, this worker's share of it: columns, and for each row its numbers in these. The
    /// share depends on the number of columns alone, not on where the slice begins: all experts of a mixture are shared out alike.
    #[allow(clippy::too_many_arguments)]
    fn rows_product<'r>(
        &self,
        product: ProductFn,
        weight: Slice,
        x: BufferId,
        rows: impl ExactSizeIterator<Item = usize>,
        (from, out): (&Shared, &'r Shared),
        state: &State,
        worker: usize,
        workers: usize,
    ) -> (Range<usize>, &'r [f32]) {
        let Ok(matrix) = self.weights.matrix(weight) else { return (0..0, &[]) };
        let vectors = weight.rows.div_ceil(LANES);
        let cut = |worker: usize| (vectors * worker / workers * LANES).min(weight.rows);
        let columns = cut(worker)..cut(worker + 1);
        if columns.is_empty() {
            return (columns, &[]);
        }
        let slice = weight.first + columns.start..weight.first + columns.end;
        let panels = slice.start / LANES..slice.end.div_ceil(LANES);
        let (count, bytes, start) = (rows.len(), row_bytes(matrix), self.start(state, x, worker));
        // SAFETY: inputs were completed before the last barrier, or are this worker's own copies, as its room is.
        unsafe {
            for (i, row) in rows.enumerate() {
                let row: &[u8] = self.arena.get(start + row * bytes, bytes);
                from.get_mut(i * bytes, bytes).copy_from_slice(row);
            }
            let x = match matrix.form {
                Form::Int { .. } => Input::Groups(from.get(0, count * matrix.cols / TILE)),
                Form::F32 | Form::F16 | Form::Bf16 | Form::Pairs => {
                    Input::Floats(from.get(0, count * matrix.cols))
                }
            };
            let made = Columns { start: out.start_of(0, count * columns.len()), stride: columns.len() };
            let room = self.scratch[worker].many.as_ref();
            product(&Product { matrix, panels, slice, count, x, out: made, bias: None, next: None, room });
            let made = out.get(0, count * columns.len());
            (columns, made)
        }
    }

    pub(crate) fn experts_up(&self, step: &ExpertsUp, state: &State, worker: usize, workers: usize) {
        let Some(room) = &self.scratch[worker].experts else { return };
        self.each_expert(state, step.routes, step.experts.len(), worker, |expert, chosen| {
            let expert = &step.experts[expert];
            let product = |i: usize, weight: Slice| {
                let (x, rows) = (step.x[i], chosen.iter().map(|(row, _)| *row));
                let room = (&room.x, &room.out[i]);
                self.rows_product(step.products[i], weight, x, rows, room, state, worker, workers)
            };
            let (columns, gates) = product(0, expert.gate);
            let (_, ups) = product(1, expert.up);
            let width = columns.len().max(1);
            let made = gates.chunks_exact(width).zip(ups.chunks_exact(width));
            for ((gate, up), &(row, route)) in made.zip(chosen) {
                let first = route * expert.gate.rows;
                // SAFETY: each worker has its own columns.
                let out = unsafe { self.cut(step.out, row, &(first + columns.start..first + columns.end)) };
                self.isa.run(Gate { gate, up, activation: step.activation, out });
            }
        });
        debug_assert_eq!(step.chosen * 2 * size_of::<f32>(), self.lowered.buffers[step.routes.0].row_bytes);
    }

    pub(crate) fn experts_down(&self, step: &ExpertsDown, state: &State, worker: usize, workers: usize) {
        let Some(room) = &self.scratch[worker].experts else { return };
        let mut columns = 0..0;
        self.each_expert(state, step.routes, step.downs.len(), worker, |expert, chosen| {
            let (down, rows) =
                (step.downs[expert], chosen.iter().map(|(row, route)| row * step.chosen + route));
            let room = (&room.x, &room.out[0]);
            let made = self.rows_product(step.product, down, step.x, rows, room, state, worker, workers);
            columns = made.0;
            for (made, &(row, route)) in made.1.chunks_exact(columns.len().max(1)).zip(chosen) {
                let first = route * down.rows;
                // SAFETY: each worker has its own columns.
                let part =
                    unsafe { self.cut(step.parts, row, &(first + columns.start..first + columns.end)) };
                part.copy_from_slice(made);
            }
        });
        let hidden = step.downs.first().map_or(0, |down| down.rows);
        for row in 0..state.rows.len() {
            for (i, &[_, weight]) in self.routes(state, step.routes, worker, row).iter().enumerate() {
                let from = i * hidden + columns.start..i * hidden + columns.end;
                // SAFETY: columns this worker has just computed, and the same of the output.
                let (part, out) =
                    unsafe { (self.cut(step.parts, row, &from), self.cut(step.out, row, &columns)) };
                for (out, part) in out.iter_mut().zip(part) {
                    let sum = if i == 0 { 0.0 } else { *out };
                    *out = sum + weight * *part;
                }
            }
        }
    }
}
