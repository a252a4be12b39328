//! A model that listens: recordings are opened for it, and it writes down what is said.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use akunu_audio::{Decoder, Mel, MelBuilder};
use akunu_format::ModelFile;
use akunu_program::arch::SpeechArchitecture;

use super::languages::code;
use super::model::{SpeechModel, SpeechOptions};
use super::session::Session;
use super::settings::{Event, SpeechSettings, SpeechStatistics};
use super::tokens::Tokens;
use super::transcription::Transcription;
use crate::{Error, Result, StopHandle};

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
    architecture: SpeechArchitecture,
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
            architecture: model.architecture().clone(),
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

    /// What the model is made of.
    pub fn architecture(&self) -> &SpeechArchitecture {
        &self.architecture
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
        Sound { mel: Mel::of(&samples, self.architecture.mels), damage: None }
    }

    fn read(&self, mut decoder: Decoder, stop: &StopHandle) -> Result<Sound> {
        // Less than a second is not nothing.
        let begun = u64::from(self.longest.subsec_nanos() > 0);
        decoder.take_at_most(self.longest.as_secs().saturating_add(begun));
        let mut mel = MelBuilder::new(self.architecture.mels);
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
        let began = Instant::now();
        let mut session = Session::new(&mut model, &self.tokens, &sound.mel, settings, stop.flag());
        let mut transcription = session.run(self.language(settings)?, on)?;
        transcription.damage.clone_from(&sound.damage);
        let encode = session.encoding();
        on(Event::Done(SpeechStatistics { encode, decode: began.elapsed().saturating_sub(encode) }));
        Ok(transcription)
    }

    fn model(&self) -> MutexGuard<'_, SpeechModel> {
        // A window is encoded anew whatever a panic left behind.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, sound: &Sound, settings: &SpeechSettings) -> Result<()> {
        let usage = |problem: String, hint: &str| Err(Error::Usage { problem, hint: hint.to_owned() });
        if sound.mel.bands() != self.architecture.mels {
            return usage(
                format!(
                    "the sound has {} bands and the model takes {}",
                    sound.mel.bands(),
                    self.architecture.mels
                ),
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
        let known = code(given).filter(|code| self.tokens.language(code).is_some());
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
