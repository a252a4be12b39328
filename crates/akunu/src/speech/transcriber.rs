//! From a recording to what was said: windows of 30 seconds, one after the other, as OpenAI's reference goes through them.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use akunu_audio::{Decoder, HOP, Mel, MelBuilder, RATE};
use akunu_format::ModelFile;
use akunu_program::StopFlag;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::alignment::Attention;
use super::languages::{LANGUAGES, code};
use super::model::{SpeechModel, SpeechOptions};
use super::rules::{Rules, log_sum_exp};
use super::search::{Found, Search, Searcher};
use super::settings::{Event, SpeechSettings};
use super::tokens::{Tokens, encode};
use super::transcription::{Segment, Transcription};
use super::words::{self, Timed};
use crate::{Error, Result, StopHandle};

/// Frames of a second.
const FRAMES_PER_SECOND: f64 = (RATE as usize / HOP) as f64;
/// Frames of a state of the encoder, and of a step of times.
const STRIDE: usize = 2;
/// A window that had to be decoded at a higher temperature is no context for the next.
const TRUSTED_TEMPERATURE: f32 = 0.5;

/// A recording, ready for the model it was opened for.
#[derive(Clone, Debug)]
pub struct Sound {
    mel: Mel,
    damage: Option<String>,
}

impl Sound {
    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.mel.seconds()
    }

    /// What was wrong with the file, where the rest of it could be read.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }
}

/// A speech model that is ready to listen.
///
/// ```no_run
/// use akunu::StopHandle;
/// use akunu::speech::{Event, Format, SpeechOptions, SpeechSettings, Transcriber};
///
/// let transcriber = Transcriber::load("whisper-tiny.bin", &SpeechOptions::default())?;
/// let stop = StopHandle::default();
/// let sound = transcriber.open("interview.mp3", &stop)?;
/// let settings = SpeechSettings { language: Some("en".to_owned()), ..SpeechSettings::default() };
/// let transcription = transcriber.transcribe(&sound, &settings, &stop, &mut |event| {
///     if let Event::Segment(segment) = event {
///         println!("{}", segment.text);
///     }
/// })?;
/// std::fs::write("interview.srt", transcription.write(Format::Srt)).expect("a full disk");
/// # Ok::<(), akunu::Error>(())
/// ```
pub struct Transcriber {
    path: PathBuf,
    backend: &'static str,
    bands: usize,
    multilingual: bool,
    beams: usize,
    longest: Duration,
    tokens: Tokens,
    model: Mutex<SpeechModel>,
}

impl Transcriber {
    /// Loads the model at `path`.
    pub fn load(path: impl AsRef<Path>, options: &SpeechOptions) -> Result<Transcriber> {
        Transcriber::from_file(&ModelFile::open(path)?, options)
    }

    /// Loads a model from an open file.
    pub fn from_file(file: &ModelFile, options: &SpeechOptions) -> Result<Transcriber> {
        let model = SpeechModel::from_file(file, options)?;
        Ok(Transcriber {
            path: file.path().to_owned(),
            backend: model.backend(),
            longest: options.longest,
            bands: model.mels(),
            multilingual: model.multilingual(),
            beams: model.beams(),
            tokens: Tokens::of(model.tokenizer(), model.vocabulary())?,
            model: Mutex::new(model),
        })
    }

    /// Where the model came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the backend that runs the model.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// Whether the model knows languages other than English, and can translate them.
    pub fn multilingual(&self) -> bool {
        self.multilingual
    }

    /// Most hypotheses at once.
    pub fn beams(&self) -> usize {
        self.beams
    }

    /// Reads a sound file.
    pub fn open(&self, path: impl AsRef<Path>, stop: &StopHandle) -> Result<Sound> {
        self.read(Decoder::open(path)?, stop)
    }

    /// Reads a sound file that is in memory; the name is for messages, and its ending a hint.
    pub fn decode(&self, bytes: Vec<u8>, name: &str, stop: &StopHandle) -> Result<Sound> {
        self.read(Decoder::from_bytes(bytes, name)?, stop)
    }

    /// Takes mono samples at 16 kHz. Those outside of -1 to 1 are cut there, and what is no number is silence.
    pub fn sound(&self, samples: &[f32]) -> Sound {
        let sane = |&sample: &f32| if sample.is_finite() { sample.clamp(-1.0, 1.0) } else { 0.0 };
        let samples: Vec<f32> = samples.iter().map(sane).collect();
        Sound { mel: Mel::of(&samples, self.bands), damage: None }
    }

    fn read(&self, mut decoder: Decoder, stop: &StopHandle) -> Result<Sound> {
        // Less than a second is not nothing.
        let begun = u64::from(self.longest.subsec_nanos() > 0);
        decoder.take_at_most(self.longest.as_secs().saturating_add(begun));
        let mut mel = MelBuilder::new(self.bands);
        while let Some(piece) = decoder.next_piece()? {
            stop.flag().check()?;
            mel.push(piece);
        }
        Ok(Sound { mel: mel.finish(), damage: decoder.damage() })
    }

    /// Writes down what is said. One recording at a time: others wait.
    pub fn transcribe(
        &self,
        sound: &Sound,
        settings: &SpeechSettings,
        stop: &StopHandle,
        on: &mut dyn FnMut(Event<'_>),
    ) -> Result<Transcription> {
        self.check(sound, settings)?;
        let mut model = self.model();
        let mut session = Session {
            transcriber: self,
            model: &mut model,
            sound,
            settings,
            stop: stop.flag(),
            window: Vec::new(),
            encoded: None,
        };
        session.run(on)
    }

    fn model(&self) -> MutexGuard<'_, SpeechModel> {
        // A window is encoded anew whatever a panic left behind.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, sound: &Sound, settings: &SpeechSettings) -> Result<()> {
        let usage = |problem: String, hint: &str| Err(Error::Usage { problem, hint: hint.to_owned() });
        if sound.mel.bands() != self.bands {
            return usage(
                format!("the sound has {} bands and the model takes {}", sound.mel.bands(), self.bands),
                "open it with the transcriber that is to transcribe it",
            );
        }
        let most = settings.beams.max(settings.best_of);
        if settings.beams == 0 || settings.best_of == 0 || most > self.beams {
            return usage(
                format!("{} hypotheses and the best of {}", settings.beams, settings.best_of),
                &format!("the model was loaded for 1 to {}", self.beams),
            );
        }
        if settings.temperatures.is_empty() || settings.temperatures.iter().any(|t| !(0.0..=2.0).contains(t))
        {
            return usage(
                format!("temperatures {:?}", settings.temperatures),
                "give one or more from 0 to 2",
            );
        }
        if !(0.0..=100.0).contains(&settings.patience) {
            return usage(
                format!("a patience of {}", settings.patience),
                "1 waits for as many as there are hypotheses",
            );
        }
        if settings.translate && !self.multilingual {
            return usage(
                "this model knows English alone".to_owned(),
                "to translate, use a multilingual model",
            );
        }
        Ok(())
    }

    /// The code of the language that was asked for, checked.
    fn language(&self, settings: &SpeechSettings) -> Result<Option<&'static str>> {
        let Some(given) = &settings.language else {
            return Ok((!self.multilingual).then_some("en"));
        };
        let unknown = |problem: String, hint: &str| Error::Usage { problem, hint: hint.to_owned() };
        let known = code(given).filter(|code| self.language_token(code).is_some());
        match known {
            None => Err(unknown(
                format!("no language is called \"{given}\""),
                "give a code such as en, or a name",
            )),
            Some(code) if code != "en" && !self.multilingual => {
                Err(unknown("this model knows English alone".to_owned(), "use a multilingual model"))
            }
            known => Ok(known),
        }
    }

    fn language_token(&self, code: &str) -> Option<u32> {
        let index = LANGUAGES.iter().position(|(known, _)| *known == code)?;
        Some(self.tokens.languages.start + index as u32).filter(|token| self.tokens.languages.contains(token))
    }
}

impl fmt::Debug for Transcriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transcriber")
            .field("path", &self.path)
            .field("backend", &self.backend)
            .field("multilingual", &self.multilingual)
            .finish_non_exhaustive()
    }
}

/// One recording being transcribed.
struct Session<'a> {
    transcriber: &'a Transcriber,
    model: &'a mut SpeechModel,
    sound: &'a Sound,
    settings: &'a SpeechSettings,
    stop: &'a StopFlag,
    /// `[frames][bands]`.
    window: Vec<f32>,
    /// First frame and number of frames of the window that the model has encoded.
    encoded: Option<(usize, usize)>,
}

/// A window that was decoded.
struct Decoded {
    found: Found,
    temperature: f32,
    compression_ratio: f32,
}

impl Session<'_> {
    fn run(&mut self, on: &mut dyn FnMut(Event<'_>)) -> Result<Transcription> {
        let language = match self.transcriber.language(self.settings)? {
            Some(language) => language,
            None => {
                let (code, probability) = self.detect()?;
                on(Event::Language { code, probability });
                code
            }
        };
        let tokens = &self.transcriber.tokens;
        let mut opening = vec![tokens.start];
        if self.transcriber.multilingual {
            opening.extend(self.transcriber.language_token(language));
            opening.push(if self.settings.translate { tokens.translate } else { tokens.transcribe });
        }
        let opening_length = opening.len();
        if !self.settings.timestamps {
            opening.push(tokens.no_timestamps);
        }

        let given = match &self.settings.prompt {
            Some(prompt) => encode(self.model.tokenizer(), &format!(" {}", prompt.trim())),
            None => Vec::new(),
        };
        // All that was said so far, after the prompt; and from where on it is context.
        let mut said = given.clone();
        let mut context_from = 0;
        let mut transcription = Transcription {
            task: if self.settings.translate { "translate" } else { "transcribe" },
            language: language.to_owned(),
            duration: self.sound.seconds(),
            ..Transcription::default()
        };
        let frames = self.sound.mel.frames();
        let total = frames as f64 / FRAMES_PER_SECOND;
        let mut seek = 0;
        let mut spoken = 0.0;
        while seek < frames {
            let size = self.model.frames().min(frames - seek);
            if self.sound.mel.is_silent(seek, size) {
                // The reference hears words in digital silence; here it costs nothing to know better.
                seek += size;
                on(Event::Progress { done: seek as f64 / FRAMES_PER_SECOND, total });
                continue;
            }
            self.encode(seek, size)?;
            let prompt = self.prompt(&opening, &given, &said, context_from);
            let decoded = self.decode(&prompt, seek)?;
            if self.is_silence(&decoded) {
                seek += size;
                on(Event::Progress { done: seek as f64 / FRAMES_PER_SECOND, total });
                continue;
            }
            let (mut segments, next) = self.segments(&decoded, seek, size);
            let mut after = seek + next;
            if self.settings.words {
                spoken = self.add_words(
                    &mut segments,
                    &decoded,
                    &opening[..opening_length],
                    language,
                    (seek, size),
                    spoken,
                )?;
                if !ends_with_one_time(tokens, &decoded.found.tokens)
                    && let Some(end) = last_end(&segments)
                    && end > seek as f64 / FRAMES_PER_SECOND
                {
                    after = (end * FRAMES_PER_SECOND).round() as usize;
                }
            }
            seek = after.max(seek + 1);
            segments.retain(|segment| segment.start != segment.end && !segment.text.trim().is_empty());
            for mut segment in segments {
                segment.id = transcription.segments.len();
                said.extend_from_slice(&segment.tokens);
                transcription.text += &segment.text;
                on(Event::Segment(&segment));
                transcription.segments.push(segment);
            }
            if !self.settings.condition_on_previous_text || decoded.temperature > TRUSTED_TEMPERATURE {
                context_from = said.len();
            }
            on(Event::Progress { done: seek.min(frames) as f64 / FRAMES_PER_SECOND, total });
        }
        Ok(transcription)
    }

    /// The likeliest language of the first window.
    fn detect(&mut self) -> Result<(&'static str, f32)> {
        // Unlike the windows that are transcribed, this one is silent after the end and not blank.
        let frames = self.model.frames();
        self.sound.mel.window(0, frames, &mut self.window);
        self.model.encode(&self.window, self.stop)?;
        self.encoded = (self.sound.mel.frames() >= frames).then_some((0, frames));
        let tokens = &self.transcriber.tokens;
        let begun = self.model.begin(&[tokens.start], self.stop)?;
        let range = tokens.languages.start as usize..tokens.languages.end as usize;
        let logits = begun.last.get(range).unwrap_or_default();
        let best = (0..logits.len()).reduce(|best, i| if logits[i] > logits[best] { i } else { best });
        match best.and_then(|best| LANGUAGES.get(best).map(|&(code, _)| (code, logits[best]))) {
            Some((code, logit)) => Ok((code, (logit - log_sum_exp(logits)).exp())),
            None => Ok(("en", 1.0)),
        }
    }

    /// Runs the encoder over a window, unless it has just done that.
    fn encode(&mut self, seek: usize, size: usize) -> Result<()> {
        if self.encoded == Some((seek, size)) {
            return Ok(());
        }
        self.sound.mel.window(seek, size, &mut self.window);
        self.window.resize(self.model.frames() * self.model.mels(), 0.0);
        self.model.encode(&self.window, self.stop)?;
        self.encoded = Some((seek, size));
        Ok(())
    }

    /// What the decoder sees before a transcript: what was said before, as far as there is room, and what is wanted.
    fn prompt(&self, opening: &[u32], given: &[u32], said: &[u32], context_from: usize) -> Vec<u32> {
        let room = (self.model.context() / 2).saturating_sub(1);
        let last = |tokens: &[u32], count: usize| tokens[tokens.len().saturating_sub(count)..].to_vec();
        let before = if self.settings.carry_prompt {
            let from = context_from.max(given.len()).min(said.len());
            let mut before = given.to_vec();
            before.extend(last(&said[from..], room.saturating_sub(given.len())));
            last(&before, room)
        } else {
            last(&said[context_from.min(said.len())..], room)
        };
        let mut prompt = Vec::with_capacity(before.len() + opening.len() + 1);
        if !before.is_empty() {
            prompt.push(self.transcriber.tokens.previous);
            prompt.extend(before);
        }
        prompt.extend_from_slice(opening);
        prompt
    }

    /// Decodes a window at one temperature after the other.
    fn decode(&mut self, prompt: &[u32], seek: usize) -> Result<Decoded> {
        let settings = self.settings;
        let mut decoded = None;
        for (attempt, &temperature) in settings.temperatures.iter().enumerate() {
            let search = if temperature == 0.0 && settings.beams > 1 {
                Search::Beam { beams: settings.beams, patience: settings.patience }
            } else {
                let samples = if temperature == 0.0 { 1 } else { settings.best_of };
                let seed = settings.seed ^ ((seek as u64) << 8 | attempt as u64);
                Search::Sample { temperature, samples, seed }
            };
            let tokens = &self.transcriber.tokens;
            let mut searcher = Searcher {
                model: self.model,
                rules: Rules { tokens, times: settings.timestamps },
                prompt,
                length_penalty: settings.length_penalty,
                words: settings.words,
                stop: self.stop,
            };
            let found = searcher.run(search)?;
            let text = tokens.text(self.model.tokenizer(), &found.tokens);
            let compression_ratio = compression_ratio(text.trim());
            let latest = Decoded { found, temperature, compression_ratio };
            let repetitive = settings.compression_ratio.is_some_and(|most| compression_ratio > most);
            let unsure = self.is_unsure(&latest);
            let silent = unsure && settings.no_speech.is_some_and(|most| latest.found.no_speech > most);
            let done = silent || !(repetitive || unsure);
            decoded = Some(latest);
            if done {
                break;
            }
        }
        decoded.ok_or_else(|| Error::Usage {
            problem: "no temperature".to_owned(),
            hint: "give one or more".to_owned(),
        })
    }

    fn is_unsure(&self, decoded: &Decoded) -> bool {
        self.settings.log_probability.is_some_and(|least| decoded.found.mean_log_probability < least)
    }

    fn is_silence(&self, decoded: &Decoded) -> bool {
        let sure =
            self.settings.log_probability.is_some_and(|least| decoded.found.mean_log_probability > least);
        self.settings.no_speech.is_some_and(|most| decoded.found.no_speech > most) && !sure
    }

    /// The segments of a window, and how many frames after its beginning the next begins.
    fn segments(&self, decoded: &Decoded, seek: usize, size: usize) -> (Vec<Segment>, usize) {
        let tokens = &self.transcriber.tokens;
        let found = decoded.found.tokens.as_slice();
        let segment = |start: usize, end: usize, part: &[u32]| Segment {
            seek,
            start: start as f64 / FRAMES_PER_SECOND,
            end: end as f64 / FRAMES_PER_SECOND,
            text: tokens.text(self.model.tokenizer(), part),
            tokens: part.to_vec(),
            temperature: decoded.temperature,
            avg_logprob: decoded.found.mean_log_probability,
            compression_ratio: decoded.compression_ratio,
            no_speech_prob: decoded.found.no_speech,
            ..Segment::default()
        };
        // In frames of the window. A transcript without a time where one should be counts from the beginning.
        let frame = |token: u32| token.saturating_sub(tokens.first_time) as usize * STRIDE;
        let mut cuts: Vec<usize> =
            (1..found.len()).filter(|&i| tokens.is_time(found[i - 1]) && tokens.is_time(found[i])).collect();
        if cuts.is_empty() {
            let last = found.iter().rev().find(|&&token| tokens.is_time(token));
            let length = last.map(|&token| frame(token)).filter(|&length| length > 0).unwrap_or(size);
            return (vec![segment(seek, seek + length, found)], size);
        }
        let complete = ends_with_one_time(tokens, found);
        if complete {
            cuts.push(found.len());
        }
        let mut segments = Vec::with_capacity(cuts.len());
        let mut from = 0;
        for &cut in &cuts {
            let part = &found[from..cut];
            segments.push(segment(seek + frame(part[0]), seek + frame(part[part.len() - 1]), part));
            from = cut;
        }
        // Nobody speaks after a single time at the end; otherwise the last segment is not whole, and begins the next window.
        (segments, if complete { size } else { frame(found[from - 1]) })
    }

    /// Gives segments their words; gives where speech ends, in seconds.
    fn add_words(
        &mut self,
        segments: &mut [Segment],
        decoded: &Decoded,
        opening: &[u32],
        language: &str,
        (seek, size): (usize, usize),
        spoken: f64,
    ) -> Result<f64> {
        let tokens = &self.transcriber.tokens;
        let is_text = |token: &&u32| **token < tokens.end;
        let counts: Vec<usize> =
            segments.iter().map(|segment| segment.tokens.iter().filter(is_text).count()).collect();
        // Segments are the beginning of what was found.
        let count: usize = counts.iter().sum();
        let said = decoded.found.tokens.iter().zip(&decoded.found.text_log_probabilities);
        let (text, log_probabilities): (Vec<u32>, Vec<f32>) =
            said.filter(|(token, _)| is_text(token)).take(count).unzip();
        let mut words = self.timed_words(&text, &log_probabilities, opening, language, size)?;
        let median = words::cut_at_sentences(&mut words);
        words::merge_punctuation(&mut words);
        let offset = seek as f64 / FRAMES_PER_SECOND;
        words::distribute(segments, &counts, &words, median, offset, spoken);
        Ok(last_end(segments).unwrap_or(spoken))
    }

    /// Words and their times in the window.
    fn timed_words(
        &mut self,
        text: &[u32],
        log_probabilities: &[f32],
        opening: &[u32],
        language: &str,
        size: usize,
    ) -> Result<Vec<Timed>> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let tokens = &self.transcriber.tokens;
        let mut whole = opening.to_vec();
        whole.push(tokens.no_timestamps);
        whole.extend_from_slice(text);
        whole.push(tokens.end);
        let weights = self.model.align(&whole, self.stop)?;
        let attention = Attention {
            weights: &weights,
            heads: self.model.alignment_heads(),
            tokens: whole.len(),
            states: self.model.states(),
        };
        // The state that predicts a token belongs to the one before it; the last is where the text ends.
        let beginnings = attention.beginnings(opening.len(), whole.len() - 1, size / STRIDE);
        let seconds = |token: usize| (beginnings[token] * STRIDE) as f64 / FRAMES_PER_SECOND;
        let mut first = 0;
        let mut timed = Vec::new();
        for (word, count) in words::split(self.model.tokenizer(), tokens, language, text) {
            let last = first + count;
            let probabilities = log_probabilities[first..last].iter().map(|log| log.exp());
            timed.push(Timed {
                text: word,
                tokens: count,
                start: seconds(first),
                end: seconds(last),
                probability: probabilities.sum::<f32>() / count as f32,
            });
            first = last;
        }
        Ok(timed)
    }
}

/// Where the last word ends, or else the last segment, in seconds.
fn last_end(segments: &[Segment]) -> Option<f64> {
    let words = segments.iter().rev().find_map(|segment| segment.words.as_ref()?.last());
    words.map(|word| word.end).or_else(|| segments.last().map(|segment| segment.end))
}

/// Whether the last token is a time and the one before is not.
fn ends_with_one_time(tokens: &Tokens, found: &[u32]) -> bool {
    matches!(found, [.., before, last] if !tokens.is_time(*before) && tokens.is_time(*last))
}

/// Bytes of a text over those of its compression.
fn compression_ratio(text: &str) -> f32 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    written.map_or(0.0, |bytes| text.len() as f32 / bytes.len() as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitive_text_is_known_by_how_well_it_compresses() {
        assert_eq!(compression_ratio(""), 0.0);
        assert!(
            compression_ratio("And so my fellow Americans, ask not what your country can do for you.") < 1.2
        );
        assert!(compression_ratio(&"Thank you. ".repeat(20)) > 2.4);
    }
}
