//! Summaries of files made on the spot: families, windows, odd and broken metadata.

use std::fs;
use std::path::Path;

use akunu::Summary;
use akunu_format::gguf::Writer;
use akunu_format::{DType, ModelFile, Result};
use serde_json::{Value, json};

/// Writes a GGUF file with one tensor and these numbers below the architecture's prefix.
fn gguf(path: &Path, architecture: &str, numbers: &[(&str, u32)]) -> Result<()> {
    let mut writer = Writer::new();
    writer.metadata("general.architecture", architecture)?;
    for (key, value) in numbers {
        writer.metadata(&format!("{architecture}.{key}"), value)?;
    }
    finish(writer, path)
}

fn finish(mut writer: Writer, path: &Path) -> Result<()> {
    writer.tensor("x", DType::F16, &[4])?;
    let mut tensors = writer.create(path)?;
    tensors.append("x", &[0; 8])?;
    tensors.finish()
}

/// Writes a checkpoint with one tensor.
fn checkpoint(folder: &Path, config: &Value) {
    let header = br#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let mut weights = (header.len() as u64).to_le_bytes().to_vec();
    weights.extend_from_slice(header);
    weights.extend_from_slice(&[0; 8]);
    fs::write(folder.join("model.safetensors"), weights).unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

fn summary(path: &Path, context: Option<u64>) -> Summary {
    Summary::of(&ModelFile::open(path).unwrap(), context).unwrap()
}

#[test]
fn windows_of_a_family_are_known_and_save_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let numbers = [
        ("block_count", 18),
        ("embedding_length", 640),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 256),
        ("attention.value_length", 256),
        ("attention.sliding_window", 512),
    ];
    gguf(&path, "gemma3", &numbers).unwrap();
    let gemma = summary(&path, Some(4096));
    let window = gemma.shape.sliding_window.unwrap();
    assert_eq!((window.size, window.layers), (512, 15));
    // 15 layers of 512 positions and 3 of 4096, keys and values of 256, two bytes each.
    assert_eq!(gemma.memory.unwrap().kv_cache, Some((15 * 512 + 3 * 4096) * 512 * 2));

    gguf(&path, "unheard-of", &numbers).unwrap();
    let other = summary(&path, Some(4096));
    assert_eq!(other.shape.sliding_window, None, "no pattern is guessed");
    assert_eq!(other.memory.unwrap().kv_cache, Some(18 * 4096 * 512 * 2));
}

#[test]
fn a_pattern_in_the_file_counts_before_the_familys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut writer = Writer::new();
    writer.metadata("general.architecture", "gemma3").unwrap();
    writer.metadata("gemma3.block_count", &3_u32).unwrap();
    writer.metadata("gemma3.attention.sliding_window", &64_u32).unwrap();
    writer.metadata("gemma3.attention.sliding_window_pattern", &[true, false, true]).unwrap();
    finish(writer, &path).unwrap();
    assert_eq!(summary(&path, None).shape.sliding_window.unwrap().layers, 2);
}

#[test]
fn heads_may_differ_between_layers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut writer = Writer::new();
    writer.metadata("general.architecture", "hybrid").unwrap();
    for (key, value) in [("hybrid.block_count", 3_u32), ("hybrid.embedding_length", 64)] {
        writer.metadata(key, &value).unwrap();
    }
    writer.metadata("hybrid.attention.head_count", &4_u32).unwrap();
    writer.metadata("hybrid.attention.head_count_kv", &[0_u32, 2, 0]).unwrap();
    finish(writer, &path).unwrap();
    let hybrid = summary(&path, Some(64));
    assert_eq!(hybrid.shape.kv_heads, Some(2));
    assert_eq!(hybrid.memory.unwrap().kv_cache, Some(64 * 2 * 2 * 16 * 2));
}

#[test]
fn nonsense_in_metadata_is_left_out_rather_than_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut writer = Writer::new();
    writer.metadata("general.architecture", "llama").unwrap();
    writer.metadata("general.name", &7_u32).unwrap();
    writer.metadata("llama.context_length", "long").unwrap();
    writer.metadata("llama.block_count", &u64::MAX).unwrap();
    writer.metadata("llama.embedding_length", &u64::MAX).unwrap();
    writer.metadata("llama.attention.head_count", &0_u32).unwrap();
    writer.metadata("tokenizer.ggml.model", "gpt2").unwrap();
    writer.metadata("tokenizer.ggml.eos_token_id", &9_u32).unwrap();
    finish(writer, &path).unwrap();
    let odd = summary(&path, None);
    assert_eq!((odd.name, odd.shape.context_length, odd.shape.head_dim), (None, None, None));
    assert_eq!(odd.tokenizer.unwrap().special["eos"].text, None);
    let memory = odd.memory.unwrap();
    assert_eq!((memory.weights, memory.kv_cache, memory.total), (8, None, None));
    assert_eq!(odd.problems.len(), 2, "{:?}", odd.problems);
    for parts in [
        ["\"general.name\" at byte ", "expected a string, found U32(7)"],
        [
            "\"llama.context_length\" at byte ",
            "expected an integer from 0 to 18446744073709551615, found a string",
        ],
    ] {
        let named = |problem: &&String| parts.iter().all(|part| problem.contains(part));
        let problem = odd.problems.iter().find(named).unwrap_or_else(|| panic!("{:?}", odd.problems));
        assert!(problem.starts_with(path.to_str().unwrap()), "{problem}");
    }
}

#[test]
fn facts_of_the_wrong_type_in_a_configuration_are_named_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "model_type": "llama", "hidden_size": "wide", "num_attention_heads": 2.5, "num_hidden_layers": 2,
        "intermediate_size": [8, 16], "num_key_value_heads": ["one"], "head_dim": null
    });
    checkpoint(folder.path(), &config);
    let odd = summary(folder.path(), None);
    assert_eq!((odd.shape.layers, odd.shape.feed_forward_length), (Some(2), Some(16)));
    assert_eq!((odd.shape.embedding_length, odd.shape.heads, odd.shape.kv_heads), (None, None, None));
    assert_eq!(odd.problems.len(), 3, "{:?}", odd.problems);
    let file = folder.path().join("config.json").display().to_string();
    for (key, found) in [
        ("hidden_size", "string \"wide\""),
        ("num_attention_heads", "floating point `2.5`"),
        ("num_key_value_heads", "string \"one\""),
    ] {
        let named = |problem: &&String| problem.contains(&format!("\"{key}\" at byte "));
        let problem = odd.problems.iter().find(named).unwrap_or_else(|| panic!("{:?}", odd.problems));
        assert!(problem.contains(&file) && problem.contains(found) && problem.contains("u64"), "{problem}");
    }
}

#[test]
fn a_file_without_architecture_is_still_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    finish(Writer::new(), &path).unwrap();
    let bare = summary(&path, None);
    assert_eq!((bare.architecture, bare.parameters, bare.tensors.len()), (None, 4, 1));
    fs::write(&path, Writer::new().header().unwrap()).unwrap();
    let empty = summary(&path, None);
    assert_eq!((empty.memory, empty.parameters), (None, 0));
}

#[test]
fn checkpoints_state_their_layers_one_by_one_or_by_a_period() {
    let folder = tempfile::tempdir().unwrap();
    let base = json!({
        "model_type": "gemma3_text", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "sliding_window": 128, "max_position_embeddings": 1024,
    });
    let with = |key: &str, value: Value| {
        let mut config = base.clone();
        config[key] = value;
        checkpoint(folder.path(), &config);
        summary(folder.path(), None).shape
    };
    let types = json!(["sliding_attention", "full_attention", "sliding_attention", "full_attention"]);
    assert_eq!(with("layer_types", types).sliding_window.unwrap().layers, 2);
    assert_eq!(with("sliding_window_pattern", json!(4)).sliding_window.unwrap().layers, 3);
    assert_eq!(with("use_sliding_window", json!(false)).sliding_window, None);
    assert_eq!(with("sliding_window", Value::Null).sliding_window, None);

    let rope =
        with("rope_parameters", json!({ "full_attention": { "rope_type": "default", "rope_theta": 1e6 } }));
    assert_eq!(rope.rope.unwrap().base, Some(1e6));
    let rope = with("rope_scaling", json!({ "type": "linear", "factor": 8.0 })).rope.unwrap();
    assert_eq!(rope.scaling.unwrap().kind, "linear");
}

#[test]
fn encoders_keep_no_cache_and_nested_configurations_are_read() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), &json!({ "model_type": "bert", "num_hidden_layers": 2, "hidden_size": 8 }));
    assert_eq!(summary(folder.path(), None).memory.unwrap().kv_cache, Some(0));
    let nested =
        json!({ "model_type": "gemma3", "text_config": { "hidden_size": 640, "num_hidden_layers": 3 } });
    checkpoint(folder.path(), &nested);
    let shape = summary(folder.path(), None).shape;
    assert_eq!((shape.embedding_length, shape.layers), (Some(640), Some(3)));
}

#[test]
fn tokenizer_files_are_read_without_building_a_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), &json!({ "model_type": "llama" }));
    let tokenizer = json!({
        "model": { "type": "BPE", "vocab": { "a": 0, "b": 1 }, "merges": [] },
        "added_tokens": [{ "id": 5, "content": "<|end|>", "special": true }],
    });
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let settings = json!({
        "eos_token": { "content": "<|end|>" },
        "bos_token": "<nowhere>",
        "chat_template": [
            { "name": "default", "template": "<|im_start|>" },
            { "name": "tool_use", "template": "{{ tools }}" },
        ],
    });
    fs::write(folder.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
    let found = summary(folder.path(), None);
    let tokenizer = found.tokenizer.unwrap();
    assert_eq!((tokenizer.model.as_str(), tokenizer.vocabulary_size), ("BPE", 6));
    assert_eq!(tokenizer.special.keys().collect::<Vec<_>>(), ["eos"]);
    let template = found.chat_template.unwrap();
    assert_eq!((template.style, template.tools), (Some("chatml"), false));
    assert_eq!(template.names, ["default", "tool_use"]);

    fs::write(folder.path().join("chat_template.jinja"), "[INST] {{ tools }}").unwrap();
    let template = summary(folder.path(), None).chat_template.unwrap();
    assert_eq!((template.style, template.tools), (Some("mistral"), true));

    fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
    let error = Summary::of(&ModelFile::open(folder.path()).unwrap(), None).unwrap_err();
    assert!(error.to_string().contains("tokenizer.json"), "{error}");
}
