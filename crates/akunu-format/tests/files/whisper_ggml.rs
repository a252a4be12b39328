//! Whisper's container against a file of toy size (`scripts/oracle/whisper_ggml.py`).

use std::fs;
use std::path::{Path, PathBuf};

use akunu_format::whisper_ggml::{Hparams, WhisperGgml};
use akunu_format::{Data, Error};
use serde_json::Value as Json;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/whisper").join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn reads_what_went_into_the_file() {
    let whisper = WhisperGgml::open(fixture("tiny.bin")).unwrap();
    let expected: Json = serde_json::from_slice(&fs::read(fixture("tiny.json")).unwrap()).unwrap();
    let hparams = Hparams {
        vocab_size: 10,
        audio_ctx: 4,
        audio_state: 8,
        audio_heads: 2,
        audio_layers: 1,
        text_ctx: 6,
        text_state: 8,
        text_heads: 2,
        text_layers: 1,
        mels: 2,
        ftype: 2007,
    };
    assert_eq!(*whisper.hparams(), hparams);

    let filters = whisper.mel_filters();
    assert_eq!((filters.mels, filters.bins), (2, 5));
    let rows: Vec<&[f32]> = filters.values.chunks(5).collect();
    assert_eq!(serde_json::from_value::<Vec<Vec<f32>>>(expected["filters"].clone()).unwrap(), rows);

    let tokens: Vec<String> = whisper.tokens().map(hex).collect();
    assert_eq!(serde_json::from_value::<Vec<String>>(expected["tokens"].clone()).unwrap(), tokens);
    assert_eq!(whisper.token_count(), tokens.len());

    let tensors = expected["tensors"].as_array().unwrap();
    assert_eq!(whisper.tensors().len(), tensors.len());
    for (tensor, expected) in whisper.tensors().zip(tensors) {
        assert_eq!(tensor.name, expected["name"]);
        assert_eq!(tensor.dtype_name(), expected["dtype"].as_str().unwrap());
        assert_eq!(serde_json::from_value::<Vec<usize>>(expected["shape"].clone()).unwrap(), tensor.shape);
        let Data::Blocks { bytes, .. } = tensor.data else { panic!("{:?}", tensor.data) };
        assert_eq!(hex(bytes), expected["bytes"]);
    }
}

fn edited(edit: impl Fn(&mut Vec<u8>)) -> Result<WhisperGgml, Error> {
    let mut bytes = fs::read(fixture("tiny.bin")).unwrap();
    edit(&mut bytes);
    WhisperGgml::from_bytes(bytes)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn the_magic_may_be_written_either_way_round() {
    let swapped = edited(|bytes| bytes[..4].reverse()).unwrap();
    assert_eq!(swapped.hparams().vocab_size, 10);
}

#[test]
fn a_big_endian_file_is_refused_by_name() {
    let error = edited(|bytes| bytes[..48].chunks_mut(4).for_each(<[u8]>::reverse)).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }));
    assert!(error.to_string().contains("big-endian Whisper model"), "{error}");
}

#[test]
fn fields_that_cannot_be_right_are_refused() {
    let filters = 48 + 8 + 2 * 5 * 4;
    let tokens: usize = [1, 4, 2, 0, 2, 1].iter().map(|len| 4 + len).sum();
    let first_tensor = filters + 4 + tokens;
    for (at, value, message) in [
        (0, 0x1234_5678, "magic at byte 0"),
        (4, 0, "n_vocab at byte 4: 0 is not a size"),
        (20, 1 << 31, "n_audio_layer at byte 20"),
        (40, 3, "mel filters: rows at byte 48: 2, but the model has 3"),
        (52, u32::MAX, "mel filters at byte 56: needs 34359738360 bytes"),
        (filters, 11, "vocabulary: count at byte 96: 11, but the model has 10 tokens"),
        (filters + 4, u32::MAX, "token 0 at byte 104: needs 4294967295 bytes"),
        (first_tensor, 0, "0 dimensions"),
        (first_tensor, 5, "5 dimensions"),
        (first_tensor + 4, u32::MAX, "name of tensor 0"),
        (first_tensor + 8, 4, "tensor \"encoder.positional_embedding\": dtype"),
        (first_tensor + 8, 8, "whole blocks of 32 (Q8_0)"),
        (first_tensor + 12, u32::MAX, "tensor \"encoder.positional_embedding\": values"),
        (16 + 4, 2, "50 tensors, but a model of these sizes has 65"),
    ] {
        let error = edited(|bytes| put(bytes, at, value)).unwrap_err().to_string();
        assert!(error.contains(message), "\"{message}\" is not in \"{error}\"");
    }
}
