//! Recordings against what openai-whisper makes of them with the same weights: see scripts/oracle/transcripts.py.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use akunu::quantize::{Options, Recipe, quantize};
use akunu::speech::{Event, Format, SpeechOptions, SpeechSettings, Transcriber, Transcription};
use akunu::{Kind, StopHandle};
use akunu_testing::data;
use serde_json::Value;

/// How much a mean log-probability may differ: that of F16 keys and values, over a window.
const CLOSE: f64 = 2e-3;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

static TINY: LazyLock<Transcriber> =
    LazyLock::new(|| Transcriber::load(data("models/whisper-tiny.bin"), &SpeechOptions::default()).unwrap());

/// What the oracle was asked for under a name.
fn settings(name: &str) -> SpeechSettings {
    let english = SpeechSettings {
        language: Some("en".to_owned()),
        temperatures: vec![0.0],
        beams: 1,
        ..SpeechSettings::default()
    };
    match name {
        "greedy" => english,
        "beam" => SpeechSettings { language: None, beams: 5, ..english },
        "words" => SpeechSettings { beams: 5, words: true, ..english },
        "plain" => SpeechSettings { timestamps: false, ..english },
        "prompt" => SpeechSettings { prompt: Some("A speech by John F. Kennedy.".to_owned()), ..english },
        "five" => SpeechSettings { beams: 5, ..english },
        other => panic!("no settings are called {other}"),
    }
}

fn transcribe(audio: &Path, settings: &SpeechSettings) -> Transcription {
    let sound = TINY.open(audio, &StopHandle::default()).unwrap();
    TINY.transcribe(&sound, settings, &StopHandle::default(), &mut |_| {}).unwrap()
}

/// Compares a recording with what the oracle found.
fn agrees(audio: &str, path: &Path, name: &str) {
    let all: Value = serde_json::from_slice(&std::fs::read(fixture("transcripts.json")).unwrap()).unwrap();
    let expected =
        all.as_array().unwrap().iter().find(|case| case["audio"] == audio && case["settings"] == name);
    let expected = expected.unwrap();
    let language = expected["language"].as_str().unwrap();
    let mut settings = settings(name);
    settings.language = settings.language.map(|_| language.to_owned());
    let found = transcribe(path, &settings);
    assert_eq!(found.language, language);
    let segments = expected["segments"].as_array().unwrap();
    assert_eq!(found.segments.len(), segments.len(), "{audio}, {name}: {}", found.text);
    for (found, expected) in found.segments.iter().zip(segments) {
        let place = format!("{audio}, {name}, segment {}", found.id);
        assert_eq!(found.text, expected["text"], "{place}");
        let tokens: Vec<u32> = serde_json::from_value(expected["tokens"].clone()).unwrap();
        assert_eq!(found.tokens, tokens, "{place}");
        let number = |field: &str| expected[field].as_f64().unwrap();
        for (field, value) in [("start", found.start), ("end", found.end)] {
            assert!((value - number(field)).abs() < 0.005, "{place}: {field} is {value}");
        }
        let value = f64::from(found.avg_logprob);
        assert!((value - number("avg_logprob")).abs() < CLOSE, "{place}: avg_logprob is {value}");
        let value = f64::from(found.no_speech_prob);
        assert!((value - number("no_speech_prob")).abs() < CLOSE, "{place}: no_speech_prob is {value}");
        let Some(words) = expected["words"].as_array() else { continue };
        let found = found.words.as_ref().unwrap();
        assert_eq!(found.len(), words.len(), "{place}");
        for (found, expected) in found.iter().zip(words) {
            assert_eq!(found.word, expected["word"], "{place}");
            for (field, value) in [("start", found.start), ("end", found.end)] {
                // A state of the encoder is 20 ms.
                let expected = expected[field].as_f64().unwrap();
                assert!(
                    (value - expected).abs() < 0.021,
                    "{place}, {}: {field} is {value}, not {expected}",
                    found.word
                );
            }
        }
    }
}

#[test]
fn a_speech_is_transcribed_token_for_token() {
    let path = data("audio/jfk.wav");
    for name in ["greedy", "beam", "words", "plain", "prompt"] {
        agrees("jfk.wav", &path, name);
    }
    let text = transcribe(&path, &SpeechSettings::default()).text;
    assert_eq!(
        text.trim(),
        "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country."
    );
}

#[test]
fn quantised_models_hear_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (name, recipe) in [("model.gguf", Recipe::Q8_0), ("model.bin", Recipe::Q5_0)] {
        let path = folder.path().join(name);
        let options = Options::new(recipe);
        quantize(data("models/whisper-tiny.bin"), &path, &options, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let transcriber = Transcriber::load(&path, &SpeechOptions::default()).unwrap();
        let sound = transcriber.open(data("audio/jfk.wav"), &StopHandle::default()).unwrap();
        let heard =
            transcriber.transcribe(&sound, &settings("greedy"), &StopHandle::default(), &mut |_| {}).unwrap();
        let words = heard.text.to_lowercase().replace([',', '.'], "");
        assert_eq!(
            words.trim(),
            "and so my fellow americans ask not what your country can do for you ask what you can do for your country",
            "{name}"
        );
    }
}

#[test]
fn more_than_one_window_is_transcribed_token_for_token() {
    for name in ["greedy", "words"] {
        agrees("library.flac", &fixture("library.flac"), name);
    }
}

#[test]
fn what_is_taken_for_silence_and_what_repeats_itself_are_the_references() {
    for name in ["greedy", "five"] {
        agrees("biblioteca.flac", &fixture("biblioteca.flac"), name);
        agrees("biblioteka.flac", &fixture("biblioteka.flac"), name);
    }
}

#[test]
fn segments_come_one_by_one_and_a_stop_ends_it() {
    let sound = TINY.open(fixture("library.flac"), &StopHandle::default()).unwrap();
    let settings = settings("greedy");
    let (mut texts, mut last, mut took) = (Vec::new(), 0.0, None);
    let whole = TINY
        .transcribe(&sound, &settings, &StopHandle::default(), &mut |event| match event {
            Event::Segment(segment) => texts.push(segment.text.clone()),
            Event::Progress { done, total } => {
                assert!(done > last && done <= total);
                last = done;
            }
            Event::Language { .. } => panic!("the language was given"),
            Event::Done(statistics) => took = Some(statistics),
        })
        .unwrap();
    assert_eq!(texts.concat(), whole.text);
    let took = took.expect("the end is told");
    assert!(!took.encode.is_zero() && !took.decode.is_zero(), "{took:?}");
    // Frames are hundredths of a second.
    assert!((last - sound.seconds()).abs() < 0.01, "{last}");
    assert_eq!(whole.write(Format::Srt).matches(" --> ").count(), texts.len());

    let stop = StopHandle::default();
    let error = TINY
        .transcribe(&sound, &settings, &stop, &mut |event| {
            if let Event::Progress { .. } = event {
                stop.stop();
            }
        })
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Stopped);
}

#[test]
fn samples_depend_on_the_seed_alone() {
    let sound = TINY.open(data("audio/jfk.wav"), &StopHandle::default()).unwrap();
    let run = |seed| {
        let settings = SpeechSettings { temperatures: vec![1.0], seed, best_of: 2, ..settings("greedy") };
        TINY.transcribe(&sound, &settings, &StopHandle::default(), &mut |_| {}).unwrap()
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_eq!(first.segments[0].temperature, 1.0);
}

#[test]
fn silence_and_nothing_have_no_text() {
    let silence = vec![0.0; 16_000 * 5];
    for samples in [&[][..], &[0.5; 100], &silence] {
        let sound = TINY.sound(samples);
        let settings = SpeechSettings { language: Some("en".to_owned()), ..SpeechSettings::default() };
        let found = TINY.transcribe(&sound, &settings, &StopHandle::default(), &mut |_| {}).unwrap();
        assert_eq!(found.text, "", "{} samples", samples.len());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let sound = TINY.sound(&[0.0; 1600]);
    let refused = |settings: &SpeechSettings| {
        let error = TINY.transcribe(&sound, settings, &StopHandle::default(), &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{error}");
        error.to_string()
    };
    let usual = SpeechSettings::default();
    let klingon = SpeechSettings { language: Some("klingon".to_owned()), ..usual.clone() };
    assert_eq!(refused(&klingon), "no language is called \"klingon\"");
    // The model was made before Cantonese had a token.
    refused(&SpeechSettings { language: Some("yue".to_owned()), ..usual.clone() });
    refused(&SpeechSettings { beams: 0, ..usual.clone() });
    refused(&SpeechSettings { best_of: 6, ..usual.clone() });
    refused(&SpeechSettings { temperatures: Vec::new(), ..usual.clone() });
    refused(&SpeechSettings { temperatures: vec![f32::NAN], ..usual });
    let short = SpeechOptions { longest: Duration::from_secs(10), ..SpeechOptions::default() };
    let short = Transcriber::load(data("models/whisper-tiny.bin"), &short).unwrap();
    let error = short.open(data("audio/jfk.wav"), &StopHandle::default()).unwrap_err();
    assert!(error.to_string().ends_with("the sound is longer than 10 seconds"), "{error}");
    assert_eq!(
        TINY.decode(b"not sound".to_vec(), "x.wav", &StopHandle::default()).unwrap_err().kind(),
        Kind::BadData
    );
}
