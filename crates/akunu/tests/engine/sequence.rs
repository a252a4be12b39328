//! Sequences: whatever way tokens are fed, taken back and shared, what comes out is what a fresh sequence gives.

use akunu::{Error, Kind, Model, Options, Phase, Sampling, Sequence};

use crate::tiny::{self, FAMILIES, load, options, prompt};

/// `n` tokens after the prompt, one step at a time in a sequence of its own.
fn steps(model: &Model, prompt: &[u32], n: usize, sampling: &Sampling) -> Vec<u32> {
    let mut sequence = model.sequence().unwrap();
    sequence.set_sampling(sampling).unwrap();
    let mut tokens = vec![sequence.prefill(prompt).unwrap()];
    while tokens.len() < n {
        tokens.push(sequence.step(tokens[tokens.len() - 1]).unwrap());
    }
    tokens
}

/// A prompt of `n` tokens made of the fixture's.
fn long_prompt(name: &str, n: usize) -> Vec<u32> {
    prompt(name).into_iter().cycle().take(n).collect()
}

fn warm() -> Sampling {
    Sampling { temperature: 1.0, repeat_penalty: 1.3, seed: 11, ..Sampling::GREEDY }
}

/// Tokens that one after another are the ones chosen, whatever the run.
fn continue_with(sequence: &mut Sequence, mut token: u32, n: usize) -> Vec<u32> {
    let mut tokens = vec![token];
    while tokens.len() < n {
        token = sequence.step(token).unwrap();
        tokens.push(token);
    }
    tokens
}

#[test]
fn chunks_and_chains_of_any_length_choose_the_same_tokens() {
    for name in FAMILIES {
        let prompt = long_prompt(name, 150);
        for sampling in [Sampling::GREEDY, warm()] {
            let whole = load(name, &options());
            let expected = steps(&whole, &prompt, 40, &sampling);
            for (batch, chain) in [(1, 1), (7, 3), (64, 40), (100, 16)] {
                let model = load(name, &Options { batch, ..options() });
                let mut sequence = model.sequence().unwrap();
                sequence.set_sampling(&sampling).unwrap();
                let mut tokens = vec![sequence.prefill(&prompt).unwrap()];
                while tokens.len() < 40 {
                    let last = tokens[tokens.len() - 1];
                    let chosen = sequence.chain(last, chain.min(40 - tokens.len())).unwrap().to_vec();
                    sequence.commit(chosen.len()).unwrap();
                    tokens.extend(chosen);
                }
                assert_eq!(tokens, expected, "{name}, batches of {batch}, chains of {chain}");
                assert_eq!(sequence.tokens(), [&prompt[..], &tokens[..39]].concat());
            }
        }
    }
}

#[test]
fn what_is_rolled_back_leaves_no_trace() {
    for name in FAMILIES {
        let model = load(name, &options());
        let prompt = long_prompt(name, 70);
        let expected = steps(&model, &prompt, 20, &Sampling::GREEDY);
        let mut sequence = model.sequence().unwrap();
        sequence.prefill(&prompt).unwrap();
        sequence.feed(&[5, 6, 7, 8, 9, 10, 11]).unwrap();
        sequence.chain(3, 30).unwrap();
        sequence.rollback(69).unwrap();
        assert_eq!(sequence.position(), 69);
        let first = sequence.prefill(&prompt[69..]).unwrap();
        assert_eq!(continue_with(&mut sequence, first, 20), expected, "{name}");
        sequence.reset();
        let first = sequence.prefill(&prompt).unwrap();
        assert_eq!(continue_with(&mut sequence, first, 20), expected, "{name} after a reset");
    }
}

#[test]
fn committing_part_of_a_chain_keeps_exactly_that_part() {
    for name in FAMILIES {
        let model = load(name, &options());
        let prompt = prompt(name);
        let expected = steps(&model, &prompt, 30, &warm());
        for kept in [0, 1, 5, 12] {
            let mut sequence = model.sequence().unwrap();
            sequence.set_sampling(&warm()).unwrap();
            let first = sequence.prefill(&prompt).unwrap();
            let chosen = sequence.chain(first, 12).unwrap().to_vec();
            assert_eq!(chosen, expected[1..13]);
            sequence.commit(kept).unwrap();
            assert_eq!(sequence.position(), 40 + kept);
            let tokens = continue_with(&mut sequence, expected[kept], 30 - kept);
            assert_eq!(tokens, expected[kept..], "{name}, {kept} kept");
        }
    }
}

#[test]
fn forks_go_their_own_ways() {
    for name in FAMILIES {
        let model = load(name, &options());
        // Ends in the middle of a block, beyond every window.
        let prompt = long_prompt(name, 100);
        let seeds = [1, 2, 3].map(|seed| Sampling { seed, ..warm() });
        let expected = seeds.clone().map(|sampling| steps(&model, &prompt, 40, &sampling));
        let mut first = model.sequence().unwrap();
        first.feed(&prompt[..99]).unwrap();
        let second = first.fork().unwrap();
        let third = first.fork().unwrap();
        let mut sequences = [first, second, third];
        let mut tokens: [Vec<u32>; 3] = Default::default();
        for (i, sequence) in sequences.iter_mut().enumerate() {
            sequence.set_sampling(&seeds[i]).unwrap();
            tokens[i].push(sequence.prefill(&prompt[99..]).unwrap());
        }
        for _ in 1..40 {
            for (sequence, tokens) in sequences.iter_mut().zip(&mut tokens) {
                tokens.push(sequence.step(tokens[tokens.len() - 1]).unwrap());
            }
        }
        assert_eq!(tokens, expected, "{name}");
        assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2]);
    }
}

#[test]
fn sequences_that_run_together_choose_as_each_alone() {
    for name in FAMILIES {
        let model = load(name, &options());
        let prompts = [100, 31, 64].map(|n| long_prompt(name, n));
        let expected = prompts.clone().map(|prompt| steps(&model, &prompt, 20, &warm()));
        let mut sequences = [(); 3].map(|()| model.sequence().unwrap());
        let mut last = Vec::new();
        for (sequence, prompt) in sequences.iter_mut().zip(&prompts) {
            sequence.set_sampling(&warm()).unwrap();
            last.push(sequence.prefill(prompt).unwrap());
        }
        let mut tokens = [0, 1, 2].map(|i| vec![last[i]]);
        for _ in 1..20 {
            last = Sequence::step_together(&mut sequences, &last).unwrap();
            tokens.iter_mut().zip(&last).for_each(|(tokens, &token)| tokens.push(token));
        }
        assert_eq!(tokens, expected, "{name}");
    }
    let (model, other) = (load("llama", &options()), load("llama", &options()));
    let mut apart = [model.sequence().unwrap(), other.sequence().unwrap()];
    let mut together = [model.sequence().unwrap(), model.sequence().unwrap()];
    for (sequences, tokens) in [(&mut apart, &[1, 2][..]), (&mut together, &[1])] {
        let error = Sequence::step_together(sequences, tokens).unwrap_err();
        assert!(error.kind() == Kind::Usage, "{error}");
    }
    assert!(Sequence::step_together(&mut [], &[]).unwrap().is_empty());
}

#[test]
fn a_fork_of_a_fork_outlives_both() {
    let model = load("llama", &options());
    let prompt = prompt("llama");
    let expected = steps(&model, &prompt, 30, &warm());
    let mut first = model.sequence().unwrap();
    first.set_sampling(&warm()).unwrap();
    let token = first.prefill(&prompt).unwrap();
    let mut second = first.fork().unwrap();
    let mut third = second.fork().unwrap();
    drop(first);
    second.feed(&[9; 50]).unwrap();
    drop(second);
    assert_eq!(continue_with(&mut third, token, 30), expected);
}

#[test]
fn verified_guesses_are_chosen_as_one_by_one() {
    for name in FAMILIES {
        let model = load(name, &options());
        let prompt = prompt(name);
        for sampling in [Sampling::GREEDY, warm()] {
            let expected = steps(&model, &prompt, 12, &sampling);
            let mut sequence = model.sequence().unwrap();
            sequence.set_sampling(&sampling).unwrap();
            let first = sequence.prefill(&prompt).unwrap();
            // Four right guesses, then two wrong ones.
            let wrong = (expected[5] + 1) % 128;
            let fed = [&[first], &expected[1..5], &[wrong, 0]].concat();
            let chosen = sequence.verify(&fed).unwrap().to_vec();
            assert_eq!(chosen[..5], expected[1..6], "{name}");
            sequence.commit(5).unwrap();
            assert_eq!(continue_with(&mut sequence, expected[5], 7), expected[5..], "{name}");
        }
    }
}

#[test]
fn windows_forget_and_say_so() {
    let model = load("mistral", &options());
    let mut sequence = model.sequence().unwrap();
    sequence.feed(&long_prompt("mistral", 250)).unwrap();
    sequence.feed(&[1]).unwrap();
    assert!(sequence.can_roll_back(251 - 64) && !sequence.can_roll_back(10));
    let error = sequence.rollback(10).unwrap_err();
    assert!(error.to_string().contains("position 10"), "{error}");
    assert_eq!(sequence.keep_common_prefix(&long_prompt("mistral", 10)).unwrap(), 0);
    assert_eq!(sequence.position(), 0);
}

#[test]
fn a_common_prefix_is_kept() {
    let model = load("llama", &options());
    let mut sequence = model.sequence().unwrap();
    sequence.feed(&[5, 6, 7, 8]).unwrap();
    assert_eq!(sequence.keep_common_prefix(&[5, 6, 9]).unwrap(), 2);
    assert_eq!(sequence.tokens(), [5, 6]);
    assert_eq!(sequence.keep_common_prefix(&[5, 6, 9]).unwrap(), 2);
}

#[test]
fn logits_are_the_oracles_however_they_are_fed() {
    for name in FAMILIES {
        let model = load(name, &options());
        let bytes = std::fs::read(tiny::directory(name).join("logits.bin")).unwrap();
        let oracle: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let mut sequence = model.sequence().unwrap();
        let mut logits = Vec::new();
        for chunk in prompt(name).chunks(16) {
            logits.extend_from_slice(sequence.logits(chunk, Phase::Prompt).unwrap());
        }
        let scale = oracle.iter().fold(0f32, |most, z| most.max(z.abs()));
        let error = logits.iter().zip(&oracle).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert_eq!(logits.len(), oracle.len());
        assert!(error < 1e-4 * scale, "{name}: {error}");
    }
}

#[test]
fn a_stopped_run_changes_nothing() {
    let model = load("llama", &options());
    let prompt = prompt("llama");
    let expected = steps(&model, &prompt, 10, &Sampling::GREEDY);
    let mut sequence = model.sequence().unwrap();
    let first = sequence.prefill(&prompt).unwrap();
    sequence.stop_handle().stop();
    assert!(matches!(sequence.chain(first, 9), Err(Error::Stopped)));
    assert_eq!(sequence.position(), 40);
    assert_eq!(continue_with(&mut sequence, first, 10), expected);
}

#[test]
fn a_full_context_is_refused_before_anything_runs() {
    let model = load("llama", &Options { context: Some(64), ..options() });
    let mut sequence = model.sequence().unwrap();
    assert!(matches!(sequence.prefill(&[1; 65]), Err(Error::TooLong { tokens: 65, context: 64 })));
    assert_eq!(sequence.position(), 0);
    let token = sequence.prefill(&[1; 64]).unwrap();
    assert!(matches!(sequence.step(token), Err(Error::TooLong { .. })));
    sequence.rollback(63).unwrap();
    sequence.step(token).unwrap();
}

#[test]
fn nonsense_is_refused_by_name() {
    let model = load("llama", &Options { sequences: 1, ..options() });
    let mut sequence = model.sequence().unwrap();
    let refused = |error: Error, named: &str| {
        let said = format!("{error} ({})", error.hint().unwrap_or_default());
        assert!(error.kind() == Kind::Usage && said.contains(named), "{said}");
    };
    refused(sequence.prefill(&[]).unwrap_err(), "empty");
    refused(sequence.prefill(&[1, 128]).unwrap_err(), "token 128");
    refused(sequence.verify(&[1; 17]).unwrap_err(), "17 rows");
    refused(sequence.commit(1).unwrap_err(), "1 tokens");
    refused(sequence.rollback(1).unwrap_err(), "sequence has 0");
    refused(sequence.set_sampling(&Sampling { top_p: 0.0, ..Sampling::GREEDY }).unwrap_err(), "top-p");
    refused(sequence.set_sampling(&Sampling { temperature: f32::NAN, ..warm() }).unwrap_err(), "temperature");
    refused(model.sequence().unwrap_err(), "with more sequences");
    let load = |options: &Options| Model::load(tiny::path("llama"), options).unwrap_err();
    refused(load(&Options { context: Some(257), ..options() }), "256");
    refused(load(&Options { context: Some(0), ..options() }), "context");
    refused(load(&Options { threads: Some(0), ..options() }), "threads");
    refused(load(&Options { backend: "abacus".to_owned(), ..options() }), "abacus");
}
