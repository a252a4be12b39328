//! Whisper's container: cut off, overwritten, and full of the smallest tensors.

use std::fs;

use akunu_format::Error;
use akunu_format::whisper_ggml::WhisperGgml;
use proptest::prelude::*;

use super::{fixture, overwrite_everywhere, read_all, within_limits};

fn open(bytes: Vec<u8>) -> Result<WhisperGgml, Error> {
    within_limits(bytes.len(), || WhisperGgml::from_bytes(bytes))
}

fn exercise(bytes: Vec<u8>) {
    if let Ok(whisper) = open(bytes) {
        let filters = whisper.mel_filters();
        assert_eq!(filters.values.len(), filters.mels * filters.bins);
        assert_eq!(whisper.tokens().count(), whisper.token_count());
        read_all(whisper.tensors());
    }
}

fn tiny() -> Vec<u8> {
    fs::read(fixture("whisper/tiny.bin")).unwrap()
}

#[test]
fn a_file_cut_off_anywhere_is_an_error() {
    let bytes = tiny();
    for len in 0..bytes.len() {
        assert!(open(bytes[..len].to_vec()).is_err(), "{len} of {} bytes", bytes.len());
    }
}

#[test]
fn overwritten_fields_do_no_harm() {
    overwrite_everywhere(&tiny(), exercise);
}

proptest! {
    #[test]
    fn overwritten_bytes_do_no_harm(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = tiny();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(bytes);
    }
}

#[test]
fn the_smallest_tensors_in_large_numbers_stay_within_limits() {
    let count = 11 + 200 * (15 + 24);
    let mut bytes = b"lmgg".to_vec();
    let hparams = [1, 1, 1, 1, 200, 1, 1, 1, 200, 1, 0];
    let empty_filters_and_vocabulary = [1, 0, 0];
    for value in hparams.into_iter().chain(empty_filters_and_vocabulary) {
        bytes.extend_from_slice(&u32::to_le_bytes(value));
    }
    for i in 0..count {
        let name = format!("{i:x}");
        for value in [1, name.len() as u32, 0, 0] {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes.extend_from_slice(name.as_bytes());
    }
    assert_eq!(open(bytes).unwrap().tensors().len(), count);
}
