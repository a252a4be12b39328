//! Speech as text: Whisper.
//!
//! A [`SpeechModel`] runs the networks, one window of sound and several hypotheses about it at a time.

mod hypotheses;
mod model;

pub use model::{Begun, SpeechModel, SpeechOptions};
