//! `tekken.json` and SentencePiece's `tokenizer.model`, and directories that hold none of them.

use akunu_text::Tokenizer;
use proptest::prelude::*;

use super::{error, exercise};

fn tekken() -> String {
    let pieces = ["YQ==", "Yg==", "YWI="].iter().enumerate();
    let pieces: Vec<_> =
        pieces.map(|(rank, bytes)| format!(r#"{{"rank":{rank},"token_bytes":"{bytes}"}}"#)).collect();
    let config = r#"{"pattern":"\\p{L}+|\\s+","default_vocab_size":7,"default_num_special_tokens":4}"#;
    format!(r#"{{"config":{config},"vocab":[{}]}}"#, pieces.join(","))
}

/// A piece of a protocol buffer: a text with a score and a kind.
fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
    let mut piece =
        [&[0x0a, text.len() as u8], text.as_bytes(), &[0x15], &score.to_le_bytes(), &[0x18, kind]].concat();
    piece.splice(..0, [0x0a, piece.len() as u8]);
    piece
}

fn sentencepiece() -> Vec<u8> {
    let pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        ("▁", -1.0, 1),
        ("a", -2.0, 1),
        ("▁a", -3.0, 1),
    ];
    let pieces = pieces.into_iter().flat_map(|(text, score, kind)| piece(text, score, kind));
    // The trainer's field for the kind of model says byte-pair encoding.
    pieces.chain([0x12, 2, 0x18, 2]).collect()
}

#[test]
fn the_files_these_tests_damage_are_sound() {
    exercise(&Tokenizer::from_tekken(&tekken()).unwrap());
    exercise(&Tokenizer::from_sentencepiece(&sentencepiece()).unwrap());
}

#[test]
fn tekken_counts_and_ranks_must_fit() {
    let with = |from: &str, to: &str| error(Tokenizer::from_tekken(&tekken().replacen(from, to, 1)));
    assert_eq!(
        with("\"default_vocab_size\":7", "\"default_vocab_size\":18446744073709551615"),
        "tekken.json: config: 18446744073709551615 tokens, 4 of them special, are not 3 pieces"
    );
    assert_eq!(
        with("special_tokens\":4", "special_tokens\":9"),
        "tekken.json: config: 7 tokens, 9 of them special, are not 3 pieces"
    );
    assert_eq!(with("\"rank\":1", "\"rank\":2"), "tekken.json: vocab[1]: has rank 2");
    assert_eq!(with("YWI=", "YQ=="), "tekken.json: tokens[6]: \"a\" is token 4 too");
    assert_eq!(with("YWI=", "Y WI"), "tekken.json: vocab[2]: \"Y WI\" is not base 64");
    assert_eq!(
        with("\\\\p{L}+", "\\\\p{L}{99999}"),
        "the pre-tokenizer pattern \"\\\\p{L}{99999}|\\\\s+\" is not supported"
    );
    assert!(with("\"vocab\"", "\"words\"").starts_with("tekken.json: missing field `vocab`"));
}

#[test]
fn sentencepiece_pieces_must_differ() {
    let twice = [sentencepiece(), piece("a", -4.0, 1)].concat();
    assert_eq!(
        error(Tokenizer::from_sentencepiece(&twice)),
        "tokenizer.model: pieces[6]: \"a\" is token 4 too"
    );
    let odd = [sentencepiece(), piece("x", f32::NAN, 1)].concat();
    assert_eq!(error(Tokenizer::from_sentencepiece(&odd)), "tokenizer.model: scores[6]: is not a number");
    let kind = [sentencepiece(), piece("x", 0.0, 77)].concat();
    assert_eq!(
        error(Tokenizer::from_sentencepiece(&kind)),
        "tokenizer.model: pieces[6]: has an unknown type"
    );
}

#[test]
fn a_directory_without_a_vocabulary_says_what_is_expected() {
    let directory = tempfile::tempdir().unwrap();
    let error_text = error(Tokenizer::from_dir(directory.path()));
    assert!(
        error_text.ends_with("tokenizer.json is missing: it is where a model's vocabulary is expected"),
        "{error_text}"
    );
    std::fs::write(directory.path().join("tokenizer.json"), b"{\"model\": \"\xff\"}").unwrap();
    let error_text = error(Tokenizer::from_dir(directory.path()));
    assert!(error_text.ends_with("tokenizer.json: is not UTF-8"), "{error_text}");
    std::fs::remove_file(directory.path().join("tokenizer.json")).unwrap();
    std::fs::write(directory.path().join("tokenizer.model"), sentencepiece()).unwrap();
    exercise(&Tokenizer::from_dir(directory.path()).unwrap());
    std::fs::write(directory.path().join("tekken.json"), tekken()).unwrap();
    assert_eq!(Tokenizer::from_dir(directory.path()).unwrap().vocab_size(), 7);
}

proptest! {
    #[test]
    fn overwritten_bytes_do_no_harm(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let (mut model, mut text) = (sentencepiece(), tekken().into_bytes());
        for (at, value) in edits {
            let (in_model, in_text) = (at.index(model.len()), at.index(text.len()));
            model[in_model] = value;
            text[in_text] = value & 0x7f;
        }
        if let Ok(tokenizer) = Tokenizer::from_sentencepiece(&model) {
            exercise(&tokenizer);
        }
        if let Ok(tokenizer) = Tokenizer::from_tekken(std::str::from_utf8(&text).unwrap()) {
            exercise(&tokenizer);
        }
    }
}
