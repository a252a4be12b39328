//! Tiny random models of every family: the reference backend against `transformers`, at every position of a 40-token
//! prompt, fed at once, in chunks, token by token, and mixed with other sequences.

use std::path::{Path, PathBuf};

use akunu_format::ModelFile;
use akunu_program::arch::Architecture;
use akunu_program::conformance::Runner;
use akunu_program::program::Program;
use akunu_program::reference::Reference;
use akunu_program::{Work, build};

/// Largest difference allowed, relative to the largest logit of the row.
const F32_ERROR: f32 = 1e-4;
const CONTEXT: u32 = 128;

struct Case {
    name: String,
    prompt: Vec<u32>,
    /// `[position][vocabulary]`.
    logits: Vec<f32>,
    file: ModelFile,
    program: Program,
}

/// The folders of one kind, at least so many.
fn fixtures(kind: &str, least: usize) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind);
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|p| p.is_dir()).collect();
    found.sort();
    assert!(found.len() >= least, "fixtures are missing: {found:?}");
    found
}

/// Every fixture, both as GGUF and as a checkpoint, and those of MLX.
fn cases() -> impl Iterator<Item = Case> {
    let both = fixtures("tiny", 14)
        .into_iter()
        .flat_map(|dir| [(dir.clone(), dir.join("model.gguf")), (dir.clone(), dir)]);
    let quantised = fixtures("mlx", 9).into_iter().map(|dir| (dir.clone(), dir));
    both.chain(quantised).map(|(dir, model)| open(&dir, &model, CONTEXT, "logits.bin"))
}

fn open(dir: &Path, model: &Path, context: u32, logits: &str) -> Case {
    let file = ModelFile::open(model).unwrap();
    let (arch, names) = Architecture::of(&file).unwrap_or_else(|e| panic!("{}: {e}", model.display()));
    let program =
        build(&arch, &names, &file, context as usize).unwrap_or_else(|e| panic!("{}: {e}", model.display()));
    let bytes = std::fs::read(dir.join(logits)).unwrap();
    let prompt: Vec<u32> = serde_json::from_slice(&std::fs::read(dir.join("prompt.json")).unwrap()).unwrap();
    let logits = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let name = model.strip_prefix(dir.parent().unwrap()).unwrap().display().to_string();
    Case { name, prompt, logits, file, program }
}

impl Case {
    fn runner(&self, slots: u32) -> Runner {
        Runner::new(&Reference, &self.program, &self.file, slots, CONTEXT).unwrap()
    }

    fn vocab(&self) -> usize {
        self.program.value(self.program.logits).width
    }

    /// Compares rows of logits with the oracle's from position `start` on.
    fn check(&self, how: &str, start: usize, actual: &[f32]) {
        let vocab = self.vocab();
        assert!(!actual.is_empty() && actual.len().is_multiple_of(vocab));
        for (i, actual) in actual.chunks_exact(vocab).enumerate() {
            let expected = &self.logits[(start + i) * vocab..][..vocab];
            let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
            let error = actual.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs())) / scale;
            assert!(error < F32_ERROR, "{} {how}: position {}: relative error {error}", self.name, start + i);
        }
    }
}

#[test]
fn a_prompt_at_once_gives_the_oracles_logits() {
    for case in cases() {
        let mut runner = case.runner(1);
        runner.feed(&[(0, 0, &case.prompt)], Work::Forward).unwrap();
        case.check("at once", 0, &runner.out.logits);
    }
}

/// Files on the hub word their settings differently and leave much out.
#[test]
fn the_hubs_wording_of_a_config_means_the_same() {
    for dir in fixtures("tiny", 14) {
        let hub = tempfile::tempdir().unwrap();
        std::fs::copy(dir.join("config-hub.json"), hub.path().join("config.json")).unwrap();
        std::fs::copy(dir.join("model.safetensors"), hub.path().join("model.safetensors")).unwrap();
        let [theirs, ours] = [hub.path(), &dir].map(|path| {
            let file = ModelFile::open(path).unwrap();
            let (arch, names) = Architecture::of(&file).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
            build(&arch, &names, &file, CONTEXT as usize).unwrap()
        });
        assert_eq!(theirs, ours, "{}", dir.display());
    }
}

#[test]
fn chunks_and_single_tokens_give_the_same_logits() {
    for case in cases() {
        for chunk in [7, 1] {
            let mut runner = case.runner(1);
            for (i, tokens) in case.prompt.chunks(chunk).enumerate() {
                let start = i * chunk;
                runner.feed(&[(0, start as u32, tokens)], Work::Forward).unwrap();
                case.check(&format!("in chunks of {chunk}"), start, &runner.out.logits);
            }
        }
    }
}

#[test]
fn sequences_side_by_side_do_not_disturb_one_another() {
    for case in cases() {
        let vocab = case.vocab();
        let mut runner = case.runner(3);
        let prompt = &case.prompt;
        let noise: Vec<u32> = prompt.iter().rev().copied().collect();
        // Slot 2 has the prompt in three pieces, beside prompt rows and single rows of others.
        runner.feed(&[(0, 0, &noise[..9]), (2, 0, &prompt[..16])], Work::Forward).unwrap();
        case.check("mixed", 0, &runner.out.logits[9 * vocab..]);
        runner
            .feed(&[(2, 16, &prompt[16..17]), (0, 9, &noise[9..10]), (1, 0, &noise)], Work::Forward)
            .unwrap();
        case.check("mixed", 16, &runner.out.logits[..vocab]);
        runner.feed(&[(1, 40, &noise[..5]), (2, 17, &prompt[17..])], Work::Forward).unwrap();
        case.check("mixed", 17, &runner.out.logits[5 * vocab..]);
    }
}

#[test]
fn a_chain_gives_the_same_tokens_as_single_steps() {
    for case in cases() {
        let (head, last) = case.prompt.split_at(case.prompt.len() - 1);
        let mut steps = case.runner(1);
        steps.feed(&[(0, 0, head)], Work::Forward).unwrap();
        let (mut token, mut expected) = (last[0], Vec::new());
        for i in 0..12 {
            steps.feed(&[(0, (head.len() + i) as u32, &[token])], Work::Step).unwrap();
            token = steps.out.tokens[0];
            expected.push(token);
        }
        let mut chain = case.runner(1);
        chain.feed(&[(0, 0, head)], Work::Forward).unwrap();
        chain.feed(&[(0, head.len() as u32, last)], Work::Chain(12)).unwrap();
        assert_eq!(chain.out.tokens, expected, "{}", case.name);
    }
}

#[test]
fn long_rope_takes_its_long_factors_when_the_context_asks_for_them() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny/phi3-longrope");
    for model in [dir.join("model.gguf"), dir.clone()] {
        let case = open(&dir, &model, 1024, "logits-long.bin");
        let mut runner = case.runner(1);
        runner.feed(&[(0, 0, &case.prompt)], Work::Forward).unwrap();
        case.check("with a long context", 0, &runner.out.logits);
    }
}
