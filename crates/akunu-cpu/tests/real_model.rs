//! SmolLM2, whose activations are hard to round: with 8 bits its first answers are wrong. Run scripts/fetch-test-data first.

#![allow(clippy::unwrap_used)]

mod models;

use std::path::PathBuf;

use akunu_cpu::{Cpu, Isa};
use akunu_program::conformance::{Runner, Tensors};
use akunu_program::{Phase, TensorSource, Work};
use models::Model;

/// Largest difference of a logit, relative to the largest of its row, that rounding activations to 15 bits may cost. A rounding
/// is off by at most 2^-14 of the largest number in its group. There are four in each of SmolLM2's 30 layers, which add up at
/// random: √120 · 2^-15 (half of the most) is 3.3e-4, and the worst of 49152 logits is some deviations out. Measured: 1.0e-3. (8 bits cost some
/// 50 times that.)
const ERROR: f32 = 1.5e-3;

/// "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n".
const PROMPT: [u32; 16] = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198];

/// "The capital of France is Paris.<|im_end|>".
const ANSWER: [u32; 8] = [504, 3575, 282, 4649, 314, 7042, 30, 2];

fn smollm2() -> PathBuf {
    akunu_testing::data("models/smollm2.gguf")
}

/// The same weights as F32.
fn expanded(model: &Model) -> Tensors {
    let mut tensors = Tensors::default();
    for used in &model.program.weights {
        let values = model.file.find(&used.name).unwrap().to_f32().unwrap();
        tensors.floats(&used.name, used.rows, used.cols, &values);
    }
    tensors
}

/// The logits of every row of the prompt.
fn logits(model: &Model, tensors: &dyn TensorSource, isa: Isa, phase: Phase) -> Vec<f32> {
    let cpu = Cpu::with_isa(2, isa).unwrap();
    let mut runner = Runner::new(&cpu, &model.program, tensors, 1, models::CONTEXT).unwrap();
    runner.phase = Some(phase);
    runner.feed(&[(0, 0, &PROMPT)], Work::Forward).unwrap();
    std::mem::take(&mut runner.out.logits)
}

#[test]
fn rounded_activations_hardly_move_the_logits() {
    let model = Model::open(&smollm2());
    let vocabulary = model.vocabulary();
    let exact = expanded(&model);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available() && *isa != Isa::Portable) {
        for phase in [Phase::Prompt, Phase::Decode] {
            let expected = logits(&model, &exact, isa, phase);
            let actual = logits(&model, &model.file, isa, phase);
            for (expected, actual) in expected.chunks_exact(vocabulary).zip(actual.chunks_exact(vocabulary)) {
                let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
                let difference = actual.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs()));
                assert!(difference < ERROR * scale, "{isa}, {phase:?}: {}", difference / scale);
            }
        }
    }
}

#[test]
fn the_capital_of_france_is_paris() {
    let model = Model::open(&smollm2());
    let cpu = Cpu::new(2).unwrap();
    let mut runner = Runner::new(&cpu, &model.program, &model.file, 1, models::CONTEXT).unwrap();
    runner.feed(&[(0, 0, &PROMPT)], Work::Step).unwrap();
    let mut answer = vec![*runner.out.tokens.last().unwrap()];
    runner.feed(&[(0, PROMPT.len() as u32, &answer)], Work::Chain(7)).unwrap();
    answer.extend(&runner.out.tokens);
    assert_eq!(answer, ANSWER);
}
