//! Loading a vocabulary never holds more than eight times the bytes of its file.

#![allow(clippy::unwrap_used)] // a test may stop where it stands

use std::fs;
use std::path::{Path, PathBuf};

use akunu_format::gguf::{Gguf, Writer};
use akunu_testing::allocator::{self, Counting};
use akunu_text::Tokenizer;
use akunu_text::tokenizer::TokenizerError;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Room for what does not grow with the file: mostly the automaton that cuts text into words.
const FIXED_BYTES: usize = 1 << 20;
const BYTES_PER_FILE_BYTE: usize = 8;

/// Loads the vocabulary of a file and checks what that took.
fn load(file: &Path) -> Result<Tokenizer, TokenizerError> {
    let len = fs::metadata(file).unwrap().len() as usize;
    let (result, peak) = allocator::peak_of_all_threads(|| {
        if file.extension().is_some_and(|extension| extension == "gguf") {
            Tokenizer::from_gguf(&Gguf::open(file).unwrap())
        } else {
            Tokenizer::from_file(file)
        }
    });
    let limit = BYTES_PER_FILE_BYTE * len + FIXED_BYTES;
    assert!(peak <= limit, "{}: {peak} bytes were allocated for a file of {len}", file.display());
    result
}

/// Names for tokens, as short as they can be.
fn names(count: usize) -> impl Iterator<Item = String> {
    let digits: Vec<char> = ('!'..='~').filter(|c| !matches!(c, '"' | '\\')).collect();
    (0..count).map(move |mut number| {
        let mut name = String::new();
        loop {
            name.push(digits[number % digits.len()]);
            number /= digits.len();
            if number == 0 {
                return name;
            }
            number -= 1;
        }
    })
}

fn gguf(folder: &Path, tokens: &[String], merges: &[&str]) -> PathBuf {
    let path = folder.join("vocabulary.gguf");
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.model", "gpt2").unwrap();
    writer.metadata("tokenizer.ggml.pre", "gpt-2").unwrap();
    writer.metadata("tokenizer.ggml.tokens", tokens).unwrap();
    writer.metadata("tokenizer.ggml.merges", merges).unwrap();
    fs::write(&path, writer.header().unwrap()).unwrap();
    path
}

fn unigram_gguf(folder: &Path, tokens: &[String], charsmap: &[u8]) -> PathBuf {
    let path = folder.join("vocabulary.gguf");
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.model", "t5").unwrap();
    writer.metadata("tokenizer.ggml.tokens", tokens).unwrap();
    writer.metadata("tokenizer.ggml.scores", &vec![-1f32; tokens.len()]).unwrap();
    writer.metadata("tokenizer.ggml.precompiled_charsmap", charsmap).unwrap();
    fs::write(&path, writer.header().unwrap()).unwrap();
    path
}

/// Tokens of one kind, as short as they can be written.
fn special_gguf(folder: &Path, model: &str, kind: u8, tokens: &[String]) -> PathBuf {
    let path = folder.join("vocabulary.gguf");
    let mut writer = Writer::new();
    writer.metadata("tokenizer.ggml.model", model).unwrap();
    writer.metadata("tokenizer.ggml.pre", "gpt-2").unwrap();
    writer.metadata("tokenizer.ggml.tokens", tokens).unwrap();
    writer.metadata("tokenizer.ggml.token_type", &vec![kind; tokens.len()]).unwrap();
    writer.metadata("tokenizer.ggml.merges", &Vec::<String>::new()).unwrap();
    writer
        .metadata("tokenizer.ggml.scores", &vec![0f32; if model == "t5" { tokens.len() } else { 0 }])
        .unwrap();
    fs::write(&path, writer.header().unwrap()).unwrap();
    path
}

/// Added tokens with two letters each that a normaliser makes 256 of.
fn growing_json(folder: &Path, count: usize) -> PathBuf {
    let path = folder.join("tokenizer.json");
    let names = names(count).enumerate();
    let tokens: Vec<_> = names.map(|(id, name)| format!(r#"{{"id":{id},"content":"aa{name}"}}"#)).collect();
    let text = format!(
        r#"{{"added_tokens":[{}],"normalizer":{{"type":"Replace","pattern":{{"String":"a"}},"content":"{}"}},"model":{{"type":"BPE","vocab":{{}},"merges":[]}}}}"#,
        tokens.join(","),
        "b".repeat(256)
    );
    fs::write(&path, text).unwrap();
    path
}

fn json(folder: &Path, tokens: &[String], merges: &[&str]) -> PathBuf {
    let path = folder.join("tokenizer.json");
    let entries: Vec<_> = tokens.iter().enumerate().map(|(id, token)| format!("{token:?}:{id}")).collect();
    let pairs: Vec<_> = merges.iter().map(|pair| format!("{pair:?}")).collect();
    let text = format!(
        r#"{{"pre_tokenizer":{{"type":"ByteLevel"}},"model":{{"type":"BPE","vocab":{{{}}},"merges":[{}]}}}}"#,
        entries.join(","),
        pairs.join(",")
    );
    fs::write(&path, text).unwrap();
    path
}

fn unigram(folder: &Path, tokens: &[String]) -> PathBuf {
    let path = folder.join("tokenizer.json");
    let entries: Vec<_> = tokens.iter().map(|token| format!("[{token:?},-1]")).collect();
    fs::write(&path, format!(r#"{{"model":{{"type":"Unigram","vocab":[{}]}}}}"#, entries.join(","))).unwrap();
    path
}

/// One test: what two at a time allocate could not be told apart.
#[test]
fn loading_holds_at_most_eight_times_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let few: Vec<String> = names(100).chain(["aa".to_owned()]).collect();
    let many: Vec<String> = names(300_000).collect();
    let pairs = vec!["a a"; 300_000];
    for write in [gguf, json] {
        load(&write(folder.path(), &few, &pairs[..3])).unwrap();
        load(&write(folder.path(), &many, &[])).unwrap();
        load(&write(folder.path(), &many, &pairs)).unwrap();
        let error = load(&write(folder.path(), &few, &pairs)).unwrap_err().to_string();
        assert!(error.contains("300000 pairs are more than the tokens can be made of"), "{error}");
    }
    let last = 1 << 18;
    load(&special_gguf(folder.path(), "gpt2", 4, &many[..=last])).unwrap();
    load(&special_gguf(folder.path(), "t5", 4, &many[..=last])).unwrap();
    let error = load(&special_gguf(folder.path(), "gpt2", 3, &vec!["a".to_owned(); last + 1])).unwrap_err();
    assert!(error.to_string().contains("is token 0 too"), "{error}");
    let error = load(&growing_json(folder.path(), 100_000)).unwrap_err().to_string();
    assert!(error.contains("a normalizer that makes added tokens much longer"), "{error}");
    load(&unigram(folder.path(), &many)).unwrap();
    load(&unigram_gguf(folder.path(), &many, &[0; 4])).unwrap();
    // Nothing but ends of replacements, and a trie in which each of 4,000 units has 255 children.
    load(&unigram_gguf(folder.path(), &few, &vec![0; 4_000_000])).unwrap();
    let unit = |place: u32| {
        let children = (((place >> 8) * 255 + (place & 0xff)) % 4000) << 8;
        (place ^ children) << 10 | place & 0xff
    };
    let units: Vec<u8> = (0..4000 << 8).flat_map(|place| unit(place).to_le_bytes()).collect();
    let trie = [&(units.len() as u32).to_le_bytes()[..], &units].concat();
    load(&unigram_gguf(folder.path(), &few, &trie)).unwrap();
    #[cfg(feature = "test-data")]
    real_vocabularies();
}

#[cfg(feature = "test-data")]
fn real_vocabularies() {
    let folder = fs::read_dir(akunu_testing::data("vocab")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = folder.filter(|path| path.extension().is_some_and(|ext| ext == "gguf")).collect();
    assert!(files.len() > 15);
    for file in files {
        if let Err(error) = load(&file) {
            assert!(error.to_string().contains("tokenizer.ggml.pre is missing"), "{error}");
        }
    }
    for name in ["gpt2", "llama3", "llama3_2", "qwen2_5", "qwen3", "gemma3"] {
        load(&akunu_testing::data(&format!("tokenizers/{name}/tokenizer.json"))).unwrap();
    }
}
