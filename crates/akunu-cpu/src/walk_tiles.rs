//! The parts of wide steps that prompt rows do in tiles.

use akunu_program::BLOCK;

use crate::exec::{Machine, RowBlock, State};
use crate::kernels::amx::{self, AttentionScratch, TileAttention, TileProduct};
use crate::kernels::product::Product;
use crate::kv::{AnyTile, padded};
use crate::step::{Attention, Tiled};

impl Machine {
    /// A product of the prompt rows. Their blocks are multiplied as a whole: what other rows in them get is anything.
    pub(crate) fn multiply_tiles(
        &self,
        tiled: Tiled,
        state: &State,
        product: Product<'_>,
        scratch: &amx::Scratch,
    ) {
        if state.prompt_blocks.is_empty() {
            return;
        }
        let buffer = &self.lowered.buffers[tiled.x.0];
        let bytes = product.count.next_multiple_of(amx::TILE_ROWS) * buffer.row_bytes;
        // SAFETY: prompt rows were split before the last barrier.
        let tiles = unsafe { self.arena.get(buffer.offset, bytes) };
        (tiled.product)(&TileProduct { product, tiles, blocks: &state.prompt_blocks, scratch });
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
        let first = state.rows[rows.first].position as usize;
        let positions = a.range(first).0..first + rows.rows;
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
