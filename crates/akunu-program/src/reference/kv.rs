//! Keys and values in f32 (rounded to what an 8-bit cache keeps, where there is one), and attention over them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::{BLOCK, BlockCopy, KeyShift, KvStore, SlotId};
use crate::program::{CacheLayer, KvGroup, Mask, Program};
use crate::slots::{Row, Slots};
use crate::{Error, KvType, Result, round_to_q8};

use super::ops::{cap, dot, turn};

pub(super) struct ReferenceKv {
    groups: Vec<Group>,
    kind: KvType,
}

struct Group {
    shape: KvGroup,
    blocks: u32,
    /// `[block][layer][key, value][position in block][kv_head][head_dim]`.
    data: Mutex<Vec<f32>>,
}

impl KvStore for ReferenceKv {}

impl ReferenceKv {
    pub(super) fn new(groups: &[KvGroup], blocks: &[u32], kind: KvType) -> Result<ReferenceKv> {
        if groups.len() != blocks.len() {
            return Err(Error::Batch(format!("{} KV groups, {} block counts", groups.len(), blocks.len())));
        }
        let group = |(shape, &blocks): (&KvGroup, &u32)| {
            let data = Mutex::new(vec![0.0; blocks as usize * block_len(shape)]);
            Group { shape: shape.clone(), blocks, data }
        };
        Ok(ReferenceKv { groups: groups.iter().zip(blocks).map(group).collect(), kind })
    }

    /// Stores the rows' keys and values.
    pub(super) fn write(&self, cache: CacheLayer, keys: &[f32], values: &[f32], rows: &[Row], slots: &Slots) {
        let group = &self.groups[cache.group.0 as usize];
        let width = group.shape.kv_heads * group.shape.head_dim;
        let mut data = group.lock();
        for (row, (key, value)) in rows.iter().zip(keys.chunks_exact(width).zip(values.chunks_exact(width))) {
            let at = group.at(cache, row.slot, row.position as usize, slots);
            for (from, at) in [(key, at.key), (value, at.value)] {
                let kept = &mut data[at..at + width];
                kept.copy_from_slice(from);
                kept.chunks_exact_mut(group.shape.head_dim).for_each(|head| self.round(head));
            }
        }
    }

    pub(super) fn copy(&self, copy: BlockCopy) {
        let group = &self.groups[copy.group.0 as usize];
        let len = block_len(&group.shape);
        let from = copy.from as usize * len;
        group.lock().copy_within(from..from + len, copy.to as usize * len);
    }

    /// Rotates the keys of a block. Their magnitude is in them already.
    pub(super) fn shift(&self, shift: KeyShift, program: &Program) {
        let group = &self.groups[shift.group.0 as usize];
        let mut data = group.lock();
        let block = &mut data[shift.block as usize * block_len(&group.shape)..][..block_len(&group.shape)];
        let half = block_len(&group.shape) / group.shape.layers / 2;
        for (layer, both) in block.chunks_exact_mut(2 * half).enumerate() {
            let Some(rope) = program.rope_of(CacheLayer { group: shift.group, layer }) else { continue };
            let table = &program.ropes[rope.0 as usize];
            for head in both[..half].chunks_exact_mut(group.shape.head_dim) {
                turn(head, table, f64::from(shift.by), 1.0);
                self.round(head);
            }
        }
    }

    /// What the cache keeps of a head.
    fn round(&self, head: &mut [f32]) {
        if self.kind == KvType::Q8_0 {
            round_to_q8(head);
        }
    }

    /// Blocks of each group.
    pub(super) fn blocks(&self) -> Vec<u32> {
        self.groups.iter().map(|group| group.blocks).collect()
    }

    /// Whether the store was made for these groups.
    pub(super) fn fits(&self, groups: &[KvGroup]) -> bool {
        self.groups.iter().map(|g| &g.shape).eq(groups)
    }

    pub(super) fn layer(&self, cache: CacheLayer, mask: Mask, scale: f32, cap: Option<f32>) -> Attention<'_> {
        let group = &self.groups[cache.group.0 as usize];
        Attention { group, data: group.lock(), cache, mask, scale, cap }
    }
}

/// Numbers in a block: all layers, keys and values.
fn block_len(shape: &KvGroup) -> usize {
    shape.layers * 2 * BLOCK * shape.kv_heads * shape.head_dim
}

/// Where one position's keys and values begin.
struct At {
    key: usize,
    value: usize,
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Vec<f32>> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a position's keys and values lie; slots have checked that there is a block for it.
    fn at(&self, cache: CacheLayer, slot: SlotId, position: usize, slots: &Slots) -> At {
        let block = slots.block(slot, cache.group, position) as usize;
        let width = self.shape.kv_heads * self.shape.head_dim;
        let key = block * block_len(&self.shape) + (cache.layer * 2 * BLOCK + position % BLOCK) * width;
        At { key, value: key + BLOCK * width }
    }
}

/// Attention over one layer's cache.
pub(super) struct Attention<'a> {
    group: &'a Group,
    data: MutexGuard<'a, Vec<f32>>,
    cache: CacheLayer,
    mask: Mask,
    scale: f32,
    cap: Option<f32>,
}

impl Attention<'_> {
    /// `q`: `[rows][width]`, `width` a multiple of the head size; gives the same shape.
    pub(super) fn attend(&self, q: &[f32], width: usize, rows: &[Row], slots: &Slots) -> Vec<f32> {
        let KvGroup { kv_heads, head_dim, window, .. } = self.group.shape;
        let heads_per_kv = width / head_dim / kv_heads;
        let mut out = Vec::with_capacity(q.len());
        for (q, row) in q.chunks_exact(width).zip(rows) {
            let end = row.sees(self.mask) as usize;
            let begin = window.map_or(0, |w| (row.position as usize + 1).saturating_sub(w));
            let places: Vec<At> =
                (begin..end).map(|p| self.group.at(self.cache, row.slot, p, slots)).collect();
            for (head, q) in q.chunks_exact(head_dim).enumerate() {
                let shift = head / heads_per_kv * head_dim;
                let weights = self.soften(q, shift, &places);
                out.extend((0..head_dim).map(|d| {
                    let value = |at: &At| f64::from(self.data[at.value + shift + d]);
                    places.iter().zip(&weights).map(|(at, w)| w * value(at)).sum::<f64>() as f32
                }));
            }
        }
        out
    }

    /// How much one head of a row attends to each position it sees. `q`: all heads of the row.
    pub(super) fn weights(
        &self,
        q: &[f32],
        head: usize,
        row: Row,
        slots: &Slots,
    ) -> impl Iterator<Item = f32> {
        let KvGroup { kv_heads, head_dim, .. } = self.group.shape;
        let end = row.sees(self.mask) as usize;
        let places: Vec<At> = (0..end).map(|p| self.group.at(self.cache, row.slot, p, slots)).collect();
        let shift = head / (q.len() / head_dim / kv_heads) * head_dim;
        self.soften(&q[head * head_dim..(head + 1) * head_dim], shift, &places)
            .into_iter()
            .map(|weight| weight as f32)
    }

    /// The softmax of the scores of some positions, whose keys of a head are `shift` elements further on.
    fn soften(&self, q: &[f32], shift: usize, places: &[At]) -> Vec<f64> {
        let score = |at: &At| cap(self.scale * dot(q, &self.data[at.key + shift..][..q.len()]), self.cap);
        let scores: Vec<f32> = places.iter().map(score).collect();
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f64> = scores.iter().map(|s| f64::from(s - max).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    }
}
