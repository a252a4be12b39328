//! What only encoders have, and what attends to what they stored.

use akunu_program::KvType;
use akunu_program::program::{CacheLayer, Domain, FRAMES_PER_TOKEN, Head, ValueId};

use super::{List, Segment};
use crate::host::Bind;
use crate::params::{NONE, RotateParams, UnfoldParams, WeightsParams};

impl List<'_> {
    /// Sets frames beside their neighbours: all of them, or every other one on the way to tokens.
    pub(super) fn unfold(&mut self, x: ValueId, out: ValueId, segment: Segment) {
        // Rows of the two are counted differently: both from the first of all.
        let [from, to] = [x, out].map(|id| self.table.lowered.places[id.0 as usize]);
        let is_frames = self.table.program.value(out).domain == Domain::Frames;
        let params = UnfoldParams {
            x: from.at,
            x_stride: from.stride,
            width: from.width,
            out: to.at,
            stride: to.stride,
            first: segment.first,
            step: if is_frames { 1 } else { FRAMES_PER_TOKEN as u32 },
            pad: 0,
        };
        let groups = [from.width.div_ceil(128), segment.rows, 1];
        self.push("unfold", &[Bind::Arena, Bind::Rows], params, groups);
    }

    /// Stores keys and values: a rotation by nothing of no queries.
    pub(super) fn store(&mut self, k: ValueId, v: ValueId, cache: CacheLayer, segment: Segment) {
        let described = self.table.cache(cache);
        let [k, v] = [k, v].map(|id| self.place(id, segment));
        let params = RotateParams {
            cache: described,
            k: k.at,
            v: v.at,
            k_stride: k.stride,
            first: segment.first,
            angles: NONE,
            keys: k.at,
            ..RotateParams::default()
        };
        let buffers = [Bind::Arena, Bind::Kv(cache.group.0), Bind::Rows, Bind::Tables, Bind::Angles];
        if self.table.kind == KvType::Q8_0 {
            self.remember(&buffers[..4], params, segment.rows);
        } else {
            let threads = described.kv_heads * described.head_dim;
            self.push("rotate", &buffers, params, [threads.div_ceil(128), segment.rows, 1]);
        }
    }

    /// How much some heads attend to each of so many positions: a launch for each of them.
    pub(super) fn weights(&mut self, heads: &[Head], positions: u32, out: ValueId, segment: Segment) {
        let out = self.place(out, segment);
        for (i, head) in (0..).zip(heads) {
            let (cache, q) = (self.table.cache(head.cache), self.place(head.q, segment));
            let sharing = q.width / cache.head_dim / cache.kv_heads;
            let params = WeightsParams {
                cache,
                q: q.at + head.head as u32 * cache.head_dim,
                q_stride: q.stride,
                out: out.at + i * positions,
                stride: out.stride,
                kv_head: head.head as u32 / sharing,
                positions,
                first: segment.first,
                scale: head.scale,
            };
            let buffers = [Bind::Arena, Bind::Kv(head.cache.group.0), Bind::Rows, Bind::Tables];
            self.push("attend_weights", &buffers, params, [1, segment.rows, 1]);
        }
    }
}
