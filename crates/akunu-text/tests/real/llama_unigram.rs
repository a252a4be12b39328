//! Unigram vocabularies in GGUF files against llama.cpp, on 10,000 generated strings each; expectations and keys are those of
//! scripts/oracle/llama_unigram.py.

use std::collections::HashMap;

use akunu_format::gguf::{Gguf, Writer};
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenId};
use base64::Engine as _;
use serde::Deserialize;
use serde_json::Value;

use crate::fuzz::{Generator, STRINGS, assert_same_blocks, block_hashes};

/// What fixtures/llama-unigram.json has about a vocabulary.
#[derive(Deserialize)]
struct Expected {
    keys: serde_json::Map<String, Value>,
    parse: Vec<String>,
    plain: Vec<String>,
    samples: Vec<Vec<TokenId>>,
    #[serde(default)]
    vectors: Vec<Vec<TokenId>>,
}

impl Expected {
    fn of(name: &str) -> Self {
        let mut all: HashMap<String, Self> =
            serde_json::from_str(include_str!("../fixtures/llama-unigram.json")).unwrap();
        all.remove(name).unwrap()
    }

    /// Compares the ids of the generated strings without what is `left_out`.
    fn compare(&self, name: &str, tokenizer: &Tokenizer, left_out: &str) {
        let mut generator = Generator::new();
        let strings: Vec<String> = (0..STRINGS)
            .map(|number| generator.string(number).replace('\0', "").replace(left_out, ""))
            .collect();
        let encode = |text: &str, special| tokenizer.encode(text, special, AddSpecial::Yes);
        let shown = if self.parse.is_empty() { Special::Plain } else { Special::Parse };
        for (text, ids) in strings.iter().zip(&self.samples) {
            assert_eq!(&encode(text, shown), ids, "{name}: {text:?}");
        }
        assert!(!self.plain.is_empty());
        let all = [(Special::Parse, &self.parse), (Special::Plain, &self.plain)];
        for (special, expected) in all.into_iter().filter(|(_, expected)| !expected.is_empty()) {
            let bytes =
                |text: &String| encode(text, special).into_iter().flat_map(u32::to_le_bytes).collect();
            assert_same_blocks(name, &block_hashes(strings.iter().map(bytes)), expected);
        }
    }
}

/// A vocabulary of `tokenizer.json` among the fixtures, as GGUF with the keys that the oracle's file has.
fn written(fixture: &str, keys: &serde_json::Map<String, Value>) -> Tokenizer {
    let path = format!("{}/tests/fixtures/{fixture}.json", env!("CARGO_MANIFEST_DIR"));
    let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let pieces = json["model"]["vocab"].as_array().unwrap();
    let names: Vec<&str> = pieces.iter().map(|piece| piece[0].as_str().unwrap()).collect();
    let scores: Vec<f32> = pieces.iter().map(|piece| piece[1].as_f64().unwrap() as f32).collect();
    let user_defined = keys.get("user_defined").map_or(Vec::new(), |list| list.as_array().unwrap().clone());
    let kind = |name: &&str| match *name {
        "<unk>" => 2,
        "<s>" | "<pad>" | "</s>" | "<mask>" => 3,
        name if user_defined.iter().any(|piece| piece == name) => 4,
        name if name.starts_with("<0x") && name.len() == 6 => 6,
        _ => 1,
    };
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.model", "t5").unwrap();
    writer.metadata("tokenizer.ggml.tokens", &names).unwrap();
    writer.metadata("tokenizer.ggml.scores", &scores).unwrap();
    writer.metadata("tokenizer.ggml.token_type", &names.iter().map(kind).collect::<Vec<i32>>()).unwrap();
    let roles =
        [("bos", "<s>"), ("padding", "<pad>"), ("eos", "</s>"), ("unknown", "<unk>"), ("mask", "<mask>")];
    for (role, name) in roles {
        if let Some(id) = names.iter().position(|other| *other == name) {
            writer.metadata(&format!("tokenizer.ggml.{role}_token_id"), &(id as u32)).unwrap();
        }
    }
    for (key, value) in keys.iter().filter(|(key, _)| *key != "user_defined") {
        let value = value.as_bool().unwrap();
        if key != "charsmap" {
            writer.metadata(&format!("tokenizer.ggml.{key}"), &value).unwrap();
        } else if value {
            let map = json["normalizer"]["precompiled_charsmap"].as_str().unwrap();
            let map = base64::engine::general_purpose::STANDARD.decode(map).unwrap();
            writer.metadata("tokenizer.ggml.precompiled_charsmap", &map).unwrap();
        }
    }
    Tokenizer::from_gguf(&Gguf::from_bytes(writer.header().unwrap()).unwrap()).unwrap()
}

fn nomic() -> Tokenizer {
    let file = akunu_testing::data("vocab/ggml-vocab-nomic-bert-moe.gguf");
    Tokenizer::from_gguf(&Gguf::open(file).unwrap()).unwrap()
}

#[test]
fn nomic_bert_moe_agrees() {
    Expected::of("nomic-bert-moe").compare("nomic-bert-moe", &nomic(), "\0");
}

#[test]
fn nomic_bert_moe_agrees_on_the_texts_other_vocabularies_come_with() {
    let (tokenizer, expected) = (nomic(), Expected::of("nomic-bert-moe").vectors);
    let texts = std::fs::read_to_string(akunu_testing::data("vocab/ggml-vocab-bert-bge.gguf.inp")).unwrap();
    let texts: Vec<&str> = texts.split_terminator("\n__ggml_vocab_test__\n").collect();
    assert_eq!(texts.len(), expected.len());
    for (text, ids) in texts.iter().zip(&expected) {
        assert_eq!(&tokenizer.encode(text, Special::Plain, AddSpecial::Yes), ids, "{text:?}");
    }
}

#[test]
fn all_ways_to_treat_spaces_agree() {
    for name in ["words", "spaces", "plain_spaces", "words_without_prefix"] {
        let expected = Expected::of(name);
        expected.compare(name, &written("unigram", &expected.keys), "\0");
    }
}

#[test]
fn text_without_pieces_is_spelled_in_bytes_where_there_are_tokens_for_them() {
    let expected = Expected::of("bytes");
    expected.compare("bytes", &written("unigram_bytes", &expected.keys), "<0x");
}

#[test]
fn text_comes_back() {
    let tokenizer = nomic();
    let text = "Call me Ishmael. Some years ago - never mind how long precisely";
    let ids = tokenizer.encode(text, Special::Plain, AddSpecial::Yes);
    assert_eq!(tokenizer.decode(&ids), text.as_bytes());
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (ids.first().copied(), ids.last().copied()));
}
