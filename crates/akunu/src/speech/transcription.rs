//! What was said, and the formats it is written in.

use std::fmt::Write as _;
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Value, json};

use super::languages::language_name;

/// What was said in a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Transcription {
    /// `transcribe` or `translate`.
    pub task: &'static str,
    /// The code of the language that is spoken, given or found out: `en`.
    pub language: String,
    /// Length of the sound in seconds.
    pub duration: f64,
    /// All of it.
    pub text: String,
    /// Its parts, in their order.
    pub segments: Vec<Segment>,
    /// What was wrong with the recording where the rest could be read, such as an end that is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// A part of what was said, about a sentence. Names are those of OpenAI's interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Segment {
    /// Counts from 0.
    pub id: usize,
    /// Where the window began that it was found in, in hundredths of a second.
    pub seek: usize,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
    /// With a space before, where the language has spaces.
    pub text: String,
    /// Its tokens, those of times among them.
    pub tokens: Vec<u32>,
    /// At which the window was decoded in the end.
    pub temperature: f32,
    /// The mean of the logarithms of probabilities, over the window.
    pub avg_logprob: f32,
    /// How much shorter the window's text becomes by compression: much, where it repeats itself.
    pub compression_ratio: f32,
    /// How likely it is that nobody speaks in the window.
    pub no_speech_prob: f32,
    /// Only where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<Vec<Word>>,
}

/// A word and when it is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Word {
    /// With a space before, where the language has spaces, and with punctuation.
    pub word: String,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
    /// The mean over its tokens.
    pub probability: f32,
}

impl Transcription {
    /// The answer of OpenAI's interface to a request for `verbose_json`: the language by its name, words beside segments.
    pub fn verbose_json(&self) -> Value {
        let mut value = json!({
            "task": self.task,
            "language": language_name(&self.language).unwrap_or(&self.language),
            "duration": self.duration,
            "text": self.text.trim(),
            "segments": self.segments,
        });
        let words: Vec<Value> = self
            .words()
            .map(|word| json!({"word": word.word.trim(), "start": word.start, "end": word.end}))
            .collect();
        if self.segments.iter().any(|segment| segment.words.is_some()) {
            value["words"] = Value::Array(words);
            let segments = value["segments"].as_array_mut().into_iter().flatten();
            segments.filter_map(Value::as_object_mut).for_each(|segment| drop(segment.remove("words")));
        }
        value
    }

    /// All words, where they were asked for.
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        self.segments.iter().flat_map(|segment| segment.words.iter().flatten())
    }

    /// All of it in a format.
    pub fn write(&self, format: Format) -> String {
        let mut writer = Writer::new(format);
        let mut text = writer.begin().to_owned();
        self.segments.iter().for_each(|segment| text += &writer.segment(segment));
        text + &writer.end(self)
    }
}

/// A format for what was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A line for each segment.
    #[default]
    Text,
    /// The same, with times before each line.
    TimedText,
    /// SubRip's subtitles.
    Srt,
    /// Subtitles for the web.
    Vtt,
    /// A [`Transcription`].
    Json,
}

impl Format {
    /// The names of formats, as [`str::parse`] takes them.
    pub const NAMES: [&'static str; 4] = ["txt", "srt", "vtt", "json"];
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Format, String> {
        match name {
            "txt" => Ok(Format::Text),
            "srt" => Ok(Format::Srt),
            "vtt" => Ok(Format::Vtt),
            "json" => Ok(Format::Json),
            other => Err(format!("no format is called {other}")),
        }
    }
}

/// Writes segments as they come.
#[derive(Clone, Debug)]
pub struct Writer {
    format: Format,
    count: usize,
}

impl Writer {
    /// A writer that has written nothing.
    pub fn new(format: Format) -> Writer {
        Writer { format, count: 0 }
    }

    /// What comes before all segments.
    pub fn begin(&self) -> &'static str {
        if self.format == Format::Vtt { "WEBVTT\n\n" } else { "" }
    }

    /// A segment.
    pub fn segment(&mut self, segment: &Segment) -> String {
        self.count += 1;
        let text = segment.text.trim();
        let times = |mark: char, hours: bool| {
            (timestamp(segment.start, mark, hours), timestamp(segment.end, mark, hours))
        };
        match self.format {
            Format::Text => format!("{text}\n"),
            Format::TimedText => {
                let (start, end) = times('.', false);
                format!("[{start} --> {end}] {text}\n")
            }
            Format::Srt => {
                let (start, end) = times(',', true);
                format!("{}\n{start} --> {end}\n{}\n\n", self.count, cue(text))
            }
            Format::Vtt => {
                let (start, end) = times('.', false);
                format!("{start} --> {end}\n{}\n\n", cue(text))
            }
            Format::Json => String::new(),
        }
    }

    /// What comes after all segments.
    pub fn end(&self, transcription: &Transcription) -> String {
        match self.format {
            Format::Json => format!("{:#}\n", json!(transcription)),
            _ => String::new(),
        }
    }
}

/// Text that cannot be mistaken for a line of times.
fn cue(text: &str) -> String {
    text.replace("-->", "->")
}

/// A time as subtitles have it: `01:02.345`, with hours before it where there are any or they are asked for.
fn timestamp(seconds: f64, mark: char, hours: bool) -> String {
    let milliseconds = (seconds.max(0.0) * 1000.0).round() as u64;
    let (whole, rest) = (milliseconds / 1000, milliseconds % 1000);
    let mut text = String::new();
    if hours || whole >= 3600 {
        // Writing to a string does not fail.
        let _ = write!(text, "{:02}:", whole / 3600);
    }
    let _ = write!(text, "{:02}:{:02}{mark}{rest:03}", whole / 60 % 60, whole % 60);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcription() -> Transcription {
        let word =
            |word: &str, start: f64, end: f64| Word { word: word.to_owned(), start, end, probability: 0.5 };
        let segment = |id, start, end, text: &str, words| Segment {
            id,
            start,
            end,
            text: text.to_owned(),
            words,
            ..Segment::default()
        };
        Transcription {
            task: "transcribe",
            language: "en".to_owned(),
            duration: 3725.5,
            text: " Hello there. A --> B".to_owned(),
            segments: vec![
                segment(
                    0,
                    0.0,
                    1.5,
                    " Hello there.",
                    Some(vec![word(" Hello", 0.0, 0.5), word(" there.", 0.5, 1.5)]),
                ),
                segment(1, 3720.04, 3725.5, " A --> B", Some(Vec::new())),
            ],
            damage: None,
        }
    }

    #[test]
    fn every_format_is_written_as_players_read_it() {
        let transcription = transcription();
        assert_eq!(transcription.write(Format::Text), "Hello there.\nA --> B\n");
        assert_eq!(
            transcription.write(Format::TimedText),
            "[00:00.000 --> 00:01.500] Hello there.\n[01:02:00.040 --> 01:02:05.500] A --> B\n"
        );
        assert_eq!(
            transcription.write(Format::Srt),
            "1\n00:00:00,000 --> 00:00:01,500\nHello there.\n\n2\n01:02:00,040 --> 01:02:05,500\nA -> B\n\n"
        );
        assert_eq!(
            transcription.write(Format::Vtt),
            "WEBVTT\n\n00:00.000 --> 00:01.500\nHello there.\n\n01:02:00.040 --> 01:02:05.500\nA -> B\n\n"
        );
        let json: Value = serde_json::from_str(&transcription.write(Format::Json)).unwrap();
        assert_eq!((&json["language"], &json["segments"][1]["start"]), (&json!("en"), &json!(3720.04)));
        assert_eq!(json["segments"][0]["words"][1]["word"], " there.");
    }

    #[test]
    fn openai_s_verbose_answer_names_the_language_and_keeps_words_apart() {
        let json = transcription().verbose_json();
        assert_eq!((&json["language"], &json["duration"]), (&json!("english"), &json!(3725.5)));
        assert_eq!(json["words"][1], json!({"word": "there.", "start": 0.5, "end": 1.5}));
        assert_eq!(json["segments"][0].get("words"), None);
        for field in [
            "id",
            "seek",
            "start",
            "end",
            "text",
            "tokens",
            "temperature",
            "avg_logprob",
            "compression_ratio",
            "no_speech_prob",
        ] {
            assert!(json["segments"][0].get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn formats_have_the_names_of_their_files() {
        for name in Format::NAMES {
            assert!(name.parse::<Format>().is_ok(), "{name}");
        }
        assert_eq!("doc".parse::<Format>(), Err("no format is called doc".to_owned()));
    }
}
