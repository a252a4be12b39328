//! The zip archive around a PyTorch checkpoint. Its records are never compressed, so that tensors can be used where they lie.

use std::ops::Range;

use crate::cursor::Cursor;
use crate::mapped::MappedFile;
use crate::{Error, Result};

const LOCAL_HEADER: [u8; 4] = *b"PK\x03\x04";
const CENTRAL_HEADER: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const WIDE_END: [u8; 4] = *b"PK\x06\x06";
const WIDE_LOCATOR: [u8; 4] = *b"PK\x06\x07";

/// The end record without its comment, and the longest comment.
const END_BYTES: usize = 22;
const LONGEST_COMMENT: usize = u16::MAX as usize;
const LOCATOR_BYTES: usize = 20;
const CENTRAL_BYTES: usize = 46;
/// The kind of extra field that holds sizes and offsets of 64 bits.
const WIDE_SIZES: u16 = 1;

/// A record of the archive.
#[derive(Debug)]
struct Record<'a> {
    name: &'a str,
    /// The bytes in the file.
    range: Range<usize>,
}

/// The records of an archive, sorted by name.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    records: Vec<Record<'a>>,
}

/// Where the table of records lies, and how many it lists.
struct Table {
    count: u64,
    offset: u64,
}

impl<'a> Archive<'a> {
    pub(super) fn read(file: &'a MappedFile) -> Result<Self> {
        let table = find_table(file)?;
        let (path, bytes) = (file.path(), file.bytes());
        let start = usize::try_from(table.offset).ok().filter(|&start| start <= bytes.len());
        let Some(start) = start else {
            let problem = format!("it should begin at byte {}", table.offset);
            return Err(Error::malformed(path, "zip: table of records", bytes.len(), problem));
        };
        let mut cursor = Cursor::new(path, bytes);
        cursor.take(start as u64, "zip: table of records")?;
        let most = cursor.remaining() / CENTRAL_BYTES;
        let count = usize::try_from(table.count).ok().filter(|&count| count <= most);
        let Some(count) = count else {
            let problem = format!("{} records where at most {most} fit", table.count);
            return Err(Error::malformed(path, "zip: number of records", start, problem));
        };
        let mut records = Vec::with_capacity(count);
        for i in 0..count {
            records.push(read_record(&mut cursor, file, i)?);
        }
        records.sort_unstable_by_key(|record: &Record<'_>| record.name);
        if let Some(pair) = records.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let field = format!("zip: record \"{}\"", pair[1].name);
            return Err(Error::malformed(path, field, pair[1].range.start, "another has the same name"));
        }
        Ok(Self { records })
    }

    /// Where the record called `name` lies.
    pub(super) fn get(&self, name: &str) -> Option<Range<usize>> {
        let position = self.records.binary_search_by(|record| record.name.cmp(name)).ok()?;
        Some(self.records[position].range.clone())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.records.iter().map(|record| record.name)
    }
}

/// Finds the end record from the back, and the wide one before it where 32 bits are too few.
fn find_table(file: &MappedFile) -> Result<Table> {
    let (path, bytes) = (file.path(), file.bytes());
    let first = bytes.len().saturating_sub(END_BYTES + LONGEST_COMMENT);
    let at = (first..bytes.len().saturating_sub(END_BYTES - 1))
        .rev()
        .find(|&at| bytes[at..].starts_with(&END))
        .ok_or_else(|| {
            let problem = "it is not there: the file is cut off, or no zip archive";
            Error::malformed(path, "zip: end of the archive", bytes.len(), problem)
        })?;
    let mut cursor = Cursor::new(path, bytes);
    cursor.take(at as u64 + 10, "zip: end of the archive")?;
    let count = cursor.u16("zip: number of records")?;
    cursor.u32("zip: size of the table")?;
    let offset = cursor.u32("zip: offset of the table")?;
    let locator = at.checked_sub(LOCATOR_BYTES).filter(|&at| bytes[at..].starts_with(&WIDE_LOCATOR));
    let Some(locator) = locator.filter(|_| count == u16::MAX || offset == u32::MAX) else {
        return Ok(Table { count: count.into(), offset: offset.into() });
    };
    let mut cursor = Cursor::new(path, bytes);
    cursor.take(locator as u64 + 8, "zip: locator")?;
    let at = cursor.u64("zip: locator")?;
    let mut cursor = Cursor::new(path, bytes);
    cursor.take(at, "zip: wide end of the archive")?;
    if cursor.array::<4>("zip: wide end of the archive")? != WIDE_END {
        let problem = "its mark is missing";
        return Err(Error::malformed(path, "zip: wide end of the archive", at as usize, problem));
    }
    cursor.take(28, "zip: wide end of the archive")?;
    let count = cursor.u64("zip: number of records")?;
    cursor.u64("zip: size of the table")?;
    Ok(Table { count, offset: cursor.u64("zip: offset of the table")? })
}

fn read_record<'a>(cursor: &mut Cursor<'a>, file: &'a MappedFile, index: usize) -> Result<Record<'a>> {
    let at = cursor.position();
    let field = format_args!("zip: record {index}");
    if cursor.array::<4>(field)? != CENTRAL_HEADER {
        return Err(cursor.malformed(field, at, "its mark is missing"));
    }
    cursor.take(4, field)?;
    let flags = cursor.u16(field)?;
    let method = cursor.u16(field)?;
    cursor.take(8, field)?;
    let packed = cursor.u32(field)?;
    let size = cursor.u32(field)?;
    let name_len = cursor.u16(field)?;
    let extra_len = cursor.u16(field)?;
    let comment_len = cursor.u16(field)?;
    cursor.take(8, field)?;
    let offset = cursor.u32(field)?;
    let name = cursor.text(name_len.into(), field)?;
    let extra = cursor.take(extra_len.into(), field)?;
    cursor.take(comment_len.into(), field)?;
    if method != 0 || flags & 1 != 0 {
        let what = format!("a compressed or encrypted record (\"{name}\") in a checkpoint");
        return Err(Error::unsupported(file.path(), what, "save it again with torch.save"));
    }
    let field = format_args!("zip: record \"{name}\"");
    let mut wide = wide_values(extra);
    let mut widened = |value: u32| match value {
        u32::MAX => wide.next().ok_or_else(|| cursor.malformed(field, at, "its size is missing")),
        value => Ok(value.into()),
    };
    // In this order, each only where 32 bits are too few.
    let size = widened(size)?;
    let packed = widened(packed)?;
    let offset = widened(offset)?;
    if size != packed {
        return Err(cursor.malformed(field, at, format!("{packed} bytes stored of {size}")));
    }
    let mut local = Cursor::new(file.path(), file.bytes());
    local.take(offset, field)?;
    if local.array::<4>(field)? != LOCAL_HEADER {
        return Err(cursor.malformed(field, offset as usize, "its mark is missing"));
    }
    local.take(22, field)?;
    let name_len = local.u16(field)?;
    let extra_len = local.u16(field)?;
    local.take(u64::from(name_len) + u64::from(extra_len), field)?;
    let start = local.position();
    local.take(size, field)?;
    Ok(Record { name, range: start..local.position() })
}

/// The 64-bit values among a record's extra fields.
fn wide_values(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut values: &[u8] = &[];
    while let Some((&[kind_low, kind_high, len_low, len_high], rest)) = extra.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([len_low, len_high])).min(rest.len());
        if u16::from_le_bytes([kind_low, kind_high]) == WIDE_SIZES {
            values = &rest[..len];
            break;
        }
        extra = &rest[len..];
    }
    values.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes))
}
