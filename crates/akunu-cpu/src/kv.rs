//! Keys and values in F16, paged.

use akunu_program::program::{CacheLayer, KvGroup};
use akunu_program::{BLOCK, BlockCopy, Error, KvStore, Result};

use crate::memory::Shared;
use crate::simd::LANES;

/// All groups.
pub(crate) struct CpuKv {
    groups: Vec<Group>,
}

struct Group {
    shape: KvGroup,
    blocks: u32,
    /// `[block][layer][kv_head]`, each a tile: keys `[position / 16][dim][position % 16]`, then values `[position][dim]`.
    data: Shared,
}

impl KvStore for CpuKv {}

/// A head's size, padded to whole vectors.
pub(crate) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES)
}

impl Group {
    /// Numbers in the keys, or the values, of one tile.
    fn half_tile(&self) -> usize {
        BLOCK * padded(self.shape.head_dim)
    }

    /// Bytes of a block: all layers and heads, keys and values.
    fn block_bytes(&self) -> usize {
        self.shape.layers * self.shape.kv_heads * 2 * self.half_tile() * size_of::<u16>()
    }

    fn tile(&self, layer: usize, block: u32, head: usize) -> usize {
        let tile = layer * self.shape.kv_heads + head;
        block as usize * self.block_bytes() + tile * 2 * self.half_tile() * size_of::<u16>()
    }
}

impl CpuKv {
    pub(crate) fn new(groups: &[KvGroup], blocks: &[u32]) -> Result<CpuKv> {
        if groups.len() != blocks.len() {
            return Err(Error::Batch(format!("{} KV groups, {} block counts", groups.len(), blocks.len())));
        }
        let group = |(shape, &blocks): (&KvGroup, &u32)| {
            let mut group = Group { shape: shape.clone(), blocks, data: Shared::new(0) };
            group.data = Shared::new(blocks as usize * group.block_bytes());
            group
        };
        Ok(CpuKv { groups: groups.iter().zip(blocks).map(group).collect() })
    }

    /// Whether the store was made for these groups.
    pub(crate) fn fits(&self, groups: &[KvGroup]) -> bool {
        self.groups.iter().map(|g| &g.shape).eq(groups)
    }

    /// Blocks of each group.
    pub(crate) fn blocks(&self) -> Vec<u32> {
        self.groups.iter().map(|group| group.blocks).collect()
    }

    /// The keys and values of one head in one block.
    ///
    /// # Safety
    /// Nobody writes the tile while the views live.
    pub(crate) unsafe fn tile(&self, cache: CacheLayer, block: u32, head: usize) -> (&[u16], &[u16]) {
        let group = &self.groups[cache.group.0 as usize];
        // SAFETY: the caller's promise.
        let tile: &[u16] =
            unsafe { group.data.get(group.tile(cache.layer, block, head), 2 * group.half_tile()) };
        tile.split_at(group.half_tile())
    }

    /// Where the tile of one head in one block begins, for [`crate::kernels::attention::Remember`].
    pub(crate) fn tile_start(&self, cache: CacheLayer, block: u32, head: usize) -> *mut u16 {
        let group = &self.groups[cache.group.0 as usize];
        group.data.start_of(group.tile(cache.layer, block, head), 2 * group.half_tile())
    }

    /// Copies a block, all layers.
    ///
    /// # Safety
    /// Nobody touches either block meanwhile.
    pub(crate) unsafe fn copy(&self, copy: BlockCopy) {
        let group = &self.groups[copy.group.0 as usize];
        if copy.from != copy.to {
            let bytes = group.block_bytes();
            // SAFETY: two different blocks, and nobody else touches them.
            unsafe {
                let to = group.data.get_mut::<u8>(copy.to as usize * bytes, bytes);
                to.copy_from_slice(group.data.get(copy.from as usize * bytes, bytes));
            }
        }
    }
}
