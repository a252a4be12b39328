//! Text from the command line or from standard input.

use std::io::{self, Read};

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
