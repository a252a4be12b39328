//! A llama-bench binary that measures the same, for comparison; for several sequences together the llama-batched-bench beside it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use akunu::Error;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::sample::{deviation, mean, median, range};

/// A llama-bench binary.
pub struct Peer {
    pub binary: PathBuf,
}

/// What llama-bench says of one test; of its many fields, those needed here.
#[derive(Deserialize)]
struct Report {
    build_commit: String,
    build_number: u64,
    backends: String,
    n_threads: usize,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    samples_ns: Vec<u64>,
}

/// What llama-batched-bench says of one test.
#[derive(Deserialize)]
struct BatchedReport {
    n_threads: usize,
    #[serde(rename = "pp")]
    prompt: usize,
    #[serde(rename = "tg")]
    generate: usize,
    #[serde(rename = "pl")]
    sequences: usize,
    /// For generating, in seconds.
    #[serde(rename = "t_tg")]
    seconds: f64,
}

/// One run of the peer.
pub struct Run {
    /// The build: its number and commit, where it tells them.
    pub build: String,
    pub backends: String,
    /// Tokens per second.
    pub rate: f64,
}

/// The peer's figures beside ours.
#[derive(Serialize)]
pub struct Comparison {
    pub median_ts: f64,
    pub peer_build: String,
    pub peer_backends: String,
    pub peer_avg_ts: f64,
    pub peer_stddev_ts: f64,
    pub peer_median_ts: f64,
    /// Our median by the peer's.
    pub ratio: f64,
    /// The smallest and the largest ratio of neighbouring runs.
    pub ratio_min: f64,
    pub ratio_max: f64,
    pub peer_samples_ts: Vec<f64>,
}

impl Peer {
    /// Runs a test once, after the warm-up that the binary does by itself.
    pub fn run(&self, model: &Path, threads: usize, plan: Plan) -> Result<Run> {
        if plan.sequences > 1 {
            self.together(model, threads, plan)
        } else {
            self.alone(model, threads, plan)
        }
    }

    fn alone(&self, model: &Path, threads: usize, plan: Plan) -> Result<Run> {
        let name = self.binary.display();
        let numbers =
            [("-t", threads), ("-p", plan.prompt), ("-n", plan.generate), ("-d", plan.depth), ("-r", 1)];
        let output = said(&self.binary, model, &["-o", "json"], &numbers, plan)?;
        let reports: Vec<Report> = serde_json::from_slice(&output)
            .with_context(|| format!("{name} did not answer as llama-bench does"))?;
        let [report] = &reports[..] else {
            bail!("{name} gave {} results for one test", reports.len());
        };
        let did = (report.n_threads, report.n_prompt, report.n_gen, report.n_depth);
        let asked = (threads, plan.prompt, plan.generate, plan.depth);
        ensure!(did == asked, "{name} ran {did:?} (threads, prompt, tokens, depth) when asked for {asked:?}");
        let [nanoseconds] = report.samples_ns[..] else {
            bail!("{name} gave {:?} as the time of one run", report.samples_ns);
        };
        ensure!(nanoseconds > 0, "{name} took no time for {}", plan.name());
        Ok(Run {
            build: format!("{} ({})", report.build_commit, report.build_number),
            backends: report.backends.clone(),
            rate: plan.tokens() as f64 * 1e9 / nanoseconds as f64,
        })
    }

    /// llama-batched-bench cannot do without a prompt: of one token where nothing comes before.
    fn together(&self, model: &Path, threads: usize, plan: Plan) -> Result<Run> {
        let binary = self.binary.with_file_name("llama-batched-bench");
        let (name, prompt) = (binary.display(), plan.depth.max(1));
        let numbers = [
            ("-t", threads),
            ("-tb", threads),
            ("-npp", prompt),
            ("-ntg", plan.generate),
            ("-npl", plan.sequences),
            ("-c", plan.sequences * (plan.context() + 1)),
        ];
        let output = said(&binary, model, &["--output-format", "jsonl"], &numbers, plan)?;
        let report: BatchedReport = serde_json::from_slice(&output)
            .with_context(|| format!("{name} did not answer as llama-batched-bench does"))?;
        let did = (report.n_threads, report.prompt, report.generate, report.sequences);
        let asked = (threads, prompt, plan.generate, plan.sequences);
        ensure!(
            did == asked,
            "{name} ran {did:?} (threads, prompt, tokens, sequences) when asked for {asked:?}"
        );
        ensure!(report.seconds > 0.0, "{name} took no time for {}", plan.name());
        Ok(Run { build: String::new(), backends: String::new(), rate: plan.tokens() as f64 / report.seconds })
    }
}

/// What a binary says of a test, on its standard output.
fn said(
    binary: &Path,
    model: &Path,
    form: &[&str],
    numbers: &[(&str, usize)],
    plan: Plan,
) -> Result<Vec<u8>> {
    let name = binary.display();
    let mut command = Command::new(binary);
    command.arg("-m").arg(model).args(form).stdin(Stdio::null());
    for (flag, value) in numbers {
        command.arg(flag).arg(value.to_string());
    }
    let output = command.output().with_context(|| format!("{name} could not be started"))?;
    if crate::stop::asked().is_break() {
        return Err(Error::Stopped.into());
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("and said nothing");
        bail!("{name} failed on {} ({}): {last}", plan.name(), output.status);
    }
    Ok(output.stdout)
}

impl Comparison {
    /// Of as many runs of ours, in tokens per second, as of the peer's.
    pub fn new(ours: &[f64], theirs: &[Run]) -> Comparison {
        let rates: Vec<f64> = theirs.iter().map(|run| run.rate).collect();
        let ratios: Vec<f64> = ours.iter().zip(&rates).map(|(ours, theirs)| ours / theirs).collect();
        let (ratio_min, ratio_max) = range(&ratios);
        let first = theirs.first();
        Comparison {
            median_ts: median(ours),
            peer_build: first.map(|run| run.build.clone()).unwrap_or_default(),
            peer_backends: first.map(|run| run.backends.clone()).unwrap_or_default(),
            peer_avg_ts: mean(&rates),
            peer_stddev_ts: deviation(&rates),
            peer_median_ts: median(&rates),
            ratio: median(ours) / median(&rates),
            ratio_min,
            ratio_max,
            peer_samples_ts: rates,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_medians() {
        let theirs =
            [50.0, 100.0, 110.0].map(|rate| Run { build: String::new(), backends: "CPU".to_owned(), rate });
        let compared = Comparison::new(&[90.0, 120.0, 88.0], &theirs);
        assert_eq!((compared.median_ts, compared.peer_median_ts, compared.ratio), (90.0, 100.0, 0.9));
        assert_eq!((compared.ratio_min, compared.ratio_max), (0.8, 1.8));
    }
}
