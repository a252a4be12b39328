//! Vocabularies in GGUF metadata.

use akunu_format::gguf::{Encode, Gguf, Writer};
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenizerError};
use proptest::prelude::*;

use super::{charsmap, error, exercise, soon};

const NONE: [&str; 0] = [];

/// A key, what puts an encoded value of the right type into a writer, and the value.
type Entry = (String, fn(&mut Writer, &str, &[u8]), Vec<u8>);

/// Metadata under construction: a later value for a key replaces the earlier.
#[derive(Clone)]
struct Vocabulary(Vec<Entry>);

/// Puts encoded bytes back into a writer as a value of type `T`.
fn write<T: Encode + ?Sized>(writer: &mut Writer, key: &str, encoded: &[u8]) {
    struct Encoded<'a, T: ?Sized>(&'a [u8], std::marker::PhantomData<T>);
    impl<T: Encode + ?Sized> Encode for Encoded<'_, T> {
        const TYPE: akunu_format::gguf::ValueType = T::TYPE;
        fn encode(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(self.0);
        }
    }
    writer.metadata(key, &Encoded::<T>(encoded, std::marker::PhantomData)).unwrap();
}

impl Vocabulary {
    fn with<T: Encode + ?Sized>(mut self, name: &str, value: &T) -> Self {
        self = self.without(name);
        let mut encoded = Vec::new();
        value.encode(&mut encoded);
        self.0.push((format!("tokenizer.ggml.{name}"), write::<T>, encoded));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.0.retain(|(key, ..)| *key != format!("tokenizer.ggml.{name}"));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        for (key, write, encoded) in &self.0 {
            write(&mut writer, key, encoded);
        }
        writer.header().unwrap()
    }

    fn load(&self) -> Result<Tokenizer, TokenizerError> {
        Tokenizer::from_gguf(&Gguf::from_bytes(self.bytes()).unwrap())
    }
}

fn byte_level() -> Vocabulary {
    Vocabulary(Vec::new())
        .with("model", "gpt2")
        .with("pre", "gpt-2")
        .with("tokens", &["a", "b", "ab", "Ġ", "Ġab", "<s>", "</s>"][..])
        .with("token_type", &[1i32, 1, 1, 1, 1, 3, 3][..])
        .with("merges", &["a b", "Ġ ab"][..])
        .with("bos_token_id", &5u32)
        .with("eos_token_id", &6u32)
}

fn scored() -> Vocabulary {
    Vocabulary(Vec::new())
        .with("model", "llama")
        .with("tokens", &["<unk>", "<s>", "</s>", "<0x61>", "▁", "b", "▁b"][..])
        .with("scores", &[0.0f32, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0][..])
        .with("token_type", &[2i32, 3, 3, 6, 1, 1, 1][..])
}

fn wordpiece() -> Vocabulary {
    Vocabulary(Vec::new())
        .with("model", "bert")
        .with("tokens", &["[CLS]", "[SEP]", "[UNK]", "▁ab", "b"][..])
        .with("cls_token_id", &0u32)
        .with("seperator_token_id", &1u32)
        .with("unknown_token_id", &2u32)
}

fn unigram() -> Vocabulary {
    Vocabulary(Vec::new())
        .with("model", "t5")
        .with("tokens", &["<pad>", "</s>", "<unk>", "▁", "a", "▁a", "b"][..])
        .with("scores", &[0.0f32, 0.0, 0.0, -2.0, -3.0, -1.0, -4.0][..])
        .with("token_type", &[3i32, 3, 2, 1, 1, 1, 1][..])
        .with("remove_extra_whitespaces", &true)
        .with("precompiled_charsmap", &charsmap(b"A", b"b\0"))
}

#[test]
fn the_vocabularies_these_tests_damage_are_sound() {
    let ids = |vocabulary: Vocabulary, text| {
        let tokenizer = vocabulary.load().unwrap();
        exercise(&tokenizer);
        tokenizer.encode(text, Special::Plain, AddSpecial::No)
    };
    assert_eq!(ids(byte_level(), "ab ab"), [2, 4]);
    assert_eq!(ids(scored(), "b a"), [6, 4, 3]);
    assert_eq!(ids(wordpiece(), "abb x"), [3, 4, 2]);
    assert_eq!(ids(unigram(), "  aA  xy b"), [5, 6, 3, 2, 3, 6]);
}

#[test]
fn missing_fields_are_named() {
    let cases = [
        (byte_level().without("model"), "tokenizer.ggml.model is missing"),
        (byte_level().without("tokens"), "tokenizer.ggml.tokens is missing"),
        (byte_level().without("merges"), "tokenizer.ggml.merges is missing"),
        (scored().without("scores"), "tokenizer.ggml.scores is missing"),
        (
            byte_level().without("bos_token_id").with("add_bos_token", &true),
            "tokenizer.ggml.bos_token_id is missing",
        ),
        (
            byte_level().without("eos_token_id").with("add_eos_token", &true),
            "tokenizer.ggml.eos_token_id is missing",
        ),
        (wordpiece().without("unknown_token_id"), "tokenizer.ggml.unknown_token_id is missing"),
        (unigram().without("scores"), "tokenizer.ggml.scores is missing"),
        (unigram().with("add_bos_token", &true), "tokenizer.ggml.bos_token_id is missing"),
    ];
    for (vocabulary, expected) in cases {
        assert_eq!(error(vocabulary.load()), expected);
    }
    let error = error(byte_level().without("pre").load());
    assert!(error.starts_with("tokenizer.ggml.pre is missing: "), "{error}");
}

#[test]
fn values_of_the_wrong_type_are_named() {
    let cases = [
        (byte_level().with("model", &7u32), "tokenizer.ggml.model"),
        (byte_level().with("tokens", "abc"), "tokenizer.ggml.tokens"),
        (byte_level().with("tokens", &[1u32, 2][..]), "tokenizer.ggml.tokens[0]"),
        (byte_level().with("token_type", &["a"; 7][..]), "tokenizer.ggml.token_type[0]"),
        (byte_level().with("token_type", "normal"), "tokenizer.ggml.token_type"),
        (byte_level().with("merges", &[1u32, 2][..]), "tokenizer.ggml.merges"),
        (byte_level().with("merges", "a b"), "tokenizer.ggml.merges"),
        (byte_level().with("pre", &1u32), "tokenizer.ggml.pre"),
        (byte_level().with("eos_token_id", "six"), "tokenizer.ggml.eos_token_id"),
        (byte_level().with("eos_token_id", &6.0f32), "tokenizer.ggml.eos_token_id"),
        (byte_level().with("add_bos_token", "yes"), "tokenizer.ggml.add_bos_token"),
        (scored().with("scores", &["high"; 7][..]), "tokenizer.ggml.scores"),
        (scored().with("add_space_prefix", &1u32), "tokenizer.ggml.add_space_prefix"),
        (unigram().with("remove_extra_whitespaces", &1u32), "tokenizer.ggml.remove_extra_whitespaces"),
        (unigram().with("precompiled_charsmap", "map"), "tokenizer.ggml.precompiled_charsmap"),
        (unigram().with("precompiled_charsmap", &[1u32][..]), "tokenizer.ggml.precompiled_charsmap"),
    ];
    for (vocabulary, field) in cases {
        let error = error(vocabulary.load());
        assert!(error.contains(field), "{field}: {error}");
    }
}

#[test]
fn lists_must_fit_the_tokens() {
    assert_eq!(
        error(byte_level().with("token_type", &[1i32, 1][..]).load()),
        "tokenizer.ggml.token_type: has 2 entries for 7 tokens"
    );
    assert_eq!(
        error(byte_level().with("token_type", &[1i32, 1, 99, 1, 1, 3, 3][..]).load()),
        "tokenizer.ggml.token_type[2]: 99 is no type"
    );
    assert_eq!(
        error(scored().with("scores", &[0.0f32; 3][..]).load()),
        "tokenizer.ggml.scores: has 3 entries for 7 tokens"
    );
    assert_eq!(
        error(scored().with("scores", &[0.0, f32::NAN, 0.0, 0.0, 0.0, 0.0, 0.0][..]).load()),
        "tokenizer.ggml.scores[1]: is not a number"
    );
}

#[test]
fn scores_must_be_numbers_that_can_be_added() {
    let with = |scores: &[f32]| error(unigram().with("scores", scores).load());
    assert_eq!(with(&[0.0; 3]), "tokenizer.ggml.scores: has 3 entries for 7 tokens");
    let fourth = |score| [0.0, 0.0, 0.0, score, 0.0, 0.0, 0.0];
    assert_eq!(with(&fourth(f32::NAN)), "tokenizer.ggml.scores[3]: is not a number");
    assert_eq!(with(&fourth(f32::NEG_INFINITY)), "tokenizer.ggml.scores[3]: no score is that far from zero");
}

#[test]
fn character_maps_must_be_whole_and_must_not_blow_text_up() {
    let with = |map: &[u8]| error(unigram().with("precompiled_charsmap", map).load());
    // Three bytes of a length, a trie that is longer than the file, replacements that are no text.
    for map in [&[0; 3][..], &[4, 0, 0, 0, 0], &[0, 0, 0, 0, 255]] {
        assert_eq!(with(map), "tokenizer.ggml.precompiled_charsmap: is damaged");
    }
    assert_eq!(
        with(&charsmap(b"A", &[b'b'; 100])),
        "tokenizer.ggml.precompiled_charsmap that makes text 300 times as long is not supported"
    );
}

#[test]
fn a_character_map_without_an_end_takes_no_longer() {
    // Whatever byte is read, the trie is where it was.
    let units: Vec<u8> = (0..256u32).flat_map(|byte| (byte << 10 | byte).to_le_bytes()).collect();
    let map = [&(units.len() as u32).to_le_bytes()[..], &units, b"b\0"].concat();
    let tokenizer = unigram().with("precompiled_charsmap", &map).load().unwrap();
    let ids = soon(|| tokenizer.encode(&"ab".repeat(100_000), Special::Plain, AddSpecial::No));
    assert_eq!(ids.len(), 200_000);
}

#[test]
fn ids_must_be_those_of_tokens() {
    let eos = |vocabulary: Vocabulary| error(vocabulary.load());
    let expected = "tokenizer.ggml.eos_token_id: is not the id of one of the 7 tokens";
    assert_eq!(eos(byte_level().with("eos_token_id", &7u32)), expected);
    assert_eq!(eos(byte_level().with("eos_token_id", &u64::MAX)), expected);
    assert_eq!(eos(byte_level().with("eos_token_id", &-1i32)), expected);
    assert_eq!(eos(byte_level().with("eos_token_id", &[6u32, 7][..])), expected);
    assert_eq!(
        eos(wordpiece().with("unknown_token_id", &u32::MAX)),
        "tokenizer.ggml.unknown_token_id: is not the id of one of the 5 tokens"
    );
}

#[test]
fn merges_must_name_tokens() {
    let merges = |merges: &[&str]| error(byte_level().with("merges", merges).load());
    assert_eq!(merges(&["a b", "ab"]), "tokenizer.ggml.merges[1]: \"ab\" is no pair");
    assert_eq!(merges(&["a b", ""]), "tokenizer.ggml.merges[1]: \"\" is no pair");
    assert_eq!(merges(&["a b", "b c"]), "tokenizer.ggml.merges[1]: \"c\" is no token");
    assert_eq!(merges(&["b a"]), "tokenizer.ggml.merges[0]: \"ba\" is no token");
    assert_eq!(merges(&["a b c"]), "tokenizer.ggml.merges[0]: \"b c\" is no token");
    // Of a pair that no text leads to, nothing comes of it.
    let tokens = ["a", "b", "ab", "Ġ", "Ġab", "<s>", "</s>", "a<s>"];
    let vocabulary =
        byte_level().with("tokens", &tokens[..]).with("token_type", &[1i32, 1, 1, 1, 1, 3, 3, 3][..]);
    exercise(&vocabulary.with("merges", &["a <s>"][..]).load().unwrap());
}

#[test]
fn pieces_must_differ() {
    let tokens = ["a", "b", "ab", "Ġ", "ab", "<s>", "</s>"];
    assert_eq!(
        error(byte_level().with("tokens", &tokens[..]).load()),
        "tokenizer.ggml.tokens[4]: \"ab\" is token 2 too"
    );
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    assert_eq!(
        error(byte_level().with("model", "rwkv").load()),
        "tokenizer.ggml.model \"rwkv\" is not supported"
    );
    assert_eq!(
        error(byte_level().with("pre", "mystery").load()),
        "tokenizer.ggml.pre \"mystery\" is not supported"
    );
    assert_eq!(error(byte_level().with("model", "").load()), "tokenizer.ggml.model \"\" is not supported");
}

#[test]
fn a_vocabulary_without_tokens_has_nothing_to_say() {
    for vocabulary in [byte_level(), scored(), wordpiece(), unigram()] {
        let empty =
            vocabulary.with("tokens", &NONE[..]).with("scores", &[0f32; 0][..]).with("merges", &NONE[..]);
        let empty = empty.with("token_type", &[0i32; 0][..]);
        if let Ok(tokenizer) = empty.load() {
            exercise(&tokenizer);
        }
    }
}

#[test]
fn merges_of_tokens_that_no_text_leads_to_take_no_longer() {
    let count = 60_000;
    let tokens: Vec<String> =
        (0..count).map(|i| format!("<{i}>")).chain(["a".into(), "a<0>".into()]).collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let merges = vec!["a <0>"; count];
    let vocabulary = byte_level().with("tokens", &tokens[..]).with("merges", &merges[..]);
    let vocabulary = vocabulary.with("token_type", &vec![3i32; tokens.len()][..]);
    exercise(&soon(|| vocabulary.load()).unwrap());
}

proptest! {
    #[test]
    fn overwritten_bytes_do_no_harm(
        which in 0..4usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = [byte_level, scored, wordpiece, unigram][which]().bytes();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(Ok(tokenizer)) = Gguf::from_bytes(bytes).map(|gguf| Tokenizer::from_gguf(&gguf)) {
            exercise(&tokenizer);
        }
    }
}
