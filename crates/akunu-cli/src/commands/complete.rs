//! `akunu complete`

use std::io::{self, IsTerminal, Write};

use akunu::{FinishReason, Options, Sampling, Settings, Speculate, Statistics};
use anyhow::Result;
use serde::Serialize;

use crate::constraint::{ConstraintArguments, tell_if_cut};
use crate::engine::{EngineArguments, SamplingArguments, stopped};
use crate::input::text_or_stdin;
use crate::model::ModelArgument;
use crate::output::{self, Out};
use crate::progress::{Spinner, line};
use crate::stop;

const EXAMPLES: &str = "\
Examples:
  akunu complete -p 'The capital of France is' -n 16
  akunu complete model.gguf -p 'def fib(n):' --stop 'def '
  echo -n 'Once upon a time' | akunu complete -p - --temp 0.8 --seed 1
  akunu complete -p 'A person as JSON: ' --json-schema person.json
  akunu complete -p 'The year of the French Revolution: ' --regex '1[0-9]{3}'";

/// Continue a text
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArgument,

    /// The text to continue; `-` reads it from standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: String,

    /// Most tokens to generate
    #[arg(short = 'n', value_name = "N", default_value_t = 128)]
    tokens: usize,

    /// End before this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,

    /// Guess tokens from the text so far and verify them together: faster on text that repeats itself
    #[arg(long)]
    speculate: bool,

    /// When the context is full, drop the older half of the text (all but its first 64 tokens) and go on
    #[arg(long)]
    context_shift: bool,

    #[command(flatten)]
    constraint: ConstraintArguments,

    #[command(flatten)]
    engine: EngineArguments,

    #[command(flatten)]
    sampling: SamplingArguments,

    /// Print the text, its tokens and the timings as JSON
    #[arg(long)]
    json: bool,

    /// Print timings to standard error
    #[arg(short, long)]
    verbose: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Completion<'a> {
    text: &'a str,
    tokens: &'a [u32],
    finish_reason: &'static str,
    #[serde(flatten)]
    timings: Timings,
}

/// Figures of a generation, for people and programs.
#[derive(Serialize)]
pub struct Timings {
    prompt_tokens: usize,
    cached_tokens: usize,
    generated_tokens: usize,
    time_to_first_token_ms: f64,
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
    guessed_tokens: usize,
    right_guesses: usize,
    forced_tokens: usize,
}

impl Timings {
    /// The figures of these statistics.
    pub fn of(statistics: &Statistics) -> Timings {
        Timings {
            prompt_tokens: statistics.prompt_tokens,
            cached_tokens: statistics.cached_tokens,
            generated_tokens: statistics.generated_tokens,
            time_to_first_token_ms: statistics.first_token.as_secs_f64() * 1e3,
            prefill_tokens_per_second: statistics.prefill_rate(),
            decode_tokens_per_second: statistics.decode_rate(),
            guessed_tokens: statistics.guessed,
            right_guesses: statistics.right_guesses,
            forced_tokens: statistics.forced_tokens,
        }
    }

    /// In two lines.
    pub fn text(&self) -> String {
        let mut text = format!(
            "prompt: {} tokens ({} cached), {:.1} tokens/s, first token after {:.0} ms\n\
             answer: {} tokens, {:.1} tokens/s",
            self.prompt_tokens,
            self.cached_tokens,
            self.prefill_tokens_per_second,
            self.time_to_first_token_ms,
            self.generated_tokens,
            self.decode_tokens_per_second
        );
        if self.guessed_tokens > 0 {
            text += &format!(", {} of {} guesses right", self.right_guesses, self.guessed_tokens);
        }
        if self.forced_tokens > 0 {
            text += &format!(", {} without a choice", self.forced_tokens);
        }
        text
    }
}

/// The name of a reason, as HTTP interfaces have it.
pub fn reason_name(reason: Option<FinishReason>) -> &'static str {
    match reason {
        Some(FinishReason::Stop | FinishReason::StopString(_)) => "stop",
        Some(FinishReason::Length) => "length",
        Some(FinishReason::Cancelled) | None => "cancelled",
    }
}

/// Continues the text.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let prompt = text_or_stdin(&arguments.prompt)?;
    let constraint = arguments.constraint.constraint()?;
    let model = arguments.engine.load(arguments.model.given(), &Options::default())?;
    let settings = Settings {
        sampling: arguments.sampling.sampling(Sampling::GREEDY),
        max_tokens: Some(arguments.tokens),
        stop: arguments.stop.clone(),
        speculate: if arguments.speculate { Speculate::Auto } else { Speculate::Off },
        context_shift: arguments.context_shift,
        constraint,
        ..Settings::default()
    };
    let mut generation = model.generate(&prompt, &settings)?;
    let watch = stop::Watch::new(generation.stop_handle());
    let spinner = Spinner::new("reading the prompt");
    let read = generation.prefill(|done, total| spinner.set(&format!("reading the prompt {done}/{total}")));
    spinner.clear();
    read?;
    let mut text = String::new();
    for piece in &mut generation {
        let piece = piece?;
        if arguments.json {
            text.push_str(&piece.text);
        } else if !piece.text.is_empty() {
            out.write_all(piece.text.as_bytes())?;
            out.flush()?;
        }
    }
    drop(watch);
    let timings = Timings::of(generation.statistics());
    if arguments.verbose {
        line(&timings.text());
    }
    if arguments.json {
        let finish_reason = reason_name(generation.finish_reason());
        let completion = Completion { text: &text, tokens: generation.tokens(), finish_reason, timings };
        output::json(out, &completion)?;
    } else if io::stdout().is_terminal() {
        writeln!(out)?;
    }
    out.flush()?;
    if settings.constraint.is_some() {
        tell_if_cut(generation.finish_reason(), generation.statistics());
    }
    Ok(stopped(generation.finish_reason())?)
}
