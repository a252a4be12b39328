//! What a model file says about text.

use akunu_format::ModelFile;
use akunu_text::Tokenizer;

use crate::Result;

/// The tokenizer; `None` when the file has no vocabulary.
pub(crate) fn tokenizer(file: &ModelFile) -> Result<Option<Tokenizer>> {
    Ok(match file {
        ModelFile::Gguf(gguf) if gguf.metadata().value("tokenizer.ggml.model").is_none() => None,
        ModelFile::Gguf(gguf) => Some(Tokenizer::from_gguf(gguf)?),
        ModelFile::Checkpoint(checkpoint) => match checkpoint.companion("tokenizer.json") {
            Some(path) => path.parent().map(Tokenizer::from_dir).transpose()?,
            None => None,
        },
        ModelFile::WhisperGgml(_) => None,
    })
}
