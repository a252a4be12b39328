//! A bounds-checked little-endian reader whose errors name the file, the field and the offset.

use std::fmt::Display;
use std::path::Path;

use crate::{Error, Result};

/// Reads forward through the bytes of a file.
///
/// Every method takes the name of the field it reads, which is formatted only when the read fails.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self { path, bytes, position: 0 }
    }

    /// Bytes read so far, which is also the offset in the file.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// An error about the field that begins at `offset`.
    pub(crate) fn malformed(&self, field: impl Display, offset: usize, problem: impl Into<String>) -> Error {
        Error::malformed(self.path, field, offset, problem)
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, field: impl Display) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.position..];
        match usize::try_from(len).ok().and_then(|len| rest.get(..len)) {
            Some(taken) => {
                self.position += taken.len();
                Ok(taken)
            }
            None => {
                let problem = format!("needs {len} bytes, but the file ends after {}", rest.len());
                Err(self.malformed(field, self.position, problem))
            }
        }
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, field: impl Display) -> Result<[u8; N]> {
        match self.bytes[self.position..].first_chunk() {
            Some(&taken) => {
                self.position += N;
                Ok(taken)
            }
            None => {
                let problem = format!("needs {N} bytes, but the file ends after {}", self.remaining());
                Err(self.malformed(field, self.position, problem))
            }
        }
    }

    pub(crate) fn u32(&mut self, field: impl Display) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: impl Display) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A count of things of at least `min_bytes` each: one that cannot fit into the rest of the file is an error, so
    /// that it is safe to reserve room for that many.
    pub(crate) fn count(&mut self, min_bytes: usize, field: impl Display) -> Result<usize> {
        let at = self.position;
        let count = self.u64(&field)?;
        let most = self.remaining() / min_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => {
                let problem =
                    format!("{count}, but the {} bytes that follow hold at most {most}", self.remaining());
                Err(self.malformed(field, at, problem))
            }
        }
    }

    /// Text of `len` bytes.
    pub(crate) fn text(&mut self, len: u64, field: impl Display) -> Result<&'a str> {
        let at = self.position;
        let bytes = self.take(len, &field)?;
        std::str::from_utf8(bytes).map_err(|error| {
            self.malformed(field, at + error.valid_up_to(), "the bytes from here on are not UTF-8")
        })
    }
}
