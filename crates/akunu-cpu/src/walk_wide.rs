//! The wide steps, and of them products.

use std::ops::Range;
use std::time::Instant;

use akunu_program::Phase;
use akunu_program::program::Slice;

use crate::exec::Machine;
use crate::kernels::product::{Columns, Input, Product};
use crate::kernels::rows::{Activate, Cap, Gate};
use crate::kernels::tiles::{Laid, LaidForm, Lines, TILE_ROWS, are_several};
use crate::memory::Plain;
use crate::pack::{Form, Matrix, TILE};
use crate::plan::BufferId;
use crate::pool::{Team, Turns};
use crate::simd::LANES;
use crate::state::State;
use crate::step::{Attention, Integers, Linear, LinearPart, Rotation, Several, Step, Stored, Then};
use crate::walk_attend::Attending;
use crate::walk_rows::RowView;

/// Rows of a product that is shared out by the workers' pace, at most: of more it takes so long that the last one says little of the next.
const PACED_ROWS: usize = 4 * TILE_ROWS;

/// The columns of a slice's output that some panels make.
fn columns_of(slice: Slice, panels: &Range<usize>) -> Range<usize> {
    let column = |panel: usize| (panel * LANES).clamp(slice.first, slice.first + slice.rows) - slice.first;
    column(panels.start)..column(panels.end)
}

/// What a worker does of some products before it looks for more.
pub(crate) struct LinearTurn<'a> {
    pub(crate) linear: &'a Linear,
    pub(crate) worker: usize,
    /// Of each part.
    pub(crate) panels: &'a [Range<usize>],
    /// What the worker multiplies after this, and the first of its panels.
    pub(crate) next: Option<(Slice, usize)>,
}

impl Machine {
    /// A worker's part of a step.
    pub(crate) fn step(&self, step: &Step, state: &State, worker: usize, team: &Team) {
        let workers = team.size();
        match step {
            Step::Linear(linear) => self.linear(linear, state, worker, team),
            Step::Attend { attention, rotation, makes } => {
                self.attend(
                    &Attending { a: attention, rotation: rotation.as_ref(), makes, state, worker },
                    team,
                );
            }
            Step::Weights(step) => self.weigh(step, state, worker, workers),
            Step::ExpertsUp(step) => self.experts_up(step, state, worker, workers),
            Step::ExpertsDown(step) => self.experts_down(step, state, worker, workers),
            Step::Unfold { out, .. }
            | Step::Store(Stored { k: out, .. })
            | Step::Embed { out, .. }
            | Step::Norm { out, .. }
            | Step::Add { out, .. }
            | Step::Gate { out, .. }
            | Step::Activate { out, .. }
            | Step::Cap { out, .. }
            | Step::Integers(Integers { out, .. })
            | Step::Split { out, .. }
            | Step::Route { out, .. }
            | Step::Gather { out, .. }
            | Step::Rotate(Rotation { q_out: out, .. })
            | Step::Merge { attention: Attention { out, .. } } => {
                let count = self.count(state, self.lowered.buffers[out.0].domain);
                let rows = if state.redundant {
                    0..count
                } else {
                    count * worker / workers..count * (worker + 1) / workers
                };
                rows.for_each(|row| RowView::new(self, state, worker, row).step(step));
            }
        }
    }

    /// `count` values of a worker's view of a buffer.
    ///
    /// # Safety
    /// They are complete, and nobody writes them in this step.
    unsafe fn view<T: Plain>(&self, state: &State, id: BufferId, worker: usize, count: usize) -> &[T] {
        // SAFETY: the caller's promise.
        unsafe { self.arena.get(self.start(state, id, worker), count) }
    }

    /// Where a shared buffer of floats begins.
    fn columns(&self, id: BufferId, row: usize, count: usize) -> Columns {
        let buffer = &self.lowered.buffers[id.0];
        let stride = buffer.row_bytes / size_of::<f32>();
        Columns { start: self.arena.start_of(buffer.offset + row * buffer.row_bytes, count * stride), stride }
    }

    /// Some columns of one row of a shared buffer.
    ///
    /// # Safety
    /// No other worker touches these columns in this step.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn cut(&self, id: BufferId, row: usize, columns: &Range<usize>) -> &mut [f32] {
        let buffer = &self.lowered.buffers[id.0];
        let offset = buffer.offset + row * buffer.row_bytes + columns.start * size_of::<f32>();
        // SAFETY: the caller's promise.
        unsafe { self.arena.get_mut(offset, columns.len()) }
    }

    /// A part's product of some rows, as far as it is the worker's turn.
    pub(crate) fn part_product<'a>(
        &'a self,
        turn: &LinearTurn<'_>,
        part: usize,
        matrix: &'a Matrix,
        rows: Range<usize>,
        x: Input<'a>,
    ) -> Product<'a> {
        let LinearPart { weight, bias, out, .. } = turn.linear.parts[part];
        let next = turn.linear.first_after(part + 1, turn.panels).or(turn.next);
        Product {
            matrix,
            panels: turn.panels[part].clone(),
            slice: weight.first..weight.first + weight.rows,
            count: rows.len(),
            x,
            out: self.columns(out, rows.start, rows.len()),
            bias: bias.and_then(|b| self.weights.vector(b).ok()),
            next: next.and_then(|(weight, at)| Some((self.weights.matrix(weight).ok()?, at))),
            room: self.scratch[turn.worker].many.as_ref(),
        }
    }

    /// A worker's part of some products. Of up to [`TILE_ROWS`] rows by a large matrix: pieces, as long as there are any. Else, of up to
    /// [`PACED_ROWS`] that are several: a share by the worker's pace. Else, and where prompt rows are in tiles: an even share.
    fn linear(&self, linear: &Linear, state: &State, worker: usize, team: &Team) {
        let domain = self.lowered.buffers[linear.parts[0].out.0].domain;
        let count = self.count(state, domain);
        if count == 0 {
            return;
        }
        let next = linear.next[worker];
        let shares = &linear.shares;
        let pieces = &shares.pieces[usize::from(are_several(count))];
        let tiled = linear.parts.iter().any(|part| part.tiled.is_some());
        let in_tiles = tiled && !state.in_tiles(domain).blocks.is_empty();
        // What is made of many rows before they are multiplied would be made for every piece.
        if pieces.is_empty() || count > TILE_ROWS || in_tiles {
            if are_several(count)
                && count <= PACED_ROWS
                && !in_tiles
                && let (part, whole) = team.part(worker)
                && let Some(panels) = shares.sharing.share(part, whole)
            {
                let begin = Instant::now();
                self.linear_turn(&LinearTurn { linear, worker, panels: &panels, next }, state, count);
                team.worked(worker, begin.elapsed());
                return;
            }
            // Tiles first: blocks of them may have rows that are not prompts.
            let panels = &shares.tiled[worker];
            self.linear_tiles(&LinearTurn { linear, worker, panels, next }, state, count);
            let panels = &shares.even[worker];
            self.linear_turn(&LinearTurn { linear, worker, panels, next }, state, count);
            return;
        }
        let mut turns = Turns::new(team, worker, 1);
        while let Some(panels) = pieces.get(turns.unit) {
            let next = pieces.get(turns.next).map_or(next, |panels| linear.first(panels));
            self.linear_turn(&LinearTurn { linear, worker, panels, next }, state, count);
            turns.pass();
        }
    }

    /// Products of all rows that are not in tiles, and what is done with their columns.
    fn linear_turn(&self, turn: &LinearTurn<'_>, state: &State, count: usize) {
        let parts = &turn.linear.parts;
        let all = 0..count;
        let domain = self.lowered.buffers[parts[0].out.0].domain;
        for (number, part) in parts.iter().enumerate() {
            let plain =
                if part.tiled.is_some() { &state.in_tiles(domain).plain } else { std::slice::from_ref(&all) };
            for rows in plain {
                if part.several.is_none() {
                    self.few(turn, number, state, rows.clone());
                    continue;
                }
                let mut rows = rows.clone();
                while !rows.is_empty() {
                    let end = rows.end.min((rows.start / TILE_ROWS + 1) * TILE_ROWS);
                    let block = rows.start..end;
                    rows.start = end;
                    match &part.several {
                        Some(several) if are_several(block.len()) => {
                            self.several(turn, number, several, state, block);
                        }
                        _ => self.few(turn, number, state, block),
                    }
                }
            }
        }
        let columns = columns_of(parts[0].weight, &turn.panels[0]);
        for row in 0..count {
            match turn.linear.then {
                Then::Nothing => {}
                // What follows takes them as the tiles that were made of them.
                Then::Gate { tiles: Some(_), .. } | Then::Activate { pairs: Some(_), .. }
                    if state.rows[row].phase == Phase::Prompt =>
                {
                    continue;
                }
                Then::Gate { activation, out, .. } => {
                    // SAFETY: columns this worker has just computed, and the same of the output.
                    let (gate, up, out) = unsafe {
                        let cut = |id| self.cut(id, row, &columns);
                        (cut(parts[0].out), cut(parts[1].out), cut(out))
                    };
                    self.isa.run(Gate { gate, up, activation, out });
                }
                Then::Activate { activation, .. } => {
                    // SAFETY: as above.
                    let x = unsafe { self.cut(parts[0].out, row, &columns) };
                    self.isa.run(Activate { x, activation });
                }
                Then::Cap { scale, cap } => {
                    // SAFETY: as above.
                    let x = unsafe { self.cut(parts[0].out, row, &columns) };
                    self.isa.run(Cap { x, scale, cap });
                }
            }
            if !state.redundant && !columns.is_empty() {
                let view = RowView::new(self, state, turn.worker, row);
                turn.linear.makes.iter().for_each(|integers| view.make(integers, columns.clone()));
            }
        }
    }

    /// A part's product of rows that are in no tiles.
    fn few(&self, turn: &LinearTurn<'_>, part: usize, state: &State, rows: Range<usize>) {
        let LinearPart { weight, x, product, .. } = turn.linear.parts[part];
        let Ok(matrix) = self.weights.matrix(weight) else { return };
        // SAFETY: inputs were completed before the last barrier, or are this worker's own copies.
        let x = unsafe {
            match matrix.form {
                Form::Int { .. } => {
                    let tiles = matrix.cols / TILE;
                    let groups = self.view(state, x, turn.worker, rows.end * tiles);
                    Input::Groups(&groups[rows.start * tiles..])
                }
                Form::F32 | Form::F16 | Form::Bf16 | Form::Pairs => {
                    let floats = self.view(state, x, turn.worker, rows.end * matrix.cols);
                    Input::Floats(&floats[rows.start * matrix.cols..])
                }
            }
        };
        product(&self.part_product(turn, part, matrix, rows, x));
    }

    /// A part's product of several rows of a block.
    fn several(
        &self,
        turn: &LinearTurn<'_>,
        part: usize,
        several: &Several,
        state: &State,
        rows: Range<usize>,
    ) {
        let weight = turn.linear.parts[part].weight;
        let (Ok(matrix), Some(scratch)) = (self.weights.matrix(weight), &self.scratch[turn.worker].tiles)
        else {
            return;
        };
        let block = rows.start / TILE_ROWS;
        let laid = self.laid(state, several.x, several.form, block, matrix.cols / TILE);
        let product = self.part_product(turn, part, matrix, rows.clone(), Input::Groups(&[]));
        let rows = rows.start - block * TILE_ROWS..rows.end - block * TILE_ROWS;
        (several.product)(&product, &Lines { laid, rows, scratch });
    }

    /// Where a block of rows is laid out, of so many tiles of columns: for who lays them out and for products alike. In which lines hangs
    /// on all rows of the batch, though prompts have no need of them: a few rows beside a prompt are multiplied like sixteen.
    pub(crate) fn laid(
        &self,
        state: &State,
        id: BufferId,
        form: LaidForm,
        block: usize,
        tiles: usize,
    ) -> Laid {
        let buffer = &self.lowered.buffers[id.0];
        let rows = self.count(state, buffer.domain) - block * TILE_ROWS;
        let bytes = Laid::bytes(form, tiles);
        let at = self.arena.start_of(buffer.offset + block * bytes, bytes);
        Laid::new(at, form, tiles, rows.min(TILE_ROWS))
    }
}
