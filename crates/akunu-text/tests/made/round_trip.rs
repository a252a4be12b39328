//! Text that is encoded and decoded is the same text, whatever the vocabulary and wherever it is cut.

use akunu_text::tokenizer::{AddSpecial, Special, TokenKind};
use akunu_text::{Detokenizer, Segment, Tokenizer};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// The characters byte-level vocabularies have for bytes, in the order of bytes.
fn byte_characters() -> Vec<char> {
    let printable = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0x100..;
    (0..256u32)
        .map(|byte| if printable(&byte) { byte } else { next.next().unwrap() })
        .map(|code| char::from_u32(code).unwrap())
        .collect()
}

/// A vocabulary: pieces by id. Merging joins two pieces there are, chosen by `joins`, to further ones.
fn grow(
    mut pieces: Vec<String>,
    joins: &[(prop::sample::Index, prop::sample::Index)],
) -> (Map<String, Value>, Vec<Value>) {
    let mut merges = Vec::new();
    for (left, right) in joins {
        let (left, right) = (left.get(&pieces).clone(), right.get(&pieces).clone());
        let joined = format!("{left}{right}");
        if joined.len() <= 24 && !pieces.contains(&joined) && !joined.contains("<0x") {
            merges.push(json!([left, right]));
            pieces.push(joined);
        }
    }
    (pieces.into_iter().zip(0..).map(|(piece, id): (String, u32)| (piece, id.into())).collect(), merges)
}

const SPECIAL: [&str; 3] = ["<|im_end|>", "<s>", "[INST]"];

/// The special tokens, with the ids after those of the vocabulary.
fn special_tokens(vocab: &Map<String, Value>) -> Value {
    let tokens = SPECIAL.iter().zip(vocab.len()..);
    tokens.map(|(name, id)| json!({"id": id, "content": name, "special": true})).collect()
}

fn byte_level(joins: &[(prop::sample::Index, prop::sample::Index)], whole_words: bool) -> Tokenizer {
    let (vocab, merges) = grow(byte_characters().into_iter().map(String::from).collect(), joins);
    let file = json!({
        "added_tokens": special_tokens(&vocab),
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": whole_words},
    });
    Tokenizer::from_json(&file.to_string(), None, None).unwrap()
}

fn space_marked(joins: &[(prop::sample::Index, prop::sample::Index)]) -> Tokenizer {
    let letters = ["▁", "a", "b", "c", "é", "日", "."].map(String::from);
    let (mut vocab, merges) = grow(letters.to_vec(), joins);
    for byte in 0..256 {
        vocab.insert(format!("<0x{byte:02X}>"), vocab.len().into());
    }
    let file = json!({
        "added_tokens": special_tokens(&vocab),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": true},
    });
    Tokenizer::from_json(&file.to_string(), None, None).unwrap()
}

fn joins() -> impl Strategy<Value = Vec<(prop::sample::Index, prop::sample::Index)>> {
    prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..60)
}

/// Letters the vocabularies have pieces of, other characters, and names of special tokens.
fn texts() -> impl Strategy<Value = String> {
    let parts = prop_oneof![
        4 => "[abc .é日]{0,12}",
        1 => "\\PC{0,4}",
        1 => "[ \\t\\n0-9']{0,6}",
        1 => prop::sample::select(&SPECIAL[..]).prop_map(str::to_owned),
    ];
    prop::collection::vec(parts, 0..8).prop_map(|parts| parts.concat().replace('▁', ""))
}

fn check(tokenizer: &Tokenizer, text: &str, cuts: &[prop::sample::Index]) {
    let ids = tokenizer.encode(text, Special::Plain, AddSpecial::No);
    assert_eq!(String::from_utf8(tokenizer.decode(&ids)).unwrap(), text);
    assert!(ids.iter().all(|&id| tokenizer.kind(id) != TokenKind::Control), "{ids:?}");

    // Names of special tokens are those tokens, and their names are what they stand for.
    let parsed = tokenizer.encode(text, Special::Parse, AddSpecial::No);
    assert_eq!(String::from_utf8(tokenizer.decode_with_special(&parsed)).unwrap(), text);
    let named: usize = SPECIAL.iter().map(|name| text.matches(name).count()).sum();
    assert_eq!(parsed.iter().filter(|&&id| tokenizer.kind(id) == TokenKind::Control).count(), named);

    // Where segments meet does not show.
    let places: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&places)).chain([0, text.len()]).collect();
    cuts.sort_unstable();
    let pieces: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
    let untrusted: Vec<_> = pieces.iter().map(|piece| Segment::untrusted(piece)).collect();
    assert_eq!(tokenizer.encode_segments(&untrusted, AddSpecial::No), ids);
    let trusted: Vec<_> = pieces.iter().map(|piece| Segment::trusted(piece)).collect();
    assert_eq!(tokenizer.encode_segments(&trusted, AddSpecial::No), parsed);

    // Token by token it is the same text, and never half a character.
    let mut detokenizer = Detokenizer::new(tokenizer.strips_leading_space());
    let mut streamed = String::new();
    for &id in &ids {
        detokenizer.push(tokenizer.token_bytes(id), &mut streamed);
        assert!(text.starts_with(&streamed), "{streamed:?}");
    }
    detokenizer.flush(&mut streamed);
    assert_eq!(streamed, text);
}

proptest! {
    #[test]
    fn byte_level_text_comes_back(
        joins in joins(), whole_words: bool, text in texts(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        check(&byte_level(&joins, whole_words), &text, &cuts);
    }

    #[test]
    fn space_marked_text_comes_back(
        joins in joins(), text in texts(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        check(&space_marked(&joins), &text, &cuts);
    }
}
