//! Contexts that overflow: with a shift the text goes on, and the cache holds the beginning and the end of it.

use akunu::{FinishReason, Generation, KvType, Model, Options, Sampling, Sequence, Settings, Speculate};

use crate::tiny::{FAMILIES, load, options, prompt};

const CONTEXT: usize = 192;
/// Tokens that a shift leaves in place.
const KEPT: usize = 64;

fn small() -> Options {
    Options { context: Some(CONTEXT), ..options() }
}

fn settings(max_tokens: usize) -> Settings {
    // Never the end token.
    let bias = vec![(2, f32::NEG_INFINITY)];
    let sampling = Sampling { temperature: 0.8, seed: 4, logit_bias: bias, ..Sampling::GREEDY };
    Settings { sampling, max_tokens: Some(max_tokens), context_shift: true, ..Settings::default() }
}

fn run(model: &Model, prompt: &[u32], settings: &Settings) -> (Vec<u32>, FinishReason, Sequence) {
    let mut generation = Generation::new(model.sequence().unwrap(), prompt.to_vec(), settings).unwrap();
    assert!(generation.by_ref().all(|piece| piece.is_ok()));
    let (tokens, finish) = (generation.tokens().to_vec(), generation.finish_reason().unwrap());
    (tokens, finish, generation.into_sequence())
}

#[test]
fn text_goes_on_and_the_cache_holds_its_beginning_and_end() {
    for backend in ["reference", "cpu"] {
        for name in FAMILIES {
            let model = load(name, &Options { backend: backend.to_owned(), ..small() });
            let prompt = prompt(name);
            let (tokens, finish, sequence) = run(&model, &prompt, &settings(700));
            assert_eq!((tokens.len(), finish), (700, FinishReason::Length), "{name}, {backend}");
            let all = [&prompt[..], &tokens].concat();
            let (kept, rest) = sequence.tokens().split_at(KEPT);
            assert_eq!(kept, &all[..KEPT], "{name}, {backend}");
            // The last token was chosen and never fed.
            assert!(all[..all.len() - 1].ends_with(rest) && rest.len() >= KEPT, "{name}, {backend}");
        }
    }
}

#[test]
fn chains_chunks_and_guesses_change_nothing() {
    for name in FAMILIES {
        let prompt = prompt(name);
        let plain = Settings { longest_chain: 1, ..settings(400) };
        let (expected, ..) = run(&load(name, &small()), &prompt, &plain);
        for (batch, longest_chain, speculate) in
            [(512, 64, Speculate::Off), (7, 5, Speculate::Off), (16, 64, Speculate::Always)]
        {
            let model = load(name, &Options { batch, ..small() });
            let (tokens, ..) = run(&model, &prompt, &Settings { longest_chain, speculate, ..plain.clone() });
            assert_eq!(tokens, expected, "{name}, {batch}, {longest_chain}, {speculate:?}");
        }
    }
}

#[test]
fn until_the_context_is_full_nothing_differs() {
    let model = load("llama", &small());
    let prompt = prompt("llama");
    let (long, ..) = run(&model, &prompt, &settings(400));
    let without = Settings { context_shift: false, ..settings(400) };
    let (short, finish, sequence) = run(&model, &prompt, &without);
    assert_eq!((short.len(), finish), (CONTEXT - prompt.len() + 1, FinishReason::Length));
    assert_eq!(sequence.position(), CONTEXT);
    assert_eq!(long[..short.len()], short);
}

#[test]
fn positions_come_again_but_their_noise_does_not() {
    let model = load("llama", &small());
    // Nothing but noise chooses.
    let sampling = Sampling { temperature: 1000.0, ..settings(0).sampling };
    let (tokens, ..) = run(&model, &prompt("llama"), &Settings { sampling, ..settings(500) });
    let period = KEPT;
    let same = tokens.windows(period + 1).skip(200).filter(|w| w[0] == w[period]).count();
    assert!(same < 30, "{same} of 300 tokens are those of one block before");
}

#[test]
fn a_fork_does_not_notice_that_the_other_shifts() {
    for name in FAMILIES {
        let model = load(name, &small());
        let long: Vec<u32> = prompt(name).into_iter().cycle().take(CONTEXT - 20).collect();
        let mut alone = model.sequence().unwrap();
        alone.feed(&long).unwrap();
        let expected = alone.chain(5, 20).unwrap().to_vec();
        drop(alone);
        let mut first = model.sequence().unwrap();
        first.feed(&long).unwrap();
        let mut second = first.fork().unwrap();
        assert_eq!(first.shift().unwrap(), 64);
        first.chain(9, 20).unwrap();
        assert_eq!(second.chain(5, 20).unwrap(), expected, "{name}");
    }
}

#[test]
fn what_saw_dropped_tokens_is_not_taken_for_a_prefix() {
    let model = load("llama", &small());
    let long: Vec<u32> = prompt("llama").into_iter().cycle().take(CONTEXT).collect();
    let mut sequence = model.sequence().unwrap();
    sequence.feed(&long).unwrap();
    sequence.shift().unwrap();
    let left = sequence.tokens().to_vec();
    assert_eq!(left, [&long[..KEPT], &long[2 * KEPT..]].concat());
    assert_eq!(sequence.keep_common_prefix(&left).unwrap(), KEPT);
    let again = sequence.prefill(&left[KEPT..]).unwrap();
    assert_eq!(again, model.sequence().unwrap().prefill(&left).unwrap());
}

#[test]
fn a_sequence_that_is_too_short_says_so() {
    let model = load("llama", &small());
    let mut sequence = model.sequence().unwrap();
    sequence.feed(&[5; 127]).unwrap();
    assert!(!sequence.can_shift());
    assert!(sequence.shift().unwrap_err().to_string().contains("127 tokens"));
    // A context without a second block ends as without a shift.
    let tiny = load("llama", &Options { context: Some(100), ..options() });
    let (tokens, finish, _) = run(&tiny, &prompt("llama"), &settings(400));
    assert_eq!((tokens.len(), finish), (61, FinishReason::Length));
}

#[test]
fn an_eight_bit_cache_shifts_too_and_stays_close() {
    for name in FAMILIES {
        let model = load(name, &Options { kv: KvType::Q8_0, ..small() });
        let (tokens, ..) = run(&model, &prompt(name), &settings(400));
        assert_eq!(tokens.len(), 400, "{name}");
        // Logits move by what 8 bits lose, and no more.
        let logits = |kv| {
            let model = load(name, &Options { kv, ..small() });
            let mut sequence = model.sequence().unwrap();
            let (first, last) = (&tokens[..150], &tokens[150..160]);
            sequence.feed(first).unwrap();
            sequence.logits(last, akunu::Phase::Decode).unwrap().to_vec()
        };
        let (half, byte) = (logits(KvType::F16), logits(KvType::Q8_0));
        let largest = half.iter().fold(0f32, |most, z| most.max(z.abs()));
        let error = half.iter().zip(&byte).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(error > 0.0 && error < 0.03 * largest, "{name}: {error} of {largest}");
    }
}
