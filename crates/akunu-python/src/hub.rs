//! Models by their names.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use akunu::hub::Hub;
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::waiting;

/// Fetches a model by its name, unless it is here; gives the path of its file or folder.
///
/// >>> akunu.pull("smolm2")
/// Traceback (most recent call last):
/// ...
/// akunu.NotFoundError: there is no model "smolm2"
#[pyfunction]
pub(crate) fn pull(py: Python<'_>, name: String) -> PyResult<PathBuf> {
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopped);
    let work = move || {
        Hub::from_env()?.pull(&name, &mut |_| match flag.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    };
    waiting::run(py, work, || stopped.store(true, Ordering::Relaxed))?.or_raise()
}

/// The file or folder of a path or of the name of a model that was pulled.
pub(crate) fn locate(model: &str) -> PyResult<PathBuf> {
    Hub::from_env().and_then(|hub| hub.resolve(model)).or_raise()
}
