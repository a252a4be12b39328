//! Whatever a file holds, there is a sound or an error that says why not.

use akunu_audio::{Decoder, Error, Mel, RATE};

use crate::wav::{Samples, Wav};

/// The sound and what was wrong with it, or why there is none.
fn read(bytes: Vec<u8>, name: &str) -> Result<(Vec<f32>, Option<String>), Error> {
    let mut decoder = Decoder::from_bytes(bytes, name)?;
    let samples = decoder.read_all()?;
    assert!(samples.iter().all(|sample| sample.is_finite()));
    Ok((samples, decoder.damage()))
}

fn refusal(bytes: Vec<u8>, name: &str) -> String {
    read(bytes, name).unwrap_err().to_string()
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

const FIXTURES: [&str; 7] = [
    "tones.surround.flac",
    "tones.aiff",
    "tones.flac",
    "tones.mp3",
    "tones.ogg",
    "tones.aac.m4a",
    "tones.alac.m4a",
];

#[test]
fn files_without_sound_are_refused_by_name() {
    assert_eq!(refusal(Vec::new(), "a.wav"), "a.wav: there is no sound in it");
    let silent = Wav::new(16_000, 1, Samples::I16).bytes(&[]);
    assert_eq!(refusal(silent, "b.wav"), "b.wav: there is no sound in it");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.mp3");
    std::fs::write(&path, "").unwrap();
    let message = Decoder::open(&path).err().unwrap().to_string();
    assert!(message.ends_with("empty.mp3: there is no sound in it"), "{message}");
    for path in [folder.path(), &folder.path().join("absent.wav")] {
        let error = Decoder::open(path).err().unwrap();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }
}

#[test]
fn opus_is_refused_with_what_to_do() {
    let message = refusal(fixture("tones.opus"), "voice.ogg");
    assert_eq!(
        message,
        "voice.ogg: its codec (Opus) cannot be read; convert it first, for example with `ffmpeg -i voice.ogg sound.wav`"
    );
}

#[test]
fn no_more_is_taken_than_asked_for() {
    let sound = Wav::new(16_000, 1, Samples::I16).bytes(&vec![0.1; 16_000 * 3]);
    let mut decoder = Decoder::from_bytes(sound.clone(), "a.wav").unwrap();
    decoder.take_at_most(3);
    assert_eq!(decoder.read_all().unwrap().len(), 48_000);
    let mut decoder = Decoder::from_bytes(sound, "a.wav").unwrap();
    decoder.take_at_most(1);
    assert_eq!(decoder.read_all().unwrap_err().to_string(), "a.wav: the sound is longer than 1 second");
}

#[test]
fn text_is_no_sound_whatever_it_is_called() {
    for name in ["notes.wav", "notes.mp3", "notes.flac", "notes.ogg", "notes.m4a", "notes"] {
        for text in ["hello", "RIFF", "fLaC", "OggS", "ID3", &"All work and no play. ".repeat(5000)] {
            let message = refusal(text.as_bytes().to_vec(), name);
            assert!(message.starts_with(&format!("{name}: ")), "{message}");
        }
    }
}

#[test]
fn samples_that_are_no_numbers_become_silence() {
    let mut values = vec![0.25; 1600];
    values[10] = f32::NAN;
    values[20] = f32::INFINITY;
    values[30] = 1e30;
    let (samples, damage) = read(Wav::new(16_000, 1, Samples::F32).bytes(&values), "x.wav").unwrap();
    assert_eq!((samples[10], samples[20], samples[30], samples[40]), (0.0, 0.0, 1.0, 0.25));
    assert_eq!(damage.as_deref(), Some("2 samples are not numbers and became silence"));
}

#[test]
fn silence_has_a_finite_spectrogram() {
    let mel = Mel::of(&vec![0.0; 16_000], 80);
    let mut window = Vec::new();
    mel.window(0, 3000, &mut window);
    assert!(window.iter().all(|&value| value == -1.5));
    assert!(mel.is_silent(0, 100) && mel.is_silent(99, 5000));
    let mut samples = vec![0.0; 16_000];
    samples[8000] = 0.01;
    let mel = Mel::of(&samples, 80);
    assert!(mel.is_silent(0, 48) && !mel.is_silent(0, 100) && mel.is_silent(52, 48));
}

#[test]
fn a_file_that_breaks_off_gives_what_it_has() {
    let values = vec![0.25; RATE as usize];
    let mut bytes = Wav::new(RATE, 1, Samples::I24).bytes(&values);
    bytes.truncate(bytes.len() / 2);
    let (samples, damage) = read(bytes, "x.wav").unwrap();
    assert!((7000..=8000).contains(&samples.len()), "{}", samples.len());
    assert!(damage.unwrap().starts_with("the file breaks off after 0."));
}

#[test]
fn a_wav_from_a_pipe_ends_where_it_ends() {
    let whole = Wav::new(16_000, 1, Samples::I16).bytes(&[0.25; 4000]);
    let data = whole.windows(4).position(|window| window == b"data").unwrap() + 4;
    for (file, sound) in [(u32::MAX, u32::MAX), (0x7fff_f024, 0x7fff_f000)] {
        let mut piped = whole.clone();
        piped[4..8].copy_from_slice(&file.to_le_bytes());
        piped[data..data + 4].copy_from_slice(&sound.to_le_bytes());
        let (samples, damage) = read(piped, "standard input").unwrap();
        assert_eq!((samples.len(), damage), (4000, None), "{file:x}");
    }
}

#[test]
fn headers_that_lie_about_lengths_are_survived() {
    let values = vec![0.25; RATE as usize];
    // What programs write that do not know the length yet.
    for claimed in [u32::MAX, 0x7fff_ffff] {
        let wav = Wav { claimed: Some(claimed), ..Wav::new(RATE, 1, Samples::I16) };
        let (samples, _) = read(wav.bytes(&values), "stream.wav").unwrap();
        assert!(samples.len() > 15_000, "{claimed}: {}", samples.len());
    }
    for rate in [0, 1, 999, 768_001, u32::MAX] {
        let message = refusal(Wav::new(rate, 1, Samples::I16).bytes(&values), "x.wav");
        assert!(message.starts_with("x.wav: "), "{message}");
    }
    for channels in [0, 300, 65_535] {
        // Refused or read: only that it ends is promised.
        let _ = read(Wav::new(RATE, channels, Samples::U8).bytes(&values[..100]), "x.wav");
    }
}

#[test]
fn files_cut_anywhere_or_with_any_byte_changed_end_well() {
    let mut state = 1u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    for name in FIXTURES {
        let whole = fixture(name);
        for round in 0..40 {
            let mut bytes = whole.clone();
            if round % 2 == 0 {
                bytes.truncate(random(whole.len()));
            }
            // Most of what matters to a parser lies in the beginning.
            let reach = if round % 4 < 2 { bytes.len() } else { bytes.len().min(300) };
            for _ in 0..random(8) {
                if reach > 0 {
                    bytes[random(reach)] = random(256) as u8;
                }
            }
            if let Err(error) = read(bytes, name) {
                assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
            }
        }
    }
}
