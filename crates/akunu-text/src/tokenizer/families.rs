//! The pre-tokenizers GGUF files name in `tokenizer.ggml.pre`.
//!
//! A GGUF file does not carry the pattern its vocabulary was trained with, only a name for it. What each name stands for
//! is taken from the `tokenizer.json` files of the models it was given to.

use super::error::Result;
use super::normalize::Normalizer;
use super::pattern::Pattern;
use super::pretokenize::{Behavior, Matcher, Step};

/// How a family of byte-level vocabularies treats text before merging.
pub(super) struct Family {
    pub normalizers: Vec<Normalizer>,
    pub steps: Vec<Step>,
    /// A word that is a piece is that piece, whatever the merges say.
    pub whole_words: bool,
    /// Whether texts begin with the beginning-of-sequence token when the file does not say.
    pub adds_bos: bool,
}

/// English contractions, runs of letters, of digits and of anything else, each with the space before it.
pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// As Llama 3's, but digits stand alone.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// As Qwen 2's, but combining marks belong to the letters.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Words are also cut where lower case turns to upper case.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Scripts with upper and lower case, as DeepSeek's first vocabularies list them.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-z",
    r"\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}",
    r"\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}",
    r"\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}",
    r"\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}",
    r"\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}",
    r"\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}",
    r"\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}",
    r"\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}",
    r"\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}",
    r"\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}",
    r"\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}",
    r"\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}",
    r"\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}",
    r"\u{1e900}-\u{1e943}",
    r"]+",
);

const DEEPSEEK_CJK: &str = r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+";

const DEEPSEEK3: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// The family called `name` in GGUF files; `None` for a name that is not known.
pub(super) fn family(name: &str) -> Result<Option<Family>> {
    // llama.cpp normalizes for none of them; Qwen's own `tokenizer.json` does.
    let nfc = name == "qwen2";
    let whole_words =
        matches!(name, "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "tekken" | "glm4");
    let adds_bos = matches!(name, "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "tekken");
    let steps = match name {
        "gpt-2" | "phi-2" | "mpt" | "olmo" | "gpt-neox" | "exaone4" | "modern-bert" | "roberta-bpe" => {
            vec![pattern(GPT2)?]
        }
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" => {
            vec![Step::digits(true), pattern(GPT2)?]
        }
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "dbrx" | "smaug-bpe" | "glm4"
        | "chatglm-bpe" => {
            vec![pattern(LLAMA3)?]
        }
        "qwen2" | "deepseek-r1-qwen" | "megrez" | "stablelm2" | "hunyuan" => vec![pattern(QWEN2)?],
        "qwen35" => vec![pattern(QWEN35)?],
        "tekken" => vec![pattern(TEKKEN)?],
        "gpt-4o" | "llama4" => vec![pattern(GPT4O)?],
        "deepseek-llm" => vec![
            pattern("[\r\n]")?,
            pattern(DEEPSEEK_LETTERS)?,
            pattern(r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+")?,
            pattern(r"\s+$")?,
            pattern(DEEPSEEK_CJK)?,
            Step::digits(true),
        ],
        "deepseek-coder" => vec![
            pattern("[\r\n]")?,
            pattern(r"\s?\p{L}+")?,
            pattern(r"\s?\p{P}+")?,
            pattern(DEEPSEEK_CJK)?,
            Step::digits(true),
        ],
        "deepseek-v3" | "hunyuan-dense" => DEEPSEEK3.into_iter().map(pattern).collect::<Result<_>>()?,
        "falcon" => {
            vec![Step::punctuation(Behavior::Contiguous), pattern(GPT2)?, pattern("[0-9][0-9][0-9]")?]
        }
        _ => return Ok(None),
    };
    let normalizers = if nfc { vec![Normalizer::Nfc] } else { Vec::new() };
    Ok(Some(Family { normalizers, steps, whole_words, adds_bos }))
}

/// The family of files made before `tokenizer.ggml.pre` existed, for architectures that only ever had one.
pub(super) fn family_of_architecture(architecture: &str) -> Option<&'static str> {
    Some(match architecture {
        "gpt2" => "gpt-2",
        "gptneox" => "gpt-neox",
        "mpt" => "mpt",
        "falcon" => "falcon",
        "starcoder" | "starcoder2" => "starcoder",
        "refact" => "refact",
        "command-r" => "command-r",
        "qwen2" => "qwen2",
        _ => return None,
    })
}

fn pattern(pattern: &str) -> Result<Step> {
    let matcher = Matcher::Pattern(Pattern::new(pattern)?);
    Ok(Step::split(matcher, Behavior::Isolated))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::pretokenize::pretokenize;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        let steps = family(name).unwrap().unwrap().steps;
        pretokenize(&steps, text, true, &mut |word| found.push(word.to_owned()));
        found
    }

    #[test]
    fn each_family_cuts_digits_its_own_way() {
        assert_eq!(words("gpt-2", "x 12345"), ["x", " 12345"]);
        assert_eq!(words("llama-bpe", "x 12345"), ["x", " ", "123", "45"]);
        assert_eq!(words("qwen2", "x 12"), ["x", " ", "1", "2"]);
        assert_eq!(words("smollm", "x 12"), ["x", " ", "1", "2"]);
        assert_eq!(words("falcon", "x12345"), ["x", "123", "45"]);
    }

    #[test]
    fn unknown_families_are_none() {
        assert!(family("mystery").unwrap().is_none());
    }
}
