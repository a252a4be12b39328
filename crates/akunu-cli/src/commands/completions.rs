//! `akunu completions` and `akunu manual`: what shells and `man` know of the command, made from its own arguments.

use std::io::Write;
use std::path::PathBuf;

use akunu::Error;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::output::Out;

const EXAMPLES: &str = "\
Examples:
  akunu completions bash >~/.local/share/bash-completion/completions/akunu
  akunu completions zsh >~/.zfunc/_akunu
  akunu completions fish >~/.config/fish/completions/akunu.fish";

/// Print what a shell needs to complete akunu's commands and options
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Which shell
    shell: Shell,
}

/// Write a manual page for every command into a folder
#[derive(clap::Args)]
pub struct Manual {
    /// Where to; it must exist
    folder: PathBuf,
}

/// Prints the completions.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "akunu", &mut script);
    Ok(out.write_all(&script)?)
}

/// Writes the pages.
pub fn write_manual(arguments: &Manual) -> Result<()> {
    if !arguments.folder.is_dir() {
        let problem = format!("{} is not a folder", arguments.folder.display());
        return Err(Error::Usage { problem, hint: "make it first".to_owned() }.into());
    }
    clap_mangen::generate_to(Cli::command(), &arguments.folder)
        .with_context(|| arguments.folder.display().to_string())
}
