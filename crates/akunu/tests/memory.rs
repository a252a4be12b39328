//! What loading and running a model takes at its peak. Run scripts/fetch-test-data first.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use akunu::{Model, Options, Settings};

/// Bytes this process had in memory at most.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn a_model_takes_little_more_than_its_file() {
    // Large enough that a second copy would show.
    let path = akunu_testing::data("models/qwen2.5-coder-0.5b.gguf");
    let file = path.metadata().unwrap().len();
    let context = 1024;
    let options = Options { backend: "cpu".to_owned(), context: Some(context), ..Options::default() };
    let model = Model::load(&path, &options).unwrap();
    let settings = Settings { max_tokens: Some(4), ..Settings::default() };
    let mut generation = model.generate("fn main() {", &settings).unwrap();
    assert!(generation.by_ref().all(|piece| piece.is_ok()));
    let layer = |layer: &akunu_program::arch::Layer| 2 * layer.kv_heads * layer.head_dim * 2;
    let kv: usize = model.architecture().layers.iter().map(layer).sum::<usize>() * context;
    let allowed = file * 12 / 10 + kv as u64 + (200 << 20);
    assert!(peak() <= allowed, "{} MB at the peak, {} MB are allowed", peak() >> 20, allowed >> 20);
}
