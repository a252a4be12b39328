//! A tiny random Whisper model, run as transcribing runs it: against the logits and the alignment of `transformers`.

use std::path::{Path, PathBuf};

use akunu::speech::{SpeechModel, SpeechOptions};
use akunu_format::ModelFile;
use akunu_program::StopFlag;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/speech/plain")
}

fn numbers(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(fixture().join(name)).unwrap();
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn tokens() -> Vec<u32> {
    serde_json::from_slice(&std::fs::read(fixture().join("tokens.json")).unwrap()).unwrap()
}

fn load(backend: &str, beams: usize) -> SpeechModel {
    let options =
        SpeechOptions { backend: backend.to_owned(), threads: Some(2), beams, ..SpeechOptions::default() };
    SpeechModel::from_file(&ModelFile::open(fixture()).unwrap(), &options).unwrap()
}

/// A model that has heard the fixture's window.
fn listening(backend: &str, beams: usize) -> SpeechModel {
    let mut model = load(backend, beams);
    model.encode(&numbers("mel.bin"), &StopFlag::default()).unwrap();
    model
}

/// Keys and values are kept in F16, which has 11 bits, the factors of prompts may be rounded to little more, and both pass through
/// two layers.
#[track_caller]
fn close(actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
    let error = actual.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs())) / scale;
    assert!(error < 5e-3, "relative error {error}");
}

#[test]
fn a_model_says_what_it_is() {
    let model = load("cpu", 5);
    assert_eq!((model.mels(), model.frames(), model.states()), (80, 280, 140));
    assert_eq!((model.context(), model.vocabulary(), model.beams()), (96, 261, 5));
    assert_eq!((model.alignment_heads(), model.multilingual(), model.backend()), (3, false, "cpu"));
    assert_eq!(model.tokenizer().id_of("<|startoftranscript|>"), Some(257));
}

#[test]
fn a_model_without_a_vocabulary_takes_the_one_beside_it_or_says_what_to_do() {
    let from =
        |path: &Path| SpeechModel::from_file(&ModelFile::open(path).unwrap(), &SpeechOptions::default());
    let model = from(&fixture().join("model.pt")).unwrap();
    assert_eq!(model.tokenizer().id_of("<|startoftranscript|>"), Some(257));
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("model.pt");
    std::fs::copy(fixture().join("model.pt"), &alone).unwrap();
    let error = from(&alone).map(drop).unwrap_err();
    assert!(error.to_string().contains("model.pt has no vocabulary"), "{error}");
    assert!(error.hint().unwrap_or_default().contains("multilingual.tiktoken"), "{:?}", error.hint());
    let vocabulary = std::fs::read_to_string(fixture().join("tokenizer.json")).unwrap();
    let mut vocabulary: serde_json::Value = serde_json::from_str(&vocabulary).unwrap();
    let added = vocabulary["added_tokens"].as_array_mut().unwrap();
    let mut another = added[0].clone();
    another["id"] = 261.into();
    another["content"] = "<|another|>".into();
    added.push(another);
    std::fs::write(folder.path().join("tokenizer.json"), vocabulary.to_string()).unwrap();
    let error = from(&alone).map(drop).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json: 262 tokens for a model of 261"), "{error}");
    std::fs::write(folder.path().join("gpt2.tiktoken"), "IQ== 0\n").unwrap();
    let error = from(&alone).map(drop).unwrap_err().to_string();
    assert!(error.contains("a whisper vocabulary of 261 tokens is not supported"), "{error}");
}

#[test]
fn prompts_and_steps_give_the_oracles_logits() {
    let (tokens, expected) = (tokens(), numbers("logits.bin"));
    let stop = StopFlag::default();
    for backend in ["cpu", "reference"] {
        let mut model = listening(backend, 1);
        let row = |i: usize| &expected[i * model.vocabulary()..(i + 1) * model.vocabulary()];
        let rows: Vec<&[f32]> = (0..tokens.len()).map(row).collect();
        // The second token is the one that transcripts begin with.
        let begun = model.begin(&tokens[..6], &stop).unwrap();
        close(&begun.last, rows[5]);
        close(&begun.start, rows[1]);
        for i in 6..tokens.len() {
            close(model.step(&[(0, tokens[i])], &stop).unwrap(), rows[i]);
        }
        let begun = model.begin(&tokens[..2], &stop).unwrap();
        close(&begun.last, rows[1]);
        assert_eq!(begun.last, begun.start);
        assert!(model.begin(&tokens[..1], &stop).unwrap().start.is_empty());
    }
}

#[test]
fn hypotheses_fork_and_die_without_touching_each_other() {
    let tokens = tokens();
    let stop = StopFlag::default();
    // Beyond a block, so that some are shared and some copied.
    let prompt: Vec<u32> = tokens.iter().cycle().take(60).copied().collect();
    // Who continues whom, with which token.
    let turns: [&[(usize, u32)]; 8] = [
        &[(0, 1), (0, 2), (0, 3)],
        &[(1, 4), (1, 5), (0, 6), (2, 7)],
        &[(3, 8), (0, 9), (0, 10)],
        &[(0, 11), (1, 12), (2, 13), (2, 14), (0, 15)],
        &[(4, 16), (4, 17), (3, 18)],
        &[(2, 19), (1, 20)],
        &[(0, 21), (1, 22), (0, 23)],
        &[(2, 24)],
    ];
    let mut model = listening("cpu", 5);
    let mut alone = listening("cpu", 1);
    model.begin(&prompt, &stop).unwrap();
    let mut texts = vec![Vec::new()];
    for turn in turns {
        texts = turn.iter().map(|&(parent, token)| [texts[parent].as_slice(), &[token]].concat()).collect();
        let found = model.step(turn, &stop).unwrap().to_vec();
        for (text, found) in texts.iter().zip(found.chunks_exact(alone.vocabulary())) {
            alone.begin(&prompt, &stop).unwrap();
            let mut expected = Vec::new();
            for &token in text {
                expected = alone.step(&[(0, token)], &stop).unwrap().to_vec();
            }
            assert_eq!(found, expected, "{text:?}");
        }
    }
}

#[test]
fn words_are_aligned_as_the_oracle_does_it() {
    let tokens = tokens();
    let stop = StopFlag::default();
    for backend in ["cpu", "reference"] {
        let mut model = listening(backend, 2);
        let before = model.begin(&tokens[..6], &stop).unwrap();
        let weights = model.align(&tokens, &stop).unwrap();
        for (found, expected) in weights.chunks_exact(140).zip(numbers("weights.bin").chunks_exact(140)) {
            close(found, expected);
            assert!((found.iter().sum::<f32>() - 1.0).abs() < 1e-4);
        }
        // More tokens than are aligned at a time, and hypotheses go on as if nothing had been.
        let long: Vec<u32> = tokens.iter().cycle().take(90).copied().collect();
        let longer = model.align(&long, &stop).unwrap();
        close(&longer[..21 * 140], &weights[..21 * 140]);
        let next = model.step(&[(0, tokens[6])], &stop).unwrap().to_vec();
        assert_eq!(model.begin(&tokens[..6], &stop).unwrap(), before);
        assert_eq!(model.step(&[(0, tokens[6])], &stop).unwrap(), next);
    }
}

#[test]
fn what_cannot_be_done_is_named() {
    let stop = StopFlag::default();
    let mut model = load("cpu", 2);
    let says = |result: akunu::Result<()>, named: &str| {
        let problem = result.unwrap_err().to_string();
        assert!(problem.contains(named), "{problem:?} does not say {named:?}");
    };
    says(model.begin(&[1], &stop).map(drop), "no window");
    says(model.encode(&[0.0; 80], &stop), "a window of 80 numbers");
    model.encode(&numbers("mel.bin"), &stop).unwrap();
    says(model.step(&[(0, 1)], &stop).map(drop), "hypothesis 0 of 0");
    says(model.begin(&[], &stop).map(drop), "no tokens");
    says(model.begin(&[300], &stop).map(drop), "token 300");
    says(model.begin(&[1; 97], &stop).map(drop), "97 tokens");
    model.begin(&[1; 96], &stop).unwrap();
    says(model.step(&[(0, 1)], &stop).map(drop), "97 tokens");
    model.begin(&[1], &stop).unwrap();
    says(model.step(&[(0, 1), (0, 2), (0, 3)], &stop).map(drop), "3 hypotheses");
    says(model.step(&[(1, 1)], &stop).map(drop), "hypothesis 1 of 1");
    stop.stop();
    says(model.step(&[(0, 1)], &stop).map(drop), "stopped");
    stop.clear();
    says(model.step(&[(0, 1)], &stop).map(drop), "hypothesis 0 of 0");
    let none = SpeechOptions { beams: 0, ..SpeechOptions::default() };
    says(SpeechModel::from_file(&ModelFile::open(fixture()).unwrap(), &none).map(drop), "0 hypotheses");
    let text = fixture().join("../../tiny/llama/model.gguf");
    let file = ModelFile::open(text).unwrap();
    says(SpeechModel::from_file(&file, &SpeechOptions::default()).map(drop), "as a model of speech");
}
