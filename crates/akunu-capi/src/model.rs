//! Models: loading them, and what they say about themselves.

use std::ffi::c_char;
use std::sync::{Arc, OnceLock};

use akunu_format::ModelFile;
use engine::hub::Hub;
use engine::summary::TensorSummary;
use engine::{Model, Summary};

use crate::arguments::{SelfSized, field, fill_text, text, write, write_sized};
use crate::handles::Handles;
use crate::options::{akunu_load_options, load_options};
use crate::status::{Failure, Outcome, akunu_status, guard};

/// A model that is ready to run. Threads may share it.
pub struct akunu_model {
    _private: (),
}

pub(crate) static MODELS: Handles<Loaded> = Handles::new("model");

/// A model and what its file says, once someone asked.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    summary: OnceLock<Summary>,
}

/// What a model is made of. Where layers differ, the largest value stands; 0 where the file does not say.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_model_info {
    /// sizeof(akunu_model_info), set by the caller.
    pub size: usize,
    /// The family, such as "llama"; ends with a zero.
    pub architecture: [c_char; 32],
    /// The backend that runs it, such as "cpu"; ends with a zero.
    pub backend: [c_char; 16],
    /// Elements of all tensors together.
    pub parameters: u64,
    /// Bytes that weights, caches of all sequences and scratch take.
    pub memory: u64,
    /// Positions of one sequence, as it was loaded.
    pub context: u64,
    /// Positions it was made for.
    pub trained_context: u64,
    /// Sequences that can exist at the same time, as it was loaded.
    pub sequences: u64,
    /// Tokens it can choose from.
    pub vocabulary: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// Width inside the feed-forward network.
    pub feed_forward: u64,
    /// Positions that layers with a sliding window see; 0 where none has one.
    pub sliding_window: u64,
    /// The base of the rotations; that of layers without a window, where there are two.
    pub rope_theta: f64,
    /// The base of layers with a window, where it is another.
    pub rope_local_theta: f64,
    /// The epsilon of its norms.
    pub norm_eps: f64,
}

// SAFETY: the first field is the size; numbers may be 0.
unsafe impl SelfSized for akunu_model_info {}

/// One tensor of a model's file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_tensor_info {
    /// sizeof(akunu_tensor_info), set by the caller.
    pub size: usize,
    /// The dtype as its format spells it, such as "Q4_K" or "BF16"; ends with a zero.
    pub dtype: [c_char; 16],
    /// Its bytes in the file.
    pub bytes: u64,
    /// Dimensions in use.
    pub rank: u32,
    /// Outermost first.
    pub shape: [u64; 4],
}

// SAFETY: the first field is the size; numbers may be 0.
unsafe impl SelfSized for akunu_tensor_info {}

impl Loaded {
    /// What the file says. It is read again, once: loading a model keeps nothing of this.
    pub(crate) fn summary(&self) -> Outcome<&Summary> {
        if let Some(summary) = self.summary.get() {
            return Ok(summary);
        }
        let file = ModelFile::open(self.model.path()).map_err(engine::Error::from)?;
        let summary = Summary::of(&file, Some(self.model.context() as u64))?;
        Ok(self.summary.get_or_init(|| summary))
    }

    fn tensor(&self, index: usize) -> Outcome<&TensorSummary> {
        let tensors = &self.summary()?.tensors;
        tensors.get(index).ok_or_else(|| {
            let message = format!("there is no tensor {index}: the file has {}", tensors.len());
            Failure::new(akunu_status::AKUNU_NOT_FOUND, message)
        })
    }

    fn info(&self) -> Outcome<akunu_model_info> {
        let (model, summary) = (&self.model, self.summary()?);
        let (shape, architecture) = (&summary.shape, model.architecture());
        let memory = summary.memory.as_ref();
        let cache = memory.and_then(|memory| memory.kv_cache).unwrap_or(0);
        let once = memory.map_or(0, |memory| memory.weights + memory.scratch.unwrap_or(0));
        let theta = |windowed: bool| {
            let layer = architecture.layers.iter().find(|layer| layer.window.is_some() == windowed);
            layer.and_then(|layer| layer.rope).map_or(0.0, |rope| architecture.ropes[rope].theta)
        };
        let global = if theta(false) == 0.0 { theta(true) } else { theta(false) };
        Ok(akunu_model_info {
            size: 0,
            architecture: field(architecture.family),
            backend: field(model.backend()),
            parameters: summary.parameters,
            memory: once + cache * model.sequences() as u64,
            context: model.context() as u64,
            trained_context: architecture.context as u64,
            sequences: model.sequences() as u64,
            vocabulary: model.vocabulary() as u64,
            hidden: architecture.hidden as u64,
            layers: architecture.layers.len() as u64,
            heads: shape.heads.unwrap_or(0),
            kv_heads: shape.kv_heads.unwrap_or(0),
            head_dim: shape.head_dim.unwrap_or(0),
            feed_forward: shape.feed_forward_length.unwrap_or(0),
            sliding_window: shape.sliding_window.as_ref().map_or(0, |window| window.size),
            rope_theta: global,
            rope_local_theta: if theta(true) == global { 0.0 } else { theta(true) },
            norm_eps: f64::from(architecture.norm_eps),
        })
    }
}

/// Loads a model. `path` is a file or a directory, or the name of a model that `akunu pull` fetched; `options` may be
/// null. `*model` is to be given to akunu_model_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_model_load(
    path: *const c_char,
    options: *const akunu_load_options,
    model: *mut *mut akunu_model,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    let load = || unsafe {
        let path = Hub::from_env()?.resolve(text(path, "path")?)?;
        Ok(Loaded { model: Model::load(path, &load_options(options)?)?, summary: OnceLock::new() })
    };
    // SAFETY: as above.
    guard(|| unsafe { MODELS.give(model, "model", load) })
}

/// Frees a model; null is fine. Sequences and schedulers made from it stay as they are: its memory goes with the last of them.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_model_free(model: *mut akunu_model) -> akunu_status {
    guard(|| MODELS.remove(model))
}

/// What the model is made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_model_get_info(
    model: *const akunu_model,
    info: *mut akunu_model_info,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { write_sized(info, loaded(model)?.info()?, "info") })
}

/// How many tensors the model's file has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_tensor_count(model: *const akunu_model, count: *mut usize) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { write(count, loaded(model)?.summary()?.tensors.len(), "count") })
}

/// The name of tensor `index` of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_tensor_name(
    model: *const akunu_model,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { fill_text(loaded(model)?.tensor(index)?.name.as_bytes(), buffer, capacity, length) })
}

/// Dtype and shape of tensor `index` of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_tensor_get_info(
    model: *const akunu_model,
    index: usize,
    info: *mut akunu_tensor_info,
) -> akunu_status {
    guard(|| {
        let model = loaded(model)?;
        let tensor = model.tensor(index)?;
        let mut shape = [0; 4];
        for (to, from) in shape.iter_mut().zip(&tensor.shape) {
            *to = *from as u64;
        }
        let rank = tensor.shape.len() as u32;
        let answer =
            akunu_tensor_info { size: 0, dtype: field(&tensor.dtype), bytes: tensor.bytes, rank, shape };
        // SAFETY: the caller's promise, see `arguments`.
        unsafe { write_sized(info, answer, "info") }
    })
}

/// The object of a handle.
pub(crate) fn loaded(model: *const akunu_model) -> Outcome<Arc<Loaded>> {
    MODELS.get(model)
}
