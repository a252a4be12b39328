//! Tokenizers: text to token ids and back, exactly as the model was trained.
//!
//! A [`Tokenizer`] is built from whatever the model file carries (GGUF metadata, `tokenizer.json`, `tokenizer.model`,
//! `tekken.json`, a Whisper vocabulary) and is a pipeline of five stages:
//!
//! 1. *added tokens* are found in the text and kept whole ([`Special`] says which),
//! 2. what lies between is *normalized* (Unicode normal form, space marks, lower case),
//! 3. *pre-tokenized* into words that no token crosses,
//! 4. *encoded* word by word: byte-pair merging by merge list, by score or by rank, WordPiece, or Unigram,
//! 5. and framed by the model's own beginning and end tokens ([`AddSpecial`]).
//!
//! No stage takes more than O(n log n), whatever the text.
//!
//! | vocabulary | read by | kinds |
//! |---|---|---|
//! | GGUF metadata | [`from_gguf`](Tokenizer::from_gguf) | `llama` (SentencePiece), `gpt2` (byte level, cut as `tokenizer.ggml.pre` says), `gemma4`, `bert`, `t5` (Unigram) |
//! | `tokenizer.json` | [`from_json`](Tokenizer::from_json), [`from_dir`](Tokenizer::from_dir) | BPE, WordPiece and Unigram with the usual normalizers, pre-tokenizers, post-processors and decoders |
//! | `tekken.json`, `tokenizer.model` | [`from_file`](Tokenizer::from_file) | Mistral's; SentencePiece's byte-pair models |
//! | whisper.cpp's container | [`from_whisper`](Tokenizer::from_whisper) | English, and both multilingual ones |
//!
//! What a file asks for and is not here is refused by name: it never becomes a guess. So is what would let a few lines of
//! a file fill the memory or the afternoon: patterns that compile to megabytes, normalizers that make text hundreds of times
//! as long, special tokens of more than 512 bytes. A file that contradicts itself is an error that names the field.
//!
//! ```
//! use akunu_text::tokenizer::{AddSpecial, Special, Tokenizer};
//!
//! let json = r#"{
//!     "added_tokens": [{"id": 6, "content": "<|end|>", "special": true}],
//!     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
//!     "decoder": {"type": "ByteLevel"},
//!     "model": {"type": "BPE", "vocab": {"h": 0, "i": 1, "hi": 2, "Ġ": 3, "Ġhi": 4, "!": 5, "<": 7, "|": 8, ">": 9,
//!         "e": 10, "n": 11, "d": 12}, "merges": ["h i", "Ġ hi"]}
//! }"#;
//! let tokenizer = Tokenizer::from_json(json, None, None)?;
//!
//! // Text of the program's own may name special tokens; text of a user must not.
//! assert_eq!(tokenizer.encode("hi hi!<|end|>", Special::Parse, AddSpecial::No), [2, 4, 5, 6]);
//! assert_eq!(tokenizer.encode("<|end|>", Special::Plain, AddSpecial::No), [7, 8, 10, 11, 12, 8, 9]);
//! assert_eq!(tokenizer.decode(&[2, 4, 5]), b"hi hi!");
//! assert!(tokenizer.is_eog(6));
//! # Ok::<(), akunu_text::tokenizer::TokenizerError>(())
//! ```

mod added;
mod assemble;
mod bpe;
mod byte_level;
pub(crate) mod charset;
mod charsmap;
mod error;
mod families;
mod files;
mod gguf;
mod json;
mod merge;
mod merges;
mod normalize;
mod pattern;
mod pretokenize;
mod ranked;
mod sentencepiece;
mod shown;
mod special;
mod tekken;
mod unigram;
mod vocab;
mod whisper;
mod wordpiece;

use std::borrow::Cow;
use std::sync::Arc;

use crate::Segment;
use added::{AddedTokens, Part, Trust};
use bpe::Bpe;
use normalize::Normalizer;
use pretokenize::{Step, pretokenize};
use special::Roles;
use unigram::Unigram;
use vocab::{NONE, PieceIndex, Pieces};
use wordpiece::WordPiece;

pub use byte_level::spell_bytes;
pub use error::TokenizerError;
pub use vocab::{TokenId, TokenKind};

/// Whether text may name special tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// `<|im_end|>` is the token of that name. For text the program or a chat template wrote.
    Parse,
    /// `<|im_end|>` is ten characters. For text a user wrote.
    Plain,
}

/// Whether to add what the model expects around a text, such as its beginning-of-sequence token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddSpecial {
    /// Add it, except where the text itself begins with it.
    Yes,
    /// The text alone.
    No,
}

/// Turns text into token ids and back. Immutable; clones share everything.
#[derive(Clone, Debug)]
pub struct Tokenizer(Arc<Parts>);

/// What a tokenizer is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    vocabulary: Vocabulary,
    /// The bytes each token stands for, where they differ from the vocabulary's pieces.
    shown: Option<Pieces>,
    /// Found before normalization.
    added: AddedTokens,
    /// Found after normalization.
    added_normalized: AddedTokens,
    normalizers: Vec<Normalizer>,
    steps: Vec<Step>,
    model: Model,
    /// What the model expects before and after a text.
    prefix: Vec<TokenId>,
    suffix: Vec<TokenId>,
    /// What it expects around two texts, where its file says so.
    pair: Option<PairEnds>,
    /// Encoding put a space before the text, which decoding takes away.
    strips_leading_space: bool,
    roles: Roles,
    /// Sorted.
    end_ids: Vec<TokenId>,
}

/// What stands around two texts that a model judges together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairEnds {
    /// Before the first.
    pub before: Vec<TokenId>,
    /// After the first.
    pub between: Vec<TokenId>,
    /// After the second.
    pub after: Vec<TokenId>,
    /// Whether the model is told which tokens are of the second, what stands after it included.
    pub marks_second: bool,
}

#[derive(Debug)]
enum Model {
    Bpe(Bpe),
    WordPiece(WordPiece),
    Unigram(Unigram),
}

/// Memory that encoding needs, kept from word to word.
#[derive(Default)]
struct Scratch {
    bpe: bpe::Scratch,
    unigram: unigram::Scratch,
}

/// How the pieces of a vocabulary are written down in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// In the printable alphabet of byte-level vocabularies.
    Bytes,
    /// As they are, perhaps with a mark for a space.
    Text,
}

/// The pieces by number, as the encoder spells them.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pieces: Pieces,
    /// Of the pieces that text can lead to.
    index: PieceIndex,
    /// "Normal" are only pieces that are in the index.
    kinds: Vec<TokenKind>,
}

impl Vocabulary {
    /// The tokens with these texts. Normal ones are found by their text, others where `indexed` says so of an id; `field`
    /// names the list in errors.
    fn new(
        texts: &[&str],
        mut kinds: Vec<TokenKind>,
        spelling: Spelling,
        indexed: impl Fn(usize) -> bool,
        field: &str,
    ) -> Result<Self, TokenizerError> {
        let mut pieces = Pieces::with_capacity(texts.len(), texts.iter().map(|text| text.len()).sum());
        let mut index = PieceIndex::with_capacity(texts.len());
        let mut decoded = Vec::new();
        for ((&text, kind), id) in texts.iter().zip(&mut kinds).zip(0..) {
            let mut piece = text.as_bytes();
            if spelling == Spelling::Bytes && *kind == TokenKind::Normal {
                decoded.clear();
                if byte_level::decode(text.as_bytes(), &mut decoded) && !text.is_empty() {
                    piece = &decoded;
                } else {
                    *kind = TokenKind::Unused;
                }
            }
            if !pieces.push(piece) {
                return Err(TokenizerError::invalid(format!("{field}[{id}]"), "is beyond 4 GiB of text"));
            }
        }
        let found = |id: usize| kinds[id] == TokenKind::Normal || indexed(id);
        let ids = (0..texts.len()).filter(|&id| found(id)).map(|id| id as TokenId);
        if let Err((id, other)) = index.extend(&pieces, ids) {
            let problem = format!("{:?} is token {other} too", texts[id as usize]);
            return Err(TokenizerError::invalid(format!("{field}[{id}]"), problem));
        }
        Ok(Self { pieces, index, kinds })
    }

    fn find(&self, text: &[u8]) -> Option<TokenId> {
        self.index.get(&self.pieces, text)
    }

    /// The tokens of single bytes.
    fn byte_pieces(&self) -> Box<[TokenId; 256]> {
        let mut table = Box::new([NONE; 256]);
        (0..=255).for_each(|byte| table[byte as usize] = self.find(&[byte]).unwrap_or(NONE));
        table
    }

    /// The pieces that joining may result in.
    fn joinable(&self) -> impl Iterator<Item = &[u8]> {
        let text = |kind: &TokenKind| matches!(kind, TokenKind::Normal | TokenKind::UserDefined);
        self.pieces.iter().zip(&self.kinds).filter(move |(_, kind)| text(kind)).map(|((_, piece), _)| piece)
    }
}

impl Tokenizer {
    fn new(mut parts: Parts) -> Self {
        // Text that cannot be spelled must not become a control token, whatever role the file gives it.
        let kinds = &parts.vocabulary.kinds;
        let is_text = |id: &TokenId| kinds.get(*id as usize).is_some_and(|kind| *kind != TokenKind::Control);
        match &mut parts.model {
            Model::WordPiece(wordpiece) => wordpiece.unknown = wordpiece.unknown.filter(is_text),
            Model::Bpe(Bpe { fallback, .. }) | Model::Unigram(Unigram { fallback, .. }) => {
                fallback.unknown = fallback.unknown.filter(is_text);
                let bytes = fallback.bytes.iter_mut().flat_map(|table| table.iter_mut());
                bytes.filter(|id| !is_text(id)).for_each(|id| *id = NONE);
            }
        }
        Self(Arc::new(parts))
    }

    /// The tokens of `text`.
    pub fn encode(&self, text: &str, special: Special, add: AddSpecial) -> Vec<TokenId> {
        self.encode_trusting(text, &Trust::whole(text.len(), special == Special::Parse), add)
    }

    /// What stands around two texts; none where the tokenizer's file has no form for two.
    pub fn pair_ends(&self) -> Option<&PairEnds> {
        self.0.pair.as_ref()
    }

    /// The tokens of the segments' texts put together.
    ///
    /// Special tokens are found where all of their text is trusted. Apart from that the borders between segments do
    /// not show: words are formed across them.
    pub fn encode_segments(&self, segments: &[Segment<'_>], add: AddSpecial) -> Vec<TokenId> {
        if let [segment] = segments {
            let special = if segment.trusted { Special::Parse } else { Special::Plain };
            return self.encode(segment.text, special, add);
        }
        let text: String = segments.iter().map(|segment| segment.text).collect();
        let lengths = segments.iter().map(|segment| (segment.text.len(), segment.trusted));
        self.encode_trusting(&text, &Trust::of_lengths(lengths), add)
    }

    fn encode_trusting(&self, text: &str, trust: &Trust, add: AddSpecial) -> Vec<TokenId> {
        let (prefix, suffix): (&[_], &[_]) = match add {
            AddSpecial::Yes => (&self.0.prefix, &self.0.suffix),
            AddSpecial::No => (&[], &[]),
        };
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        ids.extend_from_slice(prefix);
        let mut scratch = Scratch::default();
        self.0.added.cut(text, trust, |part| match part {
            Part::Token(id) => ids.push(id),
            Part::Text(range) => {
                let first = range.start == 0;
                self.encode_between(
                    &text[range.clone()],
                    first,
                    &trust.within(range),
                    &mut scratch,
                    &mut ids,
                );
            }
        });
        if !prefix.is_empty() && ids.get(prefix.len()) == prefix.last() {
            ids.drain(..prefix.len());
        }
        ids.extend_from_slice(suffix);
        ids
    }

    /// The tokens of text between added tokens.
    fn encode_between(
        &self,
        text: &str,
        first: bool,
        trust: &Trust,
        scratch: &mut Scratch,
        ids: &mut Vec<TokenId>,
    ) {
        let normalized = self.0.normalizers.iter().fold(Cow::Borrowed(text), |text, step| step.apply(text));
        if self.0.added_normalized.is_empty() {
            return self.encode_words(&normalized, first, scratch, ids);
        }
        // Normalization moves text about: where some of it is not trusted, none is.
        let moved = Trust::whole(normalized.len(), trust.covers(0..text.len()));
        let trust = if self.0.normalizers.is_empty() { trust } else { &moved };
        self.0.added_normalized.cut(&normalized, trust, |part| match part {
            Part::Token(id) => ids.push(id),
            Part::Text(range) => {
                self.encode_words(&normalized[range.clone()], first && range.start == 0, scratch, ids);
            }
        });
    }

    fn encode_words(&self, text: &str, first: bool, scratch: &mut Scratch, ids: &mut Vec<TokenId>) {
        let vocabulary = &self.0.vocabulary;
        pretokenize(&self.0.steps, text, first, &mut |word| match &self.0.model {
            Model::Bpe(bpe) => bpe.encode(vocabulary, word, &mut scratch.bpe, ids),
            Model::WordPiece(wordpiece) => wordpiece.encode(vocabulary, word, ids),
            Model::Unigram(unigram) => unigram.encode(vocabulary, word, &mut scratch.unigram, ids),
        });
    }

    /// The text of `ids`, as bytes: tokens may end in the middle of a character.
    ///
    /// Control tokens are left out, and so is the space that encoding put before the text.
    pub fn decode(&self, ids: &[TokenId]) -> Vec<u8> {
        self.decode_where(ids, |id| !matches!(self.kind(id), TokenKind::Control | TokenKind::Unknown))
    }

    /// The same with the names of control tokens.
    pub fn decode_with_special(&self, ids: &[TokenId]) -> Vec<u8> {
        self.decode_where(ids, |_| true)
    }

    fn decode_where(&self, ids: &[TokenId], wanted: impl Fn(TokenId) -> bool) -> Vec<u8> {
        let mut ids = ids.iter().copied().filter(|&id| wanted(id));
        let mut bytes = Vec::new();
        if let Some(first) = ids.next() {
            let piece = self.token_bytes(first);
            let stripped = piece.strip_prefix(b" ").filter(|_| self.0.strips_leading_space);
            bytes.extend_from_slice(stripped.unwrap_or(piece));
        }
        ids.for_each(|id| bytes.extend_from_slice(self.token_bytes(id)));
        bytes
    }

    /// Whether the first token of a text may bring a space that is not part of the text.
    pub fn strips_leading_space(&self) -> bool {
        self.0.strips_leading_space
    }

    /// The bytes `id` stands for, a control token's name included; empty for an id out of range.
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.0.shown.as_ref().unwrap_or(&self.0.vocabulary.pieces).get(id)
    }

    /// The text `id` stands for, for a person to look at.
    pub fn piece(&self, id: TokenId) -> Cow<'_, str> {
        String::from_utf8_lossy(self.token_bytes(id))
    }

    /// The number of token ids.
    pub fn vocab_size(&self) -> usize {
        self.0.vocabulary.pieces.len()
    }

    /// What `id` is for; unused for an id out of range.
    pub fn kind(&self, id: TokenId) -> TokenKind {
        self.0.vocabulary.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    /// The token with this text: a special token's name, or a piece of text.
    pub fn id_of(&self, text: &str) -> Option<TokenId> {
        let name = |id| self.0.vocabulary.pieces.get(id);
        let normalized = || self.0.added_normalized.iter().find(|token| name(token.id) == text.as_bytes());
        let added = || self.0.added.get(text).or_else(|| normalized().map(|token| token.id));
        added().or_else(|| self.0.vocabulary.find(text.as_bytes()))
    }

    /// All tokens that are recognized in trusted text only, with their names.
    pub fn special_tokens(&self) -> impl Iterator<Item = (TokenId, Cow<'_, str>)> {
        let tokens = self.0.added.iter().chain(self.0.added_normalized.iter());
        let name = |id| String::from_utf8_lossy(self.0.vocabulary.pieces.get(id));
        tokens.filter(|token| token.special).map(move |token| (token.id, name(token.id)))
    }

    /// The token that begins a sequence.
    pub fn bos(&self) -> Option<TokenId> {
        self.0.roles.bos
    }

    /// Whether encoding with [`AddSpecial::Yes`] begins with [`bos`](Self::bos).
    pub fn adds_bos(&self) -> bool {
        self.0.roles.bos.is_some_and(|bos| self.0.prefix.contains(&bos))
    }

    /// The token that ends a sequence.
    pub fn eos(&self) -> Option<TokenId> {
        self.0.roles.eos
    }

    /// The token for text the vocabulary cannot spell.
    pub fn unknown(&self) -> Option<TokenId> {
        self.0.roles.unknown
    }

    /// The token that fills up short sequences of a batch.
    pub fn padding(&self) -> Option<TokenId> {
        self.0.roles.padding
    }

    /// The token between two texts.
    pub fn separator(&self) -> Option<TokenId> {
        self.0.roles.separator
    }

    /// The token that stands for a word to be guessed.
    pub fn mask(&self) -> Option<TokenId> {
        self.0.roles.mask
    }

    /// All tokens that end a generation: end of sequence, of turn, of message. Sorted.
    pub fn eog_ids(&self) -> &[TokenId] {
        &self.0.end_ids
    }

    /// Whether `id` ends a generation.
    pub fn is_eog(&self, id: TokenId) -> bool {
        self.0.end_ids.binary_search(&id).is_ok()
    }
}
