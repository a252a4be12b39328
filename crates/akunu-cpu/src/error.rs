//! Why a backend cannot be made.

/// Why a [`crate::Cpu`] cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An instruction set nobody knows or this processor lacks.
    #[error("instruction set \"{name}\" is not to be had on this processor; available are {available}")]
    Isa {
        /// As it was asked for.
        name: String,
        /// What there is.
        available: String,
    },

    /// A number of threads that cannot be.
    #[error("{0} threads: at least 1 is needed")]
    Threads(usize),

    /// The system gave no thread.
    #[error("cannot start a worker thread: {0}")]
    Spawn(std::io::Error),
}
