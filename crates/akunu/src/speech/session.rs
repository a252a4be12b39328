//! One recording, window by window of 30 seconds, as OpenAI's reference goes through it.

use std::io::Write as _;
use std::time::{Duration, Instant};

use akunu_audio::{HOP, Mel, RATE};
use akunu_program::StopFlag;
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::alignment::Attention;
use super::languages::LANGUAGES;
use super::model::SpeechModel;
use super::rules::{Rules, log_sum_exp};
use super::search::{Found, Search, Searcher};
use super::settings::{Event, SpeechSettings};
use super::tokens::{Tokens, encode};
use super::transcription::{Segment, Transcription};
use super::words::{self, Timed};
use crate::{Error, Result};

/// Frames of a second.
const FRAMES_PER_SECOND: f64 = (RATE as usize / HOP) as f64;
/// Frames of a state of the encoder, and of a step of times.
const STRIDE: usize = 2;
/// A window that had to be decoded at a higher temperature is no context for the next.
const TRUSTED_TEMPERATURE: f32 = 0.5;

/// One recording being transcribed.
pub(super) struct Session<'a> {
    model: &'a mut SpeechModel,
    tokens: &'a Tokens,
    mel: &'a Mel,
    settings: &'a SpeechSettings,
    stop: &'a StopFlag,
    /// `[frames][bands]`.
    window: Vec<f32>,
    /// First frame and number of frames of the window that the model has encoded.
    encoded: Option<(usize, usize)>,
    /// Time the encoder took so far.
    encoding: Duration,
}

/// A window that was decoded.
struct Decoded {
    found: Found,
    temperature: f32,
    compression_ratio: f32,
}

impl<'a> Session<'a> {
    /// Before anything is heard.
    pub(super) fn new(
        model: &'a mut SpeechModel,
        tokens: &'a Tokens,
        mel: &'a Mel,
        settings: &'a SpeechSettings,
        stop: &'a StopFlag,
    ) -> Session<'a> {
        let (window, encoded, encoding) = (Vec::new(), None, Duration::ZERO);
        Session { model, tokens, mel, settings, stop, window, encoded, encoding }
    }

    /// Time the encoder took so far.
    pub(super) fn encoding(&self) -> Duration {
        self.encoding
    }

    /// Goes through the recording. The language, a code, is found out where it is not known.
    pub(super) fn run(
        &mut self,
        language: Option<&'static str>,
        on: &mut dyn FnMut(Event<'_>),
    ) -> Result<Transcription> {
        let language = match language {
            Some(language) => language,
            None => {
                let (code, probability) = self.detect()?;
                on(Event::Language { code, probability });
                code
            }
        };
        let tokens = self.tokens;
        let mut opening = vec![tokens.start];
        if self.model.multilingual() {
            opening.extend(self.tokens.language(language));
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
            duration: self.mel.seconds(),
            ..Transcription::default()
        };
        let frames = self.mel.frames();
        let total = frames as f64 / FRAMES_PER_SECOND;
        let mut seek = 0;
        let mut spoken = 0.0;
        while seek < frames {
            let size = self.model.frames().min(frames - seek);
            if self.mel.is_silent(seek, size) {
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
        self.mel.window(0, frames, &mut self.window);
        self.encode_window()?;
        self.encoded = (self.mel.frames() >= frames).then_some((0, frames));
        let tokens = self.tokens;
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
        self.mel.window(seek, size, &mut self.window);
        self.window.resize(self.model.frames() * self.model.mels(), 0.0);
        self.encode_window()?;
        self.encoded = Some((seek, size));
        Ok(())
    }

    fn encode_window(&mut self) -> Result<()> {
        let began = Instant::now();
        self.model.encode(&self.window, self.stop)?;
        self.encoding += began.elapsed();
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
            prompt.push(self.tokens.previous);
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
            let tokens = self.tokens;
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
        let tokens = self.tokens;
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
        let tokens = self.tokens;
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
        let tokens = self.tokens;
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
