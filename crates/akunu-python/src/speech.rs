//! Speech as text.

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use akunu::StopHandle;
use akunu::speech::{Event, Format, SpeechOptions, SpeechSettings};
use numpy::{PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::errors::{OrRaise, usage};
use crate::hub::locate;
use crate::waiting;

/// A speech model that is ready to listen. One recording at a time: others wait.
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Transcriber(Arc<akunu::speech::Transcriber>);

/// What was said in a recording. `str()` is the text.
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Transcription(akunu::speech::Transcription);

/// What comes from the thread that listens.
enum Heard {
    /// A part, as JSON.
    Segment(String),
    Done(Box<akunu::Result<Transcription>>),
}

/// What a recording is: a file, or samples.
enum Recording {
    File(PathBuf),
    Samples(Vec<f32>),
}

#[pymethods]
impl Transcriber {
    /// Loads a Whisper model: a file, a directory, or the name of a model that was pulled.
    #[staticmethod]
    ///
    /// `beams` is the most hypotheses that a transcription may follow at once.
    #[pyo3(signature = (path, *, threads=None, backend="auto", beams=5))]
    #[allow(clippy::needless_pass_by_value, reason = "paths come from Python by value")]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<usize>,
        backend: &str,
        beams: usize,
    ) -> PyResult<Transcriber> {
        let options =
            SpeechOptions { backend: backend.to_owned(), threads, beams, ..SpeechOptions::default() };
        let path = locate(&path.to_string_lossy())?;
        let loaded = waiting::run(py, move || akunu::speech::Transcriber::load(path, &options), || {})?;
        Ok(Transcriber(Arc::new(loaded.or_raise()?)))
    }

    /// Whether the model knows languages other than English.
    #[getter]
    fn multilingual(&self) -> bool {
        self.0.multilingual()
    }

    /// Writes down what is said in a sound file, or in an array of samples: one channel at 16 kHz, float32.
    ///
    /// `language` is a code or an English name (found out by default), `translate` writes English whatever is spoken, `prompt` has
    /// names and words to expect (for the first window; for all with `carry_prompt`), `words` finds out when each word is said.
    /// `condition_on_previous_text` gives each window the text before it. `beams` hypotheses are followed until `patience` times as
    /// many have ended; what is unsure or repetitive is tried again at the next of `temperatures`, the best of `best_of` samples.
    /// `on_segment` is called with each part as it comes.
    #[pyo3(signature = (audio, *, language=None, translate=false, prompt=None, carry_prompt=false, condition_on_previous_text=true,
        timestamps=true, words=false, beams=None, patience=1.0, best_of=None, temperatures=None, seed=0, on_segment=None))]
    #[allow(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn transcribe(
        &self,
        py: Python<'_>,
        audio: &Bound<'_, PyAny>,
        language: Option<String>,
        translate: bool,
        prompt: Option<String>,
        carry_prompt: bool,
        condition_on_previous_text: bool,
        timestamps: bool,
        words: bool,
        beams: Option<usize>,
        patience: f32,
        best_of: Option<usize>,
        temperatures: Option<Vec<f32>>,
        seed: u64,
        on_segment: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Transcription> {
        let recording = recording(audio)?;
        let default = SpeechSettings::default();
        let settings = SpeechSettings {
            language,
            translate,
            prompt,
            carry_prompt,
            condition_on_previous_text,
            timestamps,
            words,
            beams: beams.unwrap_or(default.beams.min(self.0.beams())),
            patience,
            best_of: best_of.unwrap_or(default.best_of.min(self.0.beams())),
            temperatures: temperatures.unwrap_or(default.temperatures),
            seed,
            ..SpeechSettings::default()
        };
        let transcriber = Arc::clone(&self.0);
        let stop = StopHandle::default();
        let (working, streams) = (stop.clone(), on_segment.is_some());
        let (sender, receiver) = sync_channel(16);
        std::thread::spawn(move || {
            let mut heard = |event: Event<'_>| {
                if let Event::Segment(segment) = event
                    && streams
                    && let Ok(json) = serde_json::to_string(segment)
                {
                    // Nobody listens after an interrupt.
                    let _ = sender.send(Heard::Segment(json));
                }
            };
            let sound = match recording {
                Recording::File(path) => transcriber.open(path, &working),
                Recording::Samples(samples) => Ok(transcriber.sound(&samples)),
            };
            let done = sound.and_then(|sound| {
                transcriber.transcribe(&sound, &settings, &working, &mut heard).map(Transcription)
            });
            let _ = sender.send(Heard::Done(Box::new(done)));
        });
        let messages = Mutex::new(receiver);
        loop {
            match waiting::receive(py, &messages, || stop.stop())? {
                Some(Heard::Segment(json)) => {
                    let told = on_segment.map(|tell| tell.call1((from_json(py, &json)?,))).transpose();
                    if let Err(error) = told {
                        stop.stop();
                        return Err(error);
                    }
                }
                Some(Heard::Done(done)) => return (*done).or_raise(),
                None => return Err(usage("a mistake in akunu: see stderr")),
            }
        }
    }
}

/// A file's path, or samples.
fn recording(audio: &Bound<'_, PyAny>) -> PyResult<Recording> {
    if let Ok(samples) = audio.extract::<PyReadonlyArray1<'_, f32>>() {
        return Ok(Recording::Samples(samples.to_vec().map_err(|error| usage(&error.to_string()))?));
    }
    if audio.hasattr("dtype")? {
        return Err(usage("samples must be an array of float32 with one dimension: one channel, at 16 kHz"));
    }
    Ok(Recording::File(audio.extract()?))
}

fn from_json<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

#[pymethods]
impl Transcription {
    /// All of it.
    #[getter]
    fn text(&self) -> &str {
        self.0.text.trim()
    }

    /// The code of the language that is spoken, such as "en".
    #[getter]
    fn language(&self) -> &str {
        &self.0.language
    }

    /// Length of the recording in seconds.
    #[getter]
    fn duration(&self) -> f64 {
        self.0.duration
    }

    /// Its parts: dictionaries with "start", "end" and "text", and "words" where they were asked for.
    #[getter]
    fn segments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = serde_json::to_string(&self.0.segments).map_err(|error| usage(&error.to_string()))?;
        from_json(py, &json)
    }

    /// What was wrong with the recording where the rest could be read, such as an end that is missing.
    #[getter]
    fn damage(&self) -> Option<&str> {
        self.0.damage.as_deref()
    }

    /// All of it in a format: "txt", "srt", "vtt" or "json".
    fn write(&self, format: &str) -> PyResult<String> {
        let format: Format = format.parse().map_err(|error: String| usage(&error))?;
        Ok(self.0.write(format))
    }

    fn __str__(&self) -> &str {
        self.text()
    }
}
