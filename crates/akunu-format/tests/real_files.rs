//! Models that people use, from `scripts/fetch-test-data`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use akunu_format::gguf::Gguf;
use akunu_format::{Data, ModelFile};
use akunu_testing::data;

/// The shortest of several openings: the others were disturbed by something else on the machine.
fn fastest_open(path: &Path) -> Duration {
    let once = || {
        let start = Instant::now();
        let model = ModelFile::open(path).unwrap();
        let elapsed = start.elapsed();
        drop(model);
        elapsed
    };
    (0..20).map(|_| once()).min().unwrap()
}

#[test]
fn opening_takes_milliseconds() {
    for name in [
        "models/smollm2.gguf",
        "models/qwen2.5-coder-0.5b.gguf", // 300,000 strings
        "models/gemma3-270m.gguf",        // 262,144 strings
        "models/whisper-tiny.bin",
        "models/minilm",
    ] {
        let elapsed = fastest_open(&data(name));
        println!("{name}: {elapsed:?}");
        assert!(elapsed < Duration::from_millis(10), "{name}: {elapsed:?}");
    }
}

#[test]
fn smollm2_is_what_its_publisher_says() {
    let gguf = Gguf::open(data("models/smollm2.gguf")).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.require::<&str>("general.architecture").unwrap(), "llama");
    assert_eq!(metadata.require::<usize>("llama.block_count").unwrap(), 30);
    assert_eq!(metadata.require::<Vec<&str>>("tokenizer.ggml.tokens").unwrap().len(), 49152);
    let count = |name: &str| gguf.tensors().filter(|tensor| tensor.dtype_name() == name).count();
    assert_eq!((count("Q4_1"), count("F32"), count("Q8_0")), (210, 61, 1));
    let embedding = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!(embedding.shape, [49152, 576]);
    let parameters: usize = gguf.tensors().map(|tensor| tensor.len()).sum();
    assert_eq!(parameters, 134_515_008); // Hugging Face's count for SmolLM2-135M
}

#[test]
fn vocabularies_without_weights_open() {
    let mut opened = 0;
    for entry in fs::read_dir(data("vocab")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "gguf") {
            let gguf = Gguf::open(&path).unwrap();
            assert_eq!(gguf.tensors().len(), 0, "{}", path.display());
            assert!(!gguf.metadata().require::<Vec<&str>>("tokenizer.ggml.tokens").unwrap().is_empty());
            opened += 1;
        }
    }
    assert!(opened >= 15, "only {opened} vocabularies are there");
}

#[test]
fn minilm_is_a_hugging_face_directory() {
    let ModelFile::Checkpoint(minilm) = ModelFile::open(data("models/minilm")).unwrap() else {
        panic!("a directory is a checkpoint")
    };
    let config = minilm.config().unwrap();
    assert_eq!(config.require::<&str>("model_type").unwrap(), "bert");
    let hidden: usize = config.require("hidden_size").unwrap();
    let vocabulary: usize = config.require("vocab_size").unwrap();
    let embedding = minilm.tensor("embeddings.word_embeddings.weight").unwrap();
    assert_eq!(embedding.shape, [vocabulary, hidden]);
    assert!(minilm.companion("tokenizer.json").is_some());
}

/// The 32-bit floats of one array in a NumPy archive.
fn npz_f32(archive: &Path, name: &str) -> Vec<f32> {
    let mut archive = zip::ZipArchive::new(fs::File::open(archive).unwrap()).unwrap();
    let mut array = Vec::new();
    archive.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut array).unwrap();
    // Magic, version, u16 length, a Python dictionary, values.
    let header_len = usize::from(u16::from_le_bytes([array[8], array[9]]));
    let (header, values) = array[10..].split_at(header_len);
    assert!(String::from_utf8_lossy(header).contains("'descr': '<f4', 'fortran_order': False"));
    values.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

#[test]
fn whisper_tiny_has_openais_filters_and_vocabulary() {
    let ModelFile::WhisperGgml(whisper) = ModelFile::open(data("models/whisper-tiny.bin")).unwrap() else {
        panic!("a Whisper model was expected")
    };
    let hparams = whisper.hparams();
    assert_eq!(
        (hparams.vocab_size, hparams.audio_state, hparams.text_layers, hparams.mels),
        (51865, 384, 4, 80)
    );
    assert_eq!(whisper.tensors().len(), 167);
    let conv = whisper.tensor("encoder.conv1.weight").unwrap();
    assert_eq!(conv.shape, [384, 80, 3]);
    assert!(matches!(conv.data, Data::Blocks { dtype: akunu_format::DType::F16, .. }));

    let filters = whisper.mel_filters();
    assert_eq!((filters.mels, filters.bins), (80, 201));
    assert_eq!(filters.values, npz_f32(&data("tokenizers/whisper/mel_filters.npz"), "mel_80"));

    // One token a line: base64, space, id. The last is empty, written as a lone padding character.
    let tiktoken = fs::read_to_string(data("tokenizers/whisper/multilingual.tiktoken")).unwrap();
    for (id, (line, token)) in tiktoken.lines().zip(whisper.tokens()).enumerate() {
        let (expected, _) = line.split_once(' ').unwrap();
        assert_eq!(base64(token).trim_end_matches('='), expected.trim_end_matches('='), "token {id}");
    }
    assert_eq!(tiktoken.lines().count(), whisper.token_count());
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().enumerate().fold(0, |bits, (i, &byte)| bits | u32::from(byte) << (16 - 8 * i));
        for i in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { digit.into() } else { '=' });
        }
    }
    text
}
