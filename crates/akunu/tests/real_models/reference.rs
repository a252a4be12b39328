//! SmolLM2 against llama.cpp. Run scripts/fetch-test-data first.

use std::path::PathBuf;

use akunu::{Model, Options, Settings};

/// Where llama.cpp's margin is smaller (it keeps the cache in F16), either token is right.
const MARGIN: f64 = 1e-2;

/// What scripts/oracle/greedy_text.py wrote.
#[derive(serde::Deserialize)]
struct Case {
    prompt: String,
    text: String,
    tokens: Vec<u32>,
    margins: Vec<f64>,
}

fn smollm2() -> PathBuf {
    akunu_testing::data("models/smollm2.gguf")
}

#[test]
fn greedy_text_is_llama_cpps() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../fixtures/greedy_smollm2.json")).unwrap();
    let options = Options { backend: "reference".to_owned(), context: Some(256), ..Options::default() };
    let model = Model::load(smollm2(), &options).unwrap();
    // Two of them: the reference backend takes its time.
    for Case { prompt, text, tokens, margins } in cases.into_iter().take(2) {
        let settings = Settings { max_tokens: Some(tokens.len()), ..Settings::default() };
        let mut generation = model.generate(&prompt, &settings).unwrap();
        let ours: String = generation.by_ref().map(|piece| piece.unwrap().text).collect();
        let differs = generation.tokens().iter().zip(&tokens).position(|(ours, theirs)| ours != theirs);
        match differs {
            None => assert_eq!(ours, text),
            Some(at) => assert!(margins[at] < MARGIN, "{prompt:?}: token {at} of {ours:?}, not {text:?}"),
        }
    }
}
