//! Rows that are decoded together, on the emulator: kernels that take several of them must give what those for one row give.

#![allow(clippy::unwrap_used)]

use akunu_format::quant::quantize;
use akunu_format::{DType, Data, Tensor};
use akunu_gpu::{Emulator, Gpu, Schedule};
use akunu_program::conformance::Runner;
use akunu_program::program::{
    Activation, Domain, Element, Index, KvGroup, NormKind, Op, Part, Program, Role, Slice, Value, ValueId,
    WeightId, WeightUse,
};
use akunu_program::{Phase, TensorSource, Work};

const CONTEXT: u32 = 128;

/// A gated product of normed rows: `[gate rows][up rows]` of 9 by 2304 in one dtype, which takes several tiles where rows are many.
struct Gated {
    program: Program,
    dtype: DType,
    weights: Vec<u8>,
    rows: Vec<u8>,
}

const GATED_ROWS: usize = 9;
const GATED_COLUMNS: usize = 2304;
const GATED_TOKENS: usize = 11;

impl TensorSource for Gated {
    fn find(&self, name: &str) -> Option<Tensor<'_>> {
        let (name, shape, dtype, bytes): (_, &[usize], _, _) = match name {
            "rows" => ("rows", &[GATED_TOKENS, GATED_COLUMNS], DType::F32, &self.rows[..]),
            "norm" => ("norm", &[1, GATED_COLUMNS], DType::F32, &self.rows[..4 * GATED_COLUMNS]),
            _ => ("weights", &[2 * GATED_ROWS, GATED_COLUMNS], self.dtype, &self.weights[..]),
        };
        Some(Tensor { name, shape, data: Data::Blocks { dtype, bytes } })
    }
}

impl Gated {
    fn new(dtype: DType) -> Gated {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        let count = 2 * GATED_ROWS * GATED_COLUMNS;
        let floats: Vec<f32> = (0..count).map(|_| next() as f32 / 32768.0 - 1.0).collect();
        let mut weights = vec![0; 2 * GATED_ROWS * dtype.row_bytes(GATED_COLUMNS).unwrap()];
        quantize(dtype, &floats, &mut weights).unwrap();
        let rows =
            (0..GATED_TOKENS * GATED_COLUMNS).flat_map(|_| (next() as f32 / 65536.0 + 0.1).to_le_bytes());
        let value = |domain, width| Value { domain, width, element: Element::Number };
        let weight = |name: &str, rows, cols, role| WeightUse { name: name.to_owned(), rows, cols, role };
        let slice = |weight, first, rows| Slice { weight: WeightId(weight), first, rows };
        let part = |first, out| Part { weight: slice(2, first, GATED_ROWS), bias: None, out: ValueId(out) };
        let (kind, eps) = (NormKind::Rms { offset: 0.5 }, 1e-5);
        let program = Program {
            values: vec![
                value(Domain::Tokens, GATED_COLUMNS),
                value(Domain::Outputs, GATED_COLUMNS),
                value(Domain::Outputs, GATED_COLUMNS),
                value(Domain::Outputs, GATED_ROWS),
                value(Domain::Outputs, GATED_ROWS),
                value(Domain::Outputs, GATED_ROWS),
            ],
            body: vec![
                Op::Embed { table: slice(0, 0, GATED_TOKENS), by: Index::Token, scale: 1.0, out: ValueId(0) },
                Op::Gather { x: ValueId(0), out: ValueId(1) },
                Op::Norm {
                    x: ValueId(1),
                    kind,
                    eps,
                    weight: slice(1, 0, 1),
                    bias: None,
                    groups: 1,
                    out: ValueId(2),
                },
                Op::Linear { x: ValueId(2), parts: vec![part(0, 3), part(GATED_ROWS, 4)] },
                Op::Gate { gate: ValueId(3), up: ValueId(4), activation: Activation::Silu, out: ValueId(5) },
            ],
            logits: ValueId(5),
            groups: vec![KvGroup { layers: 1, kv_heads: 1, head_dim: 2, window: None }],
            ropes: Vec::new(),
            weights: vec![
                weight("rows", GATED_TOKENS, GATED_COLUMNS, Role { lookup: true, ..Role::default() }),
                weight("norm", 1, GATED_COLUMNS, Role { vector: true, ..Role::default() }),
                weight("weights", 2 * GATED_ROWS, GATED_COLUMNS, Role { multiply: true, ..Role::default() }),
            ],
        };
        Gated { program, dtype, weights, rows: rows.collect() }
    }
}

#[test]
fn rows_decoded_together_get_the_bits_of_rows_alone_in_every_dtype() {
    let dtypes = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::Q4_0,
        DType::Q4_1,
        DType::Q5_0,
        DType::Q5_1,
        DType::Q8_0,
        DType::IQ4_NL,
        DType::Q2_K,
        DType::Q3_K,
        DType::Q4_K,
        DType::Q5_K,
        DType::Q6_K,
    ];
    for (dtype, schedule) in dtypes.into_iter().zip(Schedule::ALL.into_iter().cycle()) {
        let gated = Gated::new(dtype);
        // Three cores, of which the last has one block of rows less.
        let gpu = Gpu::new(Emulator::ordered(schedule, 3));
        let mut runner = Runner::new(&gpu, &gated.program, &gated, 1, CONTEXT).unwrap();
        runner.phase = Some(Phase::Decode);
        let mut logits = |tokens: &[u32]| {
            runner.feed(&[(0, 0, tokens)], Work::Forward).unwrap();
            runner.out.logits.iter().map(|z| z.to_bits()).collect::<Vec<u32>>()
        };
        let alone: Vec<u32> = (0..GATED_TOKENS as u32).flat_map(|token| logits(&[token])).collect();
        let all: Vec<u32> = (0..GATED_TOKENS as u32).collect();
        for count in [2, 5, 8, GATED_TOKENS] {
            assert!(logits(&all[..count]) == alone[..count * GATED_ROWS], "{dtype}, {count} rows");
        }
    }
}
