//! Vocabularies in files of their own, as they lie in model directories.

use std::path::Path;

use super::error::{Result, TokenizerError};
use super::{Tokenizer, json, sentencepiece, tekken};

impl Tokenizer {
    /// The tokenizer in a model directory: that of `tokenizer.json`, else of `tekken.json`, else of `tokenizer.model`.
    pub fn from_dir(directory: impl AsRef<Path>) -> Result<Self> {
        let directory = directory.as_ref();
        for name in [json::FILE, tekken::FILE, sentencepiece::FILE] {
            if directory.join(name).exists() {
                return Self::from_file(directory.join(name));
            }
        }
        let field = directory.join(json::FILE).display().to_string();
        Err(TokenizerError::Missing { field, hint: "it is where a model's vocabulary is expected" })
    }

    /// The tokenizer a file describes: Mistral's if its name begins with `tekken`, otherwise Hugging Face's (with what
    /// `tokenizer_config.json` and `generation_config.json` beside it add) if it ends with `.json`, otherwise
    /// SentencePiece's.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with(".json") {
            return Self::from_sentencepiece(&read(path)?);
        }
        let text = read_text(path)?;
        if name.starts_with("tekken") {
            return Self::from_tekken(&text);
        }
        let beside = |name| {
            let path = path.with_file_name(name);
            path.exists().then(|| read_text(&path)).transpose()
        };
        Self::from_json(&text, beside(json::CONFIG)?.as_deref(), beside(json::GENERATION)?.as_deref())
    }

    /// Whether [`from_file`](Self::from_file) is for a file of this name.
    pub fn is_vocabulary_file(path: impl AsRef<Path>) -> bool {
        let name = path.as_ref().file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".json") || name.ends_with(".model") || name.contains(".model.v")
    }
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| TokenizerError::Io { path: path.display().to_string(), source })
}

fn read_text(path: &Path) -> Result<String> {
    let invalid = |_| TokenizerError::invalid(path.display().to_string(), "is not UTF-8");
    String::from_utf8(read(path)?).map_err(invalid)
}
