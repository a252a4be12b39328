//! all-MiniLM-L6-v2 against `sentence-transformers` (`scripts/oracle/embeddings.py`).

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use akunu::embed::{EmbedOptions, Embedder, Pooling, Shape, TooLong};
use akunu::quantize::{Options, Recipe, quantize};
use serde::Deserialize;

#[derive(Deserialize)]
struct Oracle {
    texts: Vec<String>,
    tokens: Vec<Vec<u32>>,
    vectors: Vec<Vec<f32>>,
}

fn minilm(options: &EmbedOptions) -> Embedder {
    Embedder::load(folder(), options).unwrap()
}

fn folder() -> PathBuf {
    akunu_testing::data("models/minilm")
}

fn oracle() -> Oracle {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/minilm.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn minilm_gives_the_vectors_of_sentence_transformers() {
    let Oracle { texts, tokens, vectors } = oracle();
    let embedder = minilm(&EmbedOptions::default());
    assert_eq!((embedder.dimensions(), embedder.context()), (384, 256));
    assert_eq!(embedder.pooling(), Pooling::Mean);
    let ours: Vec<_> = texts.iter().map(|text| embedder.tokens(text, TooLong::Refuse).unwrap()).collect();
    assert_eq!(ours, tokens);
    for ((text, ours), theirs) in
        texts.iter().zip(embedder.embed(&ours, Shape::default()).unwrap()).zip(&vectors)
    {
        let cosine: f64 = ours.iter().zip(theirs).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        assert!(cosine > 0.999_99, "{text:?}: {cosine}");
    }
}

#[test]
fn minilm_quantised_to_gguf_gives_nearly_the_same_vectors() {
    let Oracle { texts, tokens, vectors } = oracle();
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("minilm.gguf");
    quantize(folder(), &path, &Options::new(Recipe::Q8_0), &mut |_| ControlFlow::Continue(())).unwrap();
    let embedder = Embedder::load(&path, &EmbedOptions::default()).unwrap();
    assert_eq!(embedder.pooling(), Pooling::Mean);
    let ours: Vec<_> = texts.iter().map(|text| embedder.tokens(text, TooLong::Refuse).unwrap()).collect();
    assert_eq!(ours, tokens);
    for (ours, theirs) in embedder.embed(&ours, Shape::default()).unwrap().iter().zip(&vectors) {
        let cosine: f64 = ours.iter().zip(theirs).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        assert!(cosine > 0.999, "{cosine}");
    }
}

#[test]
fn a_text_that_is_too_long_is_cut_only_when_asked() {
    let embedder = minilm(&EmbedOptions::default());
    let long = "word ".repeat(300);
    assert!(embedder.tokens(&long, TooLong::Refuse).is_err());
    let cut = embedder.tokens(&long, TooLong::Cut).unwrap();
    assert_eq!((cut.len(), cut[0], cut[255]), (256, 101, 102));
    let more = minilm(&EmbedOptions { context: Some(512), ..EmbedOptions::default() });
    assert_eq!(more.tokens(&long, TooLong::Refuse).unwrap().len(), 302);
}
