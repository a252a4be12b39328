//! `akunu perplexity`

use std::io::Write;
use std::path::PathBuf;

use akunu::Options;
use akunu::tokenizer::{AddSpecial, Special};
use anyhow::Result;
use serde::Serialize;

use crate::engine::{EngineArguments, positive};
use crate::output::{self, Out};
use crate::progress::Spinner;
use crate::stop;

const EXAMPLES: &str = "\
Examples:
  akunu perplexity book.txt
  akunu perplexity -m model.gguf book.txt -c 1024 --chunks 20";

/// The context llama.cpp measures with.
const DEFAULT_CONTEXT: u32 = 512;

/// Measure how well a model predicts a text
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The text
    file: PathBuf,

    /// A path, a name that `akunu models` lists, or `hf:OWNER/REPO[:QUANTISATION]`
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,

    /// Most windows of text to score [default: all]
    #[arg(long, value_name = "N", value_parser = positive())]
    chunks: Option<u32>,

    #[command(flatten)]
    engine: EngineArguments,

    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Figures {
    perplexity: f64,
    error: f64,
    tokens: usize,
}

/// Scores the text.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let path = &arguments.file;
    let text = akunu::read_text(path)?;
    let context = arguments.engine.ctx.unwrap_or(DEFAULT_CONTEXT) as usize;
    let options = Options { context: Some(context), outputs: 64, ..Options::default() };
    let model = arguments.engine.load(arguments.model.as_deref(), &options)?;
    let tokens = model.tokenizer()?.encode(&text, Special::Parse, AddSpecial::Yes);
    let spinner = Spinner::new("scoring");
    let windows = arguments.chunks.map(|n| n as usize);
    let scored = akunu::perplexity(&model, &tokens, windows, |done, total, so_far| {
        spinner.set(&format!("{done}/{total} windows, {:.4} so far", so_far.value()));
        stop::asked().is_continue()
    });
    spinner.clear();
    let scored = scored?;
    let figures = Figures { perplexity: scored.value(), error: scored.error(), tokens: scored.tokens };
    if arguments.json {
        return output::json(out, &figures);
    }
    Ok(writeln!(out, "{:.4} +/- {:.4}", figures.perplexity, figures.error)?)
}
