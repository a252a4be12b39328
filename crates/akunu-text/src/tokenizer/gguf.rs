//! Vocabularies in GGUF metadata (`tokenizer.ggml.*`).

use std::collections::HashSet;

use akunu_format::gguf::{Array, Gguf, Metadata, Value};

use super::added::{AddedToken, AddedTokens};
use super::bpe::{Alphabet, Borders, Bpe, Fallback, JoinTable, SPACE_MARK, rank_of_score};
use super::error::{Result, TokenizerError};
use super::families::{self, Family};
use super::normalize::{BertNormalizer, Normalizer};
use super::pretokenize::{Matcher, Step};
use super::special::{Roles, end_ids, is_special};
use super::vocab::{Join, NONE, PairTable, PieceIndex, Pieces, TokenId, TokenKind};
use super::wordpiece::WordPiece;
use super::{Model, Parts, Tokenizer, Vocabulary, byte_level, shown};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";

impl Tokenizer {
    /// The tokenizer of a GGUF file. A pre-tokenizer or a kind of vocabulary that is not known is refused by name.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let metadata = gguf.metadata();
        let model: &str = metadata.get(MODEL)?.ok_or_else(|| TokenizerError::missing(MODEL))?;
        let file = File::read(metadata, model)?;
        match model {
            "llama" => file.sentencepiece(),
            "gpt2" => file.byte_level_bpe(),
            "gemma4" => file.marked_bpe(),
            "bert" => file.wordpiece(),
            other => Err(TokenizerError::unsupported(format!("{MODEL} \"{other}\""))),
        }
    }
}

/// The vocabulary as the file has it.
struct File<'a> {
    metadata: Metadata<'a>,
    texts: Vec<&'a str>,
    kinds: Vec<TokenKind>,
    roles: Roles,
}

/// How the pieces are written down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// In the printable alphabet of byte-level vocabularies.
    ByteLevel,
    /// With [`SPACE_MARK`] for a space.
    SpaceMarks,
}

impl<'a> File<'a> {
    fn read(metadata: Metadata<'a>, model: &str) -> Result<Self> {
        let tokens: Array = metadata.get(TOKENS)?.ok_or_else(|| TokenizerError::missing(TOKENS))?;
        let texts = tokens.iter().enumerate().map(|(i, token)| match token {
            Value::String(text) => Ok(text),
            _ => Err(TokenizerError::invalid(format!("{TOKENS}[{i}]"), "is not a string")),
        });
        let texts: Vec<&str> = texts.collect::<Result<_>>()?;
        let mut file =
            Self { metadata, kinds: read_kinds(metadata, &texts)?, texts, roles: Roles::default() };
        file.read_roles(model)?;
        let roles = &file.roles;
        for id in [roles.bos, roles.eos, roles.padding, roles.separator, roles.mask].into_iter().flatten() {
            // Files without types leave them all "normal".
            if file.kinds[id as usize] == TokenKind::Normal && metadata.value(TYPES).is_none() {
                file.kinds[id as usize] = TokenKind::Control;
            }
        }
        Ok(file)
    }

    fn read_roles(&mut self, model: &str) -> Result<()> {
        // What the first files of each kind left unsaid.
        let defaults: [Option<TokenId>; 4] = match model {
            "llama" => [Some(1), Some(2), Some(0), None],
            "bert" => [Some(101), None, Some(100), Some(102)],
            _ => [None; 4],
        };
        let [bos, eos, unknown, separator] =
            defaults.map(|id| id.filter(|&id| (id as usize) < self.texts.len()));
        let first_bos = if model == "bert" { self.id("cls_token_id")? } else { None };
        let eos_ids = self.ids("eos_token_id")?;
        self.roles = Roles {
            bos: first_bos.or(self.id("bos_token_id")?).or(bos),
            eos: eos_ids.first().copied().or(eos),
            unknown: self.id("unknown_token_id")?.or(unknown),
            padding: self.id("padding_token_id")?,
            // Misspelt in the format itself.
            separator: self.id("seperator_token_id")?.or(separator),
            mask: self.id("mask_token_id")?,
            ends: eos_ids
                .into_iter()
                .chain(self.id("eot_token_id")?)
                .chain(self.id("eom_token_id")?)
                .collect(),
        };
        Ok(())
    }

    fn id(&self, key: &str) -> Result<Option<TokenId>> {
        Ok(self.ids(key)?.first().copied())
    }

    /// One id or a list of them.
    fn ids(&self, key: &str) -> Result<Vec<TokenId>> {
        let key = format!("tokenizer.ggml.{key}");
        let values = match self.metadata.value(&key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(array)) => array.iter().collect(),
            Some(value) => vec![value],
        };
        let id = |value: &Value| {
            let id = value.as_integer().and_then(|id| TokenId::try_from(id).ok());
            id.filter(|&id| (id as usize) < self.texts.len())
        };
        let problem = || format!("is not the id of one of the {} tokens", self.texts.len());
        values
            .iter()
            .map(|value| id(value).ok_or_else(|| TokenizerError::invalid(&*key, problem())))
            .collect()
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.metadata.get(&format!("tokenizer.ggml.{key}"))?.unwrap_or(default))
    }

    fn sentencepiece(self) -> Result<Tokenizer> {
        let scores: Vec<f32> = self.metadata.get(SCORES)?.ok_or_else(|| TokenizerError::missing(SCORES))?;
        if scores.len() != self.texts.len() {
            let problem = format!("has {} entries for {} tokens", scores.len(), self.texts.len());
            return Err(TokenizerError::invalid(SCORES, problem));
        }
        if let Some(i) = scores.iter().position(|score| score.is_nan()) {
            return Err(TokenizerError::invalid(format!("{SCORES}[{i}]"), "is not a number"));
        }
        let space_prefix = self.flag("add_space_prefix", true)?;
        let mut normalizers = Vec::new();
        if self.flag("remove_extra_whitespaces", false)? {
            normalizers.push(Normalizer::CollapseSpaces);
        }
        if space_prefix {
            normalizers.push(Normalizer::Prepend(SPACE_MARK.into()));
        }
        normalizers.push(mark_spaces());
        let vocabulary = self.vocabulary(Spelling::SpaceMarks)?;
        let model = Model::Bpe(Bpe {
            alphabet: Alphabet::Characters,
            joins: JoinTable::Pieces(scores.into_iter().map(rank_of_score).collect()),
            whole_words: false,
            fallback: Fallback { bytes: self.byte_tokens(), unknown: self.roles.unknown, fuse: true },
            borders: Borders::before_space_marks(vocabulary.joinable()),
        });
        let shown = Some(shown::with_spaces(&vocabulary)?);
        let adds_bos = self.flag("add_bos_token", true)?;
        self.finish(Rest {
            shown,
            normalizers,
            adds_bos,
            strips_leading_space: space_prefix,
            ..Rest::new(vocabulary, model)
        })
    }

    fn byte_level_bpe(self) -> Result<Tokenizer> {
        let Family { normalizers, steps, whole_words, adds_bos } = self.family()?;
        let vocabulary = self.vocabulary(Spelling::ByteLevel)?;
        let mut bytes = Box::new([NONE; 256]);
        for byte in 0..=255 {
            bytes[byte as usize] = vocabulary.find(&[byte]).unwrap_or(NONE);
        }
        let model = Model::Bpe(Bpe {
            alphabet: Alphabet::Bytes(bytes),
            joins: JoinTable::Pairs(self.merges(&vocabulary, Spelling::ByteLevel)?),
            whole_words,
            fallback: Fallback { unknown: self.roles.unknown, ..Fallback::default() },
            borders: Borders::default(),
        });
        let adds_bos = self.flag("add_bos_token", adds_bos)?;
        self.finish(Rest { normalizers, steps, adds_bos, ..Rest::new(vocabulary, model) })
    }

    /// Byte-pair encoding of text with space marks: Gemma 4.
    fn marked_bpe(self) -> Result<Tokenizer> {
        let vocabulary = self.vocabulary(Spelling::SpaceMarks)?;
        let model = Model::Bpe(Bpe {
            alphabet: Alphabet::Characters,
            joins: JoinTable::Pairs(self.merges(&vocabulary, Spelling::SpaceMarks)?),
            whole_words: false,
            fallback: Fallback { bytes: self.byte_tokens(), unknown: self.roles.unknown, fuse: true },
            borders: Borders::before_space_marks(vocabulary.joinable()),
        });
        let shown = Some(shown::with_spaces(&vocabulary)?);
        // Some files say false although the model needs it.
        self.finish(Rest {
            shown,
            normalizers: vec![mark_spaces()],
            adds_bos: true,
            ..Rest::new(vocabulary, model)
        })
    }

    fn wordpiece(self) -> Result<Tokenizer> {
        let field = |name| format!("tokenizer.ggml.{name}");
        let unknown = self.roles.unknown.ok_or_else(|| TokenizerError::missing(field("unknown_token_id")))?;
        let lowercase = self.flag("normalizer.lowercase", true)?;
        let strip_accents = self.flag("normalizer.strip_accents", lowercase)?;
        let vocabulary = self.vocabulary(Spelling::SpaceMarks)?;
        let model = Model::WordPiece(WordPiece {
            beginning: SPACE_MARK.into(),
            continuation: String::new(),
            unknown,
            longest_word: WordPiece::LONGEST_WORD,
        });
        let shown = Some(shown::with_spaces(&vocabulary)?);
        let bert = BertNormalizer::new(true, true, strip_accents, lowercase);
        self.finish(Rest {
            shown,
            normalizers: vec![Normalizer::Bert(bert)],
            steps: Step::bert(),
            adds_bos: true,
            strips_leading_space: true,
            ..Rest::new(vocabulary, model)
        })
    }

    fn family(&self) -> Result<Family> {
        let architecture: Option<&str> = self.metadata.get("general.architecture")?;
        let name = match self.metadata.get::<&str>(PRE)? {
            Some(name) => name,
            None => {
                architecture.and_then(families::family_of_architecture).ok_or(TokenizerError::Missing {
                    field: PRE.into(),
                    hint: "without it, text cannot be cut as the model was trained; convert the model again",
                })?
            }
        };
        families::family(name)?.ok_or_else(|| TokenizerError::unsupported(format!("{PRE} \"{name}\"")))
    }

    fn vocabulary(&self, spelling: Spelling) -> Result<Vocabulary> {
        let bytes = self.texts.iter().map(|text| text.len()).sum();
        let mut pieces = Pieces::with_capacity(self.texts.len(), bytes);
        let mut index = PieceIndex::with_capacity(self.texts.len());
        let mut decoded = Vec::new();
        for ((&text, &kind), id) in self.texts.iter().zip(&self.kinds).zip(0..) {
            let mut reachable = match kind {
                TokenKind::Normal => true,
                // Found in the text before, unless the file has marks where the text has spaces.
                TokenKind::UserDefined => spelling == Spelling::SpaceMarks && text.contains(SPACE_MARK),
                _ => false,
            };
            let mut piece = text.as_bytes();
            if spelling == Spelling::ByteLevel && kind == TokenKind::Normal {
                reachable = byte_level::decode(text, &mut decoded);
                piece = if reachable { &decoded } else { piece };
            }
            if !pieces.push(piece) {
                return Err(TokenizerError::invalid(TOKENS, "holds more than 4 GiB of text"));
            }
            if reachable
                && !text.is_empty()
                && let Err(other) = index.insert(&pieces, id)
            {
                let problem = format!("{text:?} is token {other} too");
                return Err(TokenizerError::invalid(format!("{TOKENS}[{id}]"), problem));
            }
        }
        Ok(Vocabulary { pieces, index, kinds: self.kinds.clone() })
    }

    fn merges(&self, vocabulary: &Vocabulary, spelling: Spelling) -> Result<PairTable> {
        let merges: Array = self.metadata.get(MERGES)?.ok_or_else(|| TokenizerError::missing(MERGES))?;
        let mut table = PairTable::with_capacity(merges.len());
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let mut unreachable: Option<HashSet<&str>> = None;
        for (merge, rank) in merges.iter().zip(0u32..) {
            let invalid = |problem: String| TokenizerError::invalid(format!("{MERGES}[{rank}]"), problem);
            let Value::String(merge) = merge else { return Err(invalid("is not a string".into())) };
            let parts = merge
                .char_indices()
                .skip(1)
                .find(|&(_, c)| c == ' ')
                .map(|(at, _)| (&merge[..at], &merge[at + 1..]));
            let Some((left_text, right_text)) = parts else {
                return Err(invalid(format!("{merge:?} is no pair")));
            };
            let spelled = match spelling {
                Spelling::ByteLevel => {
                    byte_level::decode(left_text, &mut left) && byte_level::decode(right_text, &mut right)
                }
                Spelling::SpaceMarks => {
                    left.clear();
                    left.extend_from_slice(left_text.as_bytes());
                    right.clear();
                    right.extend_from_slice(right_text.as_bytes());
                    true
                }
            };
            let joined = spelled.then(|| {
                let ids = (vocabulary.find(&left)?, vocabulary.find(&right)?);
                left.extend_from_slice(&right);
                Some((ids, vocabulary.find(&left)?))
            });
            if let Some(((left, right), id)) = joined.flatten() {
                table.insert(left, right, Join { rank, id });
                continue;
            }
            // A pair that involves a token no text leads to is never met; one that names no token is a mistake.
            let known = unreachable.get_or_insert_with(|| self.texts.iter().copied().collect());
            let whole = format!("{left_text}{right_text}");
            if let Some(name) = [left_text, right_text, &whole].into_iter().find(|name| !known.contains(name))
            {
                return Err(invalid(format!("{name:?} is no token")));
            }
        }
        Ok(table)
    }

    /// The tokens `<0x00>` to `<0xFF>`, if there are any.
    fn byte_tokens(&self) -> Option<Box<[TokenId; 256]>> {
        let mut table = Box::new([NONE; 256]);
        for ((text, kind), id) in self.texts.iter().zip(&self.kinds).zip(0..) {
            if *kind == TokenKind::Byte
                && let Some(byte) = shown::byte_of(text.as_bytes())
            {
                table[byte as usize] = id;
            }
        }
        table.iter().any(|&id| id != NONE).then_some(table)
    }

    fn finish(mut self, rest: Rest) -> Result<Tokenizer> {
        let Rest { mut vocabulary, shown, normalizers, steps, model, adds_bos, strips_leading_space } = rest;
        let find = |text: &str| {
            let id = self.texts.iter().position(|&other| other == text)?;
            Some((id as TokenId, self.kinds[id]))
        };
        let end_ids = end_ids(&self.roles, find);
        for &id in &end_ids {
            self.kinds[id as usize] = TokenKind::Control;
        }
        let strips_right = self.strips_whitespace_after_special(&model)?;
        let mut added = Vec::new();
        for ((&text, &kind), id) in self.texts.iter().zip(&self.kinds).zip(0..) {
            let special = is_special(kind, text);
            if special || kind == TokenKind::UserDefined {
                let keeps = !special || matches!(text, "<unk>" | "<s>" | "<|endoftext|>");
                added.push(AddedToken {
                    rstrip: strips_right && !keeps,
                    ..AddedToken::new(id, text, special)
                });
            }
        }
        let role = |id: Option<TokenId>, name: &str| {
            id.ok_or_else(|| TokenizerError::missing(format!("tokenizer.ggml.{name}")))
        };
        let prefix = if adds_bos { vec![role(self.roles.bos, "bos_token_id")?] } else { Vec::new() };
        let suffix = if matches!(model, Model::WordPiece(_)) {
            vec![role(self.roles.separator, "seperator_token_id")?]
        } else if self.flag("add_eos_token", false)? {
            vec![role(self.roles.eos, "eos_token_id")?]
        } else {
            Vec::new()
        };
        vocabulary.kinds = self.kinds;
        Ok(Tokenizer::new(Parts {
            vocabulary,
            shown,
            added: AddedTokens::new(added)?,
            added_normalized: AddedTokens::new(Vec::new())?,
            normalizers,
            steps,
            model,
            prefix,
            suffix,
            strips_leading_space,
            roles: self.roles,
            end_ids,
        }))
    }

    /// Phi-3's special tokens take the whitespace after them along, which no metadata says.
    fn strips_whitespace_after_special(&self, model: &Model) -> Result<bool> {
        let by_score = matches!(model, Model::Bpe(Bpe { joins: JoinTable::Pieces(_), .. }));
        let architecture: Option<&str> = self.metadata.get("general.architecture")?;
        Ok(by_score && architecture == Some("phi3"))
    }
}

/// What differs between the kinds of vocabulary.
struct Rest {
    vocabulary: Vocabulary,
    shown: Option<Pieces>,
    normalizers: Vec<Normalizer>,
    steps: Vec<Step>,
    model: Model,
    adds_bos: bool,
    strips_leading_space: bool,
}

impl Rest {
    fn new(vocabulary: Vocabulary, model: Model) -> Self {
        Self {
            vocabulary,
            shown: None,
            normalizers: Vec::new(),
            steps: Vec::new(),
            model,
            adds_bos: false,
            strips_leading_space: false,
        }
    }
}

fn mark_spaces() -> Normalizer {
    Normalizer::Replace { pattern: Matcher::Literal(" ".into()), with: SPACE_MARK.into() }
}

fn read_kinds(metadata: Metadata, texts: &[&str]) -> Result<Vec<TokenKind>> {
    let Some(types) = metadata.get::<Array>(TYPES)? else { return Ok(vec![TokenKind::Normal; texts.len()]) };
    if types.len() != texts.len() {
        let problem = format!("has {} entries for {} tokens", types.len(), texts.len());
        return Err(TokenizerError::invalid(TYPES, problem));
    }
    let kinds = types.iter().zip(texts).enumerate().map(|(id, (code, text))| {
        Ok(match code.as_integer() {
            // What converters put where the vocabulary has no token.
            Some(_) if is_filler(text, id) => TokenKind::Unused,
            Some(0 | 1) => TokenKind::Normal,
            Some(2) => TokenKind::Unknown,
            Some(3) => TokenKind::Control,
            Some(4) => TokenKind::UserDefined,
            Some(5) => TokenKind::Unused,
            Some(6) => TokenKind::Byte,
            _ => {
                return Err(TokenizerError::invalid(
                    format!("{TYPES}[{id}]"),
                    format!("{code:?} is no type"),
                ));
            }
        })
    });
    kinds.collect()
}

/// Whether a token is `[PAD151646]`, with its own id for the number.
fn is_filler(text: &str, id: usize) -> bool {
    let number = text.strip_prefix("[PAD").and_then(|text| text.strip_suffix(']'));
    number.and_then(|number| number.parse().ok()) == Some(id)
}
