//! Texts held to a form from the command line, on a tiny model.

use std::path::{Path, PathBuf};

use crate::common::{self, run};

fn model() -> String {
    let fixture = "../akunu-program/tests/fixtures/tiny/llama/model.gguf";
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(fixture).display().to_string()
}

fn complete(folder: &Path, options: &[&str]) -> common::Run {
    let model = model();
    let arguments = ["complete", &model, "--backend", "reference", "-p", "a", "--temp", "1", "--seed", "3"];
    run(folder, &[&arguments[..], options].concat())
}

#[test]
fn every_kind_of_constraint_holds() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let schema = file(
        "s.json",
        r#"{"type": "object", "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 9}}, "required": ["n"], "additionalProperties": false}"#,
    );
    let text = complete(folder.path(), &["--json-schema", &schema]).ok();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!((5..=9).contains(&value["n"].as_i64().unwrap()), "{text}");

    let text = complete(folder.path(), &["--regex", "-[0-9]{3}"]).ok();
    assert!(text.len() == 4 && text.starts_with('-') && text[1..].parse::<u32>().is_ok(), "{text}");

    for (name, grammar) in
        [("g.gbnf", "root ::= \"<\" [xy]{4} \">\""), ("g.lark", "start: \"<\" /[xy]{4}/ \">\"")]
    {
        let text = complete(folder.path(), &["--grammar", &file(name, grammar)]).ok();
        assert!(text.len() == 6 && text[1..5].bytes().all(|c| b"xy".contains(&c)), "{text}");
    }

    let answer = complete(folder.path(), &["--json-object", "--json", "-n", "1"]).json();
    assert_eq!((answer["text"].as_str(), answer["finish_reason"].as_str()), (Some("{"), Some("length")));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let failed = |options: &[&str], code| complete(folder.path(), options).failed(code);
    let schema = file("s.json", r#"{"items": {"not": {}}}"#);
    assert!(
        failed(&["--json-schema", &schema], 2)
            .contains("s.json: JSON Schema, #/items/not: the keyword is not supported")
    );
    let grammar = file("g.gbnf", "root ::= \"a\"\nb ::= c");
    assert!(failed(&["--grammar", &grammar], 2).contains("line 2, column 7: there is no rule \"c\""));
    assert!(failed(&["--regex", "("], 2).contains("regular expression"));
    assert!(failed(&["--json-schema", "nowhere.json"], 1).contains("nowhere.json"));
    assert!(failed(&["--json-object", "--regex", "a"], 2).contains("cannot be used with"));
}

#[test]
fn a_text_that_was_cut_off_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let cut = complete(folder.path(), &["--regex", "[0-9]{9}", "-n", "3"]);
    assert!(cut.stderr.contains("cut off after 3 tokens: the text is not complete"), "{}", cut.stderr);
    let whole = complete(folder.path(), &["--regex", "[0-9]{3}"]);
    assert!(!whole.stderr.contains("cut off"), "{}", whole.stderr);
    // A text that may be anything is never incomplete.
    assert!(!complete(folder.path(), &["-n", "3"]).stderr.contains("cut off"));
}

#[test]
fn a_file_that_is_no_text_is_refused_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("form");
    std::fs::write(&path, b"{\"type\": \"\xff\"}").unwrap();
    for option in ["--json-schema", "--grammar"] {
        let error = complete(folder.path(), &[option, path.to_str().unwrap()]).failed(1);
        assert!(error.contains("form: not text: the bytes from 10 on are not UTF-8"), "{error}");
    }
}
