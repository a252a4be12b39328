//! Whisper's vocabulary: GPT-2's scheme, then special tokens whose number tells the version of the model.

use std::path::Path;

use akunu_format::whisper_ggml::WhisperGgml;

use super::Tokenizer;
use super::error::{Result, TokenizerError};
use super::ranked::Ranked;
use super::special::Roles;
use super::tekken::decode_base64;
use super::{families, files};

/// The languages in the order of their tokens. Models before the third version lack the last.
const LANGUAGES: [&str; 100] = [
    "en", "zh", "de", "es", "ru", "ko", "fr", "ja", "pt", "tr", "pl", "ca", "nl", "ar", "sv", "it", "id",
    "hi", "fi", "vi", "he", "uk", "el", "ms", "cs", "ro", "da", "hu", "ta", "no", "th", "ur", "hr", "bg",
    "lt", "la", "mi", "ml", "cy", "sk", "te", "fa", "lv", "bn", "sr", "az", "sl", "kn", "et", "mk", "br",
    "eu", "is", "hy", "ne", "mn", "bs", "kk", "sq", "sw", "gl", "mr", "pa", "si", "km", "sn", "yo", "so",
    "af", "oc", "ka", "be", "tg", "sd", "gu", "am", "yi", "lo", "uz", "fo", "ht", "ps", "tk", "nn", "mt",
    "sa", "lb", "my", "bo", "tl", "mg", "as", "tt", "haw", "ln", "ha", "ba", "jw", "su", "yue",
];

const BEFORE_LANGUAGES: [&str; 2] = ["<|endoftext|>", "<|startoftranscript|>"];

const AFTER_LANGUAGES: [&str; 6] = [
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
];

/// From 0 to 30 seconds in steps of 20 milliseconds.
const TIMESTAMPS: usize = 1501;

/// Pieces of the English vocabulary; the other one has an empty piece more. Files may repeat special tokens after them.
const ENGLISH_PIECES: usize = 50256;

const FIELD: &str = "whisper vocabulary";

impl Tokenizer {
    /// The tokenizer of a Whisper model in its GGML container.
    ///
    /// Special tokens have the names OpenAI gave them: `<|startoftranscript|>`, `<|en|>`, `<|notimestamps|>`, `<|0.02|>`.
    pub fn from_whisper(model: &WhisperGgml) -> Result<Self> {
        let size = model.hparams().vocab_size as usize;
        from_pieces(model.tokens(), size)
    }

    /// The tokenizer of a Whisper model with `size` tokens whose pieces are in one of OpenAI's files: `multilingual.tiktoken`,
    /// or `gpt2.tiktoken` for those that know English only.
    pub fn from_whisper_tiktoken(path: impl AsRef<Path>, size: usize) -> Result<Self> {
        let path = path.as_ref();
        let within = |error| match error {
            TokenizerError::Invalid { field, problem } => {
                TokenizerError::Invalid { field: format!("{}: {field}", path.display()), problem }
            }
            other => other,
        };
        let pieces = tiktoken_pieces(&files::read(path)?).map_err(within)?;
        from_pieces(pieces.iter().map(Vec::as_slice), size).map_err(within)
    }
}

/// The pieces of a tiktoken file, one a line: base 64, a space, the rank.
fn tiktoken_pieces(text: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut pieces = Vec::new();
    for (i, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            continue;
        }
        let invalid = |problem: &str| TokenizerError::invalid(format!("line {}", i + 1), problem);
        let space = line.iter().rposition(|&byte| byte == b' ');
        let (code, rank) = line.split_at(space.ok_or_else(|| invalid("has no rank"))?);
        let rank = std::str::from_utf8(rank).ok().and_then(|rank| rank.trim().parse::<usize>().ok());
        if rank != Some(pieces.len()) {
            return Err(invalid("is not the next rank"));
        }
        let mut bytes = Vec::new();
        // OpenAI's own file has a piece without bytes, written so.
        if code != b"=" && !decode_base64(code, &mut bytes) {
            return Err(invalid("is not base 64"));
        }
        pieces.push(bytes);
    }
    Ok(pieces)
}

/// The tokenizer for a model with `size` tokens, of which the file spells out the pieces of text.
fn from_pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>, size: usize) -> Result<Tokenizer> {
    let fixed = BEFORE_LANGUAGES.len() + AFTER_LANGUAGES.len() + TIMESTAMPS;
    let (count, languages) = [(ENGLISH_PIECES, 99), (ENGLISH_PIECES + 1, 99), (ENGLISH_PIECES + 1, 100)]
        .into_iter()
        .find(|(pieces, languages)| pieces + languages + fixed == size)
        .ok_or_else(|| TokenizerError::unsupported(format!("a {FIELD} of {size} tokens")))?;
    let mut vocabulary = Ranked::with_capacity(size, FIELD);
    let mut found = 0;
    for piece in pieces.take(count) {
        vocabulary.push(piece)?;
        found += 1;
    }
    if found < count {
        return Err(TokenizerError::invalid(FIELD, format!("spells out {found} of {count} pieces")));
    }
    for name in BEFORE_LANGUAGES {
        vocabulary.push_control(name)?;
    }
    for language in &LANGUAGES[..languages] {
        vocabulary.push_control(&format!("<|{language}|>"))?;
    }
    for name in AFTER_LANGUAGES {
        vocabulary.push_control(name)?;
    }
    for hundredths in (0..TIMESTAMPS).map(|step| 2 * step) {
        vocabulary.push_control(&format!("<|{}.{:02}|>", hundredths / 100, hundredths % 100))?;
    }
    let roles =
        |names: &super::added::AddedTokens| Roles { eos: names.get("<|endoftext|>"), ..Roles::default() };
    vocabulary.finish(families::GPT2, roles, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{AddSpecial, Special};

    /// As many pieces as a model has: all bytes, and then pairs of letters and numbers.
    fn pieces(count: usize) -> Vec<Vec<u8>> {
        let bytes = (0..=255).map(|byte| vec![byte]);
        bytes.chain((256..count).map(|i| format!("x{i}").into_bytes())).collect()
    }

    fn tokenizer(count: usize, size: usize) -> Result<Tokenizer> {
        from_pieces(pieces(count).iter().map(Vec::as_slice), size)
    }

    #[test]
    fn special_tokens_lie_where_each_version_has_them() {
        let ids = |size, count, names: [&str; 5]| {
            let tokenizer = tokenizer(count, size).unwrap();
            assert_eq!(tokenizer.vocab_size(), size);
            names.map(|name| tokenizer.id_of(name))
        };
        let names = ["<|endoftext|>", "<|en|>", "<|yue|>", "<|notimestamps|>", "<|30.00|>"];
        assert_eq!(ids(51864, 50256, names), [Some(50256), Some(50258), None, Some(50362), Some(51863)]);
        assert_eq!(ids(51865, 50257, names), [Some(50257), Some(50259), None, Some(50363), Some(51864)]);
        assert_eq!(
            ids(51866, 50257, names),
            [Some(50257), Some(50259), Some(50358), Some(50364), Some(51865)]
        );
    }

    #[test]
    fn text_and_special_tokens_encode() {
        let tokenizer = tokenizer(50257, 51865).unwrap();
        let ids = tokenizer.encode("<|en|><|0.02|> a", Special::Parse, AddSpecial::Yes);
        assert_eq!(ids, [50259, 50365, 32, 97]);
        assert_eq!(tokenizer.decode(&ids), b" a");
        assert_eq!(tokenizer.eog_ids(), [50257]);
    }

    #[test]
    fn files_of_tiktoken_are_lines_of_ranks() {
        assert_eq!(tiktoken_pieces(b"IQ== 0\nIGk= 1\n= 2\n").unwrap(), [&b"!"[..], b" i", b""]);
        let error = |text: &[u8]| tiktoken_pieces(text).unwrap_err().to_string();
        assert_eq!(error(b"IQ== 0\nIQ== 2\n"), "line 2: is not the next rank");
        assert_eq!(error(b"IQ=="), "line 1: has no rank");
        assert_eq!(error(b"<!doctype html> 0"), "line 1: is not base 64");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("multilingual.tiktoken");
        std::fs::write(&path, "IQ== 0\n").unwrap();
        let error = Tokenizer::from_whisper_tiktoken(&path, 51865).unwrap_err().to_string();
        let expected = format!("{}: whisper vocabulary: spells out 1 of 50257 pieces", path.display());
        assert_eq!(error, expected);
    }

    #[test]
    fn other_sizes_are_refused() {
        let error = |count, size| tokenizer(count, size).unwrap_err().to_string();
        assert_eq!(error(50257, 32000), "a whisper vocabulary of 32000 tokens is not supported");
        assert_eq!(error(50000, 51865), "whisper vocabulary: spells out 50000 of 50257 pieces");
    }
}
