//! Rows that are decoded together, on the emulator: kernels that take several of them must give what those for one row give.

#![allow(clippy::unwrap_used)]

#[path = "../examples/check/gated.rs"]
mod gated;

use akunu_gpu::{Emulator, Gpu, Schedule};

#[test]
fn rows_decoded_together_get_the_bits_of_rows_alone_in_every_dtype() {
    for (storage, schedule) in gated::storages().zip(Schedule::ALL.into_iter().cycle()) {
        // Three cores, of which the last has one block of rows less.
        let gpu = Gpu::new(Emulator::ordered(schedule, 3));
        gated::compare(&gpu, storage).unwrap();
    }
}
