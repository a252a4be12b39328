//! Whisper's vocabulary: GPT-2's scheme, then special tokens whose number tells the version of the model.

use akunu_format::whisper_ggml::WhisperGgml;

use super::Tokenizer;
use super::error::{Result, TokenizerError};
use super::families;
use super::ranked::Ranked;
use super::special::Roles;

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
    fn other_sizes_are_refused() {
        let error = |count, size| tokenizer(count, size).unwrap_err().to_string();
        assert_eq!(error(50257, 32000), "a whisper vocabulary of 32000 tokens is not supported");
        assert_eq!(error(50000, 51865), "whisper vocabulary: spells out 50000 of 50257 pieces");
    }
}
