//! `akunu embed`

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use akunu::Error;
use akunu::embed::{EmbedOptions, Embedder, Pooling, Shape, TooLong};
use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::engine::{backend_names, positive};
use crate::input::texts_or_lines;
use crate::model::locate;
use crate::output::Out;
use crate::progress::Spinner;
use crate::stop;

/// The model of a command that embeds and was given none.
const DEFAULT_MODEL: &str = "minilm";
/// Texts between two looks at the keyboard.
const TOGETHER: usize = 64;

const EXAMPLES: &str = "\
Examples:
  akunu embed \"Where is the station?\" \"How do I get to the train?\"
  akunu embed --input sentences.txt --output npy > vectors.npy
  cat sentences.txt | akunu embed | head -1 | jq length
  akunu embed -m model.gguf --pooling last \"a text\"

Each text, or each line of a file, gives one line: an array of numbers. Vectors have length 1 unless
--no-normalize is given, so that the sum of products of two of them is their cosine.";

/// Turn texts into vectors
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The texts; without any, and without --input, the lines of stdin
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,

    /// A path, a name that `akunu models` lists, or hf:OWNER/REPO
    #[arg(short, long, default_value = DEFAULT_MODEL)]
    model: String,

    /// A file with a text on each line; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    input: Option<PathBuf>,

    /// JSON arrays, one a line, or one NumPy array of F32
    #[arg(short, long, value_name = "FORMAT", default_value = "json", value_parser = ["json", "npy"])]
    output: String,

    /// How a text's states become one vector [default: what the model's makers say, or mean]
    #[arg(long, value_name = "HOW", value_parser = pooling())]
    pooling: Option<Pooling>,

    /// Keep only so many numbers of each vector, for models that are trained for it
    #[arg(long, value_name = "N", value_parser = positive())]
    dimensions: Option<u32>,

    /// Leave vectors as long as they come out
    #[arg(long)]
    no_normalize: bool,

    /// Leave out the end of texts that are too long for the model, instead of refusing them
    #[arg(long)]
    truncate: bool,

    /// What computes: `akunu devices` lists what there is
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_names())]
    backend: String,

    /// CPU threads [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = positive())]
    threads: Option<u32>,

    /// Most tokens of a text [default: what the model's makers say, at most 4096]
    #[arg(short, long, value_name = "TOKENS", value_parser = positive())]
    ctx: Option<u32>,

    /// Accepted everywhere; the output is JSON already
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

fn pooling() -> impl TypedValueParser<Value = Pooling> {
    PossibleValuesParser::new(Pooling::NAMES).try_map(|name| name.parse::<Pooling>())
}

/// Embeds the texts.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let texts = texts_or_lines(&arguments.texts, arguments.input.as_deref())?;
    let npy = arguments.output == "npy";
    if npy && io::stdout().is_terminal() {
        return Err(Error::Usage {
            problem: "a NumPy array is not for the screen".to_owned(),
            hint: "send it to a file: akunu embed ... --output npy > vectors.npy".to_owned(),
        }
        .into());
    }
    let path = locate(&arguments.model)?;
    let spinner = Spinner::new(&format!("loading {}", path.display()));
    let options = EmbedOptions {
        backend: arguments.backend.clone(),
        threads: arguments.threads.map(|n| n as usize),
        context: arguments.ctx.map(|n| n as usize),
        pooling: arguments.pooling,
        ..EmbedOptions::default()
    };
    let embedder = Embedder::load(&path, &options);
    spinner.clear();
    let embedder = embedder?;

    let too_long = if arguments.truncate { TooLong::Cut } else { TooLong::Refuse };
    let tokens = texts
        .iter()
        .enumerate()
        .map(|(i, text)| embedder.tokens(text, too_long).map_err(|error| named(error, i)))
        .collect::<Result<Vec<_>, Error>>()?;
    let shape =
        Shape { dimensions: arguments.dimensions.map(|n| n as usize), normalize: !arguments.no_normalize };
    let width = shape.dimensions.unwrap_or(embedder.dimensions());
    let mut raw = io::stdout().lock();
    if npy {
        raw.write_all(&npy_header(texts.len(), width))?;
    }
    let spinner = Spinner::new("embedding");
    for (i, tokens) in tokens.chunks(TOGETHER).enumerate() {
        if stop::asked().is_break() {
            return Err(Error::Stopped.into());
        }
        spinner.set(&format!("{} of {} texts", i * TOGETHER, texts.len()));
        for vector in embedder.embed(tokens, shape)? {
            if npy {
                raw.write_all(&vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())?;
            } else {
                serde_json::to_writer(&mut *out, &vector).map_err(io::Error::from)?;
                writeln!(out)?;
            }
        }
    }
    spinner.clear();
    Ok(raw.flush()?)
}

/// An error of one text among several.
fn named(error: Error, index: usize) -> Error {
    match error {
        Error::TooLong { tokens, context } => Error::Usage {
            problem: format!("text {} has {tokens} tokens, and the model takes {context}", index + 1),
            hint: "--truncate leaves out the end; --ctx takes more where the model was made for it"
                .to_owned(),
        },
        other => other,
    }
}

/// The header of a NumPy file: F32 `[rows][columns]`, padded so that the numbers begin at a multiple of 64.
fn npy_header(rows: usize, columns: usize) -> Vec<u8> {
    let mut text =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}").into_bytes();
    // Before the text stand a magic of 6 bytes, a version of 2 and the text's length of 2.
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.resize(padded - 1, b' ');
    text.push(b'\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((padded as u16).to_le_bytes());
    header.extend(text);
    header
}

#[cfg(test)]
mod tests {
    use super::npy_header;

    #[test]
    fn a_numpy_header_ends_at_a_multiple_of_64() {
        for rows in [0, 9, 123_456_789] {
            let header = npy_header(rows, 384);
            assert!(header.len().is_multiple_of(64) && header.ends_with(b"\n"), "{header:?}");
            let length = usize::from(u16::from_le_bytes([header[8], header[9]]));
            assert_eq!(length + 10, header.len());
            assert!(String::from_utf8_lossy(&header).contains(&format!("'shape': ({rows}, 384)")));
        }
    }
}
