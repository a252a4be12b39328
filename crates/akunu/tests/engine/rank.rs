//! Scores of pairs of texts against those of `sentence-transformers`: see scripts/oracle/tiny_rankers.py.

use std::path::{Path, PathBuf};

use akunu::Kind;
use akunu::embed::{EmbedOptions, Embedder, Ranker, TooLong, is_ranker};
use akunu_format::ModelFile;
use akunu_program::program::SECOND;
use serde_json::Value;

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rankers").join(path)
}

fn load(name: &str, backend: &str) -> Ranker {
    let options = EmbedOptions { backend: backend.to_owned(), ..EmbedOptions::default() };
    Ranker::load(fixture(name), &options).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The oracle's pairs.
fn pairs(name: &str) -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(fixture(name).join("scores.json")).unwrap()).unwrap()
}

#[test]
fn pairs_have_the_oracles_tokens_and_scores() {
    for name in ["bert", "bert-identity", "roberta"] {
        let expected = pairs(name);
        for (backend, allowed) in [("reference", 1e-5), ("cpu", 2e-3)] {
            let ranker = load(name, backend);
            let mut tokens = Vec::new();
            for pair in &expected {
                let text = |field: &str| pair[field].as_str().unwrap();
                let query = ranker.query(text("query")).unwrap();
                let found = ranker.tokens(&query, text("document"), TooLong::Cut).unwrap();
                let numbers: Vec<u32> = found.iter().map(|token| token & !SECOND).collect();
                let types: Vec<u32> = found.iter().map(|token| token >> 31).collect();
                assert_eq!(Value::from(numbers), pair["tokens"], "{name}");
                assert_eq!(Value::from(types), pair["types"], "{name}");
                tokens.push(found);
            }
            let together = ranker.scores(&tokens).unwrap();
            for ((pair, tokens), score) in expected.iter().zip(&tokens).zip(together) {
                let error = (f64::from(score) - pair["score"].as_f64().unwrap()).abs();
                assert!(error < allowed, "{name}, {backend}, {}: {score}, error {error}", pair["document"]);
                assert_eq!(
                    ranker.scores(std::slice::from_ref(tokens)).unwrap(),
                    [score],
                    "{name}, {backend}"
                );
            }
        }
    }
}

#[test]
fn a_pair_that_is_too_long_is_refused_unless_it_may_be_cut() {
    let ranker = load("bert", "cpu");
    let long = "train ".repeat(60);
    let query = ranker.query("sea").unwrap();
    let error = ranker.tokens(&query, &long, TooLong::Refuse).unwrap_err();
    assert!(matches!(error, akunu::Error::TooLong { tokens: 64, context: 48 }), "{error}");
    assert_eq!(ranker.tokens(&query, &long, TooLong::Cut).unwrap().len(), ranker.embedder().context());
    let options = EmbedOptions { context: Some(4), ..EmbedOptions::default() };
    let problem = Ranker::load(fixture("bert"), &options).unwrap_err().to_string();
    assert!(problem.contains("no room for two texts"), "{problem}");
}

#[test]
fn models_that_judge_pairs_are_told_from_others() {
    let encoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/encoders/bert");
    assert!(is_ranker(&ModelFile::open(fixture("roberta")).unwrap()).unwrap());
    assert!(!is_ranker(&ModelFile::open(&encoder).unwrap()).unwrap());
    let problem = Ranker::load(&encoder, &EmbedOptions::default()).unwrap_err().to_string();
    assert!(problem.contains("without a head"), "{problem}");
    let gguf = Ranker::load(encoder.join("model.gguf"), &EmbedOptions::default()).unwrap_err().to_string();
    assert!(gguf.contains("SafeTensors"), "{gguf}");
}

#[test]
fn a_model_that_tells_classes_apart_is_no_ranker() {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture("bert")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    // As many numbers, in three rows.
    let weights = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let find =
        |what: &[u8], from: usize| from + bytes[from..].windows(what.len()).position(|w| w == what).unwrap();
    let shape = find(b"[1,48]", find(b"\"classifier.weight\"", 0));
    bytes[shape..shape + 6].copy_from_slice(b"[3,16]");
    std::fs::write(&weights, &bytes).unwrap();
    assert!(!is_ranker(&ModelFile::open(folder.path()).unwrap()).unwrap());
}

#[test]
fn embedders_take_no_marked_tokens() {
    let embedder = Embedder::load(fixture("bert"), &EmbedOptions::default()).unwrap();
    assert_eq!(embedder.check(&[3, 4 | SECOND]).unwrap_err().kind(), Kind::Usage);
}
