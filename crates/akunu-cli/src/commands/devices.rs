//! `akunu devices`

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use crate::output::{self, FAINT, Out};

const EXAMPLES: &str = "\
Examples:
  akunu devices
  akunu devices --json | jq -r '.[] | select(.default) | .backend'";

/// List what can run models on this machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Device {
    backend: &'static str,
    /// Whether `--backend auto` means this one.
    default: bool,
    about: String,
}

/// Lists the backends.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let devices = akunu::BACKENDS
        .into_iter()
        .enumerate()
        .map(|(i, backend)| Ok(Device { backend, default: i == 0, about: akunu::describe_backend(backend)? }))
        .collect::<Result<Vec<Device>>>()?;
    if arguments.json {
        return output::json(out, &devices);
    }
    for Device { backend, default, about } in devices {
        let note = if default { "  default" } else { "" };
        writeln!(out, "{backend:12}{about}{FAINT}{note}{FAINT:#}")?;
    }
    Ok(())
}
