//! Whisper: an encoder of sound and a decoder of text that attends to it.

use std::collections::HashMap;

use akunu_format::torch::TorchCheckpoint;
use akunu_format::{Mapping, ModelFile, Tensor};

use crate::program::{Activation, Mask, NormKind};
use crate::{Error, Result, TensorSource};

use super::alignment::{self, AlignmentHead};
use super::facts::Facts;
use super::{Architecture, FeedForward, Layer, Names, config};

const FAMILY: &str = "whisper";

/// All models' norms have this epsilon.
const EPSILON: f32 = 1e-5;

/// Whisper has 1500 and 448; what hostile files claim would only cost memory.
const MOST_POSITIONS: usize = 1 << 14;
/// Larger than any size of a model.
const MOST_OF_ANY: usize = 1 << 24;

/// A model that writes down what is said.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechArchitecture {
    /// From frames of sound to states, of which it has `context`.
    pub encoder: Architecture,
    /// From tokens to logits; each of its layers also attends to the states.
    pub decoder: Architecture,
    /// What the encoder's tensors are called.
    pub encoder_names: Names,
    /// What the decoder's tensors are called.
    pub decoder_names: Names,
    /// Bands of a frame.
    pub mels: usize,
    /// Tokens.
    pub vocabulary: usize,
    /// The heads of the decoder that follow the sound.
    pub alignment: Vec<AlignmentHead>,
}

/// The numbers that make up a model.
struct Sizes {
    vocabulary: usize,
    mels: usize,
    hidden: usize,
    encoder: Side,
    decoder: Side,
}

/// Those of the encoder or the decoder.
struct Side {
    context: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    inner: usize,
}

impl SpeechArchitecture {
    /// Whether a file says that it holds a model of this kind.
    pub fn is_in(file: &ModelFile) -> bool {
        match file {
            ModelFile::WhisperGgml(_) => true,
            ModelFile::Torch(checkpoint) => checkpoint.size("n_audio_ctx").is_some(),
            ModelFile::Gguf(gguf) => {
                matches!(gguf.metadata().get::<&str>("general.architecture"), Ok(Some(FAMILY)))
            }
            ModelFile::Checkpoint(checkpoint) => checkpoint
                .config()
                .is_some_and(|config| matches!(config.get::<&str>("model_type"), Ok(Some(FAMILY)))),
        }
    }

    /// Reads the architecture of a model file.
    pub fn of(file: &ModelFile) -> Result<SpeechArchitecture> {
        if !SpeechArchitecture::is_in(file) {
            return Err(Error::Unsupported {
                what: format!("{} as a model of speech", file.path().display()),
                supported:
                    "Whisper models: whisper.cpp's files, OpenAI's .pt, GGUF files, Hugging Face directories"
                        .into(),
            });
        }
        let sizes = Sizes::read(file)?;
        let [encoder_names, decoder_names] = Names::speech(&SpeechTensors::new(file))?;
        let Sizes { vocabulary, mels, hidden, .. } = sizes;
        let (layers, heads) = (sizes.decoder.layers, sizes.decoder.heads);
        let alignment = match listed_heads(file)? {
            Some(listed) => listed,
            None => alignment::heads(layers, heads, hidden, vocabulary),
        };
        if let Some((layer, head)) = alignment.iter().find(|(layer, head)| *layer >= layers || *head >= heads)
        {
            let problem = format!("head {head} of layer {layer} in a decoder of {layers} layers of {heads}");
            return Err(Error::config("alignment_heads", problem));
        }
        Ok(SpeechArchitecture {
            encoder: sizes.encoder.architecture(Mask::Full)?,
            decoder: sizes.decoder.architecture(Mask::Causal)?,
            encoder_names,
            decoder_names,
            mels,
            vocabulary,
            alignment,
        })
    }
}

impl Sizes {
    fn read(file: &ModelFile) -> Result<Sizes> {
        let sizes = match file {
            ModelFile::WhisperGgml(whisper) => {
                let facts = whisper.hparams();
                let side = |context: u32, hidden: u32, layers: u32, heads: u32| {
                    let hidden = hidden as usize;
                    let (layers, heads) = (layers as usize, heads as usize);
                    Side { context: context as usize, hidden, layers, heads, inner: 4 * hidden }
                };
                Sizes {
                    vocabulary: facts.vocab_size as usize,
                    mels: facts.mels as usize,
                    hidden: facts.text_state as usize,
                    encoder: side(facts.audio_ctx, facts.audio_state, facts.audio_layers, facts.audio_heads),
                    decoder: side(facts.text_ctx, facts.text_state, facts.text_layers, facts.text_heads),
                }
            }
            ModelFile::Torch(checkpoint) => Sizes::from_torch(checkpoint)?,
            ModelFile::Gguf(gguf) => {
                Sizes::from_facts(&Facts::Gguf { family: FAMILY, metadata: gguf.metadata() }, file)?
            }
            ModelFile::Checkpoint(checkpoint) => {
                let missing = || Error::config("config.json", "it is missing".into());
                let settings = config::flatten(checkpoint.config().ok_or_else(missing)?)?;
                let facts = Facts::Json(&settings);
                if facts.flag("", "scale_embedding")? == Some(true) {
                    let what = "a decoder that scales embeddings (scale_embedding)".to_owned();
                    return Err(Error::Unsupported { what, supported: "those that do not".into() });
                }
                match facts.text("", "activation_function")? {
                    None | Some("gelu") => Sizes::from_facts(&facts, file)?,
                    Some(other) => {
                        let what = format!("the activation \"{other}\"");
                        return Err(Error::Unsupported { what, supported: "gelu".into() });
                    }
                }
            }
        };
        let (encoder, decoder) = (sizes.encoder.hidden, sizes.decoder.hidden);
        if encoder != decoder {
            return Err(Error::config(
                "width",
                format!("{encoder} in the encoder, {decoder} in the decoder"),
            ));
        }
        Ok(sizes)
    }

    /// OpenAI's `dims`.
    fn from_torch(checkpoint: &TorchCheckpoint) -> Result<Sizes> {
        let size = |name: &str| {
            let size = checkpoint.size(name).ok_or_else(|| Error::config(name, "it is missing".into()))?;
            let sensible = usize::try_from(size).ok().filter(|size| *size <= MOST_OF_ANY);
            sensible.ok_or_else(|| Error::config(name, format!("{size} is not a size a model can have")))
        };
        let side = |name: &str| {
            let hidden = size(&format!("n_{name}_state"))?;
            Ok::<_, Error>(Side {
                context: size(&format!("n_{name}_ctx"))?,
                hidden,
                layers: size(&format!("n_{name}_layer"))?,
                heads: size(&format!("n_{name}_head"))?,
                inner: 4 * hidden,
            })
        };
        Ok(Sizes {
            vocabulary: size("n_vocab")?,
            mels: size("n_mels")?,
            hidden: size("n_text_state")?,
            encoder: side("audio")?,
            decoder: side("text")?,
        })
    }

    fn from_facts(facts: &Facts<'_>, file: &ModelFile) -> Result<Sizes> {
        let side = |gguf: &str, json: &str, context: &str| {
            let need = |key: &str, json: &str| facts.need(&format!("{gguf}.{key}"), json);
            let hidden = need("embedding_length", "d_model")?;
            let inner = facts.count(&format!("{gguf}.feed_forward_length"), &format!("{json}_ffn_dim"))?;
            Ok::<_, Error>(Side {
                context: need("context_length", context)?,
                hidden,
                layers: need("block_count", &format!("{json}_layers"))?,
                heads: need("attention.head_count", &format!("{json}_attention_heads"))?,
                inner: inner.unwrap_or(4 * hidden),
            })
        };
        let decoder = side("decoder", "decoder", "max_target_positions")?;
        let vocabulary = match facts.count("vocab_size", "vocab_size")? {
            Some(count) => count,
            None => {
                let [_, names] = Names::speech(&SpeechTensors::new(file))?;
                let name = names.global("token_embd") + ".weight";
                let tensor = file.get_tensor(&name);
                tensor.ok_or(Error::MissingTensor { name, family: FAMILY.into() })?.rows()
            }
        };
        Ok(Sizes {
            vocabulary,
            mels: facts.need("encoder.mels_count", "num_mel_bins")?,
            hidden: decoder.hidden,
            encoder: side("encoder", "encoder", "max_source_positions")?,
            decoder,
        })
    }
}

impl Side {
    fn architecture(&self, mask: Mask) -> Result<Architecture> {
        let &Side { context, hidden, layers, heads, inner } = self;
        let problem = if heads == 0 || !hidden.is_multiple_of(heads) || hidden == 0 {
            format!("{heads} heads of a width of {hidden}")
        } else if layers == 0 || layers > 4096 || context == 0 || context > MOST_POSITIONS {
            format!("{layers} layers over {context} positions")
        } else {
            let head_dim = hidden / heads;
            let layer = Layer {
                heads,
                kv_heads: heads,
                head_dim,
                window: None,
                rope: None,
                score_scale: 1.0 / (head_dim as f32).sqrt(),
                score_cap: None,
                feed_forward: FeedForward::Plain { inner },
            };
            return Ok(Architecture {
                family: FAMILY,
                hidden,
                context,
                layers: vec![layer; layers],
                ropes: Vec::new(),
                mask,
                positions: Some(0),
                norm: NormKind::Layer,
                norm_after: false,
                norm_eps: EPSILON,
                activation: Activation::GeluErf,
                embedding_scale: 1.0,
                logit_cap: None,
            });
        };
        Err(Error::config("sizes", problem))
    }
}

/// The alignment heads that a checkpoint's `generation_config.json` lists, each once.
fn listed_heads(file: &ModelFile) -> Result<Option<Vec<AlignmentHead>>> {
    let ModelFile::Checkpoint(checkpoint) = file else { return Ok(None) };
    let Some(config) = checkpoint.generation_config() else { return Ok(None) };
    let listed = config.get::<Vec<AlignmentHead>>("alignment_heads")?;
    Ok(listed.filter(|list| !list.is_empty()).map(|mut list| {
        list.sort_unstable();
        list.dedup();
        list
    }))
}

/// The tensors of a file as matrices: kernels of convolutions are `[out][in · 3]`, as they lie; OpenAI's tables of positions
/// have `.weight` behind their names as all other tables do.
pub struct SpeechTensors<'a> {
    file: &'a ModelFile,
    /// The shapes that differ from the file's, by the file's names.
    shapes: HashMap<String, Vec<usize>>,
}

impl<'a> SpeechTensors<'a> {
    /// The tensors of a file.
    pub fn new(file: &'a ModelFile) -> SpeechTensors<'a> {
        let flat = |tensor: Tensor<'_>| match *tensor.shape {
            [out, input, taps] => Some((tensor.name.to_owned(), vec![out, input * taps])),
            [count, 1] => Some((tensor.name.to_owned(), vec![count])),
            _ => None,
        };
        SpeechTensors { file, shapes: file.tensors().filter_map(flat).collect() }
    }

    /// What the file calls a tensor.
    fn own<'n>(&self, name: &'n str) -> &'n str {
        match name.strip_suffix(".weight") {
            Some(bare) if self.file.get_tensor(name).is_none() => bare,
            _ => name,
        }
    }
}

impl TensorSource for SpeechTensors<'_> {
    fn find(&self, name: &str) -> Option<Tensor<'_>> {
        let own = self.own(name);
        let tensor = self.file.get_tensor(own)?;
        let shape = self.shapes.get(own).map_or(tensor.shape, Vec::as_slice);
        Some(Tensor { shape, ..tensor })
    }

    fn mapping(&self, name: &str) -> Option<&Mapping> {
        self.file.mapping(self.own(name))
    }

    fn release(&self, name: &str) {
        self.file.release_tensor(self.own(name));
    }
}
