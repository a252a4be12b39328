//! How fast models of known shapes decode, with random weights.

use std::time::Instant;

use akunu_format::{DType, Data, Tensor};
use akunu_program::conformance::Runner;
use akunu_program::program::{
    Activation, CacheLayer, Domain, Element, GroupId, Index, KvGroup, Mask, NormKind, Op, Part, Program,
    Role, RopeId, Slice, Value, ValueId, WeightId, WeightUse,
};
use akunu_program::rope::{RopeLayout, RopeTable};
use akunu_program::{Backend, Phase, TensorSource, Work};

/// A Llama-like model.
struct Shape {
    layers: usize,
    hidden: usize,
    inner: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocabulary: usize,
    /// Whether the output is a matrix of its own.
    untied: bool,
}

fn shape(name: &str) -> Shape {
    let (layers, hidden, inner, heads, kv_heads, head_dim, vocabulary, untied) = match name {
        "135M" => (30, 576, 1536, 9, 3, 64, 49152, false),
        "0.6B" => (28, 1024, 3072, 16, 8, 128, 151_936, false),
        "1B" => (16, 2048, 8192, 32, 8, 64, 128_256, false),
        "8B" => (32, 4096, 14336, 32, 8, 128, 128_256, true),
        other => panic!("no shape {other}"),
    };
    Shape { layers, hidden, inner, heads, kv_heads, head_dim, vocabulary, untied }
}

/// Tensors of one dtype, all with the same numbers.
struct Random {
    dtype: DType,
    /// The name, rows and columns of each, and the same as a shape.
    tensors: Vec<(String, [usize; 2], bool)>,
    matrix: Vec<u8>,
    vector: Vec<u8>,
}

impl TensorSource for Random {
    fn find(&self, name: &str) -> Option<Tensor<'_>> {
        let (name, shape, is_vector) = self.tensors.iter().find(|t| t.0 == name)?;
        let (dtype, bytes) = if *is_vector { (DType::F32, &self.vector) } else { (self.dtype, &self.matrix) };
        let bytes = &bytes[..shape[0] * dtype.row_bytes(shape[1]).ok()?];
        Some(Tensor { name, shape, data: Data::Blocks { dtype, bytes } })
    }
}

/// Bytes that are blocks of small numbers.
fn blocks(dtype: DType, bytes: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let size = dtype.block_bytes();
    let mut out = Vec::with_capacity(bytes);
    while out.len() < bytes {
        let mut block: Vec<u8> = (0..size).map(|_| next()).collect();
        let half = |block: &mut [u8], at: usize| block[at + 1] = 0x14;
        match dtype {
            DType::F16 => block[1] = (block[1] & 0x83) + 0x24,
            DType::Q4_K => {
                half(&mut block, 0);
                half(&mut block, 2);
            }
            _ => half(&mut block, 0),
        }
        out.extend(block);
    }
    out
}

struct Build {
    program: Program,
    random: Random,
}

impl Build {
    fn value(&mut self, domain: Domain, width: usize) -> ValueId {
        self.program.values.push(Value { domain, width, element: Element::Number });
        ValueId(self.program.values.len() as u32 - 1)
    }

    fn weight(&mut self, rows: usize, cols: usize, role: Role) -> Slice {
        let name = format!("w{}", self.program.weights.len());
        self.random.tensors.push((name.clone(), [rows, cols], role.vector));
        self.program.weights.push(WeightUse { name, rows, cols, role });
        Slice { weight: WeightId(self.program.weights.len() as u32 - 1), first: 0, rows }
    }

    fn norm(&mut self, x: ValueId) -> ValueId {
        let Value { domain, width, .. } = self.program.value(x);
        let weight = self.weight(1, width, Role { vector: true, ..Role::default() });
        let out = self.value(domain, width);
        let kind = NormKind::Rms { offset: 0.0 };
        self.program.body.push(Op::Norm { x, kind, eps: 1e-5, weight, bias: None, groups: 1, out });
        out
    }

    fn linear(&mut self, x: ValueId, widths: &[usize]) -> Vec<ValueId> {
        let Value { domain, width, .. } = self.program.value(x);
        let role = Role { multiply: true, ..Role::default() };
        let parts: Vec<Part> = widths
            .iter()
            .map(|&rows| Part {
                weight: self.weight(rows, width, role),
                bias: None,
                out: self.value(domain, rows),
            })
            .collect();
        let outs = parts.iter().map(|p| p.out).collect();
        self.program.body.push(Op::Linear { x, parts });
        outs
    }

    fn add(&mut self, x: ValueId, y: ValueId) -> ValueId {
        let Value { domain, width, .. } = self.program.value(x);
        let out = self.value(domain, width);
        self.program.body.push(Op::Add { x, y, out });
        out
    }
}

/// The program of a shape and where its weights come from.
fn build(shape: &Shape, dtype: DType) -> Build {
    let &Shape { layers, hidden, inner, heads, kv_heads, head_dim, vocabulary, untied } = shape;
    let largest = (vocabulary * hidden).max(inner * hidden);
    let frequencies = (0..head_dim / 2).map(|i| 10_000f32.powf(-2.0 * i as f32 / head_dim as f32)).collect();
    let mut b = Build {
        program: Program {
            values: Vec::new(),
            body: Vec::new(),
            logits: ValueId(0),
            groups: vec![KvGroup { layers, kv_heads, head_dim, window: None }],
            ropes: vec![RopeTable { layout: RopeLayout::SplitHalf, frequencies, magnitude: 1.0 }],
            weights: Vec::new(),
        },
        random: Random {
            dtype,
            tensors: Vec::new(),
            matrix: blocks(dtype, dtype.row_bytes(largest).unwrap()),
            vector: (0..hidden).flat_map(|_| 1f32.to_le_bytes()).collect(),
        },
    };
    let role = Role { lookup: true, multiply: !untied, ..Role::default() };
    let table = b.weight(vocabulary, hidden, role);
    let mut x = b.value(Domain::Tokens, hidden);
    b.program.body.push(Op::Embed { table, by: Index::Token, scale: 1.0, out: x });
    for layer in 0..layers {
        let h = b.norm(x);
        let qkv = b.linear(h, &[heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]);
        let cache = CacheLayer { group: GroupId(0), layer };
        let q = b.value(Domain::Tokens, heads * head_dim);
        b.program.body.push(Op::RopeKv {
            q: qkv[0],
            k: qkv[1],
            v: qkv[2],
            rope: Some(RopeId(0)),
            cache,
            out: q,
        });
        let mixed = b.value(Domain::Tokens, heads * head_dim);
        let scale = 1.0 / (head_dim as f32).sqrt();
        b.program.body.push(Op::Attend { q, mask: Mask::Causal, cache, scale, cap: None, out: mixed });
        let o = b.linear(mixed, &[hidden])[0];
        x = b.add(x, o);
        let h = b.norm(x);
        let both = b.linear(h, &[inner, inner]);
        let product = b.value(Domain::Tokens, inner);
        b.program.body.push(Op::Gate {
            gate: both[0],
            up: both[1],
            activation: Activation::Silu,
            out: product,
        });
        let down = b.linear(product, &[hidden])[0];
        x = b.add(x, down);
    }
    let wanted = b.value(Domain::Outputs, hidden);
    b.program.body.push(Op::Gather { x, out: wanted });
    let h = b.norm(wanted);
    b.program.logits = if untied {
        b.linear(h, &[vocabulary])[0]
    } else {
        let out = b.value(Domain::Outputs, vocabulary);
        b.program.body.push(Op::Linear { x: h, parts: vec![Part { weight: table, bias: None, out }] });
        out
    };
    b
}

/// Prints how fast `SHAPE`, `SHAPE:DTYPE` or `SHAPE:DTYPE:SEQUENCES` decodes: tokens per second of 128 tokens after one, of all
/// sequences together, and of a prompt of 512 where there is one sequence.
pub fn measure(backend: &dyn Backend, argument: &str) {
    let mut fields = argument.split(':');
    let (name, dtype) = (fields.next().unwrap_or_default(), fields.next().unwrap_or("Q4_0"));
    let sequences: u32 = fields.next().map_or(1, |count| count.parse().unwrap());
    let (shape, dtype) = (shape(name), DType::from_name(dtype).unwrap());
    let Build { program, random } = build(&shape, dtype);
    let read: usize = program
        .weights
        .iter()
        .filter(|w| w.role.multiply)
        .map(|w| w.rows * dtype.row_bytes(w.cols).unwrap())
        .sum();
    let began = Instant::now();
    let mut runner = Runner::new(backend, &program, &random, sequences, 1024).unwrap();
    let loaded = began.elapsed().as_secs_f64();
    let rows: Vec<(u32, u32, [u32; 1])> = (0..sequences).map(|slot| (slot, 0, [7 + slot])).collect();
    let rows: Vec<(u32, u32, &[u32])> =
        rows.iter().map(|(slot, at, token)| (*slot, *at, &token[..])).collect();
    let mut steps = Vec::new();
    for _ in 0..4 {
        runner.phase = Some(Phase::Decode);
        let began = Instant::now();
        runner.feed(&rows, Work::Chain(128)).unwrap();
        steps.push(128.0 / began.elapsed().as_secs_f64());
    }
    steps.remove(0);
    steps.sort_by(f64::total_cmp);
    let (speed, bandwidth) = (steps[1] * f64::from(sequences), steps[1] * read as f64 / 1e9);
    print!("{name} {dtype}: {sequences} decoded at {speed:.0} tok/s, {:.3} ms a step", 1e3 / steps[1]);
    print!(" ({bandwidth:.0} GB/s if weights are read once), loaded in {loaded:.1} s");
    if sequences == 1 {
        print!(", prompt of 512 {:.0} tok/s", prompt(&mut runner));
    }
    println!();
}

/// Tokens per second of a prompt of 512, the second of two.
fn prompt(runner: &mut Runner) -> f64 {
    let prompt: Vec<u32> = (0..512).collect();
    let spans =
        [akunu_program::Span { slot: akunu_program::SlotId(0), start: 0, rows: 512, phase: Phase::Prompt }];
    let batch = akunu_program::Batch {
        spans: &spans,
        tokens: &prompt,
        outputs: &[511],
        ..akunu_program::Batch::default()
    };
    let once = |_| {
        let began = Instant::now();
        runner.run(&batch, Work::Step).unwrap();
        512.0 / began.elapsed().as_secs_f64()
    };
    [0, 1].map(once)[1]
}
