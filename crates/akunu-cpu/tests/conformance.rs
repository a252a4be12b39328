//! Every operation, in every dtype, on every instruction set of this processor, against the reference backend.

#![allow(clippy::unwrap_used)]

use akunu_cpu::{Cpu, Isa};
use akunu_format::DType;
use akunu_program::conformance::{self, Runner, Tensors, blocks};
use akunu_program::program::{
    Domain, Element, Index, Op, Part, Program, Role, Slice, Value, ValueId, WeightId, WeightUse,
};

fn check(isa: Isa, threads: usize) {
    let cpu = Cpu::with_isa(threads, isa).unwrap();
    let wrong: Vec<String> =
        conformance::run(&cpu).iter().filter(|o| !o.is_right()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{isa}, {threads} threads:\n{}", wrong.join("\n"));
}

#[test]
fn every_instruction_set_computes_every_operation() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        check(isa, 2);
    }
}

#[test]
fn more_threads_than_work_do_too() {
    check(Isa::detect().unwrap(), 5);
}

/// A scale that is not a number makes all of its block so, and nothing else in the file says it.
#[test]
fn weights_that_are_not_finite_are_refused() {
    const ROWS: usize = 32;
    const WIDTH: usize = 256;
    let slice = |weight| Slice { weight: WeightId(weight), first: 0, rows: ROWS };
    let value = |domain, width| Value { domain, width, element: Element::Number };
    let weight = |name: &str, role| WeightUse { name: name.to_owned(), rows: ROWS, cols: WIDTH, role };
    let [x, product, logits] = [0, 1, 2].map(ValueId);
    let program = Program {
        values: vec![value(Domain::Tokens, WIDTH), value(Domain::Tokens, ROWS), value(Domain::Outputs, ROWS)],
        body: vec![
            Op::Embed { table: slice(0), by: Index::Token, scale: 1.0, out: x },
            Op::Linear { x, parts: vec![Part { weight: slice(1), bias: None, out: product }] },
            Op::Gather { x: product, out: logits },
        ],
        logits,
        groups: Vec::new(),
        ropes: Vec::new(),
        weights: vec![
            weight("table", Role { lookup: true, ..Role::default() }),
            weight("matrix", Role { multiply: true, ..Role::default() }),
        ],
    };
    // Where the scale of a block, or of its scales, lies.
    let first = [
        DType::Q4_0,
        DType::Q8_0,
        DType::Q4_K,
        DType::IQ4_NL,
        DType::IQ4_XS,
        DType::IQ3_S,
        DType::IQ3_XXS,
        DType::IQ2_S,
        DType::IQ2_XS,
        DType::IQ2_XXS,
        DType::IQ1_S,
    ];
    let last = [DType::Q3_K, DType::Q6_K, DType::TQ1_0, DType::TQ2_0];
    let places = first.map(|dtype| (dtype, 0)).into_iter().chain([(DType::Q2_K, 80)]);
    for (dtype, at) in places.chain(last.map(|dtype| (dtype, dtype.block_bytes() - 2))) {
        let load = |bad: Option<usize>| {
            let mut bytes = blocks(dtype, 5, ROWS, WIDTH);
            if let Some(row) = bad {
                let start = row * WIDTH / dtype.block_len() * dtype.block_bytes() + at;
                bytes[start..start + 2].copy_from_slice(&0x7E00_u16.to_le_bytes());
            }
            let mut tensors = Tensors::default();
            tensors.add("table", ROWS, WIDTH, DType::Q8_0, blocks(DType::Q8_0, 6, ROWS, WIDTH));
            tensors.add("matrix", ROWS, WIDTH, dtype, bytes);
            let cpu = Cpu::new(2).unwrap();
            Runner::new(&cpu, &program, &tensors, 1, 64).map(drop)
        };
        load(None).unwrap();
        let refused = load(Some(21)).unwrap_err().to_string();
        assert!(refused.contains("matrix") && refused.contains("21"), "{dtype:?}: {refused}");
    }
}
