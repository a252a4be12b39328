//! Whatever is written comes back.

use std::collections::BTreeMap;

use akunu_format::gguf::{Gguf, Writer};
use akunu_format::{DType, Data};
use proptest::prelude::*;

/// A value of each kind that a key may have.
#[derive(Clone, Debug)]
enum Written {
    Integer(i64),
    Byte(u8),
    Bool(bool),
    Float(f32),
    Text(String),
    Texts(Vec<String>),
    Nested(Vec<Vec<u16>>),
}

fn written() -> impl Strategy<Value = Written> {
    prop_oneof![
        any::<i64>().prop_map(Written::Integer),
        any::<u8>().prop_map(Written::Byte),
        any::<bool>().prop_map(Written::Bool),
        any::<f32>().prop_map(Written::Float),
        ".{0,200}".prop_map(Written::Text),
        prop::collection::vec(".{0,9}", 0..20).prop_map(Written::Texts),
        prop::collection::vec(prop::collection::vec(any::<u16>(), 0..4), 0..4).prop_map(Written::Nested),
    ]
}

#[derive(Clone, Debug)]
struct WrittenTensor {
    dtype: DType,
    shape: Vec<usize>,
    seed: u8,
}

fn written_tensor() -> impl Strategy<Value = WrittenTensor> {
    let dtypes = prop::sample::select(&[DType::F32, DType::BF16, DType::I8, DType::Q4_0, DType::Q6_K][..]);
    (dtypes, prop::collection::vec(0..4usize, 0..4), any::<u8>()).prop_map(|(dtype, mut shape, seed)| {
        if let Some(row) = shape.last_mut() {
            *row *= dtype.block_len();
        } else if dtype.is_quantized() {
            shape.push(dtype.block_len());
        }
        WrittenTensor { dtype, shape, seed }
    })
}

impl WrittenTensor {
    fn bytes(&self) -> Vec<u8> {
        let len = self.dtype.row_bytes(self.shape.iter().product()).unwrap();
        (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(self.seed)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(
        keys in prop::collection::btree_map("[a-z.]{1,9}", written(), 0..8),
        tensors in prop::collection::btree_map("\\PC{1,9}", written_tensor(), 0..8),
        alignment in prop::sample::select(&[None, Some(1u32), Some(8), Some(256)][..]),
        chunk in 1..100usize,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("written.gguf");
        write(&path, &keys, &tensors, alignment, chunk);
        let gguf = Gguf::open(&path).unwrap();
        let metadata = gguf.metadata();
        prop_assert_eq!(metadata.len(), keys.len() + usize::from(alignment.is_some()));
        for (key, value) in &keys {
            match value {
                Written::Integer(value) => prop_assert_eq!(metadata.require::<i64>(key).unwrap(), *value),
                Written::Byte(value) => prop_assert_eq!(metadata.require::<u8>(key).unwrap(), *value),
                Written::Bool(value) => prop_assert_eq!(metadata.require::<bool>(key).unwrap(), *value),
                Written::Float(value) => {
                    prop_assert_eq!(metadata.require::<f32>(key).unwrap().to_bits(), value.to_bits());
                }
                Written::Text(value) => prop_assert_eq!(metadata.require::<&str>(key).unwrap(), value),
                Written::Texts(value) => prop_assert_eq!(&metadata.require::<Vec<&str>>(key).unwrap(), value),
                Written::Nested(value) => {
                    prop_assert_eq!(&metadata.require::<Vec<Vec<u16>>>(key).unwrap(), value);
                }
            }
        }
        prop_assert_eq!(gguf.tensors().len(), tensors.len());
        for (name, expected) in &tensors {
            let tensor = gguf.tensor(name).unwrap();
            prop_assert_eq!(tensor.shape, &expected.shape);
            let Data::Blocks { dtype, bytes } = tensor.data else { panic!("GGUF holds blocks only") };
            prop_assert_eq!((dtype, bytes), (expected.dtype, &*expected.bytes()));
        }
    }
}

fn write(
    path: &std::path::Path,
    keys: &BTreeMap<String, Written>,
    tensors: &BTreeMap<String, WrittenTensor>,
    alignment: Option<u32>,
    chunk: usize,
) {
    let mut writer = Writer::new();
    for (key, value) in keys {
        match value {
            Written::Integer(value) => writer.metadata(key, value),
            Written::Byte(value) => writer.metadata(key, value),
            Written::Bool(value) => writer.metadata(key, value),
            Written::Float(value) => writer.metadata(key, value),
            Written::Text(value) => writer.metadata(key, value),
            Written::Texts(value) => writer.metadata(key, value),
            Written::Nested(value) => writer.metadata(key, value),
        }
        .unwrap();
    }
    for (name, tensor) in tensors {
        writer.tensor(name, tensor.dtype, &tensor.shape).unwrap();
    }
    if let Some(alignment) = alignment {
        writer.metadata("general.alignment", &alignment).unwrap();
    }
    let mut body = writer.create(path).unwrap();
    for (name, tensor) in tensors {
        for chunk in tensor.bytes().chunks(chunk) {
            body.append(name, chunk).unwrap();
        }
    }
    body.finish().unwrap();
}
