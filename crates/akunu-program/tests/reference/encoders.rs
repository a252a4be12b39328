//! Tiny random encoders: the reference backend's hidden states against those of `transformers`, of texts alone and side by
//! side.

use std::path::{Path, PathBuf};

use akunu_format::ModelFile;
use akunu_program::arch::Architecture;
use akunu_program::conformance::Runner;
use akunu_program::reference::Reference;
use akunu_program::{Work, build, build_hidden};

const CONTEXT: u32 = 64;

/// Every model file, with the folder of its fixture.
fn models() -> Vec<(PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/encoders");
    let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|p| p.is_dir());
    let models =
        folders.flat_map(|dir| [dir.join("model.gguf"), dir.clone()].map(|model| (dir.clone(), model)));
    let models: Vec<_> = models.filter(|(_, model)| model.exists()).collect();
    assert_eq!(models.len(), 7, "{models:?}");
    models
}

#[test]
fn encoders_give_the_oracles_hidden_states() {
    for (dir, model) in models() {
        let file = ModelFile::open(&model).unwrap();
        let (arch, names) = Architecture::of(&file).unwrap_or_else(|e| panic!("{}: {e}", model.display()));
        let program = build_hidden(&arch, &names, &file, CONTEXT as usize).unwrap();
        let hidden = program.value(program.logits).width;
        let bytes = std::fs::read(dir.join("hidden.bin")).unwrap();
        let expected: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let prompts = std::fs::read(dir.join("prompts.json")).unwrap();
        let prompts: Vec<Vec<u32>> = serde_json::from_slice(&prompts).unwrap();
        let mut runner = Runner::new(&Reference, &program, &file, 2, CONTEXT).unwrap();

        let check = |how: &str, actual: &[f32], expected: &[f32]| {
            assert_eq!(actual.len(), expected.len());
            for (actual, expected) in actual.chunks_exact(hidden).zip(expected.chunks_exact(hidden)) {
                let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
                let error = actual.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs())) / scale;
                assert!(error < 1e-4, "{} {how}: relative error {error}", model.display());
            }
        };
        runner.feed(&[(0, 0, &prompts[0]), (1, 0, &prompts[1])], Work::Forward).unwrap();
        check("side by side", &runner.out.logits, &expected);
        runner.feed(&[(0, 0, &prompts[1])], Work::Forward).unwrap();
        check("alone", &runner.out.logits, &expected[prompts[0].len() * hidden..]);
    }
}

#[test]
fn an_encoder_is_not_asked_to_write() {
    let (_, model) = models().pop().unwrap();
    let file = ModelFile::open(model).unwrap();
    let (arch, names) = Architecture::of(&file).unwrap();
    let problem = build(&arch, &names, &file, 64).unwrap_err().to_string();
    assert!(problem.contains("writing text") && problem.contains("akunu embed"), "{problem}");
}
