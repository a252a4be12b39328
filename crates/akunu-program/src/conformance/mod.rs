//! One suite for every backend: each operation, in every dtype, against the reference backend.
//!
//! [`run`] gives one [`Outcome`] for each case: how large the worst error was, as a share of what is allowed. What is allowed
//! follows from the numbers themselves: for quantised weights a backend may round the inputs of products to 15 bits in groups of
//! 32, or both factors to 16 bits in stretches of 256; else inputs to F16, or for prompts both factors to integers in stretches of 64
//! whose sums fit 32 bits; and add in `f32`.
//!
//! ```no_run
//! use akunu_program::conformance;
//! use akunu_program::reference::Reference;
//!
//! for outcome in conformance::run(&Reference) {
//!     assert!(outcome.is_right(), "{outcome}");
//! }
//! ```

mod attention;
mod feed_forward;
mod products;
mod rows;
mod runner;
mod select;
mod shift;
mod speech;
mod tensors;

pub use runner::Runner;
pub use tensors::{Tensors, blocks, numbers};

use std::fmt;

use crate::program::{Domain, Element, Index, Op, Program, Role, Slice, Value, ValueId, WeightId, WeightUse};
use crate::reference::Reference;
use crate::{Backend, KvType, Phase, Work};

/// How one case went.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The case, in words.
    pub case: String,
    /// The worst error as a share of what is allowed, or why there is none.
    pub worst: Result<f64, String>,
}

impl Outcome {
    /// Whether every number was close enough.
    pub fn is_right(&self) -> bool {
        matches!(self.worst, Ok(worst) if worst <= 1.0)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.worst {
            Ok(worst) => write!(f, "{}: worst error {worst:.3} of what is allowed", self.case),
            Err(problem) => write!(f, "{}: {problem}", self.case),
        }
    }
}

/// Checks every operation of a backend.
pub fn run(backend: &dyn Backend) -> Vec<Outcome> {
    let mut outcomes = products::check(backend);
    outcomes.extend(rows::check(backend));
    outcomes.extend(attention::check(backend));
    outcomes.extend(shift::check(backend));
    outcomes.extend(feed_forward::check(backend));
    outcomes.extend(select::check(backend));
    outcomes.extend(rows::check_encoders(backend));
    outcomes.extend(attention::check_encoders(backend));
    outcomes.extend(speech::check(backend));
    outcomes
}

/// A program under construction, whose input is a table of rows looked up by token.
struct Sketch {
    program: Program,
    tensors: Tensors,
    /// The rows that were looked up.
    x: ValueId,
    kv: KvType,
}

impl Sketch {
    /// A program that begins with the lookup of rows of `width` numbers.
    fn new(table: &[f32], width: usize) -> Sketch {
        let program = Program {
            values: Vec::new(),
            body: Vec::new(),
            logits: ValueId(0),
            groups: Vec::new(),
            ropes: Vec::new(),
            weights: Vec::new(),
        };
        let mut sketch = Sketch { program, tensors: Tensors::default(), x: ValueId(0), kv: KvType::F16 };
        let role = Role { lookup: true, ..Role::default() };
        sketch.tensors.floats("table", table.len() / width, width, table);
        let table = sketch.weight("table", table.len() / width, width, role);
        sketch.x = sketch.value(width);
        sketch.program.body.push(Op::Embed { table, by: Index::Token, scale: 1.0, out: sketch.x });
        sketch
    }

    fn value(&mut self, width: usize) -> ValueId {
        self.program.values.push(Value { domain: Domain::Tokens, width, element: Element::Number });
        ValueId(self.program.values.len() as u32 - 1)
    }

    fn weight(&mut self, name: &str, rows: usize, cols: usize, role: Role) -> Slice {
        self.program.weights.push(WeightUse { name: name.to_owned(), rows, cols, role });
        Slice { weight: WeightId(self.program.weights.len() as u32 - 1), first: 0, rows }
    }

    /// A norm's weight or a bias.
    fn vector(&mut self, name: &str, values: &[f32]) -> Slice {
        self.tensors.floats(name, 1, values.len(), values);
        self.weight(name, 1, values.len(), Role { vector: true, ..Role::default() })
    }

    /// A matrix of plain floats.
    fn matrix(&mut self, name: &str, rows: usize, cols: usize, values: &[f32]) -> Slice {
        self.tensors.floats(name, rows, cols, values);
        self.weight(name, rows, cols, Role { multiply: true, ..Role::default() })
    }

    fn push(&mut self, op: Op) {
        self.program.body.push(op);
    }

    /// Ends the program: its logits are all rows of a value.
    fn finish(mut self, x: ValueId) -> Sketch {
        let Value { width, .. } = self.program.value(x);
        self.program.values.push(Value { domain: Domain::Outputs, width, element: Element::Number });
        let out = ValueId(self.program.values.len() as u32 - 1);
        self.push(Op::Gather { x, out });
        self.program.logits = out;
        self
    }

    fn runner(&self, backend: &dyn Backend, kv: KvType) -> crate::Result<Runner> {
        Runner::with_kv(backend, &self.program, &self.tensors, SLOTS, CONTEXT, kv)
    }

    /// Runs pieces of sequences `(slot, start, tokens)`, batch after batch, on a backend and on the reference, and gives the
    /// logits of all rows.
    fn both(&self, backend: &dyn Backend, batches: &[Pieces<'_>]) -> Result<[Vec<f32>; 2], String> {
        self.both_as(None, backend, batches)
    }

    /// The same, with all rows in one phase.
    fn both_as(
        &self,
        phase: Option<Phase>,
        backend: &dyn Backend,
        batches: &[Pieces<'_>],
    ) -> Result<[Vec<f32>; 2], String> {
        let run = |backend: &dyn Backend| {
            let mut runner = self.runner(backend, self.kv)?;
            runner.phase = phase;
            let mut logits = Vec::new();
            for pieces in batches {
                runner.feed(pieces, Work::Forward)?;
                logits.extend_from_slice(&runner.out.logits);
            }
            Ok(logits)
        };
        let run = |backend: &dyn Backend| run(backend).map_err(|error: crate::Error| error.to_string());
        Ok([run(backend)?, run(&Reference)?])
    }
}

/// What one batch feeds: `(slot, start, tokens)`.
type Pieces<'a> = &'a [(u32, u32, &'a [u32])];

const SLOTS: u32 = 3;
const CONTEXT: u32 = 704;

/// The worst of `|actual - expected| / allowed(i)`; a number that is not one is infinitely wrong.
fn worst(actual: &[f32], expected: &[f32], allowed: impl Fn(usize) -> f64) -> Result<f64, String> {
    if actual.len() != expected.len() {
        return Err(format!("{} numbers instead of {}", actual.len(), expected.len()));
    }
    let share = |(i, (a, e)): (usize, (&f32, &f32))| {
        let error = (f64::from(*a) - f64::from(*e)).abs();
        if error.is_finite() { error / allowed(i).max(f64::MIN_POSITIVE) } else { f64::INFINITY }
    };
    Ok(actual.iter().zip(expected).enumerate().map(share).fold(0.0, f64::max))
}

/// What is allowed where no product is rounded: a small part of the largest number in the row.
fn relative(expected: &[f32], width: usize, share: f64) -> impl Fn(usize) -> f64 {
    let largest = |row: &[f32]| row.iter().fold(1e-3, |m, x| f64::from(x.abs()).max(m));
    let rows: Vec<f64> = expected.chunks(width).map(|row| share * largest(row)).collect();
    move |i| rows[i / width]
}
