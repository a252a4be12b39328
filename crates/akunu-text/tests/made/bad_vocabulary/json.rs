//! `tokenizer.json`.

use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenizerError};
use base64::Engine as _;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{charsmap, error, exercise, soon};

fn sound() -> Value {
    json!({
        "added_tokens": [{"id": 5, "content": "<s>", "special": true}],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+"}, "behavior": "Isolated", "invert": false},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "unk_token": "u", "fuse_unk": true, "byte_fallback": true,
            "vocab": {"a": 0, "b": 1, "ab": 2, "▁": 3, "u": 4, "<0x63>": 6}, "merges": ["a b"]},
    })
}

fn load(file: &Value) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_json(&file.to_string(), None, None)
}

/// The error when the value at `pointer` is another.
fn with(pointer: &str, value: Value) -> String {
    let mut file = sound();
    *file.pointer_mut(pointer).unwrap() = value;
    soon(|| error(load(&file)))
}

#[test]
fn the_file_these_tests_damage_is_sound() {
    let tokenizer = load(&sound()).unwrap();
    exercise(&tokenizer);
    assert_eq!(tokenizer.encode("ab c", Special::Plain, AddSpecial::Yes), [5, 2, 3, 6]);
}

#[test]
fn tokens_are_found_by_name_also_where_normalizing_changes_it() {
    let mut file = sound();
    file["normalizer"] = json!({"type": "Prepend", "prepend": "▁"});
    file["added_tokens"] = json!([
        {"id": 5, "content": "<s>", "special": true},
        {"id": 7, "content": "<m>", "special": false, "normalized": true},
    ]);
    assert_eq!(load(&file).unwrap().id_of("<m>"), Some(7));
}

#[test]
fn a_file_cut_off_anywhere_is_an_error() {
    let file = sound().to_string();
    for len in (0..file.len()).filter(|&len| file.is_char_boundary(len)) {
        let error = error(Tokenizer::from_json(&file[..len], None, None));
        assert!(error.starts_with("tokenizer.json: "), "{error}");
    }
}

#[test]
fn values_of_the_wrong_type_are_placed() {
    let wrong = [
        json!(null),
        json!(7),
        json!(-1),
        json!(1.5),
        json!("x"),
        json!([[]]),
        json!({"x": {}}),
        json!(true),
    ];
    let fields = [
        "/added_tokens",
        "/added_tokens/0",
        "/added_tokens/0/id",
        "/added_tokens/0/content",
        "/normalizer",
        "/pre_tokenizer",
        "/pre_tokenizer/pattern",
        "/pre_tokenizer/behavior",
        "/post_processor/single",
        "/post_processor/special_tokens",
        "/decoder/decoders",
        "/model",
        "/model/type",
        "/model/unk_token",
        "/model/fuse_unk",
        "/model/vocab",
        "/model/vocab/ab",
        "/model/merges",
        "/model/merges/0",
    ];
    for field in fields {
        for value in &wrong {
            let mut file = sound();
            *file.pointer_mut(field).unwrap() = value.clone();
            match load(&file) {
                Ok(tokenizer) => exercise(&tokenizer),
                Err(error) => {
                    assert!(error.to_string().contains("tokenizer.json"), "{field} {value}: {error}");
                }
            }
        }
    }
    let error = with("/model/vocab/ab", json!("two"));
    assert!(error.contains("invalid type: string \"two\", expected u32 at line 1 column"), "{error}");
}

#[test]
fn ids_must_fit() {
    assert_eq!(
        with("/model/vocab/ab", json!(4_000_000_000u32)),
        "tokenizer.json: model.vocab: id 4000000000 is too high for 7 tokens"
    );
    assert!(with("/model/vocab/ab", json!(1u64 << 32)).contains("expected u32"));
    assert_eq!(with("/model/vocab/ab", json!(1)), "tokenizer.json: token 1: is both \"b\" and \"ab\"");
    assert_eq!(with("/added_tokens/0/id", json!(0)), "tokenizer.json: token 0: is both \"a\" and \"<s>\"");
    assert_eq!(
        with("/post_processor/special_tokens", json!({"<s>": {"ids": [99]}})),
        "tokenizer.json: post_processor: 99 is not the id of a token"
    );
    assert_eq!(
        with("/post_processor/special_tokens", json!({})),
        "tokenizer.json: post_processor.special_tokens: \"<s>\" is missing"
    );
    let generation = r#"{"eos_token_id": [5, 99]}"#;
    assert_eq!(
        error(Tokenizer::from_json(&sound().to_string(), None, Some(generation))),
        "generation_config.json: eos_token_id: 99 is not the id of a token"
    );
}

#[test]
fn pieces_that_occur_twice_are_an_error() {
    let file = sound().to_string().replace(r#""ab":2"#, r#""ab":2,"ab":7"#);
    assert_eq!(
        error(Tokenizer::from_json(&file, None, None)),
        "tokenizer.json: token 7: \"ab\" is token 2 too"
    );
    let twice =
        json!([{"id": 5, "content": "<s>", "special": true}, {"id": 8, "content": "<s>", "special": true}]);
    assert_eq!(with("/added_tokens", twice), "tokenizer.json: token 8: \"<s>\" is token 5 too");
}

#[test]
fn merges_must_name_tokens() {
    let merges = |merges| with("/model/merges", merges);
    assert_eq!(merges(json!(null)), "tokenizer.json: model.merges is missing");
    assert_eq!(merges(json!(["ab"])), "tokenizer.json: model.merges[0]: \"ab\" is no pair");
    assert_eq!(merges(json!(["a b", "a x"])), "tokenizer.json: model.merges[1]: \"x\" is no token");
    assert_eq!(merges(json!([["b", "a"]])), "tokenizer.json: model.merges[0]: \"ba\" is no token");
    assert!(merges(json!([["a"]])).contains("invalid length 1"));
    assert!(merges(json!([["a", "b", "a"]])).starts_with("tokenizer.json: "));
}

#[test]
fn components_that_are_not_known_are_refused_by_name() {
    for (field, name) in [("/normalizer", "Odd"), ("/pre_tokenizer", "Odd"), ("/post_processor", "Odd")] {
        let error = with(field, json!({"type": name}));
        assert!(error.contains(&format!("unknown variant `{name}`")), "{error}");
    }
    assert_eq!(with("/model/type", json!("Odd")), "tokenizer.json: model \"Odd\" is not supported");
    assert_eq!(
        with("/decoder", json!({"type": "Fuse"})),
        "tokenizer.json: decoder \"Fuse\" alone is not supported"
    );
    let file = json!({"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]"}});
    assert_eq!(error(load(&file)), "tokenizer.json: model.unk_token: \"[UNK]\" is no token");
}

#[test]
fn pieces_must_have_scores_where_they_count_and_nowhere_else() {
    assert_eq!(with("/model/type", json!("Unigram")), "tokenizer.json: model.vocab: has no scores");
    assert_eq!(
        with("/model/vocab", json!([["a", -1.5]])),
        "tokenizer.json: model.vocab: has scores and no ids, which BPE needs"
    );
    let unigram = |vocab: Value, unknown| {
        error(load(&json!({"model": {"type": "Unigram", "vocab": vocab, "unk_id": unknown}})))
    };
    assert_eq!(unigram(json!([["a", -1.5]]), 7), "tokenizer.json: model.unk_id: 7 is not the id of a token");
    let endless =
        Tokenizer::from_json(r#"{"model": {"type": "Unigram", "vocab": [["a", 1e999]]}}"#, None, None);
    assert!(error(endless).contains("number out of range"));
    assert_eq!(
        unigram(json!([["a", -1e31]]), 0),
        "tokenizer.json: model.vocab[0]: no score is that far from zero"
    );
    assert!(unigram(json!([["a"]]), 0).contains("invalid length 1"));
    assert!(unigram(json!([["a", -1.0, 2]]), 0).starts_with("tokenizer.json: "));
    let long = "x".repeat(513);
    assert_eq!(
        unigram(json!([["a", -1.0], [long, -1.0]]), 0),
        "tokenizer.json: model.vocab[1]: a piece of 513 bytes is not supported"
    );
}

#[test]
fn a_piece_of_no_text_is_never_found() {
    let file = json!({"model": {"type": "Unigram", "vocab": [["", 5], ["a", -1]]}});
    assert_eq!(load(&file).unwrap().encode("aa", Special::Plain, AddSpecial::No), [1, 1]);
}

#[test]
fn damaged_character_maps_are_refused() {
    // Three bytes of a length, a trie that is longer than the file, one that is not of whole units, replacements that are no text.
    for map in ["!", "AAAA", "BAAAAAA=", "AwAAAAAAAA==", "AAAAAP8="] {
        let normalizer = json!({"type": "Precompiled", "precompiled_charsmap": map});
        let error = with("/normalizer", normalizer);
        assert_eq!(error, "tokenizer.json: normalizer.precompiled_charsmap: is damaged", "{map}");
    }
}

#[test]
fn hostile_patterns_are_refused() {
    let patterns = [
        "(",
        "[",
        "\\",
        "(?<",
        "a{999999999999}",
        "(a)\\1",
        "(?=x)",
        "\\p{Nothing}",
        "(?i",
        "*",
        "\\p{L}{100000}",
        "(((\\w{100}){100}){100}){100}",
        "((a?){1000}){1000}",
        "(a++)+",
    ];
    for pattern in patterns {
        let error = with("/pre_tokenizer/pattern", json!({"Regex": pattern}));
        assert_eq!(error, format!("the pre-tokenizer pattern {pattern:?} is not supported"));
    }
    let mut file = sound();
    file["pre_tokenizer"]["pattern"] = json!({"Regex": "(a*)*(a|b)*$|(a|aa)+b"});
    let tokenizer = load(&file).unwrap();
    soon(|| tokenizer.encode(&"a".repeat(20_000), Special::Plain, AddSpecial::No));
}

#[test]
fn endless_nesting_and_endless_lists_are_refused() {
    let (open, close) = (r#"{"type":"Sequence","normalizers":["#, "]}");
    let nested = open.repeat(100_000) + &close.repeat(100_000);
    let text = format!(r#"{{"model":{{"type":"BPE","vocab":{{}},"merges":[]}},"normalizer":{nested}}}"#);
    assert!(soon(|| error(Tokenizer::from_json(&text, None, None))).contains("recursion limit"));
    let split = json!({"type": "Split", "pattern": {"Regex": "\\p{L}+"}, "behavior": "Isolated"});
    let many = |list: &str, step: &Value| json!({"type": "Sequence", list: vec![step.clone(); 33]});
    assert_eq!(
        with("/pre_tokenizer", many("pretokenizers", &split)),
        "tokenizer.json: a pre_tokenizer of 33 steps is not supported"
    );
    assert_eq!(
        with("/normalizer", many("normalizers", &json!({"type": "StripAccents"}))),
        "tokenizer.json: a normalizer of 33 steps is not supported"
    );
}

#[test]
fn text_does_not_grow_without_bound() {
    let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    assert_eq!(
        with("/normalizer", json!({"type": "Sequence", "normalizers": vec![double; 20]})),
        "tokenizer.json: a normalizer that makes text 1048576 times as long is not supported"
    );
    let any = json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "x".repeat(1000)});
    assert_eq!(
        with("/normalizer", any),
        "tokenizer.json: a normalizer that makes text 1000 times as long is not supported"
    );
    assert_eq!(
        with("/normalizer", json!({"type": "Prepend", "prepend": "x".repeat(1000)})),
        "tokenizer.json: a normalizer that prepends 1000 bytes is not supported"
    );
    let marks = json!({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"});
    assert_eq!(
        with("/pre_tokenizer", json!({"type": "Sequence", "pretokenizers": vec![marks; 3]})),
        "tokenizer.json: a pre_tokenizer of 3 steps is not supported"
    );
    let wordpiece = json!({"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a", "max_input_chars_per_word": 1u64 << 40});
    assert!(with("/model", wordpiece).contains("max_input_chars_per_word"));
}

#[test]
fn what_a_character_map_makes_of_text_counts_by_the_text() {
    let normalizer = |bytes| {
        let map = charsmap("\u{fdfa}".as_bytes(), &vec![b'x'; bytes]);
        let map = base64::engine::general_purpose::STANDARD.encode(map);
        let map = json!({"type": "Precompiled", "precompiled_charsmap": map});
        json!({"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "Lowercase"}, map]})
    };
    let mut file = sound();
    // As many bytes of three as real maps have.
    file["normalizer"] = normalizer(33);
    exercise(&load(&file).unwrap());
    assert_eq!(
        with("/normalizer", normalizer(34)),
        "tokenizer.json: a normalizer that makes text 264 times as long is not supported"
    );
}

#[test]
fn added_tokens_are_found_in_linear_time() {
    let long = json!([{"id": 5, "content": "x".repeat(600), "special": true}]);
    let mut file = sound();
    file["added_tokens"] = long;
    file.as_object_mut().unwrap().remove("post_processor");
    assert_eq!(error(load(&file)), "added token 5: has 600 bytes, at most 512 can be matched");
    // Spaces that take the spaces before them along, and what nearly matches at every place.
    file["added_tokens"] = json!([
        {"id": 5, "content": "\t", "lstrip": true, "special": true},
        {"id": 7, "content": format!("{}b", "a".repeat(200)), "special": true},
    ]);
    let tokenizer = load(&file).unwrap();
    let text = "\t".repeat(100_000) + &"a".repeat(100_000);
    let ids = soon(|| tokenizer.encode(&text, Special::Parse, AddSpecial::No));
    assert_eq!(ids.len(), 200_000);
}

proptest! {
    #[test]
    fn overwritten_characters_do_no_harm(edits in prop::collection::vec((any::<prop::sample::Index>(), "[ -~]"), 1..4)) {
        let mut file = sound().to_string().into_bytes();
        for (at, value) in edits {
            let at = at.index(file.len());
            file[at] = value.as_bytes()[0];
        }
        if let Ok(Ok(tokenizer)) = std::str::from_utf8(&file).map(|file| Tokenizer::from_json(file, None, None)) {
            exercise(&tokenizer);
        }
    }
}
