//! `akunu rerank`

use std::io::Write;
use std::path::PathBuf;

use akunu::Error;
use akunu::embed::{EmbedOptions, Ranker, TooLong};
use anyhow::Result;
use serde_json::json;

use crate::engine::{backend_names, positive};
use crate::input::texts_or_lines;
use crate::model::locate;
use crate::output::Out;
use crate::progress::Spinner;
use crate::stop;

/// Pairs between two looks at the keyboard.
const TOGETHER: usize = 64;

const EXAMPLES: &str = "\
Examples:
  akunu rerank -m ms-marco-MiniLM-L6-v2 \"Where is the station?\" \"Behind the bridge.\" \"At noon.\"
  akunu rerank -m hf:cross-encoder/ms-marco-MiniLM-L6-v2 \"night trains\" --input passages.txt --top-n 10
  grep -i train notes.txt | akunu rerank -m ranker \"Where is the station?\" --json | jq .results[0]

Each document, or each line of a file, is read together with the query. The best comes first: its score,
a tab, and the document.";

/// Sort texts by how well they answer a question
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The question
    query: String,

    /// The texts; without any, and without --input, the lines of stdin
    #[arg(value_name = "DOCUMENT")]
    documents: Vec<String>,

    /// A cross-encoder: a directory with SafeTensors, or hf:OWNER/REPO
    #[arg(short, long)]
    model: String,

    /// A file with a document on each line; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "documents")]
    input: Option<PathBuf>,

    /// Print so many of the best [default: all]
    #[arg(long, value_name = "N", value_parser = positive())]
    top_n: Option<u32>,

    /// Refuse texts that are too long for the model, instead of leaving out their end
    #[arg(long)]
    no_truncate: bool,

    /// What computes: `akunu devices` lists what there is
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_names())]
    backend: String,

    /// CPU threads [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = positive())]
    threads: Option<u32>,

    /// Most tokens of a query and a document together [default: what the model takes, at most 4096]
    #[arg(short, long, value_name = "TOKENS", value_parser = positive())]
    ctx: Option<u32>,

    /// Print JSON, with the documents' numbers
    #[arg(long)]
    json: bool,
}

/// Ranks the documents.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let documents = texts_or_lines(&arguments.documents, arguments.input.as_deref())?;
    let path = locate(&arguments.model)?;
    let spinner = Spinner::new(&format!("loading {}", path.display()));
    let options = EmbedOptions {
        backend: arguments.backend.clone(),
        threads: arguments.threads.map(|n| n as usize),
        context: arguments.ctx.map(|n| n as usize),
        ..EmbedOptions::default()
    };
    let ranker = Ranker::load(&path, &options);
    spinner.clear();
    let ranker = ranker?;

    let too_long = if arguments.no_truncate { TooLong::Refuse } else { TooLong::Cut };
    let query = ranker.query(&arguments.query)?;
    let mut scores = Vec::with_capacity(documents.len());
    let spinner = Spinner::new("ranking");
    for some in documents.chunks(TOGETHER) {
        if stop::asked().is_break() {
            return Err(Error::Stopped.into());
        }
        spinner.set(&format!("{} of {} texts", scores.len(), documents.len()));
        let first = scores.len();
        let pairs = some
            .iter()
            .enumerate()
            .map(|(i, document)| {
                ranker.tokens(&query, document, too_long).map_err(|error| named(error, first + i))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        scores.extend(ranker.scores(&pairs)?);
    }
    spinner.clear();

    let mut ranked = Ranker::order(scores);
    ranked.truncate(arguments.top_n.map_or(usize::MAX, |n| n as usize));
    if arguments.json {
        let result = |&(index, score): &(usize, f32)| json!({"index": index, "relevance_score": score, "document": documents[index]});
        let results: Vec<_> = ranked.iter().map(result).collect();
        return Ok(writeln!(out, "{}", json!({"results": results}))?);
    }
    for (index, score) in ranked {
        writeln!(out, "{score:.4}\t{}", documents[index])?;
    }
    Ok(())
}

/// An error of one document among several.
fn named(error: Error, index: usize) -> Error {
    match error {
        Error::TooLong { tokens, context } => Error::Usage {
            problem: format!(
                "document {} has {tokens} tokens with the query, and the model takes {context}",
                index + 1
            ),
            hint: "leave --no-truncate away, and its end is left out".to_owned(),
        },
        other => other,
    }
}
