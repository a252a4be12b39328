//! The tensors of a checkpoint under GGUF's names and with GGUF's conventions.
//!
//! - Vectors become F32.
//! - llama: within each head, rows of queries and keys are reordered from two halves to pairs.
//! - Gemma: norms hold `1 + w`; there is never an output matrix; a scale of attention scores that GGUF has no key for is
//!   folded into what makes the queries.
//! - Experts: one tensor of three dimensions for each projection.
//! - Llama 3's rotation is a tensor of divisors, LongRoPE's two of them.

use std::collections::HashSet;
use std::f64::consts::PI;

use akunu_format::Tensor;
use akunu_format::checkpoint::Checkpoint;
use akunu_program::arch::{Architecture, FeedForward, Names};
use akunu_program::rope::{Rope, Scaling};
use serde_json::Value as Json;

use super::super::source::{Source, Values, interleaved_from};
use crate::{Error, Result};

/// Tensors of the whole model.
const GLOBAL: [&str; 3] = ["token_embd", "output_norm", "output"];

/// Parts of a layer that have a weight and may have a bias.
const PARTS: [&str; 15] = [
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_q_norm",
    "attn_k_norm",
    "attn_output",
    "post_attention_norm",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_inp",
    "post_ffw_norm",
];

/// Parts of a layer that every expert has its own of.
const EXPERT_PARTS: [&str; 3] = ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"];

/// Parts of names of tensors that a text model does without: other towers, and tables that follow from the settings.
const IGNORED: [&str; 6] = [
    "vision_tower.",
    "vision_model.",
    "multi_modal_projector.",
    "audio_tower.",
    "embed_vision.",
    "rotary_emb.inv_freq",
];

/// Layers of the largest Gemma 2 and 3, whose scores llama.cpp scales by the width per head.
const LARGEST_GEMMA: [usize; 2] = [46, 62];

/// What was found.
pub(super) struct Found<'a> {
    pub sources: Vec<Source<'a>>,
    /// What was left out, for people.
    pub notes: Vec<String>,
}

/// Finds every tensor of the architecture; one that has no place in it is an error.
pub(super) fn find<'a>(
    checkpoint: &'a Checkpoint,
    architecture: &Architecture,
    names: &Names,
) -> Result<Found<'a>> {
    let mut finder = Finder { checkpoint, architecture, taken: HashSet::new(), sources: Vec::new() };
    for name in GLOBAL {
        finder.take(&(names.global(name) + ".weight"), &format!("{name}.weight"), "")?;
    }
    for (layer, described) in architecture.layers.iter().enumerate() {
        for part in PARTS {
            for kind in ["weight", "bias"] {
                let theirs = format!("{}.{kind}", names.layer(layer, part));
                finder.take(&theirs, &format!("blk.{layer}.{part}.{kind}"), part)?;
            }
        }
        if let FeedForward::Experts { count, .. } = described.feed_forward {
            for part in EXPERT_PARTS {
                finder.take_experts(&(names.layer(layer, part) + ".weight"), count, layer, part)?;
            }
        }
    }
    if output_is_tied(checkpoint, architecture) {
        finder.sources.retain(|source| source.name != "output.weight");
    }
    finder.sources.extend(rotation_tensors(&architecture.ropes[0]));

    let left: Vec<_> =
        checkpoint.tensors().map(|tensor| tensor.name).filter(|name| !finder.taken.contains(*name)).collect();
    let (ignored, unknown): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|name| IGNORED.iter().any(|part| name.contains(part)));
    if let Some(name) = unknown.first() {
        return Err(Error::Format(akunu_format::Error::Unsupported {
            path: checkpoint.path().to_owned(),
            what: format!("the tensor \"{name}\" in a model of the family {}", architecture.family),
            hint: None,
        }));
    }
    let notes = match ignored.iter().filter(|name| !name.contains("rotary_emb")).count() {
        0 => Vec::new(),
        count => vec![format!("{count} tensors of parts other than the text model were left out")],
    };
    Ok(Found { sources: finder.sources, notes })
}

/// Whether the token embeddings give the logits, whatever the checkpoint holds besides.
fn output_is_tied(checkpoint: &Checkpoint, architecture: &Architecture) -> bool {
    let config = checkpoint.config().and_then(|config| serde_json::from_str::<Json>(config.text()).ok());
    let tied = config.as_ref().and_then(|config| {
        let text = config.get("text_config").and_then(|text| text.get("tie_word_embeddings"));
        text.or_else(|| config.get("tie_word_embeddings"))?.as_bool()
    });
    architecture.family.starts_with("gemma") || tied == Some(true)
}

struct Finder<'a, 'b> {
    checkpoint: &'a Checkpoint,
    architecture: &'b Architecture,
    /// Names in the checkpoint that have a place.
    taken: HashSet<String>,
    sources: Vec<Source<'a>>,
}

impl<'a> Finder<'a, '_> {
    /// Takes the tensor called `theirs`, if there is one, as `ours`. `part` is its role in a layer, if it is in one.
    fn take(&mut self, theirs: &str, ours: &str, part: &str) -> Result<()> {
        let Some(tensor) = self.checkpoint.get_tensor(theirs) else { return Ok(()) };
        self.taken.insert(theirs.to_owned());
        let shape = tensor.shape.to_vec();
        let interleaved = self.rows_of_a_head(&tensor, part)?;
        let factor = self.query_factor(part);
        let values = if shape.len() < 2 || part == "ffn_gate_inp" {
            let from = tensor.dtype_name();
            let mut values = tensor.to_f32()?;
            if let Some(head) = interleaved {
                values = (0..values.len()).map(|to| values[interleaved_from(to, head)]).collect();
            }
            if self.is_gemma() && ours.ends_with("norm.weight") {
                values.iter_mut().for_each(|value| *value = (*value + 1.0) * factor);
            }
            Values::Computed(values, from)
        } else if interleaved.is_some() || factor != 1.0 && part == "attn_q" {
            Values::Changed { tensor, interleaved, factor }
        } else {
            Values::Stored(tensor)
        };
        self.sources.push(Source { name: ours.to_owned(), shape, values });
        Ok(())
    }

    /// Takes the matrices of all experts; `theirs` has `*` for the number of the expert.
    fn take_experts(&mut self, theirs: &str, count: usize, layer: usize, part: &str) -> Result<()> {
        let mut tensors = Vec::with_capacity(count);
        for expert in 0..count {
            let name = theirs.replace('*', &expert.to_string());
            tensors.push(self.checkpoint.tensor(&name)?);
            self.taken.insert(name);
        }
        let Some(first) = tensors.first() else { return Ok(()) };
        if let Some(other) = tensors.iter().find(|tensor| tensor.shape != first.shape) {
            return Err(self.wrong_shape(other, format!("the first expert's is {:?}", first.shape)));
        }
        let shape = [&[count], first.shape].concat();
        let name = format!("blk.{layer}.{part}.weight");
        self.sources.push(Source { name, shape, values: Values::Stacked(tensors) });
        Ok(())
    }

    fn is_gemma(&self) -> bool {
        self.architecture.family.starts_with("gemma")
    }

    /// Rows of a head whose halves are to be interleaved, for queries and keys of the llama family.
    fn rows_of_a_head(&self, tensor: &Tensor<'_>, part: &str) -> Result<Option<usize>> {
        if self.architecture.family != "llama" || !matches!(part, "attn_q" | "attn_k") {
            return Ok(None);
        }
        let head = self.architecture.layers[0].head_dim;
        let rows = tensor.shape.first().copied().unwrap_or(0);
        if !rows.is_multiple_of(head) || !head.is_multiple_of(2) {
            return Err(self.wrong_shape(tensor, format!("expected heads of {head} rows")));
        }
        Ok(Some(head))
    }

    /// What queries are multiplied by, where the model scales scores by a number that GGUF has no key for. Gemma 3 has a
    /// norm to carry it.
    fn query_factor(&self, part: &str) -> f32 {
        let carrier = match self.architecture.family {
            "gemma2" => "attn_q",
            "gemma3" => "attn_q_norm",
            _ => return 1.0,
        };
        if part != carrier {
            return 1.0;
        }
        let layer = &self.architecture.layers[0];
        let is_largest = LARGEST_GEMMA.contains(&self.architecture.layers.len());
        let usual = if is_largest { self.architecture.hidden / layer.heads } else { layer.head_dim };
        let factor = layer.score_scale * (usual as f32).sqrt();
        // What is left of the usual scale after two roundings is none.
        if (factor - 1.0).abs() < 1e-6 { 1.0 } else { factor }
    }

    fn wrong_shape(&self, tensor: &Tensor<'_>, problem: String) -> Error {
        Error::Format(akunu_format::Error::Unsupported {
            path: self.checkpoint.path().to_owned(),
            what: format!("tensor \"{}\" of shape {:?}", tensor.name, tensor.shape),
            hint: Some(problem),
        })
    }
}

/// The tensors in which GGUF keeps what it cannot say in metadata.
fn rotation_tensors(rope: &Rope) -> Vec<Source<'static>> {
    let vector = |name: &str, values: Vec<f32>| Source {
        name: name.to_owned(),
        shape: vec![values.len()],
        values: Values::Computed(values, "F32".into()),
    };
    match &rope.scaling {
        Scaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let divisor = |pair: usize| {
                let frequency = rope.theta.powf(-((2 * pair) as f64) / rope.dims as f64);
                let turns = *original_context as f64 * frequency / (2.0 * PI);
                let keep = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                (1.0 / ((1.0 - keep) / factor + keep)) as f32
            };
            vec![vector("rope_freqs.weight", (0..rope.dims / 2).map(divisor).collect())]
        }
        Scaling::Long { short, long, .. } => {
            vec![
                vector("rope_factors_short.weight", short.clone()),
                vector("rope_factors_long.weight", long.clone()),
            ]
        }
        _ => Vec::new(),
    }
}
