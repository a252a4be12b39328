//! Input and Unfold, as convolutions; Store, and attention in a second program to what it stored.

use std::sync::Arc;

use crate::program::{
    Activation, CacheLayer, Domain, Element, FRAMES_PER_TOKEN, GroupId, Head, KvGroup, Mask, Op, Part, Value,
    ValueId,
};
use crate::reference::Reference;
use crate::{
    BLOCK, Backend, Batch, Executable, KvStore, KvType, Limits, Outputs, Phase, Result, SlotEdit, SlotId,
    Span, StopFlag, Work,
};

use super::tensors::numbers;
use super::{Outcome, Sketch, relative, worst};

/// Positions that are stored: more than a part of the context that is attended to at once, and a last block that is not full.
const STORED: usize = 300;
const SLOTS: u32 = 6;

pub(super) fn check(backend: &dyn Backend) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = [(80, 64), (128, 96), (5, 20)]
        .iter()
        .map(|&(mels, hidden)| convolutions(backend, mels, hidden))
        .collect();
    let shapes = [
        Shape { heads: 6, kv_heads: 6, head_dim: 64 },
        Shape { heads: 4, kv_heads: 2, head_dim: 32 },
        Shape { heads: 3, kv_heads: 3, head_dim: 20 },
    ];
    for shape in shapes {
        for kind in KvType::ALL {
            outcomes.extend([stored(backend, shape, kind, false), stored(backend, shape, kind, true)]);
        }
    }
    outcomes
}

/// Two convolutions over windows of all lengths, side by side and alone.
fn convolutions(backend: &dyn Backend, mels: usize, hidden: usize) -> Outcome {
    let mut sketch = Sketch::new(&[0.0; 2], 1);
    // Nothing is looked up by token.
    sketch.program.body.clear();
    let value = |sketch: &mut Sketch, domain, width| {
        sketch.program.values.push(Value { domain, width, element: Element::Number });
        ValueId(sketch.program.values.len() as u32 - 1)
    };
    let mut x = value(&mut sketch, Domain::Frames, mels);
    sketch.push(Op::Input { out: x });
    for (i, domain) in [Domain::Frames, Domain::Tokens].into_iter().enumerate() {
        let width = 3 * sketch.program.value(x).width;
        let unfolded = value(&mut sketch, domain, width);
        sketch.push(Op::Unfold { x, out: unfolded });
        let kernel: Vec<f32> =
            numbers(i as u64, hidden * width).iter().map(|v| v / (width as f32).sqrt()).collect();
        let weight = sketch.matrix(&format!("conv{i}"), hidden, width, &kernel);
        let bias = Some(sketch.vector(&format!("bias{i}"), &numbers(7, hidden)));
        let (made, out) = (value(&mut sketch, domain, hidden), value(&mut sketch, domain, hidden));
        sketch.push(Op::Linear { x: unfolded, parts: vec![Part { weight, bias, out: made }] });
        sketch.push(Op::Activate { x: made, activation: Activation::GeluErf, out });
        x = out;
    }
    let sketch = sketch.finish(x);
    let frames = numbers(5, 120 * FRAMES_PER_TOKEN * mels);
    let run = |backend: &dyn Backend| {
        let mut runner = sketch.runner(backend, KvType::F16)?;
        let mut all = Vec::new();
        for (phase, windows) in [
            (Phase::Prompt, &[37, 5, 70][..]),
            (Phase::Prompt, &[1]),
            (Phase::Prompt, &[3]),
            (Phase::Decode, &[2, 1]),
            (Phase::Decode, &[21]),
        ] {
            let span =
                |(slot, &rows): (usize, &u32)| Span { slot: SlotId(slot as u32), start: 0, rows, phase };
            let spans: Vec<Span> = windows.iter().enumerate().map(span).collect();
            let rows: u32 = windows.iter().sum();
            let outputs: Vec<u32> = (0..rows).collect();
            let inputs = &frames[..rows as usize * FRAMES_PER_TOKEN * mels];
            runner.run(
                &Batch { spans: &spans, inputs, outputs: &outputs, ..Batch::default() },
                Work::Forward,
            )?;
            all.extend_from_slice(&runner.out.logits);
        }
        Ok::<_, crate::Error>(all)
    };
    let both = || Ok::<_, crate::Error>((run(backend)?, run(&Reference)?));
    let worst = both()
        .map_err(|error| error.to_string())
        .and_then(|(actual, expected)| worst(&actual, &expected, relative(&expected, hidden, 2e-3)));
    Outcome { case: format!("Unfold, {mels} bands to {hidden}"), worst }
}

#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// What a run needs.
struct Program {
    executable: Box<dyn Executable>,
    out: Outputs,
}

impl Program {
    /// Compiles over a store, of which every slot has the first blocks.
    fn new(backend: &dyn Backend, sketch: &Sketch, kv: &Arc<dyn KvStore>) -> Result<Program> {
        let weights = backend.load(&sketch.tensors, &sketch.program.weights)?;
        let limits = Limits { slots: SLOTS, rows: STORED as u32, outputs: 64, context: STORED as u32 };
        let executable = backend.compile(&sketch.program, weights, Arc::clone(kv), &limits)?;
        let mut program = Program { executable, out: Outputs::default() };
        let blocks: Vec<u32> = (0..STORED.div_ceil(BLOCK) as u32).rev().collect();
        for slot in 0..SLOTS {
            let (slot, group) = (SlotId(slot), GroupId(0));
            let edits = [SlotEdit::Blocks { slot, group, first: 0, blocks: &blocks }];
            program.run(&Batch { edits: &edits, ..Batch::default() })?;
        }
        Ok(program)
    }

    fn run(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.executable.run(batch, Work::Forward, &StopFlag::default(), &mut self.out)
    }
}

/// Attention (or its weights) of rows anywhere to what another program stored.
fn stored(backend: &dyn Backend, shape: Shape, kind: KvType, weights: bool) -> Outcome {
    let Shape { heads, kv_heads, head_dim } = shape;
    let width = 64;
    let table = numbers(11, 97 * width);
    let sketch = |widths: &[usize], seed: u64| {
        let mut sketch = Sketch::new(&table, width);
        sketch.program.groups.push(KvGroup { layers: 1, kv_heads, head_dim, window: None });
        let parts: Vec<Part> = widths
            .iter()
            .enumerate()
            .map(|(i, &rows)| {
                let scale = 2.5 / (width as f32).sqrt();
                let values: Vec<f32> =
                    numbers(seed + i as u64, rows * width).iter().map(|v| v * scale).collect();
                let weight = sketch.matrix(&format!("w{i}"), rows, width, &values);
                Part { weight, bias: None, out: sketch.value(rows) }
            })
            .collect();
        let outs: Vec<ValueId> = parts.iter().map(|part| part.out).collect();
        let x = sketch.x;
        sketch.push(Op::Linear { x, parts });
        (sketch, outs)
    };
    let cache = CacheLayer { group: GroupId(0), layer: 0 };
    let (mut writer, kv) = sketch(&[kv_heads * head_dim; 2], 3);
    writer.push(Op::Store { k: kv[0], v: kv[1], cache });
    let writer = {
        let x = writer.x;
        writer.finish(x)
    };
    let (mut reader, q) = sketch(&[heads * head_dim], 8);
    let (q, scale, positions) = (q[0], 0.125, STORED as u32);
    let width = if weights { 2 * STORED } else { heads * head_dim };
    let out = reader.value(width);
    reader.push(if weights {
        let heads = [heads - 1, 0].map(|head| Head { q, cache, head, scale }).to_vec();
        Op::Weights { heads, positions, out }
    } else {
        Op::Attend { q, mask: Mask::Stored(positions), cache, scale, cap: None, out }
    });
    let reader = reader.finish(out);

    let tokens: Vec<u32> = (0..STORED as u32).map(|i| (i * 31 + i / 7) % 97).collect();
    let run = |backend: &dyn Backend| {
        let kv = backend.kv(&writer.program.groups, &[STORED.div_ceil(BLOCK) as u32], kind)?;
        let whole = Span { slot: SlotId(0), start: 0, rows: STORED as u32, phase: Phase::Prompt };
        Program::new(backend, &writer, &kv)?.run(&Batch {
            spans: &[whole],
            tokens: &tokens,
            ..Batch::default()
        })?;
        let mut reader = Program::new(backend, &reader, &kv)?;
        let mut all = Vec::new();
        let span = |slot, start, rows, phase| Span { slot: SlotId(slot), start, rows, phase };
        let batches: [Vec<Span>; 4] = [
            vec![span(0, 0, 21, Phase::Prompt), span(1, 5, 1, Phase::Decode)],
            vec![span(2, 0, 1, Phase::Decode), span(3, 250, 1, Phase::Decode)],
            (0..SLOTS).map(|slot| span(slot, 2 * slot, 1, Phase::Decode)).collect(),
            vec![span(4, 0, 3, Phase::Prompt)],
        ];
        for spans in &batches {
            let rows: u32 = spans.iter().map(|span| span.rows).sum();
            let outputs: Vec<u32> = (0..rows).collect();
            let tokens = &tokens[9..9 + rows as usize];
            reader.run(&Batch { spans, tokens, outputs: &outputs, ..Batch::default() })?;
            all.extend_from_slice(&reader.out.logits);
        }
        Ok::<_, crate::Error>(all)
    };
    let both = || Ok::<_, crate::Error>((run(backend)?, run(&Reference)?));
    let share = super::attention::share(kind);
    let worst = both()
        .map_err(|error| error.to_string())
        .and_then(|(actual, expected)| worst(&actual, &expected, relative(&expected, width, share)));
    let what = if weights { "Weights of" } else { "Attend, Stored," };
    let case = format!("{what} {heads} heads over {kv_heads} of {head_dim}, {kind} cache");
    Outcome { case, worst }
}
