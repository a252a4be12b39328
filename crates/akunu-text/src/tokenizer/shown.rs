//! The bytes tokens stand for, where the vocabulary spells them differently.

use super::Vocabulary;
use super::bpe::SPACE_MARK;
use super::error::{Result, TokenizerError};
use super::vocab::{Pieces, TokenKind};

/// The byte a token such as `<0x0A>` stands for.
pub(super) fn byte_of(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digit = |at: usize| char::from(digits[at]).to_digit(16).map(|digit| digit as u8);
    if digits.len() == 2 { Some(digit(0)? << 4 | digit(1)?) } else { None }
}

/// Space marks become spaces, byte tokens bytes; special tokens keep their names.
pub(super) fn with_spaces(vocabulary: &Vocabulary) -> Result<Pieces> {
    let mark = SPACE_MARK.as_bytes();
    map(vocabulary, |kind, piece, bytes| match kind {
        TokenKind::Control | TokenKind::Unknown => bytes.extend_from_slice(piece),
        TokenKind::Byte => bytes.extend(byte_of(piece)),
        TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused => {
            let mut rest = piece;
            while let Some((&first, after)) = rest.split_first() {
                let marked = rest.strip_prefix(mark);
                bytes.push(if marked.is_some() { b' ' } else { first });
                rest = marked.unwrap_or(after);
            }
        }
    })
}

/// Every piece is a word with a space before it, except those that begin with `prefix`, and with `cleanup` those that
/// are punctuation.
pub(super) fn as_words(vocabulary: &Vocabulary, prefix: &str, cleanup: bool) -> Result<Pieces> {
    let continues = |piece: &[u8]| !prefix.is_empty() && piece.starts_with(prefix.as_bytes());
    map(vocabulary, |_, piece, bytes| {
        if continues(piece) {
            bytes.extend_from_slice(&piece[prefix.len()..]);
        } else {
            if !(cleanup && matches!(piece, b"." | b"?" | b"!" | b",")) {
                bytes.push(b' ');
            }
            bytes.extend_from_slice(piece);
        }
    })
}

/// Pieces changed one by one: `change` is given the kind, the piece, and where to put the bytes it stands for.
pub(super) fn map(
    vocabulary: &Vocabulary,
    mut change: impl FnMut(TokenKind, &[u8], &mut Vec<u8>),
) -> Result<Pieces> {
    let mut shown = Pieces::with_capacity(vocabulary.pieces.len(), vocabulary.pieces.total_bytes());
    let mut bytes = Vec::new();
    for ((_, piece), &kind) in vocabulary.pieces.iter().zip(&vocabulary.kinds) {
        bytes.clear();
        change(kind, piece, &mut bytes);
        if !shown.push(&bytes) {
            return Err(TokenizerError::invalid("vocabulary", "holds more than 4 GiB of text"));
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens_stand_for_bytes() {
        assert_eq!(byte_of(b"<0x0A>"), Some(10));
        assert_eq!(byte_of(b"<0xff>"), Some(255));
        for text in [&b"<0x>"[..], b"<0x123>", b"<0x+1>", b"0x11", b"<0xG0>"] {
            assert_eq!(byte_of(text), None);
        }
    }
}
