//! Writes a random model of TinyLlama's shape (1.1 billion weights, F16) with a vocabulary of 49,152 tokens: for measuring speed where the
//! text does not matter. Quantise it with `akunu quantize`.
//!
//!     cargo run --release -p akunu-format --example random_model -- random-1.1b-F16.gguf

use akunu_format::gguf::Writer;
use akunu_format::{DType, Result};
use half::f16;

const LAYERS: u32 = 22;
const EMBEDDING: usize = 2048;
const FEED_FORWARD: usize = 5632;
const HEADS: u32 = 32;
const KV_HEADS: u32 = 4;
/// 4 heads of 64.
const KV: usize = 256;
const CONTEXT: u32 = 2048;
const VOCABULARY: usize = 49_152;
/// What such models begin their training with.
const DEVIATION: f32 = 0.02;

fn main() {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: random_model OUT.gguf");
        std::process::exit(2);
    };
    if let Err(error) = write(&path) {
        eprintln!("random_model: {error}");
        std::process::exit(1);
    }
}

fn write(path: &str) -> Result<()> {
    let mut writer = Writer::new();
    writer.metadata("general.architecture", "llama")?;
    writer.metadata("general.name", "random 1.1B")?;
    for (key, value) in [
        ("llama.block_count", LAYERS),
        ("llama.context_length", CONTEXT),
        ("llama.embedding_length", EMBEDDING as u32),
        ("llama.feed_forward_length", FEED_FORWARD as u32),
        ("llama.attention.head_count", HEADS),
        ("llama.attention.head_count_kv", KV_HEADS),
        ("llama.rope.dimension_count", EMBEDDING as u32 / HEADS),
        ("llama.vocab_size", VOCABULARY as u32),
        // F16, as llama.cpp counts file types.
        ("general.file_type", 1),
    ] {
        writer.metadata(key, &value)?;
    }
    writer.metadata("llama.attention.layer_norm_rms_epsilon", &1e-5_f32)?;
    writer.metadata("llama.rope.freq_base", &10_000_f32)?;
    vocabulary(&mut writer)?;

    let tensors = tensors();
    for (name, shape) in &tensors {
        let dtype = if shape.len() == 1 { DType::F32 } else { DType::F16 };
        writer.tensor(name, dtype, shape)?;
    }
    let mut file = writer.create(path)?;
    let mut random = Random(1);
    for (name, shape) in &tensors {
        if let [rows, columns] = shape[..] {
            for _ in 0..rows {
                let row: Vec<f16> = (0..columns).map(|_| f16::from_f32(random.next())).collect();
                file.append(name, bytemuck::cast_slice(&row))?;
            }
        } else {
            file.append(name, bytemuck::cast_slice(&vec![1_f32; shape[0]]))?;
        }
    }
    file.finish()
}

/// A SentencePiece vocabulary: three control tokens, all bytes, and words that no text holds.
fn vocabulary(writer: &mut Writer) -> Result<()> {
    /// Token types as GGUF numbers them.
    const NORMAL: i32 = 1;
    const UNKNOWN: i32 = 2;
    const CONTROL: i32 = 3;
    const BYTE: i32 = 6;

    let mut tokens =
        vec![("<unk>".to_owned(), UNKNOWN), ("<s>".to_owned(), CONTROL), ("</s>".to_owned(), CONTROL)];
    tokens.extend((0..=255).map(|byte: u8| (format!("<0x{byte:02X}>"), BYTE)));
    tokens.extend((tokens.len()..VOCABULARY).map(|id| (format!("\u{2581}w{id}"), NORMAL)));
    let names: Vec<&str> = tokens.iter().map(|(name, _)| name.as_str()).collect();
    let types: Vec<i32> = tokens.iter().map(|&(_, kind)| kind).collect();
    writer.metadata("tokenizer.ggml.model", "llama")?;
    writer.metadata("tokenizer.ggml.tokens", &names[..])?;
    writer.metadata("tokenizer.ggml.scores", &vec![0_f32; VOCABULARY][..])?;
    writer.metadata("tokenizer.ggml.token_type", &types[..])?;
    for (key, id) in [("unknown", 0_u32), ("bos", 1), ("eos", 2)] {
        writer.metadata(&format!("tokenizer.ggml.{key}_token_id"), &id)?;
    }
    Ok(())
}

/// Names and shapes, outermost dimension first.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), vec![VOCABULARY, EMBEDDING]),
        ("output_norm.weight".to_owned(), vec![EMBEDDING]),
        ("output.weight".to_owned(), vec![VOCABULARY, EMBEDDING]),
    ];
    for layer in 0..LAYERS {
        for (name, shape) in [
            ("attn_norm", vec![EMBEDDING]),
            ("attn_q", vec![EMBEDDING, EMBEDDING]),
            ("attn_k", vec![KV, EMBEDDING]),
            ("attn_v", vec![KV, EMBEDDING]),
            ("attn_output", vec![EMBEDDING, EMBEDDING]),
            ("ffn_norm", vec![EMBEDDING]),
            ("ffn_gate", vec![FEED_FORWARD, EMBEDDING]),
            ("ffn_up", vec![FEED_FORWARD, EMBEDDING]),
            ("ffn_down", vec![EMBEDDING, FEED_FORWARD]),
        ] {
            tensors.push((format!("blk.{layer}.{name}.weight"), shape));
        }
    }
    tensors
}

/// Splitmix64.
struct Random(u64);

impl Random {
    /// Nearly normal, from the sum of four uniform numbers.
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        let sum: f32 = (0..4).map(|i| ((bits >> (16 * i)) as u16) as f32 / 65_536.0 - 0.5).sum();
        // Four uniform numbers have a deviation of sqrt(4 / 12).
        sum * 3_f32.sqrt() * DEVIATION
    }
}
