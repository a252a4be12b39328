//! Wide products in every storage, of rows that are decoded alone and together.

use akunu_format::mlx::Affine;
use akunu_format::quant::quantize;
use akunu_format::{DType, Data, Tensor};
use akunu_program::conformance::Runner;
use akunu_program::program::{
    Activation, Domain, Element, Index, KvGroup, NormKind, Op, Part, Program, Role, Slice, Value, ValueId,
    WeightId, WeightUse,
};
use akunu_program::reference::Reference;
use akunu_program::{Backend, Phase, TensorSource, Work};

const CONTEXT: u32 = 128;

/// A gated product of normed rows: `[gate rows][up rows]` of 9 by 2304 in one dtype, which takes several tiles where rows are many.
struct Gated {
    program: Program,
    weights: Weights,
    rows: Vec<u8>,
}

/// How the weights are stored.
#[derive(Clone, Copy, Debug)]
pub enum Storage {
    Blocks(DType),
    /// MLX's codes of so many bits.
    Affine(u32),
}

struct Weights {
    storage: Storage,
    /// Blocks, or codes.
    bytes: Vec<u8>,
    /// Of MLX's groups, in F16.
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl Weights {
    /// Random ones around 0.
    fn random(storage: Storage, mut next: impl FnMut() -> u32) -> Weights {
        let mut random =
            |count: usize| (0..count).map(|_| next() as f32 / 32768.0 - 1.0).collect::<Vec<f32>>();
        let count = 2 * GATED_ROWS * GATED_COLUMNS;
        let encode = |dtype: DType, values: &[f32]| {
            let mut bytes = vec![0; dtype.row_bytes(values.len()).unwrap()];
            quantize(dtype, values, &mut bytes).unwrap();
            bytes
        };
        match storage {
            Storage::Blocks(dtype) => {
                let bytes = encode(dtype, &random(count));
                Weights { storage, bytes, scales: Vec::new(), biases: Vec::new() }
            }
            Storage::Affine(bits) => {
                let codes =
                    random(count * bits as usize / 8).iter().map(|x| (x * 128.0 + 128.0) as u8).collect();
                let step = 2.0 / (1 << bits) as f32;
                let bias = -step * ((1 << bits) - 1) as f32 / 2.0;
                let [scales, biases] = [step, bias].map(|middle| {
                    let values: Vec<f32> =
                        random(count / GROUP).iter().map(|x| middle * (1.0 + 0.05 * x)).collect();
                    encode(DType::F16, &values)
                });
                Weights { storage, bytes: codes, scales, biases }
            }
        }
    }

    fn data(&self) -> Data<'_> {
        match self.storage {
            Storage::Blocks(dtype) => Data::Blocks { dtype, bytes: &self.bytes },
            Storage::Affine(bits) => Data::Affine(Affine {
                bits,
                group_size: GROUP,
                row_len: GATED_COLUMNS,
                scale_dtype: DType::F16,
                codes: &self.bytes,
                scales: &self.scales,
                biases: &self.biases,
            }),
        }
    }
}

/// Columns of MLX's groups.
const GROUP: usize = 64;

const GATED_ROWS: usize = 9;
const GATED_COLUMNS: usize = 2304;
const GATED_TOKENS: usize = 11;

impl TensorSource for Gated {
    fn find(&self, name: &str) -> Option<Tensor<'_>> {
        let floats = |bytes| Data::Blocks { dtype: DType::F32, bytes };
        let (name, shape, data): (_, &[usize], _) = match name {
            "rows" => ("rows", &[GATED_TOKENS, GATED_COLUMNS], floats(&self.rows)),
            "norm" => ("norm", &[1, GATED_COLUMNS], floats(&self.rows[..4 * GATED_COLUMNS])),
            _ => ("weights", &[2 * GATED_ROWS, GATED_COLUMNS], self.weights.data()),
        };
        Some(Tensor { name, shape, data })
    }
}

impl Gated {
    fn new(storage: Storage) -> Gated {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        let weights = Weights::random(storage, &mut next);
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
        Gated { program, weights, rows: rows.collect() }
    }

    /// The logits of tokens, decoded in groups of so many.
    fn logits(&self, backend: &dyn Backend, tokens: usize, together: usize) -> Vec<f32> {
        let mut runner = Runner::new(backend, &self.program, self, 1, CONTEXT).unwrap();
        runner.phase = Some(Phase::Decode);
        let tokens: Vec<u32> = (0..tokens as u32).collect();
        let mut all = Vec::new();
        for group in tokens.chunks(together) {
            runner.feed(&[(0, 0, group)], Work::Forward).unwrap();
            all.extend(&runner.out.logits);
        }
        all
    }
}

/// Largest difference from the reference relative to the largest number: inputs of products have 16 bits or fewer.
const ERROR: f32 = 5e-3;

/// All that there are kernels for.
pub fn storages() -> impl Iterator<Item = Storage> {
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
    dtypes.map(Storage::Blocks).into_iter().chain([2, 3, 4, 5, 6, 8].map(Storage::Affine))
}

/// Compares rows that are decoded alone with the reference, and rows that are decoded together with rows alone: to the bit.
pub fn compare(backend: &dyn Backend, storage: Storage) -> Result<(), String> {
    let gated = Gated::new(storage);
    let alone = gated.logits(backend, GATED_TOKENS, 1);
    let right = gated.logits(&Reference, GATED_TOKENS, 1);
    let largest = right.iter().fold(0f32, |most, x| most.max(x.abs()));
    let far = alone.iter().zip(&right).fold(0f32, |most, (a, r)| most.max((a - r).abs()));
    if alone.iter().any(|x| !x.is_finite()) || far >= ERROR * largest {
        return Err(format!("{storage:?}: {far} of {largest}"));
    }
    let bits = |logits: &[f32]| logits.iter().map(|z| z.to_bits()).collect::<Vec<u32>>();
    for count in [2, 5, 8, GATED_TOKENS] {
        let together = gated.logits(backend, count, count);
        if bits(&together) != bits(&alone[..count * GATED_ROWS]) {
            return Err(format!("{storage:?}: {count} rows together are not what they are alone"));
        }
    }
    Ok(())
}
