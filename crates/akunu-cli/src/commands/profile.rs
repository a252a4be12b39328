//! `akunu profile`: where the time goes.

use std::collections::HashMap;
use std::io::Write;
use std::time::Instant;

use akunu::{Model, Options, Sequence, StepTime, Tally};
use anyhow::{Result, bail};
use serde::Serialize;

use crate::engine::{EngineArguments, positive};
use crate::model::ModelArgument;
use crate::output::{self, FAINT, HEADING, Out};
use crate::progress::Spinner;
use crate::units;

const EXAMPLES: &str = "\
Examples:
  akunu profile                               a prompt of 128 tokens and 32 more, of smollm2
  akunu profile model.gguf --tokens 64 -p 0   generating alone
  akunu profile model.gguf --sequences 16     a token of each of sixteen sequences in every run
  akunu profile model.gguf --backend cpu -t 2 --json";

/// Show what each operation of a model takes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArgument,

    /// Tokens to generate
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = positive())]
    tokens: u32,

    /// Tokens of the prompt before; 0 leaves its figures out
    #[arg(short, long, value_name = "N", default_value_t = 128)]
    prompt: u32,

    /// Sequences to generate together behind the same prompt, a token of each in every run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive())]
    sequences: u32,

    #[command(flatten)]
    engine: EngineArguments,

    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// Tokens at the beginning that do not count, and as many times of reading: caches that can hold all of it take some tokens to do so.
const UNCOUNTED: usize = 8;

/// Above so many bytes of a token, which no cache is expected to hold, one is enough.
const CACHEABLE: u64 = 512 << 20;

/// Bytes that are read in all, at most, unless once is more: a second or so.
const READ_IN_ALL: u64 = 16 << 30;

#[derive(Serialize)]
struct Profile {
    model: String,
    backend: &'static str,
    threads: usize,
    /// Reading as many bytes as a run takes (from 4 MiB to 1 GiB), as often as there were runs.
    read_gb_s: f64,
    /// What the machine reaches at most.
    float_gflop_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    int8_gop_s: Option<f64>,
    parts: Vec<Part>,
}

/// The prompt, or the tokens after it.
#[derive(Serialize)]
struct Part {
    part: &'static str,
    tokens: usize,
    seconds: f64,
    gb_s: f64,
    share_of_read: f64,
    ops: Vec<OpTime>,
}

/// The same operation of all layers.
#[derive(Serialize)]
struct OpTime {
    op: String,
    calls: u64,
    ms: f64,
    /// Of the time of all operations.
    share: f64,
    bytes: u64,
    operations: u64,
    gb_s: f64,
    gflop_s: f64,
}

/// Runs the model with every step timed.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let (prompt, tokens) = (arguments.prompt as usize, arguments.tokens as usize);
    let count = arguments.sequences as usize;
    // A run has at most as many rows as a sequence has positions.
    let context = (prompt.max(1) + tokens).max(count);
    let default = Options::default();
    let (outputs, batch) = (default.outputs.max(count), default.batch.max(count));
    let options = Options { context: Some(context), sequences: count, outputs, batch, ..default };
    let model = arguments.engine.load(arguments.model.given(), &options)?;
    if !model.time_steps(false) {
        bail!("the backend {} cannot time its operations", model.backend());
    }
    let spinner = Spinner::new("running the model");
    let mut sequences = (0..count).map(|_| model.sequence()).collect::<akunu::Result<Vec<_>>>()?;
    // Something that does not count, so that nothing is run for the first time.
    sequences[0].prefill(&[0])?;
    sequences[0].reset();
    let mut last = vec![0; count];
    let mut step = |sequences: &mut [Sequence], times: usize| -> akunu::Result<()> {
        for _ in 0..times {
            last = Sequence::step_together(sequences, &last)?;
        }
        Ok(())
    };
    let first = timed(&model, || step(&mut sequences, 1))?;
    let uncounted = if first.bytes() > CACHEABLE { 1 } else { UNCOUNTED };
    step(&mut sequences, uncounted.min(context - 1))?;
    sequences.iter_mut().for_each(Sequence::reset);
    let mut before = None;
    if prompt > 0 {
        let vocabulary = model.vocabulary() as u64;
        // Arbitrary tokens, as good as any.
        let fed: Vec<u32> = (0..prompt as u64).map(|i| (i * 7919 % vocabulary) as u32).collect();
        before = Some(timed(&model, || sequences[0].prefill(&fed).map(drop))?);
        for sequence in &mut sequences[1..] {
            sequence.feed(&fed)?;
        }
    }
    let after = timed(&model, || step(&mut sequences, tokens))?;
    spinner.set("measuring the machine");
    let threads = arguments.engine.threads.map(|n| n as usize);
    let bytes = after.bytes() / u64::from(arguments.tokens);
    let times = (READ_IN_ALL / bytes.max(1)).clamp(1, u64::from(arguments.tokens));
    let read = akunu::memory_reader(threads, bytes as usize)?.read(uncounted, times as usize);
    let ceilings = akunu::ceilings(threads)?;
    spinner.clear();
    let before = before.map(|timed| timed.part("prompt", prompt, read));
    let parts = before.into_iter().chain([after.part("tokens", count * tokens, read)]).collect();
    let profile = Profile {
        model: model.path().display().to_string(),
        backend: model.backend(),
        threads: ceilings.threads,
        read_gb_s: read / 1e9,
        float_gflop_s: ceilings.float / 1e9,
        int8_gop_s: ceilings.int8.map(|rate| rate / 1e9),
        parts,
    };
    if arguments.json { output::json(out, &profile) } else { profile.show(out) }
}

/// What something took.
struct Timed {
    seconds: f64,
    steps: Vec<StepTime>,
}

/// Does something with the clock on.
fn timed(model: &Model, work: impl FnOnce() -> akunu::Result<()>) -> Result<Timed> {
    model.time_steps(true);
    let begin = Instant::now();
    work()?;
    let timed = Timed { seconds: begin.elapsed().as_secs_f64(), steps: model.step_times() };
    model.time_steps(false);
    Ok(timed)
}

impl Timed {
    /// Bytes that had to be read.
    fn bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.tally.bytes).sum()
    }

    /// The figures of so many tokens, where so many bytes can be read in a second.
    fn part(self, part: &'static str, tokens: usize, read: f64) -> Part {
        let speed = self.bytes() as f64 / self.seconds;
        let (seconds, ops) = (self.seconds, ops(&self.steps));
        Part { part, tokens, seconds, gb_s: speed / 1e9, share_of_read: speed / read, ops }
    }
}

/// Steps that differ in their layer alone, together; the longest first.
fn ops(steps: &[StepTime]) -> Vec<OpTime> {
    let mut together: Vec<(String, Tally)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for step in steps.iter().filter(|step| step.tally.runs > 0) {
        let name = name(step);
        let at = *known.entry(name.clone()).or_insert_with(|| {
            together.push((name, Tally::default()));
            together.len() - 1
        });
        let (sum, tally) = (&mut together[at].1, step.tally);
        sum.time += tally.time;
        sum.runs += tally.runs;
        sum.bytes += tally.bytes;
        sum.operations += tally.operations;
    }
    together.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.time));
    let all: f64 = together.iter().map(|(_, tally)| tally.time.as_secs_f64()).sum();
    let op = |(op, tally): (String, Tally)| {
        let seconds = tally.time.as_secs_f64().max(1e-12);
        OpTime {
            op,
            calls: tally.runs,
            ms: seconds * 1e3,
            share: seconds / all.max(1e-12),
            bytes: tally.bytes,
            operations: tally.operations,
            gb_s: tally.bytes as f64 / seconds / 1e9,
            gflop_s: tally.operations as f64 / seconds / 1e9,
        }
    };
    together.into_iter().map(op).collect()
}

/// What the step does, and to which of a layer's weights.
fn name(step: &StepTime) -> String {
    let short = |weight: &String| {
        let parts: Vec<&str> = weight.split('.').filter(|part| !matches!(*part, "weight" | "bias")).collect();
        parts.last().copied().unwrap_or_default().to_owned()
    };
    let weights: Vec<String> = step.weights.iter().map(short).collect();
    format!("{} {}", step.kind, weights.join(" ")).trim_end().to_owned()
}

impl Profile {
    fn show(&self, out: &mut Out) -> Result<()> {
        let int8 =
            self.int8_gop_s.map_or(String::new(), |rate| format!(", {rate:.0} GOP/s of 8-bit integers"));
        writeln!(
            out,
            "{HEADING}machine{HEADING:#}: {} threads read {:.1} GB/s and do {:.0} GFLOP/s{int8}",
            self.threads, self.read_gb_s, self.float_gflop_s
        )?;
        for part in &self.parts {
            let rate = part.tokens as f64 / part.seconds;
            writeln!(
                out,
                "\n{HEADING}{}{HEADING:#}: {} in {:.1} ms, {rate:.1} a second, on {}; {:.2} GB/s, {:.1} % of read",
                part.part,
                units::grouped(part.tokens as u64),
                part.seconds * 1e3,
                self.backend,
                part.gb_s,
                part.share_of_read * 100.0
            )?;
            writeln!(
                out,
                "  {FAINT}{:<36} {:>6} {:>9} {:>6} {:>7} {:>7} {:>8}{FAINT:#}",
                "operation", "calls", "ms", "share", "GB/s", "of read", "GFLOP/s"
            )?;
            for op in &part.ops {
                let percent = |share: f64| format!("{:.1} %", share * 100.0);
                let moved = op.bytes > 0;
                let or_none = |shown: bool, text: String| if shown { text } else { "-".to_owned() };
                writeln!(
                    out,
                    "  {:<36} {:>6} {:>9.2} {:>6} {:>7} {:>7} {:>8}",
                    op.op,
                    op.calls,
                    op.ms,
                    percent(op.share),
                    or_none(moved, format!("{:.2}", op.gb_s)),
                    or_none(moved, percent(op.gb_s / self.read_gb_s)),
                    or_none(op.operations > 0, format!("{:.1}", op.gflop_s))
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_same_operation_of_all_layers_stands_in_one_line() {
        let step = |kind, weights: &[&str], ms| StepTime {
            kind,
            weights: weights.iter().map(|&weight| weight.to_owned()).collect(),
            tally: Tally { time: Duration::from_millis(ms), runs: 1, bytes: 10, operations: 0 },
        };
        let ops = ops(&[
            step("linear", &["blk.0.attn_q.weight", "blk.0.attn_k.weight"], 1),
            step("attend", &[], 1),
            step("linear", &["blk.1.attn_q.weight", "blk.1.attn_k.weight"], 5),
            step("linear", &["model.layers.1.mlp.down_proj.weight"], 3),
        ]);
        let lines: Vec<_> = ops.iter().map(|op| (op.op.as_str(), op.calls, op.bytes)).collect();
        assert_eq!(lines, [("linear attn_q attn_k", 2, 20), ("linear down_proj", 1, 10), ("attend", 1, 10)]);
        assert!((ops.iter().map(|op| op.share).sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
