//! akunu for Python: the module `akunu._akunu`, which the package in `python/akunu` presents.
//!
//! Work happens on threads of its own while the caller waits without the interpreter's lock, and looks up every few
//! milliseconds for Ctrl-C ([`waiting`]). Errors become the exceptions of `akunu._errors` ([`errors`]).

mod chat;
mod constraint;
mod embed;
mod errors;
mod generation;
mod hub;
mod many;
mod model;
mod server;
mod settings;
mod speech;
mod waiting;

use pyo3::prelude::*;

/// The compiled part of akunu.
#[pymodule]
mod _akunu {
    #[pymodule_export]
    use crate::chat::{Answer, Chat};
    #[pymodule_export]
    use crate::constraint::Constraint;
    #[pymodule_export]
    use crate::embed::Embedder;
    #[pymodule_export]
    use crate::generation::{Generation, Pieces, Statistics};
    #[pymodule_export]
    use crate::hub::pull;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::server::Server;
    #[pymodule_export]
    use crate::speech::{Transcriber, Transcription};
}
