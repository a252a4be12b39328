//! The settings of a model as GGUF metadata.

use akunu_format::checkpoint::Checkpoint;
use akunu_format::gguf::Writer;
use akunu_program::arch::{Architecture, FeedForward, Layer};
use akunu_program::rope::{Rope, Scaling};

use crate::{Error, Result};

/// In every so many layers of these families one sees all positions, unless the file says otherwise.
const WINDOW_PATTERNS: [(&str, usize); 2] = [("gemma2", 2), ("gemma3", 6)];

/// Writes everything but the vocabulary, whose size is the number of rows of the embeddings.
pub(super) fn write(
    checkpoint: &Checkpoint,
    architecture: &Architecture,
    embedding_rows: usize,
    header: &mut Writer,
) -> Result<()> {
    header.metadata("general.architecture", architecture.family)?;
    header.metadata("general.type", "model")?;
    let path = checkpoint.path().canonicalize().unwrap_or_else(|_| checkpoint.path().to_owned());
    if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
        header.metadata("general.name", name)?;
    }
    let [first, ..] = architecture.layers.as_slice() else {
        return Err(unsupported(checkpoint, "a model without layers"));
    };
    let mut keys = Keys { family: architecture.family, header };
    keys.number("block_count", architecture.layers.len())?;
    keys.number("vocab_size", embedding_rows)?;
    keys.number("context_length", architecture.context)?;
    keys.number("embedding_length", architecture.hidden)?;
    keys.number("attention.head_count", same(checkpoint, architecture, "heads", |layer| layer.heads)?)?;
    keys.number(
        "attention.head_count_kv",
        same(checkpoint, architecture, "KV heads", |layer| layer.kv_heads)?,
    )?;
    keys.number("attention.key_length", first.head_dim)?;
    keys.number("attention.value_length", first.head_dim)?;
    keys.float("attention.layer_norm_rms_epsilon", architecture.norm_eps.into())?;
    let feed_forward = same(checkpoint, architecture, "feed-forward widths", |layer| layer.feed_forward)?;
    write_feed_forward(feed_forward, &mut keys)?;
    write_windows(checkpoint, architecture, &mut keys)?;
    if let Some(cap) = first.score_cap {
        keys.float("attn_logit_softcapping", cap.into())?;
    }
    if let Some(cap) = architecture.logit_cap {
        keys.float("final_logit_softcapping", cap.into())?;
    }
    write_rope(checkpoint, architecture, &mut keys)
}

/// Keys that begin with the name of the family.
struct Keys<'a> {
    family: &'static str,
    header: &'a mut Writer,
}

impl Keys<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.family)
    }

    /// GGUF's counts have 32 bits.
    fn number(&mut self, key: &str, value: usize) -> Result<()> {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        self.header.metadata(&self.key(key), &value)?;
        Ok(())
    }

    fn float(&mut self, key: &str, value: f64) -> Result<()> {
        self.header.metadata(&self.key(key), &(value as f32))?;
        Ok(())
    }
}

/// What all layers have in common; where they differ, GGUF has no key that all readers know.
fn same<T: PartialEq>(
    checkpoint: &Checkpoint,
    architecture: &Architecture,
    what: &str,
    of: impl Fn(&Layer) -> T,
) -> Result<T> {
    let first = of(&architecture.layers[0]);
    if architecture.layers.iter().any(|layer| of(layer) != first) {
        return Err(unsupported(checkpoint, &format!("layers with different {what}")));
    }
    Ok(first)
}

fn write_feed_forward(feed_forward: FeedForward, keys: &mut Keys<'_>) -> Result<()> {
    match feed_forward {
        FeedForward::Plain { inner } | FeedForward::Dense { inner } => {
            keys.number("feed_forward_length", inner)
        }
        FeedForward::Experts { count, chosen, inner, normalize } => {
            keys.number("feed_forward_length", inner)?;
            keys.number("expert_count", count)?;
            keys.number("expert_used_count", chosen)?;
            if keys.family != "llama" {
                keys.number("expert_feed_forward_length", inner)?;
            }
            if !normalize {
                keys.header.metadata(&keys.key("expert_weights_norm"), &false)?;
            }
            Ok(())
        }
    }
}

fn write_windows(checkpoint: &Checkpoint, architecture: &Architecture, keys: &mut Keys<'_>) -> Result<()> {
    let windowed: Vec<bool> = architecture.layers.iter().map(|layer| layer.window.is_some()).collect();
    let Some(window) = architecture.layers.iter().find_map(|layer| layer.window) else {
        // Files of this family say so when there is none.
        return if architecture.family == "phi3" {
            keys.number("attention.sliding_window", 0)
        } else {
            Ok(())
        };
    };
    keys.number("attention.sliding_window", window)?;
    let usual = match WINDOW_PATTERNS.iter().find(|(family, _)| *family == architecture.family) {
        Some((_, pattern)) => (1..=windowed.len()).map(|n| !n.is_multiple_of(*pattern)).collect(),
        None if architecture.family.starts_with("qwen") || windowed.contains(&false) => {
            return Err(unsupported(checkpoint, "sliding windows in some layers of this family"));
        }
        None => windowed.clone(),
    };
    if windowed != usual {
        keys.header.metadata(&keys.key("attention.sliding_window_pattern"), &windowed)?;
    }
    Ok(())
}

fn write_rope(checkpoint: &Checkpoint, architecture: &Architecture, keys: &mut Keys<'_>) -> Result<()> {
    let Rope { dims, theta, scaling, .. } = &architecture.ropes[0];
    keys.number("rope.dimension_count", *dims)?;
    keys.float("rope.freq_base", *theta)?;
    if let Some(local) = architecture.ropes.get(1) {
        keys.float("rope.freq_base_swa", local.theta)?;
    }
    let scaling_type = |keys: &mut Keys<'_>, name: &str| -> Result<()> {
        keys.header.metadata(&keys.key("rope.scaling.type"), name)?;
        Ok(())
    };
    match scaling {
        // Llama 3's divisors are a tensor.
        Scaling::None | Scaling::Llama3 { .. } | Scaling::Factors { .. } => {}
        Scaling::Linear { factor } => {
            scaling_type(keys, "linear")?;
            keys.float("rope.scaling.factor", *factor)?;
        }
        Scaling::Yarn { truncate: false, .. } => {
            return Err(unsupported(checkpoint, "a YaRN rotation without rounding (\"truncate\": false)"));
        }
        Scaling::Yarn {
            factor,
            original_context,
            beta_fast,
            beta_slow,
            attention_factor,
            truncate: true,
        } => {
            scaling_type(keys, "yarn")?;
            keys.float("rope.scaling.factor", *factor)?;
            keys.number("rope.scaling.original_context_length", *original_context)?;
            keys.float("rope.scaling.yarn_beta_fast", *beta_fast)?;
            keys.float("rope.scaling.yarn_beta_slow", *beta_slow)?;
            if let Some(factor) = attention_factor {
                keys.float("rope.scaling.yarn_attn_factor", *factor)?;
            }
        }
        // The divisors are two tensors.
        Scaling::Long { original_context, attention_factor, .. } => {
            keys.number("rope.scaling.original_context_length", *original_context)?;
            keys.float("rope.scaling.attn_factor", *attention_factor)?;
        }
    }
    Ok(())
}

fn unsupported(checkpoint: &Checkpoint, what: &str) -> Error {
    Error::Format(akunu_format::Error::Unsupported {
        path: checkpoint.path().to_owned(),
        what: format!("converting {what} to GGUF"),
        hint: None,
    })
}
