//! Results on stdout: text with colours on a terminal and without elsewhere, or JSON.

use std::io::{self, BufWriter, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use serde::Serialize;

/// Where a command writes its result.
pub type Out = BufWriter<AutoStream<io::Stdout>>;

/// A heading.
pub const HEADING: Style = Style::new().bold();
/// What can be read later.
pub const FAINT: Style = Style::new().dimmed();
/// Something that is there.
pub const PRESENT: Style = AnsiColor::Green.on_default();

/// Standard output, buffered; styles vanish unless it is a terminal.
pub fn stdout() -> Out {
    BufWriter::new(AutoStream::auto(io::stdout()))
}

/// Writes a value as indented JSON and a line feed.
pub fn json(out: &mut Out, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(writeln!(out, "{text}")?)
}

/// The error and its causes, without those that an error before them has told already.
pub fn message(error: &anyhow::Error) -> String {
    error.chain().skip(1).map(ToString::to_string).fold(error.to_string(), |message, cause| {
        if message.contains(&cause) { message } else { format!("{message}: {cause}") }
    })
}
