//! The scheduler: whoever runs beside it, a request gets what it would get alone, and nothing is left behind.

use std::time::{Duration, Instant};

use akunu::scheduler::{Chunk, Event, Limits, LogProbabilities, Request, Response};
use akunu::{
    Error, FinishReason, Generation, Model, Options, Phase, Sampling, Scheduler, Settings, Statistics,
};

use crate::tiny::{FAMILIES, load, options, prompt};

/// The tokenizer of the fixtures ends texts with this.
const EOS: u32 = 2;

/// Never the end token.
fn endless(mut sampling: Sampling) -> Sampling {
    sampling.logit_bias.push((EOS, f32::NEG_INFINITY));
    sampling
}

fn warm(seed: u64) -> Sampling {
    endless(Sampling { temperature: 0.9, top_k: 40, repeat_penalty: 1.1, seed, ..Sampling::GREEDY })
}

fn request(prompt: &[u32], sampling: Sampling, max_tokens: usize) -> Request {
    let settings = Settings { sampling, max_tokens: Some(max_tokens), ..Settings::default() };
    Request { settings, ..Request::new(prompt.to_vec()) }
}

/// `n` tokens made of the fixture's prompt, another for each `turn`.
fn long_prompt(name: &str, turn: usize, n: usize) -> Vec<u32> {
    prompt(name).into_iter().cycle().skip(turn).take(n).collect()
}

#[derive(Debug, Default)]
struct Answer {
    /// `[choice]`.
    texts: Vec<String>,
    tokens: Vec<Vec<u32>>,
    log_probabilities: Vec<Vec<LogProbabilities>>,
    reasons: Vec<Option<FinishReason>>,
    statistics: Statistics,
}

fn collect(response: Response, choices: usize) -> Answer {
    let mut answer = Answer {
        texts: vec![String::new(); choices],
        tokens: vec![Vec::new(); choices],
        log_probabilities: vec![Vec::new(); choices],
        reasons: vec![None; choices],
        ..Answer::default()
    };
    let mut done = false;
    for event in response {
        assert!(!done, "{event:?} came after the end");
        match event {
            Event::Started { .. } => assert!(answer.tokens.iter().all(Vec::is_empty)),
            Event::Piece { choice, piece, log_probabilities } => {
                assert_eq!(answer.reasons[choice], None);
                answer.texts[choice] += &piece.text;
                answer.tokens[choice].extend(piece.tokens);
                answer.log_probabilities[choice].extend(log_probabilities);
            }
            Event::Finished { choice, reason } => answer.reasons[choice] = Some(reason),
            Event::Done(statistics) => {
                answer.statistics = statistics;
                done = true;
            }
            Event::Failed(error) => panic!("{error}"),
        }
    }
    assert!(done, "the events ended before the end");
    answer
}

fn answer(scheduler: &Scheduler, request: &Request) -> Answer {
    collect(scheduler.submit(request.clone()).unwrap(), request.choices)
}

/// What a request gives when it is alone with a model.
fn alone(name: &str, request: &Request) -> (String, Vec<u32>, Option<FinishReason>) {
    alone_on(&load(name, &options()), request)
}

fn alone_on(model: &Model, request: &Request) -> (String, Vec<u32>, Option<FinishReason>) {
    let sequence = model.sequence().unwrap();
    let mut generation = Generation::new(sequence, request.prompt.clone(), &request.settings).unwrap();
    let text = generation.by_ref().map(|piece| piece.unwrap().text).collect();
    (text, generation.tokens().to_vec(), generation.finish_reason())
}

fn scheduler(name: &str, sequences: usize, limits: &Limits) -> Scheduler {
    Scheduler::new(load(name, &Options { sequences, ..options() }), limits).unwrap()
}

/// Requests of all lengths, greedy and not, some of which begin alike.
fn many_requests(name: &str) -> Vec<Request> {
    (0..9)
        .map(|i| {
            let sampling = if i % 3 == 0 { endless(Sampling::GREEDY) } else { warm(i as u64) };
            request(&long_prompt(name, i % 4, 20 + 22 * i), sampling, 12 + 5 * i)
        })
        .collect()
}

#[test]
fn a_request_that_fails_midway_leaves_others_what_is_theirs() {
    let name = "llama";
    let scheduler = scheduler(name, 4, &Limits::default());
    let other = request(&long_prompt(name, 1, 9), endless(Sampling::GREEDY), 12);
    let expected = alone(name, &other);
    // Nothing may be chosen; its two choices have a row each, and fail at the first.
    let nothing =
        (0..scheduler.model().vocabulary() as u32).map(|token| (token, f32::NEG_INFINITY)).collect();
    let sampling = Sampling { logit_bias: nothing, ..Sampling::GREEDY };
    let hopeless =
        Request { choices: 2, log_probabilities: Some(0), ..request(&long_prompt(name, 0, 9), sampling, 12) };
    for _ in 0..4 {
        let failing = scheduler.submit(hopeless.clone()).unwrap();
        let beside = scheduler.submit(other.clone()).unwrap();
        assert!(failing.into_iter().any(|event| matches!(event, Event::Failed(_))));
        let answer = collect(beside, 1);
        assert_eq!((&answer.texts[0], &answer.tokens[0]), (&expected.0, &expected.1));
    }
}

fn is_the_same_whatever_else_runs(name: &str, backend: &str) {
    let options = Options { backend: backend.to_owned(), ..options() };
    let requests = many_requests(name);
    let expected: Vec<_> = requests.iter().map(|request| alone_on(&load(name, &options), request)).collect();
    for (chunk, reuse_prefixes) in [(64, true), (5, true), (16, false)] {
        let limits = Limits { chunk: Chunk::Tokens(chunk), reuse_prefixes, queue: 16 };
        let scheduler = Scheduler::new(load(name, &options), &limits).unwrap();
        // Twice, so that the second round finds the first one's prompts in the cache.
        for round in 0..2 {
            let responses: Vec<Response> =
                requests.iter().map(|request| scheduler.submit(request.clone()).unwrap()).collect();
            for ((response, expected), i) in responses.into_iter().zip(&expected).zip(0..) {
                let mut answer = collect(response, 1);
                let got = (answer.texts.remove(0), answer.tokens.remove(0), answer.reasons[0]);
                assert_eq!(got, *expected, "{name} on {backend}, request {i}, round {round}, chunk {chunk}");
            }
        }
    }
}

#[test]
fn a_text_is_the_same_whatever_else_runs() {
    FAMILIES.iter().for_each(|name| is_the_same_whatever_else_runs(name, "reference"));
}

#[test]
fn a_text_is_the_same_whatever_else_runs_on_the_cpu_backend() {
    FAMILIES.iter().for_each(|name| is_the_same_whatever_else_runs(name, "cpu"));
}

#[test]
fn a_prompt_that_begins_like_another_is_read_from_where_they_differ() {
    for name in FAMILIES {
        let scheduler = scheduler(name, 2, &Limits::default());
        let mut prompt = long_prompt(name, 0, 220);
        let cached = |prompt: &[u32]| {
            let request = request(prompt, endless(Sampling::GREEDY), 4);
            let answer = answer(&scheduler, &request);
            let (text, ..) = alone(name, &request);
            assert_eq!(answer.texts[0], text, "{name}");
            answer.statistics.cached_tokens
        };
        assert_eq!(cached(&prompt), 0);
        // The token after which something is wanted is always read.
        assert_eq!(cached(&prompt), 219, "{name}");
        prompt[150] ^= 1;
        assert_eq!(cached(&prompt), 150, "{name}");
        assert_eq!(cached(&prompt[..128]), 127, "{name}");
        assert_eq!(cached(&prompt[..129]), 128, "{name}");
    }
}

#[test]
fn the_cache_of_prompts_makes_room_for_those_that_run() {
    for name in FAMILIES {
        let model = load(name, &Options { sequences: 2, context: Some(128), ..options() });
        let scheduler = Scheduler::new(model, &Limits::default()).unwrap();
        for turn in 0..12 {
            let request = request(&long_prompt(name, turn, 120), warm(1), 20);
            let answer = answer(&scheduler, &request);
            // The context ends after 128 positions; the last token that is chosen needs none.
            assert_eq!(
                (answer.tokens[0].len(), answer.reasons[0]),
                (9, Some(FinishReason::Length)),
                "{name}, turn {turn}"
            );
        }
        assert!(scheduler.load().kept_tokens <= 256);
    }
}

#[test]
fn prompts_that_begin_alike_run_together_where_there_is_no_room_to_spare() {
    for name in FAMILIES {
        let model = load(name, &Options { sequences: 2, context: Some(128), ..options() });
        let scheduler = Scheduler::new(model, &Limits::default()).unwrap();
        for turn in 0..8 {
            // Pairs with the same beginning, then such with two.
            let both = [1, 2].map(|i| {
                let beginning = long_prompt(name, turn / 2 % 2 * i, 100);
                let own = long_prompt(name, 10 * turn + i, 20);
                request(&[beginning, own].concat(), endless(Sampling::GREEDY), 8)
            });
            let responses = both.clone().map(|request| scheduler.submit(request).unwrap());
            for (response, request) in responses.into_iter().zip(&both) {
                assert_eq!(collect(response, 1).texts[0], alone(name, request).0, "{name}, turn {turn}");
            }
        }
        assert!(scheduler.load().cached_tokens > 4 * 64, "{name}: {:?}", scheduler.load());
    }
}

#[test]
fn choices_differ_by_seed_and_the_first_is_the_same_alone() {
    for name in FAMILIES {
        let scheduler = scheduler(name, 4, &Limits::default());
        let one = request(&long_prompt(name, 0, 70), warm(3), 30);
        let four = Request { choices: 4, ..one.clone() };
        let (text, tokens, _) = alone(name, &one);
        let first = answer(&scheduler, &four);
        assert_eq!((&first.texts[0], &first.tokens[0]), (&text, &tokens), "{name}");
        for (a, b) in [(0, 1), (0, 2), (1, 2), (2, 3)] {
            assert_ne!(first.tokens[a], first.tokens[b], "{name}");
        }
        assert_eq!(first.statistics.generated_tokens, 120);
        let again = answer(&scheduler, &four);
        assert_eq!(again.tokens, first.tokens, "{name}");
    }
}

#[test]
fn log_probabilities_are_those_of_the_logits() {
    let model = load("llama", &options());
    let plain = request(&prompt("llama"), warm(4), 10);
    let expected = alone("llama", &plain);
    let scheduler = Scheduler::new(model.clone(), &Limits::default()).unwrap();
    // Another request without log-probabilities runs in the same steps.
    let beside = scheduler.submit(plain.clone()).unwrap();
    let got = answer(&scheduler, &Request { log_probabilities: Some(3), ..plain.clone() });
    assert_eq!((&got.texts[0], &got.tokens[0]), (&expected.0, &expected.1));
    assert_eq!(collect(beside, 1).tokens[0], expected.1);
    drop(scheduler);

    let mut sequence = model.sequence().unwrap();
    sequence.feed(&plain.prompt[..39]).unwrap();
    let mut last = plain.prompt[39];
    assert_eq!(got.log_probabilities[0].len(), 10);
    for (entry, &token) in got.log_probabilities[0].iter().zip(&expected.1) {
        let logits = sequence.logits(&[last], Phase::Decode).unwrap();
        let sum: f64 = logits.iter().map(|z| f64::from(*z).exp()).sum();
        assert_eq!(entry.token, token);
        assert!(
            (f64::from(entry.log_probability).exp() - f64::from(logits[token as usize]).exp() / sum).abs()
                < 1e-5
        );
        assert_eq!(entry.alternatives.len(), 3);
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(logits[entry.alternatives[0].0 as usize], best);
        last = token;
    }
}

#[test]
fn stop_strings_and_the_end_token_end_a_text() {
    let scheduler = scheduler("llama", 2, &Limits::default());
    let long = request(&prompt("llama"), warm(9), 60);
    let (text, ..) = alone("llama", &long);
    let stop = text[text.len() / 2..text.len() / 2 + 3].to_owned();
    let at = text.find(&stop).unwrap();
    let settings = Settings { stop: vec!["never".to_owned(), stop], ..long.settings.clone() };
    let stopped = answer(&scheduler, &Request { settings, ..long.clone() });
    assert_eq!(
        (stopped.texts[0].as_str(), stopped.reasons[0]),
        (&text[..at], Some(FinishReason::StopString(1)))
    );

    let bias = vec![(EOS, f32::INFINITY)];
    let ended = answer(&scheduler, &request(&prompt("llama"), Sampling { logit_bias: bias, ..warm(9) }, 60));
    assert_eq!((ended.texts[0].as_str(), ended.reasons[0]), ("", Some(FinishReason::Stop)));
    let none = answer(&scheduler, &request(&prompt("llama"), warm(9), 0));
    assert_eq!((none.texts[0].as_str(), none.reasons[0]), ("", Some(FinishReason::Length)));
}

/// Waits for something that must happen soon.
fn until(mut happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn whoever_goes_away_leaves_room_for_others() {
    let scheduler = scheduler("llama", 1, &Limits::default());
    let settings = Settings { sampling: warm(1), max_tokens: None, ..Settings::default() };
    let endless = Request { settings, ..Request::new(vec![5; 8]) };
    let many: Vec<Response> = (0..16).map(|_| scheduler.submit(endless.clone()).unwrap()).collect();
    let mine = scheduler.submit(request(&[7; 8], warm(2), 3)).unwrap();
    drop(many);
    assert_eq!(collect(mine, 1).tokens[0].len(), 3);
    until(|| scheduler.load().running == 0);
    // Each of the others would have filled the context of 256.
    assert!(scheduler.load().generated_tokens < 8 * 248, "{:?}", scheduler.load());
}

#[test]
fn a_request_that_cannot_be_served_harms_no_other() {
    let scheduler = scheduler("llama", 3, &Limits::default());
    let good = request(&prompt("llama"), warm(6), 50);
    let nothing = Sampling { logit_bias: (0..128).map(|t| (t, f32::NEG_INFINITY)).collect(), ..warm(6) };
    let first = scheduler.submit(good.clone()).unwrap();
    let bad = scheduler.submit(request(&prompt("llama"), nothing.clone(), 50)).unwrap();
    let with_logits = Request { log_probabilities: Some(1), ..request(&prompt("llama"), nothing, 50) };
    let worse = scheduler.submit(with_logits).unwrap();
    for response in [bad, worse] {
        assert!(matches!(response.last(), Some(Event::Failed(_))));
    }
    assert_eq!(collect(first, 1).tokens[0], alone("llama", &good).1);
}

#[test]
fn requests_without_meaning_are_refused() {
    let scheduler = scheduler("llama", 2, &Limits::default());
    let context = scheduler.model().context();
    let good = request(&[5; 8], warm(1), 4);
    let refused = |request: Request| scheduler.submit(request).unwrap_err().to_string();
    assert_eq!(refused(Request { prompt: vec![], ..good.clone() }), "the prompt is empty");
    assert_eq!(refused(Request { prompt: vec![500], ..good.clone() }), "there is no token 500");
    assert_eq!(refused(Request { choices: 3, ..good.clone() }), "3 choices were asked for");
    assert_eq!(
        refused(Request { prompt: vec![5; context + 1], ..good.clone() }),
        format!("{} tokens are more than the context of {context} holds", context + 1)
    );
    let settings = Settings { stop: vec![String::new()], ..Settings::default() };
    assert!(refused(Request { settings, ..good.clone() }).contains("stop string 0 is empty"));
    let narrow = load("llama", &Options { sequences: 4, outputs: 2, ..options() });
    assert!(Scheduler::new(narrow, &Limits::default()).is_err());
}

#[test]
fn a_scheduler_leaves_the_next_all_room_there_is() {
    for name in FAMILIES {
        let model = load(name, &Options { sequences: 2, context: Some(128), ..options() });
        for turn in 0..12 {
            let scheduler = Scheduler::new(model.clone(), &Limits::default()).unwrap();
            let request = request(&long_prompt(name, turn, 120), warm(1), 20);
            assert_eq!(answer(&scheduler, &request).tokens[0].len(), 9, "{name}, turn {turn}");
        }
    }
}

#[test]
fn closing_finishes_what_is_there_and_dropping_does_not() {
    let scheduler = scheduler("llama", 1, &Limits::default());
    let responses: Vec<Response> =
        (0..3).map(|i| scheduler.submit(request(&prompt("llama"), warm(i), 10)).unwrap()).collect();
    scheduler.close();
    assert!(matches!(scheduler.submit(request(&[5], warm(1), 1)), Err(Error::Stopped)));
    for response in responses {
        assert_eq!(collect(response, 1).tokens[0].len(), 10);
    }

    let model: Model = load("llama", &options());
    let scheduler = Scheduler::new(model.clone(), &Limits::default()).unwrap();
    let settings = Settings { sampling: warm(1), max_tokens: None, ..Settings::default() };
    let endless = Request { settings, ..Request::new(vec![5; 8]) };
    let response = scheduler.submit(endless).unwrap();
    drop(scheduler);
    assert!(matches!(response.last(), Some(Event::Failed(Error::Stopped))));
    // Every sequence was given back.
    let all: Result<Vec<_>, _> = (0..4).map(|_| model.sequence()).collect();
    assert!(all.is_ok());
}
