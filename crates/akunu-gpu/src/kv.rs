//! Keys and values, paged: one buffer for each group, `[block][layer][kv_head]` tiles as `kernels/attention.metal` has
//! them.

use akunu_program::program::KvGroup;
use akunu_program::{BLOCK, BlockCopy, Error, KV_GROUP, KvStore, KvType, Result};

use crate::host::Host;

/// A head's size, padded to whole groups of eight.
pub(crate) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(8)
}

pub(crate) struct GpuKv<H: Host> {
    groups: Vec<Group<H>>,
    pub(crate) kind: KvType,
}

struct Group<H: Host> {
    shape: KvGroup,
    blocks: u32,
    buffer: H::Buffer,
}

impl<H: Host> KvStore for GpuKv<H> {}

fn block_bytes(shape: &KvGroup, kind: KvType) -> usize {
    let head = match kind {
        KvType::F16 => padded(shape.head_dim) * size_of::<u16>(),
        KvType::Q8_0 => padded(shape.head_dim) + shape.head_dim.div_ceil(KV_GROUP) * size_of::<u16>(),
    };
    shape.layers * shape.kv_heads * 2 * BLOCK * head
}

impl<H: Host> GpuKv<H> {
    pub(crate) fn new(host: &H, groups: &[KvGroup], blocks: &[u32], kind: KvType) -> Result<GpuKv<H>> {
        if groups.len() != blocks.len() {
            return Err(Error::Batch(format!("{} KV groups, {} block counts", groups.len(), blocks.len())));
        }
        let group = |(shape, &blocks): (&KvGroup, &u32)| {
            let buffer = host.allocate(blocks as usize * block_bytes(shape, kind))?;
            Ok(Group { shape: shape.clone(), blocks, buffer })
        };
        Ok(GpuKv { groups: groups.iter().zip(blocks).map(group).collect::<Result<_>>()?, kind })
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
        let bytes = block_bytes(&group.shape, self.kind);
        if copy.from == copy.to {
            return Ok(());
        }
        host.copy(&group.buffer, copy.from as usize * bytes, copy.to as usize * bytes, bytes)
    }
}
