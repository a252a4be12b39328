//! A vocabulary of another kind, and what its first byte says it is: a GGUF file, a `tekken.json`, or (otherwise) a
//! SentencePiece `tokenizer.model`.

#![no_main]

use akunu_format::gguf::Gguf;
use akunu_text::Tokenizer;
use libfuzzer_sys::fuzz_target;

/// Something of everything, names of special tokens among it.
const TEXT: &str = "The  cat's 3 <s>[INST] ab\n\n\taé日本😀e\u{301}</s><|im_end|> ▁##";

fuzz_target!(|bytes: &[u8]| {
    let tokenizer = match bytes.first() {
        Some(b'G') => Gguf::from_bytes(bytes.to_vec()).ok().and_then(|gguf| Tokenizer::from_gguf(&gguf).ok()),
        Some(b'{') => std::str::from_utf8(bytes).ok().and_then(|json| Tokenizer::from_tekken(json).ok()),
        _ => Tokenizer::from_sentencepiece(bytes).ok(),
    };
    if let Some(tokenizer) = tokenizer {
        akunu_fuzz::use_tokenizer(&tokenizer, TEXT);
    }
});
