//! Keys and values, paged.

use akunu_program::program::{CacheLayer, KvGroup};
use akunu_program::{BLOCK, BlockCopy, Error, KeyShift, KvStore, KvType, Result};

use crate::Isa;
use crate::kernels::cache::{AnyTile, ByteTile, HalfTile, Order, Plane, Recall, Remember, groups};
use crate::kernels::rows::Rotate;
use crate::memory::{ALIGN, Shared};
use crate::rope::RopeRows;
use crate::simd::LANES;

/// All groups.
pub(crate) struct CpuKv {
    kind: KvType,
    groups: Vec<Group>,
}

struct Group {
    shape: KvGroup,
    blocks: u32,
    /// `[block][layer][kv_head]`, each a tile of several planes.
    data: Shared,
    planes: Planes,
}

/// Where the planes of a tile begin, in bytes.
#[derive(Clone, Copy)]
struct Planes {
    values: usize,
    /// Of an 8-bit cache.
    key_scales: usize,
    value_scales: usize,
    /// Bytes of a tile.
    tile: usize,
}

impl KvStore for CpuKv {}

/// A head's size, padded to whole vectors.
pub(crate) fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES)
}

impl Planes {
    fn new(kind: KvType, head_dim: usize) -> Planes {
        let elements = BLOCK * padded(head_dim);
        match kind {
            KvType::F16 => {
                let values = elements * size_of::<u16>();
                Planes { values, key_scales: 0, value_scales: 0, tile: 2 * values }
            }
            KvType::Q8_0 => {
                let scales = BLOCK * groups(head_dim) * size_of::<u16>();
                let key_scales = 2 * elements;
                let tile = (key_scales + 2 * scales).next_multiple_of(ALIGN);
                Planes { values: elements, key_scales, value_scales: key_scales + scales, tile }
            }
        }
    }
}

impl Group {
    fn new(shape: &KvGroup, blocks: u32, kind: KvType) -> Result<Group> {
        let planes = Planes::new(kind, shape.head_dim);
        let bytes = blocks as usize * shape.layers * shape.kv_heads * planes.tile;
        let data = Shared::for_user(bytes, "the cache of keys and values")?;
        Ok(Group { shape: shape.clone(), blocks, data, planes })
    }

    /// Elements of the keys, or the values, of one tile.
    fn elements(&self) -> usize {
        BLOCK * padded(self.shape.head_dim)
    }

    /// Scales of the keys, or the values, of one tile of an 8-bit cache.
    fn scales(&self) -> usize {
        BLOCK * groups(self.shape.head_dim)
    }

    /// Bytes of a block: all layers and heads.
    fn block_bytes(&self) -> usize {
        self.shape.layers * self.shape.kv_heads * self.planes.tile
    }

    /// The byte at which a tile begins.
    fn tile(&self, layer: usize, block: u32, head: usize) -> usize {
        block as usize * self.block_bytes() + (layer * self.shape.kv_heads + head) * self.planes.tile
    }
}

impl CpuKv {
    pub(crate) fn new(groups: &[KvGroup], blocks: &[u32], kind: KvType) -> Result<CpuKv> {
        if groups.len() != blocks.len() {
            return Err(Error::Batch(format!("{} KV groups, {} block counts", groups.len(), blocks.len())));
        }
        let groups = groups.iter().zip(blocks).map(|(shape, &blocks)| Group::new(shape, blocks, kind));
        Ok(CpuKv { kind, groups: groups.collect::<Result<_>>()? })
    }

    /// Whether the store was made for these groups.
    pub(crate) fn fits(&self, groups: &[KvGroup]) -> bool {
        self.groups.iter().map(|g| &g.shape).eq(groups)
    }

    /// Bytes that the keys and values of one position take in one layer.
    pub(crate) fn position_bytes(&self, cache: CacheLayer) -> usize {
        let group = &self.groups[cache.group.0 as usize];
        group.shape.kv_heads * group.planes.tile / BLOCK
    }

    /// Blocks of each group.
    pub(crate) fn blocks(&self) -> Vec<u32> {
        self.groups.iter().map(|group| group.blocks).collect()
    }

    /// The keys and values of one head in one block.
    ///
    /// # Safety
    /// Nobody writes the tile while the views live.
    pub(crate) unsafe fn tile(&self, cache: CacheLayer, block: u32, head: usize) -> AnyTile<'_> {
        let group = &self.groups[cache.group.0 as usize];
        let start = group.tile(cache.layer, block, head);
        let (planes, elements, scales) = (group.planes, group.elements(), group.scales());
        // SAFETY: the caller's promise.
        unsafe {
            match self.kind {
                KvType::F16 => AnyTile::Half(HalfTile {
                    keys: group.data.get(start, elements),
                    values: group.data.get(start + planes.values, elements),
                }),
                KvType::Q8_0 => AnyTile::Byte(ByteTile {
                    keys: group.data.get(start, elements),
                    values: group.data.get(start + planes.values, elements),
                    key_scales: group.data.get(start + planes.key_scales, scales),
                    value_scales: group.data.get(start + planes.value_scales, scales),
                }),
            }
        }
    }

    /// Where the keys of one head in one block begin.
    pub(crate) fn keys(&self, cache: CacheLayer, block: u32, head: usize) -> *const u8 {
        let group = &self.groups[cache.group.0 as usize];
        group.data.start_of::<u8>(group.tile(cache.layer, block, head), group.planes.tile).cast_const()
    }

    /// Where the keys or values of one head in one block are written, for [`Remember`].
    pub(crate) fn plane(&self, cache: CacheLayer, block: u32, head: usize, order: Order) -> Plane {
        let group = &self.groups[cache.group.0 as usize];
        let start = group.tile(cache.layer, block, head);
        let (codes, scales) = match order {
            Order::Keys => (start, start + group.planes.key_scales),
            Order::Values => (start + group.planes.values, start + group.planes.value_scales),
        };
        match self.kind {
            KvType::F16 => Plane::Half(group.data.start_of(codes, group.elements())),
            KvType::Q8_0 => Plane::Byte {
                codes: group.data.start_of(codes, group.elements()),
                scales: group.data.start_of(scales, group.scales()),
            },
        }
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

    /// Rotates the keys of a block, all layers by the rope of each. Their magnitude is in them already.
    ///
    /// # Safety
    /// Nobody touches the block meanwhile.
    pub(crate) unsafe fn shift<'r>(
        &self,
        shift: KeyShift,
        rope_of: impl Fn(CacheLayer) -> Option<&'r RopeRows>,
        isa: Isa,
    ) {
        let shape = &self.groups[shift.group.0 as usize].shape;
        let dim = padded(shape.head_dim);
        let mut x = vec![0.0; shape.head_dim];
        for layer in 0..shape.layers {
            let cache = CacheLayer { group: shift.group, layer };
            let Some(rope) = rope_of(cache) else { continue };
            let (cos, sin) = rope.turn(shift.by);
            for head in 0..shape.kv_heads {
                for position in 0..BLOCK {
                    // SAFETY: the caller's promise; the views end before the key is written.
                    match unsafe { self.tile(cache, shift.block, head) } {
                        AnyTile::Half(tile) => isa.run(Recall { tile, dim, position, x: &mut x }),
                        AnyTile::Byte(tile) => isa.run(Recall { tile, dim, position, x: &mut x }),
                    }
                    let head_dim = shape.head_dim;
                    isa.run(Rotate { x: &mut x, head_dim, layout: rope.layout, cos: &cos, sin: &sin });
                    let plane = self.plane(cache, shift.block, head, Order::Keys);
                    isa.run(Remember { x: &x, plane, order: Order::Keys, dim, position });
                }
            }
        }
    }
}
