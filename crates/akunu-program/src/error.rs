//! The one error type of this crate.

/// Why a model cannot be built or a batch cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error(transparent)]
    Format(#[from] akunu_format::Error),

    /// A setting of the model makes no sense.
    #[error("{field}: {problem}")]
    Config {
        /// Which setting, by its key where it has one.
        field: String,
        /// What is wrong with it.
        problem: String,
    },

    /// A model family, scaling or feature we do not have.
    #[error("{what} is not supported; supported are {supported}")]
    Unsupported {
        /// The feature, by name.
        what: String,
        /// What there is instead.
        supported: String,
    },

    /// A tensor the model needs is not in the file.
    #[error("there is no tensor \"{name}\", which a {family} model needs")]
    MissingTensor {
        /// Its name.
        name: String,
        /// The model family.
        family: String,
    },

    /// A tensor of the file has no place in the model.
    #[error("tensor \"{name}\" has no place in a {family} model of {layers} layers")]
    ExtraTensor {
        /// Its name.
        name: String,
        /// The model family.
        family: String,
        /// Layers the settings speak of.
        layers: usize,
    },

    /// A weight the program uses is not where weights come from.
    #[error("there is no tensor \"{0}\"")]
    NoWeight(String),

    /// A tensor has the wrong shape.
    #[error("tensor \"{name}\" has shape {actual:?}; expected {expected:?}")]
    Shape {
        /// Its name.
        name: String,
        /// As in the file.
        actual: Vec<usize>,
        /// As the model's settings say.
        expected: Vec<usize>,
    },

    /// A weight is not a number.
    #[error("tensor \"{name}\" holds a value that is not finite, in row {row}")]
    NotFinite {
        /// The tensor.
        name: String,
        /// The row.
        row: usize,
    },

    /// A batch breaks the executable's limits or names something that is not there.
    #[error("bad batch: {0}")]
    Batch(String),

    /// A device could not do what it was asked to.
    #[error("the device failed: {0}")]
    Device(String),

    /// The system has not as much memory to give.
    #[error("{what} would take {:.1} GiB, which the system does not give", *bytes as f64 / f64::from(1 << 30))]
    Memory {
        /// What the memory would be for.
        what: &'static str,
        /// How much, in bytes.
        bytes: usize,
    },

    /// No token may be chosen: every logit is −∞ or not a number.
    #[error("no token can be chosen at position {position}: all logits are masked or not numbers")]
    NoChoice {
        /// The position of the row.
        position: u32,
    },

    /// The run was stopped by its stop flag.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// A setting that makes no sense.
    pub(crate) fn config(field: impl Into<String>, problem: String) -> Error {
        Error::Config { field: field.into(), problem }
    }
}

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
