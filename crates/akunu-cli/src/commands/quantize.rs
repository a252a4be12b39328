//! `akunu quantize`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;

use akunu::quantize::{Options, Planned, Recipe, quantize};
use akunu::{Error, Result};
use akunu_format::DType;
use serde_json::json;

use crate::model;
use crate::output::{self, FAINT, Out};
use crate::progress::{self, Meter};
use crate::stop;
use crate::units;

const USAGE: &str = "akunu quantize [OPTIONS] <IN> <OUT> <TYPE>";

const EXAMPLES: &str = "\
Examples:
  akunu quantize model-f16.gguf model-q4.gguf Q4_K_M
  akunu quantize ./checkpoint model.gguf Q8_0             from a SafeTensors directory
  akunu quantize whisper-tiny tiny-q5_0.bin Q5_0          a Whisper model, for whisper.cpp too
  akunu quantize smollm2 small.gguf Q4_0 --allow-requantize";

/// Convert a model to GGUF with other dtypes; Whisper models to whisper.cpp's .bin as well
#[derive(clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES, after_long_help = long_help())]
pub struct Arguments {
    /// The model to convert: a path, a known name, or hf:OWNER/REPO
    #[arg(value_name = "IN")]
    first: String,

    /// The GGUF file to write; for a Whisper model also a .bin in whisper.cpp's format
    #[arg(value_name = "OUT")]
    second: String,

    /// What to convert to, such as Q4_K_M; --help lists all
    #[arg(value_name = "TYPE", required_unless_present = "model")]
    third: Option<String>,

    /// The model to convert, instead of IN
    #[arg(short, long)]
    model: Option<String>,

    /// Also convert tensors that are quantised already, which loses quality twice
    #[arg(long)]
    allow_requantize: bool,

    /// Threads that convert [default: all cores]
    #[arg(short, long, value_name = "N")]
    threads: Option<NonZero<usize>>,

    /// Print JSON: {"path", "type", "bytes_before", "bytes_after", "tensors": [{"name", "shape", "from", "to"}]}
    #[arg(long)]
    json: bool,
}

/// The examples, and every type with a line about it.
fn long_help() -> String {
    Recipe::ALL.iter().fold(
        format!("{EXAMPLES}\n\nTypes, from the largest files to the smallest:"),
        |mut text, recipe| {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {:8}{}", recipe.name(), recipe.description());
            text
        },
    )
}

/// What was asked for.
struct Task {
    input: PathBuf,
    output: PathBuf,
    recipe: Recipe,
}

impl Arguments {
    /// With `-m` there is no IN, and OUT and TYPE come first.
    fn task(&self) -> Result<Task> {
        let (input, output, recipe) = match (&self.model, &self.third) {
            (None, Some(third)) => (&self.first, &self.second, third),
            (Some(model), None) => (model, &self.first, &self.second),
            _ => {
                return Err(Error::Usage {
                    problem: "IN is given twice".to_owned(),
                    hint: format!("usage: {USAGE}"),
                });
            }
        };
        let recipe = recipe.parse()?;
        Ok(Task { input: model::locate(input)?, output: output.into(), recipe })
    }
}

/// Converts the model.
pub fn run(arguments: &Arguments, out: &mut Out) -> anyhow::Result<()> {
    let Task { input, output, recipe } = arguments.task()?;
    let mut options = Options::new(recipe);
    options.allow_requantize = arguments.allow_requantize;
    options.threads = arguments.threads.unwrap_or(options.threads);
    let mut meter = Meter::new();
    let report = quantize(&input, &output, &options, &mut |progress| {
        meter.detail(progress.tensor);
        meter.bytes(progress.done, Some(progress.total));
        stop::asked()
    });
    meter.clear();
    let report = report?;
    report.notes.iter().for_each(|note| progress::line(&format!("note: {note}")));
    if arguments.json {
        let tensors: Vec<_> = report.tensors.iter().map(tensor_json).collect();
        return output::json(
            out,
            &json!({
                "path": output,
                "type": recipe.name(),
                "bytes_before": report.bytes_before,
                "bytes_after": report.bytes_after,
                "tensors": tensors,
            }),
        );
    }
    let (before, after) = (units::bytes(report.bytes_before), units::bytes(report.bytes_after));
    writeln!(out, "{}  {recipe}, {before} -> {after}", output.display())?;
    for ((wanted, taken), count) in fallbacks(&report.tensors) {
        writeln!(
            out,
            "  {FAINT}{count} tensors are {taken}: their rows do not divide into blocks of {wanted}{FAINT:#}"
        )?;
    }
    Ok(())
}

fn tensor_json(tensor: &Planned) -> serde_json::Value {
    json!({ "name": tensor.name, "shape": tensor.shape, "from": tensor.from, "to": tensor.to.name() })
}

/// How many tensors could not have the dtype the recipe wants, by that dtype and the one they took.
fn fallbacks(tensors: &[Planned]) -> BTreeMap<(DType, DType), usize> {
    let mut counts = BTreeMap::new();
    for tensor in tensors {
        if let Some(wanted) = tensor.instead_of {
            *counts.entry((wanted, tensor.to)).or_insert(0) += 1;
        }
    }
    counts
}
