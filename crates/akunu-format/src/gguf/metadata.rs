//! Metadata by key, with conversions that accept any width of number and say what is wrong otherwise.

use std::ops::Range;

use super::value::{Array, Value, ValueType};
use crate::mapped::MappedFile;
use crate::{Error, Result};

/// Where a key's value lies. Checked when the file was opened.
#[derive(Debug)]
pub(super) struct MetadataEntry {
    pub(super) key: Box<str>,
    pub(super) value_type: ValueType,
    pub(super) value: Range<usize>,
}

/// The metadata of an open GGUF file: keys in file order, values decoded when asked for.
///
/// A key that is absent and a key that holds the wrong type are different things: [`get`](Self::get) gives `Ok(None)`
/// for the first and an error for the second.
///
/// ```
/// # use akunu_format::gguf::{Gguf, Writer};
/// # let mut writer = Writer::new();
/// # writer.metadata("llama.block_count", &30u32)?.metadata("tokenizer.ggml.tokens", &["<s>", "a"])?;
/// # let gguf = Gguf::from_bytes(writer.header()?)?;
/// let metadata = gguf.metadata();
/// let layers: usize = metadata.require("llama.block_count")?; // any integer width in the file will do
/// let tokens: Vec<&str> = metadata.require("tokenizer.ggml.tokens")?;
/// let scale = metadata.get::<f32>("llama.logit_scale")?;
/// assert_eq!((layers, tokens.len(), scale), (30, 2, None));
/// assert!(metadata.get::<bool>("llama.block_count").is_err());
/// # Ok::<(), akunu_format::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'a> {
    file: &'a MappedFile,
    /// In file order.
    entries: &'a [MetadataEntry],
    /// Positions in `entries`, sorted by key.
    by_key: &'a [u32],
}

impl<'a> Metadata<'a> {
    pub(super) fn new(file: &'a MappedFile, entries: &'a [MetadataEntry], by_key: &'a [u32]) -> Self {
        Self { file, entries, by_key }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All keys and values, in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let file = self.file;
        self.entries.iter().filter_map(move |entry| Some((&*entry.key, decode(file, entry)?)))
    }

    /// The value of `key` as the file has it.
    pub fn value(&self, key: &str) -> Option<Value<'a>> {
        decode(self.file, self.find(key)?)
    }

    /// The value of `key` converted to `T`; `None` when there is no such key, an error when it holds something else.
    pub fn get<T: FromValue<'a>>(&self, key: &str) -> Result<Option<T>> {
        let Some(entry) = self.find(key) else { return Ok(None) };
        let value = decode(self.file, entry);
        match value.as_ref().and_then(T::from_value) {
            Some(value) => Ok(Some(value)),
            None => {
                let found = match value {
                    Some(Value::Array(array)) => {
                        format!("an array of {} {}", array.len(), array.element_type())
                    }
                    Some(Value::String(_)) => "a string".to_owned(),
                    Some(other) => format!("{other:?}"),
                    None => format!("an unreadable {}", entry.value_type),
                };
                let problem = format!("expected {}, found {found}", T::expected());
                Err(Error::malformed(self.file.path(), format_args!("\"{key}\""), entry.value.start, problem))
            }
        }
    }

    /// The value of `key` converted to `T`; an error when there is no such key.
    pub fn require<T: FromValue<'a>>(&self, key: &str) -> Result<T> {
        self.get(key)?.ok_or_else(|| Error::NoKey { path: self.file.path().to_owned(), key: key.to_owned() })
    }

    /// Where the value of `key` begins in the file.
    pub fn offset(&self, key: &str) -> Option<u64> {
        Some(self.find(key)?.value.start as u64)
    }

    fn find(&self, key: &str) -> Option<&'a MetadataEntry> {
        let found = self.by_key.binary_search_by(|&i| self.entries[i as usize].key.as_ref().cmp(key));
        Some(&self.entries[self.by_key[found.ok()?] as usize])
    }
}

fn decode<'a>(file: &'a MappedFile, entry: &MetadataEntry) -> Option<Value<'a>> {
    Value::whole(entry.value_type, &file.bytes()[entry.value.clone()])
}

/// What [`Metadata::get`] can convert a value to.
pub trait FromValue<'a>: Sized {
    /// What the value has to be, for errors: "an integer from 0 to 255".
    fn expected() -> String;

    /// The converted value, if it is of a fitting type and in range.
    fn from_value(value: &Value<'a>) -> Option<Self>;
}

macro_rules! from_integers {
    ($($integer:ty)*) => { $(
        impl<'a> FromValue<'a> for $integer {
            fn expected() -> String {
                format!("an integer from {} to {}", Self::MIN, Self::MAX)
            }

            fn from_value(value: &Value<'a>) -> Option<Self> {
                value.as_integer()?.try_into().ok()
            }
        }
    )* };
}

from_integers!(u8 i8 u16 i16 u32 i32 u64 i64 usize);

impl<'a> FromValue<'a> for f64 {
    fn expected() -> String {
        "a float".to_owned()
    }

    fn from_value(value: &Value<'a>) -> Option<Self> {
        match *value {
            Value::F32(value) => Some(value.into()),
            Value::F64(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for f32 {
    fn expected() -> String {
        f64::expected()
    }

    /// A 64-bit float is rounded.
    fn from_value(value: &Value<'a>) -> Option<Self> {
        f64::from_value(value).map(|value| value as Self)
    }
}

impl<'a> FromValue<'a> for bool {
    fn expected() -> String {
        "a bool".to_owned()
    }

    fn from_value(value: &Value<'a>) -> Option<Self> {
        match *value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    fn expected() -> String {
        "a string".to_owned()
    }

    fn from_value(value: &Value<'a>) -> Option<Self> {
        match *value {
            Value::String(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for Array<'a> {
    fn expected() -> String {
        "an array".to_owned()
    }

    fn from_value(value: &Value<'a>) -> Option<Self> {
        match *value {
            Value::Array(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Vec<T> {
    fn expected() -> String {
        format!("an array, each element {}", T::expected())
    }

    fn from_value(value: &Value<'a>) -> Option<Self> {
        Array::from_value(value)?.iter().map(|element| T::from_value(&element)).collect()
    }
}
