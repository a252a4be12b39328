//! Mistral's `tekken.json`.

use std::borrow::Cow;

use serde::Deserialize;

use super::Tokenizer;
use super::added::AddedTokens;
use super::error::{Result, TokenizerError};
use super::ranked::Ranked;
use super::special::Roles;

pub(super) const FILE: &str = "tekken.json";

#[derive(Deserialize)]
struct File<'a> {
    config: Config,
    #[serde(borrow)]
    vocab: Vec<Piece<'a>>,
    #[serde(default)]
    special_tokens: Option<Vec<SpecialToken>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    /// Tokens the model has, the special ones included.
    default_vocab_size: usize,
    default_num_special_tokens: usize,
}

#[derive(Deserialize)]
struct Piece<'a> {
    rank: usize,
    /// In base 64.
    #[serde(borrow)]
    token_bytes: Cow<'a, str>,
}

#[derive(Deserialize)]
struct SpecialToken {
    rank: usize,
    token_str: String,
}

/// What files that do not list their special tokens mean.
const SPECIAL_TOKENS: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

impl Tokenizer {
    /// The tokenizer a `tekken.json` describes: the special tokens first, then as many pieces as the model has.
    pub fn from_tekken(json: &str) -> Result<Self> {
        let file: File =
            serde_json::from_str(json).map_err(|source| TokenizerError::Json { file: FILE, source })?;
        let invalid = |field: String, problem: String| {
            Err(TokenizerError::invalid(format!("{FILE}: {field}"), problem))
        };
        let Config { pattern, default_vocab_size: size, default_num_special_tokens: special } = file.config;
        let pieces = size.checked_sub(special).filter(|&pieces| pieces <= file.vocab.len());
        let Some(pieces) = pieces.filter(|_| special <= 1 << 16) else {
            let problem =
                format!("{size} tokens, {special} of them special, are not {} pieces", file.vocab.len());
            return invalid("config".into(), problem);
        };
        let names = match file.special_tokens {
            None => SPECIAL_TOKENS.iter().map(|&name| name.to_owned()).collect(),
            Some(tokens) => {
                if let Some(i) = (0..tokens.len()).find(|&i| tokens[i].rank != i) {
                    return invalid(format!("special_tokens[{i}]"), format!("has rank {}", tokens[i].rank));
                }
                tokens.into_iter().map(|token| token.token_str).collect::<Vec<_>>()
            }
        };
        let mut vocabulary = Ranked::with_capacity(size, "tekken.json: tokens");
        let filler = (names.len()..special).map(|i| format!("<SPECIAL_{i}>"));
        for name in names.iter().take(special).cloned().chain(filler) {
            vocabulary.push_control(&name)?;
        }
        let mut bytes = Vec::new();
        for (i, piece) in file.vocab.iter().take(pieces).enumerate() {
            if piece.rank != i {
                return invalid(format!("vocab[{i}]"), format!("has rank {}", piece.rank));
            }
            if !decode_base64(piece.token_bytes.as_bytes(), &mut bytes) {
                return invalid(format!("vocab[{i}]"), format!("{:?} is not base 64", piece.token_bytes));
            }
            vocabulary.push(&bytes)?;
        }
        let roles = |names: &AddedTokens| Roles {
            bos: names.get("<s>"),
            eos: names.get("</s>"),
            unknown: names.get("<unk>"),
            padding: names.get("<pad>"),
            ..Roles::default()
        };
        vocabulary.finish(&pattern, roles, true)
    }
}

/// Replaces `bytes` with what `text` stands for; false when it is not base 64.
pub(super) fn decode_base64(text: &[u8], bytes: &mut Vec<u8>) -> bool {
    bytes.clear();
    let padding = text.iter().rev().take_while(|&&c| c == b'=').count();
    let (mut bits, mut count) = (0u32, 0);
    for &c in &text[..text.len() - padding] {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return false,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    text.len().is_multiple_of(4) && padding <= 2 && bits == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{AddSpecial, Special};

    #[test]
    fn base_64_is_decoded() {
        let decode = |text: &str| {
            let mut bytes = Vec::new();
            decode_base64(text.as_bytes(), &mut bytes).then_some(bytes)
        };
        assert_eq!(decode("").unwrap(), b"");
        assert_eq!(decode("AA==").unwrap(), [0]);
        assert_eq!(decode("/+4=").unwrap(), [255, 238]);
        assert_eq!(decode("Zm9vYmFy").unwrap(), b"foobar");
        for text in ["A", "AB=C", "AA=", "AB==", "====", "A A="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    fn file(size: usize, vocab: &str) -> String {
        format!(
            r#"{{"config": {{"pattern": "\\p{{L}}+|\\s+", "default_vocab_size": {size}, "default_num_special_tokens": 22}},
                "vocab": [{vocab}]}}"#
        )
    }

    #[test]
    fn special_tokens_come_first() {
        let vocab = r#"{"rank": 0, "token_bytes": "YQ=="}, {"rank": 1, "token_bytes": "YWE="}, {"rank": 2, "token_bytes": "YWFh"}"#;
        let tokenizer = Tokenizer::from_tekken(&file(24, vocab)).unwrap();
        assert_eq!(tokenizer.encode("[INST]aaa", Special::Parse, AddSpecial::Yes), [1, 3, 23, 22]);
        assert_eq!((tokenizer.bos(), tokenizer.eog_ids()), (Some(1), &[2][..]));
        assert_eq!(tokenizer.id_of("<SPECIAL_21>"), Some(21));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |size, vocab| Tokenizer::from_tekken(&file(size, vocab)).unwrap_err().to_string();
        assert_eq!(error(23, r#"{"rank": 1, "token_bytes": "YQ=="}"#), "tekken.json: vocab[0]: has rank 1");
        assert_eq!(
            error(23, r#"{"rank": 0, "token_bytes": "?"}"#),
            "tekken.json: vocab[0]: \"?\" is not base 64"
        );
        assert_eq!(error(99, ""), "tekken.json: config: 99 tokens, 22 of them special, are not 0 pieces");
    }
}
