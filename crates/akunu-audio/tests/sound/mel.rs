//! Spectrograms against those of openai-whisper: see scripts/oracle/audio.py.

use akunu_audio::{Mel, MelBuilder};

/// The noise of scripts/oracle/audio.py.
fn noise() -> Vec<f32> {
    let levels = [(4000, 1.0 / 64.0), (4000, 0.0), (8000, 0.5), (8037, 1.0 / 1024.0)];
    let mut state = 1u32;
    let mut samples = Vec::new();
    for (count, level) in levels {
        for _ in 0..count {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            samples.push(((state >> 16) as i32 - 32_768) as f32 / 32_768.0 * level);
        }
    }
    samples
}

fn fixture(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
}

#[test]
fn spectrograms_equal_those_of_openai_whisper() {
    for bands in [80, 128] {
        let expected = fixture(&format!("mel_{bands}.f32"));
        let mel = Mel::of(&noise(), bands);
        assert_eq!((mel.frames(), mel.samples()), (150, 24_037));
        let mut window = Vec::new();
        mel.window(0, expected.len() / bands, &mut window);
        assert_eq!(window.len(), expected.len());
        let difference = window.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-4, "{bands} bands: {difference}");
    }
}

#[test]
fn pieces_of_any_size_make_the_same_spectrogram() {
    let samples = noise();
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    Mel::of(&samples, 80).window(0, 200, &mut whole);
    for size in [1, 7, 160, 199, 5000] {
        let mut builder = MelBuilder::new(80);
        for piece in samples.chunks(size) {
            builder.push(piece);
        }
        builder.finish().window(0, 200, &mut pieces);
        assert_eq!(whole, pieces, "{size}");
    }
}

#[test]
fn the_shortest_sounds_have_a_spectrogram() {
    for count in [0, 1, 100, 199, 200, 201, 400] {
        let mel = Mel::of(&noise()[..count], 80);
        assert_eq!(mel.frames(), count / 160);
        let mut window = Vec::new();
        mel.window(0, 3000, &mut window);
        assert!(window.len() == 240_000 && window.iter().all(|value| value.is_finite()), "{count}");
        mel.window(5000, 10, &mut window);
        assert_eq!(window.len(), 800);
    }
}
