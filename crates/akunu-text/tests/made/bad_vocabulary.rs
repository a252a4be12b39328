//! Whatever a vocabulary says, loading it ends in a tokenizer or in an error that names the field at fault: no panic, no
//! hang, and no tokenizer that hangs on a text.

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

/// A character map in which `key` becomes what `replacements` begin with.
fn charsmap(key: &[u8], replacements: &[u8]) -> Vec<u8> {
    let mut units = vec![0u32; (key.len() << 8) + 1];
    // The children of each unit in a block of their own, behind the last byte's the value.
    for (depth, &byte) in (0u32..).zip(key) {
        let place = depth << 8 | u32::from(byte);
        let value = if depth as usize + 1 == key.len() { 0x100 } else { 0 };
        units[place as usize] = (place ^ ((depth + 1) << 8)) << 10 | value | u32::from(byte);
    }
    units[key.len() << 8] = 1 << 31;
    let units: Vec<u8> = units.into_iter().flat_map(u32::to_le_bytes).collect();
    [&(units.len() as u32).to_le_bytes()[..], &units, replacements].concat()
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
