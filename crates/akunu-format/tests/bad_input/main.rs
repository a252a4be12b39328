//! Whatever the bytes, opening a file ends in a model or in an error that says where the fault lies: no panic, no hang,
//! and never more memory than eight times the file's size.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod checkpoint;
mod gguf;
mod torch;
mod whisper_ggml;

use std::path::{Path, PathBuf};

use akunu_format::{Error, Tensor};
use akunu_testing::allocator::{self, Counting};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Room for what does not grow with the file: paths, messages, the open model itself.
const FIXED_BYTES: usize = 16 * 1024;
const BYTES_PER_FILE_BYTE: usize = 8;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Opens a file of `len` bytes and checks what that took.
fn within_limits<T>(len: usize, open: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let (result, peak) = allocator::peak(open);
    let limit = BYTES_PER_FILE_BYTE * len + FIXED_BYTES;
    assert!(peak <= limit, "{peak} bytes were allocated for a file of {len}");
    if let Err(error) = &result {
        let message = error.to_string();
        assert!(message.contains(" at byte ") || !matches!(error, Error::Malformed { .. }), "{message}");
    }
    result
}

/// Reads all that can be read of tensors that are not large.
fn read_all<'a>(tensors: impl Iterator<Item = Tensor<'a>>) {
    for tensor in tensors {
        assert_eq!(tensor.rows() * tensor.row_len(), tensor.len());
        if tensor.len() <= 1 << 16 {
            match tensor.to_f32() {
                Ok(values) => assert_eq!(values.len(), tensor.len()),
                Err(error) => assert!(
                    matches!(error, Error::NoConversion { .. } | Error::OpaqueValues { .. }),
                    "{}: {error}",
                    tensor.name
                ),
            }
        }
    }
}

/// Every field of a file in turn gets values that are likely to hurt: `try_open` is called with the changed bytes.
fn overwrite_everywhere(original: &[u8], try_open: impl Fn(Vec<u8>)) {
    let values: [&[u8]; 8] = [
        &u64::MAX.to_le_bytes(),
        &(1u64 << 63).to_le_bytes(),
        &(1u64 << 61).to_le_bytes(),
        &(1u64 << 32).to_le_bytes(),
        &u32::MAX.to_le_bytes(),
        &(1u32 << 31).to_le_bytes(),
        &[0; 8],
        &[0xff],
    ];
    for at in 0..original.len() {
        for value in values {
            let mut bytes = original.to_vec();
            let len = value.len().min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&value[..len]);
            try_open(bytes);
        }
    }
}

#[test]
fn the_peak_is_what_was_held_at_once() {
    let (kept, bytes) = allocator::peak(|| {
        drop(Vec::<u8>::with_capacity(3000));
        let first = vec![0u8; 1000];
        let second = vec![0u8; 500];
        drop(first);
        second
    });
    assert_eq!((kept.len(), bytes), (500, 3000));
}
