//! One GGUF file's header: read completely and checked completely when the file is opened.
//!
//! All fields are little-endian and unaligned, one after the other:
//!
//! ```text
//! magic "GGUF", version u32, tensor count u64, key count u64
//! per key:    name (u64 length, bytes), type u32, value
//! per tensor: name, rank u32, dims u64 (innermost first), dtype u32, offset u64
//! padding to the alignment, then tensor data; offsets count from here
//! ```

use super::metadata::{Metadata, MetadataEntry};
use super::value::ValueType;
use crate::cursor::Cursor;
use crate::mapped::MappedFile;
use crate::table::{self, Entry, Span, Stored};
use crate::{DType, Error, Result};

pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
/// The alignment of files that do not give one.
pub(super) const DEFAULT_ALIGNMENT: u32 = 32;
/// GGUF's limit on a tensor's dimensions.
pub(super) const MAX_RANK: usize = 4;
/// Arrays of arrays deeper than this are refused: nothing uses them, and the reader recurses.
const MAX_ARRAY_DEPTH: u32 = 8;
/// A key (length), a type, and a value of one byte.
const MIN_KEY_BYTES: usize = 8 + 4 + 1;
/// A name (length), a rank, a dtype and an offset.
const MIN_TENSOR_BYTES: usize = 8 + 4 + 4 + 8;

/// What a file says about itself.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: u32,
    metadata: Vec<MetadataEntry>,
    /// Positions in `metadata`, sorted by key.
    by_key: Box<[u32]>,
}

impl Header {
    pub(super) fn metadata<'a>(&'a self, file: &'a MappedFile) -> Metadata<'a> {
        Metadata::new(file, &self.metadata, &self.by_key)
    }
}

/// Reads the header of `file`, which is the `file_index`-th of its model.
pub(super) fn read(file: &MappedFile, file_index: usize) -> Result<(Header, Vec<Entry>)> {
    let mut cursor = Cursor::new(file.path(), file.bytes());
    let version = read_version(&mut cursor, file)?;
    // Both counts come before the keys: what is left must hold at least the smallest tensors and keys there can be.
    let tensor_count = cursor.count(MIN_TENSOR_BYTES, "tensor count")?;
    let key_count = cursor.count(MIN_KEY_BYTES, "metadata key count")?;
    let header = read_metadata(&mut cursor, version, key_count)?;
    let alignment = read_alignment(&cursor, header.metadata(file))?;
    let tensors = read_tensors(&mut cursor, tensor_count, alignment)?;
    // A file without tensors may end before this padding does.
    let data_start = cursor.position().next_multiple_of(alignment);
    let entries = locate(file, file_index, tensors, data_start)?;
    Ok((header, entries))
}

fn read_version(cursor: &mut Cursor<'_>, file: &MappedFile) -> Result<u32> {
    let magic: [u8; 4] = cursor.array("magic")?;
    if magic != MAGIC {
        let problem = format!("\"{}\" instead of \"GGUF\"", magic.escape_ascii());
        return Err(cursor.malformed("magic", 0, problem));
    }
    let unsupported = |what: String, hint: &str| Err(Error::unsupported(file.path(), what, hint));
    match cursor.u32("version")? {
        version @ (2 | 3) => Ok(version),
        1 => unsupported("GGUF version 1".to_owned(), "convert it with a llama.cpp of 2023 or fetch it anew"),
        version if version != 0 && version & 0xffff == 0 => {
            unsupported("big-endian GGUF".to_owned(), "convert it with gguf_convert_endian.py")
        }
        version => unsupported(format!("GGUF version {version}"), "versions 2 and 3 are read"),
    }
}

fn read_metadata(cursor: &mut Cursor<'_>, version: u32, count: usize) -> Result<Header> {
    let mut metadata = Vec::with_capacity(count);
    for i in 0..count {
        let len = cursor.u64(format_args!("length of metadata key {i}"))?;
        let key = cursor.text(len, format_args!("metadata key {i}"))?;
        let value_type = read_value_type(cursor, key)?;
        let start = cursor.position();
        skip_value(cursor, value_type, key, 0)?;
        metadata.push(MetadataEntry { key: key.into(), value_type, value: start..cursor.position() });
    }
    match table::sorted_unique(metadata.len(), |i| &*metadata[i].key) {
        Ok(by_key) => Ok(Header { version, metadata, by_key }),
        Err(repeated) => {
            let MetadataEntry { key, value, .. } = &metadata[repeated];
            Err(cursor.malformed(format_args!("\"{key}\""), value.start, "the key occurs twice"))
        }
    }
}

fn read_value_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType> {
    let at = cursor.position();
    let code = cursor.u32(format_args!("type of \"{key}\""))?;
    ValueType::from_code(code).ok_or_else(|| {
        cursor.malformed(format_args!("type of \"{key}\""), at, format!("{code} is no value type (0 to 12)"))
    })
}

/// Moves past a value, checking everything in it. `depth` is the number of arrays around it.
pub(super) fn skip_value(
    cursor: &mut Cursor<'_>,
    value_type: ValueType,
    key: &str,
    depth: u32,
) -> Result<()> {
    let at = cursor.position();
    let field = || format!("\"{key}\"");
    match value_type {
        ValueType::Bool => check_bools(cursor, 1, key),
        ValueType::String => {
            let len = cursor.u64(format_args!("length of \"{key}\""))?;
            cursor.text(len, format_args!("\"{key}\"")).map(drop)
        }
        ValueType::Array if depth == MAX_ARRAY_DEPTH => {
            Err(cursor.malformed(field(), at, format!("arrays are nested deeper than {MAX_ARRAY_DEPTH}")))
        }
        ValueType::Array => {
            let element_type = read_value_type(cursor, key)?;
            let count = cursor.count(element_type.min_bytes(), format_args!("length of \"{key}\""))?;
            match element_type.fixed_bytes() {
                Some(_) if element_type == ValueType::Bool => check_bools(cursor, count as u64, key),
                Some(size) => cursor.take((count * size) as u64, format_args!("\"{key}\"")).map(drop),
                None if element_type == ValueType::String && cursor.skip_strings(count) => Ok(()),
                None => (0..count).try_for_each(|_| skip_value(cursor, element_type, key, depth + 1)),
            }
        }
        fixed => cursor.take(fixed.min_bytes() as u64, format_args!("\"{key}\"")).map(drop),
    }
}

fn check_bools(cursor: &mut Cursor<'_>, count: u64, key: &str) -> Result<()> {
    let at = cursor.position();
    let bytes = cursor.take(count, format_args!("\"{key}\""))?;
    match bytes.iter().position(|&byte| byte > 1) {
        Some(i) => {
            let problem = format!("a bool is 0 or 1, not {}", bytes[i]);
            Err(cursor.malformed(format_args!("\"{key}\""), at + i, problem))
        }
        None => Ok(()),
    }
}

fn read_alignment(cursor: &Cursor<'_>, metadata: Metadata<'_>) -> Result<usize> {
    let alignment = metadata.get::<u32>(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() {
        return Ok(alignment as usize);
    }
    let at = metadata.offset(ALIGNMENT_KEY).unwrap_or_default() as usize;
    let problem = format!("{alignment} is not a power of two");
    Err(cursor.malformed(format_args!("\"{ALIGNMENT_KEY}\""), at, problem))
}

/// A tensor as the header describes it.
struct TensorInfo {
    name: Box<str>,
    /// Outermost first.
    shape: Box<[usize]>,
    dtype: DType,
    byte_len: usize,
    /// From the start of the tensor data.
    offset: u64,
    /// Where the offset is written in the header.
    offset_at: usize,
}

fn read_tensors(cursor: &mut Cursor<'_>, count: usize, alignment: usize) -> Result<Vec<TensorInfo>> {
    let most = cursor.remaining() / MIN_TENSOR_BYTES;
    if count > most {
        let (at, left) = (cursor.position(), cursor.remaining());
        let problem = format!("the {left} bytes left cannot hold {count} tensors");
        return Err(cursor.malformed("tensor list", at, problem));
    }
    let mut tensors = Vec::with_capacity(count);
    for i in 0..count {
        tensors.push(read_tensor(cursor, i, alignment)?);
    }
    Ok(tensors)
}

fn read_tensor(cursor: &mut Cursor<'_>, index: usize, alignment: usize) -> Result<TensorInfo> {
    let len = cursor.u64(format_args!("length of the name of tensor {index}"))?;
    let name = cursor.text(len, format_args!("name of tensor {index}"))?;

    let rank_at = cursor.position();
    let rank = cursor.u32(format_args!("tensor \"{name}\": rank"))? as usize;
    if rank > MAX_RANK {
        let problem = format!("{rank} dimensions; at most {MAX_RANK} are allowed");
        return Err(cursor.malformed(format_args!("tensor \"{name}\": rank"), rank_at, problem));
    }
    let shape_at = cursor.position();
    let shape_field = || format!("tensor \"{name}\": shape");
    let mut dims = [0; MAX_RANK];
    for dim in &mut dims[..rank] {
        let at = cursor.position();
        let stored = cursor.u64(format_args!("tensor \"{name}\": shape"))?;
        *dim = usize::try_from(stored)
            .map_err(|_| cursor.malformed(shape_field(), at, format!("dimension {stored} is too large")))?;
    }
    dims[..rank].reverse();
    let shape: Box<[usize]> = dims[..rank].into();

    let dtype_at = cursor.position();
    let code = cursor.u32(format_args!("tensor \"{name}\": dtype"))?;
    let dtype = DType::from_code(code).ok_or_else(|| {
        let problem = format!("code {code} is unknown or retired");
        cursor.malformed(format_args!("tensor \"{name}\": dtype"), dtype_at, problem)
    })?;
    let byte_len = table::byte_len(&shape, dtype).map_err(|problem| {
        cursor.malformed(shape_field(), shape_at, format!("{dims:?}: {problem}", dims = &shape))
    })?;

    let offset_at = cursor.position();
    let offset = cursor.u64(format_args!("tensor \"{name}\": offset"))?;
    if !offset.is_multiple_of(alignment as u64) {
        let problem = format!("{offset} is not a multiple of the alignment, {alignment}");
        return Err(cursor.malformed(format_args!("tensor \"{name}\": offset"), offset_at, problem));
    }
    Ok(TensorInfo { name: name.into(), shape, dtype, byte_len, offset, offset_at })
}

/// Turns offsets into ranges of the file, none outside it and no two sharing a byte.
fn locate(
    file: &MappedFile,
    file_index: usize,
    tensors: Vec<TensorInfo>,
    data_start: usize,
) -> Result<Vec<Entry>> {
    let file_len = file.bytes().len();
    let malformed = |name: &str, offset_at: usize, problem: String| {
        Error::malformed(file.path(), format_args!("tensor \"{name}\": offset"), offset_at, problem)
    };
    let range_of = |tensor: &TensorInfo| {
        if tensor.byte_len == 0 {
            return Some(0..0);
        }
        let start = data_start.checked_add(usize::try_from(tensor.offset).ok()?)?;
        let end = start.checked_add(tensor.byte_len)?;
        (end <= file_len).then_some(start..end)
    };

    let mut offsets_at = Vec::with_capacity(tensors.len());
    let mut entries = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let Some(range) = range_of(&tensor) else {
            let TensorInfo { byte_len, offset, .. } = tensor;
            let problem = format!(
                "{byte_len} bytes at {data_start} + {offset} reach beyond the end of the file at {file_len}"
            );
            return Err(malformed(&tensor.name, tensor.offset_at, problem));
        };
        offsets_at.push(tensor.offset_at);
        entries.push(Entry {
            name: tensor.name,
            shape: tensor.shape,
            stored: Stored::Blocks { dtype: tensor.dtype, bytes: Span { file: file_index, range } },
        });
    }
    match table::first_overlap(&entries) {
        Some((first, second)) => {
            let problem = format!("its data overlaps that of tensor \"{}\"", entries[first].name);
            Err(malformed(&entries[second].name, offsets_at[second], problem))
        }
        None => Ok(entries),
    }
}
