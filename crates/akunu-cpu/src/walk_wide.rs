//! The wide steps: products and attention.

use std::ops::Range;

use akunu_program::program::Slice;
use akunu_program::slots::Row;
use akunu_program::{BLOCK, Phase};

use crate::exec::{Machine, PART, RowBlock, State};
use crate::kernels::attention::{AttendBlock, Merge, Soften, clear, state_len};
use crate::kernels::cache::{AnyTile, WideTile, Widen};
use crate::kernels::part::{AttendPart, Next, ScoreBlock};
use crate::kernels::product::{Columns, Input, Product};
use crate::kernels::rows::{Activate, Cap, Gate};
use crate::kernels::tiles::{Laid, LaidForm, Lines, TILE_ROWS, are_several};
use crate::kv::padded;
use crate::memory::Plain;
use crate::pack::{Form, Matrix, TILE};
use crate::plan::BufferId;
use crate::pool::{Team, Turns};
use crate::simd::LANES;
use crate::step::{Attention, Linear, LinearPart, Rotation, Several, Step, Stored, Then, WeightsStep};
use crate::walk_rows::RowView;

impl Attention {
    /// `f32`s of one query's state.
    pub(crate) fn state_len(&self) -> usize {
        state_len(padded(self.head_dim))
    }

    /// The first position a row sees, and the one after the last.
    pub(crate) fn range(&self, row: Row) -> (usize, usize) {
        let window = self.window.unwrap_or(usize::MAX);
        ((row.position as usize + 1).saturating_sub(window), row.sees(self.mask) as usize)
    }

    /// What some consecutive rows of one sequence see together.
    pub(crate) fn positions(&self, rows: &[Row]) -> Range<usize> {
        let begin = rows.first().map_or(0, |row| self.range(*row).0);
        begin..rows.last().map_or(begin, |row| self.range(*row).1)
    }
}

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
            Step::Attend { attention, stored } => {
                self.attend(attention, stored.as_ref(), state, worker, team);
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
            | Step::Quantize { out, .. }
            | Step::Split { out, .. }
            | Step::Lay { out, .. }
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

    /// A worker's part of some products: its share, or, where few rows are multiplied, pieces as long as there are any.
    fn linear(&self, linear: &Linear, state: &State, worker: usize, team: &Team) {
        let domain = self.lowered.buffers[linear.parts[0].out.0].domain;
        let count = self.count(state, domain);
        if count == 0 {
            return;
        }
        let next = linear.next[worker];
        let pieces = &linear.shares.pieces[usize::from(are_several(count))];
        let tiled = linear.parts.iter().any(|part| part.tiled.is_some());
        // What is made of many rows before they are multiplied would be made for every piece.
        if pieces.is_empty() || count > TILE_ROWS || tiled && !state.in_tiles(domain).blocks.is_empty() {
            // Tiles first: blocks of them may have rows that are not prompts.
            let panels = &linear.shares.tiled[worker];
            self.linear_tiles(&LinearTurn { linear, worker, panels, next }, state, count);
            let panels = &linear.shares.own[worker];
            self.linear_turn(&LinearTurn { linear, worker, panels, next }, state, count);
            return;
        }
        let mut turns = Turns::new(team, worker);
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
                Then::Gate { tiles: Some(_), .. } | Then::Activate { pairs: Some(_), .. }
                    if state.rows[row].phase == Phase::Prompt => {}
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

    /// Where a block of rows is laid out, of so many tiles of columns.
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

    /// Where the states of some parts of the context lie, for all queries of one row and head: byte offset and count.
    pub(crate) fn part(
        &self,
        a: &Attention,
        row: usize,
        head: usize,
        part: usize,
        count: usize,
    ) -> (usize, usize) {
        let state = a.sharing * a.state_len();
        let per_head = self.parts_row / a.kv_heads;
        (size_of::<f32>() * (row * self.parts_row + head * per_head + part * state), count * state)
    }

    /// Whoever has time takes the next unit: a head of some rows, or a part of its context.
    fn attend(&self, a: &Attention, stored: Option<&Stored>, state: &State, worker: usize, team: &Team) {
        let mut turns = Turns::new(team, worker);
        let mut unit = 0;
        // How much further on the worker's next unit is, if this one is the worker's.
        let mut take_turn = || {
            unit += 1;
            if unit - 1 != turns.unit {
                return None;
            }
            let distance = turns.next - turns.unit;
            turns.pass();
            Some(distance)
        };
        // Whether the worker's next unit is its first, of which nothing was written ahead.
        let mut first = true;
        for block in &state.blocks {
            for head in 0..a.kv_heads {
                match block.phase {
                    Phase::Prompt => {
                        if take_turn().is_some() {
                            match &self.scratch[worker].attention_tiles {
                                Some(scratch) => self.attend_tiles(a, state, worker, *block, head, scratch),
                                None => self.attend_prompt(a, state, worker, *block, head),
                            }
                        }
                    }
                    Phase::Decode if state.redundant => {
                        let row = state.rows[block.first];
                        let (begin, end) = a.range(row);
                        let parts = begin / PART..(end - 1) / PART + 1;
                        let mut queries = None;
                        for part in parts.clone() {
                            let Some(distance) = take_turn() else { continue };
                            let queries =
                                *queries.get_or_insert_with(|| self.queries(a, state, worker, *block, head));
                            if let Some(stored) = stored
                                && state.writes_late
                                && part == (end - 1) / PART
                            {
                                RowView::new(self, state, worker, block.first).remember(stored, head);
                            }
                            let later = part - parts.start + distance;
                            let (heads, part_then) = (later / parts.len(), parts.start + later % parts.len());
                            let after = if head + heads < a.kv_heads {
                                let position = begin.max(part_then * PART);
                                self.next(a, state, block.first, head + heads, position)
                            } else {
                                Next::UNKNOWN
                            };
                            let (offset, count) = self.part(a, block.first, head, part - begin / PART, 1);
                            // SAFETY: the worker's own scratch; each part of each head is one worker's.
                            let (states, kept) = unsafe {
                                (
                                    self.scratch[worker].states.get_mut(0, count),
                                    self.parts.get_mut(offset, count),
                                )
                            };
                            // Not in their place: it lies beside another worker's, and processors fetch lines in pairs.
                            self.attend_part(a, state, queries, row, head, part, after, states);
                            kept.copy_from_slice(states);
                        }
                    }
                    Phase::Decode => {
                        if let Some(distance) = take_turn() {
                            let later = head + distance;
                            let (row_then, head_then) =
                                (block.first + later / a.kv_heads, later % a.kv_heads);
                            let then = state.rows.get(row_then);
                            if let Some(stored) = stored
                                && state.writes_late
                            {
                                let remember = |row: usize, head: usize| {
                                    RowView::new(self, state, worker, row).remember(stored, head);
                                };
                                if first {
                                    remember(block.first, head);
                                }
                                // What was just written cannot be read before it has reached the cache, and its lines are
                                // often another worker's: so the next unit's is written before this one is read.
                                if then.is_some() {
                                    remember(row_then, head_then);
                                }
                                first = false;
                            }
                            let after = then.map_or(Next::UNKNOWN, |next| {
                                self.next(a, state, row_then, head_then, a.range(*next).0)
                            });
                            self.attend_row(a, state, worker, block.first, head, after);
                        }
                    }
                }
            }
        }
    }

    /// Copies the queries of a head of some rows to the worker's scratch, padded: `[row][query][dim]`.
    fn queries(&self, a: &Attention, state: &State, worker: usize, block: RowBlock, head: usize) -> &[f32] {
        let dim = padded(a.head_dim);
        let buffer = &self.lowered.buffers[a.q.0];
        let width = buffer.row_bytes / size_of::<f32>();
        // SAFETY: rotated queries are complete since the last barrier or are this worker's own; the scratch is its own.
        let (q, queries): (&[f32], &mut [f32]) = unsafe {
            let start = self.start(state, a.q, worker) + block.first * buffer.row_bytes;
            let count = block.rows * a.sharing * dim;
            (self.arena.get(start, block.rows * width), self.scratch[worker].queries.get_mut(0, count))
        };
        let heads = q.chunks_exact(width).flat_map(|row| {
            row[head * a.sharing * a.head_dim..][..a.sharing * a.head_dim].chunks_exact(a.head_dim)
        });
        for (query, q) in queries.chunks_exact_mut(dim).zip(heads) {
            query[..a.head_dim].copy_from_slice(q);
            query[a.head_dim..].fill(0.0);
        }
        queries
    }

    /// What each query of some rows sees of the block that begins at `base`: the first position, and the one after the last.
    pub(crate) fn visible(
        &self,
        a: &Attention,
        state: &State,
        worker: usize,
        rows: RowBlock,
        base: usize,
        positions: &Range<usize>,
    ) -> &[[u8; 2]] {
        // SAFETY: the worker's own scratch.
        let visible: &mut [[u8; 2]] =
            unsafe { self.scratch[worker].visible.get_mut(0, rows.rows * a.sharing) };
        let [first, last] = [rows.first, rows.first + rows.rows - 1].map(|row| a.range(state.rows[row]));
        if last.0 <= base && base + BLOCK <= first.1 {
            visible.fill([0, BLOCK as u8]);
            return visible;
        }
        for (i, visible) in visible.chunks_exact_mut(a.sharing).enumerate() {
            let (begin, end) = a.range(state.rows[rows.first + i]);
            let (begin, end) = (begin.max(positions.start), end.min(positions.end));
            let inside = |p: usize| p.saturating_sub(base).min(BLOCK) as u8;
            visible.fill([inside(begin), inside(end)]);
        }
        visible
    }

    /// The tile of one head that a decode row reads from a position on.
    fn next(&self, a: &Attention, state: &State, row: usize, head: usize, position: usize) -> Next {
        let row = state.rows[row];
        let number = state.slots.block(row.slot, a.cache.group, position);
        let positions = (a.range(row).1 - position / BLOCK * BLOCK).min(BLOCK);
        Next { keys: self.kv.keys(a.cache, number, head), positions }
    }

    /// The first positions of a tile as `f32`, in the worker's scratch.
    fn widened(&self, worker: usize, tile: AnyTile<'_>, dim: usize, positions: usize) -> WideTile<'_> {
        let (wide, elements) = (&self.scratch[worker].wide, BLOCK * dim);
        // SAFETY: the worker's own scratch, and different parts of it.
        let (keys, values): (&mut [f32], &mut [f32]) =
            unsafe { (wide.get_mut(0, elements), wide.get_mut(elements * size_of::<f32>(), elements)) };
        match tile {
            AnyTile::Half(tile) => self.isa.run(Widen { tile, dim, positions, keys, values }),
            AnyTile::Byte(tile) => self.isa.run(Widen { tile, dim, positions, keys, values }),
        }
        WideTile { keys, values }
    }

    /// One part of the context of one decode row; `after` is the tile that the worker goes on with.
    #[allow(clippy::too_many_arguments)]
    fn attend_part(
        &self,
        a: &Attention,
        state: &State,
        queries: &[f32],
        row: Row,
        head: usize,
        part: usize,
        after: Next,
        states: &mut [f32],
    ) {
        let (begin, end) = a.range(row);
        let (begin, end) = (begin.max(part * PART), end.min((part + 1) * PART));
        let (first, last) = (begin / BLOCK, (end - 1) / BLOCK);
        let tiles: [AnyTile<'_>; PART / BLOCK] = std::array::from_fn(|i| {
            let number = state.slots.block(row.slot, a.cache.group, (first + i).min(last) * BLOCK);
            // SAFETY: what the row sees was written before the last barrier, or by this worker.
            unsafe { self.kv.tile(a.cache, number, head) }
        });
        self.isa.run(AttendPart {
            tiles: &tiles[..last - first + 1],
            begin: begin - first * BLOCK,
            end: end - last * BLOCK,
            next: after,
            dim: padded(a.head_dim),
            queries,
            scale: a.scale,
            cap: a.cap,
            state: states,
        });
    }

    /// The whole context of one decode row, by parts; `after` as for [`Machine::attend_part`].
    fn attend_row(&self, a: &Attention, state: &State, worker: usize, row: usize, head: usize, after: Next) {
        let queries =
            self.queries(a, state, worker, RowBlock { first: row, rows: 1, phase: Phase::Decode }, head);
        let (begin, end) = a.range(state.rows[row]);
        let parts = begin / PART..(end - 1) / PART + 1;
        let stride = a.sharing * a.state_len();
        // SAFETY: the worker's own scratch.
        let states: &mut [f32] = unsafe { self.scratch[worker].states.get_mut(0, parts.len() * stride) };
        for (part, states) in parts.clone().zip(states.chunks_exact_mut(stride)) {
            let after =
                if part + 1 < parts.end { self.next(a, state, row, head, (part + 1) * PART) } else { after };
            self.attend_part(a, state, queries, state.rows[row], head, part, after, states);
        }
        for query in 0..a.sharing {
            let first = (head * a.sharing + query) * a.head_dim;
            // SAFETY: each row and head is one worker's.
            let out = unsafe { self.cut(a.out, row, &(first..first + a.head_dim)) };
            self.isa.run(Merge { parts: &states[query * a.state_len()..], stride, out });
        }
    }

    /// Some consecutive rows of a prompt.
    fn attend_prompt(&self, a: &Attention, state: &State, worker: usize, rows: RowBlock, head: usize) {
        let positions = a.positions(&state.rows[rows.first..rows.first + rows.rows]);
        let queries = self.queries(a, state, worker, rows, head);
        let count = rows.rows * a.sharing * a.state_len();
        // SAFETY: the worker's own scratch.
        let states: &mut [f32] = unsafe { self.scratch[worker].states.get_mut(0, count) };
        states.chunks_exact_mut(a.state_len()).for_each(clear);
        for block in positions.start / BLOCK..positions.end.div_ceil(BLOCK) {
            let base = block * BLOCK;
            let visible = self.visible(a, state, worker, rows, base, &positions);
            let number = state.slots.block(state.rows[rows.first].slot, a.cache.group, base);
            // SAFETY: what the rows see was written before the last barrier.
            let tile = unsafe { self.kv.tile(a.cache, number, head) };
            let (dim, scale, cap) = (padded(a.head_dim), a.scale, a.cap);
            let seen = visible.iter().map(|[_, end]| usize::from(*end)).max().unwrap_or(0);
            let tile = self.widened(worker, tile, dim, seen);
            self.isa.run(AttendBlock { tile, dim, queries, visible, scale, cap, state: &mut *states });
        }
        for (i, result) in states.chunks_exact(a.state_len()).enumerate() {
            let (row, query) = (rows.first + i / a.sharing, i % a.sharing);
            let column = (head * a.sharing + query) * a.head_dim;
            // SAFETY: each row and head is one worker's.
            let out = unsafe { self.cut(a.out, row, &(column..column + a.head_dim)) };
            self.isa.run(Merge { parts: result, stride: result.len(), out });
        }
    }

    /// How much rows attend to stored positions, in some heads.
    fn weigh(&self, step: &WeightsStep, state: &State, worker: usize, workers: usize) {
        let units = state
            .rows
            .iter()
            .enumerate()
            .flat_map(|(i, row)| step.heads.iter().enumerate().map(move |h| (i, row, h)));
        for (i, row, (number, head)) in units.skip(worker).step_by(workers) {
            let columns = number * step.positions..(number + 1) * step.positions;
            let dim = padded(head.head_dim);
            let buffer = &self.lowered.buffers[head.q.0];
            let start =
                self.start(state, head.q, worker) + i * buffer.row_bytes + head.first * size_of::<f32>();
            // SAFETY: queries are complete since the last barrier or are this worker's own; the scratch is its own; each row
            // and head is one worker's.
            let (q, query, out): (&[f32], &mut [f32], _) = unsafe {
                (
                    self.arena.get(start, head.head_dim),
                    self.scratch[worker].queries.get_mut(0, dim),
                    self.cut(step.out, i, &columns),
                )
            };
            query.fill(0.0);
            query[..head.head_dim].copy_from_slice(q);
            let scale = head.scale;
            for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                let number = state.slots.block(row.slot, head.cache.group, block * BLOCK);
                // SAFETY: another program has written what is seen.
                match unsafe { self.kv.tile(head.cache, number, head.kv_head) } {
                    AnyTile::Half(tile) => self.isa.run(ScoreBlock { tile, dim, query, scale, out }),
                    AnyTile::Byte(tile) => self.isa.run(ScoreBlock { tile, dim, query, scale, out }),
                }
            }
            self.isa.run(Soften { x: out });
        }
    }
}
