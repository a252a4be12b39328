//! A file's bytes, mapped into memory.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use crate::{Error, Result};

/// The bytes of one file and the name to use for it in errors.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    bytes: Bytes,
}

/// A whole file in memory, which stays there as long as this or the file it is of lives.
#[derive(Clone, Debug)]
pub struct Mapping(Arc<Mmap>);

impl Mapping {
    /// The bytes of the file, from the start of a page on.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mapping),
    Owned(Vec<u8>),
}

impl MappedFile {
    /// Maps a regular file. Pages are read when they are first touched.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        // Asked first, because opening a pipe would wait for its other end.
        if !fs::metadata(path).map_err(io)?.is_file() {
            let what = "opening what is not a regular file".to_owned();
            return Err(Error::Unsupported { path: path.to_owned(), what, hint: None });
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: the mapping is read-only, and is handed out as `&[u8]` alone, also by [`Mapping`], which keeps it alive.
        // Nobody may change or truncate the file while it is open or a `Mapping` of it lives: that is the caller's part, stated
        // in the crate's documentation. Should it change all the same, no invariant of ours rests on the bytes staying equal:
        // places are checked against the length there was, and text is checked again each time it is read.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self { path: path.to_owned(), bytes: Bytes::Mapped(Mapping(Arc::new(map))) })
    }

    /// Takes bytes that are in memory already, with a name for errors.
    pub(crate) fn from_bytes(path: PathBuf, bytes: Vec<u8>) -> Self {
        Self { path, bytes: Bytes::Owned(bytes) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the memory of some bytes back to the system. They stay readable: the next touch reads the file again.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(Mapping(map)) = &self.bytes
            && range.end <= map.len()
            && !range.is_empty()
        {
            // SAFETY: pages of a read-only file mapping that nobody has written to hold what the file holds, before and
            // after.
            let given = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
            };
            // A system that keeps the pages is only less frugal.
            given.unwrap_or_default();
        }
    }

    /// The file as it is mapped, if it is.
    pub(crate) fn mapping(&self) -> Option<&Mapping> {
        match &self.bytes {
            Bytes::Mapped(mapping) => Some(mapping),
            Bytes::Owned(_) => None,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapping) => mapping.bytes(),
            Bytes::Owned(bytes) => bytes,
        }
    }
}
