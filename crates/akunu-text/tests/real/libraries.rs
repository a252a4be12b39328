//! Whisper, Mistral and SentencePiece vocabularies against the libraries they come with, on generated strings.

use std::collections::HashMap;

use akunu_format::whisper_ggml::WhisperGgml;
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenId, TokenKind};
use serde::Deserialize;

use crate::fuzz::{BLOCK, Generator, assert_same_blocks, block_hashes};

/// What fixtures/vocabulary-ids.json has about a vocabulary.
#[derive(Deserialize)]
struct Expected {
    plain: Vec<String>,
    parse: Option<Vec<String>>,
    decoded: Vec<String>,
    samples: Vec<Vec<TokenId>>,
    special: HashMap<String, TokenId>,
}

fn agrees(name: &str, tokenizer: &Tokenizer) {
    let mut expected: HashMap<String, Expected> =
        serde_json::from_str(include_str!("../fixtures/vocabulary-ids.json")).unwrap();
    let expected = expected.remove(name).unwrap();
    for (special, &id) in &expected.special {
        assert_eq!(tokenizer.id_of(special), Some(id), "{special}");
        assert_eq!(tokenizer.kind(id), TokenKind::Control, "{special}");
    }

    let mut generator = Generator::new();
    let strings = (0..(expected.plain.len() * BLOCK) as u64).map(|number| generator.string(number));
    let strings: Vec<String> = strings.collect();
    let encode = |text: &String, special| tokenizer.encode(text, special, AddSpecial::No);
    for (text, ids) in strings.iter().zip(&expected.samples) {
        assert_eq!(&encode(text, Special::Plain), ids, "{text:?}");
    }
    let hashes = |special| {
        let bytes = |text| encode(text, special).into_iter().flat_map(u32::to_le_bytes).collect();
        block_hashes(strings.iter().map(bytes))
    };
    assert_same_blocks("plain", &hashes(Special::Plain), &expected.plain);
    if let Some(parse) = &expected.parse {
        assert_same_blocks("parse", &hashes(Special::Parse), parse);
    }
    let decode = |text| tokenizer.decode(&encode(text, Special::Plain));
    assert_same_blocks("decoded", &block_hashes(strings.iter().map(decode)), &expected.decoded);
}

#[test]
fn whisper_agrees_with_openai() {
    let model = WhisperGgml::open(akunu_testing::data("models/whisper-tiny.bin")).unwrap();
    agrees("whisper", &Tokenizer::from_whisper(&model).unwrap());
}

macro_rules! mistral {
    ($($test:ident $name:literal)*) => { $(
        #[test]
        fn $test() {
            let file = akunu_testing::data(concat!("tokenizers/mistral/", $name));
            agrees($name, &Tokenizer::from_file(file).unwrap());
        }
    )* };
}

mistral! {
    tekken_of_july_agrees_with_mistral_common "tekken_240718.json"
    tekken_of_september_agrees_with_mistral_common "tekken_240911.json"
    mistral_v1_agrees_with_sentencepiece "tokenizer.model.v1"
    mistral_v2_agrees_with_sentencepiece "mistral_instruct_tokenizer_240216.model.v2"
    mistral_v3_agrees_with_sentencepiece "mistral_instruct_tokenizer_240323.model.v3"
    mistral_v7_agrees_with_sentencepiece "mistral_instruct_tokenizer_241114.model.v7"
}
