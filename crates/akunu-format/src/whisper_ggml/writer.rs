//! Writing whisper.cpp's container.

use std::path::Path;

use super::{Hparams, MAGIC, MAX_RANK, MelFilters};
use crate::tensor_writer::{Part, TensorWriter};
use crate::{DType, Error, Result, table};

/// Collects what goes into a file: sizes, filters, vocabulary, and the tensors' names, dtypes and shapes.
///
/// ```
/// use akunu_format::DType;
/// use akunu_format::whisper_ggml::{Hparams, MelFilters, Writer};
///
/// # let directory = tempfile::tempdir().unwrap();
/// let hparams = Hparams {
///     vocab_size: 2, audio_ctx: 1, audio_state: 1, audio_heads: 1, audio_layers: 1, text_ctx: 1, text_state: 1,
///     text_heads: 1, text_layers: 1, mels: 1, ftype: 0,
/// };
/// let filters = MelFilters { mels: 1, bins: 1, values: vec![1.0] };
/// let mut writer = Writer::new(&hparams, &filters, [&b"a"[..], b"b"].into_iter())?;
/// writer.tensor("encoder.conv1.bias", DType::F32, &[1, 1])?;
/// let mut tensors = writer.create(directory.path().join("model.bin"))?;
/// tensors.append("encoder.conv1.bias", &[0; 4])?;
/// tensors.finish()?;
/// # Ok::<(), akunu_format::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    header: Vec<u8>,
    parts: Vec<Part>,
}

impl Writer {
    /// A file without tensors; `tokens` in order of their ids, without the special ones.
    pub fn new<'t>(
        hparams: &Hparams,
        filters: &MelFilters,
        tokens: impl Iterator<Item = &'t [u8]>,
    ) -> Result<Self> {
        let mut header = MAGIC.to_vec();
        let number = |header: &mut Vec<u8>, value: u32| header.extend_from_slice(&value.to_le_bytes());
        let Hparams { vocab_size, audio_ctx, audio_state, audio_heads, audio_layers, .. } = *hparams;
        let Hparams { text_ctx, text_state, text_heads, text_layers, mels, ftype, .. } = *hparams;
        for value in [vocab_size, audio_ctx, audio_state, audio_heads, audio_layers] {
            number(&mut header, value);
        }
        for value in [text_ctx, text_state, text_heads, text_layers, mels, ftype] {
            number(&mut header, value);
        }
        number(&mut header, count("mel filters", filters.mels)?);
        number(&mut header, count("mel filters", filters.bins)?);
        header.extend(filters.values.iter().flat_map(|value| value.to_le_bytes()));
        let at = header.len();
        number(&mut header, 0);
        let mut tokens_written = 0usize;
        for token in tokens {
            number(&mut header, count("a token", token.len())?);
            header.extend_from_slice(token);
            tokens_written += 1;
        }
        header[at..at + 4].copy_from_slice(&count("the vocabulary", tokens_written)?.to_le_bytes());
        Ok(Self { header, parts: Vec::new() })
    }

    /// Declares the next tensor; `shape` is outermost first, as in [`Tensor`](crate::Tensor).
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<&mut Self> {
        let what = format!("tensor \"{name}\"");
        if !(1..=MAX_RANK).contains(&shape.len()) {
            let problem = format!("{} dimensions; 1 to {MAX_RANK} are allowed", shape.len());
            return Err(Error::Unwritable { what, problem });
        }
        let unwritable = |problem| Error::Unwritable { what: what.clone(), problem };
        let byte_len = table::byte_len(shape, dtype).map_err(unwritable)?;
        let mut lead = Vec::new();
        for value in [count(&what, shape.len())?, count(&what, name.len())?, dtype.code()] {
            lead.extend_from_slice(&value.to_le_bytes());
        }
        for &dim in shape.iter().rev() {
            lead.extend_from_slice(&count(&what, dim)?.to_le_bytes());
        }
        lead.extend_from_slice(name.as_bytes());
        self.parts.push(Part { name: name.to_owned(), lead, byte_len });
        Ok(self)
    }

    /// Begins the file at `path`, which appears when all tensors are written.
    pub fn create(self, path: impl AsRef<Path>) -> Result<TensorWriter> {
        TensorWriter::create(path.as_ref(), &self.header, 1, self.parts)
    }
}

/// Numbers in this format have 32 bits.
fn count(what: &str, value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::Unwritable {
        what: what.to_owned(),
        problem: format!("{value} is more than 32 bits can say"),
    })
}
