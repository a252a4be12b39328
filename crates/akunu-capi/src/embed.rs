//! Texts as vectors.

use std::ffi::c_char;

use engine::Embedder;
use engine::embed::{EmbedOptions, Pooling, Shape, TooLong};
use engine::hub::Hub;

use crate::arguments::{SelfSized, check_room, elements, fill, optional_text, sized, text, write};
use crate::handles::Handles;
use crate::model::{MODELS, akunu_model};
use crate::status::{Failure, Outcome, akunu_status, guard};

/// A model that is ready to embed. Threads may share it.
pub struct akunu_embedder {
    _private: (),
}

static EMBEDDERS: Handles<Embedder> = Handles::new("embedder");

/// As the model's makers say, otherwise the mean.
pub const AKUNU_POOLING_DEFAULT: u32 = 0;
/// The first token's state.
pub const AKUNU_POOLING_CLS: u32 = 1;
/// The mean of all tokens' states.
pub const AKUNU_POOLING_MEAN: u32 = 2;
/// The last token's state.
pub const AKUNU_POOLING_LAST: u32 = 3;

/// Vectors keep their length instead of being scaled to 1.
pub const AKUNU_EMBED_RAW: u32 = 1;
/// Texts that are too long are cut instead of refused.
pub const AKUNU_EMBED_CUT: u32 = 2;

/// How an embedder is loaded. Zero is the default of every field but the size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_embedder_options {
    /// sizeof(akunu_embedder_options).
    pub size: usize,
    /// "cpu", "cuda", "metal", "reference"; null for akunu's choice.
    pub backend: *const c_char,
    /// Threads; 0 for all cores.
    pub threads: usize,
    /// Most tokens of a text; 0 for what the model's makers say, at most 4096.
    pub context: usize,
    /// Most tokens fed at once; 0 for 512.
    pub batch: usize,
    /// How states become one vector: one of AKUNU_POOLING_*.
    pub pooling: u32,
}

// SAFETY: the first field is the size; numbers and pointers may be 0.
unsafe impl SelfSized for akunu_embedder_options {}

/// Loads a model to embed with. `path` is a file or a directory, or the name of a model that `akunu pull` fetched; `options` may
/// be null. `*embedder` is to be given to akunu_embedder_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_embedder_load(
    path: *const c_char,
    options: *const akunu_embedder_options,
    embedder: *mut *mut akunu_embedder,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    let load = || unsafe {
        let path = Hub::from_env()?.resolve(text(path, "path")?)?;
        Ok(Embedder::load(path, &embed_options(options)?)?)
    };
    // SAFETY: as above.
    guard(|| unsafe { EMBEDDERS.give(embedder, "embedder", load) })
}

/// Makes an embedder of a model that is loaded, with its weights; both may be freed in any order. Backend and threads of the options do
/// not count: it runs where the model runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_embedder_of(
    model: *const akunu_model,
    options: *const akunu_embedder_options,
    embedder: *mut *mut akunu_embedder,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    let make = || unsafe { Ok(Embedder::of(&MODELS.get(model)?.model, &embed_options(options)?)?) };
    // SAFETY: as above.
    guard(|| unsafe { EMBEDDERS.give(embedder, "embedder", make) })
}

/// # Safety
///
/// As [`arguments`](crate::arguments) says.
unsafe fn embed_options(pointer: *const akunu_embedder_options) -> Outcome<EmbedOptions> {
    // SAFETY: handed on.
    let given = unsafe { sized(pointer, "options")? };
    // SAFETY: handed on.
    let backend = unsafe { optional_text(given.backend, "options.backend")? };
    let default = EmbedOptions::default();
    Ok(EmbedOptions {
        backend: backend.map_or(default.backend, str::to_owned),
        threads: Some(given.threads).filter(|&threads| threads != 0),
        context: Some(given.context).filter(|&context| context != 0),
        batch: if given.batch == 0 { default.batch } else { given.batch },
        pooling: match given.pooling {
            AKUNU_POOLING_DEFAULT => None,
            AKUNU_POOLING_CLS => Some(Pooling::Cls),
            AKUNU_POOLING_MEAN => Some(Pooling::Mean),
            AKUNU_POOLING_LAST => Some(Pooling::Last),
            other => return Err(Failure::usage(format_args!("no AKUNU_POOLING_* is {other}"))),
        },
    })
}

/// Frees an embedder; null is fine.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_embedder_free(embedder: *mut akunu_embedder) -> akunu_status {
    guard(|| EMBEDDERS.remove(embedder))
}

/// How many numbers a vector has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_embedder_dimensions(
    embedder: *const akunu_embedder,
    dimensions: *mut usize,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { write(dimensions, EMBEDDERS.get(embedder)?.dimensions(), "dimensions") })
}

/// One vector for each text, one after another. `flags` are AKUNU_EMBED_RAW and AKUNU_EMBED_CUT, or 0. `*length` is how many
/// numbers there are: count times the dimensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_embed(
    embedder: *const akunu_embedder,
    texts: *const *const c_char,
    count: usize,
    flags: u32,
    vectors: *mut f32,
    capacity: usize,
    length: *mut usize,
) -> akunu_status {
    guard(|| {
        let embedder = EMBEDDERS.get(embedder)?;
        let too_long = if flags & AKUNU_EMBED_CUT != 0 { TooLong::Cut } else { TooLong::Refuse };
        // SAFETY: the caller's promise, see `arguments`.
        let texts = unsafe { elements(texts, count, "texts")? };
        let tokens = texts.iter().map(|&pointer| {
            // SAFETY: as above.
            let text = unsafe { text(pointer, "texts")? };
            Ok(embedder.tokens(text, too_long)?)
        });
        let tokens = tokens.collect::<Outcome<Vec<_>>>()?;
        // SAFETY: as above.
        unsafe { embed(&embedder, &tokens, flags, vectors, capacity, length) }
    })
}

/// The vector of one text that is given as tokens, those around it included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_embed_tokens(
    embedder: *const akunu_embedder,
    tokens: *const u32,
    count: usize,
    flags: u32,
    vector: *mut f32,
    capacity: usize,
    length: *mut usize,
) -> akunu_status {
    guard(|| {
        let embedder = EMBEDDERS.get(embedder)?;
        // SAFETY: the caller's promise, see `arguments`.
        let tokens = unsafe { elements(tokens, count, "tokens")? };
        // SAFETY: as above.
        unsafe { embed(&embedder, &[tokens.to_vec()], flags, vector, capacity, length) }
    })
}

/// # Safety
///
/// As [`arguments`](crate::arguments) says.
unsafe fn embed(
    embedder: &Embedder,
    texts: &[Vec<u32>],
    flags: u32,
    vectors: *mut f32,
    capacity: usize,
    length: *mut usize,
) -> Outcome {
    if flags & !(AKUNU_EMBED_RAW | AKUNU_EMBED_CUT) != 0 {
        return Err(Failure::usage(format_args!("flags has bits without a meaning: {flags:#x}")));
    }
    // Nothing is computed only to say how much there would be.
    // SAFETY: handed on.
    unsafe { check_room(texts.len().saturating_mul(embedder.dimensions()), capacity, length)? };
    let shape = Shape { normalize: flags & AKUNU_EMBED_RAW == 0, ..Shape::default() };
    let made = embedder.embed(texts, shape)?.concat();
    // SAFETY: handed on.
    unsafe { fill(&made, vectors, capacity, length) }
}
