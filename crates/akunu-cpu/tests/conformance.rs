//! Every operation, in every dtype, on every instruction set of this processor, against the reference backend.

#![allow(clippy::unwrap_used)]

use akunu_cpu::{Cpu, Isa};
use akunu_program::conformance;

fn check(isa: Isa, threads: usize) {
    let cpu = Cpu::with_isa(threads, isa).unwrap();
    let wrong: Vec<String> =
        conformance::run(&cpu).iter().filter(|o| !o.is_right()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{isa}, {threads} threads:\n{}", wrong.join("\n"));
}

#[test]
fn every_instruction_set_computes_every_operation() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        check(isa, 2);
    }
}

#[test]
fn more_threads_than_work_do_too() {
    check(Isa::detect().unwrap(), 5);
}
