//! Chat templates of the test data, and what `transformers` made of them.

use std::path::{Path, PathBuf};

use akunu_testing::data;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

/// The oracle's file: conversations and what became of them.
pub fn oracle() -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chat_templates.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The source of a template by the name the oracle gives it.
pub fn template(name: &str) -> String {
    let root = data("");
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    if let Some(tokenizer) = name.strip_prefix("tokenizers/") {
        let config = read(root.join("tokenizers").join(tokenizer).join("tokenizer_config.json"));
        let config: Json = serde_json::from_str(&config).unwrap();
        return config["chat_template"].as_str().unwrap().to_owned();
    }
    if let Some(model) = name.strip_prefix("models/") {
        let file = akunu_format::gguf::Gguf::open(root.join(format!("models/{model}.gguf"))).unwrap();
        return file.metadata().require::<&str>("tokenizer.chat_template").unwrap().to_owned();
    }
    read(root.join(format!("templates/{name}.jinja")))
}

/// The start of the SHA-256 of a text, as the oracle writes it.
pub fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
