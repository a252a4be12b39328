//! Whatever a vocabulary says, loading it ends in a tokenizer or in an error that names the field at fault: no panic, no
//! hang, and no tokenizer that hangs on a text.

#![allow(clippy::unwrap_used)] // a test may stop where it stands

mod gguf;
mod json;
mod model_files;

use std::time::{Duration, Instant};

use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenKind, TokenizerError};

/// More than any of this takes, also without optimisation on a busy machine; what the limits keep out would take hours.
const LONG: Duration = Duration::from_secs(20);

fn error(result: Result<Tokenizer, TokenizerError>) -> String {
    result.expect_err("this vocabulary is at fault").to_string()
}

/// Runs something that must end soon.
fn soon<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let time = start.elapsed();
    assert!(time < LONG, "that took {time:?}");
    result
}

/// Encodes and decodes with a tokenizer that could be made, whatever it is like.
fn exercise(tokenizer: &Tokenizer) {
    for text in ["", "a", "ab  ba<s>\n\u{301}é日本😀", "<0x00>▁##"] {
        for special in [Special::Parse, Special::Plain] {
            let ids = tokenizer.encode(text, special, AddSpecial::Yes);
            assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()), "{ids:?}");
            tokenizer.decode(&ids);
        }
        let ids = tokenizer.encode(text, Special::Plain, AddSpecial::No);
        assert!(ids.iter().all(|&id| tokenizer.kind(id) != TokenKind::Control), "{ids:?}");
    }
    assert!(tokenizer.eog_ids().iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
}
