//! What becomes of every tensor, decided before anything is written.

use std::borrow::Cow;

use akunu_format::gguf::{Array, Metadata, Value};
use akunu_format::{DType, Data, Tensor};

use super::Recipe;
use super::rules::{self, Model, Place, Role};
use super::source::{Source, Values};
use crate::Result;

/// What becomes of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// Its dimensions, outermost first.
    pub shape: Vec<usize>,
    /// What it is, such as `F16` (an MLX tensor: `affine 4-bit`).
    pub from: Cow<'static, str>,
    /// What it becomes.
    pub to: DType,
    /// The dtype the recipe would have given it, had its rows divided into blocks of that.
    pub instead_of: Option<DType>,
}

impl Planned {
    /// Whether it stays what it is.
    pub fn is_copied(&self) -> bool {
        self.from == self.to.name()
    }
}

/// Sorts tensors into the order in which they are to be written, and decides for each.
pub(super) fn plan(recipe: Recipe, facts: &Facts, sources: &mut [Source<'_>]) -> Vec<Planned> {
    sources.sort_by(|a, b| (layer(&a.name), &a.name).cmp(&(layer(&b.name), &b.name)));
    let count = |role| sources.iter().filter(|source| Role::of(&source.name) == role).count();
    let values = count(Role::AttentionValue);
    let model = Model {
        queries_per_value: facts.heads.checked_div(facts.value_heads).unwrap_or(0),
        experts: facts.experts,
        is_70b: facts.is_70b(),
        tied: count(Role::Output) == 0,
    };

    let (mut value_index, mut down_index) = (0, 0);
    let mut planned = Vec::with_capacity(sources.len());
    for source in sources.iter() {
        let mut entry = Planned {
            name: source.name.clone(),
            shape: source.shape.clone(),
            from: source.dtype_name(),
            to: kept_dtype(source),
            instead_of: None,
        };
        if rules::converts(&source.name, &source.shape) {
            let role = Role::of(&source.name);
            let place = match role {
                Role::AttentionValue => Place { index: next(&mut value_index), count: values },
                Role::FeedForwardDown => {
                    let counted = next(&mut down_index);
                    // Experts may come in several matrices per layer.
                    let named = layer(&source.name).filter(|_| model.experts > 1);
                    Place { index: named.unwrap_or(counted), count: facts.layers }
                }
                _ => Place { index: 0, count: 0 },
            };
            let wanted = rules::wanted(recipe, &model, role, place, source.row_len());
            entry.to = rules::fitting(wanted, source.row_len());
            entry.instead_of = (entry.to != wanted).then_some(wanted);
        }
        planned.push(entry);
    }
    planned
}

/// What a tensor becomes that no recipe touches: it stays what it is, and what was computed becomes F32.
fn kept_dtype(source: &Source<'_>) -> DType {
    match &source.values {
        Values::Stored(Tensor { data: Data::Blocks { dtype, .. }, .. }) => *dtype,
        _ => DType::F32,
    }
}

fn next(counter: &mut usize) -> usize {
    *counter += 1;
    *counter - 1
}

/// The layer a tensor belongs to: `blk.N.`.
fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// What the rules want to know of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub architecture: String,
    pub layers: usize,
    /// Query heads of the first layer.
    pub heads: usize,
    /// Key and value heads of the first layer.
    pub value_heads: usize,
    pub experts: usize,
}

impl Facts {
    /// As the metadata of a GGUF file has them.
    pub(super) fn of_gguf<'a>(
        metadata: &Metadata<'_>,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<Facts> {
        let architecture = metadata.get::<&str>("general.architecture")?.unwrap_or_default();
        let number = |key: &str| -> Result<Option<usize>> {
            let key = format!("{architecture}.{key}");
            match metadata.value(&key) {
                // One number per layer: the first layer stands for all.
                Some(Value::Array(_)) => {
                    let array = metadata.require::<Array<'_>>(&key)?;
                    Ok(array.iter().next().and_then(|value| value.as_integer()?.try_into().ok()))
                }
                _ => Ok(metadata.get::<usize>(&key)?),
            }
        };
        let heads = number("attention.head_count")?.unwrap_or(0);
        let highest = names.filter_map(layer).max();
        Ok(Facts {
            architecture: architecture.to_owned(),
            layers: number("block_count")?.unwrap_or(highest.map_or(0, |layer| layer.saturating_add(1))),
            heads,
            value_heads: number("attention.head_count_kv")?.unwrap_or(heads),
            experts: number("expert_count")?.unwrap_or(0),
        })
    }

    /// Whether it is one of the models of 70 billion parameters that llama.cpp knows by their layers.
    fn is_70b(&self) -> bool {
        match (self.architecture.as_str(), self.layers) {
            ("llama", 80) => self.heads != self.value_heads,
            ("qwen2", 80) => true,
            _ => false,
        }
    }
}
