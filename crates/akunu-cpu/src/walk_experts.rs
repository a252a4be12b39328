//! Mixtures of experts. Rows that chose the same expert are multiplied together, some at a time, so that its weights are read once for
//! them. What a row gets does not depend on who they are.

use std::ops::Range;

use akunu_program::program::Slice;

use crate::exec::Machine;
use crate::kernels::product::{Columns, Group, Input, Product};
use crate::kernels::rows::Gate;
use crate::kernels::tiles::{Laid, Lay, Lines, TILE_ROWS, are_several};
use crate::memory::Shared;
use crate::pack::{Form, Matrix, TILE};
use crate::plan::BufferId;
use crate::simd::LANES;
use crate::state::State;
use crate::step::{ExpertProduct, ExpertsDown, ExpertsUp, Step};
use crate::weights::CpuWeights;

/// Rows that are multiplied together at most: some blocks of tiles, and not so many that what they are multiplied with would leave the
/// second-level cache.
const TOGETHER: usize = 32;
const _: () = assert!(TOGETHER.is_multiple_of(TILE_ROWS));

/// One worker's room for the rows of an expert.
pub(crate) struct ExpertRows {
    /// What is multiplied, side by side.
    x: Shared,
    /// The same laid out, by blocks.
    laid: Shared,
    /// The worker's columns of up to two products.
    out: [Shared; 2],
}

impl ExpertRows {
    /// For these steps, if there are experts among them.
    pub(crate) fn new(steps: &[Step], weights: &CpuWeights, workers: usize) -> Option<ExpertRows> {
        let sizes = steps.iter().flat_map(Step::expert_products).filter_map(|(by, slice)| {
            let matrix = weights.matrix(slice).ok()?;
            let columns = slice.rows.div_ceil(LANES).div_ceil(workers) * LANES;
            let laid = by.several.map_or(0, |(form, _)| Laid::bytes(form, matrix.cols / TILE));
            Some([
                TOGETHER * row_bytes(matrix),
                TOGETHER / TILE_ROWS * laid,
                TOGETHER * columns * size_of::<f32>(),
            ])
        });
        let [x, laid, out] = sizes.reduce(|a, b| std::array::from_fn(|i| a[i].max(b[i])))?;
        let out = [(); 2].map(|()| Shared::new(out));
        Some(ExpertRows { x: Shared::new(x), laid: Shared::new(laid), out })
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

    /// Calls `work` with each expert and up to [`TOGETHER`] of those who chose it: a row, and which of its routes that is.
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
    /// `again` says that the rows are in the room already, from another product.
    #[allow(clippy::too_many_arguments)]
    fn rows_product<'r>(
        &self,
        by: &ExpertProduct,
        weight: Slice,
        rows: impl ExactSizeIterator<Item = usize>,
        again: bool,
        (room, out): (&ExpertRows, &'r Shared),
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
        let (count, width) = (rows.len(), columns.len());
        let product = |count: usize, first: usize, x| {
            let start = out.start_of(size_of::<f32>() * first * width, count * width);
            let out = Columns { start, stride: width };
            let (panels, slice, room) = (panels.clone(), slice.clone(), self.scratch[worker].many.as_ref());
            Product { matrix, panels, slice, count, x, out, bias: None, next: None, room }
        };
        // Several rows by blocks, and what is left of them by dots.
        let mut rows = rows;
        let mut done = 0;
        if let (Some((form, several)), Some(scratch)) = (by.several, &self.scratch[worker].tiles) {
            let Form::Int { scales, .. } = matrix.form else { unreachable!("chosen by form") };
            let (floats, tiles) = (self.start(state, by.floats, worker), matrix.cols / TILE);
            let bytes = Laid::bytes(form, tiles);
            while are_several((count - done).min(TILE_ROWS)) {
                let block = (count - done).min(TILE_ROWS);
                let at = room.laid.start_of(done / TILE_ROWS * bytes, bytes);
                let laid = Laid::new(at, form, tiles, block);
                for (line, row) in rows.by_ref().take(block).enumerate() {
                    if again {
                        continue;
                    }
                    // SAFETY: inputs were completed before the last barrier, or are this worker's own copies; its room has a line
                    // for each row, and only processors with AVX-512 lay rows out.
                    unsafe {
                        let x = self.arena.get(floats + size_of::<f32>() * row * matrix.cols, matrix.cols);
                        Lay { x, out: laid, first: 0, line, sums: scales.min() }.run();
                    }
                }
                let product = product(block, done, Input::Groups(&[]));
                several(&product, &Lines { laid, rows: 0..block, scratch });
                done += block;
            }
        }
        let (left, bytes, start) = (count - done, row_bytes(matrix), self.start(state, by.x, worker));
        if left > 0 {
            // SAFETY: inputs were completed before the last barrier, or are this worker's own copies, as its room is.
            let x = unsafe {
                for (i, row) in rows.enumerate().filter(|_| !again) {
                    let row: &[u8] = self.arena.get(start + row * bytes, bytes);
                    room.x.get_mut(i * bytes, bytes).copy_from_slice(row);
                }
                match matrix.form {
                    Form::Int { .. } => Input::Groups(room.x.get(0, left * matrix.cols / TILE)),
                    Form::F32 | Form::F16 | Form::Bf16 | Form::Pairs => {
                        Input::Floats(room.x.get(0, left * matrix.cols))
                    }
                }
            };
            (by.product)(&product(left, done, x));
        }
        // SAFETY: the worker's own room, which nobody writes before the next product.
        (columns, unsafe { out.get(0, count * width) })
    }

    pub(crate) fn experts_up(&self, step: &ExpertsUp, state: &State, worker: usize, workers: usize) {
        let Some(room) = &self.scratch[worker].experts else { return };
        self.each_expert(state, step.routes, step.experts.len(), worker, |expert, chosen| {
            let expert = &step.experts[expert];
            let product = |by: &ExpertProduct, weight: Slice, again: bool, out| {
                let rows = chosen.iter().map(|(row, _)| *row);
                self.rows_product(by, weight, rows, again, (room, out), state, worker, workers)
            };
            let (columns, gates) = product(&step.gate, expert.gate, false, &room.out[0]);
            let (_, ups) = product(&step.up, expert.up, step.gate.takes_what(&step.up), &room.out[1]);
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
            let made = self.rows_product(
                &step.down,
                down,
                rows,
                false,
                (room, &room.out[0]),
                state,
                worker,
                workers,
            );
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
