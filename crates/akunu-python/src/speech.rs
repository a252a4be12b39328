//! Speech as text.

use std::path::PathBuf;
use std::sync::Arc;

use akunu::StopHandle;
use akunu::speech::{Event, Format, SpeechOptions, SpeechSettings};
use numpy::{PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::errors::{OrRaise, usage};
use crate::model::locate;
use crate::waiting;

/// A speech model that is ready to listen. One recording at a time: others wait.
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Transcriber(Arc<akunu::speech::Transcriber>);

/// What was said in a recording. `str()` is the text.
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Transcription(akunu::speech::Transcription);

/// What a recording is: a file, or samples.
enum Recording {
    File(PathBuf),
    Samples(Vec<f32>),
}

#[pymethods]
impl Transcriber {
    /// Loads a Whisper model: a file, a directory, or the name of a model that was pulled.
    #[staticmethod]
    #[pyo3(signature = (path, *, threads=None, backend="auto"))]
    #[allow(clippy::needless_pass_by_value, reason = "paths come from Python by value")]
    fn load(py: Python<'_>, path: PathBuf, threads: Option<usize>, backend: &str) -> PyResult<Transcriber> {
        let options = SpeechOptions { backend: backend.to_owned(), threads, ..SpeechOptions::default() };
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
    /// names and words to expect, `words` finds out when each word is said.
    #[pyo3(signature = (audio, *, language=None, translate=false, prompt=None, timestamps=true, words=false, beams=5, seed=0))]
    #[allow(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn transcribe(
        &self,
        py: Python<'_>,
        audio: &Bound<'_, PyAny>,
        language: Option<String>,
        translate: bool,
        prompt: Option<String>,
        timestamps: bool,
        words: bool,
        beams: usize,
        seed: u64,
    ) -> PyResult<Transcription> {
        let recording = match audio.extract::<PyReadonlyArray1<'_, f32>>() {
            Ok(samples) => Recording::Samples(samples.to_vec().map_err(|error| usage(&error.to_string()))?),
            Err(_) => Recording::File(audio.extract()?),
        };
        let settings = SpeechSettings {
            language,
            translate,
            prompt,
            timestamps,
            words,
            beams,
            seed,
            ..SpeechSettings::default()
        };
        let transcriber = Arc::clone(&self.0);
        let stop = StopHandle::default();
        let working = stop.clone();
        let work = move || {
            let sound = match recording {
                Recording::File(path) => transcriber.open(path, &working)?,
                Recording::Samples(samples) => transcriber.sound(&samples),
            };
            transcriber.transcribe(&sound, &settings, &working, &mut |_: Event<'_>| {})
        };
        Ok(Transcription(waiting::run(py, work, || stop.stop())?.or_raise()?))
    }
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
        py.import("json")?.call_method1("loads", (json,))
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
