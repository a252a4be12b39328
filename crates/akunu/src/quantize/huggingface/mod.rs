//! Hugging Face directories as GGUF: names, the order of rows, settings, vocabulary.

mod encoder;
mod metadata;
mod tensors;
mod vocabulary;

use std::path::Path;

use akunu_format::ModelFile;
use akunu_format::checkpoint::Checkpoint;
use akunu_format::gguf::Writer;
use akunu_program::arch::{Architecture, FeedForward};
use akunu_program::program::Mask;

use super::plan::Facts;
use super::{Header, Input, Plan, Source};
use crate::Result;

/// Reads a checkpoint of a family that akunu runs. `file` is the same checkpoint.
pub(super) fn read<'a>(file: &'a ModelFile, checkpoint: &'a Checkpoint) -> Result<Input<'a>> {
    let (architecture, names) = Architecture::of(file)?;
    if architecture.mask != Mask::Causal {
        return encoder::read(file, checkpoint, &architecture, &names);
    }
    let tensors::Found { sources, mut notes } = tensors::find(checkpoint, &architecture, &names)?;
    let mut header = Writer::new();
    let embedding_rows =
        sources.iter().find(|source| source.name == "token_embd.weight").map_or(0, Source::rows);
    metadata::write(checkpoint, &architecture, embedding_rows, &mut header)?;
    if let Some(note) = vocabulary::write(checkpoint, embedding_rows, &mut header)? {
        notes.push(note);
    }
    Ok(Input {
        files: checkpoint.files().map(Path::to_owned).collect(),
        plan: Plan::Text(facts(&architecture)),
        sources,
        header: Header::Gguf(header),
        notes,
    })
}

fn facts(architecture: &Architecture) -> Facts {
    let first = architecture.layers.first();
    Facts {
        architecture: architecture.family.to_owned(),
        layers: architecture.layers.len(),
        heads: first.map_or(0, |layer| layer.heads),
        value_heads: first.map_or(0, |layer| layer.kv_heads),
        experts: match first.map(|layer| layer.feed_forward) {
            Some(FeedForward::Experts { count, .. }) => count,
            _ => 0,
        },
    }
}
