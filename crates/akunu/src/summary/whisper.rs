//! What Whisper's own container says of its model.

use akunu_format::whisper_ggml::WhisperGgml;
use serde_json::json;

use super::memory::{LayerCache, Span};
use super::{Encoder, Shape, Summary, TokenizerSummary};
use crate::Result;

/// Vocabularies from this size on hold the tokens for all languages.
const MULTILINGUAL_VOCABULARY: u32 = 51_865;

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
    let multilingual = facts.vocab_size >= MULTILINGUAL_VOCABULARY;
    summary.tokenizer = Some(TokenizerSummary {
        model: "whisper".to_owned(),
        pre: Some(if multilingual { "multilingual" } else { "English" }.to_owned()),
        vocabulary_size: facts.vocab_size.into(),
        ..TokenizerSummary::default()
    });
    summary.metadata.insert("ftype".to_owned(), json!(facts.ftype));
    Ok(cache(&summary.shape))
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
