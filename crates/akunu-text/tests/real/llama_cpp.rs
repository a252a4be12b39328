//! Vocabularies in GGUF files against llama.cpp, on the texts of scripts/oracle/llama_ids.py.
//!
//! They differ where llama.cpp departs from what the models were trained with: it does not compose characters (Qwen) and
//! decomposes only some (BERT), it takes `</s>` for a special token in vocabularies where it is none, and it begins a text
//! that names the beginning-of-sequence token with two of them.

use std::collections::HashMap;

use akunu_format::gguf::Gguf;
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenId};
use serde::Deserialize;

/// The contents of fixtures/llama-ids.json.
#[derive(Deserialize)]
struct Expected {
    texts: Vec<String>,
    vocabularies: HashMap<String, Ids>,
}

/// The ids of each text.
#[derive(Deserialize)]
struct Ids {
    parse: Vec<Vec<TokenId>>,
    plain: Vec<Vec<TokenId>>,
}

/// Checks that a vocabulary gives llama.cpp's ids for all texts but those that `differs` tells of.
fn agrees(name: &str, differs: impl Fn(&str, Special) -> bool) {
    let expected: Expected = serde_json::from_str(include_str!("../fixtures/llama-ids.json")).unwrap();
    let vocabulary = format!("vocab/ggml-vocab-{name}.gguf");
    let is_model = matches!(name, "smollm2" | "gemma3-270m" | "qwen2.5-coder-0.5b");
    let file = akunu_testing::data(&if is_model { format!("models/{name}.gguf") } else { vocabulary });
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(file).unwrap()).unwrap();
    let ids = &expected.vocabularies[name];
    let mut mistakes = Vec::new();
    for (special, lists) in [(Special::Parse, &ids.parse), (Special::Plain, &ids.plain)] {
        for (text, ids) in expected.texts.iter().zip(lists) {
            let found = tokenizer.encode(text, special, AddSpecial::Yes);
            let twice =
                tokenizer.adds_bos() && ids.len() > 1 && ids[0] == ids[1] && Some(ids[0]) == tokenizer.bos();
            let ids = &ids[usize::from(twice)..];
            if (found == ids) == differs(text, special) {
                mistakes.push(format!("{special:?} {text:?}: {found:?}, llama.cpp {ids:?}"));
            }
        }
    }
    assert!(mistakes.is_empty(), "{name}:\n{}", mistakes.join("\n"));
}

fn never(_: &str, _: Special) -> bool {
    false
}

fn names_a_tag_that_is_no_token(text: &str, special: Special) -> bool {
    special == Special::Parse && text.ends_with("</s>")
}

/// Whether composing the text's characters changes it.
fn is_decomposed(text: &str) -> bool {
    text.contains(|c| matches!(c, '\u{300}'..='\u{36f}' | '\u{958}' | '\u{1100}'..='\u{11ff}'))
}

fn differs_for_qwen(text: &str, special: Special) -> bool {
    is_decomposed(text) || names_a_tag_that_is_no_token(text, special)
}

/// Devanagari and Hangul, of which BERT keeps the parts.
fn has_parts(text: &str, _: Special) -> bool {
    text.starts_with("नम") || text.starts_with("안녕")
}

fn names_a_tag_in_plain_text(text: &str, special: Special) -> bool {
    special == Special::Plain && text.ends_with("</s>")
}

macro_rules! vocabularies {
    ($($test:ident $name:literal except $differs:ident)*) => { $(
        #[test]
        fn $test() {
            agrees($name, $differs);
        }
    )* };
}

vocabularies! {
    bert_bge_agrees "bert-bge" except has_parts
    command_r_agrees "command-r" except never
    deepseek_coder_agrees "deepseek-coder" except never
    deepseek_llm_agrees "deepseek-llm" except never
    falcon_agrees "falcon" except never
    gemma_3_agrees "gemma3-270m" except names_a_tag_in_plain_text
    gemma_4_agrees "gemma-4" except never
    gpt_2_agrees "gpt-2" except never
    llama_bpe_agrees "llama-bpe" except never
    llama_spm_agrees "llama-spm" except never
    mpt_agrees "mpt" except never
    nomic_bert_moe_agrees "nomic-bert-moe" except never
    phi_3_agrees "phi-3" except never
    qwen2_agrees "qwen2" except differs_for_qwen
    qwen2_5_coder_agrees "qwen2.5-coder-0.5b" except differs_for_qwen
    qwen35_agrees "qwen35" except names_a_tag_that_is_no_token
    refact_agrees "refact" except never
    smollm2_agrees "smollm2" except never
    starcoder_agrees "starcoder" except never
}
