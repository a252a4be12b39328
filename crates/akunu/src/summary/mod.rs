//! What there is to say about a model file without running it.
//!
//! Everything here degrades: a fact the file does not state is `None`, an architecture nobody knows is still listed by
//! its tensors, and a file that holds only a vocabulary has a tokenizer and nothing else. A fact of the wrong type is
//! left out too, and named among the [problems](Summary::problems).

mod checkpoint;
mod gguf;
mod memory;
mod tokenizer_files;
mod whisper;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use akunu_format::ModelFile;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Error, Result};

pub use memory::{Memory, SCRATCH_ROWS};

/// A model file, described.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// What was opened.
    pub path: PathBuf,
    /// The container, such as `GGUF v3`.
    pub format: String,
    /// The files it consists of.
    pub files: Vec<FileSize>,
    /// The name the model gives itself.
    pub name: Option<String>,
    /// The family, such as `llama`.
    pub architecture: Option<String>,
    /// The licence it states.
    pub license: Option<String>,
    /// Elements of all tensors together.
    pub parameters: u64,
    /// How the weights are stored, largest share first.
    pub dtypes: Vec<DTypeShare>,
    /// Sizes and counts of the network.
    #[serde(flatten)]
    pub shape: Shape,
    /// Its tokenizer.
    pub tokenizer: Option<TokenizerSummary>,
    /// Its chat template.
    pub chat_template: Option<TemplateSummary>,
    /// What running it takes; `None` for a file without weights.
    pub memory: Option<Memory>,
    /// Metadata as the file has it; long lists are abbreviated to their length.
    pub metadata: Map<String, Value>,
    /// Every tensor, in file order.
    pub tensors: Vec<TensorSummary>,
    /// What the file states in a way that makes no sense: file, field, place, what was expected and what was found.
    /// Such a fact counts as not stated.
    pub problems: Vec<String>,
}

/// A file and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSize {
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
}

/// The part of a model that is stored in one dtype.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DTypeShare {
    /// The dtype's name.
    pub dtype: String,
    /// How many tensors.
    pub tensors: usize,
    /// Their elements.
    pub parameters: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorSummary {
    /// Its name in the file.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// The dtype's name.
    pub dtype: String,
    /// Its bytes.
    pub bytes: u64,
}

/// Sizes and counts of the network. Where layers differ, the largest value stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shape {
    /// Tokens it was trained to look back at.
    pub context_length: Option<u64>,
    /// Transformer layers.
    pub layers: Option<u64>,
    /// Width of the residual stream.
    pub embedding_length: Option<u64>,
    /// Width inside the feed-forward network.
    pub feed_forward_length: Option<u64>,
    /// Query heads.
    pub heads: Option<u64>,
    /// Key and value heads.
    pub kv_heads: Option<u64>,
    /// Width of a head's query and key.
    pub head_dim: Option<u64>,
    /// Tokens in the embedding.
    pub vocabulary_size: Option<u64>,
    /// Experts in a layer.
    pub experts: Option<u64>,
    /// Experts a token is sent to.
    pub experts_used: Option<u64>,
    /// The attention window and how many layers have it.
    pub sliding_window: Option<SlidingWindow>,
    /// Rotary position embedding.
    pub rope: Option<Rope>,
    /// The encoder of a model that has one beside its decoder.
    pub encoder: Option<Encoder>,
}

/// Layers that look back only so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlidingWindow {
    /// Tokens such a layer sees.
    pub size: u64,
    /// How many layers are such.
    pub layers: u64,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rope {
    /// The base of its frequencies.
    pub base: Option<f64>,
    /// Dimensions of a head that are rotated.
    pub dimensions: Option<u64>,
    /// How frequencies are stretched for long contexts.
    pub scaling: Option<RopeScaling>,
}

/// How rotary frequencies are stretched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RopeScaling {
    /// `linear`, `yarn`, `llama3`, ...
    pub kind: String,
    /// By how much.
    pub factor: Option<f64>,
    /// The context before stretching.
    pub original_context: Option<u64>,
}

/// The encoder of an encoder-decoder model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Encoder {
    /// Positions it sees.
    pub context_length: u64,
    /// Layers.
    pub layers: u64,
    /// Width of its residual stream.
    pub embedding_length: u64,
    /// Heads.
    pub heads: u64,
    /// Mel bands of its input.
    pub mels: u64,
}

/// A tokenizer, from what its file states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenizerSummary {
    /// The algorithm, as the file names it.
    pub model: String,
    /// How text is cut before, as the file names it.
    pub pre: Option<String>,
    /// Tokens it knows.
    pub vocabulary_size: u64,
    /// Tokens with a role: `bos`, `eos`, ...
    pub special: BTreeMap<String, SpecialToken>,
}

/// A token with a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpecialToken {
    /// Its number.
    pub id: u64,
    /// Its text.
    pub text: Option<String>,
}

/// A chat template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TemplateSummary {
    /// The names of all templates in the file; the first is used unless another is asked for.
    pub names: Vec<String>,
    /// The convention the first one follows, by the marks it sets around a turn.
    pub style: Option<&'static str>,
    /// Whether the first one has a place for tools.
    pub tools: bool,
    /// Characters of the first one.
    pub length: usize,
}

/// Conventions and the marks that give them away, the more telling first.
const STYLES: [(&str, &[&str]); 10] = [
    ("chatml", &["<|im_start|>"]),
    ("llama3", &["<|start_header_id|>"]),
    ("gemma", &["<start_of_turn>"]),
    ("harmony", &["<|start|>", "<|channel|>"]),
    ("deepseek", &["<\u{ff5c}Assistant\u{ff5c}>"]),
    ("command-r", &["<|START_OF_TURN_TOKEN|>"]),
    ("granite", &["<|start_of_role|>"]),
    ("phi3", &["<|assistant|>", "<|end|>"]),
    ("llama2", &["[INST]", "<<SYS>>"]),
    ("mistral", &["[INST]"]),
];

impl TemplateSummary {
    fn new(names: Vec<String>, first: &str) -> Self {
        let follows = |(_, marks): &&(&str, &[&str])| marks.iter().all(|mark| first.contains(mark));
        TemplateSummary {
            names,
            style: STYLES.iter().find(follows).map(|(name, _)| *name),
            tools: first.contains("tools"),
            length: first.chars().count(),
        }
    }
}

impl Summary {
    /// Describes an open model, with the memory it needs at `context` tokens (by default what the model was trained for,
    /// but at most [`Summary::DEFAULT_CONTEXT`]).
    pub fn of(model: &ModelFile, context: Option<u64>) -> Result<Summary> {
        let mut summary = Summary { path: model.path().to_path_buf(), ..Summary::default() };
        summary.add_tensors(model);
        let cache = match model {
            ModelFile::Gguf(file) => gguf::describe(file, &mut summary)?,
            ModelFile::Checkpoint(checkpoint) => checkpoint::describe(checkpoint, &mut summary)?,
            ModelFile::WhisperGgml(file) => Some(whisper::describe(file, &mut summary)?),
            ModelFile::Torch(file) => whisper::describe_torch(file, &mut summary)?,
        };
        if !summary.tensors.is_empty() {
            let context = context.unwrap_or_else(|| {
                summary.shape.context_length.unwrap_or(Self::DEFAULT_CONTEXT).min(Self::DEFAULT_CONTEXT)
            });
            summary.memory = Some(Memory::needed(&summary, cache.as_deref(), context));
        }
        Ok(summary)
    }

    /// The context that is assumed for models that could do more.
    pub const DEFAULT_CONTEXT: u64 = 4096;

    /// Bytes of all its files.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn add_tensors(&mut self, model: &ModelFile) {
        let mut shares: BTreeMap<String, DTypeShare> = BTreeMap::new();
        for tensor in model.tensors() {
            let (dtype, bytes) = (tensor.dtype_name().into_owned(), tensor.byte_len() as u64);
            let share = shares.entry(dtype.clone()).or_insert_with(|| DTypeShare {
                dtype: dtype.clone(),
                tensors: 0,
                parameters: 0,
                bytes: 0,
            });
            share.tensors += 1;
            share.parameters += tensor.len() as u64;
            share.bytes += bytes;
            self.parameters += tensor.len() as u64;
            self.tensors.push(TensorSummary {
                name: tensor.name.to_owned(),
                shape: tensor.shape.to_vec(),
                dtype,
                bytes,
            });
        }
        self.dtypes = shares.into_values().collect();
        self.dtypes.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    }

    fn add_files<'a>(&mut self, paths: impl Iterator<Item = &'a Path>) -> Result<()> {
        for path in paths {
            let bytes = fs::metadata(path).map_err(Error::io(path))?.len();
            self.files.push(FileSize { path: path.to_path_buf(), bytes });
        }
        Ok(())
    }
}

/// For each layer whether it has a window, where every `period`-th layer is global (and none is when that is 0).
fn periodic_windows(layers: u64, period: u64) -> Vec<bool> {
    (0..layers).map(|layer| period == 0 || layer % period < period - 1).collect()
}
