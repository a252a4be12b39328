//! What a SafeTensors checkpoint says of its model: `config.json` and the tokenizer's files beside the weights.

use std::cell::RefCell;
use std::fmt;

use akunu_format::Data;
use akunu_format::checkpoint::{Checkpoint, Config};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::memory::{LayerCache, MAX_LAYERS, Span};
use super::whisper::{self, Sizes};
use super::{Encoder, Rope, RopeScaling, Shape, SlidingWindow, Summary, periodic_windows, tokenizer_files};
use crate::Result;

/// A configuration longer than this is not shown.
const SHOWN_CONFIG_BYTES: usize = 1 << 20;

/// Models that read a text whole and keep nothing.
const ENCODERS: [&str; 12] = [
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "new",
    "nomic_bert",
    "roberta",
    "xlm-roberta",
];

/// Fills in the summary; returns what each layer keeps in the key-value cache, where that can be told.
pub(super) fn describe(checkpoint: &Checkpoint, summary: &mut Summary) -> Result<Option<Vec<LayerCache>>> {
    let is_mlx = checkpoint.tensors().any(|tensor| matches!(tensor.data, Data::Affine(_)));
    summary.format = if is_mlx { "SafeTensors (MLX)" } else { "SafeTensors" }.to_owned();
    summary.add_files(checkpoint.files())?;
    tokenizer_files::describe(checkpoint, summary)?;
    let Some(config) = checkpoint.config() else { return Ok(None) };
    if config.text().len() <= SHOWN_CONFIG_BYTES {
        summary.metadata = serde_json::from_str(config.text()).unwrap_or_default();
    }
    let facts = Facts { config, problems: RefCell::default() };
    let cache = facts.describe(summary);
    summary.problems.extend(facts.problems.into_inner());
    Ok(cache)
}

/// A configuration.
struct Facts<'a> {
    config: &'a Config,
    /// What was asked for and has the wrong type, which counts as absent: this describes, it does not load.
    problems: RefCell<Vec<String>>,
}

impl<'a> Facts<'a> {
    /// Fills in what the configuration says; returns what each layer keeps.
    fn describe(&self, summary: &mut Summary) -> Option<Vec<LayerCache>> {
        let folder = summary.path.canonicalize().unwrap_or_default();
        let folder_name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        summary.name = self.get::<String>(&["_name_or_path"]).filter(|name| !name.is_empty()).or(folder_name);
        summary.architecture = self.get(&["model_type"]);
        if summary.architecture.as_deref() == Some("whisper") {
            summary.shape = self.whisper();
            return Some(whisper::cache(&summary.shape));
        }
        let window = self.window();
        summary.shape = self.shape(window.as_ref());
        if summary.architecture.as_deref().is_some_and(|family| ENCODERS.contains(&family)) {
            return Some(Vec::new());
        }
        self.cache(&summary.shape, window.as_ref())
    }

    /// The first of several spellings that is there.
    fn get<T: Deserialize<'a>>(&self, keys: &[&str]) -> Option<T> {
        keys.iter().find_map(|key| {
            self.config.get(key).unwrap_or_else(|error| {
                let problem = error.to_string();
                let mut problems = self.problems.borrow_mut();
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
                None
            })
        })
    }

    /// A number, or the largest of a list with one for each layer.
    fn largest(&self, keys: &[&str]) -> Option<u64> {
        match self.get(keys)? {
            PerLayer::Same(value) => Some(value),
            PerLayer::Each(values) => values.into_iter().max(),
        }
    }

    fn shape(&self, window: Option<&(u64, Vec<bool>)>) -> Shape {
        let heads = self.largest(&["num_attention_heads", "n_head", "n_heads"]);
        let embedding_length: Option<u64> = self.get(&["hidden_size", "n_embd", "d_model", "dim"]);
        Shape {
            context_length: self.get(&["max_position_embeddings", "n_positions", "max_seq_len"]),
            layers: self.get(&["num_hidden_layers", "n_layer", "n_layers", "num_layers"]),
            embedding_length,
            feed_forward_length: self.largest(&["intermediate_size", "n_inner", "hidden_dim"]),
            heads,
            kv_heads: self.largest(&["num_key_value_heads"]).or(heads),
            head_dim: self.get(&["head_dim"]).or_else(|| embedding_length?.checked_div(heads?)),
            vocabulary_size: self.get(&["vocab_size"]),
            experts: self.get(&["num_local_experts", "num_experts", "n_routed_experts"]),
            experts_used: self.get(&["num_experts_per_tok", "experts_per_token"]),
            sliding_window: window.map(|(size, per_layer)| SlidingWindow {
                size: *size,
                layers: per_layer.iter().filter(|&&is_local| is_local).count() as u64,
            }),
            rope: self.rope(),
            encoder: None,
        }
    }

    /// The window's size, and for each layer whether it has it.
    fn window(&self) -> Option<(u64, Vec<bool>)> {
        let size = self.get(&["sliding_window"]).filter(|&size: &u64| size > 0)?;
        if self.get(&["use_sliding_window"]) == Some(false) {
            return None;
        }
        if let Some(types) = self.get::<Vec<String>>(&["layer_types"]) {
            return Some((size, types.iter().map(|kind| kind == "sliding_attention").collect()));
        }
        let layers = self.get(&["num_hidden_layers"]).filter(|&layers: &u64| layers <= MAX_LAYERS)?;
        // Without a pattern every layer has the window, as in Mistral's first models.
        let period = self.get(&["sliding_window_pattern"]).unwrap_or(0);
        Some((size, periodic_windows(layers, period)))
    }

    fn cache(&self, shape: &Shape, window: Option<&(u64, Vec<bool>)>) -> Option<Vec<LayerCache>> {
        let layers = shape.layers.filter(|&layers| layers <= MAX_LAYERS)?;
        // Multi-head latent attention keeps one compressed vector and the rotated part of the key.
        let latent = self
            .get::<u64>(&["kv_lora_rank"])
            .and_then(|rank| rank.checked_add(self.get(&["qk_rope_head_dim"]).unwrap_or(0)));
        let elements = latent.or_else(|| shape.kv_heads?.checked_mul(shape.head_dim?)?.checked_mul(2))?;
        let span = |layer: usize| match window {
            Some((size, per_layer)) if per_layer.get(layer) == Some(&true) => Span::Window(*size),
            _ => Span::Context,
        };
        Some((0..layers as usize).map(|layer| LayerCache { elements, span: span(layer) }).collect())
    }

    fn rope(&self) -> Option<Rope> {
        let outer: RopeParameters = self.get(&["rope_parameters", "rope_scaling"]).unwrap_or_default();
        let parameters = outer.full_attention.unwrap_or(outer.own);
        let kind = parameters.rope_type.or(parameters.kind).filter(|kind| kind != "default");
        let base = self.get(&["rope_theta"]).or(parameters.rope_theta);
        let scaling = kind.map(|kind| RopeScaling {
            kind,
            factor: parameters.factor,
            original_context: parameters.original_max_position_embeddings,
        });
        (base.is_some() || scaling.is_some()).then_some(Rope { base, dimensions: None, scaling })
    }

    fn whisper(&self) -> Shape {
        let number = |key| self.get(&[key]).unwrap_or(0);
        whisper::shape(&Sizes {
            text_context: number("max_target_positions"),
            text_layers: number("decoder_layers"),
            text_width: number("d_model"),
            text_heads: number("decoder_attention_heads"),
            vocabulary: number("vocab_size"),
            encoder: Encoder {
                context_length: number("max_source_positions"),
                layers: number("encoder_layers"),
                embedding_length: number("d_model"),
                heads: number("encoder_attention_heads"),
                mels: number("num_mel_bins"),
            },
        })
    }
}

/// A number that may differ between layers.
enum PerLayer {
    Same(u64),
    Each(Vec<u64>),
}

impl<'de> Deserialize<'de> for PerLayer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = PerLayer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("u64 or a list of u64")
            }

            fn visit_u64<E>(self, value: u64) -> Result<PerLayer, E> {
                Ok(PerLayer::Same(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PerLayer, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(PerLayer::Each(values))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

/// `rope_scaling`, and `rope_parameters`, which may differ between kinds of layers.
#[derive(Default, Deserialize)]
struct RopeParameters {
    #[serde(flatten)]
    own: RopeOfLayer,
    /// Of the layers without a window.
    full_attention: Option<RopeOfLayer>,
}

#[derive(Default, Deserialize)]
struct RopeOfLayer {
    rope_type: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    original_max_position_embeddings: Option<u64>,
}
