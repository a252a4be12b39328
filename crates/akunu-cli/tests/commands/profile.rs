//! `akunu profile` on tiny models.

use std::path::Path;

use crate::common::run;

fn tiny_model(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/tiny");
    fixtures.join(name).join("model.gguf").into_os_string().into_string().unwrap()
}

#[test]
fn a_profile_accounts_for_the_time_and_the_bytes() {
    let cache = tempfile::tempdir().unwrap();
    for backend in ["reference", "cpu"] {
        let model = tiny_model("llama");
        let arguments = ["profile", &model, "--tokens", "4", "-p", "8", "--backend", backend, "-t", "1"];
        let json = run(cache.path(), &[&arguments[..], &["--json"]].concat()).json();
        assert!(json["read_gb_s"].as_f64().unwrap() > 0.1 && json["threads"] == 1, "{json}");
        let parts = json["parts"].as_array().unwrap();
        assert_eq!(parts.iter().map(|part| &part["tokens"]).collect::<Vec<_>>(), [8, 4]);
        for part in parts {
            let [speed, share] = ["gb_s", "share_of_read"].map(|field| part[field].as_f64().unwrap());
            assert!(
                (speed / json["read_gb_s"].as_f64().unwrap() - share).abs() < 1e-6 && share > 0.0,
                "{part}"
            );
            let ops = part["ops"].as_array().unwrap();
            let share: f64 = ops.iter().map(|op| op["share"].as_f64().unwrap()).sum();
            assert!((share - 1.0).abs() < 1e-6, "{part}");
            let milliseconds: f64 = ops.iter().map(|op| op["ms"].as_f64().unwrap()).sum();
            assert!(milliseconds / 1e3 <= part["seconds"].as_f64().unwrap(), "{part}");
            let down = ops.iter().find(|op| op["op"] == "linear ffn_down").unwrap();
            assert!(down["bytes"].as_u64().unwrap() > 0 && down["gflop_s"].as_f64().unwrap() > 0.0, "{down}");
            let attend = ops.iter().find(|op| op["op"] == "attend").unwrap();
            assert!(attend["operations"].as_u64().unwrap() > 0, "{attend}");
        }
        // The same products for 8 rows at once as for 4 rows one by one, but for the weights, which are read once.
        let products = |part: usize, field: &str| {
            let ops = parts[part]["ops"].as_array().unwrap();
            ops.iter().find(|op| op["op"] == "linear ffn_down").unwrap()[field].as_u64().unwrap()
        };
        assert_eq!(products(0, "operations"), 2 * products(1, "operations"));
        assert_eq!(4 * products(0, "bytes"), products(1, "bytes"));
        let text = run(cache.path(), &arguments).ok();
        assert!(
            text.starts_with("machine: 1 threads read ") && text.contains("linear ffn_gate ffn_up"),
            "{text}"
        );
    }
}

#[test]
fn the_weights_are_read_once_for_several_sequences() {
    let cache = tempfile::tempdir().unwrap();
    let model = tiny_model("llama");
    let down = |sequences: &str| {
        let arguments =
            ["profile", &model, "--tokens", "4", "-p", "8", "--backend", "cpu", "-t", "1", "--json"];
        let json = run(cache.path(), &[&arguments[..], &["--sequences", sequences]].concat()).json();
        let part = &json["parts"][1];
        let ops = part["ops"].as_array().unwrap();
        let down = ops.iter().find(|op| op["op"] == "linear ffn_down").unwrap();
        let number = |field: &str| down[field].as_u64().unwrap();
        (part["tokens"].as_u64().unwrap(), number("operations"), number("bytes"))
    };
    let (tokens, operations, bytes) = down("1");
    assert_eq!(down("3"), (3 * tokens, 3 * operations, bytes));
}

#[test]
fn experts_are_profiled_too() {
    let cache = tempfile::tempdir().unwrap();
    for backend in ["reference", "cpu"] {
        let model = tiny_model("qwen3moe");
        let arguments =
            ["profile", &model, "--tokens", "2", "-p", "0", "--backend", backend, "-t", "1", "--json"];
        let json = run(cache.path(), &arguments).json();
        let ops = json["parts"][0]["ops"].as_array().unwrap();
        let experts = ops.iter().filter(|op| op["op"].as_str().unwrap().starts_with("experts"));
        assert!(experts.map(|op| op["operations"].as_u64().unwrap()).sum::<u64>() > 0, "{json}");
    }
}
