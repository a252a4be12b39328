//! What is wanted of a transcription, and what is told while it is made.

use std::time::Duration;

use super::transcription::Segment;

/// What is wanted, and how hard it is tried.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechSettings {
    /// The language that is spoken, by code or English name; found out where absent.
    pub language: Option<String>,
    /// Write English, whatever is spoken.
    pub translate: bool,
    /// Text that could have come before: names and words to expect, a style.
    pub prompt: Option<String>,
    /// Give the prompt to every window, not to the first alone.
    pub carry_prompt: bool,
    /// Give each window the text before it as context.
    pub condition_on_previous_text: bool,
    /// Let the model tell times, which long recordings are followed by. Without, segments are whole windows.
    pub timestamps: bool,
    /// Find out when each word is said.
    pub words: bool,
    /// Hypotheses that are followed at temperature 0; 1 takes the likeliest token each time.
    pub beams: usize,
    /// How many times as many hypotheses must end before a search does.
    pub patience: f32,
    /// Samples of which the best is taken, at other temperatures.
    pub best_of: usize,
    /// By how much length counts when hypotheses are compared, 0 to 1; by default fully.
    pub length_penalty: Option<f32>,
    /// Tried one after the other until a transcript is neither repetitive nor unsure.
    pub temperatures: Vec<f32>,
    /// Above this, text is repetitive.
    pub compression_ratio: Option<f32>,
    /// Below this, a transcript is unsure: the mean of the logarithms of probabilities.
    pub log_probability: Option<f32>,
    /// Above this, nobody speaks, unless the transcript is sure.
    pub no_speech: Option<f32>,
    /// The same seed gives the same samples.
    pub seed: u64,
}

impl Default for SpeechSettings {
    fn default() -> SpeechSettings {
        SpeechSettings {
            language: None,
            translate: false,
            prompt: None,
            carry_prompt: false,
            condition_on_previous_text: true,
            timestamps: true,
            words: false,
            beams: 5,
            patience: 1.0,
            best_of: 5,
            length_penalty: None,
            temperatures: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            compression_ratio: Some(2.4),
            log_probability: Some(-1.0),
            no_speech: Some(0.6),
            seed: 0,
        }
    }
}

/// What happens while a recording is transcribed.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// The language was found out.
    Language {
        /// Its code.
        code: &'a str,
        /// How likely it is.
        probability: f32,
    },
    /// A part is done.
    Segment(&'a Segment),
    /// So much of the sound is done, in seconds.
    Progress {
        /// Done.
        done: f64,
        /// There is.
        total: f64,
    },
    /// All of it is done; comes last.
    Done(SpeechStatistics),
}

/// Where the time of a transcription went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeechStatistics {
    /// Making states of windows of sound.
    pub encode: Duration,
    /// All else: finding the text of the states.
    pub decode: Duration,
}
