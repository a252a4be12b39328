//! Embed, Norm, Add, Gate, Activate, Cap, and batches without rows.

use crate::program::{Activation, Index, NormKind, Op, SECOND};
use crate::{Backend, Batch, Work};

use super::tensors::numbers;
use super::{Outcome, Runner, Sketch, relative, worst};

const WIDTHS: [usize; 5] = [64, 100, 512, 896, 4096];

/// Rows of every kind a row-wise operation may meet.
fn inputs(width: usize) -> Vec<f32> {
    let mut x = numbers(9, 11 * width);
    x[..width].fill(0.0);
    x[width..2 * width].fill(3.0);
    x[2 * width..3 * width].iter_mut().for_each(|v| *v *= 65504.0);
    x[3 * width..4 * width].iter_mut().for_each(|v| *v *= 1e-4);
    x[4 * width..].iter_mut().for_each(|v| *v *= 6.0);
    x
}

pub(super) fn check(backend: &dyn Backend) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for width in WIDTHS {
        for (name, kind) in [
            ("RMS norm", NormKind::Rms { offset: 0.0 }),
            ("RMS norm of 1 + w", NormKind::Rms { offset: 1.0 }),
            ("layer norm", NormKind::Layer),
        ] {
            for groups in [1, 4] {
                outcomes.push(norm(backend, name, kind, width, groups));
            }
        }
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::GeluErf] {
            outcomes.push(gate(backend, activation, width));
        }
        for cap in [None, Some(30.0)] {
            outcomes.push(row_op(backend, &format!("Cap {cap:?}"), width, |sketch, out| Op::Cap {
                x: sketch.x,
                scale: 0.7,
                cap,
                out,
            }));
        }
        outcomes.push(row_op(backend, "Add", width, |sketch, out| Op::Add { x: sketch.x, y: sketch.x, out }));
    }
    outcomes.push(no_rows(backend));
    outcomes
}

pub(super) fn check_encoders(backend: &dyn Backend) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for activation in [Activation::Silu, Activation::GeluTanh, Activation::GeluErf] {
        for width in WIDTHS {
            outcomes.push(row_op(backend, &format!("Activate, {activation:?}"), width, |sketch, out| {
                Op::Activate { x: sketch.x, activation, out }
            }));
        }
    }
    for by in [Index::Position(2), Index::First, Index::Segment] {
        outcomes.push(lookup(backend, by));
    }
    outcomes
}

/// A row of a table beside that of the token; some tokens are of a second text where those are told apart.
fn lookup(backend: &dyn Backend, by: Index) -> Outcome {
    let mark = |token: u32| if by == Index::Segment && token % 3 == 1 { token | SECOND } else { token };
    let tokens: Vec<u32> = (0..9).map(mark).collect();
    row_op_of(backend, &format!("Embed, {by:?}"), 64, &tokens, |sketch, out| {
        let Op::Embed { table, .. } = sketch.program.body[0] else { unreachable!("a sketch begins so") };
        let own = sketch.value(64);
        sketch.push(Op::Embed { table, by, scale: 1.0, out: own });
        Op::Add { x: sketch.x, y: own, out }
    })
}

/// An operation from rows to rows of the same width.
fn row_op(
    backend: &dyn Backend,
    name: &str,
    width: usize,
    op: impl FnOnce(&mut Sketch, crate::program::ValueId) -> Op,
) -> Outcome {
    row_op_of(backend, name, width, &[0, 1, 2, 3, 4, 5, 6, 7, 8], op)
}

/// The same of these tokens' rows, of which there are nine.
fn row_op_of(
    backend: &dyn Backend,
    name: &str,
    width: usize,
    tokens: &[u32],
    op: impl FnOnce(&mut Sketch, crate::program::ValueId) -> Op,
) -> Outcome {
    let mut sketch = Sketch::new(&inputs(width), width);
    let out = sketch.value(width);
    let op = op(&mut sketch, out);
    sketch.push(op);
    let sketch = sketch.finish(out);
    let batches: [super::Pieces<'_>; 2] =
        [&[(0, 0, tokens)], &[(1, 0, &tokens[2..4]), (2, 0, &tokens[7..8])]];
    let worst = sketch
        .both(backend, &batches)
        .and_then(|[actual, expected]| worst(&actual, &expected, relative(&expected, width, 1e-5)));
    Outcome { case: format!("{name}, {width} wide"), worst }
}

fn norm(backend: &dyn Backend, name: &str, kind: NormKind, width: usize, groups: usize) -> Outcome {
    row_op(backend, &format!("{name} in {groups}"), width, |sketch, out| {
        let weight = sketch.vector("weight", &numbers(3, width / groups));
        let bias = (kind == NormKind::Layer).then(|| sketch.vector("bias", &numbers(4, width / groups)));
        Op::Norm { x: sketch.x, kind, eps: 1e-5, weight, bias, groups, out }
    })
}

fn gate(backend: &dyn Backend, activation: Activation, width: usize) -> Outcome {
    row_op(backend, &format!("Gate, {activation:?}"), width, |sketch, out| Op::Gate {
        gate: sketch.x,
        up: sketch.x,
        activation,
        out,
    })
}

/// A batch may have no rows at all, or none whose logits are wanted.
fn no_rows(backend: &dyn Backend) -> Outcome {
    let sketch = Sketch::new(&inputs(64), 64);
    let x = sketch.x;
    let sketch = sketch.finish(x);
    let run = || {
        let mut runner = Runner::new(backend, &sketch.program, &sketch.tensors, 1, 64)?;
        runner.run(&Batch::default(), Work::Forward)?;
        let empty = runner.out.logits.len();
        let spans = [crate::Span { slot: crate::SlotId(0), start: 0, rows: 3, phase: crate::Phase::Prompt }];
        runner.run(&Batch { spans: &spans, tokens: &[1, 2, 3], ..Batch::default() }, Work::Forward)?;
        Ok::<_, crate::Error>((empty + runner.out.logits.len()) as f64)
    };
    Outcome { case: "batches without rows or outputs".to_owned(), worst: run().map_err(|e| e.to_string()) }
}
