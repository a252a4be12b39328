//! What constraints cost and gain: time to compile and to the first mask, time of masks, rates of text, and whether masks are
//! better made before a token is fed or beside that.
//!
//!     cargo run --release -p akunu --example constraints -- MODEL [TOKENS [THREADS]]

use std::sync::mpsc;
use std::time::{Duration, Instant};

use akunu::tokenizer::{AddSpecial, Special};
use akunu::{Constraint, Matcher, Model, Options, Result, Sampling, Settings};
use akunu_program::Phase;
use akunu_program::select::{Scratch, select};
use serde_json::json;

const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().expect("the first argument is a model");
    let tokens = arguments.next().map_or(128, |tokens| tokens.parse().expect("a number of tokens"));
    let threads = arguments.next().map(|threads| threads.parse().expect("a number of threads"));
    let model = Model::load(model, &Options { threads, ..Options::default() })?;
    masks(&model)?;
    rates(&model, tokens)?;
    overlap(&model, tokens)
}

/// Schemas and grammars, each with a text that follows it.
fn cases() -> Result<Vec<(&'static str, Constraint, String)>> {
    let text = "All happy families are alike; each unhappy family is unhappy in its own way. ".repeat(2);
    let person = json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "email": {"type": "string", "format": "email"}, "born": {"type": "string", "format": "date"}},
        "required": ["name", "age", "email", "born"], "additionalProperties": false});
    let list = json!({"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}}}, "required": ["id", "tags"]}});
    let tree = json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
        "v": {"type": "number"}, "l": {"$ref": "#/$defs/n"}, "r": {"$ref": "#/$defs/n"}},
        "required": ["v"], "additionalProperties": false}}});
    let gbnf = "root ::= \"{\" pair (\", \" pair)* \"}\"\npair ::= string \": \" string\n\
                string ::= \"\\\"\" ([^\"\\\\] | \"\\\\\" [\"\\\\nt])* \"\\\"\"";
    Ok(vec![
        (
            "schema: person",
            Constraint::json_schema(&person)?,
            r#"{"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "born": "1815-12-10"}"#
                .to_owned(),
        ),
        (
            "schema: list of objects",
            Constraint::json_schema(&list)?,
            r#"[{"id": 1, "tags": ["red", "blue"]}, {"id": 22, "tags": []}]"#.to_owned(),
        ),
        (
            "schema: recursive",
            Constraint::json_schema(&tree)?,
            r#"{"v": 1.5, "l": {"v": -2, "r": {"v": 3}}, "r": {"v": 4}}"#.to_owned(),
        ),
        ("any object", Constraint::json_object(), format!("{{\"quote\": \"{text}\", \"n\": [1, 2, null]}}")),
        ("regex: any text", Constraint::regex("(?s:.*)")?, text.clone()),
        (
            "GBNF: strings in JSON",
            Constraint::gbnf(gbnf)?,
            format!("{{\"quote\": \"{text}\", \"by\": \"Tolstoy\"}}"),
        ),
    ])
}

fn masks(model: &Model) -> Result<()> {
    let tokenizer = model.tokenizer()?;
    let begin = Instant::now();
    model.matcher(&Constraint::regex("x")?)?;
    println!(
        "{} tokens; engine made in {:.0} ms, once for a model\n",
        tokenizer.vocab_size(),
        ms(begin.elapsed())
    );
    println!("| constraint | compile, ms | first mask, ms | again, ms | masks | mean, us | longest, us |");
    println!("|---|---|---|---|---|---|---|");
    for (name, constraint, text) in cases()? {
        let begin = Instant::now();
        let mut matcher = model.matcher(&constraint)?;
        let compiled = begin.elapsed();
        matcher.mask()?;
        let first = begin.elapsed();
        let begin = Instant::now();
        let mut matcher = model.matcher(&constraint)?;
        matcher.mask()?;
        let again = begin.elapsed();
        let mut times = Vec::new();
        for token in tokenizer.encode(&text, Special::Plain, AddSpecial::No) {
            let begin = Instant::now();
            let allowed = matcher.allows(token)?;
            times.push(begin.elapsed());
            if !allowed {
                // Where a grammar forces the text its tokens may be cut otherwise.
                break;
            }
            matcher.commit(token)?;
        }
        let total: Duration = times.iter().sum();
        let longest = times.iter().max().copied().unwrap_or_default();
        println!(
            "| {name} | {:.2} | {:.2} | {:.2} | {} | {:.0} | {:.0} |",
            ms(compiled),
            ms(first),
            ms(again),
            times.len(),
            ms(total) * 1e3 / times.len() as f64,
            ms(longest) * 1e3
        );
    }
    Ok(())
}

/// Rates of free and constrained texts, run in turn; medians.
fn rates(model: &Model, tokens: usize) -> Result<()> {
    // Few choices, much that must come.
    let table = json!({"type": "array", "minItems": 20, "maxItems": 20, "items": {"type": "object", "properties": {
        "identifier": {"type": "integer", "minimum": 100, "maximum": 999},
        "available": {"type": "boolean"}}, "required": ["identifier", "available"], "additionalProperties": false}});
    let cases = [
        ("free text", None),
        ("any text, with masks", Some(Constraint::regex("(?s:.*)")?)),
        ("a string of JSON", Some(Constraint::json_schema(&json!({"type": "string", "minLength": 3000}))?)),
        ("a table of JSON", Some(Constraint::json_schema(&table)?)),
    ];
    // Texts must not end early.
    let ends = model.tokenizer()?.eog_ids().iter().map(|&token| (token, f32::NEG_INFINITY)).collect();
    let sampling = Sampling { temperature: 1.0, seed: 1, logit_bias: ends, ..Sampling::GREEDY };
    let mut measured = vec![Vec::new(); cases.len()];
    for round in 0..ROUNDS {
        for ((_, constraint), measured) in cases.iter().zip(&mut measured) {
            let settings = Settings {
                sampling: Sampling { seed: round as u64, ..sampling.clone() },
                max_tokens: Some(tokens),
                constraint: constraint.clone(),
                longest_chain: 1,
                ..Settings::default()
            };
            let mut generation = model.generate("Once upon a time", &settings)?;
            for piece in &mut generation {
                piece?;
            }
            measured.push(*generation.statistics());
        }
    }
    println!("\n| text | tokens/s, median of {ROUNDS} | least | most | tokens without a choice |");
    println!("|---|---|---|---|---|");
    for ((name, _), mut measured) in cases.iter().zip(measured) {
        measured.sort_by(|a, b| a.decode_rate().total_cmp(&b.decode_rate()));
        let rate = |i: usize| measured[i].decode_rate();
        let all = measured[ROUNDS / 2];
        let forced = 100.0 * all.forced_tokens as f64 / all.generated_tokens.max(1) as f64;
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {forced:.0}% |",
            rate(ROUNDS / 2),
            rate(0),
            rate(ROUNDS - 1)
        );
    }
    Ok(())
}

/// When masks are made.
#[derive(Clone, Copy)]
enum When {
    Never,
    /// Before the token is fed.
    Before,
    /// In a thread of their own, while it is.
    Beside,
}

/// The same text without masks, with masks before each token and beside it, in turn; medians.
fn overlap(model: &Model, tokens: usize) -> Result<()> {
    let cases = [
        ("any text", Constraint::regex("(?s:.*)")?),
        ("a string of JSON", Constraint::json_schema(&json!({"type": "string", "minLength": 3000}))?),
    ];
    println!("\n| text, tokens/s, median of {ROUNDS} | without masks | before each token | beside it |");
    println!("|---|---|---|---|");
    for (name, constraint) in cases {
        let mut measured = [const { Vec::new() }; 3];
        for round in 0..ROUNDS {
            for (when, measured) in [When::Never, When::Before, When::Beside].into_iter().zip(&mut measured) {
                measured.push(rate(model, &constraint, tokens, round as u64, when)?);
            }
        }
        let [never, before, beside] = measured.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[ROUNDS / 2]
        });
        println!("| {name} | {never:.1} | {before:.1} | {beside:.1} |");
    }
    Ok(())
}

/// Tokens per second of a loop that feeds a token and chooses the next.
fn rate(model: &Model, constraint: &Constraint, tokens: usize, seed: u64, when: When) -> Result<f64> {
    let ends = model.tokenizer()?.eog_ids().iter().map(|&token| (token, f32::NEG_INFINITY)).collect();
    let sampling = Sampling { temperature: 1.0, seed, logit_bias: ends, ..Sampling::GREEDY };
    let prompt = model.tokenizer()?.encode("Once upon a time", Special::Plain, AddSpecial::Yes);
    let mut sequence = model.sequence()?;
    sequence.feed(&prompt[..prompt.len() - 1])?;
    let mut scratch = Scratch::new(model.vocabulary(), 0);
    let mut logits = vec![0.0; model.vocabulary()];
    let mut matcher = model.matcher(constraint)?;
    let (mut token, mut mask) = (prompt[prompt.len() - 1], matcher.mask()?.to_vec());
    let follow = |matcher: &mut Matcher, token: u32| -> Result<Vec<u32>> {
        matcher.commit(token)?;
        Ok(matcher.mask()?.to_vec())
    };
    let (ask, asked) = mpsc::channel::<u32>();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut helper = model.matcher(constraint)?;
        scope.spawn(move || {
            for token in asked {
                let _ = tell.send(follow(&mut helper, token));
            }
        });
        let ask = ask;
        let begin = Instant::now();
        for i in 0..tokens {
            match when {
                When::Before if i > 0 => mask = follow(&mut matcher, token)?,
                When::Beside if i > 0 => ask.send(token).expect("the helper listens"),
                _ => {}
            }
            logits.copy_from_slice(sequence.logits(&[token], Phase::Decode)?);
            if matches!(when, When::Beside) && i > 0 {
                mask = told.recv().expect("the helper answers")?;
            }
            let mask = (!matches!(when, When::Never)).then_some(mask.as_slice());
            let position = sequence.position() as u32 - 1;
            let chosen = select(&mut logits, &sampling, sequence.tokens(), position, mask, &mut scratch);
            token = chosen.expect("a mask is never empty");
        }
        Ok(tokens as f64 / begin.elapsed().as_secs_f64())
    })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
