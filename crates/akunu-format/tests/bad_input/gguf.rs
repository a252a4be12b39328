//! GGUF: cut off, overwritten, and put together wrongly on purpose.

use std::fs;

use akunu_format::gguf::{Encode, Gguf, Value};
use akunu_format::{DType, Error};
use proptest::prelude::*;

use super::{fixture, overwrite_everywhere, read_all, within_limits};

fn open(bytes: Vec<u8>) -> Result<Gguf, Error> {
    within_limits(bytes.len(), || Gguf::from_bytes(bytes))
}

/// Opens and, if that succeeds, reads everything.
fn exercise(bytes: Vec<u8>) {
    if let Ok(gguf) = open(bytes) {
        for (key, value) in gguf.metadata().iter() {
            assert!(gguf.metadata().offset(key).is_some());
            visit(value);
        }
        read_all(gguf.tensors());
    }
}

fn visit(value: Value<'_>) {
    if let Value::Array(array) = value {
        assert_eq!(array.iter().inspect(|element| visit(*element)).count(), array.len());
    }
}

fn all_types() -> Vec<u8> {
    fs::read(fixture("gguf/all-types.gguf")).unwrap()
}

#[test]
fn a_file_cut_off_anywhere_is_an_error() {
    let bytes = all_types();
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    let padding = gguf.tensor("rank4").unwrap().byte_len().next_multiple_of(64) - 48;
    for len in 0..bytes.len() {
        let opened = open(bytes[..len].to_vec());
        // Only the padding after the last tensor may be missing.
        assert_eq!(opened.is_ok(), len >= bytes.len() - padding, "{len} of {} bytes", bytes.len());
    }
}

#[test]
fn overwritten_fields_do_no_harm() {
    overwrite_everywhere(&all_types(), exercise);
}

proptest! {
    #[test]
    fn overwritten_bytes_do_no_harm(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = all_types();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(bytes);
    }

    #[test]
    fn noise_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        prop_assert!(open([b"GGUF\x03\0\0\0", bytes.as_slice()].concat()).is_err() || bytes.starts_with(&[0; 16]));
    }
}

/// Puts a file together field by field, right or wrong.
#[derive(Default)]
struct Raw {
    keys: Vec<u8>,
    key_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
}

impl Raw {
    fn key(mut self, key: &[u8], value_type: u32, value: &[u8]) -> Self {
        (key.len() as u64).encode(&mut self.keys);
        self.keys.extend_from_slice(key);
        value_type.encode(&mut self.keys);
        self.keys.extend_from_slice(value);
        self.key_count += 1;
        self
    }

    /// `dims` as the file has them, innermost first.
    fn tensor(mut self, name: &str, dims: &[u64], dtype: u32, offset: u64) -> Self {
        name.encode(&mut self.tensors);
        (dims.len() as u32).encode(&mut self.tensors);
        dims.iter().for_each(|dim| dim.encode(&mut self.tensors));
        dtype.encode(&mut self.tensors);
        offset.encode(&mut self.tensors);
        self.tensor_count += 1;
        self
    }

    /// The file with so many bytes of data.
    fn bytes(&self, data: usize) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        self.tensor_count.encode(&mut bytes);
        self.key_count.encode(&mut bytes);
        bytes.extend_from_slice(&self.keys);
        bytes.extend_from_slice(&self.tensors);
        bytes.resize(bytes.len().next_multiple_of(32) + data, 0);
        bytes
    }
}

#[track_caller]
fn assert_refused(bytes: Vec<u8>, parts: &[&str]) {
    let message = open(bytes).unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "\"{part}\" is not in \"{message}\"");
    }
}

const F32: u32 = 0;
const U32_TYPE: u32 = 4;
const BOOL_TYPE: u32 = 7;
const STRING_TYPE: u32 = 8;
const ARRAY_TYPE: u32 = 9;

#[test]
fn hostile_counts_are_refused_at_once() {
    for count in [1u64 << 63, u64::MAX, 1 << 40] {
        let mut bytes = Raw::default().bytes(64);
        bytes[8..16].copy_from_slice(&count.to_le_bytes());
        assert_refused(bytes, &["tensor count at byte 8", &count.to_string()]);
        let mut bytes = Raw::default().bytes(64);
        bytes[16..24].copy_from_slice(&count.to_le_bytes());
        assert_refused(bytes, &["metadata key count at byte 16", &count.to_string()]);
        let text = count.to_le_bytes();
        assert_refused(
            Raw::default().key(b"k", STRING_TYPE, &text).bytes(64),
            &["\"k\" at byte 45", "needs"],
        );
        for element_type in 0..=12u32 {
            let array = [element_type.to_le_bytes().as_slice(), &count.to_le_bytes()].concat();
            let bytes = Raw::default().key(b"k", ARRAY_TYPE, &array).bytes(64);
            assert_refused(bytes, &["length of \"k\" at byte 41", &count.to_string()]);
        }
    }
}

#[test]
fn keys_that_cannot_be_right_are_refused() {
    let one = 1u32.to_le_bytes();
    assert_refused(
        Raw::default().key(b"k\xff", U32_TYPE, &one).bytes(64),
        &["metadata key 0 at byte 33", "UTF-8"],
    );
    assert_refused(
        Raw::default().key(b"k", 13, &one).bytes(64),
        &["type of \"k\" at byte 33", "13 is no value type"],
    );
    assert_refused(
        Raw::default().key(b"k", BOOL_TYPE, &[2]).bytes(64),
        &["\"k\" at byte 37", "0 or 1, not 2"],
    );
    let twice = Raw::default().key(b"k", U32_TYPE, &one).key(b"k", U32_TYPE, &one);
    assert_refused(twice.bytes(64), &["\"k\" at byte 54: the key occurs twice"]);
    let not_text = [1u64.to_le_bytes().as_slice(), &[0xff]].concat();
    assert_refused(
        Raw::default().key(b"k", STRING_TYPE, &not_text).bytes(64),
        &["\"k\" at byte 45", "UTF-8"],
    );
    let strings = [STRING_TYPE.to_le_bytes().as_slice(), &1u64.to_le_bytes(), &not_text].concat();
    assert_refused(Raw::default().key(b"k", ARRAY_TYPE, &strings).bytes(64), &["\"k\" at byte 57", "UTF-8"]);
    let mut deep = Vec::new();
    for _ in 0..200 {
        deep.extend_from_slice(&ARRAY_TYPE.to_le_bytes());
        deep.extend_from_slice(&1u64.to_le_bytes());
    }
    assert_refused(Raw::default().key(b"k", ARRAY_TYPE, &deep).bytes(64), &["\"k\"", "nested deeper than 8"]);
}

#[test]
fn alignments_that_cannot_be_right_are_refused() {
    for alignment in [0u32, 3, 48, u32::MAX] {
        let bytes = Raw::default().key(b"general.alignment", U32_TYPE, &alignment.to_le_bytes()).bytes(64);
        assert_refused(
            bytes,
            &["\"general.alignment\" at byte 53", &format!("{alignment} is not a power of two")],
        );
    }
    let text = Raw::default().key(b"general.alignment", STRING_TYPE, &0u64.to_le_bytes());
    assert_refused(text.bytes(64), &["\"general.alignment\" at byte 53", "found a string"]);
    let large = Raw::default().key(b"general.alignment", U32_TYPE, &(1u32 << 31).to_le_bytes());
    assert!(open(large.bytes(0)).is_ok(), "no tensor needs the padding");
    assert_refused(large.tensor("t", &[1], F32, 0).bytes(64), &["beyond the end of the file"]);
}

#[test]
fn tensors_that_cannot_be_right_are_refused() {
    let q4_k = DType::Q4_K.code();
    for (dims, dtype, offset, parts) in [
        (&[1u64, 1, 1, 1, 1][..], F32, 0, ["rank", "5 dimensions"]),
        (&[1 << 63], F32, 0, ["shape", "does not fit 64 bits"]),
        (&[1 << 32, 1 << 32], F32, 0, ["shape", "does not fit 64 bits"]),
        (&[1 << 32, 1 << 32, 0], F32, 0, ["shape", "does not fit 64 bits"]),
        (&[1 << 40], F32, 0, ["offset", "beyond the end of the file"]),
        (&[1], 31, 0, ["dtype", "code 31 is unknown or retired"]),
        (&[1], u32::MAX, 0, ["dtype", "unknown"]),
        (&[576], q4_k, 0, ["shape", "rows of 576 are not whole blocks of 256"]),
        (&[1], F32, 4, ["offset", "4 is not a multiple of the alignment, 32"]),
        (&[1], F32, 64, ["offset", "beyond the end of the file"]),
        (&[1], F32, u64::MAX - 31, ["offset", "beyond the end of the file"]),
        (&[1], F32, 1 << 63, ["offset", "beyond the end of the file"]),
    ] {
        let bytes = Raw::default().tensor("t", dims, dtype, offset).bytes(64);
        assert_refused(bytes, &["tensor \"t\": ", " at byte ", parts[0], parts[1]]);
    }
    let pair = |name: &str, offset: u64| {
        Raw::default().tensor("t", &[16], F32, 0).tensor(name, &[16], F32, offset).bytes(128)
    };
    assert!(open(pair("u", 64)).is_ok());
    assert_refused(pair("u", 32), &["tensor \"u\": offset", "overlaps that of tensor \"t\""]);
    assert_refused(pair("u", 0), &["overlaps"]);
    assert_refused(pair("t", 64), &["tensor \"t\"", "another tensor has the same name"]);
}

#[test]
fn tensors_without_elements_take_no_room() {
    let bytes = Raw::default().tensor("t", &[0, 7], F32, 1 << 40).tensor("s", &[], F32, 0).bytes(4);
    let gguf = open(bytes).unwrap();
    assert!(gguf.tensor("t").unwrap().to_f32().unwrap().is_empty());
    assert_eq!(gguf.tensor("t").unwrap().shape, [7, 0]);
    assert_eq!(gguf.tensor("s").unwrap().to_f32().unwrap(), [0.0]);
    let wide = Raw::default().tensor("t", &[1 << 62, 0], F32, 0).bytes(0);
    assert_refused(wide, &["tensor \"t\": shape", "the size in bytes does not fit 64 bits"]);
}

#[test]
fn the_smallest_things_in_large_numbers_stay_within_limits() {
    // Names of three characters are the shortest of which there are enough.
    let name = |i: usize| format!("{i:03x}");
    let keys = (0..4096).fold(Raw::default(), |raw, i| raw.key(name(i).as_bytes(), BOOL_TYPE, &[1]));
    assert_eq!(open(keys.bytes(0)).unwrap().metadata().len(), 4096);
    let scalars = (0..4096).fold(Raw::default(), |raw, i| raw.tensor(&name(i), &[], F32, 32 * i as u64));
    assert_eq!(open(scalars.bytes(4096 * 32)).unwrap().tensors().len(), 4096);
    let empty = (0..4096).fold(Raw::default(), |raw, i| raw.tensor(&name(i), &[0], F32, 0));
    assert_eq!(open(empty.bytes(0)).unwrap().tensors().len(), 4096);
    let mut arrays = [ARRAY_TYPE.to_le_bytes().as_slice(), &50_000u64.to_le_bytes()].concat();
    for _ in 0..50_000 {
        arrays.extend_from_slice(&ARRAY_TYPE.to_le_bytes());
        arrays.extend_from_slice(&0u64.to_le_bytes());
    }
    assert!(open(Raw::default().key(b"k", ARRAY_TYPE, &arrays).bytes(0)).is_ok());
}
