//! Tiny random models with the logits `transformers` gives for them, shared with the program crate's tests.

#![allow(dead_code, reason = "no test uses all of it")]

use std::path::PathBuf;

use akunu::{Model, Options};

/// Plain attention; every layer with a window of 16; windows of 8 beside global layers; experts.
pub const FAMILIES: [&str; 4] = ["llama", "mistral", "gemma3", "qwen3moe"];

pub fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/tiny").join(name)
}

pub fn path(name: &str) -> PathBuf {
    directory(name).join("model.gguf")
}

/// On the reference backend, with room for a few sequences.
pub fn options() -> Options {
    Options { backend: "reference".to_owned(), sequences: 4, ..Options::default() }
}

pub fn load(name: &str, options: &Options) -> Model {
    Model::load(path(name), options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The fixture's 40 tokens.
pub fn prompt(name: &str) -> Vec<u32> {
    serde_json::from_slice(&std::fs::read(directory(name).join("prompt.json")).unwrap()).unwrap()
}
