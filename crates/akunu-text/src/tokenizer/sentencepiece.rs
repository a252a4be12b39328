//! SentencePiece's byte-pair vocabularies: pieces with scores, of which the highest is joined first.

mod model_file;

pub(super) use model_file::FILE;

use super::assemble::{Recipe, TokenList, mark_spaces};
use super::bpe::{Alphabet, Borders, Bpe, Fallback, JoinTable, SPACE_MARK, rank_of_score};
use super::error::Result;
use super::normalize::Normalizer;
use super::vocab::TokenId;
use super::{Model, Spelling, Tokenizer, shown};

/// What differs between SentencePiece vocabularies.
pub(super) struct SentencePiece {
    /// Text gets a space in front, also after each special token.
    pub space_prefix: bool,
    /// Runs of spaces count as one, spaces at the ends as none.
    pub collapses_spaces: bool,
    pub prefix: Vec<TokenId>,
    pub suffix: Vec<TokenId>,
    /// Special tokens take the whitespace after them along: Phi-3's.
    pub special_strips_right: bool,
}

/// The tokenizer with these tokens and scores; `field` names the scores in errors.
pub(super) fn tokenizer(
    tokens: TokenList,
    scores: Vec<f32>,
    field: &str,
    options: SentencePiece,
) -> Result<Tokenizer> {
    tokens.check_scores(&scores, field)?;
    let mut normalizers = Vec::new();
    if options.collapses_spaces {
        normalizers.push(Normalizer::CollapseSpaces);
    }
    if options.space_prefix {
        normalizers.push(Normalizer::Prepend(SPACE_MARK.into()));
    }
    normalizers.push(mark_spaces());
    let vocabulary = tokens.vocabulary(Spelling::Text)?;
    let model = Model::Bpe(Bpe {
        alphabet: Alphabet::Characters,
        joins: JoinTable::Pieces(scores.into_iter().map(rank_of_score).collect()),
        whole_words: false,
        fallback: Fallback { bytes: tokens.byte_tokens(), unknown: tokens.roles.unknown, fuse: true },
        borders: Borders::before_space_marks(vocabulary.joinable()),
    });
    tokens.finish(Recipe {
        shown: Some(shown::with_spaces(&vocabulary)?),
        normalizers,
        prefix: options.prefix,
        suffix: options.suffix,
        strips_leading_space: options.space_prefix,
        special_strips_right: options.special_strips_right,
        ..Recipe::new(vocabulary, model)
    })
}
