//! `akunu bench`: llama-bench's measurements in llama-bench's table.

mod peer;
mod plan;
mod sample;
mod table;

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use akunu::{Model, Options, Summary};
use akunu_format::ModelFile;
use anyhow::Result;
use serde::Serialize;

use self::peer::{Comparison, Peer};
use self::plan::Plan;
use self::sample::{deviation, mean, range};
use self::table::{Column, left, right};
use crate::engine::{DEFAULT_MODEL, backend_names, positive};
use crate::model::locate;
use crate::output::{self, Out};
use crate::progress::Spinner;
use crate::stop;

const EXAMPLES: &str = "\
Examples:
  akunu bench                                pp512 and tg128 of smollm2, five times each
  akunu bench a.gguf b.gguf -p 128,512 -n 0  prompts alone, of two lengths
  akunu bench model.gguf -d 2048 -o json     behind 2048 tokens of context
  akunu bench model.gguf --peer llama-bench  beside llama.cpp, run by run in turn";

const COLUMNS: [Column; 7] = [
    left("model", 30),
    right("size", 10),
    right("params", 10),
    left("backend", 10),
    right("threads", 7),
    right("test", 15),
    right("t/s", 20),
];

/// With a peer: medians, the slowest and the fastest run, and the ratio of the medians.
const COMPARED: [Column; 7] = [
    left("model", 30),
    right("size", 10),
    right("threads", 7),
    right("test", 15),
    right("t/s", 24),
    right("peer t/s", 24),
    right("ratio", 18),
];

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

    /// Times each test is run, after a warm-up that does not count
    #[arg(short = 'r', value_name = "N", default_value_t = 5, value_parser = positive())]
    repetitions: u32,

    /// What computes: `akunu devices` lists what there is
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_names())]
    backend: String,

    /// CPU threads [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = positive())]
    threads: Option<u32>,

    /// A llama-bench binary to run beside, one run of it after each of ours
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,

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
    #[serde(flatten)]
    compared: Option<Comparison>,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
}

/// Measures all models.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let mut models: Vec<&str> =
        arguments.models.iter().chain(&arguments.option).map(String::as_str).collect();
    if models.is_empty() {
        models.push(DEFAULT_MODEL);
    }
    let columns = if arguments.peer.is_some() { COMPARED } else { COLUMNS };
    if arguments.output == Form::Md {
        table::header(out, &columns)?;
    }
    let mut tests = Vec::new();
    for model in models {
        arguments.measure(&locate(model)?, &mut |test| {
            if arguments.output == Form::Md {
                table::row(out, &columns, test.cells())?;
            }
            tests.push(test);
            Ok(())
        })?;
    }
    match arguments.output {
        Form::Md => Ok(()),
        Form::Json => output::json(out, &tests),
        Form::Csv => table::csv(out, &tests),
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

    fn measure(&self, path: &Path, done: &mut impl FnMut(Test) -> Result<()>) -> Result<()> {
        let plans = self.plans();
        let context = plans.iter().map(|plan| plan.context()).max().unwrap_or(1);
        let file = ModelFile::open(path).map_err(akunu::Error::from)?;
        let summary = Summary::of(&file, None)?;
        let spinner = Spinner::new(&format!("loading {}", path.display()));
        let options = Options {
            backend: self.backend.clone(),
            threads: Some(self.threads()),
            context: Some(context),
            ..Options::default()
        };
        let model = Model::from_file(&file, &options)?;
        let peer = self.peer.clone().map(|binary| Peer { binary });
        let mut sequence = model.sequence()?;
        for plan in plans {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for repetition in 1..=self.repetitions {
                spinner.set(&format!("{} {repetition}/{}", plan.name(), self.repetitions));
                // The peer warms up before each of its runs, and what it left in the caches is not ours.
                if repetition == 1 || peer.is_some() {
                    plan.warm_up().time(&mut sequence)?;
                }
                ours.push(plan.time(&mut sequence)?);
                if let Some(peer) = &peer {
                    theirs.push(peer.run(path, self.threads(), plan)?);
                }
                if stop::asked().is_break() {
                    return Err(akunu::Error::Stopped.into());
                }
            }
            done(self.test(&model, &summary, plan, &ours, &theirs))?;
        }
        spinner.clear();
        Ok(())
    }

    fn threads(&self) -> usize {
        let cores = || available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.map_or_else(cores, |n| n as usize)
    }

    fn test(
        &self,
        model: &Model,
        summary: &Summary,
        plan: Plan,
        samples: &[Duration],
        theirs: &[peer::Run],
    ) -> Test {
        let samples_ns: Vec<u64> = samples.iter().map(|time| time.as_nanos() as u64).collect();
        let tokens = plan.tokens() as f64;
        let samples_ts: Vec<f64> = samples.iter().map(|time| tokens / time.as_secs_f64()).collect();
        let nanoseconds: Vec<f64> = samples_ns.iter().map(|&ns| ns as f64).collect();
        let dtype = summary.dtypes.iter().max_by_key(|share| share.bytes).map(|share| share.dtype.as_str());
        let parameters = crate::units::count(summary.parameters).replace(' ', "");
        Test {
            backends: model.backend().to_owned(),
            model_filename: model.path().display().to_string(),
            model_type: format!("{} {parameters} {}", model.architecture().family, dtype.unwrap_or_default()),
            model_size: summary.dtypes.iter().map(|share| share.bytes).sum(),
            model_n_params: summary.parameters,
            n_batch: model.batch(),
            n_threads: self.threads(),
            n_prompt: plan.prompt,
            n_gen: plan.generate,
            n_depth: plan.depth,
            avg_ns: mean(&nanoseconds) as u64,
            stddev_ns: deviation(&nanoseconds) as u64,
            avg_ts: mean(&samples_ts),
            stddev_ts: deviation(&samples_ts),
            compared: (!theirs.is_empty()).then(|| Comparison::new(&samples_ts, theirs)),
            samples_ns,
            samples_ts,
        }
    }
}

impl Test {
    /// What stands in the table's line.
    fn cells(&self) -> Vec<String> {
        let plan = Plan { prompt: self.n_prompt, generate: self.n_gen, depth: self.n_depth };
        let size = format!("{:.2} MiB", self.model_size as f64 / f64::from(1 << 20));
        let Some(compared) = &self.compared else {
            return vec![
                self.model_type.clone(),
                size,
                format!("{:.2} M", self.model_n_params as f64 / 1e6),
                self.backends.clone(),
                self.n_threads.to_string(),
                plan.name(),
                format!("{:.2} ± {:.2}", self.avg_ts, self.stddev_ts),
            ];
        };
        let spread = |median: f64, samples: &[f64]| {
            let (low, high) = range(samples);
            format!("{median:.2} ({low:.1}-{high:.1})")
        };
        vec![
            self.model_type.clone(),
            size,
            self.n_threads.to_string(),
            plan.name(),
            spread(compared.median_ts, &self.samples_ts),
            spread(compared.peer_median_ts, &compared.peer_samples_ts),
            format!("{:.3} ({:.2}-{:.2})", compared.ratio, compared.ratio_min, compared.ratio_max),
        ]
    }
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
            peer: None,
            output: Form::Md,
        };
        let names: Vec<String> = arguments.plans().into_iter().map(Plan::name).collect();
        assert_eq!(names, ["pp512", "pp512 @ d64", "tg128", "tg128 @ d64"]);
    }
}
