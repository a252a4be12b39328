//! Encoders of texts (BERT and its kin) as GGUF, with vocabularies of words and their pieces.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use akunu_format::ModelFile;
use akunu_format::checkpoint::Checkpoint;
use akunu_format::gguf::{Gguf, Writer};
use akunu_program::arch::{Architecture, FeedForward, Names};
use akunu_program::program::Activation;
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special};
use serde::Deserialize;

use super::super::source::{Source, Values};
use super::super::{Header, Input, Plan};
use super::facts;
use super::vocabulary::{CORNER_CASES, no_vocabulary};
use crate::embed::Pooling;
use crate::embed::pooling::advice;
use crate::text::read_text;
use crate::{Error, Result};

/// Parts of the whole model, and of a layer; each has a weight and may have a bias.
const GLOBAL: [&str; 4] = ["token_embd", "position_embd", "token_types", "token_embd_norm"];
const PARTS: [&str; 10] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_output",
    "attn_output_norm",
    "ffn_up",
    "ffn_gate",
    "ffn_down",
    "layer_output_norm",
];

/// Parts of names of tensors that embeddings do without.
const IGNORED: [&str; 3] = ["pooler.", "position_ids", "cls.predictions."];

/// What GGUF puts before pieces that begin a word, where `tokenizer.json` has a mark before those that do not.
const WORD_MARK: char = '\u{2581}';

/// Reads a checkpoint of an encoder.
pub(super) fn read<'a>(
    file: &'a ModelFile,
    checkpoint: &'a Checkpoint,
    architecture: &Architecture,
    names: &Names,
) -> Result<Input<'a>> {
    let usual = if architecture.family == "bert" { Activation::GeluErf } else { Activation::Silu };
    if architecture.activation != usual {
        return Err(unsupported(checkpoint, "an activation that GGUF has no key for (\"hidden_act\")"));
    }
    if architecture.positions.is_some_and(|before| before > 0) {
        return Err(unsupported(checkpoint, "an encoder of RoBERTa's kind"));
    }
    let (sources, mut notes) = sources(checkpoint, architecture, names)?;
    let mut header = Writer::new();
    write_settings(file, architecture, &mut header)?;
    let rows = sources.iter().find(|source| source.name == "token_embd.weight").map_or(0, Source::rows);
    notes.extend(write_vocabulary(checkpoint, rows, &mut header)?);
    let files = checkpoint.files().map(Path::to_owned).collect();
    let plan = Plan::Text(facts(architecture));
    Ok(Input { files, plan, sources, header: Header::Gguf(header), notes })
}

/// Every tensor of the architecture under GGUF's name; one that has no place in it is an error.
fn sources<'a>(
    checkpoint: &'a Checkpoint,
    architecture: &Architecture,
    names: &Names,
) -> Result<(Vec<Source<'a>>, Vec<String>)> {
    let mut taken = HashSet::new();
    let mut sources = Vec::new();
    let mut take = |theirs: String, ours: String| -> Result<()> {
        for kind in ["weight", "bias"] {
            let Some(tensor) = checkpoint.get_tensor(&format!("{theirs}.{kind}")) else { continue };
            taken.insert(format!("{theirs}.{kind}"));
            let mut source = Source::stored(format!("{ours}.{kind}"), tensor.clone());
            if tensor.shape.len() < 2 {
                source.values = Values::Computed(tensor.to_f32()?, tensor.dtype_name());
            }
            sources.push(source);
        }
        Ok(())
    };
    for part in GLOBAL {
        take(names.global(part), part.to_owned())?;
    }
    for layer in 0..architecture.layers.len() {
        for part in PARTS {
            take(names.layer(layer, part), format!("blk.{layer}.{part}"))?;
        }
    }
    let left: Vec<&str> =
        checkpoint.tensors().map(|tensor| tensor.name).filter(|name| !taken.contains(*name)).collect();
    let is_ignored = |name: &&str| IGNORED.iter().any(|part| name.contains(part));
    if let Some(name) = left.iter().find(|name| !is_ignored(name)) {
        return Err(unsupported(checkpoint, &format!("the tensor \"{name}\" of an encoder")));
    }
    let left_out = left.iter().filter(|name| !name.contains("position_ids")).count();
    let note = || format!("{left_out} tensors that embeddings do without were left out");
    Ok((sources, if left_out > 0 { vec![note()] } else { Vec::new() }))
}

fn write_settings(file: &ModelFile, architecture: &Architecture, header: &mut Writer) -> Result<()> {
    let family = architecture.family;
    header.metadata("general.architecture", family)?;
    header.metadata("general.type", "model")?;
    let path = file.path().canonicalize().unwrap_or_else(|_| file.path().to_owned());
    if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
        header.metadata("general.name", name)?;
    }
    let first = architecture.layers.first();
    let inner = match first.map(|layer| layer.feed_forward) {
        Some(
            FeedForward::Plain { inner } | FeedForward::Dense { inner } | FeedForward::Experts { inner, .. },
        ) => inner,
        None => 0,
    };
    let numbers = [
        ("block_count", architecture.layers.len()),
        ("context_length", architecture.context),
        ("embedding_length", architecture.hidden),
        ("feed_forward_length", inner),
        ("attention.head_count", first.map_or(0, |layer| layer.heads)),
    ];
    for (key, value) in numbers {
        header.metadata(&format!("{family}.{key}"), &u32::try_from(value).unwrap_or(u32::MAX))?;
    }
    header.metadata(&format!("{family}.attention.layer_norm_epsilon"), &architecture.norm_eps)?;
    header.metadata(&format!("{family}.attention.causal"), &false)?;
    if let Some(rope) = architecture.ropes.first() {
        header.metadata(&format!("{family}.rope.freq_base"), &(rope.theta as f32))?;
    }
    let pooling = match advice(file)?.pooling.unwrap_or(Pooling::Mean) {
        Pooling::Mean => 1u32,
        Pooling::Cls => 2,
        Pooling::Last => 3,
    };
    header.metadata(&format!("{family}.pooling_type"), &pooling)?;
    Ok(())
}

/// `tokenizer.json`, as far as it matters here.
#[derive(Deserialize)]
struct File {
    model: Model,
    normalizer: Option<Normalizer>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: String,
    vocab: HashMap<String, usize>,
}

#[derive(Deserialize)]
struct Normalizer {
    lowercase: Option<bool>,
    strip_accents: Option<bool>,
}

/// Writes the vocabulary, or gives a note that there is none, if a tokenizer made of what is written agrees with the original.
fn write_vocabulary(checkpoint: &Checkpoint, rows: usize, header: &mut Writer) -> Result<Option<String>> {
    let refused = |problem: &str| unsupported(checkpoint, problem);
    let Some(path) = checkpoint.companion("tokenizer.json") else {
        return Ok(Some(no_vocabulary(checkpoint)));
    };
    let original = Tokenizer::from_file(&path).map_err(Error::tokenizer(&path))?;
    let text = read_text(&path)?;
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    if parsed["model"]["type"].as_str().is_some_and(|kind| kind != "WordPiece") {
        return Err(refused("an encoder whose vocabulary is not of words and their pieces (WordPiece)"));
    }
    let file: File = serde_json::from_value(parsed)
        .map_err(|_| refused("an encoder whose vocabulary is not of words and their pieces (WordPiece)"))?;
    if file.model.kind.is_none() || file.model.vocab.len() > rows {
        return Err(refused("a vocabulary that does not fit its embeddings"));
    }
    let mut texts: Vec<String> = (0..rows).map(|id| format!("[PAD{id}]")).collect();
    let mut kinds = vec![5i32; rows];
    let prefix = file.model.continuing_subword_prefix.as_str();
    let special: HashSet<u32> = original.special_tokens().map(|(id, _)| id).collect();
    for (text, &id) in &file.model.vocab {
        let Some(slot) = texts.get_mut(id) else { return Err(refused("a vocabulary with gaps")) };
        let is_special = special.contains(&(id as u32));
        *slot = match text.strip_prefix(prefix).filter(|rest| !prefix.is_empty() && !rest.is_empty()) {
            _ if is_special => text.clone(),
            Some(rest) => rest.to_owned(),
            None => format!("{WORD_MARK}{text}"),
        };
        kinds[id] = if is_special { 3 } else { 1 };
    }
    let lowercase = file.normalizer.as_ref().and_then(|normalizer| normalizer.lowercase).unwrap_or(false);
    let accents = file.normalizer.as_ref().and_then(|normalizer| normalizer.strip_accents);
    let write = |header: &mut Writer| -> Result<()> {
        header.metadata("tokenizer.ggml.model", "bert")?;
        header.metadata("tokenizer.ggml.pre", "default")?;
        header.metadata("tokenizer.ggml.tokens", &texts)?;
        header.metadata("tokenizer.ggml.token_type", &kinds)?;
        header.metadata("tokenizer.ggml.token_type_count", &2u32)?;
        let roles = [
            ("bos_token_id", "[CLS]"),
            ("cls_token_id", "[CLS]"),
            ("eos_token_id", "[SEP]"),
            ("seperator_token_id", "[SEP]"),
            ("unknown_token_id", "[UNK]"),
            ("padding_token_id", "[PAD]"),
            ("mask_token_id", "[MASK]"),
        ];
        for (key, name) in roles {
            if let Some(id) = original.id_of(name) {
                header.metadata(&format!("tokenizer.ggml.{key}"), &id)?;
            }
        }
        header.metadata("tokenizer.ggml.normalizer.lowercase", &lowercase)?;
        if let Some(accents) = accents.filter(|&accents| accents != lowercase) {
            header.metadata("tokenizer.ggml.normalizer.strip_accents", &accents)?;
        }
        Ok(())
    };
    let mut alone = Writer::new();
    write(&mut alone)?;
    let made = Tokenizer::from_gguf(&Gguf::from_bytes(alone.header()?)?).map_err(Error::tokenizer(&path))?;
    let ids = |tokenizer: &Tokenizer| {
        let lines = CORNER_CASES.lines().map(|line| tokenizer.encode(line, Special::Plain, AddSpecial::Yes));
        lines.collect::<Vec<_>>()
    };
    if ids(&made) != ids(&original) {
        return Err(refused("a vocabulary that GGUF would cut text with in another way"));
    }
    write(header)?;
    Ok(None)
}

fn unsupported(checkpoint: &Checkpoint, what: &str) -> Error {
    Error::Format(akunu_format::Error::Unsupported {
        path: checkpoint.path().to_owned(),
        what: format!("converting {what} to GGUF"),
        hint: Some("`akunu embed` reads the directory as it is".to_owned()),
    })
}
