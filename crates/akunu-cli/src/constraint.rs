//! The options that say what a text must be like.

use std::path::{Path, PathBuf};

use akunu::{Constraint, FinishReason, Statistics};
use anyhow::{Context, Result};

use crate::progress::line;

/// What the text must be like; at most one of these.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct ConstraintArguments {
    /// Write an instance of the JSON Schema in this file
    #[arg(long, value_name = "FILE")]
    json_schema: Option<PathBuf>,

    /// Write a JSON object
    #[arg(long)]
    json_object: bool,

    /// Write a sentence of the grammar in this file: GBNF (llama.cpp's notation), or Lark (llguidance's)
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,

    /// Write a match of this regular expression
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    regex: Option<String>,
}

impl ConstraintArguments {
    /// What was asked for.
    pub fn constraint(&self) -> Result<Option<Constraint>> {
        if let Some(path) = &self.json_schema {
            return json_schema(path).map(Some);
        }
        if let Some(path) = &self.grammar {
            let grammar = akunu::read_text(path)?;
            return Constraint::grammar(&grammar).with_context(|| path.display().to_string()).map(Some);
        }
        if let Some(pattern) = &self.regex {
            return Ok(Some(Constraint::regex(pattern)?));
        }
        Ok(self.json_object.then(Constraint::json_object))
    }
}

/// Says of a text that had to be like something whether it was cut off before it was.
pub fn tell_if_cut(reason: Option<FinishReason>, statistics: &Statistics) {
    if reason == Some(FinishReason::Length) {
        let tokens = statistics.generated_tokens;
        line(&format!("cut off after {tokens} tokens: the text is not complete (-n allows more)"));
    }
}

/// The schema in a file.
pub fn json_schema(path: &Path) -> Result<Constraint> {
    Constraint::json_schema_text(&akunu::read_text(path)?).with_context(|| path.display().to_string())
}
