//! `akunu inspect`

use std::io::Write;
use std::path::Path;

use akunu::Summary;
use akunu::summary::{DTypeShare, SCRATCH_ROWS};
use akunu_format::ModelFile;
use anyhow::{Result, bail};

use crate::model::{self, required};
use crate::output::{self, FAINT, HEADING, Out};
use crate::units::{bytes, count, grouped, number, percent};

const EXAMPLES: &str = "\
Examples:
  akunu inspect smollm2
  akunu inspect model.gguf --ctx 32768        memory at that context
  akunu inspect ./checkpoint --tensors        every tensor with its shape
  akunu inspect model.gguf --json | jq .memory.total";

/// The width of the column of names.
const NAMES: usize = 18;
/// Values are cut so that a line fits a terminal of 80 columns.
const VALUES: usize = 80 - NAMES - 4;

/// Longer keys push their values to the right.
const WIDEST_KEY: usize = 40;

/// Show what a model file holds and what running it takes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    model: model::ModelArgument,

    /// Tokens of context to reckon memory for [default: the model's, at most 4096]
    #[arg(short, long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    ctx: Option<u64>,

    /// List every tensor
    #[arg(long)]
    tensors: bool,

    /// List the metadata
    #[arg(long)]
    metadata: bool,

    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Describes the model.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let path = model::locate(required(arguments.model.given())?)?;
    let file = ModelFile::open(&path).map_err(akunu::Error::from)?;
    let summary = Summary::of(&file, arguments.ctx)?;
    if arguments.json {
        output::json(out, &summary)?;
    } else {
        describe(arguments, &summary, out)?;
    }
    out.flush()?;
    if summary.problems.is_empty() { Ok(()) } else { bail!("{}", summary.problems.join("\n")) }
}

fn describe(arguments: &Arguments, summary: &Summary, out: &mut Out) -> Result<()> {
    header(out, summary)?;
    network(out, summary)?;
    tokenizer(out, summary)?;
    weights(out, summary)?;
    memory(out, summary)?;
    if arguments.metadata {
        metadata(out, summary)?;
    }
    if arguments.tensors {
        tensors(out, summary)?;
    }
    Ok(())
}

fn header(out: &mut Out, summary: &Summary) -> Result<()> {
    let file_name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let title = summary.name.clone().or_else(|| file_name(&summary.path)).unwrap_or_default();
    writeln!(out, "{HEADING}{}{HEADING:#}", clipped(&title, 80))?;
    row(out, "architecture", summary.architecture.as_deref().unwrap_or("not stated"))?;
    if summary.parameters > 0 {
        let tensors = summary.tensors.len();
        row(out, "parameters", &format!("{} in {tensors} tensors", count(summary.parameters)))?;
    }
    optional(out, "licence", summary.license.as_deref())?;
    let files = match summary.files.len() {
        1 => String::new(),
        files => format!(" in {files} files"),
    };
    row(out, "file", &format!("{}, {}{files}", summary.format, bytes(summary.file_bytes())))
}

fn network(out: &mut Out, summary: &Summary) -> Result<()> {
    let shape = &summary.shape;
    section(out, "Network")?;
    let amount = |value: Option<u64>| value.map(grouped);
    optional(out, "context", shape.context_length.map(|c| format!("{} tokens", grouped(c))).as_deref())?;
    optional(out, "layers", amount(shape.layers).as_deref())?;
    optional(out, "embedding", amount(shape.embedding_length).as_deref())?;
    optional(out, "feed-forward", amount(shape.feed_forward_length).as_deref())?;
    if let Some(heads) = shape.heads {
        let shared = shape.kv_heads.filter(|&kv| kv != heads);
        let kv = shared.map(|kv| format!(", {kv} for keys and values")).unwrap_or_default();
        let dim = shape.head_dim.map(|dim| format!(", {dim} wide")).unwrap_or_default();
        row(out, "heads", &format!("{heads}{kv}{dim}"))?;
    }
    if let Some(experts) = shape.experts {
        let used = shape.experts_used.map(|used| format!(", {used} for each token")).unwrap_or_default();
        row(out, "experts", &format!("{experts}{used}"))?;
    }
    if let Some(window) = &shape.sliding_window {
        let of = shape.layers.map(|layers| format!(" of {layers}")).unwrap_or_default();
        row(
            out,
            "sliding window",
            &format!("{} tokens in {}{of} layers", grouped(window.size), window.layers),
        )?;
    }
    if let Some(rope) = &shape.rope {
        let mut parts = Vec::new();
        parts.extend(rope.base.map(|base| format!("base {}", number(base))));
        parts.extend(rope.dimensions.map(|dimensions| format!("{dimensions} dimensions")));
        parts.extend(rope.scaling.as_ref().map(|scaling| {
            let factor = scaling.factor.map(|factor| format!(" x {}", number(factor))).unwrap_or_default();
            let from = scaling.original_context.map(|c| format!(" from {}", grouped(c))).unwrap_or_default();
            format!("{}{factor}{from}", scaling.kind)
        }));
        row(out, "rope", &parts.join(", "))?;
    }
    if let Some(encoder) = &shape.encoder {
        let text = format!(
            "{} layers, {} wide, {} heads, {} positions, {} mel bands",
            encoder.layers, encoder.embedding_length, encoder.heads, encoder.context_length, encoder.mels
        );
        row(out, "encoder", &text)?;
    }
    Ok(())
}

fn tokenizer(out: &mut Out, summary: &Summary) -> Result<()> {
    section(out, "Text")?;
    match &summary.tokenizer {
        None => row(out, "tokenizer", "none")?,
        Some(tokenizer) => {
            let pre = tokenizer.pre.as_ref().map(|pre| format!(", {pre}")).unwrap_or_default();
            row(
                out,
                "tokenizer",
                &format!("{}{pre}, {} tokens", tokenizer.model, grouped(tokenizer.vocabulary_size)),
            )?;
            for (role, token) in &tokenizer.special {
                let text = token.text.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
                row(out, &format!("  {role}"), &format!("{}{text}", token.id))?;
            }
        }
    }
    let template = match &summary.chat_template {
        None => "none".to_owned(),
        Some(template) => {
            let names =
                if template.names.len() > 1 { template.names.join(", ") + "; " } else { String::new() };
            let style = template.style.map(|style| format!("{style}, ")).unwrap_or_default();
            let tools = if template.tools { ", with tools" } else { "" };
            format!("{names}{style}{} characters{tools}", grouped(template.length as u64))
        }
    };
    row(out, "chat template", &template)
}

fn weights(out: &mut Out, summary: &Summary) -> Result<()> {
    if summary.dtypes.is_empty() {
        return Ok(());
    }
    section(out, "Weights")?;
    let total: u64 = summary.dtypes.iter().map(|share| share.bytes).sum();
    let width = summary.dtypes.iter().map(|share| share.dtype.len()).max().unwrap_or(0).max(NAMES);
    writeln!(
        out,
        "  {FAINT}{:width$}{:>9}{:>13}{:>13}{:>10}{FAINT:#}",
        "dtype", "tensors", "parameters", "size", "share"
    )?;
    for DTypeShare { dtype, tensors, parameters, bytes: size } in &summary.dtypes {
        let (parameters, share) = (count(*parameters), percent(*size, total));
        writeln!(out, "  {dtype:width$}{tensors:>9}{parameters:>13}{:>13}{share:>10}", bytes(*size))?;
    }
    Ok(())
}

fn memory(out: &mut Out, summary: &Summary) -> Result<()> {
    let Some(memory) = &summary.memory else { return Ok(()) };
    section(out, &format!("Memory at {} tokens of context", grouped(memory.context)))?;
    let known = |value: Option<u64>| value.map_or_else(|| "not known".to_owned(), bytes);
    let cache = match memory.kv_cache {
        Some(0) => format!("{:>10}", "none"),
        size => format!("{:>10}  {FAINT}F16{FAINT:#}", known(size)),
    };
    row(out, "weights", &format!("{:>10}", bytes(memory.weights)))?;
    writeln!(out, "  {:NAMES$}{cache}", "key-value cache")?;
    let scratch = known(memory.scratch);
    writeln!(
        out,
        "  {:NAMES$}{scratch:>10}  {FAINT}estimate, {SCRATCH_ROWS} rows at once{FAINT:#}",
        "scratch"
    )?;
    row(out, "total", &format!("{:>10}", known(memory.total)))
}

fn metadata(out: &mut Out, summary: &Summary) -> Result<()> {
    section(out, "Metadata")?;
    let longest = summary.metadata.keys().map(|key| key.chars().count()).max().unwrap_or(0);
    let width = longest.min(WIDEST_KEY);
    for (key, value) in &summary.metadata {
        let text = match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Object(about) if about.contains_key("length") => {
                let part = |name| about.get(name).map(ToString::to_string).unwrap_or_default();
                format!("[{} x {}]", part("length"), part("elements").trim_matches('"'))
            }
            other => other.to_string(),
        };
        let key: String = key.chars().flat_map(visible).collect();
        writeln!(out, "  {key:width$}  {}", clipped(&text, 76 - width))?;
    }
    Ok(())
}

fn tensors(out: &mut Out, summary: &Summary) -> Result<()> {
    section(out, "Tensors")?;
    let width = summary.tensors.iter().map(|tensor| tensor.name.chars().count()).max().unwrap_or(0);
    for tensor in &summary.tensors {
        let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
        let shape = format!("[{}]", shape.join(", "));
        let name: String = tensor.name.chars().flat_map(visible).collect();
        writeln!(out, "  {name:width$}  {:8} {shape:16} {:>10}", tensor.dtype, bytes(tensor.bytes))?;
    }
    Ok(())
}

fn section(out: &mut Out, title: &str) -> Result<()> {
    Ok(writeln!(out, "\n{HEADING}{title}{HEADING:#}")?)
}

fn row(out: &mut Out, name: &str, value: &str) -> Result<()> {
    Ok(writeln!(out, "  {name:NAMES$}{}", clipped(value, VALUES))?)
}

fn optional(out: &mut Out, name: &str, value: Option<&str>) -> Result<()> {
    value.map_or(Ok(()), |value| row(out, name, value))
}

/// The text on one line, with what a terminal would act on made visible, and cut to `width` characters.
fn clipped(text: &str, width: usize) -> String {
    let mut shown: String = text.chars().take(width + 1).flat_map(visible).collect();
    if shown.chars().count() > width {
        shown = shown.chars().take(width.saturating_sub(3)).collect::<String>() + "...";
    }
    shown
}

/// Line feeds and other control characters in the form Rust writes them.
fn visible(character: char) -> Vec<char> {
    if character.is_control() { character.escape_default().collect() } else { vec![character] }
}
