//! `config.json` and its like.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::json::Json;
use crate::{Error, Result};

/// Keys that describe the whole checkpoint: the outer value counts even where `text_config` has one too.
const OUTER_KEYS: [&str; 4] = ["model_type", "architectures", "quantization", "quantization_config"];

/// A configuration file of a checkpoint: one JSON object, read key by key.
///
/// Models with several parts keep the language model's settings in a nested object, `text_config`. Both are looked
/// through as one: a key is taken from `text_config` if it is there and from the outer object otherwise; the other way
/// round for `model_type`, `architectures`, `quantization` and `quantization_config`, which describe the whole. A key
/// whose value is `null` counts as absent, because that is what it means to the libraries that write these files.
///
/// ```
/// # use akunu_format::checkpoint::Config;
/// let config = Config::from_json(r#"{
///     "model_type": "gemma3",
///     "text_config": { "model_type": "gemma3_text", "hidden_size": 640, "rope_scaling": null }
/// }"#)?;
/// assert_eq!(config.require::<&str>("model_type")?, "gemma3");
/// assert_eq!(config.require::<usize>("hidden_size")?, 640);
/// assert_eq!(config.get::<f32>("rope_scaling")?, None);
/// assert!(config.get::<bool>("hidden_size").is_err());
/// # Ok::<(), akunu_format::Error>(())
/// ```
#[derive(Debug)]
pub struct Config {
    path: PathBuf,
    text: String,
}

impl Config {
    /// Takes JSON that is in memory already.
    pub fn from_json(text: impl Into<String>) -> Result<Self> {
        Self::new(PathBuf::from("(in memory)"), text.into())
    }

    pub(super) fn open(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Error::malformed(path, "text", at, "the bytes from here on are not UTF-8")
        })?;
        Self::new(path.to_owned(), text)
    }

    fn new(path: PathBuf, text: String) -> Result<Self> {
        let config = Self { path, text };
        config.json().for_each_member("object", &mut |_, _| Ok(()))?;
        if let Some(inner) = config.text_config()? {
            inner.for_each_member("\"text_config\"", &mut |_, _| Ok(()))?;
        }
        Ok(config)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file, for those who want it otherwise.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value of `key` converted to `T`; `None` when it is absent or null, an error when it is something else.
    pub fn get<'a, T: Deserialize<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        self.find(key)?.map(|value| value.parse(&format!("\"{key}\""))).transpose()
    }

    /// The value of `key` converted to `T`; an error when it is absent or null.
    pub fn require<'a, T: Deserialize<'a>>(&'a self, key: &str) -> Result<T> {
        self.get(key)?.ok_or_else(|| Error::NoKey { path: self.path.clone(), key: key.to_owned() })
    }

    /// Where the value of `key` lies.
    pub(super) fn find(&self, key: &str) -> Result<Option<Json<'_>>> {
        let outer = || Ok(present(self.json().member("object", key)?));
        let inner = || match self.text_config()? {
            Some(text_config) => Ok(present(text_config.member("\"text_config\"", key)?)),
            None => Ok(None),
        };
        if OUTER_KEYS.contains(&key) {
            outer()?.map_or_else(inner, |value| Ok(Some(value)))
        } else {
            inner()?.map_or_else(outer, |value| Ok(Some(value)))
        }
    }

    fn json(&self) -> Json<'_> {
        Json { path: &self.path, text: &self.text, offset: 0 }
    }

    fn text_config(&self) -> Result<Option<Json<'_>>> {
        Ok(present(self.json().member("object", "text_config")?))
    }
}

fn present(value: Option<Json<'_>>) -> Option<Json<'_>> {
    value.filter(|value| !value.begins_with('n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_config_comes_before_the_outer_object() {
        let config = Config::from_json(
            r#"{"vocab_size": 1, "eos_token_id": [1, 106], "quantization": {"bits": 4},
                "text_config": {"vocab_size": 2, "quantization": {"bits": 8}, "quantization_config": {"bits": 3}}}"#,
        )
        .unwrap();
        assert_eq!(config.require::<u32>("vocab_size").unwrap(), 2);
        assert_eq!(config.require::<Vec<u32>>("eos_token_id").unwrap(), [1, 106]);
        assert_eq!(config.find("quantization").unwrap().unwrap().text, r#"{"bits": 4}"#);
        assert_eq!(config.find("quantization_config").unwrap().unwrap().text, r#"{"bits": 3}"#);
    }

    #[test]
    fn errors_name_the_key_and_its_place() {
        let config = Config::from_json(r#"{"text_config": {"hidden_size": "big"}}"#).unwrap();
        let message = config.get::<u32>("hidden_size").unwrap_err().to_string();
        assert!(message.contains("\"hidden_size\" at byte 3"), "{message}");
        assert!(matches!(config.require::<u32>("x"), Err(Error::NoKey { .. })));
    }

    #[test]
    fn what_is_no_object_is_refused_when_opened() {
        for text in ["", "[]", "{", "{\"a\": }", "{} {}", "null", r#"{"text_config": 3}"#] {
            assert!(Config::from_json(text).is_err(), "{text}");
        }
        assert!(Config::from_json(r#"{"text_config": null}"#).is_ok());
    }
}
