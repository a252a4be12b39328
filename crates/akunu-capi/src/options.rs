//! What callers choose: how a model is loaded, how tokens are chosen, how text is generated. Zero is the default of every
//! field, so that a struct with its size and nothing else is complete.

use std::ffi::c_char;

use engine::{KvType, Options, Sampling, Settings, Speculate};

use crate::arguments::{SelfSized, elements, optional_text, sized, text};
use crate::constraint::{CONSTRAINTS, akunu_constraint};
use crate::status::{Failure, Outcome};

/// Keys and values in half precision.
pub const AKUNU_KV_F16: u32 = 0;
/// Keys and values in 8 bits: half the memory.
pub const AKUNU_KV_Q8_0: u32 = 1;

/// How a model is loaded. Zero is the default of every field but the size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_load_options {
    /// sizeof(akunu_load_options).
    pub size: usize,
    /// "cpu", "cuda", "metal", "reference"; null for akunu's choice.
    pub backend: *const c_char,
    /// Positions of one sequence; 0 for the model's own, at most 4096.
    pub context: usize,
    /// Threads; 0 for all cores.
    pub threads: usize,
    /// Sequences that can exist at the same time; 0 for one.
    pub sequences: usize,
    /// Most tokens fed at once; 0 for 512.
    pub batch: usize,
    /// Most rows of logits computed at once; 0 for 16.
    pub outputs: usize,
    /// How keys and values are kept: one of AKUNU_KV_*.
    pub kv: u32,
}

// SAFETY: the first field is the size; numbers and pointers may be 0.
unsafe impl SelfSized for akunu_load_options {}

/// A number added to one token's logit.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_bias {
    /// The token.
    pub token: u32,
    /// Minus infinity forbids it.
    pub bias: f32,
}

/// How tokens are chosen. Zero is the default of every field but the size, and means the likeliest token every time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_sampling {
    /// sizeof(akunu_sampling).
    pub size: usize,
    /// 0 always takes the likeliest token.
    pub temperature: f32,
    /// Keeps this many of the likeliest; 0 keeps all.
    pub top_k: u32,
    /// Keeps this share of the probability; 0 or 1 keeps all.
    pub top_p: f32,
    /// Keeps what has this share of the best one's probability; 0 keeps all.
    pub min_p: f32,
    /// Divides the logits of tokens that came lately; 0 or 1 leaves them.
    pub repeat_penalty: f32,
    /// Subtracted from them for each time they came.
    pub frequency_penalty: f32,
    /// Subtracted from them once.
    pub presence_penalty: f32,
    /// How many tokens are lately; 0 for 64.
    pub repeat_last_n: u32,
    /// Where chance comes from: the same seed gives the same text.
    pub seed: u64,
    /// Added to single tokens' logits: bias_count of them.
    pub biases: *const akunu_bias,
    /// How many.
    pub bias_count: usize,
}

// SAFETY: the first field is the size; numbers and pointers may be 0.
unsafe impl SelfSized for akunu_sampling {}

/// How text is generated. Zero is the default of every field but the size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_generate_options {
    /// sizeof(akunu_generate_options).
    pub size: usize,
    /// How tokens are chosen; null for the likeliest.
    pub sampling: *const akunu_sampling,
    /// Most tokens; 0 until the model or the context ends.
    pub max_tokens: usize,
    /// Texts that end the generation and are not part of it: stop_count of them.
    pub stop: *const *const c_char,
    /// How many.
    pub stop_count: usize,
    /// What the text must be like; null for anything. It may be freed once the generation has begun.
    pub constraint: *const akunu_constraint,
    /// Whether the prompt goes on from what the sequence holds, instead of replacing it.
    pub append: bool,
    /// Whether coming tokens are guessed and verified together: faster, never different.
    pub speculate: bool,
    /// Whether the oldest tokens are dropped when the context is full, instead of ending there.
    pub context_shift: bool,
}

// SAFETY: the first field is the size; numbers and pointers may be 0, and false is 0.
unsafe impl SelfSized for akunu_generate_options {}

/// What a number means to the engine: 0 is the default.
fn or(value: usize, default: usize) -> usize {
    if value == 0 { default } else { value }
}

/// # Safety
///
/// As [`arguments`](crate::arguments) says.
pub(crate) unsafe fn load_options(pointer: *const akunu_load_options) -> Outcome<Options> {
    // SAFETY: handed on.
    let given = unsafe { sized(pointer, "options")? };
    // SAFETY: handed on.
    let backend = unsafe { optional_text(given.backend, "options.backend")? };
    let default = Options::default();
    Ok(Options {
        backend: backend.map_or(default.backend, str::to_owned),
        context: Some(given.context).filter(|&context| context != 0),
        threads: Some(given.threads).filter(|&threads| threads != 0),
        sequences: or(given.sequences, default.sequences),
        batch: or(given.batch, default.batch),
        outputs: or(given.outputs, default.outputs),
        kv: match given.kv {
            AKUNU_KV_F16 => KvType::F16,
            AKUNU_KV_Q8_0 => KvType::Q8_0,
            other => return Err(Failure::usage(format_args!("options.kv is {other}: no AKUNU_KV_* has it"))),
        },
    })
}

/// # Safety
///
/// As [`arguments`](crate::arguments) says.
pub(crate) unsafe fn sampling(pointer: *const akunu_sampling) -> Outcome<Sampling> {
    // SAFETY: handed on.
    let given = unsafe { sized(pointer, "sampling")? };
    // SAFETY: handed on.
    let biases = unsafe { elements(given.biases, given.bias_count, "sampling.biases")? };
    let default = Sampling::GREEDY;
    let share = |value: f32, default: f32| if value == 0.0 { default } else { value };
    Ok(Sampling {
        temperature: given.temperature,
        top_k: given.top_k,
        top_p: share(given.top_p, default.top_p),
        min_p: given.min_p,
        repeat_penalty: share(given.repeat_penalty, default.repeat_penalty),
        frequency_penalty: given.frequency_penalty,
        presence_penalty: given.presence_penalty,
        repeat_last_n: if given.repeat_last_n == 0 { default.repeat_last_n } else { given.repeat_last_n },
        seed: given.seed,
        logit_bias: biases.iter().map(|bias| (bias.token, bias.bias)).collect(),
    })
}

/// The settings, and whether the prompt goes on from what is there.
///
/// # Safety
///
/// As [`arguments`](crate::arguments) says.
pub(crate) unsafe fn settings(pointer: *const akunu_generate_options) -> Outcome<(Settings, bool)> {
    // SAFETY: handed on.
    let given = unsafe { sized(pointer, "options")? };
    // SAFETY: handed on.
    let sampling = unsafe { sampling(given.sampling)? };
    // SAFETY: handed on.
    let stop = unsafe { elements(given.stop, given.stop_count, "options.stop")? };
    // SAFETY: handed on.
    let stop = stop.iter().map(|&stop| unsafe { text(stop, "options.stop") }.map(str::to_owned));
    let constraint = if given.constraint.is_null() {
        None
    } else {
        Some(engine::Constraint::clone(&*CONSTRAINTS.get(given.constraint)?))
    };
    let settings = Settings {
        sampling,
        max_tokens: Some(given.max_tokens).filter(|&most| most != 0),
        stop: stop.collect::<Outcome<_>>()?,
        constraint,
        speculate: if given.speculate { Speculate::Auto } else { Speculate::Off },
        context_shift: given.context_shift,
        ..Settings::default()
    };
    Ok((settings, given.append))
}
