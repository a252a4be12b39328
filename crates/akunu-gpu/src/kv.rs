//! Keys and values in F16, paged: one buffer for each group, `[block][layer][kv_head]` tiles as `kernels/attention.metal` has
//! them.

use akunu_program::program::KvGroup;
use akunu_program::{BLOCK, BlockCopy, Error, KvStore, Result};

use crate::host::Host;

/// A head's size, padded to whole groups of eight.
pub(crate) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(8)
}

pub(crate) struct GpuKv<H: Host> {
    groups: Vec<Group<H>>,
}

struct Group<H: Host> {
    shape: KvGroup,
    blocks: u32,
    buffer: H::Buffer,
}

impl<H: Host> KvStore for GpuKv<H> {}

fn block_bytes(shape: &KvGroup) -> usize {
    shape.layers * shape.kv_heads * 2 * BLOCK * padded(shape.head_dim) * size_of::<u16>()
}

impl<H: Host> GpuKv<H> {
    pub(crate) fn new(host: &H, groups: &[KvGroup], blocks: &[u32]) -> Result<GpuKv<H>> {
        if groups.len() != blocks.len() {
            return Err(Error::Batch(format!("{} KV groups, {} block counts", groups.len(), blocks.len())));
        }
        let group = |(shape, &blocks): (&KvGroup, &u32)| {
            let buffer = host.allocate(blocks as usize * block_bytes(shape))?;
            Ok(Group { shape: shape.clone(), blocks, buffer })
        };
        Ok(GpuKv { groups: groups.iter().zip(blocks).map(group).collect::<Result<_>>()? })
    }

    /// Whether the store was made for these groups.
    pub(crate) fn fits(&self, groups: &[KvGroup]) -> bool {
        self.groups.iter().map(|g| &g.shape).eq(groups)
    }

    /// Blocks of each group.
    pub(crate) fn blocks(&self) -> Vec<u32> {
        self.groups.iter().map(|group| group.blocks).collect()
    }

    pub(crate) fn buffer(&self, group: u32) -> &H::Buffer {
        &self.groups[group as usize].buffer
    }

    /// Copies a block, all layers.
    pub(crate) fn copy(&self, host: &H, copy: BlockCopy) -> Result<()> {
        let group = &self.groups[copy.group.0 as usize];
        let bytes = block_bytes(&group.shape);
        if copy.from == copy.to {
            return Ok(());
        }
        host.copy(&group.buffer, copy.from as usize * bytes, copy.to as usize * bytes, bytes)
    }
}
