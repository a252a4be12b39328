//! What tensors are called. Inside akunu they have GGUF's names; here is what Hugging Face calls them.

use crate::program::Slice;
use crate::{Error, Result, TensorSource};

/// Turns akunu's (GGUF's) tensor names into those of the file at hand. Names are stems, to which `.weight` or `.bias`
/// is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// How a checkpoint words them, and what stands before its words; `None` for GGUF.
    checkpoint: Option<(&'static Wording, &'static str)>,
    family: &'static str,
}

/// What the checkpoints of some families call their tensors.
#[derive(Debug, PartialEq, Eq)]
struct Wording {
    /// What may stand before every name: nothing, or the part of a larger model that this one is.
    prefixes: &'static [&'static str],
    /// Tensors of the whole model, ours and theirs; the first is in every file.
    globals: &'static [(&'static str, &'static str)],
    /// What the number of a layer follows.
    layers: &'static str,
    /// Tensors of a layer, ours and theirs.
    layer: &'static [(&'static str, &'static str)],
}

/// Decoders, alone or beside a vision tower.
const DECODER: Wording = Wording {
    prefixes: &["model.", "language_model.model.", "model.language_model.", ""],
    globals: &[("token_embd", "embed_tokens"), ("output_norm", "norm")],
    layers: "layers.",
    layer: &[
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
    ],
};

/// BERT and RoBERTa, alone or under a head of some task.
const BERT: Wording = Wording {
    prefixes: &["", "bert.", "roberta."],
    globals: &[
        ("token_embd", "embeddings.word_embeddings"),
        ("position_embd", "embeddings.position_embeddings"),
        ("token_types", "embeddings.token_type_embeddings"),
        ("token_embd_norm", "embeddings.LayerNorm"),
    ],
    layers: "encoder.layer.",
    layer: &[
        ("attn_q", "attention.self.query"),
        ("attn_k", "attention.self.key"),
        ("attn_v", "attention.self.value"),
        ("attn_output", "attention.output.dense"),
        ("attn_output_norm", "attention.output.LayerNorm"),
        ("ffn_up", "intermediate.dense"),
        ("ffn_down", "output.dense"),
        ("layer_output_norm", "output.LayerNorm"),
    ],
};

/// Nomic's BERT with rotations and gates.
const NOMIC: Wording = Wording {
    prefixes: &[""],
    globals: &[
        ("token_embd", "embeddings.word_embeddings"),
        ("token_types", "embeddings.token_type_embeddings"),
        ("token_embd_norm", "emb_ln"),
    ],
    layers: "encoder.layers.",
    layer: &[
        ("attn_qkv", "attn.Wqkv"),
        ("attn_output", "attn.out_proj"),
        ("attn_output_norm", "norm1"),
        ("ffn_up", "mlp.fc11"),
        ("ffn_gate", "mlp.fc12"),
        ("ffn_down", "mlp.fc2"),
        ("layer_output_norm", "norm2"),
    ],
};

/// The layers of Whisper's encoder and decoder in OpenAI's words.
const WHISPER_LAYER: [(&str, &str); 13] = [
    ("attn_norm", "attn_ln"),
    ("attn_q", "attn.query"),
    ("attn_k", "attn.key"),
    ("attn_v", "attn.value"),
    ("attn_output", "attn.out"),
    ("cross_norm", "cross_attn_ln"),
    ("cross_q", "cross_attn.query"),
    ("cross_k", "cross_attn.key"),
    ("cross_v", "cross_attn.value"),
    ("cross_output", "cross_attn.out"),
    ("ffn_norm", "mlp_ln"),
    ("ffn_up", "mlp.0"),
    // Number 1 is the activation between them.
    ("ffn_down", "mlp.2"),
];

/// Whisper's encoder and decoder in OpenAI's words, which whisper.cpp's files use as well.
static WHISPER: [Wording; 2] = [
    Wording {
        prefixes: &[""],
        globals: &[
            ("output_norm", "encoder.ln_post"),
            ("position_embd", "encoder.positional_embedding"),
            ("conv1", "encoder.conv1"),
            ("conv2", "encoder.conv2"),
        ],
        layers: "encoder.blocks.",
        layer: &WHISPER_LAYER,
    },
    Wording {
        prefixes: &[""],
        globals: &[
            ("output_norm", "decoder.ln"),
            ("token_embd", "decoder.token_embedding"),
            ("position_embd", "decoder.positional_embedding"),
        ],
        layers: "decoder.blocks.",
        layer: &WHISPER_LAYER,
    },
];

/// The layers of both in Hugging Face's words.
const WHISPER_HF_LAYER: [(&str, &str); 13] = [
    ("attn_norm", "self_attn_layer_norm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.out_proj"),
    ("cross_norm", "encoder_attn_layer_norm"),
    ("cross_q", "encoder_attn.q_proj"),
    ("cross_k", "encoder_attn.k_proj"),
    ("cross_v", "encoder_attn.v_proj"),
    ("cross_output", "encoder_attn.out_proj"),
    ("ffn_norm", "final_layer_norm"),
    ("ffn_up", "fc1"),
    ("ffn_down", "fc2"),
];

/// Both in Hugging Face's words.
const WHISPER_HF: [Wording; 2] = [
    Wording {
        prefixes: &["model.", ""],
        globals: &[
            ("output_norm", "encoder.layer_norm"),
            ("position_embd", "encoder.embed_positions"),
            ("conv1", "encoder.conv1"),
            ("conv2", "encoder.conv2"),
        ],
        layers: "encoder.layers.",
        layer: &WHISPER_HF_LAYER,
    },
    Wording {
        prefixes: &["model.", ""],
        globals: &[
            ("output_norm", "decoder.layer_norm"),
            ("token_embd", "decoder.embed_tokens"),
            ("position_embd", "decoder.embed_positions"),
        ],
        layers: "decoder.layers.",
        layer: &WHISPER_HF_LAYER,
    },
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
        Names { checkpoint: None, family: "" }
    }

    /// The names in a Hugging Face checkpoint of that family.
    pub(super) fn hugging_face(family: &'static str, tensors: &dyn TensorSource) -> Result<Names> {
        let wording = match family {
            "bert" => &BERT,
            "nomic-bert" => &NOMIC,
            _ => &DECODER,
        };
        Names::worded(family, wording, tensors)
    }

    /// The names of the encoder's and of the decoder's tensors in a model of speech.
    pub(super) fn speech(tensors: &dyn TensorSource) -> Result<[Names; 2]> {
        let both = |wordings: &'static [Wording; 2]| {
            let [encoder, decoder] = wordings;
            let worded = |wording| Names::worded("whisper", wording, tensors);
            Ok([worded(encoder)?, worded(decoder)?])
        };
        both(&WHISPER_HF).or_else(|_: Error| both(&WHISPER))
    }

    /// OpenAI's own names of the encoder's and of the decoder's tensors in a model of speech.
    pub fn openai() -> [Names; 2] {
        WHISPER.each_ref().map(|wording| Names { checkpoint: Some((wording, "")), family: "whisper" })
    }

    fn worded(family: &'static str, wording: &'static Wording, tensors: &dyn TensorSource) -> Result<Names> {
        let table = wording.globals[0].1;
        let known = |prefix: &&str| tensors.find(&format!("{prefix}{table}.weight")).is_some();
        let prefix = wording.prefixes.iter().copied().find(known).ok_or_else(|| Error::MissingTensor {
            name: format!("{}{table}.weight", wording.prefixes[0]),
            family: family.into(),
        })?;
        Ok(Names { checkpoint: Some((wording, prefix)), family })
    }

    /// The file's name for a tensor of the whole model (`token_embd`).
    pub fn global(&self, name: &str) -> String {
        let Some((wording, prefix)) = self.checkpoint else { return name.to_owned() };
        if name == "output" {
            let outer = prefix.strip_suffix("model.").unwrap_or_default();
            return format!("{outer}lm_head");
        }
        let theirs =
            wording.globals.iter().find(|(ours, _)| *ours == name).map_or(name, |(_, theirs)| theirs);
        format!("{prefix}{theirs}")
    }

    /// The file's name for a tensor of one layer (`attn_q`). The name of an expert's tensor in a Hugging Face
    /// checkpoint has `*` where the expert's number belongs.
    pub fn layer(&self, layer: usize, name: &str) -> String {
        let Some((wording, prefix)) = self.checkpoint else { return format!("blk.{layer}.{name}") };
        let exception = EXCEPTIONS.iter().find(|(family, ours, _)| *family == self.family && *ours == name);
        let theirs = exception
            .map(|(_, _, theirs)| *theirs)
            .or_else(|| wording.layer.iter().find(|(ours, _)| *ours == name).map(|(_, theirs)| *theirs))
            .unwrap_or(name);
        format!("{prefix}{}{layer}.{theirs}", wording.layers)
    }

    /// The file's names for the head of a model that judges pairs of texts, if it has one: a layer for the first token's state,
    /// and one that gives a number for each class.
    pub fn head(&self, tensors: &dyn TensorSource) -> Option<[String; 2]> {
        let (_, prefix) = self.checkpoint?;
        let bert = [format!("{prefix}pooler.dense"), "classifier".to_owned()];
        let roberta = ["classifier.dense", "classifier.out_proj"].map(str::to_owned);
        let is_there = |name: &String| tensors.find(&format!("{name}.weight")).is_some();
        [bert, roberta].into_iter().find(|head| head.iter().all(is_there))
    }

    /// Whether a tensor of that name in the file belongs to the model and must be used: in GGUF all but what rotations are
    /// described by, in a checkpoint (which may hold other models beside) those of the layers.
    pub fn must_be_used(&self, name: &str) -> bool {
        let derived = name.ends_with("rotary_emb.inv_freq") || name.contains("attn_rot_embd");
        let ours = match self.checkpoint {
            None => !name.starts_with("rope_f"),
            Some((wording, prefix)) => {
                name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(wording.layers))
            }
        };
        ours && !derived
    }
}

/// One expert's rows of a stacked weight.
pub(crate) fn expert_rows(stack: Slice, count: usize, expert: usize) -> Slice {
    let rows = stack.rows / count;
    Slice { first: stack.first + expert * rows, rows, ..stack }
}
