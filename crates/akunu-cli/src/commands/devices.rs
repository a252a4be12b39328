//! `akunu devices`

use std::collections::BTreeMap;
use std::io::Write;

use akunu::{Outcome, SelfTest};
use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use serde::Serialize;

use crate::output::{self, FAINT, HEADING, Out};
use crate::progress::Spinner;
use crate::stop;

const EXAMPLES: &str = "\
Examples:
  akunu devices
  akunu devices --json | jq -r '.[] | select(.default) | .backend'
  akunu devices --self-test    check every operation on this machine
  akunu devices --self-test --backend cpu";

/// List what can run models on this machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Check every operation of every backend against plain arithmetic
    #[arg(long)]
    self_test: bool,

    /// List or check this backend alone
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(akunu::BACKENDS))]
    backend: Option<String>,

    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Device {
    backend: &'static str,
    /// Whether `--backend auto` means this one.
    default: bool,
    about: String,
}

/// Lists the backends, or checks them.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    if arguments.self_test {
        return self_test(arguments, out);
    }
    let wanted = |name: &str| arguments.backend.as_deref().is_none_or(|only| only == name);
    let devices = akunu::BACKENDS
        .iter()
        .enumerate()
        .filter(|(_, name)| wanted(name))
        .map(|(i, &backend)| {
            Ok(Device { backend, default: i == 0, about: akunu::describe_backend(backend)? })
        })
        .collect::<Result<Vec<Device>>>()?;
    if arguments.json {
        return output::json(out, &devices);
    }
    for Device { backend, default, about } in devices {
        let note = if default { "  default" } else { "" };
        writeln!(out, "{backend:12}{about}{FAINT}{note}{FAINT:#}")?;
    }
    Ok(())
}

/// One case of one backend.
#[derive(Serialize)]
struct Case {
    backend: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    isa: Option<&'static str>,
    case: String,
    right: bool,
    /// The largest error as a share of what is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    worst: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

fn self_test(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let spinner = Spinner::new("checking every operation");
    let mut tests = Vec::new();
    akunu::self_test(arguments.backend.as_deref(), |test| {
        spinner.set(&format!("{} is done", name(&test)));
        tests.push(test);
        stop::asked().is_continue()
    })?;
    spinner.clear();
    if arguments.json {
        output::json(out, &tests.iter().flat_map(cases).collect::<Vec<Case>>())?;
    } else {
        for test in &tests {
            table(out, test)?;
        }
    }
    out.flush()?;
    let wrong: Vec<String> = tests.iter().filter(|test| !test.is_right()).map(name).collect();
    if !wrong.is_empty() {
        bail!("operations are wrong on this machine: {}", wrong.join(", "));
    }
    Ok(())
}

fn name(test: &SelfTest) -> String {
    test.variant.map_or_else(|| test.backend.to_owned(), |variant| format!("{} {variant}", test.backend))
}

fn cases(test: &SelfTest) -> impl Iterator<Item = Case> {
    test.outcomes.iter().map(|outcome| Case {
        backend: test.backend,
        isa: test.variant,
        case: outcome.case.clone(),
        right: outcome.is_right(),
        worst: outcome.worst.clone().ok(),
        problem: outcome.worst.clone().err(),
    })
}

/// Cases that differ in a size alone share a line; those that are wrong have one of their own.
fn table(out: &mut Out, test: &SelfTest) -> Result<()> {
    let mut kinds: BTreeMap<String, Vec<&Outcome>> = BTreeMap::new();
    for outcome in &test.outcomes {
        kinds.entry(kind(&outcome.case)).or_default().push(outcome);
    }
    let right = test.outcomes.iter().filter(|outcome| outcome.is_right()).count();
    writeln!(out, "{HEADING}{}{HEADING:#}: {right} of {} right", name(test), test.outcomes.len())?;
    writeln!(out, "  {FAINT}{:<40} {:>7} {:>24}{FAINT:#}", "operation", "cases", "largest error / allowed")?;
    for (kind, outcomes) in kinds {
        let worst = outcomes
            .iter()
            .filter_map(|outcome| outcome.worst.as_ref().ok())
            .fold(0.0, |a: f64, &b| a.max(b));
        writeln!(out, "  {kind:<40} {:>7} {worst:>24.3}", outcomes.len())?;
        for outcome in outcomes.iter().filter(|outcome| !outcome.is_right()) {
            writeln!(out, "    wrong: {outcome}")?;
        }
    }
    Ok(())
}

/// The case up to its sizes.
fn kind(case: &str) -> String {
    let words = case.split(", ").take_while(|part| !part.starts_with(|c: char| c.is_ascii_digit()));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_told_apart_by_operation_and_dtype() {
        assert_eq!(kind("Linear, Q4_K, 512 columns"), "Linear, Q4_K");
        assert_eq!(kind("Embed, F16"), "Embed, F16");
    }
}
