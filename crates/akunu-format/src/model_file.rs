//! Any model file, opened by what it is rather than by what it is called.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::gguf::{self, Gguf};
use crate::{Error, Result, Tensor};

/// An open model of any format this crate reads.
///
/// ```no_run
/// use akunu_format::ModelFile;
/// let model = ModelFile::open("model.gguf")?;
/// for tensor in model.tensors() {
///     println!("{:40} {:?} {}", tensor.name, tensor.shape, tensor.dtype_name());
/// }
/// if let ModelFile::Gguf(gguf) = &model {
///     println!("{}", gguf.metadata().require::<&str>("general.architecture")?);
/// }
/// # Ok::<(), akunu_format::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelFile {
    /// GGUF, in one file or in shards.
    Gguf(Gguf),
}

impl ModelFile {
    /// Opens a GGUF file, or says what was found instead.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.to_owned(), source };
        if fs::metadata(path).map_err(io)?.is_file() {
            let mut start = Vec::new();
            File::open(path).map_err(io)?.take(4).read_to_end(&mut start).map_err(io)?;
            if start == gguf::MAGIC {
                return Gguf::open(path).map(Self::Gguf);
            }
        }
        Err(Error::unsupported(path, "this kind of file", "a GGUF file is expected"))
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        match self {
            Self::Gguf(gguf) => gguf.path(),
        }
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> Box<dyn ExactSizeIterator<Item = Tensor<'_>> + '_> {
        match self {
            Self::Gguf(gguf) => Box::new(gguf.tensors()),
        }
    }

    /// The tensor called `name`, if there is one.
    pub fn get_tensor(&self, name: &str) -> Option<Tensor<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.get_tensor(name),
        }
    }

    /// The tensor called `name`, or an error that says so.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        match self {
            Self::Gguf(gguf) => gguf.tensor(name),
        }
    }
}
