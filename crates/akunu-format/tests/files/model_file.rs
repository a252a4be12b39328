//! Files are told apart by what they hold.

use std::fs;
use std::path::{Path, PathBuf};

use akunu_format::ModelFile;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[test]
fn opens_each_format_whatever_the_name() {
    let directory = tempfile::tempdir().unwrap();
    for (file, format, tensor) in [
        ("gguf/all-types.gguf", "GGUF", "f32.matrix"),
        ("checkpoint/sharded/model-00004-of-00004.safetensors", "SafeTensors", "lm_head.weight"),
        ("whisper/tiny.bin", "Whisper GGML", "encoder.conv1.weight"),
    ] {
        let path = directory.path().join("model");
        fs::copy(fixture(file), &path).unwrap();
        let model = ModelFile::open(&path).unwrap();
        assert_eq!((model.format(), model.path()), (format, path.as_path()));
        assert!(model.get_tensor(tensor).is_some());
        assert_eq!(model.tensors().filter(|t| t.name == tensor).count(), 1);
        assert_eq!(model.tensor(tensor).unwrap().name, tensor);
    }
    assert_eq!(ModelFile::open(fixture("checkpoint/sharded")).unwrap().format(), "SafeTensors");
}

#[test]
fn says_what_was_found_and_what_is_expected() {
    let directory = tempfile::tempdir().unwrap();
    for (bytes, found) in [
        (&b""[..], "an empty file"),
        (b"PK\x05\x06rest", "an empty zip archive"),
        (b"\x80\x02ctorch", "a bare pickle"),
        (b"tjgg\x03\0\0\0", "llama.cpp's format from before GGUF"),
        (b"<!doctype html>", "a web page or an LFS pointer"),
        (b"version https://git-lfs", "a web page or an LFS pointer"),
        (b"\x01\x02hello, world", "begins with \"\\x01\\x02hello"),
    ] {
        let path = directory.path().join("model.bin");
        fs::write(&path, bytes).unwrap();
        let message = ModelFile::open(&path).unwrap_err().to_string();
        assert!(message.contains(found) && message.contains("expected a GGUF file"), "{message}");
    }
    let message = ModelFile::open(directory.path().join("nowhere")).unwrap_err().to_string();
    assert!(message.contains("nowhere"), "{message}");
}

#[test]
fn a_name_ending_in_safetensors_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    fs::write(&path, "short").unwrap();
    let message = ModelFile::open(&path).unwrap_err().to_string();
    assert!(message.contains("header length at byte 0: needs 8 bytes"), "{message}");
}
