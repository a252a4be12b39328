//! How much memory running a model takes.

use serde::Serialize;

use super::Summary;

/// Rows of a prompt that are worked on at once, for the estimate of scratch memory.
pub const SCRATCH_ROWS: u64 = 512;

/// Positions in a block of the key-value cache: memory is given out in whole blocks.
const BLOCK_POSITIONS: u64 = 64;

/// Bytes of an F16 element of the cache.
const CACHE_ELEMENT: u64 = 2;

/// A model deeper than this is a damaged file.
pub(super) const MAX_LAYERS: u64 = 10_000;

/// Bytes needed to run a model for one user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Tokens of context this is for.
    pub context: u64,
    /// The weights, as they are stored.
    pub weights: u64,
    /// Keys and values in F16, whole blocks, window layers no longer than their window. Zero for models that keep
    /// none, `None` where the file does not say enough.
    pub kv_cache: Option<u64>,
    /// Activations in F32, estimated for [`SCRATCH_ROWS`] rows: four residual streams, the feed-forward network's two
    /// and the heads' outputs, and one row of logits.
    pub scratch: Option<u64>,
    /// All of it; `None` unless all parts are known.
    pub total: Option<u64>,
}

/// What one layer keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerCache {
    /// Elements of keys and values together for one position, over all heads.
    pub elements: u64,
    /// How many positions.
    pub span: Span,
}

/// How many positions a layer remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// All of the context.
    Context,
    /// The last so many.
    Window(u64),
    /// Those of the encoder, however long the context.
    Encoder(u64),
}

impl Span {
    fn positions(self, context: u64) -> u64 {
        match self {
            Span::Context => context,
            Span::Window(window) => window.min(context),
            Span::Encoder(positions) => positions,
        }
    }
}

impl Memory {
    /// `cache` is what each layer keeps: empty for models that keep nothing, `None` where that is unknown.
    pub(super) fn needed(summary: &Summary, cache: Option<&[LayerCache]>, context: u64) -> Memory {
        let weights = summary.dtypes.iter().map(|share| share.bytes).sum();
        let kv_cache = cache.and_then(|layers| cache_bytes(layers, context));
        let scratch = scratch_bytes(summary);
        let total =
            kv_cache.zip(scratch).and_then(|(kv, scratch)| kv.checked_add(scratch)?.checked_add(weights));
        Memory { context, weights, kv_cache, scratch, total }
    }
}

fn cache_bytes(layers: &[LayerCache], context: u64) -> Option<u64> {
    layers.iter().try_fold(0_u64, |sum, layer| {
        let held = layer.span.positions(context).checked_next_multiple_of(BLOCK_POSITIONS)?;
        sum.checked_add(held.checked_mul(layer.elements)?.checked_mul(CACHE_ELEMENT)?)
    })
}

fn scratch_bytes(summary: &Summary) -> Option<u64> {
    let shape = &summary.shape;
    let embedding = shape.embedding_length?;
    let feed_forward =
        shape.feed_forward_length.unwrap_or(0).checked_mul(shape.experts_used.unwrap_or(1).max(1))?;
    let heads = shape.heads.unwrap_or(0).checked_mul(shape.head_dim.unwrap_or(0))?;
    let row = embedding
        .checked_mul(4)?
        .checked_add(feed_forward.checked_mul(2)?)?
        .checked_add(heads.checked_mul(2)?)?;
    let elements = row.checked_mul(SCRATCH_ROWS)?.checked_add(shape.vocabulary_size.unwrap_or(0))?;
    elements.checked_mul(size_of::<f32>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_layers_hold_no_more_than_their_window() {
        let global = LayerCache { elements: 512, span: Span::Context };
        let local = LayerCache { elements: 512, span: Span::Window(500) };
        let layers = [global, local];
        assert_eq!(cache_bytes(&layers, 4096), Some((4096 + 512) * 512 * 2));
        assert_eq!(cache_bytes(&layers, 100), Some(2 * 128 * 512 * 2));
    }

    #[test]
    fn absurd_numbers_give_no_estimate_rather_than_a_wrong_one() {
        let layer = LayerCache { elements: u64::MAX / 4, span: Span::Context };
        assert_eq!(cache_bytes(std::slice::from_ref(&layer), 4096), None);
        assert_eq!(cache_bytes(&[LayerCache { elements: 1, ..layer }], u64::MAX), None);
    }
}
