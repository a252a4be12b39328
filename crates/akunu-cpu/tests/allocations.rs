//! Decoding allocates nothing.

#![allow(clippy::unwrap_used)]

mod models;

use akunu_cpu::Cpu;
use akunu_program::conformance::Runner;
use akunu_program::{Batch, Phase, SlotId, Span, Work};
use akunu_testing::allocator::{Counting, allocations};
use models::{CONTEXT, Model, fixtures};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn decoding_allocates_nothing() {
    for path in [fixtures("quants").join("Q4_K.gguf"), fixtures("tiny").join("qwen3moe/model.gguf")] {
        let model = Model::open(&path);
        for sequences in [1, 8, 20] {
            let cpu = Cpu::new(2).unwrap();
            let mut runner = Runner::new(&cpu, &model.program, &model.file, sequences, CONTEXT).unwrap();
            let outputs: Vec<u32> = (0..sequences).collect();
            let mut decode = |position: u32, work: Work| {
                let span =
                    |&slot: &u32| Span { slot: SlotId(slot), start: position, rows: 1, phase: Phase::Decode };
                let spans: Vec<Span> = outputs.iter().map(span).collect();
                let tokens = vec![3; outputs.len()];
                let batch = Batch { spans: &spans, tokens: &tokens, outputs: &outputs, ..Batch::default() };
                let before = allocations();
                runner.run(&batch, work).unwrap();
                allocations() - before
            };
            // The first runs give the output its room.
            decode(0, Work::Forward);
            decode(0, Work::Chain(8));
            for position in 1..60 {
                assert_eq!(decode(position, Work::Step), 0, "step of {sequences} at {position}");
                assert_eq!(decode(position, Work::Chain(8)), 0, "chain of {sequences} at {position}");
                assert_eq!(decode(position, Work::Forward), 0, "forward of {sequences} at {position}");
            }
        }
    }
}
