//! The shape of `tokenizer.json`. A component that is not listed here is refused by name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::tokenizer::pretokenize::{Behavior, PrependScheme};

/// Text that borrows from the file where it holds no escapes.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

#[derive(Deserialize)]
pub(super) struct File<'a> {
    #[serde(borrow, default)]
    pub added_tokens: Vec<Added<'a>>,
    pub normalizer: Option<Normalizer>,
    pub pre_tokenizer: Option<PreTokenizer>,
    pub post_processor: Option<PostProcessor>,
    pub decoder: Option<Decoder>,
    #[serde(borrow)]
    pub model: Model<'a>,
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
pub(super) struct Model<'a> {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(borrow)]
    pub vocab: Vocab<'a>,
    #[serde(borrow, default)]
    pub merges: Option<Vec<Merge<'a>>>,
    pub unk_token: Option<String>,
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

pub(super) enum Vocab<'a> {
    /// Pieces and their ids, in file order.
    Ids(Vec<(Text<'a>, u32)>),
    /// Pieces with scores: a kind of model that is refused by its name later.
    Scores,
}

impl<'de: 'a, 'a> Deserialize<'de> for Vocab<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VocabVisitor;
        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = Vocab<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of pieces and ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut ids = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    ids.push(entry);
                }
                Ok(Vocab::Ids(ids))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Vocab::Scores)
            }
        }
        deserializer.deserialize_any(VocabVisitor)
    }
}

/// `"a b"`, or since 2024 `["a", "b"]`.
pub(super) enum Merge<'a> {
    Joined(Text<'a>),
    Pair(Text<'a>, Text<'a>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two pieces in a list or with a space between them")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Merge::Joined(Text(text.into())))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Merge::Joined(Text(text.to_owned().into())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let left = list.next_element()?.ok_or_else(|| Error::invalid_length(0, &self))?;
                let right = list.next_element()?.ok_or_else(|| Error::invalid_length(1, &self))?;
                Ok(Merge::Pair(left, right))
            }
        }
        deserializer.deserialize_any(MergeVisitor)
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
    Sequence { processors: Vec<PostProcessor> },
    ByteLevel,
    BertProcessing { sep: (String, u32), cls: (String, u32) },
    RobertaProcessing { sep: (String, u32), cls: (String, u32) },
    TemplateProcessing { single: Vec<TemplatePiece>, special_tokens: HashMap<String, TemplateToken> },
}

#[derive(Deserialize)]
pub(super) enum TemplatePiece {
    SpecialToken { id: String },
    Sequence {},
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
