//! The kernels on the emulator, against the reference backend and the oracles' logits.

#![allow(clippy::unwrap_used)]

use akunu_gpu::{Emulator, Gpu, Schedule};
use akunu_program::conformance;

#[test]
fn every_operation_is_right_in_every_dtype() {
    let gpu = Gpu::new(Emulator::new(Schedule::InTurn));
    let wrong: Vec<String> =
        conformance::run(&gpu).iter().filter(|o| !o.is_right()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
