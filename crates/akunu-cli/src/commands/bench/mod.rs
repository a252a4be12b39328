//! `akunu bench`: llama-bench's measurements in llama-bench's table.

mod peer;
mod plan;
mod prompts;
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
use self::prompts::Answered;
use self::sample::{deviation, mean, range};
use self::table::{Column, left, right};
use crate::engine::{self, DEFAULT_MODEL, backend_names, positive};
use crate::model::locate;
use crate::output::{self, Out};
use crate::progress::Spinner;
use crate::stop;

const EXAMPLES: &str = "\
Examples:
  akunu bench                                pp512 and tg128 of smollm2, five times each
  akunu bench a.gguf b.gguf -p 128,512 -n 0  prompts alone, of two lengths
  akunu bench model.gguf -d 2048 -o json     behind 2048 tokens of context
  akunu bench model.gguf --peer llama-bench  beside llama.cpp, run by run in turn
  akunu bench model.gguf -p 0 --sequences 1,8  several generated together, tokens of all counted
  akunu bench model.gguf --prompts -n 64     real prompts: how long a user waits";

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

    /// Sequences to generate together, a token of each in every run; the tokens of all are counted
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1",
        value_parser = positive(),
        conflicts_with = "prompts"
    )]
    sequences: Vec<u32>,

    /// Times each test is run, after a warm-up that does not count
    #[arg(short = 'r', value_name = "N", default_value_t = 5, value_parser = positive())]
    repetitions: u32,

    /// What computes: `akunu devices` lists what there is
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_names())]
    backend: String,

    /// CPU threads [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = positive())]
    threads: Option<u32>,

    /// A llama-bench binary to run beside, one run of it after each of ours; with --sequences, the llama-batched-bench in its folder
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,

    /// Answer real prompts, or those in a file (one on each line), with at most -n tokens each
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with_all = ["peer", "prompt", "depth"]
    )]
    prompts: Option<Option<PathBuf>>,

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
    /// Sequences that were generated together.
    n_sequences: usize,
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
    let models = models.into_iter().map(locate).collect::<akunu::Result<Vec<PathBuf>>>()?;
    if let Some(file) = &arguments.prompts {
        let prompts = prompts::read(file.as_deref())?;
        return table(arguments.output, &prompts::COLUMNS, out, Answered::cells, |done| {
            models.iter().try_for_each(|path| arguments.answer(path, &prompts, done))
        });
    }
    let columns = if arguments.peer.is_some() { COMPARED } else { COLUMNS };
    table(arguments.output, &columns, out, Test::cells, |done| {
        models.iter().try_for_each(|path| arguments.measure(path, done))
    })
}

/// Takes results as they come: into the table at once, into the other forms at the end.
fn table<T: Serialize>(
    form: Form,
    columns: &[Column],
    out: &mut Out,
    cells: impl Fn(&T) -> Vec<String>,
    measure: impl FnOnce(&mut dyn FnMut(T) -> Result<()>) -> Result<()>,
) -> Result<()> {
    if form == Form::Md {
        table::header(out, columns)?;
    }
    let mut results = Vec::new();
    measure(&mut |result| {
        if form == Form::Md {
            table::row(out, columns, cells(&result))?;
        }
        results.push(result);
        Ok(())
    })?;
    match form {
        Form::Md => Ok(()),
        Form::Json => output::json(out, &results),
        Form::Csv => table::csv(out, &results),
    }
}

impl Arguments {
    fn plans(&self) -> Vec<Plan> {
        let prompts = self.prompt.iter().map(|&prompt| (prompt, 0, 1));
        let sequences = |&generate| self.sequences.iter().map(move |&n| (0, generate, n as usize));
        let tests = prompts.chain(self.generate.iter().flat_map(sequences));
        let tests = tests.filter(|&(prompt, generate, _)| prompt + generate > 0);
        let behind = |(prompt, generate, sequences)| {
            self.depth.iter().map(move |&depth| Plan { prompt, generate, depth, sequences })
        };
        tests.flat_map(behind).collect()
    }

    /// The model, and what the table calls it.
    fn load(&self, path: &Path, context: Option<usize>) -> Result<(Model, Summary)> {
        let file = ModelFile::open(path).map_err(akunu::Error::from)?;
        let summary = Summary::of(&file, None)?;
        let options = Options {
            backend: self.backend.clone(),
            threads: Some(self.threads()),
            context,
            sequences: self.most_sequences(),
            outputs: self.most_sequences().max(Options::default().outputs),
            ..Options::default()
        };
        Ok((engine::load(&file, &options)?, summary))
    }

    fn answer(
        &self,
        path: &Path,
        prompts: &[(String, String)],
        done: &mut dyn FnMut(Answered) -> Result<()>,
    ) -> Result<()> {
        let (model, summary) = self.load(path, None)?;
        let spinner = Spinner::new("warming up");
        let model_type = model_type(&model, &summary);
        let most_tokens = self.generate.iter().copied().max().unwrap_or(1).max(1);
        for (name, prompt) in prompts {
            let mut samples = Vec::new();
            for repetition in 0..=self.repetitions {
                spinner.set(&format!("{name} {repetition}/{}", self.repetitions));
                let sample = prompts::answer(&model, prompt, most_tokens)?;
                // The first one warms caches up.
                if repetition > 0 {
                    samples.push(sample);
                }
            }
            done(Answered::new(&model, &model_type, self.threads(), name, &samples))?;
        }
        spinner.clear();
        Ok(())
    }

    fn measure(&self, path: &Path, done: &mut dyn FnMut(Test) -> Result<()>) -> Result<()> {
        let plans = self.plans();
        // A run has room for as many rows as there are positions.
        let context = plans.iter().map(|plan| plan.context()).max().unwrap_or(1).max(self.most_sequences());
        let (model, summary) = self.load(path, Some(context))?;
        let spinner = Spinner::new("warming up");
        let peer = self.peer.clone().map(|binary| Peer { binary });
        let sequences = (0..self.most_sequences()).map(|_| model.sequence());
        let mut sequences = sequences.collect::<akunu::Result<Vec<_>>>()?;
        for plan in plans {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for repetition in 1..=self.repetitions {
                spinner.set(&format!("{} {repetition}/{}", plan.name(), self.repetitions));
                // The peer warms up before each of its runs, and what it left in the caches is not ours.
                if repetition == 1 || peer.is_some() {
                    plan.warm_up().time(&mut sequences)?;
                }
                ours.push(plan.time(&mut sequences)?);
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

    fn most_sequences(&self) -> usize {
        self.sequences.iter().copied().max().map_or(1, |n| n as usize)
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
        Test {
            backends: model.backend().to_owned(),
            model_filename: model.path().display().to_string(),
            model_type: model_type(model, summary),
            model_size: summary.dtypes.iter().map(|share| share.bytes).sum(),
            model_n_params: summary.parameters,
            n_batch: model.batch(),
            n_threads: self.threads(),
            n_prompt: plan.prompt,
            n_gen: plan.generate,
            n_depth: plan.depth,
            n_sequences: plan.sequences,
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

/// Family, size and the dtype of most weights.
fn model_type(model: &Model, summary: &Summary) -> String {
    let dtype = summary.dtypes.iter().max_by_key(|share| share.bytes).map(|share| share.dtype.as_str());
    let parameters = crate::units::count(summary.parameters).replace(' ', "");
    format!("{} {parameters} {}", model.architecture().family, dtype.unwrap_or_default())
}

impl Test {
    /// What stands in the table's line.
    fn cells(&self) -> Vec<String> {
        let plan = Plan {
            prompt: self.n_prompt,
            generate: self.n_gen,
            depth: self.n_depth,
            sequences: self.n_sequences,
        };
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
            sequences: vec![1, 8],
            repetitions: 1,
            backend: "auto".to_owned(),
            threads: None,
            peer: None,
            prompts: None,
            output: Form::Md,
        };
        let names: Vec<String> = arguments.plans().into_iter().map(Plan::name).collect();
        assert_eq!(names, ["pp512", "pp512 @ d64", "tg128", "tg128 @ d64", "tg128 x8", "tg128 x8 @ d64"]);
    }
}
