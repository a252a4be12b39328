//! Texts as vectors.

use std::path::PathBuf;
use std::sync::Arc;

use akunu::embed::{EmbedOptions, Pooling, Shape, TooLong};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::hub::locate;
use crate::waiting;

/// A model that is ready to embed.
///
/// >>> vectors = embedder.embed(["hello", "hello", "goodbye"])
/// >>> vectors.shape == (3, embedder.dimensions), vectors.dtype.name
/// (True, 'float32')
/// >>> bool((vectors[0] == vectors[1]).all())
/// True
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Embedder(Arc<akunu::Embedder>);

impl Embedder {
    pub(crate) fn open(
        py: Python<'_>,
        make: impl FnOnce() -> akunu::Result<akunu::Embedder> + Send + 'static,
    ) -> PyResult<Embedder> {
        Ok(Embedder(Arc::new(waiting::run(py, make, || {})?.or_raise()?)))
    }
}

#[pymethods]
impl Embedder {
    /// Loads a model: a GGUF file, a directory with SafeTensors, or the name of a model that was pulled. `pooling` is "cls",
    /// "mean" or "last", by default what the model's makers say.
    #[staticmethod]
    #[pyo3(signature = (path, *, context=None, threads=None, backend="auto", pooling=None))]
    #[allow(clippy::needless_pass_by_value, reason = "paths come from Python by value")]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        context: Option<usize>,
        threads: Option<usize>,
        backend: &str,
        pooling: Option<&str>,
    ) -> PyResult<Embedder> {
        let pooling = pooling.map(str::parse::<Pooling>).transpose().or_raise()?;
        let path = locate(&path.to_string_lossy())?;
        let backend = backend.to_owned();
        let options = EmbedOptions { backend, threads, context, pooling, ..EmbedOptions::default() };
        Embedder::open(py, move || akunu::Embedder::load(path, &options))
    }

    /// Numbers of a vector.
    #[getter]
    fn dimensions(&self) -> usize {
        self.0.dimensions()
    }

    /// Most tokens of a text.
    #[getter]
    fn context(&self) -> usize {
        self.0.context()
    }

    /// One vector for each text, as the rows of a NumPy array that has the memory they were written to. `dimensions` keeps so
    /// many numbers of each; `cut` leaves out the end of texts that are too long, which are an error otherwise.
    #[pyo3(signature = (texts, *, normalize=true, dimensions=None, cut=false))]
    pub(crate) fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
        normalize: bool,
        dimensions: Option<usize>,
        cut: bool,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let too_long = if cut { TooLong::Cut } else { TooLong::Refuse };
        let rows = texts.len();
        let embedder = Arc::clone(&self.0);
        let work = move || {
            let tokens = texts.iter().map(|text| embedder.tokens(text, too_long));
            let tokens = tokens.collect::<akunu::Result<Vec<_>>>()?;
            Ok(embedder.embed(&tokens, Shape { dimensions, normalize })?.concat())
        };
        let vectors: Vec<f32> = waiting::run(py, work, || {})?.or_raise()?;
        let columns = dimensions.unwrap_or(self.0.dimensions());
        PyArray1::from_vec(py, vectors).reshape([rows, columns])
    }

    fn __repr__(&self) -> String {
        format!("<akunu.Embedder {} dimensions on {}>", self.0.dimensions(), self.0.backend())
    }
}
