//! What the fuzz targets share.

use akunu_format::{Error, Tensor};
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenKind};

/// Tensors with more elements than this are not turned into floats, to keep executions short.
const MAX_ELEMENTS: usize = 1 << 16;

/// Reads all that can be read of some tensors.
pub fn read_tensors<'a>(tensors: impl Iterator<Item = Tensor<'a>>) {
    for tensor in tensors {
        assert_eq!(tensor.rows() * tensor.row_len(), tensor.len());
        if tensor.len() <= MAX_ELEMENTS {
            match tensor.to_f32() {
                Ok(values) => assert_eq!(values.len(), tensor.len()),
                Err(Error::NoConversion { .. } | Error::OpaqueValues { .. }) => {}
                Err(error) => panic!("{}: {error}", tensor.name),
            }
        }
    }
}

/// Encodes and decodes `text` every way there is.
pub fn use_tokenizer(tokenizer: &Tokenizer, text: &str) {
    for special in [Special::Parse, Special::Plain] {
        for add in [AddSpecial::Yes, AddSpecial::No] {
            let ids = tokenizer.encode(text, special, add);
            assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            if (special, add) == (Special::Plain, AddSpecial::No) {
                assert!(ids.iter().all(|&id| tokenizer.kind(id) != TokenKind::Control));
            }
            tokenizer.decode(&ids);
            tokenizer.decode_with_special(&ids);
        }
    }
    assert!(tokenizer.eog_ids().iter().all(|&id| tokenizer.is_eog(id) && (id as usize) < tokenizer.vocab_size()));
    for (id, name) in tokenizer.special_tokens() {
        assert!(tokenizer.id_of(&name).is_some(), "{id}");
    }
}
