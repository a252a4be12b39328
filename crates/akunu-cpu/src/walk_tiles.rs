//! The parts of wide steps that prompt rows do in tiles.

use akunu_program::BLOCK;

use crate::exec::Machine;
use crate::kernels::cache::AnyTile;
use crate::kernels::product::Input;
use crate::kernels::tiles::{self, AttentionScratch, TileAttention, TileProduct};
use crate::kv::padded;
use crate::plan::BufferId;
use crate::state::{RowBlock, State};
use crate::step::{LinearPart, Then};
use crate::walk_attend::Attending;
use crate::walk_wide::LinearTurn;

impl Machine {
    /// Products of the prompt rows, of parts that take them in tiles. Their blocks are multiplied as a whole: what other rows in
    /// them get is anything.
    pub(crate) fn linear_tiles(&self, turn: &LinearTurn<'_>, state: &State, count: usize) {
        let Some(scratch) = &self.scratch[turn.worker].tiles else { return };
        let blocks = &state.in_tiles(self.lowered.buffers[turn.linear.parts[0].out.0].domain).blocks;
        if blocks.is_empty() {
            return;
        }
        let product = |part: usize| {
            let LinearPart { weight, tiled, .. } = &turn.linear.parts[part];
            let (tiled, matrix) = (tiled.as_ref()?, self.weights.matrix(*weight).ok()?);
            let buffer = &self.lowered.buffers[tiled.x.0];
            let bytes = count.next_multiple_of(tiles::TILE_ROWS) * buffer.row_bytes;
            // SAFETY: prompt rows were split before the last barrier.
            let tiles = unsafe { self.arena.get(buffer.offset, bytes) };
            let product = self.part_product(turn, part, matrix, 0..count, Input::Floats(&[]));
            Some(TileProduct { product, kernel: tiled.product, tiles, blocks, scratch })
        };
        let start_of = |id: BufferId| -> *mut u8 {
            let buffer = &self.lowered.buffers[id.0];
            self.arena.start_of(buffer.offset, count.next_multiple_of(tiles::TILE_ROWS) * buffer.row_bytes)
        };
        match turn.linear.then {
            Then::Gate { activation, tiles: Some((form, out)), .. } => {
                if let (Some(gate), Some(up)) = (product(0), product(1)) {
                    gate.run_gated(&up, activation, form, start_of(out));
                }
            }
            Then::Activate { activation, pairs: Some(out) } => {
                if let Some(product) = product(0) {
                    product.run_activated(activation, start_of(out));
                }
            }
            _ => (0..turn.linear.parts.len()).filter_map(product).for_each(|product| product.run()),
        }
    }

    /// Attention of one head of some consecutive rows of a prompt.
    pub(crate) fn attend_tiles(
        &self,
        by: &Attending<'_>,
        rows: RowBlock,
        head: usize,
        scratch: &AttentionScratch,
    ) {
        let Attending { a, state, .. } = *by;
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
            let visible = self.visible(by, rows, base, &positions);
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
