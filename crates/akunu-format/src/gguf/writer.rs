//! Writing GGUF: declare everything, then stream the tensors.

use std::collections::HashSet;
use std::path::Path;

use super::header::{self, ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_RANK};
use super::value::{Value, ValueType};
use crate::cursor::Cursor;
use crate::tensor_writer::{Part, TensorWriter};
use crate::{DType, Error, Result, table};

/// The version that is written.
const VERSION: u32 = 3;
/// ggml keeps tensor names in 64 bytes with a zero at the end, and refuses longer ones.
const MAX_NAME_BYTES: usize = 63;

/// Collects what goes into a GGUF file's header: metadata and the tensors' names, dtypes and shapes.
///
/// The header comes first in a file, so everything is declared before [`create`](Self::create) begins the file; the
/// tensors' bytes then go through a [`TensorWriter`], in the order of declaration, without the whole model ever being
/// in memory.
///
/// ```
/// use akunu_format::DType;
/// use akunu_format::gguf::{Gguf, Writer};
///
/// # let directory = tempfile::tempdir().unwrap();
/// let path = directory.path().join("tiny.gguf");
/// let mut writer = Writer::new();
/// writer.metadata("general.architecture", "llama")?.metadata("llama.block_count", &1u32)?;
/// writer.tensor("output.weight", DType::F32, &[2, 3])?;
/// let mut tensors = writer.create(&path)?;
/// for row in [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]] {
///     tensors.append("output.weight", bytemuck::cast_slice(&row))?;
/// }
/// tensors.finish()?;
///
/// let gguf = Gguf::open(&path)?;
/// assert_eq!(gguf.tensor("output.weight")?.to_f32()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// # Ok::<(), akunu_format::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    keys: HashSet<String>,
    /// Keys and values, encoded.
    metadata: Vec<u8>,
    alignment: u32,
    names: HashSet<String>,
    tensors: Vec<Declared>,
}

#[derive(Debug)]
struct Declared {
    name: String,
    dtype: DType,
    /// Outermost first.
    shape: Vec<usize>,
    byte_len: usize,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// A file without metadata and tensors.
    pub fn new() -> Self {
        Self {
            keys: HashSet::new(),
            metadata: Vec::new(),
            alignment: DEFAULT_ALIGNMENT,
            names: HashSet::new(),
            tensors: Vec::new(),
        }
    }

    /// Adds a key. Setting `general.alignment` also aligns the tensors by it.
    pub fn metadata<T: Encode + ?Sized>(&mut self, key: &str, value: &T) -> Result<&mut Self> {
        let mut encoded = Vec::new();
        value.encode(&mut encoded);
        self.push_metadata(key, T::TYPE, &encoded)
    }

    /// Adds a key with a value read from another file.
    pub fn metadata_value(&mut self, key: &str, value: Value<'_>) -> Result<&mut Self> {
        match value {
            Value::U8(value) => self.metadata(key, &value),
            Value::I8(value) => self.metadata(key, &value),
            Value::U16(value) => self.metadata(key, &value),
            Value::I16(value) => self.metadata(key, &value),
            Value::U32(value) => self.metadata(key, &value),
            Value::I32(value) => self.metadata(key, &value),
            Value::F32(value) => self.metadata(key, &value),
            Value::Bool(value) => self.metadata(key, &value),
            Value::String(value) => self.metadata(key, value),
            Value::U64(value) => self.metadata(key, &value),
            Value::I64(value) => self.metadata(key, &value),
            Value::F64(value) => self.metadata(key, &value),
            Value::Array(array) => {
                let mut encoded = Vec::with_capacity(12 + array.encoded().len());
                encode_array_start(array.element_type(), array.len(), &mut encoded);
                encoded.extend_from_slice(array.encoded());
                self.push_metadata(key, ValueType::Array, &encoded)
            }
        }
    }

    fn push_metadata(&mut self, key: &str, value_type: ValueType, encoded: &[u8]) -> Result<&mut Self> {
        let unwritable = |problem: String| Error::Unwritable { what: format!("the key \"{key}\""), problem };
        // What the reader would refuse is not written.
        let mut cursor = Cursor::new(Path::new("(value)"), encoded);
        header::skip_value(&mut cursor, value_type, key, 0).map_err(|error| unwritable(error.to_string()))?;
        if key == ALIGNMENT_KEY {
            self.alignment = match Value::whole(value_type, encoded) {
                Some(Value::U32(alignment)) if alignment.is_power_of_two() => alignment,
                _ => return Err(unwritable("it must be a uint32 and a power of two".to_owned())),
            };
        }
        if !self.keys.insert(key.to_owned()) {
            return Err(unwritable("it was added before".to_owned()));
        }
        key.encode(&mut self.metadata);
        value_type.code().encode(&mut self.metadata);
        self.metadata.extend_from_slice(encoded);
        Ok(self)
    }

    /// Declares the next tensor; `shape` is outermost first, as in [`Tensor`](crate::Tensor).
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<&mut Self> {
        let unwritable = |problem: String| Error::Unwritable { what: format!("tensor \"{name}\""), problem };
        if name.len() > MAX_NAME_BYTES {
            return Err(unwritable(format!("its name is longer than {MAX_NAME_BYTES} bytes")));
        }
        if shape.len() > MAX_RANK {
            return Err(unwritable(format!("{} dimensions; at most {MAX_RANK} are allowed", shape.len())));
        }
        let byte_len = table::byte_len(shape, dtype).map_err(unwritable)?;
        if !self.names.insert(name.to_owned()) {
            return Err(unwritable("it was declared before".to_owned()));
        }
        self.tensors.push(Declared { name: name.to_owned(), dtype, shape: shape.to_owned(), byte_len });
        Ok(self)
    }

    /// The encoded header, up to where the tensor data begin.
    ///
    /// On its own it is a complete file if no tensor was declared.
    pub fn header(&self) -> Result<Vec<u8>> {
        let mut header = Vec::from(MAGIC);
        VERSION.encode(&mut header);
        (self.tensors.len() as u64).encode(&mut header);
        (self.keys.len() as u64).encode(&mut header);
        header.extend_from_slice(&self.metadata);
        let mut offset = 0u64;
        for tensor in &self.tensors {
            tensor.name.encode(&mut header);
            (tensor.shape.len() as u32).encode(&mut header);
            for &dim in tensor.shape.iter().rev() {
                (dim as u64).encode(&mut header);
            }
            tensor.dtype.code().encode(&mut header);
            offset.encode(&mut header);
            offset = (tensor.byte_len as u64)
                .checked_next_multiple_of(self.alignment.into())
                .and_then(|len| offset.checked_add(len))
                .ok_or_else(|| Error::Unwritable {
                    what: format!("tensor \"{}\"", tensor.name),
                    problem: "the file would be larger than 64 bits can say".to_owned(),
                })?;
        }
        header.resize(header.len().next_multiple_of(self.alignment as usize), 0);
        Ok(header)
    }

    /// Begins the file at `path`.
    ///
    /// The bytes go to a file with a temporary name in the same directory, which takes the name `path` when
    /// [`TensorWriter::finish`] succeeds and is deleted otherwise: whatever happens, `path` is either what it was
    /// before or complete.
    pub fn create(self, path: impl AsRef<Path>) -> Result<TensorWriter> {
        let header = self.header()?;
        let part = |tensor: Declared| Part { name: tensor.name, lead: Vec::new(), byte_len: tensor.byte_len };
        let parts = self.tensors.into_iter().map(part).collect();
        TensorWriter::create(path.as_ref(), &header, self.alignment as usize, parts)
    }
}

/// A Rust type that is written as one metadata type: numbers, `bool`, strings, and slices of these (or of slices).
pub trait Encode {
    /// The type in the file.
    const TYPE: ValueType;

    /// Appends the value.
    fn encode(&self, out: &mut Vec<u8>);
}

macro_rules! encode_numbers {
    ($($number:ty = $value_type:ident),*) => { $(
        impl Encode for $number {
            const TYPE: ValueType = ValueType::$value_type;

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )* };
}

encode_numbers!(u8 = U8, i8 = I8, u16 = U16, i16 = I16, u32 = U32, i32 = I32);
encode_numbers!(u64 = U64, i64 = I64, f32 = F32, f64 = F64);

impl Encode for bool {
    const TYPE: ValueType = ValueType::Bool;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
}

impl Encode for str {
    const TYPE: ValueType = ValueType::String;

    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u64).encode(out);
        out.extend_from_slice(self.as_bytes());
    }
}

impl Encode for String {
    const TYPE: ValueType = ValueType::String;

    fn encode(&self, out: &mut Vec<u8>) {
        self.as_str().encode(out);
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    const TYPE: ValueType = T::TYPE;

    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}

impl<T: Encode> Encode for [T] {
    const TYPE: ValueType = ValueType::Array;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_array_start(T::TYPE, self.len(), out);
        for element in self {
            element.encode(out);
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    const TYPE: ValueType = ValueType::Array;

    fn encode(&self, out: &mut Vec<u8>) {
        self.as_slice().encode(out);
    }
}

impl<T: Encode, const N: usize> Encode for [T; N] {
    const TYPE: ValueType = ValueType::Array;

    fn encode(&self, out: &mut Vec<u8>) {
        self.as_slice().encode(out);
    }
}

fn encode_array_start(element_type: ValueType, len: usize, out: &mut Vec<u8>) {
    element_type.code().encode(out);
    (len as u64).encode(out);
}
