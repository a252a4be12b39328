//! What the tokenizer's files of a checkpoint say, read without building a tokenizer.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use akunu_format::checkpoint::Checkpoint;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{SpecialToken, Summary, TemplateSummary, TokenizerSummary};
use crate::text::read_text;
use crate::{Error, Result};

/// Fills in the tokenizer and the chat template.
pub(super) fn describe(checkpoint: &Checkpoint, summary: &mut Summary) -> Result<()> {
    let config: TokenizerConfig = match checkpoint.companion("tokenizer_config.json") {
        Some(path) => read(&path)?,
        None => TokenizerConfig::default(),
    };
    if let Some(path) = checkpoint.companion("tokenizer.json") {
        let file: TokenizerJson = read(&path)?;
        summary.tokenizer = Some(file.summary(&config));
    } else if checkpoint.companion("tokenizer.model").is_some() {
        summary.tokenizer = Some(TokenizerSummary {
            model: "SentencePiece (tokenizer.model)".to_owned(),
            ..Default::default()
        });
    }
    // A file of its own counts before the configuration's.
    let mut templates = match checkpoint.companion("chat_template.jinja") {
        Some(path) => {
            let text = read_text(&path)?;
            vec![NamedTemplate { name: "default".to_owned(), template: text }]
        }
        None => Vec::new(),
    };
    templates.extend(config.chat_template.map(Templates::named).unwrap_or_default());
    summary.chat_template = templates.first().map(|first| {
        TemplateSummary::new(
            templates.iter().map(|template| template.name.clone()).collect(),
            &first.template,
        )
    });
    Ok(())
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).map_err(Error::io(path))?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::Io { path: path.to_path_buf(), source: error.into() })
}

/// `tokenizer.json`, as far as it is of interest here.
#[derive(Deserialize)]
struct TokenizerJson {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    vocab: Count,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u64,
    content: String,
}

impl TokenizerJson {
    fn summary(&self, config: &TokenizerConfig) -> TokenizerSummary {
        let roles = [
            ("bos", &config.bos_token),
            ("cls", &config.cls_token),
            ("eos", &config.eos_token),
            ("mask", &config.mask_token),
            ("padding", &config.pad_token),
            ("separator", &config.sep_token),
            ("unknown", &config.unk_token),
        ];
        let special: BTreeMap<String, SpecialToken> = roles
            .into_iter()
            .filter_map(|(role, token)| {
                let text = token.as_ref()?.text();
                let id = self.added_tokens.iter().find(|added| added.content == text)?.id;
                Some((role.to_owned(), SpecialToken { id, text: Some(text.to_owned()) }))
            })
            .collect();
        // Added tokens may stand in the vocabulary as well; ids tell.
        let highest = self.added_tokens.iter().map(|added| added.id.saturating_add(1)).max().unwrap_or(0);
        TokenizerSummary {
            model: self.model.kind.clone().unwrap_or_else(|| "unnamed".to_owned()),
            pre: None,
            vocabulary_size: self.model.vocab.0.max(highest),
            special,
        }
    }
}

/// The number of members of an object or a list, whatever they are.
#[derive(Default)]
struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;

        impl<'de> Visitor<'de> for Counter {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a vocabulary")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }
        }

        deserializer.deserialize_any(Counter)
    }
}

/// `tokenizer_config.json`, as far as it is of interest here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenizerConfig {
    bos_token: Option<TokenText>,
    cls_token: Option<TokenText>,
    eos_token: Option<TokenText>,
    mask_token: Option<TokenText>,
    pad_token: Option<TokenText>,
    sep_token: Option<TokenText>,
    unk_token: Option<TokenText>,
    chat_template: Option<Templates>,
}

/// A token is written as its text, or as an object that holds it.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenText {
    Plain(String),
    Described { content: String },
}

impl TokenText {
    fn text(&self) -> &str {
        match self {
            TokenText::Plain(text) | TokenText::Described { content: text } => text,
        }
    }
}

/// One template, or several with names.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Several(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl Templates {
    fn named(self) -> Vec<NamedTemplate> {
        match self {
            Templates::One(template) => vec![NamedTemplate { name: "default".to_owned(), template }],
            Templates::Several(templates) => templates,
        }
    }
}
