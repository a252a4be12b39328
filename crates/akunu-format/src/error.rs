//! The one error type of this crate.

use std::path::PathBuf;

use crate::DType;

/// What went wrong with a model file, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// The bytes do not follow the format.
    #[error("{}: {field} at byte {offset}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Which field, such as `tensor "blk.0.attn_q.weight": offset`.
        field: String,
        /// Where the field begins in the file.
        offset: u64,
        /// What is wrong with it, and what was expected.
        problem: String,
    },

    /// The file is well formed but asks for something this crate does not read.
    #[error("{}: {what} is not supported{}", path.display(), hint.as_deref().map(|h| format!("; {h}")).unwrap_or_default())]
    Unsupported {
        /// The file or directory.
        path: PathBuf,
        /// The feature, by name.
        what: String,
        /// What to do instead, if there is something.
        hint: Option<String>,
    },

    /// No such tensor.
    #[error("{}: there is no tensor \"{name}\"", path.display())]
    NoTensor {
        /// The file or directory.
        path: PathBuf,
        /// The name that was asked for.
        name: String,
    },

    /// A row does not divide into blocks.
    #[error("a row of {len} elements cannot be {dtype}: its blocks hold {block}")]
    RowLength {
        /// The dtype asked for.
        dtype: DType,
        /// Elements in the row.
        len: usize,
        /// Elements in a block.
        block: usize,
    },

    /// A dtype that can be listed but not read (or not written).
    #[error("{dtype} values cannot be {action}")]
    NoConversion {
        /// The dtype.
        dtype: DType,
        /// `"read"` or `"written"`.
        action: &'static str,
    },

    /// A buffer's size does not match what it is to hold.
    #[error("{what}: expected {expected}, got {actual}")]
    BufferSize {
        /// Which buffer, in which unit.
        what: &'static str,
        /// The size needed.
        expected: usize,
        /// The size given.
        actual: usize,
    },
}

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
