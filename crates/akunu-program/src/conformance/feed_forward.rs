//! Gated feed-forward blocks as models have them, and mixtures of experts.

use akunu_format::DType;

use crate::Backend;
use crate::program::{Activation, Domain, Element, Expert, Op, Part, Role, Slice, Value, ValueId};

use super::tensors::{blocks, numbers};
use super::{Outcome, Sketch, relative, worst};

pub(super) fn check(backend: &dyn Backend) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    // Two roundings to 15 bits in a row, of sums that nearly cancel: up to thirty times 2^-15. With floats both factors may be rounded
    // in prompts, to about half as much in all.
    for (dtype, share) in [(DType::F32, 5e-4), (DType::Q8_0, 5e-4), (DType::Q4_1, 1e-3)] {
        for inner in [96, 160] {
            outcomes.push(dense(backend, [dtype; 2], inner, share));
            outcomes.push(mixture(backend, dtype, inner, share));
        }
        // Experts that begin inside a vector, where they can; and whose columns are an even number of blocks.
        outcomes.push(mixture(backend, dtype, if dtype == DType::F32 { 40 } else { 128 }, share));
    }
    for dtype in [DType::F32, DType::F16] {
        for encode in [false, true] {
            for inner in [96, 128, 160] {
                outcomes.push(plain(backend, dtype, encode, inner));
            }
        }
    }
    // Weights that ask for their inputs in different forms.
    for dtypes in [[DType::F32, DType::Q8_0], [DType::Q8_0, DType::F32]] {
        outcomes.push(dense(backend, dtypes, 96, 5e-4));
    }
    outcomes
}

const HIDDEN: usize = 64;

fn weight(sketch: &mut Sketch, name: &str, dtype: DType, rows: usize, cols: usize) -> Slice {
    matrix(sketch, name, dtype, [rows, cols], Role { multiply: true, ..Role::default() })
}

fn matrix(sketch: &mut Sketch, name: &str, dtype: DType, [rows, cols]: [usize; 2], role: Role) -> Slice {
    let seed = name.bytes().fold(1, |h, b| h * 31 + u64::from(b));
    sketch.tensors.add(name, rows, cols, dtype, blocks(dtype, seed, rows, cols));
    sketch.weight(name, rows, cols, role)
}

fn compare(backend: &dyn Backend, sketch: &Sketch, case: String, share: f64) -> Outcome {
    let tokens: Vec<u32> = (0..23).collect();
    let batches: [super::Pieces<'_>; 2] =
        [&[(0, 0, &tokens)], &[(1, 0, &tokens[..1]), (2, 0, &tokens[9..11])]];
    let worst = sketch
        .both(backend, &batches)
        .and_then(|[actual, expected]| worst(&actual, &expected, relative(&expected, HIDDEN, share)));
    Outcome { case, worst }
}

/// The first dtype is that of the gate and what it is multiplied with, the second that of what follows.
fn dense(backend: &dyn Backend, [gated, down]: [DType; 2], inner: usize, share: f64) -> Outcome {
    let case = if gated == down { gated.to_string() } else { format!("{gated} and {down}") };
    let mut sketch = Sketch::new(&numbers(21, 23 * HIDDEN), HIDDEN);
    let part = |sketch: &mut Sketch, name: &str, dtype: DType, rows: usize, cols: usize| {
        let weight = weight(sketch, name, dtype, rows, cols);
        Part { weight, bias: None, out: sketch.value(rows) }
    };
    let parts = ["gate", "up"].map(|name| part(&mut sketch, name, gated, inner, HIDDEN)).to_vec();
    let (gate, up) = (parts[0].out, parts[1].out);
    sketch.push(Op::Linear { x: sketch.x, parts });
    let product = sketch.value(inner);
    sketch.push(Op::Gate { gate, up, activation: Activation::Silu, out: product });
    let down = part(&mut sketch, "down", down, HIDDEN, inner);
    let out = down.out;
    sketch.push(Op::Linear { x: product, parts: vec![down] });
    compare(backend, &sketch.finish(out), format!("feed-forward of {inner}, {case}"), share)
}

/// Two products with biases and an activation between them, as encoders have them.
fn plain(backend: &dyn Backend, dtype: DType, encode: bool, inner: usize) -> Outcome {
    let mut sketch = Sketch::new(&numbers(24, 23 * HIDDEN), HIDDEN);
    let role = Role { encode, multiply: !encode, ..Role::default() };
    let part = |sketch: &mut Sketch, [name, bias]: [&str; 2], rows: usize, cols: usize| {
        let weight = matrix(sketch, name, dtype, [rows, cols], role);
        let bias = sketch.vector(bias, &numbers(25, rows));
        Part { weight, bias: Some(bias), out: sketch.value(rows) }
    };
    let up = part(&mut sketch, ["up", "up bias"], inner, HIDDEN);
    let (x, activated) = (up.out, sketch.value(inner));
    sketch.push(Op::Linear { x: sketch.x, parts: vec![up] });
    sketch.push(Op::Activate { x, activation: Activation::GeluErf, out: activated });
    let down = part(&mut sketch, ["down", "down bias"], HIDDEN, inner);
    let out = down.out;
    sketch.push(Op::Linear { x: activated, parts: vec![down] });
    let what = if encode { " of an encoder" } else { "" };
    compare(backend, &sketch.finish(out), format!("plain feed-forward of {inner}{what}, {dtype}"), 5e-4)
}

fn mixture(backend: &dyn Backend, dtype: DType, inner: usize, share: f64) -> Outcome {
    const EXPERTS: usize = 5;
    let mut sketch = Sketch::new(&numbers(22, 23 * HIDDEN), HIDDEN);
    // The router stays in F32: which experts are chosen must not hang on rounding.
    let router = sketch.matrix("router", EXPERTS, HIDDEN, &numbers(23, EXPERTS * HIDDEN));
    let logits = sketch.value(EXPERTS);
    sketch.push(Op::Linear { x: sketch.x, parts: vec![Part { weight: router, bias: None, out: logits }] });
    sketch.program.values.push(Value { domain: Domain::Tokens, width: 2, element: Element::Route });
    let routes = ValueId(sketch.program.values.len() as u32 - 1);
    sketch.push(Op::Route { logits, normalize: true, out: routes });
    let gate = weight(&mut sketch, "gates", dtype, EXPERTS * inner, HIDDEN);
    let up = weight(&mut sketch, "ups", dtype, EXPERTS * inner, HIDDEN);
    let down = weight(&mut sketch, "downs", dtype, EXPERTS * HIDDEN, inner);
    let of = |stack: Slice, e: usize, rows: usize| Slice { first: e * rows, rows, ..stack };
    let experts = (0..EXPERTS)
        .map(|e| Expert { gate: of(gate, e, inner), up: of(up, e, inner), down: of(down, e, HIDDEN) })
        .collect();
    let out = sketch.value(HIDDEN);
    sketch.push(Op::Experts { x: sketch.x, routes, experts, activation: Activation::Silu, out });
    compare(backend, &sketch.finish(out), format!("mixture of {EXPERTS} times {inner}, {dtype}"), share)
}
