//! Text from the command line or from standard input.

use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result};

/// The text itself, or all of standard input where that is `-`.
pub fn text_or_stdin(text: &str) -> Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
    String::from_utf8(bytes).context("standard input is not text")
}

/// The texts themselves, or the lines of a file, or without either those of standard input, which `-` stands for too.
pub fn texts_or_lines(texts: &[String], input: Option<&Path>) -> Result<Vec<String>> {
    let lines = |text: String| text.lines().map(str::to_owned).collect();
    match input {
        Some(path) if path != Path::new("-") => Ok(lines(akunu::read_text(path)?)),
        None if !texts.is_empty() => Ok(texts.to_vec()),
        _ => Ok(lines(text_or_stdin("-")?)),
    }
}
