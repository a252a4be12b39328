//! A constraint on output, in a language that the first byte chooses, compiled for a small vocabulary and walked a few
//! tokens: no mask is empty.

#![no_main]

use std::sync::LazyLock;

use akunu::{Constraint, Model, Options};
use libfuzzer_sys::fuzz_target;

/// Longer texts take longer to compile than they are worth here.
const LONGEST: usize = 400;

/// Tokens to take.
const STEPS: usize = 8;

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/akunu-program/tests/fixtures/tiny/llama/model.gguf");
    let options = Options { backend: "reference".to_owned(), ..Options::default() };
    Model::load(path, &options).expect("the model of the tests")
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&language, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(&text[..text.len().min(LONGEST)]) else { return };
    let constraint = match language % 4 {
        0 => Constraint::gbnf(text),
        1 => Constraint::lark(text),
        2 => Constraint::regex(text),
        _ => match serde_json::from_str(text) {
            Ok(schema) => Constraint::json_schema(&schema),
            Err(_) => return,
        },
    };
    let Ok(mut matcher) = constraint.and_then(|constraint| MODEL.matcher(&constraint)) else { return };
    for step in 0..STEPS {
        if matcher.is_finished() {
            return;
        }
        let Ok(mask) = matcher.mask() else { return };
        let token = nth_allowed(mask, step * 7 + bytes.len()).expect("a mask allows something");
        // The vocabulary is small and lacks most bytes: not all that a constraint forces can be spelled with it.
        if matcher.commit(token).is_err() {
            return;
        }
    }
});

/// One of the tokens that a mask allows.
fn nth_allowed(mask: &[u32], n: usize) -> Option<u32> {
    let allowed: Vec<u32> =
        (0..mask.len() as u32 * 32).filter(|&id| mask[id as usize / 32] >> (id % 32) & 1 == 1).collect();
    Some(allowed[n.checked_rem(allowed.len())?])
}
