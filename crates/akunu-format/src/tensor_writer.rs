//! Streaming tensors into a file whose header is known.

use std::ffi::OsString;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::{Error, Result};

/// A tensor that a file will hold.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    /// Written before its values.
    pub(crate) lead: Vec<u8>,
    pub(crate) byte_len: usize,
}

/// Writes the bytes of the tensors that a [`gguf::Writer`](crate::gguf::Writer) or
/// [`whisper_ggml::Writer`](crate::whisper_ggml::Writer) declared, in that order.
#[derive(Debug)]
#[must_use = "the file only appears when `finish` is called"]
pub struct TensorWriter {
    file: BufWriter<NamedTempFile>,
    path: PathBuf,
    /// What the size of each tensor is filled up to a multiple of.
    alignment: usize,
    parts: Vec<Part>,
    /// Which tensor is being written.
    next: usize,
    /// How many of its bytes are.
    written: usize,
}

impl TensorWriter {
    /// Begins the file under a temporary name in the directory of `path`.
    pub(crate) fn create(path: &Path, header: &[u8], alignment: usize, parts: Vec<Part>) -> Result<Self> {
        let path = path.to_owned();
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut prefix = OsString::from(".");
        prefix.push(path.file_name().unwrap_or_default());
        let mut options = tempfile::Builder::new();
        options.prefix(&prefix).suffix(".partial");
        // What any new file gets; the process's mask takes away from it.
        #[cfg(unix)]
        options.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let io = |source| Error::Io { path: path.clone(), source };
        let mut file = BufWriter::new(options.tempfile_in(directory).map_err(io)?);
        file.write_all(header).map_err(io)?;
        let mut writer = Self { file, path, alignment, parts, next: 0, written: 0 };
        writer.write_lead()?;
        writer.skip_complete()?;
        Ok(writer)
    }

    /// Appends bytes to the tensor called `name`: the first declared one that is not complete.
    ///
    /// A tensor may come in one piece or many.
    pub fn append(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let unwritable = |problem: String| Error::Unwritable { what: format!("tensor \"{name}\""), problem };
        let Some(part) = self.parts.get(self.next) else {
            return Err(unwritable("all declared tensors are complete".to_owned()));
        };
        if part.name != name {
            return Err(unwritable(format!("it is the turn of \"{}\"", part.name)));
        }
        let left = part.byte_len - self.written;
        if bytes.len() > left {
            return Err(unwritable(format!("{} bytes are given where {left} are left", bytes.len())));
        }
        self.file.write_all(bytes).map_err(|source| self.io(source))?;
        self.written += bytes.len();
        self.skip_complete()
    }

    /// Moves on to the first tensor that lacks bytes, padding each that does not.
    fn skip_complete(&mut self) -> Result<()> {
        while let Some(part) = self.parts.get(self.next)
            && part.byte_len == self.written
        {
            let padding = part.byte_len.next_multiple_of(self.alignment) - part.byte_len;
            io::copy(&mut io::repeat(0).take(padding as u64), &mut self.file)
                .map_err(|source| self.io(source))?;
            self.next += 1;
            self.written = 0;
            self.write_lead()?;
        }
        Ok(())
    }

    fn write_lead(&mut self) -> Result<()> {
        if let Some(part) = self.parts.get(self.next) {
            self.file.write_all(&part.lead).map_err(|source| self.io(source))?;
        }
        Ok(())
    }

    /// Completes the file, waits until it is on disk, and gives it its name.
    pub fn finish(self) -> Result<()> {
        if let Some(part) = self.parts.get(self.next) {
            let problem = format!("only {} of {} bytes were written", self.written, part.byte_len);
            return Err(Error::Unwritable { what: format!("tensor \"{}\"", part.name), problem });
        }
        let Self { file, path, .. } = self;
        let io = |source| Error::Io { path: path.clone(), source };
        let file = file.into_inner().map_err(|error| io(error.into_error()))?;
        file.as_file().sync_all().map_err(io)?;
        file.persist(&path).map_err(|error| io(error.error))?;
        Ok(())
    }

    fn io(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }
}
