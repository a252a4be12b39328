//! Constraints over a vocabulary of single bytes and a few longer tokens.

mod adversaries;
mod calls;
mod grammars;
mod hostile;
mod prefixes;
mod schemas;

use std::num::NonZeroU32;

use akunu_text::Tokenizer;
use serde_json::{Map, Value, json};

use super::{Compiler, Constraint, Matcher};

/// Tokens of more than one byte, some of which cross the borders of grammars' terminals.
const WORDS: [&str; 12] =
    ["true", "fal", "se", "\": ", "\", \"", "}}", "42", "{\"", "ab", "bc", "日", "本語"];
const MARKS: [&str; 4] = ["<think>", "</think>", "<tool_call>", "</tool_call>"];

/// How byte-level vocabularies write a byte.
fn printed(byte: u8) -> char {
    let plain = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if plain(&byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !plain(byte)).count() as u32;
    char::from_u32(256 + before).unwrap()
}

fn tokenizer() -> Tokenizer {
    let mut vocabulary = Map::new();
    for byte in 0..=255 {
        vocabulary.insert(printed(byte).to_string(), json!(byte));
    }
    for (i, word) in WORDS.iter().enumerate() {
        vocabulary.insert(word.bytes().map(printed).collect(), json!(256 + i));
    }
    let added = |(i, name): (usize, &&str)| json!({"id": 300 + i, "content": name, "special": true});
    let mut specials: Vec<Value> = MARKS.iter().enumerate().map(added).collect();
    specials.push(json!({"id": 310, "content": "<|end|>", "special": true}));
    let json = json!({
        "added_tokens": specials,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    });
    Tokenizer::from_json(&json.to_string(), None, None).unwrap()
}

struct Tested {
    compiler: Compiler,
    tokenizer: Tokenizer,
}

impl Tested {
    fn new() -> Tested {
        Tested { compiler: Compiler::new(), tokenizer: tokenizer() }
    }

    fn matcher(&self, constraint: &Constraint) -> Matcher {
        self.compiler.matcher(constraint, &self.tokenizer).unwrap_or_else(|error| panic!("{error}"))
    }

    fn refused(&self, constraint: &Constraint) -> String {
        self.compiler.matcher(constraint, &self.tokenizer).map(|_| ()).unwrap_err().to_string()
    }

    /// Whether a text fits, byte by byte.
    fn accepts(&self, constraint: &Constraint, text: &str) -> bool {
        follows(&mut self.matcher(constraint), text)
    }
}

/// Follows a text byte by byte; whether it may end there.
fn follows(matcher: &mut Matcher, text: &str) -> bool {
    for byte in text.bytes() {
        if matcher.is_finished() || !matcher.allows(u32::from(byte)).unwrap() {
            return false;
        }
        matcher.commit(u32::from(byte)).unwrap();
    }
    matcher.may_end().unwrap()
}

#[test]
fn an_end_comes_only_where_the_text_may_end() {
    let tested = Tested::new();
    let end = tested.tokenizer.eos().or_else(|| tested.tokenizer.eog_ids().first().copied()).unwrap();
    let mut matcher = tested.matcher(&Constraint::regex("-?[0-9]{2,3}").unwrap());
    let mut ends = Vec::new();
    for byte in b"-142" {
        ends.push(matcher.allows(end).unwrap());
        matcher.commit(u32::from(*byte)).unwrap();
    }
    assert_eq!(ends, [false, false, false, true]);
    assert!(matcher.is_finished() && matcher.may_end().unwrap());
    // A token beyond the vocabulary is never there.
    assert!(!matcher.allows(u32::MAX).unwrap());
}

#[test]
fn a_matcher_takes_back_what_it_followed() {
    let tested = Tested::new();
    let mut matcher = tested.matcher(&Constraint::json_object());
    let mut masks = Vec::new();
    let text = b"{\"a\": [1, true]}";
    for &byte in text {
        masks.push(matcher.mask().unwrap().to_vec());
        matcher.commit(u32::from(byte)).unwrap();
    }
    assert!(matcher.is_finished());
    for (n, mask) in masks.iter().enumerate().rev() {
        matcher.rollback(1).unwrap();
        assert_eq!(matcher.mask().unwrap(), mask, "after {n} tokens");
    }
}

#[test]
fn forced_tokens_are_those_the_model_would_read() {
    let tested = Tested::new();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"], "additionalProperties": false});
    let mut matcher = tested.matcher(&Constraint::json_schema(&schema).unwrap());
    let forced = matcher.forced();
    assert_eq!(tested.tokenizer.decode(&forced), b"{\"ok\": ");
    for token in forced {
        assert!(matcher.allows(token).unwrap());
        matcher.commit(token).unwrap();
    }
    assert_eq!(matcher.forced(), [0; 0]);
    // The token for all of it, and the one for its beginning.
    assert!(matcher.allows(256).unwrap() && matcher.allows(257).unwrap() && !matcher.allows(258).unwrap());
}

#[test]
fn characters_may_span_tokens_and_tokens_characters() {
    let tested = Tested::new();
    let mut matcher = tested.matcher(&Constraint::regex("(日本語|日光|火)!").unwrap());
    let whole = [266, 267];
    assert!(matcher.allows(whole[0]).unwrap());
    // The first of three bytes.
    matcher.commit(0xe6).unwrap();
    assert!(!matcher.may_end().unwrap() && !matcher.allows(whole[1]).unwrap());
    matcher.commit(0x97).unwrap();
    matcher.commit(0xa5).unwrap();
    matcher.commit(whole[1]).unwrap();
    matcher.commit(u32::from(b'!')).unwrap();
    assert!(matcher.is_finished());
}

#[test]
fn thoughts_are_free_and_the_answer_is_not() {
    let tested = Tested::new();
    let tokenizer = &tested.tokenizer;
    let marks = akunu_text::chat::Syntax::of_template("</think>").unwrap().reasoning;
    let number = Constraint::regex("[0-9]+").unwrap();
    let (open, close) = (300, 301);
    let end = tokenizer.eog_ids()[0];
    let text = |matcher: &mut Matcher, text: &str| {
        text.bytes().for_each(|byte| matcher.commit(u32::from(byte)).unwrap());
    };
    let mut matcher = tested.matcher(&number.after_thinking(&marks, &[], tokenizer, None));
    // It may think, or answer at once.
    assert!(matcher.allows(open).unwrap() && matcher.allows(u32::from(b'7')).unwrap());
    assert!(!matcher.allows(u32::from(b'x')).unwrap());
    matcher.commit(open).unwrap();
    text(&mut matcher, "hm, \"{x\n");
    assert!(!matcher.allows(end).unwrap() && !matcher.allows(open).unwrap());
    matcher.commit(close).unwrap();
    assert!(!matcher.allows(u32::from(b'x')).unwrap());
    text(&mut matcher, "\n\n42");
    assert!(matcher.may_end().unwrap() && !matcher.allows(close).unwrap());
    // A prompt that begins the thoughts.
    let mut matcher = tested.matcher(&number.after_thinking(&marks, &[65, open, 10], tokenizer, None));
    assert!(matcher.allows(u32::from(b'x')).unwrap() && matcher.allows(close).unwrap());
    matcher.commit(close).unwrap();
    text(&mut matcher, "7");
    assert!(matcher.may_end().unwrap());
}

#[test]
fn a_budget_ends_the_thoughts_and_leaves_the_answer_free() {
    let tested = Tested::new();
    let marks = akunu_text::chat::Syntax::of_template("</think>").unwrap().reasoning;
    let (open, close) = (300, 301);
    let any = Constraint::any().after_thinking(&marks, &[], &tested.tokenizer, NonZeroU32::new(3));
    let mut matcher = tested.matcher(&any);
    matcher.commit(open).unwrap();
    for byte in *b"abc" {
        assert!(matcher.allows(close).unwrap());
        matcher.commit(u32::from(byte)).unwrap();
    }
    assert!(!matcher.allows(u32::from(b'd')).unwrap() && matcher.allows(close).unwrap());
    matcher.commit(close).unwrap();
    for byte in *b"much longer" {
        assert!(matcher.may_end().unwrap());
        matcher.commit(u32::from(byte)).unwrap();
    }
    // Without thoughts nothing is bounded.
    assert!(tested.accepts(&any, "much longer") && tested.accepts(&any, ""));
}

#[test]
fn marks_that_are_no_tokens_are_found_in_the_text() {
    let tested = Tested::new();
    let marks = akunu_text::chat::Marks { open: "<t>", close: "</t>" };
    let constraint =
        Constraint::regex("[0-9]+").unwrap().after_thinking(&marks, &[], &tested.tokenizer, None);
    for text in ["42", "<t>a<b></t>42", "<t></t>\n\n7"] {
        assert!(tested.accepts(&constraint, text), "{text}");
    }
    for text in ["<t>a</t>", "<t>a</t>x", "<t>a42", "x"] {
        assert!(!tested.accepts(&constraint, text), "{text}");
    }
}

#[test]
fn one_of_several_texts() {
    let tested = Tested::new();
    let constraint = Constraint::choice(&["yes", "no", "\"not\" sure\n日"]).unwrap();
    for text in ["yes", "no", "\"not\" sure\n日"] {
        assert!(tested.accepts(&constraint, text), "{text}");
    }
    assert!(!tested.accepts(&constraint, "ye") && !tested.accepts(&constraint, "nope"));
    assert!(Constraint::choice::<&str>(&[]).is_err());
    // One may begin with another, and one may be nothing.
    let constraint = Constraint::choice(&["4", "42", ""]).unwrap();
    for (text, is_one) in [("4", true), ("42", true), ("", true), ("2", false), ("44", false)] {
        assert_eq!(tested.accepts(&constraint, text), is_one, "{text:?}");
    }
}
