//! The one error type of this crate.

use std::fmt::Display;
use std::path::{Path, PathBuf};

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

    /// A metadata or configuration key that is needed and not there.
    #[error("{}: the key \"{key}\" is missing", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
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

    /// An element type this crate has no name for beyond the file's own.
    #[error("tensor \"{tensor}\": {dtype} values cannot be read as weights")]
    OpaqueValues {
        /// The tensor.
        tensor: String,
        /// The element type, as the file spells it.
        dtype: &'static str,
    },

    /// Rows that a tensor does not have.
    #[error("tensor \"{tensor}\" has no rows {start}..{end}: it has {rows}")]
    RowRange {
        /// The tensor.
        tensor: String,
        /// The first row asked for.
        start: usize,
        /// One past the last row asked for.
        end: usize,
        /// The rows there are.
        rows: usize,
    },

    /// What was given to a writer cannot become a valid file.
    #[error("cannot write {what}: {problem}")]
    Unwritable {
        /// The key or tensor.
        what: String,
        /// Why not.
        problem: String,
    },

    /// A value that a dtype cannot hold.
    #[error("value {value} at index {index} cannot be stored as {dtype}: {problem}")]
    Value {
        /// The dtype asked for.
        dtype: DType,
        /// Which of the values.
        index: usize,
        /// The value itself.
        value: f32,
        /// Why not.
        problem: &'static str,
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

impl Error {
    /// A [`Error::Malformed`] about the field that begins at `offset`.
    pub(crate) fn malformed(
        path: &Path,
        field: impl Display,
        offset: usize,
        problem: impl Into<String>,
    ) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            field: field.to_string(),
            offset: offset as u64,
            problem: problem.into(),
        }
    }

    /// A [`Error::Unsupported`] with a hint.
    pub(crate) fn unsupported(path: &Path, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), what: what.into(), hint: Some(hint.into()) }
    }
}

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
