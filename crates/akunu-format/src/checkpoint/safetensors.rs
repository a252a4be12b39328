//! One SafeTensors file: a length (u64, little-endian), that much JSON, then the tensors' bytes.
//!
//! The JSON maps each name to `{"dtype", "shape", "data_offsets": [begin, end]}`, offsets counting from the end of the
//! JSON, with an optional `"__metadata__"` of strings. The tensors must fill the rest of the file exactly.
//!
//! The header is read here and not by the `safetensors` crate because that one lets a repeated name replace the first,
//! builds intermediate trees far larger than the header, and does not say where an error lies. It is the oracle of
//! the tests instead.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::json::Json;
use crate::cursor::Cursor;
use crate::mapped::MappedFile;
use crate::{DType, Error, Result, table};

/// What the format allows for the JSON.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The most dimensions accepted; no weight has more than five.
const MAX_RANK: usize = 8;
const METADATA_KEY: &str = "__metadata__";

/// An element type of SafeTensors.
#[derive(Debug, PartialEq)]
pub(super) struct ElementType {
    pub(super) name: &'static str,
    bits: usize,
    /// Its equal in the dtype table, where there is one.
    pub(super) dtype: Option<DType>,
}

const fn element(name: &'static str, bits: usize, dtype: Option<DType>) -> ElementType {
    ElementType { name, bits, dtype }
}

const ELEMENT_TYPES: [ElementType; 22] = [
    element("F32", 32, Some(DType::F32)),
    element("F16", 16, Some(DType::F16)),
    element("BF16", 16, Some(DType::BF16)),
    element("F64", 64, Some(DType::F64)),
    element("I8", 8, Some(DType::I8)),
    element("I16", 16, Some(DType::I16)),
    element("I32", 32, Some(DType::I32)),
    element("I64", 64, Some(DType::I64)),
    element("U8", 8, None),
    element("U16", 16, None),
    element("U32", 32, None),
    element("U64", 64, None),
    element("BOOL", 8, None),
    element("C64", 64, None),
    element("F8_E4M3", 8, None),
    element("F8_E5M2", 8, None),
    element("F8_E8M0", 8, None),
    element("F8_E4M3FNUZ", 8, None),
    element("F8_E5M2FNUZ", 8, None),
    element("F6_E2M3", 6, None),
    element("F6_E3M2", 6, None),
    element("F4", 4, None),
];

/// A tensor as a file describes it.
#[derive(Debug)]
pub(super) struct RawTensor {
    pub(super) name: Box<str>,
    pub(super) element_type: &'static ElementType,
    pub(super) shape: Box<[usize]>,
    /// Which file of the checkpoint.
    pub(super) file: usize,
    /// The bytes in that file.
    pub(super) range: Range<usize>,
    /// Where the description is in the file.
    pub(super) described_at: usize,
}

/// Reads the header of `file`, the `file_index`-th of its checkpoint, and appends its tensors to `tensors`.
pub(super) fn read(file: &MappedFile, file_index: usize, tensors: &mut Vec<RawTensor>) -> Result<()> {
    let mut cursor = Cursor::new(file.path(), file.bytes());
    let len = cursor.u64("header length")?;
    if len > MAX_HEADER_BYTES {
        let problem = format!("{len} bytes; at most {MAX_HEADER_BYTES} are allowed");
        return Err(cursor.malformed("header length", 0, problem));
    }
    let offset = cursor.position();
    let text = cursor.text(len, "header")?;
    let json = Json { path: file.path(), text, offset };
    let data = cursor.position()..file.bytes().len();

    let mut count = 0;
    json.for_each_member("header", &mut |_, _| {
        count += 1;
        Ok(())
    })?;
    tensors.reserve_exact(count);
    let first = tensors.len();
    json.for_each_member("header", &mut |name, description| {
        if name == METADATA_KEY {
            return check_metadata(description);
        }
        tensors.push(read_tensor(&name, description, file_index, &data)?);
        Ok(())
    })?;
    check_coverage(file, &tensors[first..], data)
}

fn check_metadata(json: Json<'_>) -> Result<()> {
    json.for_each_member(METADATA_KEY, &mut |key, value| {
        if value.begins_with('"') {
            return Ok(());
        }
        Err(value.malformed(&format!("{METADATA_KEY} \"{key}\""), "expected a string"))
    })
}

/// The values of a tensor's description.
#[derive(Deserialize)]
struct Description<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Shape,
    data_offsets: (u64, u64),
}

fn read_tensor(name: &str, json: Json<'_>, file: usize, data: &Range<usize>) -> Result<RawTensor> {
    let field = format!("tensor \"{name}\"");
    let malformed = |problem: String| json.malformed(&field, problem);
    let Description { dtype, shape: Shape(shape), data_offsets: (begin, end) } = json.parse(&field)?;
    let element_type = ELEMENT_TYPES
        .iter()
        .find(|element_type| element_type.name == dtype)
        .ok_or_else(|| malformed(format!("the dtype \"{dtype}\" is unknown")))?;
    let byte_len = table::element_count(&shape)
        .and_then(|elements| elements.checked_mul(element_type.bits))
        .filter(|bits| bits.is_multiple_of(8))
        .map(|bits| bits / 8)
        .ok_or_else(|| malformed(format!("the shape {shape:?} has no size in whole bytes")))?;
    let locate = |offset: u64| usize::try_from(offset).ok().and_then(|offset| data.start.checked_add(offset));
    let range = match (locate(begin), locate(end)) {
        (Some(begin), Some(end)) if begin <= end && end <= data.end => begin..end,
        _ => {
            let problem =
                format!("data_offsets [{begin}, {end}] do not lie within the {} bytes of data", data.len());
            return Err(malformed(problem));
        }
    };
    if range.len() != byte_len {
        let problem = format!(
            "data_offsets [{begin}, {end}] hold {} bytes, but {dtype} {shape:?} takes {byte_len}",
            range.len()
        );
        return Err(malformed(problem));
    }
    Ok(RawTensor { name: name.into(), element_type, shape, file, range, described_at: json.offset })
}

/// Every byte of data must belong to exactly one tensor.
fn check_coverage(file: &MappedFile, tensors: &[RawTensor], data: Range<usize>) -> Result<()> {
    let mut order: Vec<u32> = (0..tensors.len() as u32).collect();
    order.sort_unstable_by_key(|&i| (tensors[i as usize].range.start, tensors[i as usize].range.end));
    let mut covered = data.start;
    for i in order {
        let RawTensor { name, range, described_at, .. } = &tensors[i as usize];
        let field = format_args!("tensor \"{name}\"");
        if range.start < covered {
            let problem = "its data overlap those of another tensor";
            return Err(Error::malformed(file.path(), field, *described_at, problem));
        }
        if range.start > covered {
            let problem = format!("{} bytes before its data belong to no tensor", range.start - covered);
            return Err(Error::malformed(file.path(), field, *described_at, problem));
        }
        covered = range.end;
    }
    if covered < data.end {
        let problem = format!("{} bytes at the end belong to no tensor", data.end - covered);
        return Err(Error::malformed(file.path(), "data", covered, problem));
    }
    Ok(())
}

/// A list of dimensions, outermost first, no longer than [`MAX_RANK`].
struct Shape(Box<[usize]>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;
        impl<'de> Visitor<'de> for ShapeVisitor {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX_RANK} dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let (mut dims, mut rank) = ([0; MAX_RANK], 0);
                while let Some(dim) = list.next_element()? {
                    *dims.get_mut(rank).ok_or_else(|| serde::de::Error::invalid_length(rank + 1, &self))? =
                        dim;
                    rank += 1;
                }
                Ok(Shape(dims[..rank].into()))
            }
        }
        deserializer.deserialize_seq(ShapeVisitor)
    }
}
