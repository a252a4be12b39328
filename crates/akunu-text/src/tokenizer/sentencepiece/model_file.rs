//! SentencePiece's own files (`tokenizer.model`): a protocol buffer.

use super::{SentencePiece, tokenizer};
use crate::tokenizer::Tokenizer;
use crate::tokenizer::assemble::TokenList;
use crate::tokenizer::error::{Result, TokenizerError};
use crate::tokenizer::special::Roles;
use crate::tokenizer::vocab::{TokenId, TokenKind};

/// The file's usual name.
pub(in crate::tokenizer) const FILE: &str = "tokenizer.model";

impl Tokenizer {
    /// The tokenizer in a SentencePiece `tokenizer.model`. Only byte-pair vocabularies: others are refused by name.
    pub fn from_sentencepiece(file: &[u8]) -> Result<Self> {
        let model = ModelProto::read(file)?;
        let unsupported = |what: String| Err(TokenizerError::unsupported(format!("{FILE}: {what}")));
        if model.model_type != BPE {
            let name = ["unigram", "bpe", "word", "char"].get(model.model_type.wrapping_sub(1) as usize);
            return unsupported(format!("model_type {}", name.unwrap_or(&"?")));
        }
        if model.has_charsmap {
            return unsupported("normalization by a character map".into());
        }
        if model.whitespace_is_suffix {
            return unsupported("treat_whitespace_as_suffix".into());
        }
        let count = model.texts.len();
        let id = |id: i64| TokenId::try_from(id).ok().filter(|&id| (id as usize) < count);
        let roles = Roles {
            bos: id(model.bos),
            eos: id(model.eos),
            unknown: id(model.unknown),
            padding: id(model.padding),
            ..Roles::default()
        };
        let options = SentencePiece {
            space_prefix: model.space_prefix,
            collapses_spaces: model.collapses_spaces,
            prefix: roles.bos.into_iter().collect(),
            suffix: Vec::new(),
            special_strips_right: false,
        };
        let tokens = TokenList::new(model.texts, model.kinds, roles, "tokenizer.model: pieces");
        tokenizer(tokens, model.scores, "tokenizer.model: scores", options)
    }
}

const BPE: u64 = 2;

/// What is read of the file, with the format's defaults.
struct ModelProto<'a> {
    texts: Vec<&'a str>,
    scores: Vec<f32>,
    kinds: Vec<TokenKind>,
    model_type: u64,
    whitespace_is_suffix: bool,
    unknown: i64,
    bos: i64,
    eos: i64,
    padding: i64,
    has_charsmap: bool,
    space_prefix: bool,
    collapses_spaces: bool,
}

impl<'a> ModelProto<'a> {
    fn read(file: &'a [u8]) -> Result<Self> {
        let mut model = Self {
            texts: Vec::new(),
            scores: Vec::new(),
            kinds: Vec::new(),
            model_type: 1,
            whitespace_is_suffix: false,
            unknown: 0,
            bos: 1,
            eos: 2,
            padding: -1,
            has_charsmap: false,
            space_prefix: true,
            collapses_spaces: true,
        };
        for field in Fields::new(file) {
            match field? {
                (1, Field::Bytes(piece)) => model.read_piece(piece)?,
                (2, Field::Bytes(trainer)) => model.read_trainer(trainer)?,
                (3, Field::Bytes(normalizer)) => model.read_normalizer(normalizer)?,
                _ => {}
            }
        }
        Ok(model)
    }

    fn read_piece(&mut self, piece: &'a [u8]) -> Result<()> {
        let number = self.texts.len();
        let invalid = |problem: &str| TokenizerError::invalid(format!("{FILE}: pieces[{number}]"), problem);
        let (mut text, mut score, mut kind) = ("", 0.0, TokenKind::Normal);
        for field in Fields::new(piece) {
            match field? {
                (1, Field::Bytes(bytes)) => {
                    text = std::str::from_utf8(bytes).map_err(|_| invalid("is not UTF-8"))?;
                }
                (2, Field::Fixed32(bits)) => score = f32::from_bits(bits),
                (3, Field::Number(code)) => {
                    kind = TokenKind::from_code(code.into()).ok_or_else(|| invalid("has an unknown type"))?;
                }
                _ => {}
            }
        }
        self.texts.push(text);
        self.scores.push(score);
        self.kinds.push(kind);
        Ok(())
    }

    fn read_trainer(&mut self, trainer: &[u8]) -> Result<()> {
        for field in Fields::new(trainer) {
            match field? {
                (3, Field::Number(value)) => self.model_type = value,
                (24, Field::Number(value)) => self.whitespace_is_suffix = value != 0,
                // Negative numbers ("none") are stored as their two's complement.
                (40, Field::Number(value)) => self.unknown = value as i64,
                (41, Field::Number(value)) => self.bos = value as i64,
                (42, Field::Number(value)) => self.eos = value as i64,
                (43, Field::Number(value)) => self.padding = value as i64,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, normalizer: &[u8]) -> Result<()> {
        for field in Fields::new(normalizer) {
            match field? {
                (2, Field::Bytes(charsmap)) => self.has_charsmap = !charsmap.is_empty(),
                (3, Field::Number(value)) => self.space_prefix = value != 0,
                (4, Field::Number(value)) => self.collapses_spaces = value != 0,
                (5, Field::Number(0)) => {
                    return Err(TokenizerError::unsupported(format!("{FILE}: escape_whitespaces false")));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A value of a protocol buffer.
#[derive(Debug, PartialEq)]
enum Field<'a> {
    Number(u64),
    Fixed32(u32),
    Fixed64,
    Bytes(&'a [u8]),
}

/// The fields of a message, with their numbers.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let key = self.number()?;
        let field = match key & 7 {
            0 => Field::Number(self.number()?),
            1 => self.take(8).map(|_| Field::Fixed64)?,
            2 => {
                let len = self.number()?;
                Field::Bytes(self.take(len)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let left = self.0.len();
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        let problem =
            || format!("is no protocol buffer: nothing can be made of the field {left} bytes before the end");
        Some(field.ok_or_else(|| TokenizerError::invalid(FILE, problem())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{AddSpecial, Special};

    /// A field that holds bytes.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
        let score = [&[2 << 3 | 5][..], &score.to_le_bytes()].concat();
        bytes(1, &[bytes(1, text.as_bytes()), score, vec![3 << 3, kind]].concat())
    }

    fn file() -> Vec<u8> {
        let special = [piece("<unk>", 0.0, 2), piece("<s>", 0.0, 3), piece("</s>", 0.0, 3)].concat();
        let text =
            [piece("▁", -3.0, 1), piece("a", -4.0, 1), piece("▁a", -1.0, 1), piece("aa", -2.0, 1)].concat();
        let (trainer, normalizer) = (bytes(2, &[3 << 3, 2]), bytes(3, &[4 << 3, 0]));
        [special, text, trainer, normalizer].concat()
    }

    #[test]
    fn pieces_and_settings_are_read() {
        let tokenizer = Tokenizer::from_sentencepiece(&file()).unwrap();
        assert_eq!(tokenizer.encode("aaa b", Special::Plain, AddSpecial::Yes), [1, 5, 6, 3, 0]);
        assert_eq!(tokenizer.decode(&[1, 5, 6]), b"aaa");
        assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.padding()), (Some(1), Some(2), None));
    }

    #[test]
    fn every_truncation_is_read_or_refused() {
        let file = file();
        for len in 0..file.len() {
            let _ = Tokenizer::from_sentencepiece(&file[..len]);
        }
        let error = Tokenizer::from_sentencepiece(&file[..3]).unwrap_err().to_string();
        assert!(error.starts_with("tokenizer.model: is no protocol buffer"), "{error}");
    }

    #[test]
    fn other_kinds_are_refused_by_name() {
        let error = |file: &[u8]| Tokenizer::from_sentencepiece(file).unwrap_err().to_string();
        assert_eq!(error(&bytes(2, &[3 << 3, 1])), "tokenizer.model: model_type unigram is not supported");
        let mapped = [bytes(2, &[3 << 3, 2]), bytes(3, &bytes(2, b"x"))].concat();
        assert_eq!(error(&mapped), "tokenizer.model: normalization by a character map is not supported");
    }
}
