//! A bounds-checked little-endian reader whose errors name the file, the field and the offset.

use std::fmt::Display;
use std::path::Path;

use crate::{Error, Result};

/// Reads forward through the bytes of a file.
///
/// Every method takes the name of the field it reads, which is formatted only when the read fails.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self { path, bytes, position: 0 }
    }

    /// Bytes read so far, which is also the offset in the file.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// The file, for errors.
    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// The bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// An error about the field that begins at `offset`.
    pub(crate) fn malformed(&self, field: impl Display, offset: usize, problem: impl Into<String>) -> Error {
        Error::malformed(self.path, field, offset, problem)
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, field: impl Display) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.position..];
        match usize::try_from(len).ok().and_then(|len| rest.get(..len)) {
            Some(taken) => {
                self.position += taken.len();
                Ok(taken)
            }
            None => {
                let problem = format!("needs {len} bytes, but the file ends after {}", rest.len());
                Err(self.malformed(field, self.position, problem))
            }
        }
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, field: impl Display) -> Result<[u8; N]> {
        match self.bytes[self.position..].first_chunk() {
            Some(&taken) => {
                self.position += N;
                Ok(taken)
            }
            None => {
                let problem = format!("needs {N} bytes, but the file ends after {}", self.remaining());
                Err(self.malformed(field, self.position, problem))
            }
        }
    }

    pub(crate) fn u16(&mut self, field: impl Display) -> Result<u16> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: impl Display) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: impl Display) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A count of things of at least `min_bytes` each: one that cannot fit into the rest of the file is an error, so
    /// that it is safe to reserve room for that many.
    pub(crate) fn count(&mut self, min_bytes: usize, field: impl Display) -> Result<usize> {
        let at = self.position;
        let count = self.u64(&field)?;
        let most = self.remaining() / min_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => {
                let problem =
                    format!("{count}, but the {} bytes that follow hold at most {most}", self.remaining());
                Err(self.malformed(field, at, problem))
            }
        }
    }

    /// Text of `len` bytes.
    pub(crate) fn text(&mut self, len: u64, field: impl Display) -> Result<&'a str> {
        let at = self.position;
        let bytes = self.take(len, &field)?;
        std::str::from_utf8(bytes).map_err(|error| {
            self.malformed(field, at + error.valid_up_to(), "the bytes from here on are not UTF-8")
        })
    }

    /// Moves past `count` strings, each a length (u64) and text, if all is right; otherwise stays where it is and says
    /// `false`.
    ///
    /// Vocabularies have some hundred thousand of them, and checking each by itself would be most of the time that
    /// opening a file takes. The bytes of nearly all lengths are ASCII (that of 5 is, that of 200 is not), and no
    /// character reaches across an ASCII byte: a run of strings is UTF-8, lengths and all, exactly if each of them is.
    pub(crate) fn skip_strings(&mut self, count: usize) -> bool {
        const NOT_ASCII: u64 = 0x8080_8080_8080_8080;
        let is_utf8 = |bytes: &[u8]| simdutf8::basic::from_utf8(bytes).is_ok();
        let start = &self.bytes[self.position..];
        let (mut run, mut rest) = (start, start);
        for _ in 0..count {
            let Some((len, after)) = rest.split_first_chunk() else { return false };
            let len = u64::from_le_bytes(*len);
            let Some((text, after)) = usize::try_from(len).ok().and_then(|len| after.split_at_checked(len))
            else {
                return false;
            };
            if len & NOT_ASCII != 0 {
                if !is_utf8(&run[..run.len() - rest.len()]) || !is_utf8(text) {
                    return false;
                }
                run = after;
            }
            rest = after;
        }
        let right = is_utf8(&run[..run.len() - rest.len()]);
        if right {
            self.position += start.len() - rest.len();
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(strings: &[&[u8]]) -> Option<usize> {
        let mut bytes = Vec::new();
        for string in strings {
            bytes.extend_from_slice(&(string.len() as u64).to_le_bytes());
            bytes.extend_from_slice(string);
        }
        let len = bytes.len();
        let mut cursor = Cursor::new(Path::new("f"), &bytes);
        let right = cursor.skip_strings(strings.len());
        assert_eq!(cursor.position(), if right { len } else { 0 });
        right.then_some(len)
    }

    #[test]
    fn runs_of_strings_are_right_exactly_if_each_is() {
        let long = "é".repeat(100);
        assert!(skip(&[]).is_some());
        assert!(skip(&[b"a", b"", "Ġ🔥".as_bytes(), long.as_bytes(), b"z"]).is_some());
        assert!(skip(&[&[b'x'; 128], &[b'y'; 300], long.as_bytes(), long.as_bytes()]).is_some());
        // Halves of a character in neighbouring strings make no whole.
        assert!(skip(&[b"\xc3", b"\xa9"]).is_none());
        assert!(skip(&[long.as_bytes(), b"\xff", b"a"]).is_none());
        assert!(skip(&[b"\xff", long.as_bytes()]).is_none());
        assert!(skip(&[&long.as_bytes()[1..]]).is_none());
    }

    #[test]
    fn strings_beyond_the_end_are_not_skipped() {
        let mut bytes = 5u64.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"four");
        let mut cursor = Cursor::new(Path::new("f"), &bytes);
        assert!(!cursor.skip_strings(1));
        let mut cursor = Cursor::new(Path::new("f"), &[0xff; 8]);
        assert!(!cursor.skip_strings(1));
    }
}
