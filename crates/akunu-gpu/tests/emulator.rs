//! The kernels on the emulator, against the reference backend and the oracles' logits.

#![allow(clippy::unwrap_used)]

#[path = "../examples/check/encoders.rs"]
mod encoders;

use std::path::{Path, PathBuf};

use akunu_format::{ModelFile, Tensor};
use akunu_gpu::{Emulator, Gpu, Schedule};
use akunu_program::arch::Architecture;
use akunu_program::conformance::{self, Runner};
use akunu_program::program::Program;
use akunu_program::reference::Reference;
use akunu_program::select::Sampling;
use akunu_program::{Backend, Batch, Phase, SlotEdit, SlotId, TensorSource, Work, build};

const CONTEXT: u32 = 128;

fn emulator(schedule: Schedule) -> Gpu<Emulator> {
    Gpu::new(Emulator::new(schedule))
}

#[test]
fn every_operation_is_right_in_every_dtype() {
    let outcomes = conformance::run(&emulator(Schedule::InTurn));
    let wrong: Vec<String> = outcomes.iter().filter(|o| !o.is_right()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

struct Model {
    folder: PathBuf,
    file: ModelFile,
    program: Program,
}

impl Model {
    /// A model of `akunu-program`'s fixtures: a tiny one, or one of MLX's.
    fn open(name: &str) -> Model {
        Model::with_context(name, CONTEXT)
    }

    /// The same, made for so many positions.
    fn with_context(name: &str, context: u32) -> Model {
        let mlx = fixtures("mlx").join(name);
        let (folder, path) = if mlx.is_dir() {
            (mlx.clone(), mlx)
        } else {
            let folder = fixtures("tiny").join(name);
            (folder.clone(), folder.join("model.gguf"))
        };
        let file = ModelFile::open(path).unwrap();
        let (arch, names) = Architecture::of(&file).unwrap();
        let program = build(&arch, &names, &file, context as usize).unwrap();
        Model { folder, file, program }
    }

    fn runner(&self, backend: &dyn Backend) -> Runner {
        Runner::new(backend, &self.program, &self.file, 2, CONTEXT).unwrap()
    }

    fn prompt(&self) -> Vec<u32> {
        serde_json::from_slice(&std::fs::read(self.folder.join("prompt.json")).unwrap()).unwrap()
    }

    /// The logits of a prompt fed in pieces of one phase, beside another sequence where asked.
    fn logits(&self, backend: &dyn Backend, phase: Phase, piece: usize, beside: bool) -> Vec<u32> {
        let mut runner = self.runner(backend);
        runner.phase = Some(phase);
        let vocabulary = self.program.value(self.program.logits).width;
        let mut all = Vec::new();
        for (i, tokens) in self.prompt().chunks(piece).enumerate() {
            let mut pieces: Vec<(u32, u32, &[u32])> = vec![(0, (i * piece) as u32, tokens)];
            if beside {
                pieces.push((1, 0, &[3, 1, 2]));
            }
            runner.feed(&pieces, Work::Forward).unwrap();
            all.extend(runner.out.logits[..tokens.len() * vocabulary].iter().map(|z| z.to_bits()));
        }
        all
    }
}

/// Largest difference of a logit relative to the largest of its row: keys and values are F16.
const ERROR: f32 = 5e-3;

#[test]
fn tiny_models_give_the_oracles_logits_in_every_schedule() {
    let schedules = Schedule::ALL.into_iter().cycle();
    let families = ["llama-f16", "gemma2", "gemma3-bf16", "qwen2", "qwen3moe", "phi3-window"];
    let mlx =
        ["llama-2bit", "llama-3bit", "llama-4bit", "llama-5bit", "llama-6bit", "llama-8bit", "llama-mixed"];
    for (name, schedule) in families.iter().chain(&mlx).zip(schedules) {
        let model = Model::open(name);
        let bytes = std::fs::read(model.folder.join("logits.bin")).unwrap();
        let expected: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let vocabulary = model.program.value(model.program.logits).width;
        let gpu = emulator(schedule);
        for (phase, piece) in [(Phase::Prompt, usize::MAX), (Phase::Decode, 5)] {
            let actual = model.logits(&gpu, phase, piece.min(model.prompt().len()), false);
            for (actual, expected) in actual.chunks_exact(vocabulary).zip(expected.chunks_exact(vocabulary)) {
                let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
                let far = actual
                    .iter()
                    .zip(expected)
                    .map(|(a, e)| (f32::from_bits(*a) - e).abs())
                    .fold(0f32, f32::max);
                assert!(far / scale < ERROR, "{name}, {schedule:?}, {phase:?}: {}", far / scale);
            }
        }
    }
}

/// Where `akunu-program` keeps its models of a kind.
fn fixtures(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures").join(kind)
}

#[test]
fn encoders_give_the_oracles_states_in_every_schedule() {
    for (name, schedule) in encoders::ENCODERS.into_iter().zip(Schedule::ALL.into_iter().cycle()) {
        let error = encoders::encoder(&emulator(schedule), &fixtures("encoders").join(name));
        assert!(error < ERROR, "{name}, {schedule:?}: {error}");
    }
}

#[test]
fn models_of_speech_hear_and_write_what_the_oracle_does_in_every_schedule() {
    for (name, schedules) in encoders::SPEECH.into_iter().zip([&Schedule::ALL[..1], &Schedule::ALL[1..]]) {
        for &schedule in schedules {
            let errors = encoders::speech(&emulator(schedule), &fixtures("speech").join(name));
            assert!(errors.iter().all(|error| *error < ERROR), "{name}, {schedule:?}: {errors:?}");
        }
    }
}

#[test]
fn pieces_and_neighbours_change_no_bit() {
    let gpu = emulator(Schedule::LastAhead);
    for name in ["llama-f16", "qwen3moe"] {
        let model = Model::open(name);
        for phase in [Phase::Decode, Phase::Prompt] {
            let expected = model.logits(&gpu, phase, 1, false);
            for (piece, beside) in [(1, true), (7, false), (2, true)] {
                assert!(
                    model.logits(&gpu, phase, piece, beside) == expected,
                    "{name}, {phase:?}: pieces of {piece}, neighbours: {beside}"
                );
            }
        }
    }
}

/// A file that does not say that it is mapped.
struct Unmapped<'a>(&'a ModelFile);

impl TensorSource for Unmapped<'_> {
    fn find(&self, name: &str) -> Option<Tensor<'_>> {
        self.0.get_tensor(name)
    }
}

#[test]
fn matrices_used_in_the_file_give_the_bits_of_copies() {
    let gpu = emulator(Schedule::InTurn);
    for name in ["llama-f16", "llama-bf16", "llama"] {
        let model = Model::open(name);
        let prompt = model.prompt();
        let [in_place, copied] = [&model.file as &dyn TensorSource, &Unmapped(&model.file)].map(|source| {
            let mut runner = Runner::new(&gpu, &model.program, source, 2, CONTEXT).unwrap();
            // A prompt, several rows together, and one.
            let (head, tail) = prompt.split_at(prompt.len() - 4);
            let mut all = Vec::new();
            let mut start = 0;
            for (phase, tokens) in
                [(Phase::Prompt, head), (Phase::Decode, &tail[..3]), (Phase::Decode, &tail[3..])]
            {
                runner.phase = Some(phase);
                runner.feed(&[(0, start, tokens)], Work::Forward).unwrap();
                start += tokens.len() as u32;
                all.extend(runner.out.logits.iter().map(|z| z.to_bits()));
            }
            all
        });
        assert!(in_place == copied, "{name}");
    }
}

#[test]
fn the_last_threadgroup_of_a_row_adds_its_parts_in_every_schedule() {
    // Three parts of 128 positions; the rows beside one another end in the second and in the third.
    let (context, stored) = (384, [250u32, 300]);
    let model = Model::with_context("llama-f16", context);
    let vocabulary = model.program.value(model.program.logits).width as u32;
    let logits = |gpu: &dyn Backend| {
        let mut runner = Runner::new(gpu, &model.program, &model.file, 2, context).unwrap();
        for (slot, &count) in (0..).zip(&stored) {
            let tokens: Vec<u32> = (0..count).map(|i| (7 * i + slot) % vocabulary).collect();
            runner.phase = Some(Phase::Prompt);
            runner.feed(&[(slot, 0, &tokens)], Work::Forward).unwrap();
        }
        runner.phase = Some(Phase::Decode);
        let mut all = Vec::new();
        // Twice: counts of arrivals are zero again after each row.
        for turn in 0..2 {
            runner.feed(&[(0, stored[0] + turn, &[3]), (1, stored[1] + turn, &[5])], Work::Forward).unwrap();
            all.extend(runner.out.logits.iter().map(|z| z.to_bits()));
        }
        all
    };
    let expected = logits(&emulator(Schedule::InTurn));
    for schedule in Schedule::ALL {
        assert!(logits(&Gpu::new(Emulator::ordered(schedule, 3))) == expected, "{schedule:?}");
    }
}

#[test]
fn chains_choose_the_tokens_the_definition_chooses() {
    let filtered = Sampling {
        temperature: 0.9,
        top_k: 20,
        top_p: 0.95,
        min_p: 0.02,
        repeat_penalty: 1.1,
        frequency_penalty: 0.1,
        seed: 42,
        ..Sampling::GREEDY
    };
    let biased = Sampling { logit_bias: vec![(5, 30.0), (9, f32::NEG_INFINITY)], ..filtered.clone() };
    let plain = Sampling { temperature: 1.3, seed: u64::MAX, ..Sampling::GREEDY };
    let gpu = emulator(Schedule::FirstAhead);
    let model = Model::open("llama");
    for sampling in [Sampling::GREEDY, filtered, biased, plain] {
        let [actual, expected] = [&gpu as &dyn Backend, &Reference].map(|backend| {
            let mut runner = model.runner(backend);
            let edits = [SlotEdit::Sampling { slot: SlotId(1), sampling: sampling.clone() }];
            runner.run(&Batch { edits: &edits, ..Batch::default() }, Work::Forward).unwrap();
            runner.feed(&[(1, 0, &[7])], Work::Chain(40)).unwrap();
            runner.out.tokens
        });
        assert_eq!(actual, expected, "{sampling:?}");
    }
}
