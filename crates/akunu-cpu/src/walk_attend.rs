//! Attention, of rows one by one and of prompts outside of tiles.

use std::ops::Range;

use akunu_program::slots::Row;
use akunu_program::{BLOCK, Phase};

use crate::exec::{Machine, PART};
use crate::kernels::attention::{Merge, Soften, state_len};
use crate::kernels::cache::{AnyTile, WideTile, Widen};
use crate::kernels::part::{AttendPart, Next, ScoreBlock};
use crate::kernels::prompt::{AttendBlock, Finish, Level, PromptScratch, factor};
use crate::kernels::rows::Cap;
use crate::kv::padded;
use crate::pool::{Team, Turns};
use crate::state::{RowBlock, State};
use crate::step::{Attention, Integers, Rotation, WeightsStep};
use crate::walk_rows::RowView;

impl Attention {
    /// `f32`s of one query's state.
    pub(crate) fn state_len(&self) -> usize {
        state_len(padded(self.head_dim))
    }

    /// The first position a row sees, and the one after the last.
    pub(crate) fn range(&self, row: Row) -> (usize, usize) {
        ((row.position as usize + 1).saturating_sub(self.window), row.sees(self.mask) as usize)
    }

    /// What some consecutive rows of one sequence see together.
    pub(crate) fn positions(&self, rows: &[Row]) -> Range<usize> {
        let begin = rows.first().map_or(0, |row| self.range(*row).0);
        begin..rows.last().map_or(begin, |row| self.range(*row).1)
    }
}

/// A worker's part of attention.
#[derive(Clone, Copy)]
pub(crate) struct Attending<'a> {
    pub(crate) a: &'a Attention,
    pub(crate) rotation: Option<&'a Rotation>,
    pub(crate) makes: &'a [Integers],
    pub(crate) state: &'a State,
    pub(crate) worker: usize,
}

/// How often each worker takes heads of several rows with equally long contexts, about: often enough to leave nobody waiting for long.
const TAKES: usize = 8;

/// The units of a step, counted as a worker passes them.
struct Units<'a> {
    turns: Turns<'a>,
    passed: usize,
}

impl Units<'_> {
    /// Passes a unit; if it is the worker's, how much further on its next one is.
    fn take(&mut self) -> Option<usize> {
        self.passed += 1;
        if self.passed - 1 != self.turns.unit {
            return None;
        }
        let distance = self.turns.next - self.turns.unit;
        self.turns.pass();
        Some(distance)
    }
}

/// A part of the context of one head of a decode row.
#[derive(Clone, Copy)]
struct ContextPart {
    row: usize,
    head: usize,
    part: usize,
}

impl Machine {
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

    /// How many units a worker takes together. Of several short contexts each is so little work that taking it would be a part of it.
    fn heads_together(&self, a: &Attention, state: &State, workers: usize) -> usize {
        if state.redundant || state.blocks.iter().any(|block| block.phase != Phase::Decode) {
            return 1;
        }
        let seen = || state.rows.iter().map(|row| a.range(*row)).map(|(begin, end)| end - begin);
        let longest = seen().max().unwrap_or(1).max(1);
        (seen().sum::<usize>() * a.kv_heads / (TAKES * workers * longest)).max(1)
    }

    /// Whoever has time takes the next unit: a head of some rows, or a part of its context.
    pub(crate) fn attend(&self, by: &Attending<'_>, team: &Team) {
        let Attending { a, state, worker, .. } = *by;
        let together = self.heads_together(a, state, team.size());
        let mut units = Units { turns: Turns::new(team, worker, together), passed: 0 };
        // Whether the worker's next unit is its first, of which nothing was written ahead.
        let mut first = true;
        for block in &state.blocks {
            for head in 0..a.kv_heads {
                if block.phase == Phase::Decode && state.redundant {
                    self.attend_by_parts(by, *block, head, &mut units);
                    continue;
                }
                let Some(distance) = units.take() else { continue };
                if block.phase == Phase::Decode {
                    self.attend_whole(by, block.first, head, distance, first);
                    first = false;
                    continue;
                }
                match &self.scratch[worker].attention_tiles {
                    Some(scratch) => self.attend_tiles(by, *block, head, scratch),
                    None => self.attend_prompt(by, *block, head),
                }
            }
        }
    }

    /// One head of a decode row of whose context each worker takes some parts.
    fn attend_by_parts(&self, by: &Attending<'_>, block: RowBlock, head: usize, units: &mut Units<'_>) {
        let Attending { a, state, worker, .. } = *by;
        let row = state.rows[block.first];
        let (begin, end) = a.range(row);
        let parts = begin / PART..(end - 1) / PART + 1;
        let mut queries = None;
        for part in parts.clone() {
            let Some(distance) = units.take() else { continue };
            let queries = *queries.get_or_insert_with(|| self.queries_of_row(by, block.first, head));
            if let Some(rotation) = by.rotation
                && state.writes_late
                && part == (end - 1) / PART
            {
                RowView::new(self, state, worker, block.first).remember(&rotation.stored, head);
            }
            let later = part - parts.start + distance;
            let (heads, part_then) = (later / parts.len(), parts.start + later % parts.len());
            let after = if head + heads < a.kv_heads {
                self.next(by, block.first, head + heads, begin.max(part_then * PART))
            } else {
                Next::UNKNOWN
            };
            let (offset, count) = self.part(a, block.first, head, part - begin / PART, 1);
            // SAFETY: the worker's own scratch; each part of each head is one worker's.
            let (states, kept) =
                unsafe { (self.scratch[worker].states.get_mut(0, count), self.parts.get_mut(offset, count)) };
            // Not in their place: it lies beside another worker's, and processors fetch lines in pairs.
            self.attend_part(by, queries, ContextPart { row: block.first, head, part }, after, states);
            kept.copy_from_slice(states);
        }
    }

    /// One head of a decode row by one worker, whose next unit is so much further on.
    fn attend_whole(&self, by: &Attending<'_>, row: usize, head: usize, distance: usize, first: bool) {
        let Attending { a, rotation, makes, state, worker } = *by;
        let later = head + distance;
        let (row_then, head_then) = (row + later / a.kv_heads, later % a.kv_heads);
        let then = state.rows.get(row_then);
        let view = |row| RowView::new(self, state, worker, row);
        let rotate = |row: usize, head: usize| {
            if let Some(rotation) = rotation.filter(|_| state.rotates_late()) {
                view(row).rotate_head(rotation, head, a.sharing);
            }
        };
        if first {
            rotate(row, head);
        }
        let after = then.map_or(Next::UNKNOWN, |next| self.next(by, row_then, head_then, a.range(*next).0));
        self.attend_row(by, row, head, after);
        let width = a.sharing * a.head_dim;
        let made = makes.iter().filter(|integers| state.is_made(integers.by, row));
        made.for_each(|integers| view(row).make(integers, head * width..(head + 1) * width));
        // Where its key is written was often another worker's, and has been asked for meanwhile if the context is short.
        if then.is_some() {
            rotate(row_then, head_then);
        }
    }

    /// The queries of a row that share a head.
    fn heads(&self, by: &Attending<'_>, row: usize, head: usize) -> &[f32] {
        let Attending { a, state, worker, .. } = *by;
        let row = self.start(state, a.q, worker) + row * self.lowered.buffers[a.q.0].row_bytes;
        let count = a.sharing * a.head_dim;
        // SAFETY: rotated queries are complete since the last barrier or are this worker's own.
        unsafe { self.arena.get(row + head * count * size_of::<f32>(), count) }
    }

    /// The same, padded: `[query][dim]`. Those that need no padding are left where they are.
    fn queries_of_row(&self, by: &Attending<'_>, row: usize, head: usize) -> &[f32] {
        if padded(by.a.head_dim) == by.a.head_dim {
            return self.heads(by, row, head);
        }
        self.queries(by, RowBlock { first: row, rows: 1, phase: Phase::Decode }, head)
    }

    /// Copies the queries of a head of some rows to the worker's scratch, padded: `[row][query][dim]`.
    fn queries(&self, by: &Attending<'_>, block: RowBlock, head: usize) -> &[f32] {
        let Attending { a, worker, .. } = *by;
        let dim = padded(a.head_dim);
        // SAFETY: the scratch is the worker's own.
        let queries: &mut [f32] =
            unsafe { self.scratch[worker].queries.get_mut(0, block.rows * a.sharing * dim) };
        for (row, queries) in (block.first..).zip(queries.chunks_exact_mut(a.sharing * dim)) {
            let heads = self.heads(by, row, head).chunks_exact(a.head_dim);
            for (query, q) in queries.chunks_exact_mut(dim).zip(heads) {
                query[..a.head_dim].copy_from_slice(q);
                query[a.head_dim..].fill(0.0);
            }
        }
        queries
    }

    /// What each query of some rows sees of the block that begins at `base`: the first position, and the one after the last.
    pub(crate) fn visible(
        &self,
        by: &Attending<'_>,
        rows: RowBlock,
        base: usize,
        positions: &Range<usize>,
    ) -> &[[u8; 2]] {
        let Attending { a, state, worker, .. } = *by;
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
    fn next(&self, by: &Attending<'_>, row: usize, head: usize, position: usize) -> Next {
        let Attending { a, state, .. } = *by;
        let row = state.rows[row];
        let number = state.slots.block(row.slot, a.cache.group, position);
        let positions = (a.range(row).1 - position / BLOCK * BLOCK).min(BLOCK);
        Next { keys: self.kv.keys(a.cache, number, head), positions }
    }

    /// The first positions of a tile as `f32`, in the worker's scratch.
    fn widened(&self, worker: usize, tile: AnyTile<'_>, dim: usize, positions: usize) -> WideTile<'_> {
        let (wide, elements) = (&self.scratch[worker].prompt.wide, BLOCK * dim);
        // SAFETY: the worker's own scratch, and different parts of it.
        let (keys, values): (&mut [f32], &mut [f32]) =
            unsafe { (wide.get_mut(0, elements), wide.get_mut(elements * size_of::<f32>(), elements)) };
        match tile {
            AnyTile::Half(tile) => self.isa.run(Widen { tile, dim, positions, keys, values }),
            AnyTile::Byte(tile) => self.isa.run(Widen { tile, dim, positions, keys, values }),
        }
        WideTile { keys, values }
    }

    /// One part of the context of some queries of a row; `after` is the tile that the worker goes on with.
    fn attend_part(
        &self,
        by: &Attending<'_>,
        queries: &[f32],
        of: ContextPart,
        after: Next,
        states: &mut [f32],
    ) {
        let Attending { a, state, .. } = *by;
        let ContextPart { row, head, part } = of;
        let row = state.rows[row];
        let (begin, end) = a.range(row);
        let (begin, end) = (begin.max(part * PART), end.min((part + 1) * PART));
        let (first, last) = (begin / BLOCK, (end - 1) / BLOCK);
        let tile = |i: usize| {
            let number = state.slots.block(row.slot, a.cache.group, (first + i) * BLOCK);
            // SAFETY: what the row sees was written before the last barrier, or by this worker.
            unsafe { self.kv.tile(a.cache, number, head) }
        };
        let mut tiles = [tile(0); PART / BLOCK];
        (1..=last - first).for_each(|i| tiles[i] = tile(i));
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
    fn attend_row(&self, by: &Attending<'_>, row: usize, head: usize, after: Next) {
        let Attending { a, state, worker, .. } = *by;
        let queries = self.queries_of_row(by, row, head);
        let (begin, end) = a.range(state.rows[row]);
        let parts = begin / PART..(end - 1) / PART + 1;
        let stride = a.sharing * a.state_len();
        // SAFETY: the worker's own scratch.
        let states: &mut [f32] = unsafe { self.scratch[worker].states.get_mut(0, parts.len() * stride) };
        for (part, states) in parts.clone().zip(states.chunks_exact_mut(stride)) {
            let after =
                if part + 1 < parts.end { self.next(by, row, head, (part + 1) * PART) } else { after };
            self.attend_part(by, queries, ContextPart { row, head, part }, after, states);
        }
        for query in 0..a.sharing {
            let first = (head * a.sharing + query) * a.head_dim;
            // SAFETY: each row and head is one worker's.
            let out = unsafe { self.cut(a.out, row, &(first..first + a.head_dim)) };
            self.isa.run(Merge { parts: &states[query * a.state_len()..], stride, out });
        }
    }

    /// Some consecutive rows of a prompt.
    fn attend_prompt(&self, by: &Attending<'_>, rows: RowBlock, head: usize) {
        let Attending { a, state, worker, .. } = *by;
        let (dim, cap, length) = (padded(a.head_dim), a.cap, a.state_len());
        let positions = a.positions(&state.rows[rows.first..rows.first + rows.rows]);
        self.queries(by, rows, head);
        let (count, scratch) = (rows.rows * a.sharing, &self.scratch[worker]);
        let room = PromptScratch::queries(count);
        // SAFETY: the worker's own scratch.
        let (queries, weights, levels, sums): (&mut [f32], &mut [f32], &mut [Level], &mut [f32]) = unsafe {
            (
                scratch.queries.get_mut(0, room * dim),
                scratch.prompt.weights.get_mut(0, room * BLOCK),
                scratch.prompt.levels.get_mut(0, room),
                scratch.states.get_mut(0, room * length),
            )
        };
        self.isa.run(Cap { x: &mut queries[..count * dim], scale: factor(a.scale, cap), cap: None });
        levels.fill(Level::NONE);
        sums.fill(0.0);
        for block in positions.start / BLOCK..positions.end.div_ceil(BLOCK) {
            let base = block * BLOCK;
            let visible = self.visible(by, rows, base, &positions);
            let number = state.slots.block(state.rows[rows.first].slot, a.cache.group, base);
            // SAFETY: what the rows see was written before the last barrier.
            let tile = unsafe { self.kv.tile(a.cache, number, head) };
            let seen = visible.iter().map(|[_, end]| usize::from(*end)).max().unwrap_or(0);
            let tile = self.widened(worker, tile, dim, seen);
            let weights = weights.as_chunks_mut().0;
            self.isa.run(AttendBlock { tile, dim, cap, visible, queries, weights, levels, sums });
        }
        let columns = head * a.sharing * a.head_dim..(head + 1) * a.sharing * a.head_dim;
        for (i, sums) in sums[..count * length].chunks_exact(a.sharing * length).enumerate() {
            // SAFETY: each row and head is one worker's.
            let out = unsafe { self.cut(a.out, rows.first + i, &columns) };
            self.isa.run(Finish { sums, dim, head_dim: a.head_dim, out });
        }
    }

    /// How much rows attend to stored positions, in some heads.
    pub(crate) fn weigh(&self, step: &WeightsStep, state: &State, worker: usize, workers: usize) {
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
