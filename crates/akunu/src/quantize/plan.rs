//! What becomes of every tensor, decided before anything is written.

use std::borrow::Cow;

use akunu_format::gguf::{Array, Metadata, Value};
use akunu_format::{DType, Data, Tensor};

use super::Recipe;
use super::rules::{self, Model, Place, Role};
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
    /// Whether its bytes stay the same.
    pub fn is_copied(&self) -> bool {
        self.from == self.to.name()
    }
}

/// Decides for every tensor, in the order in which they are to be written.
pub(super) fn plan<'a>(
    recipe: Recipe,
    metadata: &Metadata<'_>,
    tensors: impl Iterator<Item = Tensor<'a>>,
) -> Result<Vec<Planned>> {
    let mut tensors: Vec<Tensor<'a>> = tensors.collect();
    tensors.sort_by_key(|tensor| (layer(tensor.name), tensor.name));
    let facts = Facts::read(metadata, &tensors)?;
    let role_count = |role| tensors.iter().filter(|tensor| Role::of(tensor.name) == role).count();
    let values = role_count(Role::AttentionValue);

    let (mut value_index, mut down_index) = (0, 0);
    let mut planned = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        let Data::Blocks { dtype: from, .. } = tensor.data else { continue };
        let mut entry = Planned {
            name: tensor.name.to_owned(),
            shape: tensor.shape.to_vec(),
            from: tensor.dtype_name(),
            to: from,
            instead_of: None,
        };
        if rules::converts(tensor.name, tensor.shape) {
            let role = Role::of(tensor.name);
            let place = match role {
                Role::AttentionValue => Place { index: next(&mut value_index), count: values },
                Role::FeedForwardDown => {
                    let counted = next(&mut down_index);
                    // Experts may come in several matrices per layer.
                    let named = layer(tensor.name).filter(|_| facts.model.experts > 1);
                    Place { index: named.unwrap_or(counted), count: facts.layers }
                }
                _ => Place { index: 0, count: 0 },
            };
            let wanted = rules::wanted(recipe, &facts.model, role, place, tensor.row_len());
            entry.to = rules::fitting(wanted, tensor.row_len());
            entry.instead_of = (entry.to != wanted).then_some(wanted);
        }
        planned.push(entry);
    }
    Ok(planned)
}

fn next(counter: &mut usize) -> usize {
    *counter += 1;
    *counter - 1
}

/// The layer a tensor belongs to: `blk.N.`.
fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

struct Facts {
    model: Model,
    layers: usize,
}

impl Facts {
    fn read(metadata: &Metadata<'_>, tensors: &[Tensor<'_>]) -> Result<Facts> {
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
        let value_heads = number("attention.head_count_kv")?.unwrap_or(heads);
        let highest = tensors.iter().filter_map(|tensor| layer(tensor.name)).max();
        let layers = number("block_count")?.unwrap_or(highest.map_or(0, |layer| layer + 1));
        let is_70b = match (architecture, layers) {
            ("llama", 80) => heads != value_heads,
            ("qwen2", 80) => true,
            _ => false,
        };
        let model = Model {
            queries_per_value: heads.checked_div(value_heads).unwrap_or(0),
            experts: number("expert_count")?.unwrap_or(0),
            is_70b,
            tied: tensors.iter().all(|tensor| Role::of(tensor.name) != Role::Output),
        };
        Ok(Facts { model, layers })
    }
}
