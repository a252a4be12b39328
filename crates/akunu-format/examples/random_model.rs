//! Writes a random model in F16, of TinyLlama's shape (1.1 billion weights) or of SmolLM2's (135 million), with a vocabulary of 49,152 tokens: for
//! measuring speed where the text does not matter. Quantise it with `akunu quantize`.
//!
//!     cargo run --release -p akunu-format --example random_model -- random-1.1b-F16.gguf
//!     cargo run --release -p akunu-format --example random_model -- random-135m-F16.gguf 135m

use akunu_format::gguf::Writer;
use akunu_format::{DType, Result};
use half::f16;

/// The numbers a model is made by.
struct Shape {
    name: &'static str,
    layers: u32,
    embedding: usize,
    feed_forward: usize,
    heads: u32,
    kv_heads: u32,
    context: u32,
    /// Whether the output has weights of its own.
    has_output: bool,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "1.1b",
        layers: 22,
        embedding: 2048,
        feed_forward: 5632,
        heads: 32,
        kv_heads: 4,
        context: 2048,
        has_output: true,
    },
    Shape {
        name: "135m",
        layers: 30,
        embedding: 576,
        feed_forward: 1536,
        heads: 9,
        kv_heads: 3,
        context: 8192,
        has_output: false,
    },
];

const VOCABULARY: usize = 49_152;
/// What such models begin their training with.
const DEVIATION: f32 = 0.02;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().filter(|path| !path.starts_with('-'));
    let name = arguments.next().unwrap_or_else(|| SHAPES[0].name.to_owned());
    let shape = SHAPES.iter().find(|shape| shape.name == name);
    let (Some(path), Some(shape)) = (path, shape) else {
        eprintln!("usage: random_model OUT.gguf [1.1b|135m]");
        std::process::exit(2);
    };
    if let Err(error) = write(&path, shape) {
        eprintln!("random_model: {error}");
        std::process::exit(1);
    }
}

fn write(path: &str, shape: &Shape) -> Result<()> {
    let mut writer = Writer::new();
    writer.metadata("general.architecture", "llama")?;
    writer.metadata("general.name", format!("random {}", shape.name).as_str())?;
    for (key, value) in [
        ("llama.block_count", shape.layers),
        ("llama.context_length", shape.context),
        ("llama.embedding_length", shape.embedding as u32),
        ("llama.feed_forward_length", shape.feed_forward as u32),
        ("llama.attention.head_count", shape.heads),
        ("llama.attention.head_count_kv", shape.kv_heads),
        ("llama.rope.dimension_count", shape.embedding as u32 / shape.heads),
        ("llama.vocab_size", VOCABULARY as u32),
        // F16, as llama.cpp counts file types.
        ("general.file_type", 1),
    ] {
        writer.metadata(key, &value)?;
    }
    writer.metadata("llama.attention.layer_norm_rms_epsilon", &1e-5_f32)?;
    writer.metadata("llama.rope.freq_base", &10_000_f32)?;
    vocabulary(&mut writer)?;

    let tensors = tensors(shape);
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
fn tensors(shape: &Shape) -> Vec<(String, Vec<usize>)> {
    let (embedding, feed_forward) = (shape.embedding, shape.feed_forward);
    let kv = embedding / shape.heads as usize * shape.kv_heads as usize;
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), vec![VOCABULARY, embedding]),
        ("output_norm.weight".to_owned(), vec![embedding]),
    ];
    if shape.has_output {
        tensors.push(("output.weight".to_owned(), vec![VOCABULARY, embedding]));
    }
    for layer in 0..shape.layers {
        for (name, shape) in [
            ("attn_norm", vec![embedding]),
            ("attn_q", vec![embedding, embedding]),
            ("attn_k", vec![kv, embedding]),
            ("attn_v", vec![kv, embedding]),
            ("attn_output", vec![embedding, embedding]),
            ("ffn_norm", vec![embedding]),
            ("ffn_gate", vec![feed_forward, embedding]),
            ("ffn_up", vec![feed_forward, embedding]),
            ("ffn_down", vec![embedding, feed_forward]),
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
