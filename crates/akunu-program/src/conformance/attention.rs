//! RopeKv and Attend: heads, windows, caps, contexts of several blocks, sequences side by side.

use crate::program::{CacheLayer, GroupId, KvGroup, Mask, Op, Part, RopeId};
use crate::rope::{RopeLayout, RopeTable};
use crate::{BLOCK, Backend, KvType};

use super::tensors::numbers;
use super::{Outcome, Sketch, relative, worst};

/// What a cache may cost. F16 has 11 bits. Of an 8-bit cache both sides keep the same but where a last bit before makes an
/// element round the other way, by 1/127 of its group's largest.
pub(super) fn share(kind: KvType) -> f64 {
    match kind {
        KvType::F16 => 2e-3,
        KvType::Q8_0 => 1e-2,
    }
}

struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    window: Option<usize>,
    cap: Option<f32>,
    rope: Option<(RopeLayout, usize)>,
    mask: Mask,
}

const PLAIN: Shape =
    Shape { heads: 4, kv_heads: 2, head_dim: 64, window: None, cap: None, rope: None, mask: Mask::Causal };
const INTERLEAVED: Option<(RopeLayout, usize)> = Some((RopeLayout::Interleaved, 64));

pub(super) fn check_encoders(backend: &dyn Backend) -> Vec<Outcome> {
    let full = Shape { mask: Mask::Full, ..PLAIN };
    [Shape { heads: 12, kv_heads: 12, head_dim: 32, ..full }, Shape { rope: INTERLEAVED, ..full }]
        .iter()
        .map(|shape| attention(backend, shape, KvType::F16))
        .collect()
}

pub(super) fn check(backend: &dyn Backend) -> Vec<Outcome> {
    let plain = PLAIN;
    [
        Shape { rope: INTERLEAVED, ..plain },
        Shape { heads: 9, kv_heads: 3, rope: Some((RopeLayout::SplitHalf, 64)), ..plain },
        Shape { heads: 7, kv_heads: 1, head_dim: 128, rope: Some((RopeLayout::SplitHalf, 96)), ..plain },
        Shape { heads: 2, kv_heads: 2, head_dim: 80, ..plain },
        Shape { heads: 5, kv_heads: 1, head_dim: 20, cap: Some(2.0), ..plain },
        Shape {
            heads: 4,
            kv_heads: 1,
            head_dim: 256,
            window: Some(100),
            rope: Some((RopeLayout::SplitHalf, 256)),
            ..plain
        },
        Shape { window: Some(1), ..plain },
    ]
    .iter()
    .flat_map(|shape| KvType::ALL.map(|kind| attention(backend, shape, kind)))
    .collect()
}

fn attention(backend: &dyn Backend, shape: &Shape, kind: KvType) -> Outcome {
    let &Shape { heads, kv_heads, head_dim, window, cap, rope, mask } = shape;
    let width = 64;
    let mut sketch = Sketch::new(&numbers(11, 97 * width), width);
    sketch.kv = kind;
    let group = KvGroup { layers: 2, kv_heads, head_dim, window };
    sketch.program.groups.push(group);
    if let Some((layout, dims)) = rope {
        let frequencies = (0..dims / 2).map(|i| 10_000f32.powf(-2.0 * i as f32 / dims as f32)).collect();
        sketch.program.ropes.push(RopeTable { layout, frequencies, magnitude: 1.0 });
    }
    let mut mixed = sketch.x;
    for layer in 0..2 {
        let widths = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim];
        let input = sketch.program.value(mixed).width;
        let parts: Vec<Part> = widths
            .iter()
            .enumerate()
            .map(|(i, &rows)| {
                // Scores of a few units, so that the softmax is neither flat nor a single position.
                let scale = 2.5 / (input as f32).sqrt();
                let values: Vec<f32> =
                    numbers((3 * layer + i) as u64, rows * input).iter().map(|v| v * scale).collect();
                let weight = sketch.matrix(&format!("w{layer}{i}"), rows, input, &values);
                Part { weight, bias: None, out: sketch.value(rows) }
            })
            .collect();
        let [q, k, v] = [0, 1, 2].map(|i| parts[i].out);
        sketch.push(Op::Linear { x: mixed, parts });
        let cache = CacheLayer { group: GroupId(0), layer };
        let rotated = sketch.value(widths[0]);
        let rope = rope.map(|_| RopeId(0));
        sketch.push(Op::RopeKv { q, k, v, rope, cache, out: rotated });
        mixed = sketch.value(widths[0]);
        sketch.push(Op::Attend { q: rotated, mask, cache, scale: 0.125, cap, out: mixed });
    }
    let sketch = sketch.finish(mixed);
    let tokens: Vec<u32> = (0..400).map(|i| (i * 31 + i / 7) % 97).collect();
    let (long, next) = (&tokens[..260], 260);
    let block = BLOCK as u32;
    let batches: [super::Pieces<'_>; 6] = [
        &[(0, 0, &tokens[..1])],
        &[(1, 0, long)],
        // One token each, then a longer piece across a block's border, beside a single row.
        &[(1, next, &tokens[..1]), (0, 1, &tokens[1..2])],
        &[(0, 2, &tokens[2..block as usize + 9]), (1, next + 1, &tokens[9..10])],
        &[(1, next + 2, &tokens[20..23])],
        &[(2, 0, &tokens[..5]), (0, block + 9, &tokens[..3]), (1, next + 5, &tokens[5..6])],
    ];
    let width = heads * head_dim;
    let worst = sketch
        .both(backend, &batches)
        .and_then(|[actual, expected]| worst(&actual, &expected, relative(&expected, width, share(kind))));
    let rope =
        rope.map_or("no rotation".to_owned(), |(layout, dims)| format!("{layout:?} rotation of {dims}"));
    let case = format!(
        "Attend, {mask:?}, {heads} heads over {kv_heads} of {head_dim}, window {window:?}, cap {cap:?}, {rope}, {kind} cache"
    );
    Outcome { case, worst }
}
