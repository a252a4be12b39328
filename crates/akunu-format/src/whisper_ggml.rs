//! Whisper models as whisper.cpp keeps them: hyper-parameters, mel filters, vocabulary and tensors in one file.
//!
//! All integers are 32 bits, little-endian, and nothing is aligned:
//!
//! ```text
//! magic, 11 hyper-parameters
//! mel filters: rows, columns, f32 values
//! vocabulary:  count, then per token a length and bytes
//! tensors until the end: rank, name length, dtype, dims (innermost first), name, values
//! ```

mod writer;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::cursor::Cursor;
use crate::mapped::MappedFile;
use crate::table::{self, Entry, Span, Stored, TensorTable};
use crate::{DType, Error, Result, Tensor};

pub use crate::tensor_writer::TensorWriter;
pub use writer::Writer;

/// "ggml" as a little-endian number.
const MAGIC: [u8; 4] = *b"lmgg";
/// The same the other way round, as some tools write it before little-endian numbers.
const SWAPPED_MAGIC: [u8; 4] = *b"ggml";
const MAX_RANK: usize = 4;
/// Larger hyper-parameters than this are none: the file is broken or big-endian.
const MAX_HPARAM: u32 = 1 << 24;
/// A token's length.
const MIN_TOKEN_BYTES: usize = 4;

/// Whether a file that begins with these bytes is of this kind.
pub(crate) fn has_magic(start: &[u8]) -> bool {
    start.starts_with(&MAGIC) || start.starts_with(&SWAPPED_MAGIC)
}

/// The sizes of a Whisper model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hparams {
    /// Tokens, the special ones included.
    pub vocab_size: u32,
    /// Positions of the encoder's output.
    pub audio_ctx: u32,
    /// Width of the encoder.
    pub audio_state: u32,
    /// Attention heads of the encoder.
    pub audio_heads: u32,
    /// Layers of the encoder.
    pub audio_layers: u32,
    /// Positions of the decoder.
    pub text_ctx: u32,
    /// Width of the decoder.
    pub text_state: u32,
    /// Attention heads of the decoder.
    pub text_heads: u32,
    /// Layers of the decoder.
    pub text_layers: u32,
    /// Mel bands.
    pub mels: u32,
    /// What most tensors are stored as, in ggml's own numbering, with 1000 times the quantisation version added.
    pub ftype: u32,
}

/// The filters that turn a power spectrum into mel bands.
#[derive(Clone, Debug, PartialEq)]
pub struct MelFilters {
    /// Mel bands: rows.
    pub mels: usize,
    /// Frequency bins: columns.
    pub bins: usize,
    /// `[mels][bins]`
    pub values: Vec<f32>,
}

/// An open Whisper model.
#[derive(Debug)]
pub struct WhisperGgml {
    hparams: Hparams,
    /// `[mels][bins]`, f32.
    filters: Span,
    filter_shape: (usize, usize),
    /// Lengths and bytes of all tokens.
    tokens: Range<usize>,
    token_count: usize,
    table: TensorTable,
}

impl WhisperGgml {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(MappedFile::open(path.as_ref())?)
    }

    /// Reads a whole file that is in memory already.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Self::read(MappedFile::from_bytes(PathBuf::from("(in memory)"), bytes))
    }

    fn read(file: MappedFile) -> Result<Self> {
        let mut cursor = Cursor::new(file.path(), file.bytes());
        let hparams = read_hparams(&mut cursor, file.path())?;

        let at = cursor.position();
        let mels = cursor.u32("mel filters: rows")?;
        let bins = cursor.u32("mel filters: columns")?;
        if mels != hparams.mels {
            let problem = format!("{mels}, but the model has {} mel bands", hparams.mels);
            return Err(cursor.malformed("mel filters: rows", at, problem));
        }
        let start = cursor.position();
        cursor.take(u64::from(mels) * u64::from(bins) * 4, "mel filters")?;
        let filters = Span { file: 0, range: start..cursor.position() };

        let (token_count, tokens) = read_vocabulary(&mut cursor, &hparams)?;
        let entries = read_tensors(&mut cursor)?;
        check_tensor_count(&cursor, &hparams, entries.len())?;
        Ok(Self {
            hparams,
            filters,
            filter_shape: (mels as usize, bins as usize),
            tokens,
            token_count,
            table: TensorTable::new(vec![file], entries)?,
        })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        self.file().path()
    }

    /// The sizes of the model.
    pub fn hparams(&self) -> &Hparams {
        &self.hparams
    }

    /// The mel filters.
    pub fn mel_filters(&self) -> MelFilters {
        let (mels, bins) = self.filter_shape;
        let bytes = &self.file().bytes()[self.filters.range.clone()];
        let values = bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        MelFilters { mels, bins, values }
    }

    /// The number of tokens the file spells out; the special ones after them are not.
    pub fn token_count(&self) -> usize {
        self.token_count
    }

    /// The tokens in order of their ids. A token is any bytes, not always UTF-8.
    pub fn tokens(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.file().bytes()[self.tokens.clone()];
        std::iter::from_fn(move || {
            let (&len, after) = rest.split_first_chunk()?;
            let (token, after) = after.split_at_checked(u32::from_le_bytes(len) as usize)?;
            rest = after;
            Some(token)
        })
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.table.iter()
    }

    /// The tensor called `name`, if there is one.
    pub fn get_tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.table.get(name)
    }

    /// See [`ModelFile::mapping`](crate::ModelFile::mapping).
    pub fn mapping(&self, name: &str) -> Option<&crate::Mapping> {
        self.table.mapping(name)
    }

    /// See [`ModelFile::release_tensor`](crate::ModelFile::release_tensor).
    pub fn release_tensor(&self, name: &str) {
        self.table.release(name);
    }

    /// The tensor called `name`, or an error that says so.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        self.table.require(name, self.path())
    }

    fn file(&self) -> &MappedFile {
        &self.table.files()[0]
    }
}

fn read_hparams(cursor: &mut Cursor<'_>, path: &Path) -> Result<Hparams> {
    let magic: [u8; 4] = cursor.array("magic")?;
    if !has_magic(&magic) {
        let problem = format!("\"{}\" instead of \"lmgg\"", magic.escape_ascii());
        return Err(cursor.malformed("magic", 0, problem));
    }
    let mut next = |field: &str| {
        let at = cursor.position();
        let value = cursor.u32(field)?;
        if (1..=MAX_HPARAM).contains(&value) || (field == "ftype" && value == 0) {
            return Ok(value);
        }
        if magic == SWAPPED_MAGIC {
            let hint = "convert it on a little-endian machine";
            return Err(Error::unsupported(path, "a big-endian Whisper model", hint));
        }
        Err(cursor.malformed(field, at, format!("{value} is not a size a model can have")))
    };
    Ok(Hparams {
        vocab_size: next("n_vocab")?,
        audio_ctx: next("n_audio_ctx")?,
        audio_state: next("n_audio_state")?,
        audio_heads: next("n_audio_head")?,
        audio_layers: next("n_audio_layer")?,
        text_ctx: next("n_text_ctx")?,
        text_state: next("n_text_state")?,
        text_heads: next("n_text_head")?,
        text_layers: next("n_text_layer")?,
        mels: next("n_mels")?,
        ftype: next("ftype")?,
    })
}

fn read_vocabulary(cursor: &mut Cursor<'_>, hparams: &Hparams) -> Result<(usize, Range<usize>)> {
    let at = cursor.position();
    let count = cursor.u32("vocabulary: count")?;
    if count > hparams.vocab_size || count as usize > cursor.remaining() / MIN_TOKEN_BYTES {
        let problem = format!(
            "{count}, but the model has {} tokens and the file {} more bytes",
            hparams.vocab_size,
            cursor.remaining()
        );
        return Err(cursor.malformed("vocabulary: count", at, problem));
    }
    let start = cursor.position();
    for i in 0..count {
        let len = cursor.u32(format_args!("length of token {i}"))?;
        cursor.take(len.into(), format_args!("token {i}"))?;
    }
    Ok((count as usize, start..cursor.position()))
}

fn read_tensors(cursor: &mut Cursor<'_>) -> Result<Vec<Entry>> {
    // The file does not say how many there are, so they are counted first: a vector that grows would hold two copies.
    let mut counter = cursor.clone();
    let mut count = 0;
    while counter.remaining() > 0 {
        read_tensor(&mut counter, count)?;
        count += 1;
    }
    let mut entries = Vec::with_capacity(count);
    for i in 0..count {
        entries.push(read_tensor(cursor, i)?);
    }
    Ok(entries)
}

fn read_tensor(cursor: &mut Cursor<'_>, index: usize) -> Result<Entry> {
    let at = cursor.position();
    let rank = cursor.u32(format_args!("rank of tensor {index}"))? as usize;
    if !(1..=MAX_RANK).contains(&rank) {
        let problem = format!("{rank} dimensions; 1 to {MAX_RANK} are allowed");
        return Err(cursor.malformed(format_args!("rank of tensor {index}"), at, problem));
    }
    let name_len = cursor.u32(format_args!("length of the name of tensor {index}"))?;
    let dtype_at = cursor.position();
    let code = cursor.u32(format_args!("dtype of tensor {index}"))?;
    let shape_at = cursor.position();
    let mut dims = [0; MAX_RANK];
    for dim in &mut dims[..rank] {
        *dim = cursor.u32(format_args!("shape of tensor {index}"))? as usize;
    }
    dims[..rank].reverse();
    let shape: Box<[usize]> = dims[..rank].into();
    let name = cursor.text(name_len.into(), format_args!("name of tensor {index}"))?;

    let dtype = DType::from_code(code).ok_or_else(|| {
        let problem = format!("code {code} is unknown or retired");
        cursor.malformed(format_args!("tensor \"{name}\": dtype"), dtype_at, problem)
    })?;
    let byte_len = table::byte_len(&shape, dtype).map_err(|problem| {
        let problem = format!("{shape:?}: {problem}");
        cursor.malformed(format_args!("tensor \"{name}\": shape"), shape_at, problem)
    })?;
    let start = cursor.position();
    cursor.take(byte_len as u64, format_args!("tensor \"{name}\": values"))?;
    let bytes = Span { file: 0, range: start..cursor.position() };
    Ok(Entry { name: name.into(), shape, stored: Stored::Blocks { dtype, bytes } })
}

/// A file cut off between two tensors is only found out by counting them.
fn check_tensor_count(cursor: &Cursor<'_>, hparams: &Hparams, count: usize) -> Result<()> {
    // Positions, two convolutions with biases and a final norm; positions, embedding and a final norm.
    let outside_layers = 7 + 4;
    // Two norms, attention (its key projection has no bias), two linear layers; a decoder layer has a second
    // attention with its norm.
    let (audio_layer, text_layer) = (15, 24);
    let expected = outside_layers
        + u64::from(hparams.audio_layers) * audio_layer
        + u64::from(hparams.text_layers) * text_layer;
    if count as u64 == expected {
        return Ok(());
    }
    let problem = format!("{count} tensors, but a model of these sizes has {expected}");
    Err(cursor.malformed("tensors", cursor.position(), problem))
}
