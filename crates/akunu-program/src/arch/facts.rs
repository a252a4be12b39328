//! A model's settings from either kind of file, under either kind of name.

use akunu_format::gguf::{Metadata, Value as GgufValue};
use serde_json::Value as Json;

use crate::{Error, Result};

/// No sane model has more of anything than this; hostile files do.
const MOST: usize = 1 << 24;

/// Where settings are looked up. Getters take the GGUF key (without the family's prefix) and the `config.json` key.
#[derive(Clone, Copy)]
pub(super) enum Facts<'a> {
    /// GGUF metadata.
    Gguf {
        /// The prefix of the family's keys.
        family: &'a str,
        /// All metadata.
        metadata: Metadata<'a>,
    },
    /// The settings of a `config.json`.
    Json(&'a Json),
}

impl<'a> Facts<'a> {
    /// Whether settings and weights follow GGUF's conventions.
    pub(super) fn is_gguf(&self) -> bool {
        matches!(self, Facts::Gguf { .. })
    }

    /// The name to show for a setting.
    pub(super) fn key(&self, gguf: &str, json: &str) -> String {
        match self {
            Facts::Gguf { family, .. } => format!("{family}.{gguf}"),
            Facts::Json(_) => json.to_owned(),
        }
    }

    /// A count, if given.
    pub(super) fn count(&self, gguf: &str, json: &str) -> Result<Option<usize>> {
        let key = self.key(gguf, json);
        let found = match self {
            Facts::Gguf { metadata, .. } => metadata.get::<usize>(&key)?,
            Facts::Json(_) => match self.json(json) {
                None => None,
                Some(value) => {
                    let count = value.as_u64().and_then(|n| usize::try_from(n).ok());
                    Some(count.ok_or_else(|| wrong(json, "a whole number", value))?)
                }
            },
        };
        match found {
            Some(n) if n > MOST => Err(Error::config(key, format!("{n} is beyond all reason"))),
            found => Ok(found),
        }
    }

    /// A count that must be given and not be zero.
    pub(super) fn need(&self, gguf: &str, json: &str) -> Result<usize> {
        let key = self.key(gguf, json);
        match self.count(gguf, json)? {
            Some(0) => Err(Error::config(key, "it must not be zero".into())),
            Some(n) => Ok(n),
            None => Err(Error::config(key, "it is missing".into())),
        }
    }

    /// A count for each layer: one for all, or (in GGUF) a list.
    pub(super) fn per_layer(&self, gguf: &str, json: &str, layers: usize) -> Result<Option<Vec<usize>>> {
        let key = self.key(gguf, json);
        if let Facts::Gguf { metadata, .. } = self
            && let Some(GgufValue::Array(_)) = metadata.value(&key)
        {
            let counts: Vec<usize> = metadata.require(&key)?;
            if counts.len() < layers || counts.iter().any(|&n| n > MOST) {
                return Err(Error::config(
                    key,
                    format!("{} sensible entries for {layers} layers", counts.len()),
                ));
            }
            return Ok(Some(counts));
        }
        Ok(self.count(gguf, json)?.map(|n| vec![n; layers]))
    }

    /// Whether each layer has a window: as the file lists it, or all but every `pattern`-th.
    pub(super) fn windowed_layers(&self, layers: usize, pattern: usize) -> Result<Vec<bool>> {
        const KEYS: (&str, &str) = ("attention.sliding_window_pattern", "sliding_window_pattern");
        let listed: Option<Vec<bool>> = match self {
            Facts::Gguf { metadata, .. } => {
                let key = self.key(KEYS.0, KEYS.1);
                match metadata.value(&key) {
                    Some(GgufValue::Array(_)) => Some(metadata.require(&key)?),
                    _ => None,
                }
            }
            Facts::Json(_) => self
                .json("layer_types")
                .and_then(Json::as_array)
                .map(|types| types.iter().map(|t| t.as_str() == Some("sliding_attention")).collect()),
        };
        if let Some(listed) = listed {
            if listed.len() != layers {
                let key = self.key(KEYS.0, "layer_types");
                return Err(Error::config(key, format!("{} entries for {layers} layers", listed.len())));
            }
            return Ok(listed);
        }
        let pattern = self.count(KEYS.0, KEYS.1)?.filter(|&p| p > 0).unwrap_or(pattern);
        Ok((1..=layers).map(|n| !n.is_multiple_of(pattern)).collect())
    }

    /// A number, if given; it must be finite.
    pub(super) fn number(&self, gguf: &str, json: &str) -> Result<Option<f64>> {
        let key = self.key(gguf, json);
        let found = match self {
            Facts::Gguf { metadata, .. } => metadata.get::<f64>(&key)?,
            Facts::Json(_) => match self.json(json) {
                None => None,
                Some(value) => Some(value.as_f64().ok_or_else(|| wrong(json, "a number", value))?),
            },
        };
        match found {
            Some(x) if !x.is_finite() => Err(Error::config(key, format!("{x} is not a finite number"))),
            found => Ok(found),
        }
    }

    /// A text, if given.
    pub(super) fn text(&self, gguf: &str, json: &str) -> Result<Option<&'a str>> {
        match self {
            Facts::Gguf { metadata, .. } => Ok(metadata.get::<&str>(&self.key(gguf, json))?),
            Facts::Json(_) => match self.json(json) {
                None => Ok(None),
                Some(value) => value.as_str().map(Some).ok_or_else(|| wrong(json, "a string", value)),
            },
        }
    }

    /// A setting of `config.json`, if it is there and not null. Dots lead into objects.
    pub(super) fn json(&self, path: &str) -> Option<&'a Json> {
        let Facts::Json(config) = self else { return None };
        let mut at = *config;
        for key in path.split('.') {
            at = at.get(key)?;
        }
        (!at.is_null()).then_some(at)
    }

    /// A yes or no, if given.
    pub(super) fn flag(&self, gguf: &str, json: &str) -> Result<Option<bool>> {
        match self {
            Facts::Gguf { metadata, .. } => Ok(metadata.get::<bool>(&self.key(gguf, json))?),
            Facts::Json(_) => match self.json(json) {
                None => Ok(None),
                Some(value) => value.as_bool().map(Some).ok_or_else(|| wrong(json, "true or false", value)),
            },
        }
    }

    /// A list of numbers of `config.json`, if given.
    pub(super) fn json_numbers(&self, path: &str) -> Result<Option<Vec<f32>>> {
        let Some(value) = self.json(path) else { return Ok(None) };
        let numbers = value
            .as_array()
            .and_then(|list| list.iter().map(|x| x.as_f64().map(|x| x as f32)).collect::<Option<Vec<f32>>>());
        numbers.map(Some).ok_or_else(|| wrong(path, "a list of numbers", value))
    }
}

fn wrong(key: &str, expected: &str, found: &Json) -> Error {
    let mut found = found.to_string();
    if found.len() > 60 {
        found.truncate(found.floor_char_boundary(57));
        found.push_str("...");
    }
    Error::config(key, format!("expected {expected}, found {found}"))
}
