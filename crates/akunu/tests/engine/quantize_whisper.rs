//! Whisper models with other dtypes, as GGUF and in whisper.cpp's container: tiny random ones of every format.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use akunu::quantize::{Options, Recipe, Report, quantize};
use akunu::speech::{SpeechModel, SpeechOptions};
use akunu_format::whisper_ggml::WhisperGgml;
use akunu_format::{DType, ModelFile};
use akunu_program::StopFlag;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/speech").join(name)
}

fn numbers(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn convert(input: &Path, output: &Path, recipe: Recipe) -> akunu::Result<Report> {
    quantize(input, output, &Options::new(recipe), &mut |_| ControlFlow::Continue(()))
}

fn dtype_of(file: &ModelFile, name: &str) -> String {
    file.tensor(name).unwrap().dtype_name().into_owned()
}

/// The largest difference between a model's logits and the oracle's, as a share of the largest logit.
fn error(model: &Path, oracle: &Path) -> f32 {
    let stop = StopFlag::default();
    let mut model =
        SpeechModel::from_file(&ModelFile::open(model).unwrap(), &SpeechOptions::default()).unwrap();
    model.encode(&numbers(&oracle.join("mel.bin")), &stop).unwrap();
    let tokens: Vec<u32> =
        serde_json::from_slice(&std::fs::read(oracle.join("tokens.json")).unwrap()).unwrap();
    let logits = model.begin(&tokens, &stop).unwrap().last;
    let expected = numbers(&oracle.join("logits.bin"));
    let expected = &expected[expected.len() - logits.len()..];
    let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
    logits.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs())) / scale
}

#[test]
fn every_format_becomes_gguf_that_writes_what_the_original_does() {
    let folder = tempfile::tempdir().unwrap();
    for (input, vocabulary) in [("turbo", true), ("turbo/model.pt", true), ("turbo/model.gguf", false)] {
        let output = folder.path().join("small.gguf");
        let report = convert(&fixture(input), &output, Recipe::Q8_0).unwrap();
        assert_eq!(report.notes.is_empty(), vocabulary, "{input}: {:?}", report.notes);
        let file = ModelFile::open(&output).unwrap();
        assert_eq!(dtype_of(&file, "decoder.blocks.0.cross_attn.query.weight"), "Q8_0");
        assert_eq!(dtype_of(&file, "encoder.conv2.weight"), "F16");
        assert_eq!(dtype_of(&file, "encoder.positional_embedding"), "F32");
        assert_eq!(dtype_of(&file, "decoder.ln.bias"), "F32");
        if vocabulary {
            // 8 bits a weight and 32 weights a scale: about 0.4 % of each, through four layers.
            let error = error(&output, &fixture("turbo"));
            assert!(error < 0.03, "{input}: {error}");
        }
    }
}

#[test]
fn the_vocabulary_survives() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("model.gguf");
    convert(&fixture("plain"), &output, Recipe::F16).unwrap();
    let (before, after) =
        (akunu::load_tokenizer(fixture("plain")).unwrap(), akunu::load_tokenizer(&output).unwrap());
    assert_eq!(after.vocab_size(), before.vocab_size());
    for id in 0..before.vocab_size() as u32 {
        assert_eq!(
            (after.token_bytes(id), after.kind(id)),
            (before.token_bytes(id), before.kind(id)),
            "{id}"
        );
    }
    assert!(error(&output, &fixture("plain")) < 3e-3);
}

#[test]
fn whisper_cpps_container_holds_the_same_tensors_sizes_and_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("model.bin");
    for input in ["turbo", "turbo/model.pt", "turbo/model.bin"] {
        convert(&fixture(input), &output, Recipe::F16).unwrap();
        let made = WhisperGgml::open(&output).unwrap();
        let original = WhisperGgml::open(fixture("turbo/model.bin")).unwrap();
        assert_eq!(made.hparams(), original.hparams(), "{input}");
        if input.ends_with(".bin") {
            assert!(made.tokens().eq(original.tokens()));
        } else {
            let tokenizer = akunu::load_tokenizer(fixture("turbo")).unwrap();
            assert_eq!(made.token_count(), 256);
            let pieces = made.tokens().zip(0..);
            pieces.for_each(|(piece, id)| assert_eq!(piece, tokenizer.token_bytes(id), "{input}"));
        }
        for tensor in original.tensors() {
            let ours = made.tensor(tensor.name).unwrap();
            assert_eq!(
                (ours.shape, ours.dtype_name()),
                (tensor.shape, tensor.dtype_name()),
                "{}",
                tensor.name
            );
            assert_eq!(ours.to_f32().unwrap(), tensor.to_f32().unwrap(), "{input}: {}", tensor.name);
        }
    }
    let filters = WhisperGgml::open(&output).unwrap().mel_filters();
    assert_eq!(filters.mels, 128);
    convert(&fixture("turbo"), &output, Recipe::Q5_0).unwrap();
    let made = WhisperGgml::open(&output).unwrap();
    assert_eq!(made.hparams().ftype, 2008);
    assert_eq!((made.mel_filters().mels, made.mel_filters().bins), (128, 201));
    let file = ModelFile::open(&output).unwrap();
    assert_eq!(dtype_of(&file, "decoder.token_embedding.weight"), "Q5_0");
}

#[test]
fn sizes_that_the_tensors_do_not_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "tokenizer.json"] {
        std::fs::copy(fixture("turbo").join(name), folder.path().join(name)).unwrap();
    }
    let config = std::fs::read_to_string(fixture("turbo/config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let cases = [
        ("num_mel_bins", 16_777_216, "with 16777216 bands, where 1 to 1024 are"),
        ("num_mel_bins", 80, "\"encoder.conv1.weight\" is ["),
        ("max_source_positions", 141, "\"encoder.positional_embedding\" is ["),
        ("max_target_positions", 97, "\"decoder.positional_embedding\" is ["),
        ("vocab_size", 262, "\"decoder.token_embedding.weight\" is ["),
    ];
    for (name, value, expected) in cases {
        let mut config = config.clone();
        config[name] = value.into();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        for output in ["new.bin", "new.gguf"] {
            let output = folder.path().join(output);
            let error = convert(folder.path(), &output, Recipe::F16).map(drop).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[test]
fn what_whisper_cpp_could_not_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("model.bin");
    let refused = |input: &str, recipe| {
        let error = convert(&fixture(input), &output, recipe).map(drop).unwrap_err().to_string();
        assert!(!output.exists());
        error
    };
    assert_eq!(refused("turbo", Recipe::BF16), "whisper.cpp's format has no BF16");
    let error = refused("turbo", Recipe::Q4_K_M);
    assert!(error.contains("do not divide into blocks of Q4_K"), "{error}");
    assert!(refused("turbo/model.gguf", Recipe::F16).contains("has no vocabulary"));
    // In GGUF another stands in.
    let gguf = folder.path().join("model.gguf");
    let report = convert(&fixture("turbo"), &gguf, Recipe::Q4_K_M).unwrap();
    assert!(
        report
            .tensors
            .iter()
            .any(|tensor| tensor.instead_of == Some(DType::Q4_K) && tensor.to == DType::Q5_0)
    );
}
