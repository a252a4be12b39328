//! A model's vocabulary as the matcher's engine sees it.

use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenKind};
use toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenizerEnv};

/// Longer tokens are never chosen: the trie has no room for them.
const LONGEST_TOKEN: usize = 1000;

/// Before a text, where a tokenizer would put a space that is not part of it.
const SHIELD: &str = "\n";

/// A tokenizer and the trie of its tokens.
pub(super) struct Vocabulary {
    tokenizer: Tokenizer,
    trie: TokTrie,
}

impl Vocabulary {
    /// Tokens in `marks` have a meaning of their own, like control tokens: text is never spelled with them.
    pub(super) fn new(tokenizer: &Tokenizer, marks: &[u32]) -> Vocabulary {
        let size = tokenizer.vocab_size() as u32;
        let word = |id: u32| {
            let bytes = tokenizer.token_bytes(id);
            match tokenizer.kind(id) {
                _ if bytes.len() > LONGEST_TOKEN => Vec::new(),
                TokenKind::Unknown | TokenKind::Unused => Vec::new(),
                kind if kind == TokenKind::Control || marks.contains(&id) => {
                    [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat()
                }
                // No text has this byte.
                _ if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) => Vec::new(),
                _ => bytes.to_vec(),
            }
        };
        let words: Vec<Vec<u8>> = (0..size).map(word).collect();
        let ends = tokenizer.eog_ids();
        let info = TokRxInfo::new(size, ends.first().copied().unwrap_or(INVALID_TOKEN));
        let trie = TokTrie::from(&info, &words);
        let trie = if ends.is_empty() { trie } else { trie.with_eos_tokens(ends) };
        Vocabulary { tokenizer: tokenizer.clone(), trie }
    }

    /// The tokens the model would have read a text as, if they spell it exactly.
    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let encode = |text: &str| self.tokenizer.encode(text, Special::Plain, AddSpecial::No);
        let spelled = |ids: &[u32]| -> Vec<u8> {
            ids.iter().flat_map(|&id| self.tokenizer.token_bytes(id)).copied().collect()
        };
        if !self.tokenizer.strips_leading_space() {
            return Some(encode(text)).filter(|ids| spelled(ids) == text.as_bytes());
        }
        let shielded = encode(&format!("{SHIELD}{text}"));
        // The shield ends where a token ends.
        let begin = (0..=shielded.len()).find(|&n| spelled(&shielded[..n]).ends_with(SHIELD.as_bytes()))?;
        Some(shielded[begin..].to_vec()).filter(|ids| spelled(ids) == text.as_bytes())
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            self.encode(text).unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
        })
    }
}
