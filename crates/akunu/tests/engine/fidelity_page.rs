//! docs/fidelity.md speaks of every model and dtype there is an oracle for.

use std::path::{Path, PathBuf};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn every_oracle_has_a_line_on_the_page() {
    let page = std::fs::read_to_string(root("docs/fidelity.md")).unwrap();
    let lines = |name: &str| page.lines().filter(|line| line.starts_with(&format!("| {name} |"))).count();
    let fixtures = root("crates/akunu-program/tests/fixtures");
    let mut checked = 0;
    let folders = ["tiny", "mlx"].map(|kind| std::fs::read_dir(fixtures.join(kind)).unwrap());
    for entry in folders.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(lines(name), 1, "{name}: run scripts/fidelity");
            checked += 1;
        }
    }
    for (fixture, key) in [
        ("crates/akunu-program/tests/fixtures/quants/top20.json", Some("dtypes")),
        ("crates/akunu/tests/fixtures/perplexity_smollm2.json", None),
    ] {
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(root(fixture)).unwrap()).unwrap();
        for name in key.map_or(&json, |key| &json[key]).as_object().unwrap().keys() {
            assert!(lines(name) >= 1, "{name}: run scripts/fidelity");
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}
