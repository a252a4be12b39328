//! Models.

use std::path::PathBuf;
use std::sync::OnceLock;

use akunu::embed::EmbedOptions;
use akunu::{KvType, Options, Settings};
use akunu_text::tokenizer::{AddSpecial, Special};
use numpy::PyArray2;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::chat::Chat;
use crate::embed::Embedder;
use crate::errors::{OrRaise, usage};
use crate::generation::{Event, Generation, Listener, Pieces, Stream};
use crate::hub::locate;
use crate::many;
use crate::settings::settings;
use crate::waiting;

/// A model that is ready to run. Threads may share it; the interpreter's lock is free while it works.
///
/// >>> model
/// <akunu.Model llama on cpu, context 256>
/// >>> model.detokenize(model.tokenize("hello"))
/// 'hello'
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Model {
    pub(crate) model: akunu::Model,
    /// The same model as one that embeds, once that is wanted.
    embedder: OnceLock<Embedder>,
}

#[pymethods]
impl Model {
    /// Loads a model: a GGUF file, a directory with SafeTensors, or the name of a model that was pulled.
    ///
    /// `context` is how many tokens a sequence may have (by default the model's own, at most 4096), `sequences` how many texts
    /// can be generated at the same time, `threads` how many cores are used (by default all), `kv` how keys and values are
    /// kept ("f16" or "q8_0").
    #[staticmethod]
    #[pyo3(signature = (path, *, context=None, threads=None, sequences=1, batch=512, backend="auto", kv="f16"))]
    #[allow(clippy::too_many_arguments, reason = "they are keyword arguments")]
    #[allow(clippy::needless_pass_by_value, reason = "paths come from Python by value")]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        context: Option<usize>,
        threads: Option<usize>,
        sequences: usize,
        batch: usize,
        backend: &str,
        kv: &str,
    ) -> PyResult<Model> {
        let kv = kv.parse::<KvType>().map_err(|error| usage(&error.to_string()))?;
        let default = Options::default();
        // Every sequence may want a row of logits at the same time.
        let outputs = default.outputs.max(sequences);
        let backend = backend.to_owned();
        let options = Options { backend, context, threads, sequences, batch, outputs, kv };
        let path = locate(&path.to_string_lossy())?;
        let model = waiting::run(py, move || akunu::Model::load(path, &options), || {})?.or_raise()?;
        Ok(Model { model, embedder: OnceLock::new() })
    }

    /// Where the model came from.
    #[getter]
    fn path(&self) -> PathBuf {
        self.model.path().to_owned()
    }

    /// The family, such as "llama".
    #[getter]
    fn architecture(&self) -> &'static str {
        self.model.architecture().family
    }

    /// What runs it, such as "cpu".
    #[getter]
    fn backend(&self) -> &'static str {
        self.model.backend()
    }

    /// Tokens a sequence may have.
    #[getter]
    fn context(&self) -> usize {
        self.model.context()
    }

    /// Texts that can be generated at the same time.
    #[getter]
    fn sequences(&self) -> usize {
        self.model.sequences()
    }

    /// Tokens the model can choose from.
    #[getter]
    fn vocabulary(&self) -> usize {
        self.model.vocabulary()
    }

    /// The tokens of a text. With `special`, names of special tokens in it are these tokens: not for text of users. With
    /// `add_special`, what the model expects around a text is added.
    #[pyo3(signature = (text, *, special=false, add_special=false))]
    fn tokenize(&self, text: &str, special: bool, add_special: bool) -> PyResult<Vec<u32>> {
        let special = if special { Special::Parse } else { Special::Plain };
        let add = if add_special { AddSpecial::Yes } else { AddSpecial::No };
        Ok(self.model.tokenizer().or_raise()?.encode(text, special, add))
    }

    /// The text of tokens. Control tokens have none.
    #[allow(clippy::needless_pass_by_value, reason = "lists come from Python by value")]
    fn detokenize(&self, tokens: Vec<u32>) -> PyResult<String> {
        let bytes = self.model.tokenizer().or_raise()?.decode(&tokens);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Continues a text, or tokens; the likeliest way unless a `temperature` is given.
    ///
    /// Settings: `max_tokens`, `temperature`, `top_k`, `top_p`, `min_p`, `repeat_penalty`, `frequency_penalty`,
    /// `presence_penalty`, `repeat_last_n`, `seed`, `logit_bias` (a dictionary), `stop` (a text or several), `constraint`,
    /// `speculate`, `context_shift`.
    ///
    /// >>> model.generate("Once upon a time", max_tokens=4).read() != ""
    /// True
    /// >>> model.generate("a", constraint=akunu.Constraint.choice(["yes", "no"])).read() in ("yes", "no")
    /// True
    #[pyo3(signature = (prompt, **settings))]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Generation>> {
        let prompt = self.prompt(prompt)?;
        let settings = self::settings(settings, Settings::default())?;
        let model = self.model.clone();
        let work = move |listener: &Listener| {
            let begun = model.sequence().and_then(|s| akunu::Generation::new(s, prompt, &settings));
            let mut generation = match begun {
                Ok(generation) => generation,
                Err(error) => {
                    listener.send(Event::Failed(error));
                    return;
                }
            };
            if !listener.send(Event::Begun(generation.stop_handle())) {
                return;
            }
            while let Some(piece) = generation.next() {
                let event = match piece {
                    Ok(piece) => Event::Piece { text: piece.text, thought: false, tokens: piece.tokens },
                    Err(error) => {
                        drop(generation);
                        listener.send(Event::Failed(error));
                        return;
                    }
                };
                if !listener.send(event) {
                    return;
                }
            }
            let end = Event::Done(generation.finish_reason(), *generation.statistics());
            // Whoever hears of the end may want the sequence next.
            drop(generation);
            listener.send(end);
        };
        Pieces::give(py, Stream::begin(py, work)?, Generation)
    }

    /// Continues many texts at once, as many together as the model has sequences. Settings are those of `generate`.
    ///
    /// With `return_exceptions`, a prompt that fails has its exception in place of a text, and the others go on.
    ///
    /// >>> len(model.generate_many(["Once", "upon", "a time"], max_tokens=4))
    /// 3
    /// >>> [type(text).__name__ for text in model.generate_many(["", "a time"], max_tokens=4, return_exceptions=True)]
    /// ['UsageError', 'str']
    #[pyo3(signature = (prompts, *, return_exceptions=false, **settings))]
    #[allow(clippy::needless_pass_by_value, reason = "lists come from Python by value")]
    fn generate_many<'py>(
        &self,
        py: Python<'py>,
        prompts: Vec<Bound<'py, PyAny>>,
        return_exceptions: bool,
        settings: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let settings = self::settings(settings, Settings::default())?;
        let prompts = prompts.iter().map(|prompt| self.prompt(prompt));
        let texts = many::generate(py, &self.model, prompts, &settings, return_exceptions)?;
        let texts = texts.into_iter().map(|text| match text {
            Ok(text) => Ok(text.into_pyobject(py)?.into_any()),
            Err(error) => Ok(error.into_value(py).into_bound(py).into_any()),
        });
        texts.collect()
    }

    /// Begins a conversation; `system` says what the model should be like. Settings are those of `generate`, by default as the
    /// model's makers say.
    #[pyo3(signature = (*, system=None, **settings))]
    fn chat(&self, system: Option<&str>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Chat> {
        let default = Settings { sampling: self.model.chat_sampling(), ..Settings::default() };
        let settings = self::settings(settings, default)?;
        let mut chat = self.model.chat(&settings).or_raise()?;
        chat.set_system(system.unwrap_or_default());
        Ok(Chat::new(chat))
    }

    /// One vector for each text, as the rows of a NumPy array. The model's weights serve for this too.
    #[pyo3(signature = (texts, *, normalize=true, dimensions=None, cut=false))]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
        normalize: bool,
        dimensions: Option<usize>,
        cut: bool,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let embedder = match self.embedder.get() {
            Some(embedder) => embedder,
            None => {
                let model = self.model.clone();
                let made = Embedder::open(py, move || akunu::Embedder::of(&model, &EmbedOptions::default()))?;
                self.embedder.get_or_init(|| made)
            }
        };
        embedder.embed(py, texts, normalize, dimensions, cut)
    }

    fn __repr__(&self) -> String {
        format!(
            "<akunu.Model {} on {}, context {}>",
            self.architecture(),
            self.model.backend(),
            self.model.context()
        )
    }
}

impl Model {
    /// The tokens of a prompt, which is a text or tokens already.
    fn prompt(&self, prompt: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        match prompt.extract::<String>() {
            Ok(text) => Ok(self.model.tokenizer().or_raise()?.encode(&text, Special::Parse, AddSpecial::Yes)),
            Err(_) => prompt.extract().map_err(|_| {
                PyTypeError::new_err("a prompt is a text, or a list of tokens, which are numbers from 0")
            }),
        }
    }
}
