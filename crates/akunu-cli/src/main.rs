//! The `akunu` command: one thin surface over the `akunu` library.
//!
//! stdout carries the result alone, everything else goes to stderr. Exit codes: 0 done, 1 failed, 2 misused,
//! 130 interrupted.

mod commands;
mod constraint;
mod engine;
mod input;
mod model;
mod output;
mod progress;
mod stop;
mod units;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Run language models on your own machine.
///
/// A MODEL is a path (a file or a directory), a name that `akunu models` lists, or hf:OWNER/REPO for a repository on
/// Hugging Face.
#[derive(Parser)]
#[command(name = "akunu", version, max_term_width = 100, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Chat(commands::chat::Arguments),
    Complete(commands::complete::Arguments),
    Serve(commands::serve::Arguments),
    Transcribe(commands::transcribe::Arguments),
    Embed(commands::embed::Arguments),
    Rerank(commands::rerank::Arguments),
    Perplexity(commands::perplexity::Arguments),
    Bench(commands::bench::Arguments),
    Profile(commands::profile::Arguments),
    Devices(commands::devices::Arguments),
    Inspect(commands::inspect::Arguments),
    Tokenize(commands::tokenize::Arguments),
    Quantize(commands::quantize::Arguments),
    Pull(commands::pull::Arguments),
    Models(commands::models::Arguments),
    Rm(commands::rm::Arguments),
    Completions(commands::completions::Arguments),
    #[command(hide = true)]
    Manual(commands::completions::Manual),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let done = run(command);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn run(command: Command) -> Result<()> {
    stop::listen()?;
    let mut out = output::stdout();
    match command {
        Command::Chat(arguments) => commands::chat::run(&arguments, &mut out),
        Command::Complete(arguments) => commands::complete::run(&arguments, &mut out),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Transcribe(arguments) => commands::transcribe::run(&arguments, &mut out),
        Command::Embed(arguments) => commands::embed::run(&arguments, &mut out),
        Command::Rerank(arguments) => commands::rerank::run(&arguments, &mut out),
        Command::Perplexity(arguments) => commands::perplexity::run(&arguments, &mut out),
        Command::Bench(arguments) => commands::bench::run(&arguments, &mut out),
        Command::Profile(arguments) => commands::profile::run(&arguments, &mut out),
        Command::Devices(arguments) => commands::devices::run(&arguments, &mut out),
        Command::Inspect(arguments) => commands::inspect::run(&arguments, &mut out),
        Command::Tokenize(arguments) => commands::tokenize::run(&arguments, &mut out),
        Command::Quantize(arguments) => commands::quantize::run(&arguments, &mut out),
        Command::Pull(arguments) => commands::pull::run(&arguments, &mut out),
        Command::Models(arguments) => commands::models::run(&arguments, &mut out),
        Command::Rm(arguments) => commands::rm::run(&arguments, &mut out),
        Command::Completions(arguments) => commands::completions::run(&arguments, &mut out),
        Command::Manual(arguments) => commands::completions::write_manual(&arguments),
    }?;
    Ok(out.flush()?)
}

/// Prints the error and what can be done about it.
fn fail(error: &anyhow::Error) -> ExitCode {
    let known = error.downcast_ref::<akunu::Error>();
    let error_style = anstyle::AnsiColor::Red.on_default().bold();
    let hint_style = anstyle::AnsiColor::Cyan.on_default().bold();
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(anstream::stderr(), "{error_style}error:{error_style:#} {}", output::message(error));
    if let Some(hint) = known.and_then(akunu::Error::hint) {
        let _ = writeln!(anstream::stderr(), "{hint_style}hint:{hint_style:#} {hint}");
    }
    ExitCode::from(known.map_or(1, |known| known.kind().exit_code()))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
