//! Embeddings of tiny models against the oracle's hidden states, and what must not change them.

use std::path::{Path, PathBuf};

use akunu::embed::{EmbedOptions, Embedder, Pooling, Shape, TooLong};
use akunu::{Error, Kind, Model, Options};

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures").join(path)
}

fn load(path: &str, backend: &str, pooling: Option<Pooling>) -> Embedder {
    let options = EmbedOptions { backend: backend.to_owned(), pooling, ..EmbedOptions::default() };
    Embedder::load(fixture(path), &options).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn every_encoder_and_pooling_agrees_with_the_oracles_states() {
    for name in ["bert", "bert-tanh", "xlm-roberta", "nomic-bert"] {
        let folder = fixture(&format!("encoders/{name}"));
        let bytes = std::fs::read(folder.join("hidden.bin")).unwrap();
        let states: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let prompts = std::fs::read(folder.join("prompts.json")).unwrap();
        let prompts: Vec<Vec<u32>> = serde_json::from_slice(&prompts).unwrap();
        for (backend, least) in [("reference", 0.999_999_9), ("cpu", 0.999_99)] {
            for pooling in [Pooling::Cls, Pooling::Mean, Pooling::Last] {
                let embedder = load(&format!("encoders/{name}"), backend, Some(pooling));
                let width = embedder.dimensions();
                let vectors = embedder.embed(&prompts, Shape::default()).unwrap();
                let mut rows = states.chunks_exact(width);
                for (prompt, vector) in prompts.iter().zip(&vectors) {
                    let rows: Vec<&[f32]> = rows.by_ref().take(prompt.len()).collect();
                    let expected = match pooling {
                        Pooling::Cls => rows[0].to_vec(),
                        Pooling::Last => rows[rows.len() - 1].to_vec(),
                        Pooling::Mean => (0..width).map(|i| rows.iter().map(|row| row[i]).sum()).collect(),
                    };
                    let cosine = cosine(vector, &expected);
                    assert!(cosine > least, "{name}, {backend}, {pooling:?}: {cosine}");
                    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
                    assert!((length - 1.0).abs() < 1e-5, "{name}: length {length}");
                }
            }
        }
    }
}

#[test]
fn a_model_that_writes_embeds_with_the_same_weights() {
    for path in ["tiny/llama/model.gguf", "tiny/gemma3/model.gguf"] {
        let model =
            Model::load(fixture(path), &Options { backend: "cpu".to_owned(), ..Options::default() }).unwrap();
        let twin = Embedder::of(&model, &EmbedOptions::default()).unwrap();
        assert_eq!((twin.backend(), twin.context()), ("cpu", model.context()));
        let alone = load(path, "cpu", None);
        drop(model);
        let texts = [vec![3, 4, 5], vec![7; 40]];
        assert_eq!(
            twin.embed(&texts, Shape::default()).unwrap(),
            alone.embed(&texts, Shape::default()).unwrap()
        );
    }
    let model =
        Model::load(fixture("tiny/llama/model.gguf"), &Options { context: Some(64), ..Options::default() });
    let long = EmbedOptions { context: Some(65), ..EmbedOptions::default() };
    let error = Embedder::of(&model.unwrap(), &long).unwrap_err().to_string();
    assert_eq!(error, "a context of 65, of a model that was loaded with 64");
}

#[test]
fn a_texts_vector_does_not_depend_on_its_neighbours() {
    for path in ["encoders/bert/model.gguf", "tiny/llama/model.gguf", "tiny/gemma3/model.gguf"] {
        let embedder = load(path, "cpu", None);
        // More texts than one run takes, of many lengths.
        let texts: Vec<Vec<u32>> =
            (0..90).map(|i| (0..1 + i * 7 % 60).map(|j| (3 + i * 5 + j) % 90).collect()).collect();
        let together = embedder.embed(&texts, Shape::default()).unwrap();
        for (text, vector) in texts.iter().zip(&together).step_by(13) {
            let alone = embedder.embed(std::slice::from_ref(text), Shape::default()).unwrap();
            assert_eq!(&alone[0], vector, "{path}, {} tokens", text.len());
        }
    }
}

#[test]
fn a_long_text_in_pieces_gives_the_same_vector_for_models_that_write() {
    let text: Vec<u32> = (0..200).map(|i| 3 + i * 7 % 90).collect();
    for pooling in [Pooling::Mean, Pooling::Last] {
        let vectors = [512, 48].map(|batch| {
            let options = EmbedOptions { batch, pooling: Some(pooling), ..EmbedOptions::default() };
            let embedder = Embedder::load(fixture("tiny/llama/model.gguf"), &options).unwrap();
            embedder.embed(std::slice::from_ref(&text), Shape::default()).unwrap()
        });
        assert_eq!(vectors[0], vectors[1], "{pooling:?}");
    }
}

#[test]
fn dimensions_and_length_are_as_asked() {
    let embedder = load("encoders/bert", "cpu", None);
    let text = vec![vec![5, 6, 7]];
    let shape = Shape { dimensions: Some(8), normalize: false };
    let cut = &embedder.embed(&text, shape).unwrap()[0];
    let whole = &embedder.embed(&text, Shape { normalize: false, ..Shape::default() }).unwrap()[0];
    assert_eq!(cut, &whole[..8]);
    for dimensions in [0, 49] {
        let error = embedder.embed(&text, Shape { dimensions: Some(dimensions), normalize: true });
        assert_eq!(error.unwrap_err().kind(), Kind::Usage);
    }
}

#[test]
fn what_cannot_be_embedded_is_refused() {
    let embedder = load("encoders/bert", "cpu", None);
    let problem = |tokens: Vec<u32>| embedder.embed(&[tokens], Shape::default()).unwrap_err();
    assert!(problem(vec![]).to_string().contains("without tokens"));
    assert!(problem(vec![96]).to_string().contains("token 96 is not in the vocabulary of 96"));
    assert!(matches!(problem(vec![5; 65]), Error::TooLong { tokens: 65, context: 64 }));
    // This fixture has no vocabulary.
    assert!(embedder.tokens("text", TooLong::Cut).unwrap_err().to_string().contains("no vocabulary"));
    for context in [0, 65] {
        let options = EmbedOptions { context: Some(context), ..EmbedOptions::default() };
        let error = Embedder::load(fixture("encoders/bert"), &options).unwrap_err();
        assert!(error.to_string().contains("made for 64"), "{error}");
    }
}
