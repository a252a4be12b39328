//! Speech as text: Whisper.
//!
//! A [`Transcriber`] listens to a recording window by window and writes down what is said, as OpenAI's reference does: the
//! language is found out, tokens are searched for with several hypotheses, text that repeats itself or is unsure is tried
//! again, times lead from one window to the next, and words get times of their own. A [`Transcription`] is written as text,
//! subtitles or JSON. Below it, a [`SpeechModel`] runs the networks, one window of sound and several hypotheses about it at a
//! time.

mod alignment;
mod hypotheses;
mod languages;
mod model;
mod rules;
mod search;
mod session;
mod settings;
mod tokens;
mod transcriber;
mod transcription;
mod words;

pub use languages::language_name;
pub use model::{Begun, SpeechModel, SpeechOptions};
pub use settings::{Event, SpeechSettings, SpeechStatistics};
pub use transcriber::{Sound, Transcriber};
pub use transcription::{Format, Segment, Transcription, Word, Writer};
