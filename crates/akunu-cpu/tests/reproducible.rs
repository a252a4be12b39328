//! The same logits, bit by bit, whatever the threads, the pieces and the neighbours.

#![allow(clippy::unwrap_used)]

mod models;

use akunu_cpu::{Cpu, Isa};
use akunu_format::{DType, Support};
use akunu_program::conformance::{Runner, Tensors, blocks, numbers};
use akunu_program::program::{
    Activation, Domain, Element, Expert, Index, Op, Part, Program, Role, Slice, Value, ValueId, WeightId,
    WeightUse,
};
use akunu_program::{Phase, Work};
use models::{CONTEXT, Model, fixtures};

const TOKENS: usize = 100;

fn models() -> Vec<(String, Model)> {
    let quantised =
        ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
            .map(|dtype| (dtype.to_owned(), fixtures("quants").join(format!("{dtype}.gguf"))));
    let tiny = ["llama-f16", "gemma3", "qwen3", "mixtral", "phi3-window"]
        .map(|name| (name.to_owned(), fixtures("tiny").join(name).join("model.gguf")));
    let mlx = ["llama-2bit", "llama-3bit", "llama-4bit", "llama-5bit", "llama-6bit", "llama-8bit"]
        .map(|name| (format!("MLX {name}"), fixtures("mlx").join(name)));
    quantised.into_iter().chain(tiny).chain(mlx).map(|(name, path)| (name, Model::open(&path))).collect()
}

/// Feeds the text in pieces of one phase, beside what `beside` feeds to other slots, and gives the logits of all its rows.
fn logits(model: &Model, isa: Isa, threads: usize, phase: Phase, piece: usize, beside: usize) -> Vec<u32> {
    let cpu = Cpu::with_isa(threads, isa).unwrap();
    let mut runner = Runner::new(&cpu, &model.program, &model.file, 3, CONTEXT).unwrap();
    runner.phase = Some(phase);
    let vocabulary = model.vocabulary();
    let text: Vec<u32> = (0..TOKENS as u32).map(|i| (i * 29 + i / 9) % vocabulary as u32).collect();
    let mut all = Vec::new();
    for (i, tokens) in text.chunks(piece).enumerate() {
        let start = (i * piece) as u32;
        let noise = &text[..beside];
        let mut pieces: Vec<(u32, u32, &[u32])> = vec![(1, start, tokens)];
        if beside > 0 {
            pieces.insert(0, (0, (i % 5) as u32, noise));
            pieces.push((2, 0, &noise[..beside / 2 + 1]));
        }
        runner.feed(&pieces, Work::Forward).unwrap();
        let rows = &runner.out.logits[beside * vocabulary..][..tokens.len() * vocabulary];
        all.extend(rows.iter().map(|z| z.to_bits()));
    }
    all
}

/// With AVX-512 and AVX2, too, where many rows are multiplied in ways of their own.
#[test]
fn threads_pieces_and_neighbours_change_no_bit() {
    let detected = Isa::detect().unwrap();
    let mut sets = vec![detected];
    sets.extend([Isa::Avx512, Isa::Avx2].into_iter().filter(|isa| *isa != detected && isa.is_available()));
    for (name, model) in models() {
        for (isa, phase) in sets.iter().flat_map(|&isa| [(isa, Phase::Decode), (isa, Phase::Prompt)]) {
            let expected = logits(&model, isa, 1, phase, 1, 0);
            for (threads, piece, beside) in
                [(2, 1, 0), (3, 1, 0), (1, 100, 0), (2, 37, 0), (3, 16, 0), (2, 1, 1), (2, 2, 3), (3, 9, 13)]
            {
                assert!(
                    logits(&model, isa, threads, phase, piece, beside) == expected,
                    "{name}, {isa}, {phase:?}: {threads} threads, pieces of {piece}, {beside} rows beside"
                );
            }
        }
    }
}

#[test]
fn a_chain_gives_the_same_tokens_as_single_steps() {
    for (name, model) in models() {
        for threads in [1, 2, 3] {
            let cpu = Cpu::new(threads).unwrap();
            let runner = || Runner::new(&cpu, &model.program, &model.file, 1, CONTEXT).unwrap();
            let mut steps = runner();
            let (mut token, mut expected) = (7, Vec::new());
            for position in 0..70 {
                steps.feed(&[(0, position, &[token])], Work::Step).unwrap();
                token = steps.out.tokens[0];
                expected.push(token);
            }
            let mut chain = runner();
            chain.feed(&[(0, 0, &[7])], Work::Chain(70)).unwrap();
            assert_eq!(chain.out.tokens, expected, "{name}, {threads} threads");
        }
    }
}

/// Rows that are looked up, and their product with a matrix of floats, with a bias: so many outputs that they fill no whole number
/// of panels.
fn ragged() -> (Program, Tensors) {
    let [rows, width, outputs] = [40, 80, 312];
    let mut tensors = Tensors::default();
    tensors.floats("table", rows, width, &numbers(1, rows * width));
    tensors.floats("matrix", outputs, width, &numbers(2, outputs * width));
    tensors.floats("bias", 1, outputs, &numbers(3, outputs));
    let weight = |name: &str, rows, cols, role| WeightUse { name: name.to_owned(), rows, cols, role };
    let weights = vec![
        weight("table", rows, width, Role { lookup: true, ..Role::default() }),
        weight("matrix", outputs, width, Role { multiply: true, ..Role::default() }),
        weight("bias", 1, outputs, Role { vector: true, ..Role::default() }),
    ];
    let slice = |weight, rows| Slice { weight: WeightId(weight), first: 0, rows };
    let value = |domain, width| Value { domain, width, element: Element::Number };
    let values =
        vec![value(Domain::Tokens, width), value(Domain::Tokens, outputs), value(Domain::Outputs, outputs)];
    let [x, product, logits] = [ValueId(0), ValueId(1), ValueId(2)];
    let part = Part { weight: slice(1, outputs), bias: Some(slice(2, 1)), out: product };
    let body = vec![
        Op::Embed { table: slice(0, rows), by: Index::Token, scale: 1.0, out: x },
        Op::Linear { x, parts: vec![part] },
        Op::Gather { x: product, out: logits },
    ];
    let program = Program { values, body, logits, groups: Vec::new(), ropes: Vec::new(), weights };
    (program, tensors)
}

#[test]
fn outputs_that_fill_no_panel_are_the_same_with_any_threads() {
    let (program, tensors) = ragged();
    let text: Vec<u32> = (0..40).collect();
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let logits = |threads: usize| {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            let mut runner = Runner::new(&cpu, &program, &tensors, 1, CONTEXT).unwrap();
            runner.feed(&[(0, 0, &text)], Work::Forward).unwrap();
            runner.out.logits.iter().map(|z| z.to_bits()).collect::<Vec<_>>()
        };
        let expected = logits(1);
        for threads in [2, 3, 5] {
            assert!(logits(threads) == expected, "{isa}, {threads} threads");
        }
    }
}

/// Rows that are looked up, and the sum of their products with a matrix of floats and one of integers, which are parts of one operation.
fn mixed(role: Role, dtype: DType, width: usize, outputs: usize) -> (Program, Tensors) {
    let rows = 40;
    let mut tensors = Tensors::default();
    tensors.floats("table", rows, width, &numbers(1, rows * width));
    tensors.floats("floats", outputs, width, &numbers(2, outputs * width));
    tensors.add("integers", outputs, width, dtype, blocks(dtype, 3, outputs, width));
    let weight = |name: &str, rows, role| WeightUse { name: name.to_owned(), rows, cols: width, role };
    let weights = vec![
        weight("table", rows, Role { lookup: true, ..Role::default() }),
        weight("floats", outputs, role),
        weight("integers", outputs, role),
    ];
    let slice = |weight, rows| Slice { weight: WeightId(weight), first: 0, rows };
    let value = |domain, width| Value { domain, width, element: Element::Number };
    let mut values = vec![value(Domain::Tokens, outputs); 5];
    values[0].width = width;
    values[4].domain = Domain::Outputs;
    let [x, floats, integers, sum, logits] = [0, 1, 2, 3, 4].map(ValueId);
    let part = |weight, out| Part { weight: slice(weight, outputs), bias: None, out };
    let body = vec![
        Op::Embed { table: slice(0, rows), by: Index::Token, scale: 1.0, out: x },
        Op::Linear { x, parts: vec![part(1, floats), part(2, integers)] },
        Op::Add { x: floats, y: integers, out: sum },
        Op::Gather { x: sum, out: logits },
    ];
    let program = Program { values, body, logits, groups: Vec::new(), ropes: Vec::new(), weights };
    (program, tensors)
}

#[test]
fn weights_that_only_prompts_read_give_them_the_same() {
    let text: Vec<u32> = (0..40).collect();
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let logits = |role: Role| {
            let (program, tensors) = mixed(role, DType::Q8_0, 96, 72);
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let mut runner = Runner::new(&cpu, &program, &tensors, 1, CONTEXT).unwrap();
            runner.phase = Some(Phase::Prompt);
            runner.feed(&[(0, 0, &text)], Work::Forward).unwrap();
            runner.out.logits.iter().map(|z| z.to_bits()).collect::<Vec<_>>()
        };
        let expected = logits(Role { multiply: true, ..Role::default() });
        assert!(logits(Role { encode: true, ..Role::default() }) == expected, "{isa}");
    }
}

/// Leaves the first outputs of a [`mixed`] program's products out.
fn begin_late(program: &mut Program, by: usize) {
    let Op::Linear { parts, .. } = &mut program.body[1] else { unreachable!("the product is the second") };
    for Slice { first, rows, .. } in parts.iter_mut().map(|part| &mut part.weight) {
        (*first, *rows) = (by, *rows - by);
    }
    for value in &mut program.values[1..] {
        value.width -= by;
    }
}

/// The logits of a text whose rows are decoded so many at a time.
fn decoded(
    program: &Program,
    tensors: &Tensors,
    text: &[u32],
    isa: Isa,
    threads: usize,
    piece: usize,
) -> Vec<u32> {
    let cpu = Cpu::with_isa(threads, isa).unwrap();
    let mut runner = Runner::new(&cpu, program, tensors, 1, CONTEXT).unwrap();
    runner.phase = Some(Phase::Decode);
    let mut all = Vec::new();
    for (i, tokens) in text.chunks(piece).enumerate() {
        runner.feed(&[(0, (i * piece) as u32, tokens)], Work::Forward).unwrap();
        all.extend(runner.out.logits.iter().map(|z| z.to_bits()));
    }
    all
}

/// Bytes of three tiles of columns, which kernels that take two at a time leave to others; of nine; of four, and more panels than are
/// taken at a time; of three stretches, the last shorter than the others, with one scale for a tile and with two. And whatever no small
/// model is made of. Outputs that begin in the middle of a panel, too.
#[test]
fn decode_rows_have_the_same_bits_together_and_alone() {
    let text: Vec<u32> = (0..40).collect();
    let bytes =
        [(96, 72), (288, 72), (128, 1000), (1408, 72)].map(|(width, outputs)| (DType::Q8_0, width, outputs));
    // So wide that the integers of many rows are made ready a stretch at a time, for some panels.
    let wide = [(DType::Q8_0, 3360, 600), (DType::Q4_K, 3584, 72), (DType::NVFP4, 3392, 72)];
    let halves = [(DType::NVFP4, 1792, 72)];
    let others = [
        DType::IQ4_XS,
        DType::IQ3_S,
        DType::IQ3_XXS,
        DType::IQ2_S,
        DType::IQ2_XS,
        DType::IQ2_XXS,
        DType::IQ1_S,
        DType::IQ1_M,
        DType::TQ1_0,
        DType::TQ2_0,
        DType::MXFP4,
        DType::NVFP4,
    ];
    let others = others.map(|dtype| (dtype, 512, 72));
    for (dtype, width, outputs) in bytes.into_iter().chain(wide).chain(halves).chain(others) {
        let (mut program, tensors) = mixed(Role { multiply: true, ..Role::default() }, dtype, width, outputs);
        if width == 512 {
            begin_late(&mut program, 3);
        }
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let logits = |threads, piece| decoded(&program, &tensors, &text, isa, threads, piece);
            let expected = logits(1, 1);
            for (threads, piece) in [(1, 40), (2, 40), (3, 13), (2, 10), (1, 7)] {
                let same = logits(threads, piece) == expected;
                assert!(same, "{dtype:?}, {isa}, {threads} threads, pieces of {piece}");
            }
        }
    }
}

/// One product of integers alone: beside floats, differences in the last bit would be rounded away.
fn alone(dtype: DType, width: usize, outputs: usize, x: &[f32]) -> (Program, Tensors) {
    let rows = x.len() / width;
    let mut tensors = Tensors::default();
    tensors.floats("table", rows, width, x);
    tensors.add("w", outputs, width, dtype, blocks(dtype, 3, outputs, width));
    let weight = |name: &str, rows, role| WeightUse { name: name.to_owned(), rows, cols: width, role };
    let weights = vec![
        weight("table", rows, Role { lookup: true, ..Role::default() }),
        weight("w", outputs, Role { multiply: true, ..Role::default() }),
    ];
    let slice = |weight, rows| Slice { weight: WeightId(weight), first: 0, rows };
    let value = |domain, width| Value { domain, width, element: Element::Number };
    let values =
        vec![value(Domain::Tokens, width), value(Domain::Tokens, outputs), value(Domain::Outputs, outputs)];
    let [x, out, logits] = [0, 1, 2].map(ValueId);
    let body = vec![
        Op::Embed { table: slice(0, rows), by: Index::Token, scale: 1.0, out: x },
        Op::Linear { x, parts: vec![Part { weight: slice(1, outputs), bias: None, out }] },
        Op::Gather { x: out, out: logits },
    ];
    (Program { values, body, logits, groups: Vec::new(), ropes: Vec::new(), weights }, tensors)
}

/// With numbers of all sizes among them.
#[test]
fn several_rows_have_the_bits_of_one() {
    const ROWS: usize = 24;
    let text: Vec<u32> = (0..ROWS as u32).collect();
    let readable = |dtype: &DType| dtype.is_quantized() && dtype.support() >= Support::Read;
    let dtypes: Vec<DType> = DType::ALL.iter().copied().filter(readable).collect();
    // One panel, three, and four; then so many columns that rows are worked on some at a time.
    let mut cases: Vec<_> = dtypes.iter().flat_map(|&d| [16, 40, 64].map(|o| (d, 768, o))).collect();
    cases.extend([(DType::Q4_0, 10_752, 40), (DType::Q4_K, 10_752, 40), (DType::Q6_K, 20_480, 24)]);
    for (dtype, width, outputs) in cases {
        let mut x = numbers(1, ROWS * width);
        x[width + 5] = 3e38;
        x[2 * width..3 * width].iter_mut().for_each(|x| *x *= 1e-29);
        x[3 * width..4 * width].fill(1e30);
        x[4 * width..5 * width].fill(0.0);
        // About the largest that is made an integer.
        x[5 * width + 40] = 1.6e35;
        let (program, tensors) = alone(dtype, width, outputs, &x);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            // What is not a number has any bits.
            let bits = |piece| {
                let all = decoded(&program, &tensors, &text, isa, 1, piece);
                all.into_iter()
                    .map(|z| if f32::from_bits(z).is_nan() { u32::MAX } else { z })
                    .collect::<Vec<_>>()
            };
            let expected = bits(1);
            for piece in [8, 9, 10, 11, 17, 20, 23] {
                assert!(bits(piece) == expected, "{dtype:?}, {width} by {outputs}, {isa}: {piece}");
            }
        }
    }
}

/// Products that are large enough for their last panels to go to whoever has time: parts of different sizes, the same panels of two, and
/// one part alone.
#[test]
fn products_in_pieces_have_the_same_bits_with_any_threads() {
    let text: Vec<u32> = (0..32).collect();
    let role = Role { multiply: true, ..Role::default() };
    let (added, tensors) = mixed(role, DType::Q4_0, 512, 1100);
    let mut gated = added.clone();
    let [gate, up, out] = [1, 2, 3].map(ValueId);
    gated.body[2] = Op::Gate { gate, up, activation: Activation::Silu, out };
    let (plain, plain_tensors) = plain(role, 512, 2048);
    let programs = [(added, &tensors), (gated, &tensors), (plain, &plain_tensors)];
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for (number, (program, tensors)) in programs.iter().enumerate() {
            let logits = |threads, piece| decoded(program, tensors, &text, isa, threads, piece);
            let expected = logits(1, 1);
            for (threads, piece) in [(2, 1), (3, 1), (2, 3), (2, 8), (3, 16), (2, 32)] {
                let same = logits(threads, piece) == expected;
                assert!(same, "{number}, {isa}, {threads} threads, pieces of {piece}");
            }
        }
    }
}

/// Rows that are looked up, and what three experts, two for each, make of them.
fn mixture(dtype: DType, inner: usize) -> (Program, Tensors) {
    const ROWS: usize = 40;
    const WIDTH: usize = 256;
    const EXPERTS: usize = 3;
    let mut tensors = Tensors::default();
    tensors.floats("table", ROWS, WIDTH, &numbers(1, ROWS * WIDTH));
    tensors.floats("router", EXPERTS, WIDTH, &numbers(2, EXPERTS * WIDTH));
    let weight = |name: &str, rows, cols, role| WeightUse { name: name.to_owned(), rows, cols, role };
    let multiply = Role { multiply: true, ..Role::default() };
    let mut weights = vec![
        weight("table", ROWS, WIDTH, Role { lookup: true, ..Role::default() }),
        weight("router", EXPERTS, WIDTH, multiply),
    ];
    let sizes = [("gate", inner, WIDTH), ("up", inner, WIDTH), ("down", WIDTH, inner)];
    for (seed, (name, rows, cols)) in (3..).zip(sizes) {
        tensors.add(name, EXPERTS * rows, cols, dtype, blocks(dtype, seed, EXPERTS * rows, cols));
        weights.push(weight(name, EXPERTS * rows, cols, multiply));
    }
    let slice = |weight, first, rows| Slice { weight: WeightId(weight), first, rows };
    let experts = (0..EXPERTS).map(|e| Expert {
        gate: slice(2, e * inner, inner),
        up: slice(3, e * inner, inner),
        down: slice(4, e * WIDTH, WIDTH),
    });
    let value = |domain, width, element| Value { domain, width, element };
    let values = vec![
        value(Domain::Tokens, WIDTH, Element::Number),
        value(Domain::Tokens, EXPERTS, Element::Number),
        value(Domain::Tokens, 2, Element::Route),
        value(Domain::Tokens, WIDTH, Element::Number),
        value(Domain::Outputs, WIDTH, Element::Number),
    ];
    let [x, scores, routes, mixed, logits] = [0, 1, 2, 3, 4].map(ValueId);
    let activation = Activation::Silu;
    let router = Part { weight: slice(1, 0, EXPERTS), bias: None, out: scores };
    let body = vec![
        Op::Embed { table: slice(0, 0, ROWS), by: Index::Token, scale: 1.0, out: x },
        Op::Linear { x, parts: vec![router] },
        Op::Route { logits: scores, normalize: true, out: routes },
        Op::Experts { x, routes, experts: experts.collect(), activation, out: mixed },
        Op::Gather { x: mixed, out: logits },
    ];
    let program = Program { values, body, logits, groups: Vec::new(), ropes: Vec::new(), weights };
    (program, tensors)
}

/// More rows than an expert takes at a time, and as few as one.
#[test]
fn rows_of_an_expert_have_the_same_bits_together_and_alone() {
    let text: Vec<u32> = (0..80).map(|i| i * 7 % 40).collect();
    let integers = [
        DType::Q4_0,
        DType::Q2_K,
        DType::Q4_K,
        DType::Q6_K,
        DType::Q8_0,
        DType::MXFP4,
        DType::NVFP4,
        DType::IQ4_XS,
        DType::TQ2_0,
    ];
    // Experts of 40 outputs begin in the middle of a panel.
    for (dtype, inner) in [(DType::F32, 40)].into_iter().chain(integers.map(|dtype| (dtype, 512))) {
        let (program, tensors) = mixture(dtype, inner);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let logits = |threads, piece| decoded(&program, &tensors, &text, isa, threads, piece);
            let expected = logits(1, 1);
            assert!(expected.iter().all(|z| f32::from_bits(*z).is_finite()), "{dtype:?}, {isa}");
            for (threads, piece) in [(2, 80), (3, 17), (20, 33), (2, 9), (1, 2)] {
                let same = logits(threads, piece) == expected;
                assert!(same, "{dtype:?}, {isa}, {threads} threads, pieces of {piece}");
            }
        }
    }
}

/// Contexts that are attended to in several parts: by any number of workers, in rows alone and among several.
#[test]
fn long_contexts_have_the_same_bits_with_any_threads_and_beside_others() {
    const PROMPT: u32 = 700;
    const SEQUENCES: u32 = 6;
    for name in ["llama-f16", "phi3-window"] {
        let model = Model::open(&fixtures("tiny").join(name).join("model.gguf"));
        let vocabulary = model.vocabulary();
        let token = |position: u32| (position * 29 + position / 9) % vocabulary as u32;
        let prompt: Vec<u32> = (0..PROMPT).map(token).collect();
        let decoded = |threads: usize, sequences: u32| {
            let cpu = Cpu::new(threads).unwrap();
            let mut runner = Runner::new(&cpu, &model.program, &model.file, SEQUENCES, PROMPT + 8).unwrap();
            for slot in 0..sequences {
                // Those beside are shorter.
                for (start, piece) in (0..).step_by(400).zip(prompt[slot as usize * 90..].chunks(400)) {
                    runner.feed(&[(slot, start, piece)], Work::Forward).unwrap();
                }
            }
            let mut all = Vec::new();
            for step in 0..4 {
                let tokens = [token(step)];
                let pieces: Vec<(u32, u32, &[u32])> =
                    (0..sequences).map(|slot| (slot, PROMPT - slot * 90 + step, tokens.as_slice())).collect();
                runner.feed(&pieces, Work::Forward).unwrap();
                all.extend(runner.out.logits[..vocabulary].iter().map(|z| z.to_bits()));
            }
            all
        };
        let expected = decoded(1, 1);
        for (threads, sequences) in [(2, 1), (3, 1), (1, SEQUENCES), (3, 2), (2, SEQUENCES)] {
            assert!(
                decoded(threads, sequences) == expected,
                "{name}: {threads} threads, {sequences} sequences"
            );
        }
    }
}

/// Sequences that are decoded together, and beside a prompt, so that their rows begin anywhere in a block of tiles.
#[test]
fn sequences_have_the_same_bits_together_and_alone() {
    const SEQUENCES: u32 = 8;
    // Workers take heads of so many a few at a time.
    const MANY: u32 = 24;
    for (name, model) in models() {
        let vocabulary = model.vocabulary();
        let token = |slot: u32, position: u32| [(slot * 31 + position * 7) % vocabulary as u32];
        let prompt: Vec<u32> = (0..13).map(|i| i * 5 % vocabulary as u32).collect();
        let runner = |threads: usize| {
            let cpu = Cpu::new(threads).unwrap();
            Runner::new(&cpu, &model.program, &model.file, MANY + 1, CONTEXT).unwrap()
        };
        let mut alone = runner(2);
        let mut expected = vec![Vec::new(); 3];
        for slot in 0..MANY {
            for (position, expected) in (0..).zip(&mut expected) {
                alone.feed(&[(slot, position, &token(slot, position))], Work::Forward).unwrap();
                expected.extend(alone.out.logits.iter().map(|z| z.to_bits()));
            }
        }
        // Six beside one or two are laid out as eight, and begin after those.
        for (threads, sequences, beside) in [
            (2, SEQUENCES, 0),
            (3, SEQUENCES, 0),
            (5, SEQUENCES, 0),
            (2, SEQUENCES, 3),
            (2, SEQUENCES, 10),
            (2, SEQUENCES, 13),
            (2, 6, 1),
            (3, 6, 2),
            (2, MANY, 0),
            (3, MANY, 2),
        ] {
            let mut together = runner(threads);
            for (position, expected) in (0..).zip(&expected) {
                let tokens: Vec<_> = (0..sequences).map(|slot| token(slot, position)).collect();
                let mut pieces: Vec<(u32, u32, &[u32])> =
                    (0..).zip(&tokens).map(|(slot, token)| (slot, position, token.as_slice())).collect();
                if beside > 0 {
                    pieces.insert(0, (MANY, position * beside as u32, &prompt[..beside]));
                }
                together.feed(&pieces, Work::Forward).unwrap();
                let rows = together.out.logits[beside * vocabulary..].iter().map(|z| z.to_bits());
                let same = rows.eq(expected[..sequences as usize * vocabulary].iter().copied());
                assert!(same, "{name}, {threads} threads, {sequences} sequences, {beside} rows beside");
            }
        }
    }
}

/// Rows that are looked up, and two products with biases, with an activation between them.
fn plain(role: Role, width: usize, inner: usize) -> (Program, Tensors) {
    const ROWS: usize = 40;
    let mut tensors = Tensors::default();
    let mut weights = Vec::new();
    for (i, (name, rows, cols, role)) in [
        ("table", ROWS, width, Role { lookup: true, ..Role::default() }),
        ("up", inner, width, role),
        ("up bias", 1, inner, Role { vector: true, ..Role::default() }),
        ("down", width, inner, role),
        ("down bias", 1, width, Role { vector: true, ..Role::default() }),
    ]
    .into_iter()
    .enumerate()
    {
        tensors.floats(name, rows, cols, &numbers(i as u64, rows * cols));
        weights.push(WeightUse { name: name.to_owned(), rows, cols, role });
    }
    let slice =
        |weight: usize| Slice { weight: WeightId(weight as u32), first: 0, rows: weights[weight].rows };
    let part = |weight, out| Part { weight: slice(weight), bias: Some(slice(weight + 1)), out };
    let value = |domain, width| Value { domain, width, element: Element::Number };
    let values = vec![
        value(Domain::Tokens, width),
        value(Domain::Tokens, inner),
        value(Domain::Tokens, inner),
        value(Domain::Tokens, width),
        value(Domain::Outputs, width),
    ];
    let [x, up, activated, down, logits] = [0, 1, 2, 3, 4].map(ValueId);
    let body = vec![
        Op::Embed { table: slice(0), by: Index::Token, scale: 1.0, out: x },
        Op::Linear { x, parts: vec![part(1, up)] },
        Op::Activate { x: up, activation: Activation::GeluErf, out: activated },
        Op::Linear { x: activated, parts: vec![part(3, down)] },
        Op::Gather { x: down, out: logits },
    ];
    let program = Program { values, body, logits, groups: Vec::new(), ropes: Vec::new(), weights };
    (program, tensors)
}

#[test]
fn plain_feed_forward_blocks_are_the_same_with_any_threads_and_as_an_encoders() {
    let text: Vec<u32> = (0..40).collect();
    let [multiply, encode] =
        [false, true].map(|encode| Role { encode, multiply: !encode, ..Role::default() });
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for (width, inner) in [(80, 96), (5, 128), (200, 160), (64, 320)] {
            let logits = |role: Role, threads: usize| {
                let (program, tensors) = plain(role, width, inner);
                let cpu = Cpu::with_isa(threads, isa).unwrap();
                let mut runner = Runner::new(&cpu, &program, &tensors, 1, CONTEXT).unwrap();
                runner.phase = Some(Phase::Prompt);
                runner.feed(&[(0, 0, &text)], Work::Forward).unwrap();
                runner.out.logits.iter().map(|z| z.to_bits()).collect::<Vec<_>>()
            };
            let expected = logits(multiply, 1);
            for (role, threads) in
                [(encode, 1), (multiply, 2), (encode, 2), (multiply, 3), (encode, 3), (encode, 5)]
            {
                assert!(
                    logits(role, threads) == expected,
                    "{isa}, {width} by {inner}: {role:?}, {threads} threads"
                );
            }
        }
    }
}
