//! Generations: the text does not depend on how it is computed, ends where it should, and leaves the cache in order.

use akunu::{Error, FinishReason, Generation, Kind, Model, Options, Sampling, Sequence, Settings, Speculate};

use crate::tiny::{FAMILIES, load, options, prompt};

/// The tokenizer of the fixtures ends texts with this.
const EOS: u32 = 2;

fn warm() -> Sampling {
    Sampling { temperature: 0.9, top_k: 40, repeat_penalty: 1.1, seed: 5, ..Sampling::GREEDY }
}

/// Never the end token.
fn endless(mut sampling: Sampling) -> Sampling {
    sampling.logit_bias.push((EOS, f32::NEG_INFINITY));
    sampling
}

fn settings(sampling: Sampling, max_tokens: usize) -> Settings {
    Settings { sampling, max_tokens: Some(max_tokens), ..Settings::default() }
}

struct Outcome {
    text: String,
    /// Those of the pieces.
    tokens: Vec<u32>,
    finish: FinishReason,
    sequence: Sequence,
}

fn run(model: &Model, prompt: &[u32], settings: &Settings) -> Outcome {
    let generation = Generation::new(model.sequence().unwrap(), prompt.to_vec(), settings).unwrap();
    finish(generation)
}

fn finish(mut generation: Generation) -> Outcome {
    let (mut text, mut tokens) = (String::new(), Vec::new());
    for piece in &mut generation {
        let piece = piece.unwrap();
        text += &piece.text;
        tokens.extend(piece.tokens);
    }
    assert!(generation.tokens().ends_with(&tokens));
    let finish = generation.finish_reason().unwrap();
    Outcome { text, tokens, finish, sequence: generation.into_sequence() }
}

/// The cache holds what was kept; at most the last token was never fed.
fn holds_what_was_kept(outcome: &Outcome, prompt: &[u32]) {
    let kept = [prompt, &outcome.tokens].concat();
    let resident = outcome.sequence.tokens();
    assert!(
        kept.starts_with(resident) && resident.len() + 1 >= kept.len(),
        "{} of {}",
        resident.len(),
        kept.len()
    );
}

#[test]
fn text_does_not_depend_on_chunks_chains_or_guesses() {
    for name in FAMILIES {
        let prompt = prompt(name);
        for sampling in [endless(Sampling::GREEDY), endless(warm())] {
            let plain = Settings { longest_chain: 1, ..settings(sampling, 100) };
            let expected = run(&load(name, &options()), &prompt, &plain);
            assert_eq!((expected.tokens.len(), expected.finish), (100, FinishReason::Length));
            for (batch, longest_chain, speculate) in [
                (512, 64, Speculate::Off),
                (7, 3, Speculate::Off),
                (16, 64, Speculate::Always),
                (9, 5, Speculate::Auto),
            ] {
                let model = load(name, &Options { batch, ..options() });
                let settings = Settings { longest_chain, speculate, ..plain.clone() };
                let outcome = run(&model, &prompt, &settings);
                assert_eq!(
                    outcome.tokens, expected.tokens,
                    "{name}, {batch}, {longest_chain}, {speculate:?}"
                );
                assert_eq!(outcome.text, expected.text);
                holds_what_was_kept(&outcome, &prompt);
            }
        }
    }
}

#[test]
fn guesses_are_right_where_text_repeats_itself() {
    let model = load("llama", &options());
    // A bias so strong that the same token comes again and again.
    let sampling = Sampling { logit_bias: vec![(40, 1000.0)], ..Sampling::GREEDY };
    let settings = Settings { speculate: Speculate::Always, ..settings(sampling, 60) };
    let prompt = prompt("llama");
    let mut generation = Generation::new(model.sequence().unwrap(), prompt, &settings).unwrap();
    assert!(generation.by_ref().all(|piece| piece.is_ok()));
    assert_eq!(generation.tokens(), [40; 60]);
    let statistics = generation.statistics();
    assert!(statistics.guessed > 40 && statistics.right_guesses == statistics.guessed, "{statistics:?}");
}

#[test]
fn the_same_seed_gives_the_same_text_and_another_seed_another() {
    let model = load("llama", &options());
    let prompt = prompt("llama");
    let text = |seed| run(&model, &prompt, &settings(endless(Sampling { seed, ..warm() }), 40)).tokens;
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
    // The first token is sampled too.
    let firsts: std::collections::HashSet<u32> = (0..50).map(|seed| text(seed)[0]).collect();
    assert!(firsts.len() > 10, "{firsts:?}");
}

#[test]
fn the_model_ends_the_text_with_its_end_token() {
    let model = load("llama", &options());
    let prompt = prompt("llama");
    let mut ends = Vec::new();
    for seed in 0..12 {
        let sampling = Sampling { seed, ..warm() };
        let expected = steps_to_the_end(&model, &prompt, &sampling, 80);
        for longest_chain in [1, 64] {
            let settings = Settings { longest_chain, ..settings(sampling.clone(), 80) };
            let outcome = run(&model, &prompt, &settings);
            assert_eq!(outcome.tokens, expected, "seed {seed}");
            if expected.len() < 80 {
                assert_eq!(outcome.finish, FinishReason::Stop);
                assert_eq!(outcome.sequence.tokens(), [&prompt[..], &expected].concat());
                ends.push(expected.len());
            }
        }
    }
    assert!(ends.len() >= 4, "{ends:?}");
}

/// What comes before the end token, one step at a time, at most `n` tokens.
fn steps_to_the_end(model: &Model, prompt: &[u32], sampling: &Sampling, n: usize) -> Vec<u32> {
    let mut sequence = model.sequence().unwrap();
    sequence.set_sampling(sampling).unwrap();
    let mut token = sequence.prefill(prompt).unwrap();
    let mut tokens = Vec::new();
    while token != EOS && tokens.len() < n {
        tokens.push(token);
        token = sequence.step(token).unwrap();
    }
    tokens
}

#[test]
fn a_stop_string_ends_the_text_before_it_wherever_tokens_cut_it() {
    for name in ["llama", "gemma3"] {
        let model = load(name, &options());
        let prompt = prompt(name);
        let free = run(&model, &prompt, &settings(endless(warm()), 60));
        let characters: Vec<char> = free.text.chars().collect();
        for (at, length) in [(0, 1), (1, 3), (10, 5), (20, 1)] {
            let stop: String = characters[at..at + length].iter().collect();
            let before = &free.text[..free.text.find(&stop).unwrap()];
            for longest_chain in [1, 64] {
                let settings = Settings {
                    stop: vec!["never said".to_owned(), stop.clone()],
                    longest_chain,
                    ..settings(endless(warm()), 60)
                };
                let outcome = run(&model, &prompt, &settings);
                assert_eq!(outcome.text, before, "{name}, stop {stop:?}");
                assert_eq!(outcome.finish, FinishReason::StopString(1));
                assert!(free.tokens.starts_with(&outcome.tokens));
                holds_what_was_kept(&outcome, &prompt);
            }
        }
    }
}

#[test]
fn a_length_is_kept_to_the_token() {
    let model = load("llama", &options());
    let prompt = prompt("llama");
    for n in [0, 1, 2, 3, 17] {
        let outcome = run(&model, &prompt, &settings(endless(Sampling::GREEDY), n));
        assert_eq!((outcome.tokens.len(), outcome.finish), (n, FinishReason::Length));
        assert_eq!(outcome.sequence.position(), prompt.len() + n.saturating_sub(1));
    }
}

#[test]
fn a_full_context_ends_the_text_with_length() {
    let model = load("llama", &Options { context: Some(64), ..options() });
    for len in [40, 63, 64] {
        for speculate in [Speculate::Off, Speculate::Always] {
            let prompt: Vec<u32> = prompt("llama").into_iter().cycle().take(len).collect();
            let settings = Settings {
                sampling: Sampling { logit_bias: vec![(40, 1000.0)], ..Sampling::GREEDY },
                speculate,
                ..Settings::default()
            };
            let outcome = run(&model, &prompt, &settings);
            // The last token comes from the last position and needs none itself.
            assert_eq!((outcome.tokens.len(), outcome.finish), (64 - len + 1, FinishReason::Length));
            assert_eq!(outcome.sequence.position(), 64);
        }
    }
}

#[test]
fn going_on_after_a_stop_gives_what_a_fresh_run_gives() {
    let model = load("qwen3moe", &options());
    let prompt = prompt("qwen3moe");
    let free = run(&model, &prompt, &settings(endless(Sampling::GREEDY), 60));
    let first = run(&model, &prompt, &settings(endless(Sampling::GREEDY), 25));
    let longer = [&prompt[..], &free.tokens[..25]].concat();
    let mut generation =
        Generation::new(first.sequence, longer, &settings(endless(Sampling::GREEDY), 35)).unwrap();
    assert!(generation.by_ref().all(|piece| piece.is_ok()));
    assert_eq!(generation.tokens(), &free.tokens[25..]);
    assert_eq!(generation.statistics().cached_tokens, prompt.len() + 24);
}

#[test]
fn a_generation_can_be_dropped_and_its_sequence_used_again() {
    let model = load("llama", &options());
    let prompt = prompt("llama");
    let expected = run(&model, &prompt, &settings(endless(Sampling::GREEDY), 20)).tokens;
    let mut sequence = model.sequence().unwrap();
    let all = settings(endless(Sampling::GREEDY), 200);
    let mut generation = Generation::new(&mut sequence, prompt.clone(), &all).unwrap();
    generation.by_ref().take(7).for_each(drop);
    drop(generation);
    assert!(sequence.position() >= prompt.len() + 6);
    let outcome =
        finish(Generation::new(sequence, prompt, &settings(endless(Sampling::GREEDY), 20)).unwrap());
    assert_eq!(outcome.tokens, expected);
}

#[test]
fn a_stop_from_outside_ends_the_text_and_not_the_sequence() {
    let model = load("llama", &options());
    let prompt = prompt("llama");
    let all = settings(endless(Sampling::GREEDY), 200);
    let mut generation = Generation::new(model.sequence().unwrap(), prompt.clone(), &all).unwrap();
    let handle = generation.stop_handle();
    generation.next().unwrap().unwrap();
    std::thread::spawn(move || handle.stop()).join().unwrap();
    let outcome = finish(generation);
    assert_eq!(outcome.finish, FinishReason::Cancelled);
    assert!(outcome.tokens.len() < 200);
    let again =
        finish(Generation::new(outcome.sequence, prompt, &settings(endless(Sampling::GREEDY), 9)).unwrap());
    assert_eq!(again.finish, FinishReason::Length);
}

#[test]
fn statistics_count_every_token_once() {
    let model = load("llama", &options());
    let settings = settings(endless(Sampling::GREEDY), 20);
    let mut generation = Generation::new(model.sequence().unwrap(), prompt("llama"), &settings).unwrap();
    let mut heard = Vec::new();
    generation.prefill(|done, total| heard.push((done, total))).unwrap();
    assert_eq!(heard, [(0, 40), (40, 40)]);
    assert!(generation.by_ref().all(|piece| piece.is_ok()));
    let statistics = generation.statistics();
    assert_eq!((statistics.prompt_tokens, statistics.generated_tokens), (40, 20));
    assert!(statistics.prefill_rate() > 0.0 && statistics.decode_rate() > 0.0);
    assert_eq!(akunu::Statistics::default().decode_rate(), 0.0);
}

#[test]
fn nonsense_is_refused_before_anything_runs() {
    let model = load("llama", &Options { context: Some(64), ..options() });
    let new = |prompt: Vec<u32>, settings: &Settings| {
        Generation::new(model.sequence().unwrap(), prompt, settings).map(drop).unwrap_err()
    };
    let plain = Settings::default();
    assert!(new(vec![], &plain).to_string().contains("empty"));
    assert!(matches!(new(vec![5; 65], &plain), Error::TooLong { tokens: 65, context: 64 }));
    let empty_stop = Settings { stop: vec![String::new()], ..plain.clone() };
    assert_eq!(new(vec![5], &empty_stop).kind(), Kind::Usage);
    let cold = settings(Sampling { temperature: -1.0, ..Sampling::GREEDY }, 1);
    assert!(new(vec![5], &cold).to_string().contains("temperature"));
    let mut generation = Generation::new(model.sequence().unwrap(), vec![5, 128], &plain).unwrap();
    let error = generation.next().unwrap().unwrap_err();
    assert!(error.to_string().contains("token 128"), "{error}");
    assert!(generation.next().is_none());
}

#[test]
fn a_request_that_makes_no_sense_gives_the_sequence_back() {
    let model = load("llama", &options());
    let mut sequence = model.sequence().unwrap();
    sequence.feed(&prompt("llama")).unwrap();
    let nonsense = settings(Sampling { temperature: -1.0, ..Sampling::GREEDY }, 4);
    let (sequence, error) = *Generation::begin(sequence, vec![1], &nonsense).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert_eq!(sequence.tokens(), prompt("llama"));
}

#[test]
fn a_history_goes_on_where_the_text_ended() {
    let model = load("llama", &options());
    let whole = run(&model, &prompt("llama"), &settings(endless(Sampling::GREEDY), 16)).tokens;
    let half = settings(endless(Sampling::GREEDY), 8);
    let mut first = Generation::new(model.sequence().unwrap(), prompt("llama"), &half).unwrap();
    first.by_ref().for_each(|piece| drop(piece.unwrap()));
    let history = first.history();
    let second = finish(Generation::new(first.into_sequence(), history, &half).unwrap());
    assert_eq!(second.tokens, whole[8..]);
}
