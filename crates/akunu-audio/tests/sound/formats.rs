//! Every format gives the sound that was put into it.

use std::f64::consts::PI;
use std::path::PathBuf;

use akunu_audio::{Decoder, Error, RATE};

use crate::wav::{Samples, Wav};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name)
}

fn decode(name: &str) -> Vec<f32> {
    let mut decoder = Decoder::open(fixture(name)).unwrap();
    let samples = decoder.read_all().unwrap();
    assert_eq!(decoder.damage(), None, "{name}");
    samples
}

/// What the sum of both channels of the fixtures is: see scripts/oracle/audio.py.
fn tones(time: f64) -> f64 {
    0.25 * (2.0 * PI * 440.0 * time).sin() + 0.125 * (2.0 * PI * 1000.0 * time).sin()
}

/// Power of the expected sound over that of what differs from it, in decibels, when it comes `late` seconds and at another level.
/// The beginning and the end, where encoders fade, do not count.
fn fidelity(samples: &[f32], late: f64, level: f64) -> f64 {
    let (mut signal, mut error) = (0.0, 0.0);
    for i in 900..7520 {
        let expected = level * tones(i as f64 / f64::from(RATE) - late);
        let found = samples.get(i).map_or(0.0, |&sample| f64::from(sample));
        signal += expected * expected;
        error += (found - expected).powi(2);
    }
    10.0 * (signal / error).log10()
}

#[test]
fn lossless_formats_give_the_sound_itself() {
    // Eight channels of which six are silent are quieter by four.
    for (name, level) in
        [("tones.flac", 1.0), ("tones.aiff", 1.0), ("tones.alac.m4a", 1.0), ("tones.surround.flac", 0.25)]
    {
        let samples = decode(name);
        assert_eq!(samples.len(), 8000, "{name}");
        let fidelity = fidelity(&samples, 0.0, level);
        assert!(fidelity > 60.0, "{name}: {fidelity} dB");
    }
}

#[test]
fn lossy_formats_give_nearly_the_sound_itself() {
    // AAC begins with a block of the encoder's own, 1024 samples at 44.1 kHz.
    let first = 1024.0 / 44_100.0;
    for (name, late) in [("tones.mp3", 0.0), ("tones.ogg", 0.0), ("tones.aac.m4a", first)] {
        let samples = decode(name);
        assert!((7990..9000).contains(&samples.len()), "{name}: {}", samples.len());
        let fidelity = fidelity(&samples, late, 1.0);
        assert!(fidelity > 20.0, "{name}: {fidelity} dB");
    }
}

#[test]
fn wav_is_read_at_every_depth_rate_and_number_of_channels() {
    for (samples, decibels) in
        [(Samples::U8, 30.0), (Samples::I16, 60.0), (Samples::I24, 60.0), (Samples::F32, 60.0)]
    {
        for rate in [8000, 16_000, 44_100, 192_000] {
            for channels in [1, 2, 8] {
                let values: Vec<f32> =
                    (0..rate / 2).map(|i| tones(f64::from(i) / f64::from(rate)) as f32).collect();
                let bytes = Wav::new(rate, channels, samples).bytes(&values);
                let found = Decoder::from_bytes(bytes, "x.wav").unwrap().read_all().unwrap();
                assert_eq!(found.len(), 8000);
                let fidelity = fidelity(&found, 0.0, 1.0);
                assert!(fidelity > decibels, "{samples:?}, {rate} Hz, {channels} channels: {fidelity} dB");
            }
        }
    }
}

#[test]
fn what_cannot_be_decoded_is_named() {
    let error = Decoder::open(fixture("tones.opus")).err().unwrap();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("tones.opus") && text.contains("(Opus)") && text.contains("ffmpeg"), "{text}");
}
