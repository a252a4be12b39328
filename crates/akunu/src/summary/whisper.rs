//! What Whisper's own containers say of their models.

use akunu_format::torch::TorchCheckpoint;
use akunu_format::whisper_ggml::WhisperGgml;
use serde_json::json;

use super::memory::{LayerCache, Span};
use super::{Encoder, Shape, Summary, TokenizerSummary};
use crate::Result;
use crate::text::MULTILINGUAL_VOCABULARY;

/// Fills in the summary; returns what each decoder layer keeps.
pub(super) fn describe(file: &WhisperGgml, summary: &mut Summary) -> Result<Vec<LayerCache>> {
    let facts = file.hparams();
    summary.format = "Whisper GGML".to_owned();
    summary.add_files(std::iter::once(file.path()))?;
    summary.architecture = Some("whisper".to_owned());
    summary.shape = shape(&Sizes {
        text_context: facts.text_ctx.into(),
        text_layers: facts.text_layers.into(),
        text_width: facts.text_state.into(),
        text_heads: facts.text_heads.into(),
        vocabulary: facts.vocab_size.into(),
        encoder: Encoder {
            context_length: facts.audio_ctx.into(),
            layers: facts.audio_layers.into(),
            embedding_length: facts.audio_state.into(),
            heads: facts.audio_heads.into(),
            mels: facts.mels.into(),
        },
    });
    summary.tokenizer = Some(tokenizer(facts.vocab_size.into()));
    summary.metadata.insert("ftype".to_owned(), json!(facts.ftype));
    Ok(cache(&summary.shape))
}

/// The same of a PyTorch checkpoint, which is a model of speech if it has OpenAI's sizes.
pub(super) fn describe_torch(
    file: &TorchCheckpoint,
    summary: &mut Summary,
) -> Result<Option<Vec<LayerCache>>> {
    summary.format = "PyTorch".to_owned();
    summary.add_files(std::iter::once(file.path()))?;
    let size = |name: &str| file.size(name).and_then(|size| u64::try_from(size).ok());
    let sizes = || {
        Some(Sizes {
            text_context: size("n_text_ctx")?,
            text_layers: size("n_text_layer")?,
            text_width: size("n_text_state")?,
            text_heads: size("n_text_head")?,
            vocabulary: size("n_vocab")?,
            encoder: Encoder {
                context_length: size("n_audio_ctx")?,
                layers: size("n_audio_layer")?,
                embedding_length: size("n_audio_state")?,
                heads: size("n_audio_head")?,
                mels: size("n_mels")?,
            },
        })
    };
    let Some(sizes) = sizes() else { return Ok(None) };
    summary.architecture = Some("whisper".to_owned());
    summary.shape = shape(&sizes);
    summary.tokenizer = Some(tokenizer(sizes.vocabulary));
    Ok(Some(cache(&summary.shape)))
}

fn tokenizer(vocabulary_size: u64) -> TokenizerSummary {
    let multilingual = vocabulary_size >= MULTILINGUAL_VOCABULARY as u64;
    TokenizerSummary {
        model: "whisper".to_owned(),
        pre: Some(if multilingual { "multilingual" } else { "English" }.to_owned()),
        vocabulary_size,
        ..TokenizerSummary::default()
    }
}

/// The numbers that make up a Whisper model, whichever file they come from.
pub(super) struct Sizes {
    pub text_context: u64,
    pub text_layers: u64,
    pub text_width: u64,
    pub text_heads: u64,
    pub vocabulary: u64,
    pub encoder: Encoder,
}

/// Its shape: heads share nothing, and the feed-forward network is four times as wide as the stream.
pub(super) fn shape(sizes: &Sizes) -> Shape {
    Shape {
        context_length: Some(sizes.text_context),
        layers: Some(sizes.text_layers),
        embedding_length: Some(sizes.text_width),
        feed_forward_length: sizes.text_width.checked_mul(4),
        heads: Some(sizes.text_heads),
        kv_heads: Some(sizes.text_heads),
        head_dim: sizes.text_width.checked_div(sizes.text_heads),
        vocabulary_size: Some(sizes.vocabulary),
        encoder: Some(sizes.encoder.clone()),
        ..Shape::default()
    }
}

/// Each decoder layer keeps keys and values of its own text, and of all the encoder heard.
pub(super) fn cache(shape: &Shape) -> Vec<LayerCache> {
    let elements = shape.embedding_length.unwrap_or(0).saturating_mul(2);
    let heard = shape.encoder.as_ref().map_or(0, |encoder| encoder.context_length);
    let layers = shape.layers.unwrap_or(0).min(super::memory::MAX_LAYERS) as usize;
    let layer =
        [LayerCache { elements, span: Span::Context }, LayerCache { elements, span: Span::Encoder(heard) }];
    layer.iter().cycle().take(2 * layers).cloned().collect()
}
