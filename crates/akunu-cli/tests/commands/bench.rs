//! `akunu bench` on a tiny model.

use std::path::{Path, PathBuf};

use crate::common::run;

fn tiny_model() -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures");
    fixtures.join("tiny/llama/model.gguf").into_os_string().into_string().unwrap()
}

/// A llama-bench that takes 10 ms for everything, or ends with `code`.
#[cfg(unix)]
fn peer(folder: &Path, code: i32) -> PathBuf {
    let script = format!(
        r#"#!/bin/sh
echo "$@" >> "$0.log"
[ {code} = 0 ] || {{ echo 'no such instruction' >&2; exit {code}; }}
while [ $# -gt 0 ]; do
    case "$1" in -p) p=$2;; -n) n=$2;; -d) d=$2;; -t) t=$2;; esac
    shift
done
echo '[{{"build_commit": "abc", "build_number": 7, "backends": "CPU",' \
    "\"n_threads\": $t, \"n_prompt\": $p, \"n_gen\": $n, \"n_depth\": $d, \"samples_ns\": [10000000]}}]"
"#
    );
    program(folder, "llama-bench", &script)
}

/// A llama-batched-bench that takes 10 ms for everything.
#[cfg(unix)]
fn batched_peer(folder: &Path) {
    let script = r#"#!/bin/sh
echo "$@" >> "$0.log"
while [ $# -gt 0 ]; do
    case "$1" in -npp) p=$2;; -ntg) n=$2;; -npl) s=$2;; -t) t=$2;; esac
    shift
done
echo "{\"n_threads\": $t, \"pp\": $p, \"tg\": $n, \"pl\": $s, \"t_pp\": 1.0, \"t_tg\": 0.01}"
"#;
    program(folder, "llama-batched-bench", script);
}

#[cfg(unix)]
fn program(folder: &Path, name: &str, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;

    let path = folder.join(name);
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn the_table_and_the_fields_are_llama_benchs() {
    let cache = tempfile::tempdir().unwrap();
    let arguments = ["bench", &tiny_model(), "-p", "8", "-n", "4", "-d", "0,2", "-r", "2", "-t", "1"];
    let table = run(cache.path(), &arguments).ok();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2 + 4, "{table}");
    assert!(lines[0].starts_with("| model ") && lines[1].starts_with("| ----"), "{table}");
    assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{table}");
    for (line, test) in lines[2..].iter().zip(["pp8 ", "pp8 @ d2", "tg4 ", "tg4 @ d2"]) {
        assert!(line.contains(test), "{line}");
    }
    let json = run(cache.path(), &[&arguments[..], &["-o", "json"]].concat()).json();
    let first = &json[0];
    assert_eq!((&first["n_prompt"], &first["n_gen"], &first["n_depth"]), (&8.into(), &0.into(), &0.into()));
    assert_eq!(first["samples_ns"].as_array().unwrap().len(), 2);
    assert!(first["avg_ts"].as_f64().unwrap() > 0.0 && first.get("ratio").is_none());
    let csv = run(cache.path(), &[&arguments[..], &["-o", "csv"]].concat()).ok();
    assert_eq!(csv.lines().count(), 1 + 4);
}

#[test]
fn tokens_of_sequences_that_run_together_are_all_counted() {
    let cache = tempfile::tempdir().unwrap();
    let model = tiny_model();
    let arguments =
        ["bench", &model, "-p", "0", "-n", "4", "-d", "2", "--sequences", "1,3", "-r", "2", "-t", "1"];
    let json = run(cache.path(), &[&arguments[..], &["-o", "json"]].concat()).json();
    for (test, sequences) in json.as_array().unwrap().iter().zip([1, 3]) {
        assert_eq!(test["n_sequences"], sequences);
        let (nanoseconds, rate) = (&test["samples_ns"][0], test["samples_ts"][0].as_f64().unwrap());
        let tokens = rate * nanoseconds.as_f64().unwrap() / 1e9;
        assert!((tokens - 4.0 * f64::from(sequences)).abs() < 1e-3, "{test}");
    }
    let table = run(cache.path(), &arguments).ok();
    assert!(table.lines().last().unwrap().contains("tg4 x3 @ d2"), "{table}");
    run(cache.path(), &["bench", &model, "--sequences", "0"]).failed(2);
}

#[cfg(unix)]
#[test]
fn a_peer_runs_the_same_tests_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let binary = peer(folder.path(), 0);
    let (model, binary) = (tiny_model(), binary.to_str().unwrap());
    let arguments = ["bench", &model, "-p", "8", "-n", "4", "-r", "3", "-t", "1", "--peer", binary];
    let json = run(folder.path(), &[&arguments[..], &["-o", "json"]].concat()).json();
    for (test, tokens) in json.as_array().unwrap().iter().zip([8.0, 4.0]) {
        let number = |field: &str| test[field].as_f64().unwrap();
        assert!((number("peer_median_ts") * 0.01 / tokens - 1.0).abs() < 1e-12, "{test}");
        // Reading a number back from JSON may move its last bit.
        let expected = number("median_ts") / number("peer_median_ts");
        assert!((number("ratio") / expected - 1.0).abs() < 1e-12, "{test}");
        assert!(number("ratio_min") <= number("ratio") && number("ratio") <= number("ratio_max"));
        assert_eq!(test["peer_samples_ts"].as_array().unwrap().len(), 3);
        assert_eq!(test["peer_build"], "abc (7)");
    }
    let log = std::fs::read_to_string(format!("{binary}.log")).unwrap();
    let calls: Vec<&str> = log.lines().collect();
    assert_eq!(calls.len(), 6, "one run at a time");
    assert_eq!(calls[0], format!("-m {model} -o json -t 1 -p 8 -n 0 -d 0 -r 1"));
    assert_eq!(calls[5], format!("-m {model} -o json -t 1 -p 0 -n 4 -d 0 -r 1"));
    let table = run(folder.path(), &arguments).ok();
    assert!(table.lines().next().unwrap().contains("ratio"), "{table}");
}

#[cfg(unix)]
#[test]
fn sequences_that_run_together_have_a_peer_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let binary = peer(folder.path(), 0);
    let (model, binary) = (tiny_model(), binary.to_str().unwrap());
    let arguments = ["bench", &model, "-p", "0", "-n", "4", "-d", "0,2", "--sequences", "1,3", "-r", "1"];
    let arguments = [&arguments[..], &["-t", "1", "-o", "json", "--peer", binary]].concat();
    let error = run(folder.path(), &arguments).failed(1);
    assert!(error.contains("llama-batched-bench could not be started"), "{error}");
    batched_peer(folder.path());
    let json = run(folder.path(), &arguments).json();
    for (test, tokens) in json.as_array().unwrap().iter().zip([4.0, 4.0, 12.0, 12.0]) {
        let rate = test["peer_median_ts"].as_f64().unwrap();
        assert!((rate * 0.01 / tokens - 1.0).abs() < 1e-12, "{test}");
    }
    let log = std::fs::read_to_string(folder.path().join("llama-batched-bench.log")).unwrap();
    let call = |prompt, context| {
        format!("-m {model} --output-format jsonl -t 1 -tb 1 -npp {prompt} -ntg 4 -npl 3 -c {context}")
    };
    assert_eq!(log.lines().collect::<Vec<_>>(), [call(1, 15), call(2, 21)]);
}

#[cfg(unix)]
#[test]
fn a_peer_that_fails_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let binary = peer(folder.path(), 4);
    let arguments = ["bench", &tiny_model(), "-p", "8", "-n", "0", "-o", "json", "--peer"];
    let failed =
        |binary: &Path| run(folder.path(), &[&arguments[..], &[binary.to_str().unwrap()]].concat()).failed(1);
    let error = failed(&binary);
    assert!(error.contains("llama-bench failed on pp8") && error.contains("no such instruction"), "{error}");
    let error = failed(Path::new("/nowhere/llama-bench"));
    assert!(error.contains("/nowhere/llama-bench could not be started"), "{error}");
    let error = failed(Path::new("/bin/echo"));
    assert!(error.contains("/bin/echo did not answer as llama-bench does"), "{error}");
}

#[test]
fn prompts_are_answered_end_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompts.txt");
    std::fs::write(&file, "hello\n\nand again\n").unwrap();
    let prompts = format!("--prompts={}", file.display());
    let arguments = ["bench", &tiny_model(), &prompts, "-n", "6", "-r", "2", "-t", "1"];
    let json = run(folder.path(), &[&arguments[..], &["-o", "json"]].concat()).json();
    let answers = json.as_array().unwrap();
    assert_eq!(answers.len(), 2);
    for answer in answers {
        let number = |field: &str| answer[field].as_f64().unwrap();
        assert!(number("n_prompt") > 0.0 && number("n_gen") <= 6.0, "{answer}");
        assert!(number("first_token_ms") <= number("total_ms") && number("prefill_ts") > 0.0, "{answer}");
        assert_eq!(answer["samples_ms"].as_array().unwrap().len(), 2);
    }
    assert_eq!(run(folder.path(), &arguments).ok().lines().count(), 2 + 2);
    run(folder.path(), &["bench", &tiny_model(), "--prompts=/nowhere"]).failed(1);
    run(folder.path(), &["bench", &tiny_model(), "--prompts", "--peer", "x"]).failed(2);
}
