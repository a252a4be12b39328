//! `config.json` as one flat object, with what its writers leave out.

use akunu_format::checkpoint::Config;
use serde_json::{Map, Value, json};

use crate::{Error, Result};

/// The settings of a checkpoint: the nested text model's over the outer ones, over the defaults of the model type.
///
/// A setting that is `null` is off, which is not the same as one that is left out: Mistral's `sliding_window`.
pub(super) fn flatten(config: &Config) -> Result<Value> {
    let malformed = |e: serde_json::Error| Error::config(config.path().display().to_string(), e.to_string());
    let Value::Object(mut outer) = serde_json::from_str(config.text()).map_err(malformed)? else {
        return Err(Error::config(config.path().display().to_string(), "it is not an object".into()));
    };
    if let Some(Value::Object(inner)) = outer.remove("text_config") {
        outer.extend(inner);
    }
    let model_type = outer.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let mut settings = defaults(model_type);
    settings.extend(outer);
    Ok(Value::Object(settings))
}

/// What `transformers` takes a setting to be when a file does not give it: those that published files leave out.
fn defaults(model_type: &str) -> Map<String, Value> {
    let defaults = match model_type {
        "llama" => json!({ "rms_norm_eps": 1e-6, "max_position_embeddings": 2048 }),
        "mistral" => json!({
            "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "sliding_window": 4096,
        }),
        "mixtral" => json!({
            "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072, "num_key_value_heads": 8, "rope_theta": 1e6,
            "num_local_experts": 8, "num_experts_per_tok": 2,
        }),
        "qwen2" => json!({ "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768 }),
        "qwen3" => json!({ "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "head_dim": 128 }),
        "qwen3_moe" => json!({
            "rms_norm_eps": 1e-6, "max_position_embeddings": 32_768, "num_key_value_heads": 4, "norm_topk_prob": false,
        }),
        "gemma" => json!({ "rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "head_dim": 256 }),
        "gemma2" => json!({
            "rms_norm_eps": 1e-6, "max_position_embeddings": 8192, "head_dim": 256, "num_attention_heads": 8,
            "num_key_value_heads": 4, "sliding_window": 4096, "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        }),
        "gemma3_text" => json!({
            "rms_norm_eps": 1e-6, "max_position_embeddings": 131_072, "head_dim": 256, "num_attention_heads": 8,
            "num_key_value_heads": 4, "sliding_window": 4096, "query_pre_attn_scalar": 256, "rope_theta": 1e6,
        }),
        "bert" | "roberta" | "xlm-roberta" | "camembert" => {
            json!({ "layer_norm_eps": 1e-12, "max_position_embeddings": 512 })
        }
        "nomic_bert" => json!({ "layer_norm_eps": 1e-12, "max_position_embeddings": 2048 }),
        "phi3" => json!({ "rms_norm_eps": 1e-5, "max_position_embeddings": 4096 }),
        _ => Value::Null,
    };
    match defaults {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_model_wins_over_the_outer_object_and_both_over_defaults() {
        let config = Config::from_json(
            r#"{ "model_type": "gemma3", "hidden_size": 1,
                 "text_config": { "model_type": "gemma3_text", "hidden_size": 640, "sliding_window": null } }"#,
        );
        let settings = flatten(&config.unwrap()).unwrap();
        assert_eq!(settings["model_type"], "gemma3_text");
        assert_eq!(settings["hidden_size"], 640);
        assert_eq!(settings["head_dim"], 256);
        assert!(settings["sliding_window"].is_null());
    }
}
