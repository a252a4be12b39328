//! Real `tokenizer.json` files against Hugging Face's own library, on 10,000 generated strings each.

use akunu_format::gguf::Gguf;
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenId};

use crate::fuzz::{Expected, Generator, STRINGS, assert_same_blocks, block_hashes};

/// The strings for a tokenizer: all there are, without what the library's older tables do not decompose.
fn strings(name: &str) -> Vec<String> {
    let mut generator = Generator::new();
    let strings = (0..STRINGS).map(|number| generator.string(number));
    if name == "unigram_lowercase" {
        return strings.map(|text| text.replace('\u{1d6a6}', "")).collect();
    }
    strings.collect()
}

fn id_bytes(ids: Vec<TokenId>) -> Vec<u8> {
    ids.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn from_json(folder: &str) -> Tokenizer {
    Tokenizer::from_dir(akunu_testing::data(folder)).unwrap()
}

fn from_gguf(file: &str) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(akunu_testing::data(file)).unwrap()).unwrap()
}

fn parses_equally(tokenizer: &Tokenizer, name: &str) {
    let (strings, expected) = (strings(name), Expected::read());
    let encode = |text: &String| tokenizer.encode(text, Special::Parse, AddSpecial::No);
    let expected = &expected.tokenizers[name];
    for (text, ids) in strings.iter().zip(&expected.samples) {
        assert_eq!(&encode(text), ids, "{name}: {text:?}");
    }
    assert_same_blocks(
        name,
        &block_hashes(strings.iter().map(|text| id_bytes(encode(text)))),
        &expected.parse,
    );
}

fn keeps_specials_out_of_plain_text(tokenizer: &Tokenizer, name: &str) {
    let encode = |text: &String| id_bytes(tokenizer.encode(text, Special::Plain, AddSpecial::No));
    let found = block_hashes(strings(name).iter().map(encode));
    assert_same_blocks(name, &found, &Expected::read().tokenizers[name].plain);
}

fn decodes_equally(tokenizer: &Tokenizer, name: &str) {
    let decode = |text: &String| tokenizer.decode(&tokenizer.encode(text, Special::Parse, AddSpecial::No));
    let found = block_hashes(strings(name).iter().map(decode));
    assert_same_blocks(name, &found, &Expected::read().tokenizers[name].decoded);
}

#[test]
fn the_generator_makes_the_strings_of_the_oracle() {
    let found = block_hashes(strings("").into_iter().map(String::into_bytes));
    assert_same_blocks("strings", &found, &Expected::read().strings);
}

/// A tokenizer among the fixtures, made by scripts/oracle/tiny_unigram.py.
fn from_fixture(name: &str) -> Tokenizer {
    let path = format!("{}/tests/fixtures/{name}.json", env!("CARGO_MANIFEST_DIR"));
    Tokenizer::from_json(&std::fs::read_to_string(path).unwrap(), None, None).unwrap()
}

macro_rules! tokenizers {
    ($($name:ident $load:ident $folder:literal)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn parses_as_the_original() {
                parses_equally(&$load($folder), stringify!($name));
            }

            #[test]
            fn keeps_special_tokens_out_of_plain_text() {
                keeps_specials_out_of_plain_text(&$load($folder), stringify!($name));
            }

            #[test]
            fn decodes_as_the_original() {
                decodes_equally(&$load($folder), stringify!($name));
            }
        }
    )* };
}

tokenizers! {
    gemma3 from_json "tokenizers/gemma3"
    llama3 from_json "tokenizers/llama3"
    llama3_2 from_json "tokenizers/llama3_2"
    qwen2_5 from_json "tokenizers/qwen2_5"
    qwen3 from_json "tokenizers/qwen3"
    gpt2 from_json "tokenizers/gpt2"
    minilm from_json "models/minilm"
    unigram from_fixture "unigram"
    unigram_lowercase from_fixture "unigram_lowercase"
}

/// Not for decoding: some of the strings name bytes that are no character, for which the library has U+FFFD.
#[test]
fn unigram_with_bytes_equals_the_original() {
    let tokenizer = from_fixture("unigram_bytes");
    parses_equally(&tokenizer, "unigram_bytes");
    keeps_specials_out_of_plain_text(&tokenizer, "unigram_bytes");
}

#[test]
fn llama_3_in_gguf_equals_its_tokenizer_json() {
    let tokenizer = from_gguf("vocab/ggml-vocab-llama-bpe.gguf");
    parses_equally(&tokenizer, "llama3");
    keeps_specials_out_of_plain_text(&tokenizer, "llama3");
}

#[test]
fn gpt_2_in_gguf_equals_its_tokenizer_json() {
    let tokenizer = from_gguf("vocab/ggml-vocab-gpt-2.gguf");
    parses_equally(&tokenizer, "gpt2");
    decodes_equally(&tokenizer, "gpt2");
}

#[test]
fn qwen_2_in_gguf_equals_its_tokenizer_json_on_plain_text() {
    // The GGUF vocabulary is older and has fewer special tokens.
    keeps_specials_out_of_plain_text(&from_gguf("vocab/ggml-vocab-qwen2.gguf"), "qwen2_5");
}

#[test]
fn qwen_2_5_in_gguf_equals_its_tokenizer_json() {
    let tokenizer = from_gguf("models/qwen2.5-coder-0.5b.gguf");
    parses_equally(&tokenizer, "qwen2_5");
    keeps_specials_out_of_plain_text(&tokenizer, "qwen2_5");
}
