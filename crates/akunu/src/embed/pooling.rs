//! From a text's hidden states to one vector, as the model's makers say.

use std::ops::Range;
use std::str::FromStr;

use akunu_format::ModelFile;
use akunu_format::checkpoint::Checkpoint;
use serde_json::Value;

use super::Shape;
use crate::text::read_text;
use crate::{Error, Result};

/// How states become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The first token's state.
    Cls,
    /// The mean of all tokens' states.
    Mean,
    /// The last token's state.
    Last,
}

impl Pooling {
    /// Names of the ways, as the command line takes them.
    pub const NAMES: [&str; 3] = ["cls", "mean", "last"];

    /// Its name, one of those.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::Cls => "cls",
            Pooling::Mean => "mean",
            Pooling::Last => "last",
        }
    }

    /// The rows of a text of `count` tokens whose states are wanted.
    pub(super) fn rows(self, count: usize) -> Range<usize> {
        match self {
            Pooling::Cls => 0..1,
            Pooling::Mean => 0..count,
            Pooling::Last => count - 1..count,
        }
    }
}

impl FromStr for Pooling {
    type Err = Error;

    fn from_str(name: &str) -> Result<Pooling> {
        match name {
            "cls" => Ok(Pooling::Cls),
            "mean" => Ok(Pooling::Mean),
            "last" => Ok(Pooling::Last),
            other => Err(Error::Usage {
                problem: format!("there is no pooling \"{other}\""),
                hint: format!("use one of: {}", Pooling::NAMES.join(", ")),
            }),
        }
    }
}

/// Adds a state to a sum.
pub(super) fn add(sum: &mut [f64], state: &[f32]) {
    for (sum, x) in sum.iter_mut().zip(state) {
        *sum += f64::from(*x);
    }
}

/// The mean of `count` states.
pub(super) fn mean(sum: &[f64], count: usize) -> Vec<f32> {
    sum.iter().map(|sum| (sum / count as f64) as f32).collect()
}

/// Cuts a vector and scales it to length 1, as asked. A vector of zeros stays one.
pub(super) fn finish(vector: &mut Vec<f32>, shape: Shape) {
    vector.truncate(shape.dimensions.unwrap_or(usize::MAX));
    if shape.normalize {
        let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        if length > 0.0 {
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
    }
}

/// What a model's makers say about embedding with it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Advice {
    pub(crate) pooling: Option<Pooling>,
    /// Most tokens of a text.
    pub(crate) context: Option<usize>,
}

/// Reads the advice: a field of GGUF files, the files of `sentence-transformers` beside checkpoints.
pub(crate) fn advice(file: &ModelFile) -> Result<Advice> {
    match file {
        ModelFile::Gguf(gguf) => {
            let family: &str = gguf.metadata().require("general.architecture")?;
            let pooling = match gguf.metadata().get::<u32>(&format!("{family}.pooling_type"))? {
                None | Some(0) => None,
                Some(1) => Some(Pooling::Mean),
                Some(2) => Some(Pooling::Cls),
                Some(3) => Some(Pooling::Last),
                Some(4) => return Err(unsupported("a model that ranks texts instead of embedding them")),
                Some(other) => return Err(unsupported(&format!("{family}.pooling_type {other}"))),
            };
            Ok(Advice { pooling, context: None })
        }
        ModelFile::Checkpoint(checkpoint) => {
            let context = longest(checkpoint)?;
            let mut pooling = None;
            let modules = read(checkpoint, "modules.json")?;
            for module in modules.as_array().into_iter().flatten() {
                let kind = module["type"].as_str().unwrap_or_default();
                match kind.rsplit('.').next().unwrap_or_default() {
                    "Transformer" | "Normalize" => {}
                    "Pooling" => {
                        let folder = module["path"].as_str().unwrap_or("1_Pooling");
                        pooling = Some(pooling_mode(&read(checkpoint, &format!("{folder}/config.json"))?)?);
                    }
                    _ => return Err(unsupported(&format!("the module {kind} after the model"))),
                }
            }
            Ok(Advice { pooling, context })
        }
        ModelFile::WhisperGgml(_) | ModelFile::Torch(_) => Ok(Advice::default()),
    }
}

/// Most tokens of a text, where the files of `sentence-transformers` or those of the tokenizer say so.
pub(super) fn longest(checkpoint: &Checkpoint) -> Result<Option<usize>> {
    let limit = |file, field| {
        let longest = read(checkpoint, file)?[field].as_u64().and_then(|n| usize::try_from(n).ok());
        Ok(longest.filter(|&n| n > 0))
    };
    match limit("sentence_bert_config.json", "max_seq_length")? {
        None => limit("tokenizer_config.json", "model_max_length"),
        some => Ok(some),
    }
}

/// `sentence-transformers` has a flag for each way; the vectors of several would be joined.
fn pooling_mode(config: &Value) -> Result<Pooling> {
    let flags = config.as_object().into_iter().flatten();
    let on: Vec<&str> = flags
        .filter(|(_, value)| value.as_bool() == Some(true))
        .filter_map(|(name, _)| name.strip_prefix("pooling_mode_"))
        .chain(config["pooling_mode"].as_str())
        .collect();
    match on[..] {
        ["cls_token" | "cls"] => Ok(Pooling::Cls),
        ["mean_tokens" | "mean"] => Ok(Pooling::Mean),
        ["lasttoken"] => Ok(Pooling::Last),
        _ => Err(unsupported(&format!("the pooling {on:?}"))),
    }
}

/// A JSON file beside the checkpoint; null when there is none.
pub(super) fn read(checkpoint: &Checkpoint, name: &str) -> Result<Value> {
    let Some(path) = checkpoint.companion(name) else { return Ok(Value::Null) };
    let text = read_text(&path)?;
    serde_json::from_str(&text).map_err(|error| Error::Usage {
        problem: format!("{}: {error}", path.display()),
        hint: "the checkpoint is damaged: fetch it again".to_owned(),
    })
}

fn unsupported(what: &str) -> Error {
    Error::Program(akunu_program::Error::Unsupported {
        what: what.to_owned(),
        supported: "embeddings by the pooling cls, mean or last".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_way_of_pooling_is_read_and_others_are_refused() {
        let mean = json!({ "word_embedding_dimension": 8, "pooling_mode_cls_token": false,
            "pooling_mode_mean_tokens": true, "include_prompt": true });
        assert_eq!(pooling_mode(&mean).unwrap(), Pooling::Mean);
        assert_eq!(pooling_mode(&json!({ "pooling_mode_lasttoken": true })).unwrap(), Pooling::Last);
        assert_eq!(pooling_mode(&json!({ "pooling_mode": "cls" })).unwrap(), Pooling::Cls);
        let both = json!({ "pooling_mode_cls_token": true, "pooling_mode_max_tokens": true });
        let problem = pooling_mode(&both).unwrap_err().to_string();
        assert!(problem.contains("max_tokens"), "{problem}");
    }

    #[test]
    fn a_vector_is_cut_before_it_is_scaled() {
        let mut vector = vec![3.0, 4.0, 12.0];
        finish(&mut vector, Shape { dimensions: Some(2), normalize: true });
        assert_eq!(vector, [0.6, 0.8]);
        let mut zeros = vec![0.0; 3];
        finish(&mut zeros, Shape::default());
        assert_eq!(zeros, [0.0; 3]);
    }
}
