//! `akunu bench`: llama-bench's measurements in llama-bench's table.

use std::io::Write;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use akunu::{Model, Options, Sequence, Summary};
use akunu_format::ModelFile;
use anyhow::Result;
use serde::Serialize;

use crate::engine::{DEFAULT_MODEL, backend_names, positive};
use crate::model::locate;
use crate::output::{self, Out};
use crate::progress::Spinner;
use crate::stop;

const EXAMPLES: &str = "\
Examples:
  akunu bench                                pp512 and tg128 of smollm2, five times each
  akunu bench a.gguf b.gguf -p 128,512 -n 0  prompts alone, of two lengths
  akunu bench model.gguf -d 2048 -o json     behind 2048 tokens of context";

/// Tokens chosen in one run while generating.
const CHAIN: usize = 32;

/// Measure how fast models run
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Paths or names
    #[arg(value_name = "MODEL")]
    models: Vec<String>,

    /// The same, as an option
    #[arg(short = 'm', long = "model", value_name = "MODEL", conflicts_with = "models")]
    option: Vec<String>,

    /// Tokens of prompt to time; 0 leaves that out
    #[arg(short = 'p', value_name = "N", value_delimiter = ',', default_value = "512")]
    prompt: Vec<usize>,

    /// Tokens to generate and time; 0 leaves that out
    #[arg(short = 'n', value_name = "N", value_delimiter = ',', default_value = "128")]
    generate: Vec<usize>,

    /// Tokens in the context before
    #[arg(short = 'd', value_name = "N", value_delimiter = ',', default_value = "0")]
    depth: Vec<usize>,

    /// Times each test is run, after one that does not count
    #[arg(short = 'r', value_name = "N", default_value_t = 5, value_parser = positive())]
    repetitions: u32,

    /// What computes: `akunu devices` lists what there is
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_names())]
    backend: String,

    /// CPU threads [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = positive())]
    threads: Option<u32>,

    /// Form of the result
    #[arg(short, long, value_name = "FORM", default_value = "md")]
    output: Form,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    Md,
    Json,
    Csv,
}

/// One test, its fields named as llama-bench's.
#[derive(Serialize)]
struct Test {
    backends: String,
    model_filename: String,
    model_type: String,
    model_size: u64,
    model_n_params: u64,
    n_batch: usize,
    n_threads: usize,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    avg_ns: u64,
    stddev_ns: u64,
    avg_ts: f64,
    stddev_ts: f64,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
}

/// What is measured.
#[derive(Clone, Copy)]
struct Plan {
    prompt: usize,
    generate: usize,
    depth: usize,
}

/// Measures all models.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let mut models: Vec<&str> =
        arguments.models.iter().chain(&arguments.option).map(String::as_str).collect();
    if models.is_empty() {
        models.push(DEFAULT_MODEL);
    }
    let mut tests = Vec::new();
    if arguments.output == Form::Md {
        header(out)?;
    }
    for model in models {
        let path = locate(model)?;
        for test in arguments.measure(&path)? {
            match arguments.output {
                Form::Md => row(out, &test)?,
                Form::Json | Form::Csv => {}
            }
            tests.push(test);
        }
    }
    match arguments.output {
        Form::Md => Ok(()),
        Form::Json => output::json(out, &tests),
        Form::Csv => csv(out, &tests),
    }
}

impl Arguments {
    fn plans(&self) -> Vec<Plan> {
        let prompts = self.prompt.iter().map(|&prompt| (prompt, 0));
        let generations = self.generate.iter().map(|&generate| (0, generate));
        let tests = prompts.chain(generations).filter(|test| *test != (0, 0));
        let behind =
            |(prompt, generate)| self.depth.iter().map(move |&depth| Plan { prompt, generate, depth });
        tests.flat_map(behind).collect()
    }

    fn measure(&self, path: &Path) -> Result<Vec<Test>> {
        let plans = self.plans();
        let context = plans.iter().map(|plan| plan.depth + plan.prompt + plan.generate).max().unwrap_or(1);
        let file = ModelFile::open(path).map_err(akunu::Error::from)?;
        let summary = Summary::of(&file, None)?;
        let spinner = Spinner::new(&format!("loading {}", path.display()));
        let options = Options {
            backend: self.backend.clone(),
            threads: self.threads.map(|n| n as usize),
            context: Some(context),
            ..Options::default()
        };
        let model = Model::from_file(&file, &options)?;
        let mut sequence = model.sequence()?;
        let mut tests = Vec::new();
        for plan in plans {
            let mut samples = Vec::new();
            for repetition in 0..=self.repetitions {
                spinner.set(&format!("{} {repetition}/{}", plan.name(), self.repetitions));
                let time = time(&mut sequence, plan)?;
                // The first run warms caches up.
                if repetition > 0 {
                    samples.push(time);
                }
                if stop::asked().is_break() {
                    return Err(akunu::Error::Stopped.into());
                }
            }
            tests.push(self.test(&model, &summary, plan, &samples));
        }
        spinner.clear();
        Ok(tests)
    }

    fn test(&self, model: &Model, summary: &Summary, plan: Plan, samples: &[Duration]) -> Test {
        let samples_ns: Vec<u64> = samples.iter().map(|time| time.as_nanos() as u64).collect();
        let tokens = (plan.prompt + plan.generate) as f64;
        let samples_ts: Vec<f64> = samples.iter().map(|time| tokens / time.as_secs_f64()).collect();
        let nanoseconds: Vec<f64> = samples_ns.iter().map(|&ns| ns as f64).collect();
        let cores = || available_parallelism().map_or(1, std::num::NonZero::get);
        let dtype = summary.dtypes.iter().max_by_key(|share| share.bytes).map(|share| share.dtype.as_str());
        let parameters = crate::units::count(summary.parameters).replace(' ', "");
        Test {
            backends: model.backend().to_owned(),
            model_filename: model.path().display().to_string(),
            model_type: format!("{} {parameters} {}", model.architecture().family, dtype.unwrap_or_default()),
            model_size: summary.dtypes.iter().map(|share| share.bytes).sum(),
            model_n_params: summary.parameters,
            n_batch: model.batch(),
            n_threads: self.threads.map_or_else(cores, |n| n as usize),
            n_prompt: plan.prompt,
            n_gen: plan.generate,
            n_depth: plan.depth,
            avg_ns: mean(&nanoseconds) as u64,
            stddev_ns: deviation(&nanoseconds) as u64,
            avg_ts: mean(&samples_ts),
            stddev_ts: deviation(&samples_ts),
            samples_ns,
            samples_ts,
        }
    }
}

impl Plan {
    fn name(self) -> String {
        let test =
            if self.prompt > 0 { format!("pp{}", self.prompt) } else { format!("tg{}", self.generate) };
        if self.depth > 0 { format!("{test} @ d{}", self.depth) } else { test }
    }
}

/// How long the test takes, its depth not counted.
fn time(sequence: &mut Sequence, plan: Plan) -> Result<Duration> {
    let tokens = arbitrary_tokens(plan.depth + plan.prompt.max(1), sequence.model().vocabulary());
    let (before, prompt) = tokens.split_at(plan.depth);
    sequence.reset();
    sequence.feed(before)?;
    let begin = Instant::now();
    if plan.prompt > 0 {
        sequence.prefill(prompt)?;
    }
    let (mut token, mut left) = (prompt[0], plan.generate);
    while left > 0 {
        let chosen = sequence.chain(token, left.min(CHAIN))?;
        token = chosen[chosen.len() - 1];
        let n = chosen.len();
        sequence.commit(n)?;
        left -= n;
    }
    Ok(begin.elapsed())
}

/// Tokens without a pattern, the same each time: the constants are Knuth's.
fn arbitrary_tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocabulary as u64) as u32
    };
    (0..n).map(|_| next()).collect()
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}

/// The deviation of a sample, as llama-bench has it.
fn deviation(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let mean = mean(samples);
    (samples.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (samples.len() - 1) as f64).sqrt()
}

fn header(out: &mut Out) -> Result<()> {
    writeln!(
        out,
        "| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>15} | {:>20} |",
        "model", "size", "params", "backend", "threads", "test", "t/s"
    )?;
    let line = |n: usize| "-".repeat(n);
    let right = |n: usize| "-".repeat(n - 1) + ":";
    writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} | {} |",
        line(30),
        right(10),
        right(10),
        line(10),
        right(7),
        right(15),
        right(20)
    )?;
    Ok(out.flush()?)
}

fn row(out: &mut Out, test: &Test) -> Result<()> {
    let plan = Plan { prompt: test.n_prompt, generate: test.n_gen, depth: test.n_depth };
    writeln!(
        out,
        "| {:<30} | {:>10} | {:>10} | {:<10} | {:>7} | {:>15} | {:>20} |",
        test.model_type,
        format!("{:.2} MiB", test.model_size as f64 / f64::from(1 << 20)),
        format!("{:.2} M", test.model_n_params as f64 / 1e6),
        test.backends,
        test.n_threads,
        plan.name(),
        format!("{:.2} ± {:.2}", test.avg_ts, test.stddev_ts)
    )?;
    Ok(out.flush()?)
}

fn csv(out: &mut Out, tests: &[Test]) -> Result<()> {
    for (i, test) in tests.iter().enumerate() {
        let serde_json::Value::Object(mut fields) = serde_json::to_value(test)? else { continue };
        // A table has no room for lists.
        fields.retain(|_, value| !value.is_array());
        if i == 0 {
            writeln!(out, "{}", fields.keys().cloned().collect::<Vec<_>>().join(","))?;
        }
        let cell = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
            other => other.to_string(),
        };
        writeln!(out, "{}", fields.values().map(cell).collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_is_run_at_every_depth_and_zeros_are_left_out() {
        let arguments = Arguments {
            models: Vec::new(),
            option: Vec::new(),
            prompt: vec![512, 0],
            generate: vec![128],
            depth: vec![0, 64],
            repetitions: 1,
            backend: "auto".to_owned(),
            threads: None,
            output: Form::Md,
        };
        let names: Vec<String> = arguments.plans().into_iter().map(Plan::name).collect();
        assert_eq!(names, ["pp512", "pp512 @ d64", "tg128", "tg128 @ d64"]);
    }

    #[test]
    fn deviations_are_those_of_a_sample() {
        assert_eq!(deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), (32.0f64 / 7.0).sqrt());
        assert_eq!(deviation(&[3.0]), 0.0);
    }
}
