//! Tiny models of every family, and of MLX's types, against their oracles.

use std::path::Path;

use akunu_format::ModelFile;
use akunu_program::arch::Architecture;
use akunu_program::conformance::Runner;
use akunu_program::reference::Reference;
use akunu_program::select::Sampling;
use akunu_program::{Backend, Batch, SlotEdit, SlotId, Work, build};

const CONTEXT: u32 = 128;

/// Largest difference of a logit relative to the largest of its row: keys and values are F16.
pub const ERROR: f32 = 5e-3;

/// Compares all models of a folder's `tiny` and `mlx`; gives how many are wrong.
pub fn check(backend: &dyn Backend, fixtures: &Path) -> usize {
    let folders = |kind: &str| {
        let entries = std::fs::read_dir(fixtures.join(kind)).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    };
    let files = folders("tiny").map(|folder| (folder.clone(), folder.join("model.gguf")));
    let mut models: Vec<_> = files.chain(folders("mlx").map(|folder| (folder.clone(), folder))).collect();
    models.sort();
    let (mut wrong, mut worst) = (0, 0f32);
    for (folder, model) in &models {
        let bytes = std::fs::read(folder.join("logits.bin")).unwrap();
        let logits: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let prompt: Vec<u32> =
            serde_json::from_slice(&std::fs::read(folder.join("prompt.json")).unwrap()).unwrap();
        let file = ModelFile::open(model).unwrap();
        let (arch, names) = Architecture::of(&file).unwrap();
        let program = build(&arch, &names, &file, CONTEXT as usize).unwrap();
        let vocabulary = program.value(program.logits).width;
        let mut error = 0f32;
        for chunk in [prompt.len(), 7, 1] {
            let mut runner = Runner::new(backend, &program, &file, 1, CONTEXT).unwrap();
            for (i, tokens) in prompt.chunks(chunk).enumerate() {
                runner.feed(&[(0, (i * chunk) as u32, tokens)], Work::Forward).unwrap();
                let expected = &logits[i * chunk * vocabulary..][..tokens.len() * vocabulary];
                for (actual, expected) in
                    runner.out.logits.chunks_exact(vocabulary).zip(expected.chunks_exact(vocabulary))
                {
                    let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
                    let far = actual.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs()));
                    error = error.max(if far.is_finite() { far / scale } else { f32::INFINITY });
                }
            }
        }
        // Sampled chains: the same tokens as the reference's, unless rounding tipped one.
        let sampling = Sampling {
            temperature: 0.9,
            top_k: 20,
            top_p: 0.95,
            min_p: 0.02,
            repeat_penalty: 1.1,
            frequency_penalty: 0.1,
            seed: 42,
            ..Sampling::GREEDY
        };
        for sampling in [Sampling::GREEDY, sampling] {
            let [actual, expected] = [backend, &Reference].map(|backend| {
                let mut runner = Runner::new(backend, &program, &file, 1, CONTEXT).unwrap();
                let edits = [SlotEdit::Sampling { slot: SlotId(0), sampling: sampling.clone() }];
                runner.run(&Batch { edits: &edits, ..Batch::default() }, Work::Forward).unwrap();
                runner.feed(&[(0, 0, &prompt[..1])], Work::Chain(40)).unwrap();
                runner.out.tokens
            });
            let same = actual.iter().zip(&expected).take_while(|(a, e)| a == e).count();
            if same < expected.len() {
                println!(
                    "{}: {same} of {} tokens alike (temperature {})",
                    folder.display(),
                    expected.len(),
                    sampling.temperature
                );
            }
        }
        if error >= ERROR {
            println!("WRONG {}: {error}", folder.display());
            wrong += 1;
        }
        worst = worst.max(error);
    }
    println!("tiny models: {} of {} right, worst error {worst:.1e}", models.len() - wrong, models.len());
    wrong
}
