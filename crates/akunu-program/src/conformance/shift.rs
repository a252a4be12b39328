//! Blocks that move: after some are dropped from the middle of a sequence and the keys of those behind are turned, what
//! follows sees what it would see had the dropped tokens never been there. That is exactly so where keys and values depend on
//! their own token alone, as in a first layer; here all layers are such.

use crate::program::{CacheLayer, GroupId, KvGroup, Mask, Op, Part, RopeId};
use crate::reference::Reference;
use crate::rope::{RopeLayout, RopeTable};
use crate::{BLOCK, Backend, Batch, KeyShift, KvType, Result, SlotEdit, SlotId, Work};

use super::tensors::numbers;
use super::{CONTEXT, Outcome, Runner, Sketch, relative, worst};

const WIDTH: usize = 48;
/// Blocks in the sequence before the shift, those kept before the dropped ones, and the dropped ones.
const BLOCKS: usize = 5;
const KEPT: usize = 1;
const DROPPED: usize = 2;

pub(super) fn check(backend: &dyn Backend) -> Vec<Outcome> {
    let layouts = [(RopeLayout::Interleaved, 64), (RopeLayout::SplitHalf, 48)];
    let windows = [None, Some(100)];
    let mut outcomes = Vec::new();
    for (layout, dims) in layouts {
        for window in windows {
            for kind in KvType::ALL {
                outcomes.push(shift(backend, layout, dims, window, kind));
            }
        }
    }
    outcomes
}

fn shift(
    backend: &dyn Backend,
    layout: RopeLayout,
    dims: usize,
    window: Option<usize>,
    kind: KvType,
) -> Outcome {
    let sketch = sketch(layout, dims, window);
    let tokens: Vec<u32> = (0..(BLOCKS * BLOCK) as u32).map(|i| (i * 29 + i / 5) % 97).collect();
    // Both in F16 or better: an 8-bit cache rounds twice on one side and is compared with the truth.
    let share = match kind {
        KvType::F16 => 4e-3,
        KvType::Q8_0 => 4e-2,
    };
    let worst = shifted(&sketch, backend, kind, &tokens)
        .and_then(|actual| Ok((actual, fresh(&sketch, &tokens)?)))
        .map_err(|error| error.to_string())
        .and_then(|(actual, expected)| worst(&actual, &expected, relative(&expected, 256, share)));
    let case = format!("Shift of keys, {layout:?} rotation of {dims}, window {window:?}, {kind} cache");
    Outcome { case, worst }
}

/// Two layers over the same input, the second with another rotation; the sum of what they find.
fn sketch(layout: RopeLayout, dims: usize, window: Option<usize>) -> Sketch {
    let (heads, kv_heads, head_dim) = (4, 2, 64);
    let mut sketch = Sketch::new(&numbers(31, 97 * WIDTH), WIDTH);
    sketch.program.groups.push(KvGroup { layers: 2, kv_heads, head_dim, window });
    let mut found = Vec::new();
    for (layer, theta) in [10_000f32, 500.0].into_iter().enumerate() {
        let frequencies = (0..dims / 2).map(|i| theta.powf(-2.0 * i as f32 / dims as f32)).collect();
        // A magnitude, which must not be applied again.
        sketch.program.ropes.push(RopeTable { layout, frequencies, magnitude: 1.1 });
        let widths = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim];
        let parts: Vec<Part> = (0..3)
            .map(|i| {
                let values: Vec<f32> = numbers((50 + 3 * layer + i) as u64, widths[i] * WIDTH)
                    .iter()
                    .map(|v| v * 2.5 / (WIDTH as f32).sqrt())
                    .collect();
                let weight = sketch.matrix(&format!("w{layer}{i}"), widths[i], WIDTH, &values);
                Part { weight, bias: None, out: sketch.value(widths[i]) }
            })
            .collect();
        let [q, k, v] = [0, 1, 2].map(|i| parts[i].out);
        sketch.push(Op::Linear { x: sketch.x, parts });
        let cache = CacheLayer { group: GroupId(0), layer };
        let rotated = sketch.value(widths[0]);
        sketch.push(Op::RopeKv { q, k, v, rope: Some(RopeId(layer as u32)), cache, out: rotated });
        let out = sketch.value(widths[0]);
        sketch.push(Op::Attend { q: rotated, mask: Mask::Causal, cache, scale: 0.125, cap: None, out });
        found.push(out);
    }
    let out = sketch.value(heads * head_dim);
    sketch.push(Op::Add { x: found[0], y: found[1], out });
    sketch.finish(out)
}

/// Where the sequence ends after the shift.
const END: u32 = ((BLOCKS - DROPPED) * BLOCK) as u32;

/// What comes after, in two batches: several rows and one.
fn continued(runner: &mut Runner, tokens: &[u32]) -> Result<Vec<f32>> {
    let mut logits = Vec::new();
    for (start, tokens) in [(END, &tokens[..9]), (END + 9, &tokens[9..10])] {
        runner.feed(&[(0, start, tokens)], Work::Forward)?;
        logits.extend_from_slice(&runner.out.logits);
    }
    Ok(logits)
}

fn shifted(sketch: &Sketch, backend: &dyn Backend, kind: KvType, tokens: &[u32]) -> Result<Vec<f32>> {
    let mut runner = sketch.runner(backend, kind)?;
    runner.feed(&[(0, 0, tokens)], Work::Forward)?;
    // The runner gave the slot its blocks in descending order.
    let block = |index: usize| CONTEXT.div_ceil(BLOCK as u32) - 1 - index as u32;
    let (slot, group) = (SlotId(0), GroupId(0));
    let moved: Vec<u32> = (KEPT + DROPPED..BLOCKS).map(block).collect();
    let by = -((DROPPED * BLOCK) as i32);
    let shifts: Vec<KeyShift> = moved.iter().map(|&block| KeyShift { group, block, by }).collect();
    // The dropped blocks are free for what follows.
    let blocks: Vec<u32> = moved.into_iter().chain((KEPT..KEPT + DROPPED).map(block)).collect();
    let edits = [SlotEdit::Blocks { slot, group, first: KEPT as u32, blocks: &blocks }];
    runner.run(&Batch { edits: &edits, shifts: &shifts, ..Batch::default() }, Work::Forward)?;
    continued(&mut runner, tokens)
}

/// The truth: a sequence without the dropped tokens.
fn fresh(sketch: &Sketch, tokens: &[u32]) -> Result<Vec<f32>> {
    let mut runner = sketch.runner(&Reference, KvType::F16)?;
    let kept = [&tokens[..KEPT * BLOCK], &tokens[(KEPT + DROPPED) * BLOCK..]].concat();
    runner.feed(&[(0, 0, &kept)], Work::Forward)?;
    continued(&mut runner, tokens)
}
