//! `akunu rm`

use std::io::Write;

use akunu::hub::Hub;
use anyhow::Result;
use serde_json::json;

use crate::model::{self, required};
use crate::output::{self, Out};
use crate::units;

const EXAMPLES: &str = "\
Examples:
  akunu rm smollm2
  akunu rm hf:OWNER/REPO:Q4_K_M

Only what `akunu pull` fetched is deleted, never a file of yours.";

/// Delete a model that was pulled
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    model: model::ModelArgument,

    /// Print JSON: {"name", "freed"}
    #[arg(long)]
    json: bool,
}

/// Deletes the model.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let name = required(arguments.model.given())?;
    let freed = Hub::from_env()?.remove(name)?;
    if arguments.json {
        output::json(out, &json!({ "name": name, "freed": freed }))
    } else {
        Ok(writeln!(out, "{name} is deleted, {} are free again", units::bytes(freed))?)
    }
}
