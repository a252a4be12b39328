//! Vocabularies in GGUF metadata (`tokenizer.ggml.*`).

use std::collections::HashSet;
use std::sync::OnceLock;

use akunu_format::gguf::{Array, Gguf, Metadata, Value, ValueType};

use super::assemble::{Recipe, TokenList, mark_spaces, required};
use super::bpe::{Alphabet, Borders, Bpe, Fallback, JoinTable, SPACE_MARK};
use super::charsmap::{CharsMap, Lookup};
use super::error::{Result, TokenizerError};
use super::families::{self, Family};
use super::merges::{self, Merges};
use super::normalize::{BertNormalizer, Normalizer, excessive_growth};
use super::pretokenize::Step;
use super::sentencepiece::{self, SentencePiece};
use super::special::Roles;
use super::unigram::Unigram;
use super::vocab::{PairTable, TokenId, TokenKind};
use super::wordpiece::WordPiece;
use super::{Model, Spelling, Tokenizer, Vocabulary, shown};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";

impl Tokenizer {
    /// The tokenizer of a GGUF file. A pre-tokenizer or a kind of vocabulary that is not known is refused by name.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let metadata = gguf.metadata();
        let model: &str = metadata.get(MODEL)?.ok_or_else(|| TokenizerError::missing(MODEL))?;
        let file = File { metadata, tokens: read_tokens(metadata, model)? };
        match model {
            "llama" => file.sentencepiece(),
            "gpt2" => file.byte_level_bpe(),
            "gemma4" => file.marked_bpe(),
            "bert" => file.wordpiece(),
            "t5" => file.unigram(),
            other => Err(TokenizerError::unsupported(format!("{MODEL} \"{other}\""))),
        }
    }
}

struct File<'a> {
    metadata: Metadata<'a>,
    tokens: TokenList<'a>,
}

impl File<'_> {
    fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.metadata.get(&key(name))?.unwrap_or(default))
    }

    fn architecture(&self) -> Result<Option<&str>> {
        Ok(self.metadata.get("general.architecture")?)
    }

    fn sentencepiece(self) -> Result<Tokenizer> {
        let scores: Vec<f32> = self.metadata.get(SCORES)?.ok_or_else(|| TokenizerError::missing(SCORES))?;
        let options = SentencePiece {
            space_prefix: self.flag("add_space_prefix", true)?,
            collapses_spaces: self.flag("remove_extra_whitespaces", false)?,
            prefix: self.prefix(true)?,
            suffix: self.suffix(false)?,
            // Which no metadata says.
            special_strips_right: self.architecture()? == Some("phi3"),
        };
        sentencepiece::tokenizer(self.tokens, scores, SCORES, options)
    }

    fn byte_level_bpe(self) -> Result<Tokenizer> {
        let Family { normalizers, steps, whole_words, adds_bos } = self.family()?;
        let vocabulary = self.tokens.vocabulary(Spelling::Bytes)?;
        let model = Model::Bpe(Bpe {
            alphabet: Alphabet::Bytes(vocabulary.byte_pieces()),
            joins: JoinTable::Pairs(self.merges(&vocabulary, Spelling::Bytes)?),
            whole_words,
            fallback: Fallback { unknown: self.tokens.roles.unknown, ..Fallback::default() },
            borders: Borders::default(),
        });
        let (prefix, suffix) = (self.prefix(adds_bos)?, self.suffix(false)?);
        self.tokens.finish(Recipe { normalizers, steps, prefix, suffix, ..Recipe::new(vocabulary, model) })
    }

    /// Byte-pair encoding of text with space marks: Gemma 4.
    fn marked_bpe(self) -> Result<Tokenizer> {
        let vocabulary = self.tokens.vocabulary(Spelling::Text)?;
        let (bytes, unknown) = (self.tokens.byte_tokens(), self.tokens.roles.unknown);
        let model = Model::Bpe(Bpe {
            alphabet: Alphabet::Characters,
            joins: JoinTable::Pairs(self.merges(&vocabulary, Spelling::Text)?),
            whole_words: false,
            fallback: Fallback { bytes, unknown, fuse: true },
            borders: Borders::before_space_marks(vocabulary.joinable()),
        });
        let recipe = Recipe {
            shown: Some(shown::with_spaces(&vocabulary)?),
            normalizers: vec![mark_spaces()],
            // Some files say otherwise although the model needs it.
            prefix: vec![required(self.tokens.roles.bos, key("bos_token_id"))?],
            suffix: self.suffix(false)?,
            ..Recipe::new(vocabulary, model)
        };
        self.tokens.finish(recipe)
    }

    fn wordpiece(self) -> Result<Tokenizer> {
        let lowercase = self.flag("normalizer.lowercase", true)?;
        let strip_accents = self.flag("normalizer.strip_accents", lowercase)?;
        let roles = &self.tokens.roles;
        let model = Model::WordPiece(WordPiece {
            beginning: SPACE_MARK.into(),
            continuation: String::new(),
            unknown: Some(required(roles.unknown, key("unknown_token_id"))?),
            longest_word: WordPiece::LONGEST_WORD,
        });
        let vocabulary = self.tokens.vocabulary(Spelling::Text)?;
        let recipe = Recipe {
            shown: Some(shown::with_spaces(&vocabulary)?),
            normalizers: vec![Normalizer::Bert(BertNormalizer::new(true, true, strip_accents, lowercase))],
            steps: Step::bert(),
            prefix: vec![required(roles.bos, key("cls_token_id"))?],
            suffix: vec![required(roles.separator, key("seperator_token_id"))?],
            strips_leading_space: true,
            ..Recipe::new(vocabulary, model)
        };
        self.tokens.finish(recipe)
    }

    /// Unigram models: T5's, XLM-RoBERTa's and their relatives'.
    fn unigram(self) -> Result<Tokenizer> {
        let mut scores: Vec<f64> =
            self.metadata.get(SCORES)?.ok_or_else(|| TokenizerError::missing(SCORES))?;
        self.tokens.check_scores(&scores, SCORES)?;
        // User-defined tokens are taken wherever they fit. All others are never found, and must not count for the lowest score: scores are
        // logarithms, none of them above zero.
        let others =
            scores.iter_mut().zip(&self.tokens.kinds).filter(|(_, kind)| **kind != TokenKind::Normal);
        others.for_each(|(score, _)| *score = 0.0);
        let vocabulary = self.tokens.unigram_vocabulary()?;
        let fallback =
            Fallback { bytes: self.tokens.byte_tokens(), unknown: self.tokens.roles.unknown, fuse: true };
        let model = Model::Unigram(Unigram::new(&vocabulary, scores, fallback, SCORES)?);
        let mut normalizers: Vec<Normalizer> = self.charsmap()?.into_iter().collect();
        let space_prefix = self.flag("add_space_prefix", false)?;
        let collapses_spaces = self.flag("remove_extra_whitespaces", false)?;
        normalizers.push(match (collapses_spaces, space_prefix) {
            // In front of the first word too, whatever the other key says: so does llama.cpp.
            (true, _) => Normalizer::MarkWords,
            (false, true) => Normalizer::MarkSpacesAndFront,
            (false, false) => mark_spaces(),
        });
        if let Some(growth) = excessive_growth(&normalizers) {
            let what = format!("{CHARSMAP} that makes text {growth} times as long");
            return Err(TokenizerError::unsupported(what));
        }
        let recipe = Recipe {
            shown: Some(shown::with_spaces(&vocabulary)?),
            normalizers,
            prefix: self.prefix(false)?,
            suffix: self.suffix(true)?,
            strips_leading_space: collapses_spaces || space_prefix,
            ..Recipe::new(vocabulary, model)
        };
        self.tokens.finish(recipe)
    }

    fn charsmap(&self) -> Result<Option<Normalizer>> {
        let Some(bytes) = self.metadata.get::<Array>(CHARSMAP)? else { return Ok(None) };
        if !matches!(bytes.element_type(), ValueType::U8 | ValueType::I8) {
            let problem = format!("is an array of {}, not of bytes", bytes.element_type());
            return Err(TokenizerError::invalid(CHARSMAP, problem));
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let map = CharsMap::read(bytes.encoded(), Lookup::Longest);
        let map = map.ok_or_else(|| TokenizerError::invalid(CHARSMAP, "is damaged"))?;
        Ok(Some(Normalizer::CharsMap(map)))
    }

    fn prefix(&self, default: bool) -> Result<Vec<TokenId>> {
        let wanted = self.flag("add_bos_token", default)?;
        Ok(if wanted { vec![required(self.tokens.roles.bos, key("bos_token_id"))?] } else { Vec::new() })
    }

    fn suffix(&self, default: bool) -> Result<Vec<TokenId>> {
        let wanted = self.flag("add_eos_token", default)?;
        Ok(if wanted { vec![required(self.tokens.roles.eos, key("eos_token_id"))?] } else { Vec::new() })
    }

    fn family(&self) -> Result<Family> {
        let name = match self.metadata.get::<&str>(PRE)? {
            Some(name) => name,
            None => self.architecture()?.and_then(families::family_of_architecture).ok_or(
                TokenizerError::Missing {
                    field: PRE.into(),
                    hint: "without it, text cannot be cut as the model was trained; convert the model again",
                },
            )?,
        };
        families::family(name)?.ok_or_else(|| TokenizerError::unsupported(format!("{PRE} \"{name}\"")))
    }

    fn merges(&self, vocabulary: &Vocabulary, spelling: Spelling) -> Result<PairTable> {
        let merges: Array = self.metadata.get(MERGES)?.ok_or_else(|| TokenizerError::missing(MERGES))?;
        if merges.element_type() != ValueType::String {
            let problem = format!("is an array of {}, not of strings", merges.element_type());
            return Err(TokenizerError::invalid(MERGES, problem));
        }
        let others: OnceLock<HashSet<&[u8]>> = OnceLock::new();
        let is_token = |piece: &[u8]| {
            let tokens = || self.tokens.texts.iter().zip(&vocabulary.kinds);
            let unspelled = || tokens().filter(|(_, kind)| **kind != TokenKind::Normal);
            others.get_or_init(|| unspelled().map(|(text, _)| text.as_bytes()).collect()).contains(piece)
        };
        let part = merges.len().div_ceil(merges::parts(merges.len())).max(1);
        let (mut lists, mut rest) = (Vec::new(), strings(merges));
        for first in (0..merges.len()).step_by(part) {
            let list = rest.clone().take(part).zip(first..).map(pair);
            lists.push((part.min(merges.len() - first), list));
            rest.by_ref().take(part).for_each(drop);
        }
        Merges { vocabulary, spelling, field: MERGES, is_token: &is_token }.table(lists)
    }
}

/// The two pieces of a merge, whose place in the list is given too.
fn pair((merge, place): (&[u8], usize)) -> Result<(&[u8], &[u8])> {
    // The left piece may begin with a space itself.
    let Some(space) = merge.iter().skip(1).position(|&byte| byte == b' ') else {
        let problem = format!("{:?} is no pair", String::from_utf8_lossy(merge));
        return Err(TokenizerError::invalid(format!("{MERGES}[{place}]"), problem));
    };
    let (left, right) = merge.split_at(space + 1);
    Ok((left, &right[1..]))
}

/// The elements of an array of strings as bytes: to take them for text, they would have to be checked again.
fn strings(array: Array<'_>) -> impl Iterator<Item = &[u8]> + Clone {
    let mut rest = array.encoded();
    std::iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk()?;
        let (string, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        rest = after;
        Some(string)
    })
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

fn read_tokens<'a>(metadata: Metadata<'a>, model: &str) -> Result<TokenList<'a>> {
    let tokens: Array = metadata.get(TOKENS)?.ok_or_else(|| TokenizerError::missing(TOKENS))?;
    let texts = tokens.iter().enumerate().map(|(i, token)| match token {
        Value::String(text) => Ok(text),
        _ => Err(TokenizerError::invalid(format!("{TOKENS}[{i}]"), "is not a string")),
    });
    let texts: Vec<&str> = texts.collect::<Result<_>>()?;
    let mut kinds = read_kinds(metadata, &texts)?;
    let roles = read_roles(metadata, model, texts.len())?;
    if metadata.value(TYPES).is_none() {
        let special = [roles.bos, roles.eos, roles.padding, roles.separator, roles.mask];
        special.into_iter().flatten().for_each(|id| kinds[id as usize] = TokenKind::Control);
    }
    Ok(TokenList::new(texts, kinds, roles, TOKENS))
}

fn read_kinds(metadata: Metadata, texts: &[&str]) -> Result<Vec<TokenKind>> {
    let Some(types) = metadata.get::<Array>(TYPES)? else { return Ok(vec![TokenKind::Normal; texts.len()]) };
    if types.len() != texts.len() {
        let problem = format!("has {} entries for {} tokens", types.len(), texts.len());
        return Err(TokenizerError::invalid(TYPES, problem));
    }
    let kinds = types.iter().zip(texts).enumerate().map(|(id, (code, text))| {
        let kind = code.as_integer().and_then(TokenKind::from_code);
        let kind = kind.ok_or_else(|| {
            let shown =
                code.as_integer().map_or_else(|| code.value_type().to_string(), |code| code.to_string());
            TokenizerError::invalid(format!("{TYPES}[{id}]"), format!("{shown} is no type"))
        })?;
        // What converters put where the vocabulary has no token is no text either.
        Ok(if is_filler(text, id) || text.is_empty() { TokenKind::Unused } else { kind })
    });
    kinds.collect()
}

/// Whether a token is `[PAD151646]`, with its own id for the number.
fn is_filler(text: &str, id: usize) -> bool {
    let number = text.strip_prefix("[PAD").and_then(|text| text.strip_suffix(']'));
    number.and_then(|number| number.parse().ok()) == Some(id)
}

fn read_roles(metadata: Metadata, model: &str, tokens: usize) -> Result<Roles> {
    let ids = |name: &str| read_ids(metadata, &key(name), tokens);
    let id = |name: &str| ids(name).map(|ids| ids.first().copied());
    // What the first files of each kind left unsaid.
    let defaults: [Option<TokenId>; 5] = match model {
        "llama" => [Some(1), Some(2), Some(0), None, None],
        "bert" => [Some(101), None, Some(100), Some(102), None],
        "t5" => [None, Some(1), Some(2), None, Some(0)],
        _ => [None; 5],
    };
    let [bos, eos, unknown, separator, padding] = defaults.map(|id| id.filter(|&id| (id as usize) < tokens));
    let classifier = if model == "bert" { id("cls_token_id")? } else { None };
    let eos_ids = ids("eos_token_id")?;
    Ok(Roles {
        bos: classifier.or(id("bos_token_id")?).or(bos),
        eos: eos_ids.first().copied().or(eos),
        unknown: id("unknown_token_id")?.or(unknown),
        padding: id("padding_token_id")?.or(padding),
        // Misspelt in the format itself.
        separator: id("seperator_token_id")?.or(separator),
        mask: id("mask_token_id")?,
        ends: eos_ids.into_iter().chain(id("eot_token_id")?).chain(id("eom_token_id")?).collect(),
    })
}

/// One id or a list of them; none when the key is absent.
fn read_ids(metadata: Metadata, key: &str, tokens: usize) -> Result<Vec<TokenId>> {
    let id = |value: Value| {
        let id = value.as_integer().and_then(|id| TokenId::try_from(id).ok());
        id.filter(|&id| (id as usize) < tokens)
    };
    let ids: Option<Vec<_>> = match metadata.value(key) {
        None => return Ok(Vec::new()),
        Some(Value::Array(array)) if array.len() > tokens => {
            let problem = format!("has {} entries for {tokens} tokens", array.len());
            return Err(TokenizerError::invalid(key, problem));
        }
        Some(Value::Array(array)) => array.iter().map(id).collect(),
        Some(value) => id(value).map(|id| vec![id]),
    };
    ids.ok_or_else(|| TokenizerError::invalid(key, format!("is not the id of one of the {tokens} tokens")))
}
