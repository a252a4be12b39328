//! What tensors are called. Inside akunu they have GGUF's names; here is what Hugging Face calls them.

use crate::program::Slice;
use crate::{Error, Result, TensorSource};

/// Turns akunu's (GGUF's) tensor names into those of the file at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The part before `layers.` in a Hugging Face checkpoint; `None` for GGUF.
    prefix: Option<&'static str>,
    family: &'static str,
}

/// Where Hugging Face checkpoints keep the decoder: alone, or beside a vision tower.
const PREFIXES: [&str; 3] = ["model.", "language_model.model.", "model.language_model."];

/// Names within a layer, alike in all families.
const LAYER: [(&str, &str); 16] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
    ("ffn_up_exps", "mlp.experts.*.up_proj"),
    ("ffn_down_exps", "mlp.experts.*.down_proj"),
];

/// What single families call otherwise.
const EXCEPTIONS: [(&str, &str, &str); 11] = [
    ("gemma2", "post_attention_norm", "post_attention_layernorm"),
    ("gemma2", "ffn_norm", "pre_feedforward_layernorm"),
    ("gemma2", "post_ffw_norm", "post_feedforward_layernorm"),
    ("gemma3", "post_attention_norm", "post_attention_layernorm"),
    ("gemma3", "ffn_norm", "pre_feedforward_layernorm"),
    ("gemma3", "post_ffw_norm", "post_feedforward_layernorm"),
    ("phi3", "ffn_up", "mlp.gate_up_proj"),
    ("mixtral", "ffn_gate_inp", "block_sparse_moe.gate"),
    ("mixtral", "ffn_gate_exps", "block_sparse_moe.experts.*.w1"),
    ("mixtral", "ffn_up_exps", "block_sparse_moe.experts.*.w3"),
    ("mixtral", "ffn_down_exps", "block_sparse_moe.experts.*.w2"),
];

impl Names {
    /// GGUF's own names.
    pub(super) fn gguf() -> Names {
        Names { prefix: None, family: "" }
    }

    /// The names in a Hugging Face checkpoint of that family.
    pub(super) fn hugging_face(family: &'static str, tensors: &dyn TensorSource) -> Result<Names> {
        let embedding = |prefix: &&str| tensors.find(&format!("{prefix}embed_tokens.weight")).is_some();
        let prefix = PREFIXES.into_iter().find(embedding).ok_or_else(|| Error::MissingTensor {
            name: "model.embed_tokens.weight".into(),
            family: family.into(),
        })?;
        Ok(Names { prefix: Some(prefix), family })
    }

    /// The file's name for a tensor of the whole model (`token_embd.weight`).
    pub fn global(&self, name: &str) -> String {
        let Some(prefix) = self.prefix else { return name.to_owned() };
        match name {
            "token_embd.weight" => format!("{prefix}embed_tokens.weight"),
            "output_norm.weight" => format!("{prefix}norm.weight"),
            "output.weight" => {
                let outer = prefix.strip_suffix("model.").unwrap_or_default();
                format!("{outer}lm_head.weight")
            }
            other => other.to_owned(),
        }
    }

    /// The file's name for a tensor of one layer (`attn_q`, `weight`). The name of an expert's tensor in a Hugging Face
    /// checkpoint has `*` where the expert's number belongs.
    pub fn layer(&self, layer: usize, name: &str, kind: &str) -> String {
        let Some(prefix) = self.prefix else { return format!("blk.{layer}.{name}.{kind}") };
        let exception = EXCEPTIONS.iter().find(|(family, ours, _)| *family == self.family && *ours == name);
        let theirs = exception
            .map(|(_, _, theirs)| *theirs)
            .or_else(|| LAYER.iter().find(|(ours, _)| *ours == name).map(|(_, theirs)| *theirs))
            .unwrap_or(name);
        format!("{prefix}layers.{layer}.{theirs}.{kind}")
    }

    /// Whether a tensor of that name in the file belongs to the model and must be used: in GGUF all but what rotations are
    /// described by, in a checkpoint (which may hold other models beside) those of the layers.
    pub fn must_be_used(&self, name: &str) -> bool {
        let derived = name.ends_with("rotary_emb.inv_freq") || name.contains("attn_rot_embd");
        let ours = match self.prefix {
            None => !name.starts_with("rope_f"),
            Some(prefix) => name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("layers.")),
        };
        ours && !derived
    }
}

/// One expert's rows of a stacked weight.
pub(crate) fn expert_rows(stack: Slice, count: usize, expert: usize) -> Slice {
    let rows = stack.rows / count;
    Slice { first: stack.first + expert * rows, rows, ..stack }
}
