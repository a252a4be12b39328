//! Vocabularies of byte strings in order of rank, as OpenAI's tiktoken has them: Whisper's and Mistral's Tekken.

use super::added::{AddedToken, AddedTokens};
use super::bpe::{Alphabet, Borders, Bpe, Fallback, JoinTable};
use super::error::{Result, TokenizerError};
use super::pattern::Pattern;
use super::pretokenize::{Behavior, Matcher, Step};
use super::special::{Roles, end_ids};
use super::vocab::{PieceIndex, Pieces, TokenId, TokenKind};
use super::{Model, Parts, Tokenizer, Vocabulary};

/// A vocabulary as a file spells it out, built token by token in order of id.
pub(super) struct Ranked {
    pieces: Pieces,
    index: PieceIndex,
    kinds: Vec<TokenKind>,
    added: Vec<AddedToken>,
    /// The vocabulary's name in errors.
    field: &'static str,
}

impl Ranked {
    pub fn with_capacity(tokens: usize, field: &'static str) -> Self {
        Self {
            pieces: Pieces::with_capacity(tokens, tokens * 7),
            index: PieceIndex::with_capacity(tokens),
            kinds: Vec::with_capacity(tokens),
            added: Vec::new(),
            field,
        }
    }

    /// Adds a piece of text: of two that can be joined, the one added first is.
    pub fn push(&mut self, piece: &[u8]) -> Result<()> {
        let id = self.next_id(piece)?;
        // Files pad the vocabulary with empty pieces.
        self.kinds.push(if piece.is_empty() { TokenKind::Unused } else { TokenKind::Normal });
        if !piece.is_empty()
            && let Err(other) = self.index.insert(&self.pieces, id)
        {
            let problem = format!("{:?} is token {other} too", String::from_utf8_lossy(piece));
            return Err(TokenizerError::invalid(format!("{}[{id}]", self.field), problem));
        }
        Ok(())
    }

    /// Adds a control token.
    pub fn push_control(&mut self, name: &str) -> Result<()> {
        let id = self.next_id(name.as_bytes())?;
        self.kinds.push(TokenKind::Control);
        self.added.push(AddedToken::new(id, name, true));
        Ok(())
    }

    fn next_id(&mut self, piece: &[u8]) -> Result<TokenId> {
        let id = self.pieces.len() as TokenId;
        if self.pieces.push(piece) {
            Ok(id)
        } else {
            Err(TokenizerError::invalid(format!("{}[{id}]", self.field), "is beyond 4 GiB of text"))
        }
    }

    pub fn finish(
        mut self,
        pattern: &str,
        roles: impl FnOnce(&AddedTokens) -> Roles,
        adds_bos: bool,
    ) -> Result<Tokenizer> {
        let added = AddedTokens::new(self.added)?;
        let roles = roles(&added);
        if let Some(unknown) = roles.unknown {
            self.kinds[unknown as usize] = TokenKind::Unknown;
        }
        let ranks = (0..self.pieces.len() as u32).collect();
        let vocabulary = Vocabulary { pieces: self.pieces, index: self.index, kinds: self.kinds };
        Ok(Tokenizer::new(Parts {
            model: Model::Bpe(Bpe {
                alphabet: Alphabet::Bytes(vocabulary.byte_pieces()),
                joins: JoinTable::Pieces(ranks),
                whole_words: true,
                fallback: Fallback { unknown: roles.unknown, ..Fallback::default() },
                borders: Borders::default(),
            }),
            shown: None,
            added_normalized: AddedTokens::new(Vec::new())?,
            normalizers: Vec::new(),
            steps: vec![Step::split(Matcher::Pattern(Pattern::new(pattern)?), Behavior::Isolated)],
            prefix: roles.bos.filter(|_| adds_bos).into_iter().collect(),
            suffix: Vec::new(),
            pair: None,
            strips_leading_space: false,
            end_ids: end_ids(&roles, |text| added.get(text).map(|id| (id, TokenKind::Control))),
            roles,
            added,
            vocabulary,
        }))
    }
}
