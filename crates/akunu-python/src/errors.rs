//! Errors of the engine as exceptions of `akunu._errors`: one class for each kind.

use akunu::{Error, Kind};
use pyo3::prelude::*;

/// The exception an error is.
pub(crate) fn raise(error: &Error) -> PyErr {
    raise_about("", error)
}

/// The same, with what the error is about before its message.
pub(crate) fn raise_about(what: &str, error: &Error) -> PyErr {
    let class = match error.kind() {
        Kind::Usage => "UsageError",
        Kind::NotFound => "NotFoundError",
        Kind::BadData => "BadDataError",
        Kind::Unsupported => "UnsupportedError",
        Kind::Denied => "DeniedError",
        Kind::Unavailable => "UnavailableError",
        Kind::System => "SystemFailure",
        Kind::Stopped => "StoppedError",
        _ => "AkunuError",
    };
    make(class, &format!("{what}{error}"), error.hint().as_deref())
}

/// A misuse that the engine never gets to see.
pub(crate) fn usage(message: &str) -> PyErr {
    make("UsageError", message, None)
}

fn make(class: &str, message: &str, hint: Option<&str>) -> PyErr {
    Python::attach(|py| {
        let exception =
            py.import("akunu._errors").and_then(|module| module.getattr(class)?.call1((message, hint)));
        exception.map_or_else(|error| error, PyErr::from_value)
    })
}

/// Results of the engine as results for Python.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for akunu::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| raise(&error))
    }
}
