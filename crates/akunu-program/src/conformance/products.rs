//! Linear and Embed, in every dtype.

use akunu_format::{DType, SUPER_BLOCK, Support};

use crate::program::{Index, Op, Part, Role, Slice};
use crate::reference::ops::dot;
use crate::{Backend, Phase, TensorSource};

use super::tensors::{blocks, numbers};
use super::{Outcome, Pieces, Sketch, worst};

const MULTIPLY: Role = Role { lookup: false, multiply: true, encode: false, vector: false };
const ENCODE: Role = Role { lookup: false, multiply: false, encode: true, vector: false };

/// Columns of the matrices.
const COLUMNS: [usize; 9] = [64, 128, 256, 512, 896, 1024, 2048, 2560, 4096];

/// Rows of the matrices: not a multiple of any vector or panel.
const ROWS: usize = 37;

/// Rows fed: more than fit a register block, and not a multiple of one.
const FED: usize = 22;

/// Rows decoded together: some of every size that kernels have.
const DECODED: usize = 15;

/// Up to so many columns, and of so many, where other kernels take over: more would only take more time.
const LONGEST_DECODED: usize = 512;
const LONG_DECODED: usize = 2048;

/// Steps from 0 to the largest input of a group of 32, where weights are quantised: 15 bits with the sign, of which scales that are
/// powers of two leave half at least.
const LARGEST: f64 = 8128.0;

/// Steps from 0 to the largest factor of a stretch, where weights are quantised: 16 bits with the sign.
const LARGEST_WORD: f64 = 32512.0;

/// Columns of a stretch.
const STRETCH: usize = 256;

/// Steps from 0 to the largest input of a stretch of pairs, where weights are floats.
const LARGEST_OF_PAIR: f64 = 16384.0;

/// Steps of all weights of a stretch of pairs together, and of one at most.
const PAIRS_SUM: f64 = 131_008.0;
const PAIRS_WEIGHT: f64 = 32766.0;

/// Columns of a stretch of pairs.
const PAIRS_STRETCH: usize = 64;

/// The variance of the lower halves of 16 bits, in steps.
const LOW_BYTES: f64 = 65536.0 / 12.0;

/// How many standard deviations of rounding are allowed.
const DEVIATIONS: f64 = 6.0;

pub(super) fn check(backend: &dyn Backend) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for &dtype in DType::ALL.iter().filter(|d| d.support() >= Support::Read) {
        let columns: Vec<usize> =
            COLUMNS.into_iter().filter(|cols| cols.is_multiple_of(dtype.block_len())).collect();
        // Every size for a few dtypes, three for the others.
        let all = matches!(dtype, DType::F32 | DType::F16 | DType::Q4_0 | DType::Q8_0 | DType::Q4_K);
        for (i, &cols) in columns.iter().enumerate() {
            if all || i % 3 == 0 {
                let roles: &[Role] = if dtype.is_quantized() { &[MULTIPLY] } else { &[MULTIPLY, ENCODE] };
                outcomes.extend(roles.iter().map(|role| product(backend, dtype, cols, *role)));
            }
        }
        outcomes.push(lookup(backend, dtype));
    }
    outcomes
}

/// The rows that are multiplied: zeros, a constant, numbers near the end of F16, one number alone, and random ones.
fn inputs(cols: usize) -> Vec<f32> {
    let mut x = numbers(42, FED * cols);
    x[..cols].fill(0.0);
    x[cols..2 * cols].fill(-1.5);
    x[2 * cols..3 * cols].iter_mut().for_each(|v| *v = 65504.0 - v.abs() * 1000.0);
    x[3 * cols..4 * cols].fill(0.0);
    x[3 * cols + cols / 3] = 7.0;
    // Rows of very different sizes within a group.
    x[4 * cols..5 * cols].iter_mut().step_by(5).for_each(|v| *v *= 100.0);
    x
}

fn product(backend: &dyn Backend, dtype: DType, cols: usize, role: Role) -> Outcome {
    let x = inputs(cols);
    let mut sketch = Sketch::new(&x, cols);
    sketch.tensors.add("w", ROWS, cols, dtype, blocks(dtype, cols as u64, ROWS, cols));
    let weight = sketch.weight("w", ROWS, cols, role);
    let bias = numbers(7, ROWS - 5);
    let bias = sketch.vector("bias", &bias);
    // The whole, and a slice that begins and ends inside a panel, with a bias.
    let (whole, cut) = (sketch.value(ROWS), sketch.value(ROWS - 5));
    let slice = Slice { first: 3, rows: ROWS - 5, ..weight };
    let parts =
        vec![Part { weight, bias: None, out: whole }, Part { weight: slice, bias: Some(bias), out: cut }];
    sketch.push(Op::Linear { x: sketch.x, parts });
    let weights = sketch.tensors.find("w").map_or(Ok(Vec::new()), |w| w.to_f32()).unwrap_or_default();
    let sum = |w: &[f32]| w.iter().map(|w| w * w).sum();
    let largest = |x: &[f32]| x.iter().fold(0f32, |m, x| m.max(x * x));
    let (group, step, stretch) =
        if dtype.is_quantized() { (32, 1.0 / LARGEST, STRETCH) } else { (1, 1.0 / 2048.0, PAIRS_STRETCH) };
    let x = Sizes::new(&x, cols, [group, stretch], largest);
    let weights = Sizes::new(&weights, cols, [group, stretch], sum);
    let program = sketch.program.clone();
    let tokens: Vec<u32> = (0..FED as u32).collect();
    let mut result = Ok(0.0);
    for (out, first, rows) in [(whole, 0, ROWS), (cut, 3, ROWS - 5)] {
        sketch.program = program.clone();
        sketch = sketch.finish(out);
        // A prompt; one row that is decoded beside one; rows that are decoded together.
        let batches: [(Option<Phase>, Pieces<'_>); 3] = [
            (None, &[(0, 0, &tokens[..])]),
            (None, &[(1, 0, &tokens[4..5]), (0, 0, &tokens[2..5])]),
            (Some(Phase::Decode), &[(0, 0, &tokens[..DECODED])]),
        ];
        for (phase, batch) in batches {
            if phase.is_some() && cols > LONGEST_DECODED && cols != LONG_DECODED {
                continue;
            }
            let fed = batch.iter().flat_map(|(_, _, tokens)| {
                let decoded = phase == Some(Phase::Decode) || tokens.len() == 1;
                tokens.iter().map(move |&token| (token as usize, decoded))
            });
            let fed: Vec<(usize, bool)> = fed.collect();
            let allowed = |i: usize| {
                let ((row, decoded), column) = (fed[i / rows], first + i % rows);
                let stretches = [x.stretches(row), weights.stretches(column)];
                let prompts = match decoded && role.multiply {
                    true => 0.0,
                    false if dtype.is_quantized() => words(stretches),
                    false => pairs(stretches),
                };
                allowed(step, prompts, x.row(row), weights.row(column))
            };
            let error = sketch.both_as(phase, backend, &[batch]).and_then(|[a, e]| worst(&a, &e, allowed));
            result = match (result, error) {
                (Ok(a), Ok(b)) => Ok(f64::max(a, b)),
                (Err(e), _) | (_, Err(e)) => Err(e),
            };
        }
    }
    let what = if role.encode { ", of an encoder" } else { "" };
    Outcome { case: format!("Linear, {dtype}, {cols} columns{what}"), worst: result }
}

/// Rows of a factor, as far as the error of a product depends on them.
struct Sizes {
    width: usize,
    magnitudes: Vec<f32>,
    /// The squares of all numbers; of groups of 32 where weights are quantised.
    squares: Vec<f32>,
    /// `[row]` of stretches.
    stretches: Vec<Vec<Squares>>,
}

/// The numbers of a stretch.
struct Squares {
    count: usize,
    largest: f64,
    sum: f64,
    /// Of the magnitudes themselves.
    total: f64,
}

impl Sizes {
    /// `square` makes one number of those of a group.
    fn new(
        rows: &[f32],
        width: usize,
        [group, stretch]: [usize; 2],
        square: impl Fn(&[f32]) -> f32,
    ) -> Sizes {
        let magnitudes = rows.iter().map(|x| x.abs()).collect();
        let squares = |x: &[f32]| {
            let each = x.iter().map(|&x| f64::from(x) * f64::from(x));
            let total = x.iter().map(|x| f64::from(x.abs())).sum();
            Squares { count: x.len(), largest: each.clone().fold(0.0, f64::max), sum: each.sum(), total }
        };
        let stretches = rows.chunks(width).map(|row| row.chunks(stretch).map(squares).collect()).collect();
        Sizes { width, magnitudes, squares: rows.chunks(group).map(square).collect(), stretches }
    }

    fn stretches(&self, i: usize) -> &[Squares] {
        &self.stretches[i]
    }

    fn row(&self, i: usize) -> [&[f32]; 2] {
        let groups = self.squares.len() * self.width / self.magnitudes.len();
        [&self.magnitudes[i * self.width..][..self.width], &self.squares[i * groups..][..groups]]
    }
}

/// The variance of an output whose factors are 16-bit integers under a scale for each stretch, multiplied without the product
/// of their low bytes.
fn words([x, w]: [&[Squares]; 2]) -> f64 {
    let step = LARGEST_WORD.powi(-2);
    let one = |(x, w): (&Squares, &Squares)| {
        let rounded = (x.largest * w.sum + w.largest * x.sum) * step / 12.0;
        rounded + x.count as f64 * x.largest * w.largest * (step * LOW_BYTES).powi(2)
    };
    x.iter().zip(w).map(one).sum()
}

/// The variance of an output whose factors are integers under a scale for each stretch, such that sums of a stretch fit 32 bits.
fn pairs([x, w]: [&[Squares]; 2]) -> f64 {
    let one = |(x, w): (&Squares, &Squares)| {
        let step = f64::max(w.total / PAIRS_SUM, w.largest.sqrt() / PAIRS_WEIGHT);
        (x.largest * w.sum / LARGEST_OF_PAIR.powi(2) + step.powi(2) * x.sum) / 12.0
    };
    x.iter().zip(w).map(one).sum()
}

/// What rounding the inputs may cost one output, beside what costs a variance of `prompts`. Uniform errors of one step
/// have a deviation of 1/√12.
fn allowed(step: f64, prompts: f64, [x, x_squares]: [&[f32]; 2], [w, w_squares]: [&[f32]; 2]) -> f64 {
    let variance = f64::from(dot(x_squares, w_squares)) * step * step / 12.0 + prompts;
    DEVIATIONS * variance.sqrt() + 1e-5 * f64::from(dot(x, w)) + 1e-6
}

/// Rows of a table in this dtype, which are decoded and not rounded.
fn lookup(backend: &dyn Backend, dtype: DType) -> Outcome {
    let (rows, cols) = (19, SUPER_BLOCK);
    let mut sketch = Sketch::new(&[0.0; SUPER_BLOCK], cols);
    sketch.tensors.add("rows", rows, cols, dtype, blocks(dtype, 5, rows, cols));
    let table = sketch.weight("rows", rows, cols, Role { lookup: true, ..Role::default() });
    sketch.program.weights.remove(0);
    let table = Slice { weight: crate::program::WeightId(table.weight.0 - 1), ..table };
    sketch.program.body[0] = Op::Embed { table, by: Index::Token, scale: 0.5, out: sketch.x };
    let x = sketch.x;
    let sketch = sketch.finish(x);
    let tokens: Vec<u32> = (0..rows as u32).collect();
    let worst = sketch.both(backend, &[&[(0, 0, &tokens)]]).and_then(|[a, e]| {
        let size = |i: usize| 1e-6 * f64::from(e[i].abs()) + 1e-9;
        worst(&a, &e, size)
    });
    Outcome { case: format!("Embed, {dtype}"), worst }
}
