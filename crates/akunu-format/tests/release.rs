//! Memory of tensors that someone has copied goes back to the system, and they stay readable.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use akunu_format::gguf::Writer;
use akunu_format::{DType, ModelFile};

const ELEMENTS: usize = 8 << 20;

/// Bytes of mapped files that are in memory.
fn resident_files() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[test]
fn a_released_tensor_takes_no_memory_and_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut writer = Writer::new();
    writer.metadata("general.architecture", "llama").unwrap();
    writer.tensor("large", DType::F32, &[ELEMENTS]).unwrap();
    writer.tensor("small", DType::F32, &[1]).unwrap();
    let mut tensors = writer.create(&path).unwrap();
    let bytes: Vec<u8> = (0..ELEMENTS).flat_map(|i| (i as f32).to_le_bytes()).collect();
    tensors.append("large", &bytes).unwrap();
    tensors.append("small", &7f32.to_le_bytes()).unwrap();
    tensors.finish().unwrap();

    let file = ModelFile::open(&path).unwrap();
    let sum = |name: &str| -> f64 {
        file.tensor(name).unwrap().to_f32().unwrap().iter().map(|x| f64::from(*x)).sum()
    };
    let before = resident_files();
    let expected = sum("large");
    let read = resident_files();
    assert!(read > before + bytes.len() / 2, "{before}, then {read}");
    file.release_tensor("large");
    file.release_tensor("no such tensor");
    let released = resident_files();
    assert!(released + bytes.len() / 2 < read, "{read}, then {released}");
    assert_eq!((sum("large"), sum("small")), (expected, 7.0));
}
