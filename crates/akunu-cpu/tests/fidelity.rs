//! Whole models: tiny ones of every family and of MLX's types against `transformers`, and one llama in every quantised dtype.

#![allow(clippy::unwrap_used)]

mod models;

use akunu_cpu::{Cpu, Isa};
use akunu_program::Work;
use akunu_program::conformance::Runner;
use models::{CONTEXT, Model, fixtures, tiny};
use serde_json::Value;

/// Largest difference of a logit relative to the largest of its row. Products keep their inputs in F32; keys and values are
/// F16, with 11 bits.
const ERROR: f32 = 5e-3;

/// Largest difference of a log-probability. Keys and values in F16 are off by up to 2^-12 of themselves, which moves scores and
/// sums of about 4 by about 1e-3; rounding activations to 15 bits adds less. (With 8 bits, llama.cpp is up to 0.12 away.)
const LOG_ERROR: f64 = 4e-3;

fn available() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

#[test]
fn tiny_models_of_every_family_give_the_oracles_logits() {
    for (dir, model) in tiny() {
        let bytes = std::fs::read(dir.join("logits.bin")).unwrap();
        let logits: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let prompt: Vec<u32> =
            serde_json::from_slice(&std::fs::read(dir.join("prompt.json")).unwrap()).unwrap();
        let model = Model::open(&model);
        let vocabulary = model.vocabulary();
        for isa in available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            for chunk in [prompt.len(), 7, 1] {
                let mut runner = Runner::new(&cpu, &model.program, &model.file, 1, CONTEXT).unwrap();
                for (i, tokens) in prompt.chunks(chunk).enumerate() {
                    runner.feed(&[(0, (i * chunk) as u32, tokens)], Work::Forward).unwrap();
                    let expected = &logits[i * chunk * vocabulary..][..tokens.len() * vocabulary];
                    let rows = runner.out.logits.chunks_exact(vocabulary);
                    for (actual, expected) in rows.zip(expected.chunks_exact(vocabulary)) {
                        let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
                        let difference =
                            actual.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs()));
                        let error = difference / scale;
                        assert!(error < ERROR, "{}, {isa}, {chunk} at once: {error}", dir.display());
                    }
                }
            }
        }
    }
}

#[test]
fn quantised_models_give_the_oracles_best_tokens() {
    let top: Value =
        serde_json::from_slice(&std::fs::read(fixtures("quants").join("top20.json")).unwrap()).unwrap();
    let numbers = |v: &Value| -> Vec<u32> {
        v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
    };
    let (prompt, positions) = (numbers(&top["prompt"]), numbers(&top["positions"]));
    for (dtype, expected) in top["dtypes"].as_object().unwrap() {
        let model = Model::open(&fixtures("quants").join(format!("{dtype}.gguf")));
        let vocabulary = model.vocabulary();
        for isa in available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let mut runner = Runner::new(&cpu, &model.program, &model.file, 1, CONTEXT).unwrap();
            runner.feed(&[(0, 0, &prompt)], Work::Forward).unwrap();
            let mut worst = 0f64;
            for (position, best) in positions.iter().zip(expected["exact"].as_array().unwrap()) {
                let logits = &runner.out.logits[*position as usize * vocabulary..][..vocabulary];
                let total: f64 = logits.iter().map(|z| f64::from(*z).exp()).sum();
                for pair in best.as_array().unwrap() {
                    let token = pair[0].as_u64().unwrap() as usize;
                    let log_probability = f64::from(logits[token]) - total.ln();
                    worst = worst.max((log_probability - pair[1].as_f64().unwrap()).abs());
                }
            }
            assert!(worst < LOG_ERROR, "{dtype}, {isa}: {worst}");
        }
    }
}
