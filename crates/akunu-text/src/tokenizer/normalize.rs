//! What happens to text before it is cut into words: Unicode normal forms, replaced spaces, lower case.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{is_nfc, is_nfd, is_nfkc, is_nfkd};

use super::bpe::SPACE_MARK;
use super::charset::CharSet;
use super::charsmap::CharsMap;
use super::pretokenize::Matcher;

/// One step of normalisation.
#[derive(Debug)]
pub(crate) enum Normalizer {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    StripAccents,
    /// Removes whitespace at the ends.
    Strip {
        left: bool,
        right: bool,
    },
    Replace {
        pattern: Matcher,
        with: String,
    },
    /// Puts text in front of anything that is not empty.
    Prepend(String),
    /// Removes spaces at the ends, and all but one elsewhere.
    CollapseSpaces,
    /// Puts a mark in front of every word and leaves all spaces out.
    MarkWords,
    /// Replaces spaces with marks, and puts one more in front of text that is not of spaces alone.
    MarkSpacesAndFront,
    Bert(BertNormalizer),
    CharsMap(CharsMap),
}

impl Normalizer {
    pub fn apply<'a>(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        match self {
            Self::Nfc => normal_form(text, is_nfc, |text| text.nfc().collect()),
            Self::Nfd => normal_form(text, is_nfd, |text| text.nfd().collect()),
            Self::Nfkc => normal_form(text, is_nfkc, |text| text.nfkc().collect()),
            Self::Nfkd => normal_form(text, is_nfkd, |text| text.nfkd().collect()),
            Self::Lowercase => lowercase(&text).into(),
            Self::StripAccents if text.is_ascii() => text,
            Self::StripAccents => text.chars().filter(|&c| !is_combining_mark(c)).collect::<String>().into(),
            Self::Strip { left, right } => {
                let mut kept = &*text;
                kept = if *left { kept.trim_start() } else { kept };
                kept = if *right { kept.trim_end() } else { kept };
                if kept.len() == text.len() { text } else { kept.to_owned().into() }
            }
            Self::Replace { pattern, with } => replace(text, pattern, with),
            Self::Prepend(_) if text.is_empty() => text,
            Self::Prepend(prefix) => format!("{prefix}{text}").into(),
            Self::CollapseSpaces => {
                text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ").into()
            }
            Self::MarkWords => {
                let words = text.split(' ').filter(|word| !word.is_empty());
                words.flat_map(|word| [SPACE_MARK, word]).collect::<String>().into()
            }
            Self::MarkSpacesAndFront => {
                let front = if text.bytes().all(|byte| byte == b' ') { "" } else { SPACE_MARK };
                format!("{front}{}", text.replace(' ', SPACE_MARK)).into()
            }
            Self::Bert(bert) => bert.apply(&text).into(),
            Self::CharsMap(map) => map.apply(&text).into(),
        }
    }

    /// At most how many times as many bytes a long text has afterwards.
    pub fn growth(&self) -> usize {
        match self {
            // The longest decompositions of Unicode: U+FDFA from 3 bytes to 33, U+0390 from 2 to 6.
            Self::Nfkc | Self::Nfkd => 11,
            Self::Nfc | Self::Nfd => 3,
            // U+0130, from 2 bytes to 3.
            Self::Lowercase => 2,
            Self::Replace { pattern: Matcher::Literal(literal), with } => {
                with.len().div_ceil(literal.len().max(1)).max(1)
            }
            Self::Replace { with, .. } => with.len().max(1),
            // A space of one byte, its mark of three.
            Self::MarkWords | Self::MarkSpacesAndFront => 3,
            // Decomposition, and two spaces beside every Chinese character.
            Self::Bert(_) => 6,
            Self::CharsMap(map) => map.growth(),
            Self::StripAccents | Self::Strip { .. } | Self::Prepend(_) | Self::CollapseSpaces => 1,
        }
    }
}

/// How many times as long text may become before it reaches the encoder. Without a limit, a file of a few lines could make
/// terabytes of one word.
const MOST_GROWTH: usize = 256;

/// How many times as long these steps may make text, where that is too much.
pub(crate) fn excessive_growth(steps: &[Normalizer]) -> Option<usize> {
    let growth = steps.iter().fold(1usize, |growth, step| growth.saturating_mul(step.growth()));
    (growth > MOST_GROWTH).then_some(growth)
}

fn normal_form<'a>(
    text: Cow<'a, str>,
    is_normal: fn(&str) -> bool,
    make: fn(&str) -> String,
) -> Cow<'a, str> {
    if text.is_ascii() || is_normal(&text) { text } else { make(&text).into() }
}

/// Character by character: no rule here looks at the neighbours, as `str::to_lowercase` does for a final sigma.
fn lowercase(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

fn replace<'a>(text: Cow<'a, str>, pattern: &Matcher, with: &str) -> Cow<'a, str> {
    let mut result = String::new();
    let mut copied = 0;
    pattern.for_each_match(&text, |range| {
        if result.capacity() == 0 {
            result.reserve(text.len() + text.len() / 2);
        }
        result.push_str(&text[copied..range.start]);
        result.push_str(with);
        copied = range.end;
    });
    if copied == 0 {
        return text;
    }
    result.push_str(&text[copied..]);
    result.into()
}

/// BERT's own normalisation.
#[derive(Debug)]
pub(crate) struct BertNormalizer {
    pub clean_text: bool,
    pub isolate_chinese: bool,
    pub strip_accents: bool,
    pub lowercase: bool,
    control: CharSet,
    nonspacing: CharSet,
}

impl BertNormalizer {
    pub fn new(clean_text: bool, isolate_chinese: bool, strip_accents: bool, lowercase: bool) -> Self {
        let control = CharSet::new(r"[[\p{Cc}\p{Cf}\p{Co}]--[\t\n\r]]");
        let nonspacing = CharSet::new(r"\p{Mn}");
        Self { clean_text, isolate_chinese, strip_accents, lowercase, control, nonspacing }
    }

    fn apply(&self, text: &str) -> String {
        let mut result = String::with_capacity(text.len());
        for c in text.chars() {
            if self.clean_text && (matches!(c, '\0' | '\u{fffd}') || self.control.contains(c)) {
                continue;
            }
            if self.clean_text && c.is_whitespace() {
                result.push(' ');
            } else if self.isolate_chinese && is_chinese(c) {
                result.extend([' ', c, ' ']);
            } else {
                result.push(c);
            }
        }
        if self.strip_accents && !result.is_ascii() {
            result = result.nfd().filter(|&c| !self.nonspacing.contains(c)).collect();
        }
        if self.lowercase { lowercase(&result) } else { result }
    }
}

/// The ranges BERT's tokenizer treats as Chinese. The sixth begins at 2B920 in Hugging Face's code, so it does here.
fn is_chinese(c: char) -> bool {
    matches!(c as u32,
        0x4e00..=0x9fff | 0x3400..=0x4dbf | 0x20000..=0x2a6df | 0x2a700..=0x2b73f | 0x2b740..=0x2b81f
        | 0x2b920..=0x2ceaf | 0xf900..=0xfaff | 0x2f800..=0x2fa1f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(normalizer: &Normalizer, text: &str) -> String {
        normalizer.apply(text.into()).into_owned()
    }

    #[test]
    fn text_in_normal_form_is_not_copied() {
        assert!(matches!(Normalizer::Nfc.apply("café, 日本".into()), Cow::Borrowed(_)));
        assert_eq!(normalized(&Normalizer::Nfc, "cafe\u{301}"), "caf\u{e9}");
        assert_eq!(normalized(&Normalizer::Nfkc, "ﬁ①"), "fi1");
    }

    #[test]
    fn replacing_and_prepending_mark_the_spaces() {
        let pattern = Matcher::Literal(" ".into());
        let steps = [Normalizer::Prepend("▁".into()), Normalizer::Replace { pattern, with: "▁".into() }];
        let run = |text| steps.iter().fold(Cow::Borrowed(text), |text, step| step.apply(text)).into_owned();
        assert_eq!(run("a  b "), "▁a▁▁b▁");
        assert_eq!(run(""), "");
    }

    #[test]
    fn spaces_collapse() {
        assert_eq!(normalized(&Normalizer::CollapseSpaces, "  a   b\t "), "a b\t");
    }

    #[test]
    fn words_or_spaces_are_marked() {
        assert_eq!(normalized(&Normalizer::MarkWords, "  a   b "), "▁a▁b");
        assert_eq!(normalized(&Normalizer::MarkWords, "  "), "");
        assert_eq!(normalized(&Normalizer::MarkSpacesAndFront, " a  b "), "▁▁a▁▁b▁");
        assert_eq!(normalized(&Normalizer::MarkSpacesAndFront, "  "), "▁▁");
    }

    #[test]
    fn bert_cleans_isolates_strips_and_lowers() {
        let bert = Normalizer::Bert(BertNormalizer::new(true, true, true, true));
        assert_eq!(normalized(&bert, "Ü\0\u{200d}b\t中ΑΣ"), "ub  中 ας".replace('ς', "σ"));
    }
}
