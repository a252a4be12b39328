//! Architectures as data: everything that tells one model from another, decided when its file is opened.
//!
//! Facts come from the tensors where they can (a tied output is an output matrix that is absent), from the file's
//! metadata next, and from the family last. An unknown family is an error, never a guess.

mod alignment;
mod config;
mod facts;
mod families;
mod names;
mod speech;

pub use alignment::AlignmentHead;
pub use names::Names;
pub(crate) use names::expert_rows;
pub use speech::{SpeechArchitecture, SpeechTensors};

use akunu_format::ModelFile;

use crate::program::{Activation, Mask, NormKind};
use crate::rope::Rope;
use crate::{Error, Result};
use facts::Facts;

/// A transformer over tokens: a decoder, which generates text, or an encoder, which embeds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// The family's name, as GGUF spells it.
    pub family: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Positions the model was made for.
    pub context: usize,
    /// The layers, in order.
    pub layers: Vec<Layer>,
    /// The distinct rotations, which layers name by index.
    pub ropes: Vec<Rope>,
    /// What tokens attend to: decoders to what was before, encoders to everything.
    pub mask: Mask,
    /// Rows before the first position's in the table of learned positions, where there is one.
    pub positions: Option<usize>,
    /// The kind of every norm.
    pub norm: NormKind,
    /// Whether the sum after each block is normalised, as BERT does, and not what goes into the block.
    pub norm_after: bool,
    /// The epsilon of every norm.
    pub norm_eps: f32,
    /// The feed-forward blocks' non-linearity.
    pub activation: Activation,
    /// Multiplies embeddings.
    pub embedding_scale: f32,
    /// Soft cap on logits.
    pub logit_cap: Option<f32>,
}

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Positions a token sees, its own included; all when absent.
    pub window: Option<usize>,
    /// Index into [`Architecture::ropes`]; none where positions are learned.
    pub rope: Option<usize>,
    /// Multiplies attention scores.
    pub score_scale: f32,
    /// Soft cap on attention scores.
    pub score_cap: Option<f32>,
    /// The feed-forward part.
    pub feed_forward: FeedForward,
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// Two products with the activation between them.
    Plain {
        /// Its inner width.
        inner: usize,
    },
    /// One gated network.
    Dense {
        /// Its inner width.
        inner: usize,
    },
    /// A mixture of gated experts.
    Experts {
        /// How many there are.
        count: usize,
        /// How many each token uses.
        chosen: usize,
        /// The inner width of each.
        inner: usize,
        /// Whether the chosen ones' weights are scaled to sum to 1.
        normalize: bool,
    },
}

impl Architecture {
    /// Reads the architecture of a model file, and what its tensors are called.
    pub fn of(file: &ModelFile) -> Result<(Architecture, Names)> {
        match file {
            ModelFile::Gguf(gguf) => {
                let family: &str = gguf.metadata().require("general.architecture")?;
                let facts = Facts::Gguf { family, metadata: gguf.metadata() };
                Ok((families::describe(family, &facts, file)?, Names::gguf()))
            }
            ModelFile::Checkpoint(checkpoint) => {
                let config = checkpoint.config().ok_or_else(|| {
                    Error::config(
                        "config.json",
                        format!("there is none beside {}", checkpoint.path().display()),
                    )
                })?;
                let settings = config::flatten(config)?;
                let facts = Facts::Json(&settings);
                let model_type = facts.text("", "model_type")?;
                let model_type =
                    model_type.ok_or_else(|| Error::config("model_type", "it is missing".into()))?;
                let family = families::from_model_type(model_type)?;
                let names = Names::hugging_face(family, file)?;
                Ok((families::describe(family, &facts, file)?, names))
            }
            _ => Err(Error::Unsupported {
                what: format!("a text model in {}", file.path().display()),
                supported: "GGUF files and Hugging Face directories".into(),
            }),
        }
    }
}
