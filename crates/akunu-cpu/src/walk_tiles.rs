//! The parts of wide steps that prompt rows do in tiles.

use akunu_program::BLOCK;

use crate::exec::{Machine, RowBlock, State};
use crate::kernels::cache::AnyTile;
use crate::kernels::product::Input;
use crate::kernels::tiles::{self, AttentionScratch, TileAttention, TileProduct};
use crate::kv::padded;
use crate::plan::BufferId;
use crate::step::{Attention, LinearPart, Then};

impl Machine {
    /// Products of the prompt rows, of parts that take them in tiles. Their blocks are multiplied as a whole: what other rows in
    /// them get is anything.
    pub(crate) fn linear_tiles(
        &self,
        parts: &[LinearPart],
        then: &Then,
        state: &State,
        worker: usize,
        count: usize,
    ) {
        let (Some(scratch), Some(first)) = (&self.scratch[worker].tiles, parts.first()) else { return };
        let blocks = &state.in_tiles(self.lowered.buffers[first.out.0].domain).blocks;
        if blocks.is_empty() {
            return;
        }
        let product = |part: &'_ LinearPart| {
            let (tiled, matrix) = (part.tiled.as_ref()?, self.weights.matrix(part.weight).ok()?);
            let buffer = &self.lowered.buffers[tiled.x.0];
            let bytes = count.next_multiple_of(tiles::TILE_ROWS) * buffer.row_bytes;
            // SAFETY: prompt rows were split before the last barrier.
            let tiles = unsafe { self.arena.get(buffer.offset, bytes) };
            let mut product = self.part_product(part, matrix, worker, 0..count, Input::Floats(&[]));
            product.panels = tiled.panels[worker].clone();
            Some(TileProduct { product, kernel: tiled.product, tiles, blocks, scratch })
        };
        let start_of = |id: BufferId| -> *mut u8 {
            let buffer = &self.lowered.buffers[id.0];
            self.arena.start_of(buffer.offset, count.next_multiple_of(tiles::TILE_ROWS) * buffer.row_bytes)
        };
        match (then, parts) {
            (&Then::Gate { activation, tiles: Some((form, out)), .. }, [gate, up]) => {
                if let (Some(gate), Some(up)) = (product(gate), product(up)) {
                    gate.run_gated(&up, activation, form, start_of(out));
                }
            }
            (&Then::Activate { activation, pairs: Some(out) }, [part]) => {
                if let Some(product) = product(part) {
                    product.run_activated(activation, start_of(out));
                }
            }
            _ => parts.iter().filter_map(product).for_each(|product| product.run()),
        }
    }

    /// Attention of one head of some consecutive rows of a prompt.
    pub(crate) fn attend_tiles(
        &self,
        a: &Attention,
        state: &State,
        worker: usize,
        rows: RowBlock,
        head: usize,
        scratch: &AttentionScratch,
    ) {
        let (dim, scale, cap) = (padded(a.head_dim), a.scale, a.cap);
        let attention = TileAttention { scratch, queries: rows.rows * a.sharing, dim, scale, cap };
        attention.clear();
        let places = (0..attention.queries).map(|query| {
            let column = (head * a.sharing + query % a.sharing) * a.head_dim;
            (query, rows.first + query / a.sharing, column..column + a.head_dim)
        });
        for (query, row, columns) in places.clone() {
            // SAFETY: rotated queries are complete since the last barrier, and nobody writes them in this step. AMX is
            // available where there is scratch for it.
            unsafe { attention.take(query, self.cut(a.q, row, &columns)) };
        }
        let positions = a.positions(&state.rows[rows.first..rows.first + rows.rows]);
        for block in positions.start / BLOCK..=(positions.end - 1) / BLOCK {
            let base = block * BLOCK;
            let visible = self.visible(a, state, worker, rows, base, &positions);
            let number = state.slots.block(state.rows[rows.first].slot, a.cache.group, base);
            // SAFETY: what the rows see was written before the last barrier; AMX as above.
            unsafe {
                match self.kv.tile(a.cache, number, head) {
                    AnyTile::Half(tile) => attention.block(tile, visible),
                    AnyTile::Byte(tile) => attention.block(tile, visible),
                }
            }
        }
        for (query, row, columns) in places {
            // SAFETY: each row and head is one worker's; AMX as above.
            unsafe { attention.finish(query, self.cut(a.out, row, &columns)) };
        }
    }
}
