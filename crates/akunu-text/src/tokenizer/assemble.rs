//! What the readers of vocabulary lists (GGUF, SentencePiece) have in common: from texts and kinds to a tokenizer.

use std::collections::HashMap;

use super::added::{AddedToken, AddedTokens};
use super::bpe::SPACE_MARK;
use super::error::{Result, TokenizerError};
use super::normalize::Normalizer;
use super::pretokenize::{Matcher, Step};
use super::special::{Roles, end_ids, is_special, matters_for_ends};
use super::vocab::{NONE, Pieces, TokenId, TokenKind};
use super::{Model, Parts, Spelling, Tokenizer, Vocabulary, shown};

/// All tokens in order of id.
pub(super) struct TokenList<'a> {
    pub texts: Vec<&'a str>,
    /// Tokens that end a generation are control tokens, whatever the file says: no text must lead to them.
    pub kinds: Vec<TokenKind>,
    pub roles: Roles,
    end_ids: Vec<TokenId>,
    /// What the list is called in errors.
    field: &'static str,
}

/// What makes a tokenizer out of a list of tokens.
pub(super) struct Recipe {
    pub vocabulary: Vocabulary,
    pub model: Model,
    pub shown: Option<Pieces>,
    pub normalizers: Vec<Normalizer>,
    pub steps: Vec<Step>,
    pub prefix: Vec<TokenId>,
    pub suffix: Vec<TokenId>,
    pub strips_leading_space: bool,
    /// Special tokens take the whitespace after them along.
    pub special_strips_right: bool,
}

impl Recipe {
    pub fn new(vocabulary: Vocabulary, model: Model) -> Self {
        Self {
            vocabulary,
            model,
            shown: None,
            normalizers: Vec::new(),
            steps: Vec::new(),
            prefix: Vec::new(),
            suffix: Vec::new(),
            strips_leading_space: false,
            special_strips_right: false,
        }
    }
}

impl<'a> TokenList<'a> {
    /// Tokens with one kind to each text; `field` is what their list is called in errors.
    pub fn new(texts: Vec<&'a str>, mut kinds: Vec<TokenKind>, roles: Roles, field: &'static str) -> Self {
        let tokens = texts.iter().zip(&kinds).zip(0..);
        let named = tokens.filter(|((text, kind), _)| **kind != TokenKind::Normal && matters_for_ends(text));
        let named: HashMap<&str, _> = named.map(|((&text, &kind), id)| (text, (id, kind))).collect();
        let end_ids = end_ids(&roles, |text| named.get(text).copied());
        end_ids.iter().for_each(|&id| kinds[id as usize] = TokenKind::Control);
        // Converters mark it as a control token too; but text may lead to it.
        let unknown = roles.unknown.filter(|id| roles.bos != Some(*id) && !end_ids.contains(id));
        unknown.into_iter().for_each(|id| kinds[id as usize] = TokenKind::Unknown);
        Self { texts, kinds, roles, end_ids, field }
    }

    pub fn vocabulary(&self, spelling: Spelling) -> Result<Vocabulary> {
        // User-defined tokens are found before, unless the file has marks where the text has spaces.
        let marked =
            |id: usize| self.kinds[id] == TokenKind::UserDefined && self.texts[id].contains(SPACE_MARK);
        let indexed = |id| spelling == Spelling::Text && marked(id);
        Vocabulary::new(&self.texts, self.kinds.clone(), spelling, indexed, self.field)
    }

    /// The same for a Unigram model: normalising may make user-defined tokens of other text.
    pub fn unigram_vocabulary(&self) -> Result<Vocabulary> {
        let is_text = |id: usize| {
            self.kinds[id] == TokenKind::UserDefined && !is_special(self.kinds[id], self.texts[id])
        };
        Vocabulary::new(&self.texts, self.kinds.clone(), Spelling::Text, is_text, self.field)
    }

    /// That there is one score, and a number, for each token; `field` names the scores in errors.
    pub fn check_scores<S: Copy + Into<f64>>(&self, scores: &[S], field: &str) -> Result<()> {
        if scores.len() != self.texts.len() {
            let problem = format!("has {} entries for {} tokens", scores.len(), self.texts.len());
            return Err(TokenizerError::invalid(field, problem));
        }
        match scores.iter().position(|&score| score.into().is_nan()) {
            Some(i) => Err(TokenizerError::invalid(format!("{field}[{i}]"), "is not a number")),
            None => Ok(()),
        }
    }

    /// The tokens `<0x00>` to `<0xFF>`, if there are any.
    pub fn byte_tokens(&self) -> Option<Box<[TokenId; 256]>> {
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

    pub fn finish(self, recipe: Recipe) -> Result<Tokenizer> {
        let tokens = || self.texts.iter().zip(&self.kinds).map(|(&text, &kind)| (text, kind));
        let is_added =
            |&(text, kind): &(&str, TokenKind)| kind == TokenKind::UserDefined || is_special(kind, text);
        // Counted first: they may be all there are.
        let mut added = Vec::with_capacity(tokens().filter(is_added).count());
        for ((text, kind), id) in tokens().zip(0..).filter(|(token, _)| is_added(token)) {
            let special = is_special(kind, text);
            let keeps = !special || matches!(text, "<unk>" | "<s>" | "<|endoftext|>");
            let rstrip = recipe.special_strips_right && !keeps;
            added.push(AddedToken { rstrip, ..AddedToken::new(id, text, special) });
        }
        Ok(Tokenizer::new(Parts {
            vocabulary: recipe.vocabulary,
            shown: recipe.shown,
            added: AddedTokens::new(added)?,
            added_normalized: AddedTokens::new(Vec::new())?,
            normalizers: recipe.normalizers,
            steps: recipe.steps,
            model: recipe.model,
            prefix: recipe.prefix,
            suffix: recipe.suffix,
            pair: None,
            strips_leading_space: recipe.strips_leading_space,
            roles: self.roles,
            end_ids: self.end_ids,
        }))
    }
}

/// An id that must be known, or an error that names the field it comes from.
pub(super) fn required(id: Option<TokenId>, field: impl Into<String>) -> Result<TokenId> {
    id.ok_or_else(|| TokenizerError::missing(field))
}

/// Replaces spaces with their mark.
pub(super) fn mark_spaces() -> Normalizer {
    Normalizer::Replace { pattern: Matcher::Literal(" ".into()), with: SPACE_MARK.into() }
}
