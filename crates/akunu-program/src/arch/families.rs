//! One constructor per model family.

use crate::program::{Activation, Mask, NormKind};
use crate::rope::{Rope, RopeLayout, Scaling};
use crate::{Error, Result, TensorSource};

use super::facts::Facts;
use super::{Architecture, FeedForward, Layer};

const FAMILIES: &str =
    "llama, mixtral, qwen2, qwen3, qwen3moe, gemma, gemma2, gemma3, phi3, and to embed bert and nomic-bert";

fn unknown(name: &str) -> Error {
    Error::Unsupported { what: format!("the architecture \"{name}\""), supported: FAMILIES.into() }
}

/// The family of a Hugging Face `model_type`.
pub(super) fn from_model_type(model_type: &str) -> Result<&'static str> {
    Ok(match model_type {
        "llama" | "mistral" => "llama",
        "mixtral" => "mixtral",
        "qwen2" => "qwen2",
        "qwen3" => "qwen3",
        "qwen3_moe" => "qwen3moe",
        "gemma" => "gemma",
        "gemma2" => "gemma2",
        "gemma3" | "gemma3_text" => "gemma3",
        "phi3" => "phi3",
        "bert" | "roberta" | "xlm-roberta" | "camembert" => "bert",
        "nomic_bert" => "nomic-bert",
        other => return Err(unknown(other)),
    })
}

/// Describes a model of the named family.
pub(super) fn describe(family: &str, facts: &Facts<'_>, tensors: &dyn TensorSource) -> Result<Architecture> {
    // An unknown family is refused as such, and not for a setting that it may call otherwise.
    let describe: fn(Plain<'_>) -> Result<Architecture> = match family {
        "llama" | "mixtral" => llama,
        "qwen2" => |plain| qwen("qwen2", plain),
        "qwen3" => |plain| qwen("qwen3", plain),
        "qwen3moe" => |plain| qwen("qwen3moe", plain),
        "gemma" => gemma,
        "gemma2" => gemma2,
        "gemma3" => gemma3,
        "phi3" => phi3,
        "bert" => bert,
        "nomic-bert" => nomic_bert,
        other => return Err(unknown(other)),
    };
    describe(Plain::read(facts, tensors)?)
}

/// What all families have in common: a model of this kind with nothing special about it.
struct Plain<'a> {
    facts: &'a Facts<'a>,
    arch: Architecture,
}

impl<'a> Plain<'a> {
    fn read(facts: &'a Facts<'a>, tensors: &dyn TensorSource) -> Result<Plain<'a>> {
        let count = facts.need("block_count", "num_hidden_layers")?;
        if count > 4096 {
            return Err(Error::config(
                facts.key("block_count", "num_hidden_layers"),
                format!("{count} layers"),
            ));
        }
        let hidden = facts.need("embedding_length", "hidden_size")?;
        let heads = facts
            .per_layer("attention.head_count", "num_attention_heads", count)?
            .ok_or_else(|| missing(facts, "attention.head_count", "num_attention_heads"))?;
        let kv_heads = facts.per_layer("attention.head_count_kv", "num_key_value_heads", count)?;
        let head_dim = facts.count("attention.key_length", "head_dim")?;
        let inner = facts.per_layer("feed_forward_length", "intermediate_size", count)?;
        let experts = experts(facts)?;
        let mut layers = Vec::with_capacity(count);
        for i in 0..count {
            let heads = heads[i];
            let kv_heads = kv_heads.as_ref().map_or(heads, |kv| kv[i]);
            if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
                let key = facts.key("attention.head_count_kv", "num_key_value_heads");
                return Err(Error::config(key, format!("{kv_heads} does not divide {heads} heads")));
            }
            let head_dim = head_dim.unwrap_or(hidden / heads);
            if head_dim == 0 {
                let key = facts.key("attention.key_length", "head_dim");
                return Err(Error::config(key, format!("{hidden} elements for {heads} heads")));
            }
            let feed_forward = match (experts, &inner) {
                (Some(experts), _) => experts,
                (None, Some(inner)) if inner[i] > 0 => FeedForward::Dense { inner: inner[i] },
                (None, Some(_)) => {
                    let key = facts.key("feed_forward_length", "intermediate_size");
                    return Err(Error::config(key, "it must not be zero".into()));
                }
                (None, None) => return Err(missing(facts, "feed_forward_length", "intermediate_size")),
            };
            layers.push(Layer {
                heads,
                kv_heads,
                head_dim,
                window: None,
                rope: Some(0),
                score_scale: 1.0 / (head_dim as f32).sqrt(),
                score_cap: None,
                feed_forward,
            });
        }
        let eps = match facts.number("attention.layer_norm_rms_epsilon", "rms_norm_eps")? {
            Some(eps) => Some(eps),
            None => facts.number("attention.layer_norm_epsilon", "layer_norm_eps")?,
        };
        let eps = eps.ok_or_else(|| missing(facts, "attention.layer_norm_rms_epsilon", "rms_norm_eps"))?;
        let mut arch = Architecture {
            family: "",
            hidden,
            context: facts.need("context_length", "max_position_embeddings")?,
            layers,
            ropes: Vec::new(),
            mask: Mask::Causal,
            positions: None,
            norm: NormKind::Rms { offset: 0.0 },
            norm_after: false,
            norm_eps: eps as f32,
            activation: Activation::Silu,
            embedding_scale: 1.0,
            logit_cap: None,
        };
        arch.ropes.push(rope(facts, &arch, tensors)?);
        Ok(Plain { facts, arch })
    }

    /// Every layer sees only the last `sliding_window` positions, if the file says so.
    fn window_everywhere(&mut self) -> Result<()> {
        let window = self.facts.count("attention.sliding_window", "sliding_window")?.filter(|&w| w > 0);
        for layer in &mut self.arch.layers {
            layer.window = window;
        }
        Ok(())
    }

    /// Layers see a window except for every `pattern`-th, unless the file names each layer's kind.
    fn windows(&mut self, pattern: usize) -> Result<()> {
        let window = self.facts.need("attention.sliding_window", "sliding_window")?;
        let windowed = self.facts.windowed_layers(self.arch.layers.len(), pattern)?;
        for (layer, windowed) in self.arch.layers.iter_mut().zip(windowed) {
            layer.window = windowed.then_some(window);
        }
        Ok(())
    }

    /// What encoders have in common: every token sees all others, and layer norms after each block.
    fn encoder(&mut self, usual: Activation) -> Result<()> {
        self.arch.mask = Mask::Full;
        self.arch.norm = NormKind::Layer;
        self.arch.norm_after = true;
        self.arch.activation = match self.facts.text("", "hidden_act")? {
            None => usual,
            Some("silu" | "swish") => Activation::Silu,
            Some("gelu") => Activation::GeluErf,
            Some("gelu_new" | "gelu_pytorch_tanh") => Activation::GeluTanh,
            Some(other) => {
                let what = format!("the activation \"{other}\"");
                return Err(Error::Unsupported { what, supported: "silu, gelu and its tanh form".into() });
            }
        };
        Ok(())
    }

    /// Gemma's common traits. Its checkpoints store norm weights less one; GGUF files have the one added already.
    fn gemma(&mut self) {
        self.arch.activation = Activation::GeluTanh;
        self.arch.embedding_scale = (self.arch.hidden as f32).sqrt();
        let offset = if self.facts.is_gguf() { 0.0 } else { 1.0 };
        self.arch.norm = NormKind::Rms { offset };
    }

    /// Gemma divides scores by the root of a configured number, which GGUF does not store: it is the head size in all
    /// models but the largest, where it is the hidden size per head.
    fn gemma_score_scale(&mut self, largest: usize) -> Result<()> {
        let given = self.facts.number("attention.query_pre_attn_scalar", "query_pre_attn_scalar")?;
        let is_largest = self.facts.is_gguf() && self.arch.layers.len() == largest;
        for layer in &mut self.arch.layers {
            let derived = if is_largest { self.arch.hidden / layer.heads } else { layer.head_dim };
            layer.score_scale = (1.0 / given.unwrap_or(derived as f64).sqrt()) as f32;
        }
        Ok(())
    }
}

fn missing(facts: &Facts<'_>, gguf: &str, json: &str) -> Error {
    Error::config(facts.key(gguf, json), "it is missing".into())
}

/// Llama 1 to 3, Mistral with its window, TinyLlama, SmolLM, and Mixtral's experts.
fn llama(mut plain: Plain<'_>) -> Result<Architecture> {
    plain.window_everywhere()?;
    Ok(Architecture { family: "llama", ..plain.arch })
}

/// Qwen's biases and per-head norms show in its tensors; what is left is a window that is off unless asked for.
fn qwen(family: &'static str, mut plain: Plain<'_>) -> Result<Architecture> {
    if plain.facts.flag("use_sliding_window", "use_sliding_window")? == Some(true) {
        let windowed_from = plain.facts.need("", "max_window_layers")?;
        plain.window_everywhere()?;
        plain.arch.layers.iter_mut().take(windowed_from).for_each(|layer| layer.window = None);
    }
    Ok(Architecture { family, ..plain.arch })
}

fn gemma(mut plain: Plain<'_>) -> Result<Architecture> {
    plain.gemma();
    Ok(Architecture { family: "gemma", ..plain.arch })
}

fn gemma2(mut plain: Plain<'_>) -> Result<Architecture> {
    plain.gemma();
    plain.windows(2)?;
    plain.gemma_score_scale(46)?;
    let cap = plain.facts.number("attn_logit_softcapping", "attn_logit_softcapping")?;
    for layer in &mut plain.arch.layers {
        layer.score_cap = cap.map(|c| c as f32);
    }
    let logit_cap =
        plain.facts.number("final_logit_softcapping", "final_logit_softcapping")?.map(|c| c as f32);
    Ok(Architecture { family: "gemma2", logit_cap, ..plain.arch })
}

/// Five local layers to one global layer, each kind with its own rotation.
fn gemma3(mut plain: Plain<'_>) -> Result<Architecture> {
    plain.gemma();
    plain.windows(6)?;
    plain.gemma_score_scale(62)?;
    let theta = match plain.facts.json("rope_parameters.sliding_attention") {
        Some(_) => plain.facts.number("", "rope_parameters.sliding_attention.rope_theta")?,
        None => plain.facts.number("rope.freq_base_swa", "rope_local_base_freq")?,
    };
    let local =
        Rope { theta: theta.unwrap_or(10_000.0), scaling: Scaling::None, ..plain.arch.ropes[0].clone() };
    plain.arch.ropes.push(local);
    for layer in plain.arch.layers.iter_mut().filter(|layer| layer.window.is_some()) {
        layer.rope = Some(1);
    }
    let logit_cap =
        plain.facts.number("final_logit_softcapping", "final_logit_softcapping")?.map(|c| c as f32);
    Ok(Architecture { family: "gemma3", logit_cap, ..plain.arch })
}

fn phi3(mut plain: Plain<'_>) -> Result<Architecture> {
    plain.window_everywhere()?;
    Ok(Architecture { family: "phi3", ..plain.arch })
}

/// BERT and RoBERTa: positions that are learned. RoBERTa counts them from the number after its padding token's; GGUF files
/// leave the rows before out.
fn bert(mut plain: Plain<'_>) -> Result<Architecture> {
    let roberta = plain.facts.text("", "model_type")?.is_some_and(|name| name != "bert");
    let before = if roberta { plain.facts.count("", "pad_token_id")?.unwrap_or(1) + 1 } else { 0 };
    if let Some(kind) = plain.facts.text("", "position_embedding_type")?.filter(|&kind| kind != "absolute") {
        let what = format!("positions of the type \"{kind}\"");
        return Err(Error::Unsupported { what, supported: "\"absolute\"".into() });
    }
    plain.encoder(Activation::GeluErf)?;
    plain.arch.positions = Some(before);
    plain.arch.context = plain.arch.context.saturating_sub(before);
    plain.arch.ropes.clear();
    for layer in &mut plain.arch.layers {
        layer.rope = None;
        if let FeedForward::Dense { inner } = layer.feed_forward {
            layer.feed_forward = FeedForward::Plain { inner };
        }
    }
    Ok(Architecture { family: "bert", ..plain.arch })
}

/// Nomic's BERT: rotations, and gates in the feed-forward blocks.
fn nomic_bert(mut plain: Plain<'_>) -> Result<Architecture> {
    plain.encoder(Activation::Silu)?;
    Ok(Architecture { family: "nomic-bert", ..plain.arch })
}

fn experts(facts: &Facts<'_>) -> Result<Option<FeedForward>> {
    let count = match facts.count("expert_count", "num_experts")? {
        Some(count) => Some(count),
        None => facts.count("expert_count", "num_local_experts")?,
    };
    let Some(count) = count.filter(|&n| n > 0) else { return Ok(None) };
    let dense_layers =
        facts.json("mlp_only_layers").and_then(|list| list.as_array()).is_some_and(|list| !list.is_empty());
    if dense_layers || facts.count("", "decoder_sparse_step")?.is_some_and(|step| step != 1) {
        return Err(Error::Unsupported {
            what: "a mixture of experts in some layers only (mlp_only_layers, decoder_sparse_step)".into(),
            supported: "mixtures in all layers or none".into(),
        });
    }
    let chosen = facts.need("expert_used_count", "num_experts_per_tok")?;
    if chosen > count {
        let key = facts.key("expert_used_count", "num_experts_per_tok");
        return Err(Error::config(key, format!("{chosen} of {count} experts")));
    }
    let inner = match facts.count("expert_feed_forward_length", "moe_intermediate_size")? {
        Some(inner) => inner,
        None => facts.need("feed_forward_length", "intermediate_size")?,
    };
    // Mixtral always rescales the chosen weights; Qwen 3 says, and all released models say yes.
    let normalize = facts.flag("expert_weights_norm", "norm_topk_prob")?.unwrap_or(true);
    Ok(Some(FeedForward::Experts { count, chosen, inner, normalize }))
}

/// The rotation of global layers.
fn rope(facts: &Facts<'_>, arch: &Architecture, tensors: &dyn TensorSource) -> Result<Rope> {
    let head_dim = arch.layers[0].head_dim;
    match facts {
        Facts::Gguf { family, .. } => {
            let dims = facts.count("rope.dimension_count", "")?.unwrap_or(head_dim);
            let layout = if *family == "llama" { RopeLayout::Interleaved } else { RopeLayout::SplitHalf };
            let theta = facts.number("rope.freq_base", "")?.unwrap_or(10_000.0);
            let scaling = gguf_scaling(facts, tensors)?;
            checked(Rope { layout, dims, theta, scaling }, head_dim)
        }
        Facts::Json(_) => {
            // Newer files hold everything in `rope_parameters`, keyed by the kind of layer where kinds differ.
            let section = ["rope_parameters.full_attention", "rope_parameters", "rope_scaling"];
            let section = section.into_iter().find(|s| facts.json(s).is_some()).unwrap_or("rope_scaling");
            let partial = match facts.number("", &format!("{section}.partial_rotary_factor"))? {
                Some(partial) => Some(partial),
                None => facts.number("", "partial_rotary_factor")?,
            };
            let theta = match facts.number("", &format!("{section}.rope_theta"))? {
                Some(theta) => Some(theta),
                None => facts.number("", "rope_theta")?,
            };
            let rope = Rope {
                layout: RopeLayout::SplitHalf,
                dims: (head_dim as f64 * partial.unwrap_or(1.0)) as usize,
                theta: theta.unwrap_or(10_000.0),
                scaling: json_scaling(facts, section, arch.context)?,
            };
            checked(rope, head_dim)
        }
    }
}

fn checked(rope: Rope, head_dim: usize) -> Result<Rope> {
    if rope.dims > head_dim {
        let problem = format!("{} rotated elements in heads of {head_dim}", rope.dims);
        return Err(Error::config("rope dimensions", problem));
    }
    Ok(rope)
}

fn refused(kind: &str) -> Error {
    Error::Unsupported {
        what: format!("the rope scaling \"{kind}\""),
        supported: "none, linear, llama3, yarn and longrope".into(),
    }
}

fn gguf_scaling(facts: &Facts<'_>, tensors: &dyn TensorSource) -> Result<Scaling> {
    let factors = |name: &str| match tensors.find(name) {
        Some(tensor) => tensor.to_f32().map(Some),
        None => Ok(None),
    };
    let factor = facts.number("rope.scaling.factor", "")?;
    let original = facts.count("rope.scaling.original_context_length", "")?;
    if let (Some(long), Some(short)) =
        (factors("rope_factors_long.weight")?, factors("rope_factors_short.weight")?)
    {
        return Ok(Scaling::Long {
            short,
            long,
            original_context: original
                .ok_or_else(|| missing(facts, "rope.scaling.original_context_length", ""))?,
            attention_factor: facts.number("rope.scaling.attn_factor", "")?.unwrap_or(1.0),
        });
    }
    if let Some(factors) = factors("rope_freqs.weight")? {
        return Ok(Scaling::Factors { factors });
    }
    let need_factor = || factor.filter(|&f| f > 0.0).ok_or_else(|| missing(facts, "rope.scaling.factor", ""));
    match facts.text("rope.scaling.type", "")? {
        None | Some("none") => Ok(match facts.number("rope.scale_linear", "")? {
            Some(factor) if factor > 0.0 && factor != 1.0 => Scaling::Linear { factor },
            _ => Scaling::None,
        }),
        Some("linear") => Ok(Scaling::Linear { factor: need_factor()? }),
        Some("yarn") => Ok(Scaling::Yarn {
            factor: need_factor()?,
            original_context: original
                .ok_or_else(|| missing(facts, "rope.scaling.original_context_length", ""))?,
            beta_fast: facts.number("rope.scaling.yarn_beta_fast", "")?.unwrap_or(32.0),
            beta_slow: facts.number("rope.scaling.yarn_beta_slow", "")?.unwrap_or(1.0),
            attention_factor: facts.number("rope.scaling.yarn_attn_factor", "")?,
            truncate: true,
        }),
        Some(other) => Err(refused(other)),
    }
}

fn json_scaling(facts: &Facts<'_>, section: &str, context: usize) -> Result<Scaling> {
    let at = |key: &str| format!("{section}.{key}");
    let kind = match facts.text("", &at("rope_type"))? {
        Some(kind) => kind,
        None => facts.text("", &at("type"))?.unwrap_or("default"),
    };
    let number = |key: &str| facts.number("", &at(key));
    let need = |key: &str| number(key)?.ok_or_else(|| Error::config(at(key), "it is missing".into()));
    let original = match facts.count("", &at("original_max_position_embeddings"))? {
        Some(original) => original,
        None => facts.count("", "original_max_position_embeddings")?.unwrap_or(context),
    };
    // How much longer the context became, where it is not said.
    let stretch = context as f64 / original.max(1) as f64;
    Ok(match kind {
        "default" => Scaling::None,
        "linear" => Scaling::Linear { factor: need("factor")? },
        "llama3" => Scaling::Llama3 {
            factor: need("factor")?,
            low_freq_factor: need("low_freq_factor")?,
            high_freq_factor: need("high_freq_factor")?,
            original_context: original,
        },
        "yarn" => {
            let factor = number("factor")?.unwrap_or(stretch);
            let temperature = |m: f64| if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 };
            let ratio = match (number("mscale")?, number("mscale_all_dim")?) {
                (Some(m), Some(all)) if m != 0.0 && all != 0.0 => Some(temperature(m) / temperature(all)),
                _ => None,
            };
            Scaling::Yarn {
                factor,
                original_context: original,
                beta_fast: number("beta_fast")?.filter(|&b| b != 0.0).unwrap_or(32.0),
                beta_slow: number("beta_slow")?.filter(|&b| b != 0.0).unwrap_or(1.0),
                attention_factor: number("attention_factor")?.or(ratio),
                truncate: facts.flag("", &at("truncate"))?.unwrap_or(true),
            }
        }
        "longrope" | "su" => {
            let list = |key: &str| {
                facts.json_numbers(&at(key))?.ok_or_else(|| Error::config(at(key), "it is missing".into()))
            };
            let factor = number("factor")?.unwrap_or(stretch);
            let derived =
                if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() };
            Scaling::Long {
                short: list("short_factor")?,
                long: list("long_factor")?,
                original_context: original,
                attention_factor: number("attention_factor")?.unwrap_or(derived),
            }
        }
        other => return Err(refused(other)),
    })
}
