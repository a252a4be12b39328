//! The `akunu` command.

use clap::Parser;

/// Run language models on your own machine.
#[derive(Parser)]
#[command(version)]
struct Cli {}

fn main() {
    Cli::parse();
}
