//! Measures how long tokenizers take to load and to encode.
//!
//! `cargo run --profile quick -p akunu-text --example tokenizer_speed -- TEXT MODEL...`, where MODEL is a GGUF file or a
//! folder with a `tokenizer.json`. Each figure is the best of several runs. With `-` for TEXT it only loads.

use std::path::Path;
use std::time::{Duration, Instant};

use akunu_format::gguf::Gguf;
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = arguments.next().ok_or("usage: tokenizer_speed TEXT MODEL...")?;
    let texts = if text == "-" { Vec::new() } else { texts(std::fs::read_to_string(text)?) };
    for model in arguments {
        let (load, tokenizer) = best(|| load(Path::new(&model)));
        let tokenizer = tokenizer?;
        println!("{model}: load {:.1} ms", milliseconds(load));
        for (name, text) in &texts {
            let (time, ids) = best(|| tokenizer.encode(text, Special::Plain, AddSpecial::No));
            let rate = text.len() as f64 / 1e6 / time.as_secs_f64();
            println!("  {name:16} {:8.1} ms {rate:7.1} MB/s {:8} tokens", milliseconds(time), ids.len());
        }
    }
    Ok(())
}

/// The text and what is hard about others.
fn texts(text: String) -> Vec<(&'static str, String)> {
    let megabyte = 1 << 20;
    let letters = (0..megabyte).map(|i| char::from(b'a' + (i * i % 8191 % 26) as u8)).collect();
    vec![
        ("text", text),
        ("1 MB of x", "x".repeat(megabyte)),
        ("1 MB of spaces", " ".repeat(megabyte)),
        ("1 MB of letters", letters),
    ]
}

fn load(model: &Path) -> Result<Tokenizer, Box<dyn std::error::Error>> {
    let is_directory = model.is_dir();
    Ok(if is_directory { Tokenizer::from_dir(model)? } else { Tokenizer::from_gguf(&Gguf::open(model)?)? })
}

fn best<T>(mut work: impl FnMut() -> T) -> (Duration, T) {
    let mut run = || {
        let start = Instant::now();
        let result = work();
        (start.elapsed(), result)
    };
    let first = run();
    (0..4).map(|_| run()).fold(first, |best, next| if next.0 < best.0 { next } else { best })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
