//! What the steps of a model's runs take.

use std::ffi::c_char;

use crate::arguments::{field, fill};
use crate::model::{akunu_model, loaded};
use crate::status::{Failure, akunu_status, guard};

/// One step of a model, over all runs since timing began.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_step_time {
    /// What it does and the first tensor it reads, such as "linear blk.0.attn_q.weight"; cut where it is longer, ends with a zero.
    pub label: [c_char; 96],
    /// Time of all runs together.
    pub milliseconds: f64,
    /// How often it ran.
    pub runs: u64,
    /// Bytes it had to read.
    pub bytes: u64,
    /// Additions and multiplications of its products.
    pub operations: u64,
}

/// Times every step of the model's runs from now on, or no longer, and forgets what was measured before. AKUNU_UNSUPPORTED
/// where the backend cannot.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_model_time_steps(model: *const akunu_model, on: bool) -> akunu_status {
    guard(|| {
        if loaded(model)?.model.time_steps(on) {
            return Ok(());
        }
        Err(Failure::new(akunu_status::AKUNU_UNSUPPORTED, "the backend cannot time its steps"))
    })
}

/// The steps in the order they run; none unless they are timed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_model_step_times(
    model: *const akunu_model,
    steps: *mut akunu_step_time,
    capacity: usize,
    count: *mut usize,
) -> akunu_status {
    guard(|| {
        let times = loaded(model)?.model.step_times();
        let view = |step: &engine::StepTime| {
            let text =
                [&[step.kind.to_owned()], step.weights.get(..1).unwrap_or_default()].concat().join(" ");
            akunu_step_time {
                label: field(&text),
                milliseconds: step.tally.time.as_secs_f64() * 1e3,
                runs: step.tally.runs,
                bytes: step.tally.bytes,
                operations: step.tally.operations,
            }
        };
        let views: Vec<_> = times.iter().map(view).collect();
        // SAFETY: the caller's promise, see `arguments`.
        unsafe { fill(&views, steps, capacity, count) }
    })
}
