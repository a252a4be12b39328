//! Hugging Face's `tokenizer.json`, with what `tokenizer_config.json` and `generation_config.json` add to it.

mod components;
mod schema;

use std::borrow::Cow;

use components::{Decoding, Ends};
use schema::{Config, Generation, PairList, PieceList};

use super::added::{AddedToken, AddedTokens, check_length};
use super::bpe::{Alphabet, Borders, Bpe, Fallback, JoinTable};
use super::error::{Result, TokenizerError};
use super::merges::{self, Merges};
use super::normalize::Normalizer;
use super::special::{Roles, end_ids, is_special};
use super::unigram::Unigram;
use super::vocab::{NONE, PairTable, PieceIndex, Pieces, TokenId, TokenKind};
use super::wordpiece::WordPiece;
use super::{Model, PairEnds, Parts, Spelling, Tokenizer, Vocabulary, shown};

pub(super) const FILE: &str = "tokenizer.json";
pub(super) const CONFIG: &str = "tokenizer_config.json";
pub(super) const GENERATION: &str = "generation_config.json";

/// The longest words a WordPiece model may want to cut; models want a hundred.
const MOST_WORD_CHARACTERS: usize = 1000;

impl Tokenizer {
    /// The tokenizer a `tokenizer.json` describes. A component that is not known is refused by name.
    ///
    /// `config` is the text of `tokenizer_config.json`, `generation` that of `generation_config.json`: they name the
    /// tokens that begin and end sequences.
    pub fn from_json(tokenizer: &str, config: Option<&str>, generation: Option<&str>) -> Result<Self> {
        let parse = |source, file| TokenizerError::Json { file, source };
        let file = serde_json::from_str(tokenizer).map_err(|error| parse(error, FILE))?;
        let config = config.map(serde_json::from_str).transpose().map_err(|error| parse(error, CONFIG))?;
        let generation =
            generation.map(serde_json::from_str).transpose().map_err(|error| parse(error, GENERATION))?;
        build(file, &config.unwrap_or_default(), &generation.unwrap_or_default())
    }
}

fn build(mut file: schema::File, config: &Config, generation: &Generation) -> Result<Tokenizer> {
    let normalizers = file.normalizer.map(components::normalizers).transpose()?.unwrap_or_default();
    let cutting = file.pre_tokenizer.map(components::steps).transpose()?.unwrap_or_default();
    let decoding = file.decoder.map_or(Ok(Decoding::default()), components::decoding)?;
    let ends = file.post_processor.map_or(Ok(Ends::default()), components::ends)?;

    let scores = file.model.vocab.scores.take();
    let mut tokens = Tokens::new(&file.model.vocab.pieces, &file.added_tokens)?;
    tokens.set_kinds(&file.model, &file.added_tokens);
    let roles = roles(config, generation, &tokens, &ends, &file.model)?;
    let end_ids = end_ids(&roles, |text| tokens.find(text));
    for &id in &end_ids {
        tokens.kinds[id as usize] = TokenKind::Control;
    }
    let Ends { mut prefix, mut suffix, pair } = ends;
    let field = format!("{FILE}: post_processor");
    tokens.check(&prefix, &field)?;
    tokens.check(&suffix, &field)?;
    if let Some(PairEnds { before, between, after, .. }) = &pair {
        [before, between, after].into_iter().try_for_each(|ids| tokens.check(ids, &field))?;
    }
    let spelling = if cutting.byte_level { Spelling::Bytes } else { Spelling::Text };
    // Files from before models had types say it by what they have.
    let is_unigram = file.model.kind.as_deref().map_or(scores.is_some(), |kind| kind == "Unigram");
    let vocabulary = tokens.vocabulary(spelling, is_unigram)?;
    let model = match file.model.kind.as_deref() {
        _ if is_unigram => unigram(&file.model, scores, tokens, &vocabulary)?,
        Some(kind @ ("BPE" | "WordPiece")) if scores.is_some() => {
            let problem = format!("has scores and no ids, which {kind} needs");
            return Err(TokenizerError::invalid(format!("{FILE}: model.vocab"), problem));
        }
        Some("BPE") => bpe(&file.model, &tokens, &vocabulary, spelling)?,
        None if file.model.merges.is_some() => bpe(&file.model, &tokens, &vocabulary, spelling)?,
        Some("WordPiece") => wordpiece(&file.model, &tokens)?,
        Some(other) => return Err(TokenizerError::unsupported(format!("{FILE}: model \"{other}\""))),
        None => return Err(TokenizerError::missing(format!("{FILE}: model.type"))),
    };
    let shown = match &decoding {
        Decoding::Bytes => None,
        Decoding::Marks { .. } => Some(shown::with_spaces(&vocabulary)?),
        Decoding::Words { prefix, cleanup } => Some(shown::as_words(&vocabulary, prefix, *cleanup)?),
    };

    let (added, added_normalized) = added_tokens(&file.added_tokens, &vocabulary, &normalizers)?;
    frame(&mut prefix, config.add_bos_token, roles.bos, "bos_token")?;
    frame(&mut suffix, config.add_eos_token, roles.eos, "eos_token")?;
    Ok(Tokenizer::new(Parts {
        shown,
        added: AddedTokens::new(added)?,
        added_normalized: AddedTokens::new(added_normalized)?,
        normalizers,
        steps: cutting.steps,
        model,
        prefix,
        suffix,
        pair,
        strips_leading_space: decoding.strips_leading_space(),
        roles,
        end_ids,
        vocabulary,
    }))
}

/// Bytes that all added tokens may have together after normalising, beside those they had before. Real ones hardly grow.
const ADDED_GROWTH: usize = 1 << 16;

/// The tokens to look for in text as it is, and in text that was normalised.
fn added_tokens(
    tokens: &[schema::Added<'_>],
    vocabulary: &Vocabulary,
    normalizers: &[Normalizer],
) -> Result<(Vec<AddedToken>, Vec<AddedToken>)> {
    let (mut added, mut added_normalized) = (Vec::new(), Vec::new());
    let mut room = ADDED_GROWTH + tokens.iter().map(|token| token.content.len()).sum::<usize>();
    for token in tokens {
        check_length(token.id, &token.content)?;
        let special = is_special(vocabulary.kinds[token.id as usize], &token.content);
        let normalized = token.normalized.unwrap_or(!token.special) && !normalizers.is_empty();
        let text = if normalized {
            normalizers.iter().fold(token.content.as_ref().into(), |text, step| step.apply(text))
        } else {
            Cow::Borrowed(token.content.as_ref())
        };
        room = room.checked_sub(text.len()).ok_or_else(|| {
            TokenizerError::unsupported(format!("{FILE}: a normalizer that makes added tokens much longer"))
        })?;
        let list = if normalized { &mut added_normalized } else { &mut added };
        let (lstrip, rstrip, single_word) = (token.lstrip, token.rstrip, token.single_word);
        list.push(AddedToken { lstrip, rstrip, single_word, ..AddedToken::new(token.id, text, special) });
    }
    Ok((added, added_normalized))
}

/// What the configuration says about a token before or after the text overrules the post-processor.
fn frame(ids: &mut Vec<TokenId>, wanted: Option<bool>, id: Option<TokenId>, name: &str) -> Result<()> {
    match (wanted, id) {
        (None, _) => {}
        (Some(true), None) => return Err(TokenizerError::missing(format!("{CONFIG}: {name}"))),
        (Some(true), Some(id)) if !ids.contains(&id) => ids.push(id),
        (Some(false), Some(id)) => ids.retain(|&other| other != id),
        (Some(_), _) => {}
    }
    Ok(())
}

/// The texts and kinds of all tokens by id; ids without a token are unused and empty.
struct Tokens<'a> {
    texts: Vec<&'a str>,
    kinds: Vec<TokenKind>,
    /// Tokens of the model itself, not only added.
    in_model: Vec<bool>,
    /// The texts once more, and the table that finds them.
    pieces: Pieces,
    index: PieceIndex,
}

impl<'a> Tokens<'a> {
    fn new(pieces: &'a PieceList, added: &'a [schema::Added<'a>]) -> Result<Self> {
        let entries = pieces.iter().map(|(text, id)| (text, id, true));
        let entries = entries.chain(added.iter().map(|token| (token.content.as_ref(), token.id, false)));
        let count = pieces.len() + added.len();
        // A few holes are common, for embedding tables of round size; more than tokens are a mistake.
        let limit = 2 * count + 4096;
        let size = entries.clone().map(|(_, id, _)| id as usize + 1).max().unwrap_or(0);
        if size > limit {
            let problem = format!("id {} is too high for {count} tokens", size - 1);
            return Err(TokenizerError::invalid(format!("{FILE}: model.vocab"), problem));
        }
        let mut texts = vec![""; size];
        let (mut kinds, mut model_tokens) = (vec![TokenKind::Unused; size], vec![false; size]);
        for (text, id, in_model) in entries {
            let slot = id as usize;
            if kinds[slot] != TokenKind::Unused && (in_model || texts[slot] != text) {
                let problem = format!("is both {:?} and {text:?}", texts[slot]);
                return Err(TokenizerError::invalid(format!("{FILE}: token {id}"), problem));
            }
            texts[slot] = text;
            kinds[slot] = TokenKind::Normal;
            model_tokens[slot] |= in_model;
        }
        let mut pieces = Pieces::with_capacity(size, texts.iter().map(|text| text.len()).sum());
        let mut index = PieceIndex::with_capacity(count);
        for ((text, kind), id) in texts.iter().zip(&kinds).zip(0..) {
            let invalid = |problem| Err(TokenizerError::invalid(format!("{FILE}: token {id}"), problem));
            if !pieces.push(text.as_bytes()) {
                return invalid("is beyond 4 GiB of text".to_owned());
            }
            if *kind != TokenKind::Unused
                && let Err(other) = index.insert(&pieces, id)
            {
                return invalid(format!("{text:?} is token {other} too"));
            }
        }
        Ok(Self { texts, kinds, in_model: model_tokens, pieces, index })
    }

    fn id(&self, text: &str) -> Option<TokenId> {
        self.index.get(&self.pieces, text.as_bytes())
    }

    fn set_kinds(&mut self, model: &schema::Model, added: &[schema::Added]) {
        if model.byte_fallback {
            for (text, kind) in self.texts.iter().zip(&mut self.kinds) {
                if shown::byte_of(text.as_bytes()).is_some() {
                    *kind = TokenKind::Byte;
                }
            }
        }
        for token in added {
            let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
            self.kinds[token.id as usize] = kind;
        }
        if let Some(id) = self.unknown(model) {
            self.kinds[id as usize] = TokenKind::Unknown;
        }
    }

    /// The token for what the vocabulary cannot spell, which files have by name or by id.
    fn unknown(&self, model: &schema::Model) -> Option<TokenId> {
        let named = model.unk_token.as_deref().and_then(|name| self.id(name));
        named.or(model.unk_id.filter(|&id| (id as usize) < self.texts.len()))
    }

    /// The tokens of single bytes.
    fn bytes(&self) -> Box<[TokenId; 256]> {
        let mut table = Box::new([NONE; 256]);
        (0..=255u8).for_each(|byte| {
            table[byte as usize] = self.id(&format!("<0x{byte:02X}>")).unwrap_or(NONE);
        });
        table
    }

    fn find(&self, text: &str) -> Option<(TokenId, TokenKind)> {
        self.id(text).map(|id| (id, self.kinds[id as usize]))
    }

    fn check(&self, ids: &[TokenId], field: &str) -> Result<()> {
        match ids.iter().find(|&&id| id as usize >= self.texts.len()) {
            Some(id) => Err(TokenizerError::invalid(field, format!("{id} is not the id of a token"))),
            None => Ok(()),
        }
    }

    /// With `names_bytes`, text that names a byte (`<0x0A>`) leads to that byte's token, as in Hugging Face's Unigram models.
    fn vocabulary(&self, spelling: Spelling, names_bytes: bool) -> Result<Vocabulary> {
        let text = |id: usize| match self.kinds[id] {
            TokenKind::UserDefined => !is_special(self.kinds[id], self.texts[id]),
            kind => names_bytes && kind == TokenKind::Byte,
        };
        let indexed = |id| spelling == Spelling::Text && self.in_model[id] && text(id);
        Vocabulary::new(&self.texts, self.kinds.clone(), spelling, indexed, "tokenizer.json: tokens")
    }
}

fn bpe(model: &schema::Model, tokens: &Tokens, vocabulary: &Vocabulary, spelling: Spelling) -> Result<Model> {
    let unsupported = |what: &str| Err(TokenizerError::unsupported(format!("{FILE}: model.{what}")));
    if model.dropout.is_some_and(|dropout| dropout != 0.0) {
        return unsupported("dropout");
    }
    if model.continuing_subword_prefix.as_ref().is_some_and(|prefix| !prefix.is_empty()) {
        return unsupported("continuing_subword_prefix");
    }
    if model.end_of_word_suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
        return unsupported("end_of_word_suffix");
    }
    let Some(merges) = &model.merges else {
        return Err(TokenizerError::missing(format!("{FILE}: model.merges")));
    };
    let joins = JoinTable::Pairs(pairs(merges, tokens, vocabulary, spelling)?);
    let unknown = model.unk_token.as_deref().map(|name| {
        let field = format!("{FILE}: model.unk_token");
        tokens.id(name).ok_or_else(|| TokenizerError::invalid(field, format!("{name:?} is no token")))
    });
    let bytes = spelling == Spelling::Bytes;
    Ok(Model::Bpe(Bpe {
        alphabet: if bytes { Alphabet::Bytes(vocabulary.byte_pieces()) } else { Alphabet::Characters },
        joins,
        whole_words: model.ignore_merges,
        fallback: Fallback {
            bytes: model.byte_fallback.then(|| tokens.bytes()),
            unknown: unknown.transpose()?,
            fuse: model.fuse_unk,
        },
        borders: if bytes { Borders::default() } else { Borders::before_space_marks(vocabulary.joinable()) },
    }))
}

fn pairs(
    merges: &PairList,
    tokens: &Tokens,
    vocabulary: &Vocabulary,
    spelling: Spelling,
) -> Result<PairTable> {
    let field = format!("{FILE}: model.merges");
    let is_token = |text: &[u8]| tokens.index.get(&tokens.pieces, text).is_some();
    let part = merges.len().div_ceil(merges::parts(merges.len())).max(1);
    let lists = (0..merges.len()).step_by(part).map(|first| {
        let places = first..merges.len().min(first + part);
        let pairs = merges.range(places.clone()).zip(first..).map(|(pair, place)| {
            let (left, right) = pair.map_err(|text| {
                TokenizerError::invalid(format!("{field}[{place}]"), format!("{text:?} is no pair"))
            })?;
            Ok((left.as_bytes(), right.as_bytes()))
        });
        (places.len(), pairs)
    });
    Merges { vocabulary, spelling, field: &field, is_token: &is_token }.table(lists.collect())
}

/// Takes the tokens, to have their memory back before pieces are put in order.
fn unigram(
    model: &schema::Model,
    scores: Option<Vec<f64>>,
    tokens: Tokens,
    vocabulary: &Vocabulary,
) -> Result<Model> {
    let field = format!("{FILE}: model.vocab");
    let scores = scores.ok_or_else(|| TokenizerError::invalid(&field, "has no scores"))?;
    if let Some(id) = model.unk_id {
        tokens.check(&[id], &format!("{FILE}: model.unk_id"))?;
    }
    let bytes = model.byte_fallback.then(|| tokens.bytes());
    let fallback = Fallback { bytes, unknown: tokens.unknown(model), fuse: true };
    drop(tokens);
    Ok(Model::Unigram(Unigram::new(vocabulary, scores, fallback, &field)?))
}

fn wordpiece(model: &schema::Model, tokens: &Tokens) -> Result<Model> {
    let field = || format!("{FILE}: model.unk_token");
    let name = model.unk_token.as_deref().ok_or_else(|| TokenizerError::missing(field()))?;
    let unknown = tokens.id(name);
    let continuation = model.continuing_subword_prefix.clone().unwrap_or_else(|| "##".into());
    let longest_word = model.max_input_chars_per_word.unwrap_or(WordPiece::LONGEST_WORD);
    // Cutting a word takes time in proportion to the square of its length.
    if longest_word > MOST_WORD_CHARACTERS || continuation.len() > components::LONGEST_PREFIX {
        let what = "model.max_input_chars_per_word or continuing_subword_prefix of this size";
        return Err(TokenizerError::unsupported(format!("{FILE}: {what}")));
    }
    Ok(Model::WordPiece(WordPiece {
        beginning: String::new(),
        continuation,
        unknown: Some(
            unknown.ok_or_else(|| TokenizerError::invalid(field(), format!("{name:?} is no token")))?,
        ),
        longest_word,
    }))
}

fn roles(
    config: &Config,
    generation: &Generation,
    tokens: &Tokens,
    ends: &Ends,
    model: &schema::Model,
) -> Result<Roles> {
    let named = |name: &Option<schema::Name>| name.as_ref().and_then(|name| tokens.id(name.as_str()));
    let listed = |ids: &Option<schema::Ids>, field: &str| {
        let ids = ids.as_ref().map_or(&[][..], schema::Ids::as_slice);
        tokens.check(ids, &format!("{GENERATION}: {field}")).map(|()| ids.to_vec())
    };
    let eos_ids = listed(&generation.eos_token_id, "eos_token_id")?;
    let bos_ids = listed(&generation.bos_token_id, "bos_token_id")?;
    let padding_ids = listed(&generation.pad_token_id, "pad_token_id")?;
    let first = ends.prefix.first().copied().filter(|&id| (id as usize) < tokens.texts.len());
    Ok(Roles {
        bos: named(&config.bos_token).or(named(&config.cls_token)).or(bos_ids.first().copied()).or(first),
        eos: named(&config.eos_token).or(eos_ids.first().copied()),
        unknown: tokens.unknown(model).or(named(&config.unk_token)),
        padding: named(&config.pad_token).or(padding_ids.first().copied()),
        separator: named(&config.sep_token),
        mask: named(&config.mask_token),
        ends: eos_ids,
    })
}
