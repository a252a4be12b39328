//! Any text, encoded with small vocabularies of every kind. Zero bytes cut it into stretches that are trusted and not in turn.

#![no_main]

use std::sync::LazyLock;

use akunu_text::tokenizer::{AddSpecial, Special, TokenKind};
use akunu_text::{Detokenizer, Segment, Tokenizer};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

const SPECIAL: [&str; 3] = ["<|im_end|>", "<s>", "[INST]"];

fn special_tokens() -> serde_json::Value {
    SPECIAL.iter().zip(600..).map(|(name, id): (_, u32)| json!({"id": id, "content": name, "special": true})).collect()
}

/// Every byte, a few pieces, and GPT-2's way of cutting words.
static BYTE_LEVEL: LazyLock<Tokenizer> = LazyLock::new(|| {
    let printable = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    let code = |byte: u32| if printable(&byte) { Some(byte) } else { others.next() };
    let bytes: Vec<String> = (0..256).filter_map(code).filter_map(char::from_u32).map(String::from).collect();
    let joined = ["th", "the", "in", "Ġt", "Ġthe", "ĠĠ", "ĠĠĠĠ", "aa", "aaaa", "Ã©", "im", "nd"];
    let merges = ["t h", "th e", "i n", "Ġ t", "Ġt he", "Ġ Ġ", "ĠĠ ĠĠ", "a a", "aa aa", "Ã ©", "i m", "n d", "h e"];
    let pieces = bytes.into_iter().chain(joined.map(String::from)).chain(["he".into()]);
    let vocab: serde_json::Map<_, _> = pieces.zip(0..).map(|(piece, id): (_, u32)| (piece, id.into())).collect();
    load(json!({
        "added_tokens": special_tokens(),
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }))
});

/// Characters with marks for spaces, and bytes for what is not among them.
static SPACE_MARKED: LazyLock<Tokenizer> = LazyLock::new(|| {
    let pieces = ["▁", "t", "h", "e", "a", "é", "日", "▁t", "he", "▁the", "▁▁", "▁▁▁▁", "aa", "aaaa"].map(String::from);
    let merges = ["▁ t", "h e", "▁t he", "▁ ▁", "▁▁ ▁▁", "a a", "aa aa"];
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let pieces = pieces.into_iter().chain(bytes).zip(0..);
    let vocab: serde_json::Map<_, _> = pieces.map(|(piece, id): (_, u32)| (piece, id.into())).collect();
    load(json!({
        "added_tokens": special_tokens(),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": true},
    }))
});

static WORDPIECE: LazyLock<Tokenizer> = LazyLock::new(|| {
    let pieces = ["[UNK]", "the", "a", "##a", "##he", "t", "日", "!", "##!"].into_iter().zip(0..);
    let vocab: serde_json::Map<_, _> = pieces.map(|(piece, id): (_, u32)| (piece.into(), id.into())).collect();
    load(json!({
        "added_tokens": special_tokens(),
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]"},
    }))
});

fn load(file: serde_json::Value) -> Tokenizer {
    Tokenizer::from_json(&file.to_string(), None, None).expect("the vocabulary is sound")
}

fuzz_target!(|bytes: &[u8]| {
    let input = String::from_utf8_lossy(bytes);
    let text = input.replace('\0', "");
    for (tokenizer, lossless) in [(&*BYTE_LEVEL, true), (&*SPACE_MARKED, !text.contains('▁')), (&*WORDPIECE, false)] {
        akunu_fuzz::use_tokenizer(tokenizer, &text);
        let ids = tokenizer.encode(&text, Special::Plain, AddSpecial::No);
        if lossless {
            assert_eq!(tokenizer.decode(&ids), text.as_bytes());
            let (mut detokenizer, mut streamed) = (Detokenizer::new(tokenizer.strips_leading_space()), String::new());
            ids.iter().for_each(|&id| detokenizer.push(tokenizer.token_bytes(id), &mut streamed));
            detokenizer.flush(&mut streamed);
            assert_eq!(streamed, text);
        }
        let cut = input.split('\0').enumerate();
        let segments: Vec<_> = cut.map(|(i, text)| Segment { text, trusted: i % 2 == 1 }).collect();
        let named: usize = segments.split(|segment| !segment.trusted).map(|run| {
            let text: String = run.iter().map(|segment| segment.text).collect();
            SPECIAL.iter().map(|name| text.matches(name).count()).sum::<usize>()
        }).sum();
        let ids = tokenizer.encode_segments(&segments, AddSpecial::No);
        let special = ids.iter().filter(|&&id| tokenizer.kind(id) == TokenKind::Control).count();
        assert!(special <= named, "{special} special tokens where {named} are named in trusted text");
    }
});
