//! Generating allocates two things for every piece of text (the piece's text and its tokens), four for every run, however many
//! tokens it chooses, and something for a new block of the cache now and then; choosing a token allocates nothing.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod tiny;

use akunu::{Generation, Options, Sampling, Settings};
use akunu_testing::allocator::{Counting, allocations};
use tiny::{load, options, prompt};

#[global_allocator]
static COUNTING: Counting = Counting;

/// The lists of a run's spans, tokens and outputs, and of its edits where something changes.
const PER_RUN: usize = 4;
/// For each block of 64 positions, in each of at most two KV groups: the list of edits and the growth of a table.
const PER_BLOCK: usize = 4;

#[test]
fn a_token_costs_its_text_and_a_run_its_lists() {
    let greedy = Sampling { logit_bias: vec![(2, f32::NEG_INFINITY)], ..Sampling::GREEDY };
    let warm = Sampling {
        temperature: 0.9,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.01,
        repeat_penalty: 1.1,
        presence_penalty: 0.1,
        seed: 3,
        ..greedy.clone()
    };
    let wide = Sampling { temperature: 1.3, top_p: 0.99, seed: 3, ..greedy.clone() };
    for name in ["llama", "gemma3"] {
        let model = load(name, &Options { backend: "cpu".to_owned(), threads: Some(2), ..options() });
        for sampling in [&greedy, &warm, &wide] {
            // Every token is a run.
            let settings = Settings {
                sampling: sampling.clone(),
                max_tokens: Some(200),
                longest_chain: 1,
                ..Settings::default()
            };
            let mut generation = Generation::new(model.sequence().unwrap(), prompt(name), &settings).unwrap();
            // The first runs give every buffer its room.
            generation.by_ref().take(100).for_each(|piece| drop(piece.unwrap()));
            let before = allocations();
            let pieces = generation.by_ref().map(|piece| drop(piece.unwrap())).count();
            let count = allocations() - before;
            let blocks = 2 + pieces / 64;
            assert!(
                pieces > 50 && count <= (2 + PER_RUN) * pieces + PER_BLOCK * blocks,
                "{name}, {sampling:?}: {count} allocations for {pieces} pieces"
            );
        }
    }
    long_runs_allocate_no_more_than_short_ones();
}

/// Part of the test above: allocations of two tests at a time could not be told apart.
fn long_runs_allocate_no_more_than_short_ones() {
    let model = load("llama", &Options { backend: "cpu".to_owned(), threads: Some(2), ..options() });
    for temperature in [0.0, 1.0] {
        let mut sequence = model.sequence().unwrap();
        let sampling =
            Sampling { temperature, top_k: 40, top_p: 0.9, repeat_penalty: 1.1, ..Sampling::GREEDY };
        sequence.set_sampling(&sampling).unwrap();
        let mut token = sequence.prefill(&prompt("llama")).unwrap();
        let mut run = |n: usize| {
            let before = allocations();
            token = sequence.chain(token, n).unwrap()[n - 1];
            let count = allocations() - before;
            sequence.commit(n).unwrap();
            count
        };
        // The first gives every buffer its room, and the blocks that the others write are there.
        run(60);
        let (short, long) = (run(1), run(20));
        assert!(long <= PER_RUN && short <= PER_RUN, "{short} for one token, {long} for twenty");
    }
}
