//! `akunu tokenize`

use std::borrow::Cow;
use std::io::{self, Write};

use akunu_text::tokenizer::{AddSpecial, Special};
use anyhow::Result;
use serde::Serialize;

use crate::engine::DEFAULT_MODEL;
use crate::input::text_or_stdin;
use crate::model;
use crate::output::{FAINT, Out};

const EXAMPLES: &str = "\
Examples:
  akunu tokenize \"Hello world\"                   with the default model's vocabulary
  akunu tokenize -m model.gguf --no-special Hi
  akunu tokenize -m ./tokenizer.json Hi          a vocabulary alone: also tekken.json, tokenizer.model
  akunu tokenize -m model.gguf --json - < book.txt | jq '.ids | length'

Names of special tokens, such as <|im_end|>, are those tokens; with --plain they are ordinary text,
as in what a user writes.";

/// Show how a model cuts a text into tokens
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The text; - reads it from stdin
    #[arg(allow_hyphen_values = true)]
    text: String,

    /// A path (a file with a vocabulary and no weights will do), a known name, or hf:OWNER/REPO
    #[arg(short, long, default_value = DEFAULT_MODEL)]
    model: String,

    /// Leave out what the model expects around a text (BOS, EOS)
    #[arg(long)]
    no_special: bool,

    /// Take names of special tokens for ordinary text
    #[arg(long)]
    plain: bool,

    /// Print JSON: {"ids", "pieces"}; in pieces, what is not text is U+FFFD
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Tokens<'a> {
    ids: Vec<u32>,
    pieces: Vec<Cow<'a, str>>,
}

/// Tokenizes the text.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let text = text_or_stdin(&arguments.text)?;
    let tokenizer = akunu::load_tokenizer(model::locate(&arguments.model)?)?;
    let special = if arguments.plain { Special::Plain } else { Special::Parse };
    let add = if arguments.no_special { AddSpecial::No } else { AddSpecial::Yes };
    let ids = tokenizer.encode(&text, special, add);
    let pieces = ids.iter().map(|&id| tokenizer.piece(id)).collect();
    let tokens = Tokens { ids, pieces };
    if arguments.json {
        serde_json::to_writer(&mut *out, &tokens).map_err(io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    for &id in &tokens.ids {
        writeln!(out, "{id:>7}  {FAINT}{}{FAINT:#}", quoted(tokenizer.token_bytes(id)))?;
    }
    Ok(())
}

/// A piece in quotes. What is not text in it, such as a part of a character, is shown as bytes.
fn quoted(piece: &[u8]) -> String {
    let mut quoted = String::from('"');
    for chunk in piece.utf8_chunks() {
        quoted.extend(chunk.valid().chars().flat_map(char::escape_debug));
        quoted.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn pieces_are_quoted_and_broken_characters_are_bytes() {
        assert_eq!(quoted("a \"é\"\n".as_bytes()), r#""a \"é\"\n""#);
        assert_eq!(quoted(b" \xf0\x9f"), r#"" \xf0\x9f""#);
    }
}
