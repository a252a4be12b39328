//! A `tokenizer.json`, after a zero byte a `generation_config.json`, and after another a text to encode with it.

#![no_main]

use akunu_text::Tokenizer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(3, |&byte| byte == 0);
    let mut part = || parts.next().map(String::from_utf8_lossy);
    let (file, generation, text) = (part().unwrap_or_default(), part(), part().unwrap_or_default());
    if let Ok(tokenizer) = Tokenizer::from_json(&file, None, generation.as_deref().filter(|text| !text.is_empty())) {
        akunu_fuzz::use_tokenizer(&tokenizer, &text);
    }
});
