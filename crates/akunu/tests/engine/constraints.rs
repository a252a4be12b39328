//! Texts that must be like something: in generations and in the scheduler, on tiny models with random weights, which would
//! never write such texts on their own.

use akunu::scheduler::{Chunk, Event, Limits, Request};
use akunu::{
    Constraint, FinishReason, Generation, Model, Options, Sampling, Scheduler, Settings, Speculate,
    Statistics,
};
use serde_json::{Value, json};

use crate::tiny::{FAMILIES, load, options, prompt};

fn warm(seed: u64) -> Sampling {
    Sampling { temperature: 1.0, seed, ..Sampling::GREEDY }
}

fn person() -> Constraint {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "likes": {"type": "array", "items": {"enum": ["tea", "coffee", "water"]}, "minItems": 1, "maxItems": 3},
        },
        "required": ["name", "age", "likes"],
        "additionalProperties": false,
    });
    Constraint::json_schema(&schema).unwrap()
}

fn settings(constraint: &Constraint, sampling: Sampling) -> Settings {
    Settings { sampling, max_tokens: Some(200), constraint: Some(constraint.clone()), ..Settings::default() }
}

fn generate(model: &Model, prompt: &[u32], settings: &Settings) -> (String, FinishReason, Statistics) {
    let mut generation = Generation::new(model.sequence().unwrap(), prompt.to_vec(), settings).unwrap();
    let text = generation.by_ref().map(|piece| piece.unwrap().text).collect();
    (text, generation.finish_reason().unwrap(), *generation.statistics())
}

fn is_person(text: &str) {
    let person: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert!((0..=120).contains(&person["age"].as_i64().unwrap()), "{text}");
    assert!(person["name"].as_str().unwrap().chars().count() <= 12, "{text}");
    assert!((1..=3).contains(&person["likes"].as_array().unwrap().len()), "{text}");
}

#[test]
fn texts_are_instances_whatever_the_sampling() {
    let penalties =
        Sampling { repeat_penalty: 1.5, frequency_penalty: 0.5, presence_penalty: 1.0, ..warm(3) };
    let filters = Sampling { top_k: 3, top_p: 0.5, min_p: 0.1, ..warm(4) };
    for name in FAMILIES {
        let model = load(name, &options());
        for sampling in [Sampling::GREEDY, warm(1), warm(2), penalties.clone(), filters.clone()] {
            let (text, finish, statistics) = generate(&model, &prompt(name), &settings(&person(), sampling));
            assert_eq!(finish, FinishReason::Stop, "{text}");
            is_person(&text);
            assert!(statistics.forced_tokens > 10, "{statistics:?}");
        }
    }
}

#[test]
fn text_does_not_depend_on_guesses_batches_or_backends_limits() {
    for name in ["llama", "gemma3"] {
        let prompt = prompt(name);
        for sampling in [Sampling::GREEDY, warm(7)] {
            let plain = settings(&person(), sampling);
            let expected = generate(&load(name, &options()), &prompt, &plain).0;
            for (batch, outputs, speculate) in [
                (7, 16, Speculate::Off),
                (2, 2, Speculate::Off),
                (16, 8, Speculate::Always),
                (64, 16, Speculate::Auto),
            ] {
                let model = load(name, &Options { batch, outputs, ..options() });
                let settings = Settings { speculate, ..plain.clone() };
                assert_eq!(
                    generate(&model, &prompt, &settings).0,
                    expected,
                    "{batch} {outputs} {speculate:?}"
                );
            }
        }
    }
}

#[test]
fn guesses_are_verified_under_the_constraint() {
    let model = load("llama", &options());
    let repeated = Constraint::regex("(abcabcabd){12}").unwrap();
    let settings = Settings { speculate: Speculate::Always, ..settings(&repeated, warm(1)) };
    let (text, finish, statistics) = generate(&model, &prompt("llama"), &settings);
    assert_eq!((text, finish), ("abcabcabd".repeat(12), FinishReason::Stop));
    // All of it is known beforehand.
    assert_eq!(statistics.forced_tokens + 1, 108);
    let letters = Constraint::regex("([ab]c){30}").unwrap();
    let settings =
        Settings { speculate: Speculate::Always, ..Settings { constraint: Some(letters), ..settings } };
    let (text, _, statistics) = generate(&model, &prompt("llama"), &settings);
    assert!(text.len() == 60 && statistics.guessed > 0, "{text} {statistics:?}");
}

#[test]
fn a_text_that_is_cut_off_says_so() {
    let model = load("llama", &options());
    let cut = Settings { max_tokens: Some(9), ..settings(&person(), warm(1)) };
    let (text, finish, _) = generate(&model, &prompt("llama"), &cut);
    assert_eq!((text.as_str(), finish), ("{\"name\": ", FinishReason::Length));
    let stopped = Settings { stop: vec!["age".to_owned()], ..settings(&person(), warm(1)) };
    let (text, finish, _) = generate(&model, &prompt("llama"), &stopped);
    assert!(text.ends_with("\", \"") && finish == FinishReason::StopString(0), "{text}");
}

#[test]
fn numbers_are_not_cut_short() {
    let model = load("llama", &options());
    let number = Constraint::regex("4[0-9]{1,}").unwrap();
    for seed in 0..5 {
        let (text, finish, _) = generate(&model, &prompt("llama"), &settings(&number, warm(seed)));
        assert!(text.len() >= 2 && text.starts_with('4'), "{text} {finish:?}");
    }
    // Only a grammar that may end at the very place lets the model end it.
    let pushed = Sampling { logit_bias: vec![(2, 100.0)], ..warm(1) };
    assert_eq!(generate(&model, &prompt("llama"), &settings(&number, pushed)).0.len(), 2);
}

#[test]
fn a_sequence_goes_on_after_a_constrained_text() {
    let model = load("llama", &options());
    let prompt = prompt("llama");
    let mut sequence = model.sequence().unwrap();
    let free = Settings { max_tokens: Some(20), ..Settings::default() };
    let expected = generate(&model, &prompt, &free).0;
    for _ in 0..2 {
        let mut generation =
            Generation::new(&mut sequence, prompt.clone(), &settings(&person(), warm(1))).unwrap();
        is_person(&generation.by_ref().map(|piece| piece.unwrap().text).collect::<String>());
        let kept = [&prompt[..], generation.tokens()].concat();
        drop(generation);
        assert!(kept.starts_with(sequence.tokens()));
        let generation = Generation::new(&mut sequence, prompt.clone(), &free).unwrap();
        assert_eq!(generation.map(|piece| piece.unwrap().text).collect::<String>(), expected);
    }
}

/// The texts of a request's choices, how they ended, and what it took.
fn collect(scheduler: &Scheduler, request: Request) -> (Vec<String>, Vec<FinishReason>, Statistics) {
    let choices = request.choices;
    let mut answer =
        (vec![String::new(); choices], vec![FinishReason::Cancelled; choices], Statistics::default());
    for event in scheduler.submit(request).unwrap() {
        match event {
            Event::Started { .. } => {}
            Event::Piece { choice, piece, .. } => answer.0[choice] += &piece.text,
            Event::Finished { choice, reason } => answer.1[choice] = reason,
            Event::Done(statistics) => answer.2 = statistics,
            Event::Failed(error) => panic!("{error}"),
        }
    }
    answer
}

#[test]
fn constrained_and_free_requests_run_side_by_side() {
    let name = "llama";
    let model = load(name, &Options { sequences: 6, ..options() });
    let prompt = prompt(name);
    let scheduler =
        Scheduler::new(load(name, &Options { sequences: 6, ..options() }), &Limits::default()).unwrap();
    let free = Settings {
        sampling: Sampling { logit_bias: vec![(2, f32::NEG_INFINITY)], ..warm(9) },
        max_tokens: Some(60),
        ..Settings::default()
    };
    let yes = Constraint::choice(&["yes", "no", "perhaps"]).unwrap();
    let all: Vec<Settings> = vec![
        settings(&person(), warm(1)),
        free.clone(),
        settings(&yes, warm(2)),
        settings(&person(), warm(3)),
        free,
    ];
    let expected: Vec<String> = all.iter().map(|settings| generate(&model, &prompt, settings).0).collect();
    std::thread::scope(|scope| {
        let answers: Vec<_> = all
            .iter()
            .map(|settings| {
                let request = Request { settings: settings.clone(), ..Request::new(prompt.clone()) };
                let scheduler = &scheduler;
                scope.spawn(move || collect(scheduler, request).0.remove(0))
            })
            .collect();
        for (answer, expected) in answers.into_iter().zip(&expected) {
            assert_eq!(&answer.join().unwrap(), expected);
        }
    });
    is_person(&expected[0]);
}

#[test]
fn every_choice_follows_the_constraint_on_its_own() {
    let model = load("llama", &options());
    let scheduler = Scheduler::new(model, &Limits::default()).unwrap();
    let request =
        Request { settings: settings(&person(), warm(11)), choices: 3, ..Request::new(prompt("llama")) };
    let (texts, reasons, statistics) = collect(&scheduler, request.clone());
    texts.iter().for_each(|text| is_person(text));
    assert_eq!(reasons, [FinishReason::Stop; 3]);
    assert!(texts[0] != texts[1] && statistics.forced_tokens > 30);
    // With log-probabilities every token is the model's own choice, of the same text.
    let request = Request { log_probabilities: Some(2), ..request };
    let (logged, _, statistics) = collect(&scheduler, request);
    assert_eq!((logged, statistics.forced_tokens), (texts, 0));
}

#[test]
fn a_small_step_feeds_what_is_forced_in_parts() {
    let limits = Limits { chunk: Chunk::Tokens(3), ..Limits::default() };
    let model = load("llama", &Options { batch: 5, outputs: 4, ..options() });
    let scheduler = Scheduler::new(model, &limits).unwrap();
    let request = Request { settings: settings(&person(), warm(1)), ..Request::new(prompt("llama")) };
    let expected = generate(&load("llama", &options()), &prompt("llama"), &request.settings).0;
    assert_eq!(collect(&scheduler, request).0, [expected]);
}

#[test]
fn a_constraint_that_cannot_be_met_is_an_error_of_the_request() {
    let model = load("llama", &options());
    let scheduler = Scheduler::new(model.clone(), &Limits::default()).unwrap();
    let bad = settings(&Constraint::lark("start: elsewhere").unwrap(), warm(1));
    let error = scheduler.submit(Request { settings: bad.clone(), ..Request::new(vec![5]) }).unwrap_err();
    assert!(error.to_string().starts_with("Lark grammar, line 1"), "{error}");
    assert!(Generation::new(model.sequence().unwrap(), vec![5], &bad).is_err());
}
