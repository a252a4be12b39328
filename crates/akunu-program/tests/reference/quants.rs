//! A small llama in every quantised dtype: the reference backend against exact log-probabilities from the decoded
//! weights, at the last positions of a 40-token prompt.

use std::path::Path;

use akunu_format::ModelFile;
use akunu_program::arch::Architecture;
use akunu_program::conformance::Runner;
use akunu_program::reference::Reference;
use akunu_program::{Work, build};
use serde_json::Value;

/// The oracle's values are written with six decimals.
const ERROR: f64 = 1e-4;

#[test]
fn every_quantised_dtype_gives_the_log_probabilities_of_its_weights() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quants");
    let oracle: Value = serde_json::from_slice(&std::fs::read(root.join("top20.json")).unwrap()).unwrap();
    let prompt: Vec<u32> = serde_json::from_value(oracle["prompt"].clone()).unwrap();
    let positions: Vec<usize> = serde_json::from_value(oracle["positions"].clone()).unwrap();
    let dtypes = oracle["dtypes"].as_object().unwrap();
    assert_eq!(dtypes.len(), 11);
    for (dtype, expected) in dtypes {
        let expected: Vec<Vec<(usize, f64)>> = serde_json::from_value(expected["exact"].clone()).unwrap();
        let file = ModelFile::open(root.join(format!("{dtype}.gguf"))).unwrap();
        let (arch, names) = Architecture::of(&file).unwrap();
        let program = build(&arch, &names, &file, 64).unwrap();
        let vocab = program.value(program.logits).width;
        let mut runner = Runner::new(&Reference, &program, &file, 1, 64).unwrap();
        runner.feed(&[(0, 0, &prompt)], Work::Forward).unwrap();
        assert_eq!(positions.len(), expected.len());
        for (position, top) in positions.iter().zip(&expected) {
            let logits = &runner.out.logits[position * vocab..][..vocab];
            let total: f64 = logits.iter().map(|z| f64::from(*z).exp()).sum();
            for &(token, expected) in top {
                let actual = f64::from(logits[token]) - total.ln();
                let error = (actual - expected).abs();
                assert!(
                    error < ERROR,
                    "{dtype}: position {position}, token {token}: {actual} for {expected}"
                );
            }
        }
    }
}
