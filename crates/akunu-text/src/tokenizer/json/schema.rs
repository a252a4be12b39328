//! The shape of `tokenizer.json`. A component that is not listed here is refused by name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::tokenizer::pretokenize::{Behavior, PrependScheme};

#[derive(Deserialize)]
pub(super) struct File<'a> {
    #[serde(borrow, default)]
    pub added_tokens: Vec<Added<'a>>,
    pub normalizer: Option<Normalizer>,
    pub pre_tokenizer: Option<PreTokenizer>,
    pub post_processor: Option<PostProcessor>,
    pub decoder: Option<Decoder>,
    pub model: Model,
}

#[derive(Deserialize)]
pub(super) struct Added<'a> {
    pub id: u32,
    #[serde(borrow)]
    pub content: Cow<'a, str>,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    pub normalized: Option<bool>,
    #[serde(default)]
    pub special: bool,
}

/// All fields of all kinds of model: a tagged enum would copy the whole vocabulary before it looks at the tag.
#[derive(Deserialize)]
pub(super) struct Model {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub vocab: Vocab,
    #[serde(default)]
    pub merges: Option<PairList>,
    pub unk_token: Option<String>,
    pub unk_id: Option<u32>,
    pub dropout: Option<f64>,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub fuse_unk: bool,
    #[serde(default)]
    pub byte_fallback: bool,
    #[serde(default)]
    pub ignore_merges: bool,
    pub max_input_chars_per_word: Option<usize>,
}

pub(super) struct Vocab {
    pub pieces: PieceList,
    /// Where the file has scores and not ids, which are then the places in the list.
    pub scores: Option<Vec<f64>>,
}

/// Pieces and their ids, in file order. There may be hundreds of thousands: their texts lie back to back in one string.
#[derive(Default)]
pub(super) struct PieceList {
    text: String,
    /// Where each piece ends, and its id.
    entries: Vec<(u32, u32)>,
}

impl PieceList {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> + Clone {
        let mut start = 0;
        self.entries.iter().map(move |&(end, id)| {
            let piece = &self.text[start..end as usize];
            start = end as usize;
            (piece, id)
        })
    }
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VocabVisitor;
        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = Vocab;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of pieces and ids, or a list of pieces and scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut list = PieceList::default();
                while let Some(end) = map.next_key_seed(Append(&mut list.text))? {
                    list.entries.push((end, map.next_value()?));
                }
                list.entries.shrink_to_fit();
                Ok(Vocab { pieces: list, scores: None })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let (mut pieces, mut scores) = (PieceList::default(), Vec::new());
                while let Some((end, score)) = list.next_element_seed(AppendScored(&mut pieces.text))? {
                    pieces.entries.push((end, scores.len() as u32));
                    scores.push(score);
                }
                pieces.text.shrink_to_fit();
                pieces.entries.shrink_to_fit();
                scores.shrink_to_fit();
                Ok(Vocab { pieces, scores: Some(scores) })
            }
        }
        deserializer.deserialize_any(VocabVisitor)
    }
}

/// Pairs of pieces that are joined, each `"a b"`, or since 2024 `["a", "b"]`. Their texts lie back to back in one string.
#[derive(Default)]
pub(super) struct PairList {
    text: String,
    /// Where the left piece of each pair ends, [`NO_PAIR`] where there is but one, and where the pair does.
    ends: Vec<(u32, u32)>,
}

/// Marks a text without the space between two pieces.
const NO_PAIR: u32 = u32::MAX;

impl PairList {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The pairs at these places; the text alone where it is no pair.
    pub fn range(&self, places: Range<usize>) -> impl Iterator<Item = Result<(&str, &str), &str>> {
        let mut start = places.start.checked_sub(1).map_or(0, |before| self.ends[before].1 as usize);
        self.ends[places].iter().map(move |&(middle, end)| {
            let whole = &self.text[start..end as usize];
            let pair = (middle != NO_PAIR).then(|| whole.split_at(middle as usize - start));
            start = end as usize;
            pair.ok_or(whole)
        })
    }
}

impl<'de> Deserialize<'de> for PairList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = PairList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of pairs of pieces")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut pairs = PairList::default();
                while let Some(ends) = list.next_element_seed(AppendPair(&mut pairs.text))? {
                    pairs.ends.push(ends);
                }
                pairs.ends.shrink_to_fit();
                Ok(pairs)
            }
        }
        deserializer.deserialize_seq(PairsVisitor)
    }
}

/// Appends a text and gives where it ends.
struct Append<'t>(&'t mut String);

impl<'de> DeserializeSeed<'de> for Append<'_> {
    type Value = u32;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u32, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Append<'_> {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a piece of text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u32, E> {
        self.0.push_str(text);
        let end = u32::try_from(self.0.len()).ok().filter(|&end| end != NO_PAIR);
        end.ok_or_else(|| E::custom("more than 4 GiB of text"))
    }
}

/// Appends the text of `["piece", score]` and gives where it ends and the score.
struct AppendScored<'t>(&'t mut String);

impl<'de> DeserializeSeed<'de> for AppendScored<'_> {
    type Value = (u32, f64);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(u32, f64), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for AppendScored<'_> {
    type Value = (u32, f64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a piece and its score")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(u32, f64), A::Error> {
        let end = list.next_element_seed(Append(self.0))?;
        let end = end.ok_or_else(|| Error::invalid_length(0, &"a piece and its score"))?;
        let score = list.next_element()?;
        Ok((end, score.ok_or_else(|| Error::invalid_length(1, &"a piece and its score"))?))
    }
}

/// Appends both pieces of a pair and gives where they end.
struct AppendPair<'t>(&'t mut String);

impl<'de> DeserializeSeed<'de> for AppendPair<'_> {
    type Value = (u32, u32);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(u32, u32), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AppendPair<'_> {
    type Value = (u32, u32);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("two pieces in a list or with a space between them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(u32, u32), E> {
        match text.split_once(' ') {
            Some((left, right)) => Ok((Append(self.0).visit_str(left)?, Append(self.0).visit_str(right)?)),
            None => Ok((NO_PAIR, Append(self.0).visit_str(text)?)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(u32, u32), A::Error> {
        let left = list.next_element_seed(Append(self.0))?;
        let left = left.ok_or_else(|| Error::invalid_length(0, &"two pieces"))?;
        let right = list.next_element_seed(Append(self.0))?;
        Ok((left, right.ok_or_else(|| Error::invalid_length(1, &"two pieces"))?))
    }
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum Normalizer {
    Sequence {
        normalizers: Vec<Normalizer>,
    },
    #[serde(rename = "NFC")]
    Nfc,
    #[serde(rename = "NFD")]
    Nfd,
    #[serde(rename = "NFKC")]
    Nfkc,
    #[serde(rename = "NFKD")]
    Nfkd,
    Lowercase,
    StripAccents,
    Strip {
        strip_left: bool,
        strip_right: bool,
    },
    Replace {
        pattern: Pattern,
        content: String,
    },
    Prepend {
        prepend: String,
    },
    Precompiled {
        precompiled_charsmap: String,
    },
    #[serde(rename = "BertNormalizer")]
    Bert {
        clean_text: bool,
        handle_chinese_chars: bool,
        strip_accents: Option<bool>,
        lowercase: bool,
    },
}

#[derive(Deserialize)]
pub(super) enum Pattern {
    String(String),
    Regex(String),
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum PreTokenizer {
    Sequence {
        pretokenizers: Vec<PreTokenizer>,
    },
    ByteLevel {
        #[serde(default = "yes")]
        add_prefix_space: bool,
        #[serde(default = "yes")]
        use_regex: bool,
    },
    Split {
        pattern: Pattern,
        behavior: Behavior,
        #[serde(default)]
        invert: bool,
    },
    Digits {
        #[serde(default)]
        individual_digits: bool,
    },
    Punctuation {
        behavior: Option<Behavior>,
    },
    Whitespace,
    WhitespaceSplit,
    #[serde(rename = "BertPreTokenizer")]
    Bert,
    Metaspace {
        #[serde(default = "space_mark")]
        replacement: char,
        prepend_scheme: Option<PrependScheme>,
        /// What files had before there were schemes.
        add_prefix_space: Option<bool>,
        #[serde(default = "yes")]
        split: bool,
    },
}

fn yes() -> bool {
    true
}

fn space_mark() -> char {
    '▁'
}

/// The scheme of a metaspace component, old or new.
pub(super) fn scheme(scheme: Option<PrependScheme>, add_prefix_space: Option<bool>) -> PrependScheme {
    scheme.unwrap_or(if add_prefix_space == Some(false) {
        PrependScheme::Never
    } else {
        PrependScheme::Always
    })
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum PostProcessor {
    Sequence {
        processors: Vec<PostProcessor>,
    },
    ByteLevel,
    BertProcessing {
        sep: (String, u32),
        cls: (String, u32),
    },
    RobertaProcessing {
        sep: (String, u32),
        cls: (String, u32),
    },
    TemplateProcessing {
        single: Vec<TemplatePiece>,
        #[serde(default)]
        pair: Vec<TemplatePiece>,
        special_tokens: HashMap<String, TemplateToken>,
    },
}

#[derive(Deserialize)]
pub(super) enum TemplatePiece {
    SpecialToken {
        id: String,
        #[serde(default)]
        type_id: u32,
    },
    Sequence {
        /// A or B.
        #[serde(default)]
        id: String,
        #[serde(default)]
        type_id: u32,
    },
}

#[derive(Deserialize)]
pub(super) struct TemplateToken {
    pub ids: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum Decoder {
    Sequence {
        decoders: Vec<Decoder>,
    },
    ByteLevel,
    ByteFallback,
    Fuse,
    Replace {
        pattern: Pattern,
        content: String,
    },
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    Metaspace {
        #[serde(default = "space_mark")]
        replacement: char,
        prepend_scheme: Option<PrependScheme>,
        add_prefix_space: Option<bool>,
    },
    WordPiece {
        prefix: String,
        #[serde(default)]
        cleanup: bool,
    },
}

/// What is read of `tokenizer_config.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    pub bos_token: Option<Name>,
    pub eos_token: Option<Name>,
    pub unk_token: Option<Name>,
    pub pad_token: Option<Name>,
    pub sep_token: Option<Name>,
    pub cls_token: Option<Name>,
    pub mask_token: Option<Name>,
    pub add_bos_token: Option<bool>,
    pub add_eos_token: Option<bool>,
}

/// A token's name, alone or in an object with its flags.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Name {
    Plain(String),
    Object { content: String },
}

impl Name {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Plain(name) | Self::Object { content: name } => name,
        }
    }
}

/// What is read of `generation_config.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Generation {
    pub bos_token_id: Option<Ids>,
    pub eos_token_id: Option<Ids>,
    pub pad_token_id: Option<Ids>,
}

/// One id or several.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Ids {
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}
