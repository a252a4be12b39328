//! `akunu models`

use std::io::Write;

use akunu::hub::Hub;
use anyhow::Result;
use serde_json::json;

use crate::output::{self, FAINT, HEADING, Out, PRESENT};
use crate::units;

const EXAMPLES: &str = "\
Examples:
  akunu models
  akunu models --json | jq -r '.models[] | select(.path) | .name'";

/// List the models that can be pulled by name, and those that were
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Print JSON: {"cache", "models": [{"name", "description", "license", "size", "path"}]}; "path" is null until pulled
    #[arg(long)]
    json: bool,
}

/// Lists the models.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let hub = Hub::from_env()?;
    let models = hub.models()?;
    if arguments.json {
        return output::json(out, &json!({ "cache": hub.cache(), "models": models }));
    }
    let width = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0).max(4);
    writeln!(
        out,
        "{HEADING}{:width$}  {:>8}  {:4}  {:10}  what{HEADING:#}",
        "name", "size", "here", "licence"
    )?;
    for model in &models {
        let size = units::bytes(model.size);
        let (here, style) = if model.path.is_some() { ("yes", PRESENT) } else { ("-", FAINT) };
        let license = model.license.as_deref().unwrap_or("-");
        let (name, what) = (&model.name, &model.description);
        writeln!(out, "{name:width$}  {size:>8}  {style}{here:4}{style:#}  {license:10}  {what}")?;
    }
    Ok(())
}
