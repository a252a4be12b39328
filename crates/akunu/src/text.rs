//! What a model file says about text.

use std::path::Path;

use akunu_format::ModelFile;
use akunu_text::Tokenizer;

use crate::{Error, Result};

/// Builds the tokenizer of the model at `path`. Weights are not needed: a GGUF file with a vocabulary alone will do, and
/// so will a `tokenizer.json` or the directory it lies in.
///
/// ```no_run
/// use akunu_text::tokenizer::{AddSpecial, Special};
///
/// let tokenizer = akunu::load_tokenizer("model.gguf")?;
/// let ids = tokenizer.encode("Hello", Special::Plain, AddSpecial::Yes);
/// # Ok::<(), akunu::Error>(())
/// ```
pub fn load_tokenizer(path: impl AsRef<Path>) -> Result<Tokenizer> {
    let path = path.as_ref();
    if path.is_dir() {
        return Tokenizer::from_dir(path).map_err(Error::tokenizer(path));
    }
    if path.file_name().is_some_and(|name| name == "tokenizer.json") {
        let directory = path.parent().unwrap_or(Path::new(""));
        return Tokenizer::from_dir(directory).map_err(Error::tokenizer(path));
    }
    tokenizer(&ModelFile::open(path)?)?.ok_or_else(|| no_vocabulary(path))
}

/// The tokenizer; `None` when the file has no vocabulary.
pub(crate) fn tokenizer(file: &ModelFile) -> Result<Option<Tokenizer>> {
    let built = match file {
        ModelFile::Gguf(gguf) if gguf.metadata().value("tokenizer.ggml.model").is_none() => None,
        ModelFile::Gguf(gguf) => Some(Tokenizer::from_gguf(gguf)),
        ModelFile::Checkpoint(checkpoint) => {
            let path = checkpoint.companion("tokenizer.json");
            path.as_deref().and_then(Path::parent).map(Tokenizer::from_dir)
        }
        ModelFile::WhisperGgml(_) => None,
    };
    built.transpose().map_err(Error::tokenizer(file.path()))
}

/// What is missing in a model that has weights alone.
pub(crate) fn no_vocabulary(path: &Path) -> Error {
    Error::Missing {
        what: format!("{} has no vocabulary", path.display()),
        hint: "a checkpoint needs its tokenizer.json, a GGUF file its tokenizer.ggml fields".to_owned(),
    }
}
