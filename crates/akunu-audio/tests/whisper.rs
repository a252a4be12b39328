//! A real recording, and the filters that come with openai-whisper.

#![allow(clippy::unwrap_used)]

use std::io::Read;

use akunu_audio::{Decoder, Mel, filters};
use akunu_testing::data;

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
}

#[test]
fn filters_are_those_of_openai_whisper() {
    let file = std::fs::File::open(data("tokenizers/whisper/mel_filters.npz")).unwrap();
    let mut archive = zip::ZipArchive::new(file).unwrap();
    for bands in [80, 128] {
        let mut bytes = Vec::new();
        archive.by_name(&format!("mel_{bands}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
        // A NumPy array: the values come last.
        let expected = floats(&bytes[bytes.len() - 4 * bands * 201..]);
        let found = filters(bands);
        assert_eq!(found.len(), expected.len());
        for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
            assert!((a - b).abs() < 1e-8, "{bands} bands, weight {i}: {a}, expected {b}");
        }
    }
}

#[test]
fn the_spectrogram_of_speech_equals_that_of_openai_whisper() {
    for bands in [80, 128] {
        let name = format!("{}/tests/fixtures/jfk_{bands}.f32", env!("CARGO_MANIFEST_DIR"));
        let expected = floats(&std::fs::read(name).unwrap());
        let mel = Mel::read(&mut Decoder::open(data("audio/jfk.wav")).unwrap(), bands).unwrap();
        let mut window = Vec::new();
        mel.window(0, mel.frames(), &mut window);
        let found = window.chunks_exact(bands).step_by(20).flatten();
        let difference = found.zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-4, "{bands} bands: {difference}");
        assert_eq!(mel.frames().div_ceil(20) * bands, expected.len());
    }
}
