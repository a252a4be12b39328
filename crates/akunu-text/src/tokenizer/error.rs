//! What can be wrong with a vocabulary.

/// Why a tokenizer could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },

    /// The model file is at fault.
    #[error(transparent)]
    File(#[from] akunu_format::Error),

    /// The file is not JSON, or not of the expected shape.
    #[error("{file}: {source}")]
    Json {
        /// The file's name.
        file: &'static str,
        /// Line, column and problem.
        source: serde_json::Error,
    },

    /// A field is absent.
    #[error("{field} is missing{}", hint_suffix(hint))]
    Missing {
        /// The field, by its name in the file.
        field: String,
        /// What to do about it; may be empty.
        hint: &'static str,
    },

    /// A field holds something that cannot be.
    #[error("{field}: {problem}")]
    Invalid {
        /// The field, by its name in the file, with the index where it is a list.
        field: String,
        /// What is wrong with it.
        problem: String,
    },

    /// The file is well formed but asks for something this crate does not do.
    #[error("{what} is not supported{}", hint_suffix(hint))]
    Unsupported {
        /// The component or value, by name.
        what: String,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
}

fn hint_suffix(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!(": {hint}") }
}

impl TokenizerError {
    pub(crate) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }

    pub(crate) fn missing(field: impl Into<String>) -> Self {
        Self::Missing { field: field.into(), hint: "" }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), hint: "" }
    }
}

pub(crate) type Result<T, E = TokenizerError> = std::result::Result<T, E>;
