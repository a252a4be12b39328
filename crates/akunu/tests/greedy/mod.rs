//! Greedy continuations by llama.cpp, followed token by token: what akunu would have chosen at each place.

use std::path::{Path, PathBuf};

use akunu::tokenizer::{AddSpecial, Special};
use akunu::{Model, Options, Phase, Result};

/// The models, as the test data and the fixtures call them.
pub const MODELS: [&str; 3] = ["smollm2", "gemma3-270m", "qwen2.5-coder-0.5b"];

/// Where llama.cpp's two best logits are closer than this, either token is right: both engines keep keys and values in F16.
pub const MARGIN: f64 = 1e-2;

/// What scripts/oracle/greedy_text.py wrote.
#[derive(serde::Deserialize)]
pub struct Case {
    pub prompt: String,
    pub tokens: Vec<u32>,
    /// How far the second logit lay behind at each token.
    pub margins: Vec<f64>,
}

/// A place where the engines differ.
#[derive(Debug)]
pub struct Difference {
    #[allow(dead_code, reason = "shown when a test fails")]
    pub prompt: String,
    #[allow(dead_code, reason = "shown when a test fails")]
    pub at: usize,
    pub margin: f64,
}

pub fn cases(model: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/greedy_{model}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub fn load(data: &Path, name: &str, backend: &str) -> Model {
    let path: PathBuf = data.join(format!("models/{name}.gguf"));
    assert!(path.exists(), "{} is missing: run scripts/fetch-test-data", path.display());
    let options =
        Options { backend: backend.to_owned(), context: Some(256), outputs: 64, ..Options::default() };
    Model::load(path, &options).unwrap()
}

/// Follows llama.cpp's tokens, so that one difference does not hide the rest.
pub fn differences(model: &Model, case: &Case) -> Result<Vec<Difference>> {
    let mut fed = model.tokenizer()?.encode(&case.prompt, Special::Parse, AddSpecial::Yes);
    let first = fed.len() - 1;
    fed.extend_from_slice(&case.tokens[..case.tokens.len() - 1]);
    let mut sequence = model.sequence()?;
    sequence.feed(&fed[..first])?;
    let mut chosen = Vec::new();
    for rows in fed[first..].chunks(model.outputs()) {
        let logits = sequence.logits(rows, Phase::Decode)?;
        chosen.extend(logits.chunks_exact(model.vocabulary()).map(best));
    }
    let differs = |(at, (ours, theirs)): (usize, (&u32, &u32))| {
        let margin = case.margins[at];
        (ours != theirs).then(|| Difference { prompt: case.prompt.clone(), at, margin })
    };
    Ok(chosen.iter().zip(&case.tokens).enumerate().filter_map(differs).collect())
}

fn best(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = i;
        }
    }
    best as u32
}
