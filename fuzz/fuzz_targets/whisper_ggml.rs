//! Any bytes, read as a Whisper model in whisper.cpp's container.

#![no_main]

use akunu_format::whisper_ggml::WhisperGgml;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(whisper) = WhisperGgml::from_bytes(bytes.to_vec()) else { return };
    let filters = whisper.mel_filters();
    assert_eq!(filters.values.len(), filters.mels * filters.bins);
    assert_eq!(whisper.tokens().count(), whisper.token_count());
    akunu_fuzz::read_tensors(whisper.tensors());
});
