//! Metadata values: what a key may hold, read on demand from where it lies in the file.

use std::fmt;

/// The type of a metadata value or of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// Unsigned, 8 bits.
    U8 = 0,
    /// Signed, 8 bits.
    I8 = 1,
    /// Unsigned, 16 bits.
    U16 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Unsigned, 32 bits.
    U32 = 4,
    /// Signed, 32 bits.
    I32 = 5,
    /// IEEE float, 32 bits.
    F32 = 6,
    /// One byte, 0 or 1.
    Bool = 7,
    /// UTF-8 text.
    String = 8,
    /// A list of values of one type, which may be arrays again.
    Array = 9,
    /// Unsigned, 64 bits.
    U64 = 10,
    /// Signed, 64 bits.
    I64 = 11,
    /// IEEE float, 64 bits.
    F64 = 12,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type with this code.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// The code GGUF stores for this type.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The name GGUF's specification uses in lower case, such as `uint32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::F32 => "float32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F64 => "float64",
        }
    }

    /// Bytes of a value, where all values of the type have the same.
    pub(super) fn fixed_bytes(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    /// The fewest bytes a value can have.
    pub(super) fn min_bytes(self) -> usize {
        match self {
            Self::String => 8,    // a length
            Self::Array => 4 + 8, // an element type and a length
            _ => self.fixed_bytes().unwrap_or(1),
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A metadata value. Text and arrays borrow from the open file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Unsigned, 8 bits.
    U8(u8),
    /// Signed, 8 bits.
    I8(i8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Signed, 16 bits.
    I16(i16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Signed, 32 bits.
    I32(i32),
    /// IEEE float, 32 bits.
    F32(f32),
    /// True or false.
    Bool(bool),
    /// UTF-8 text.
    String(&'a str),
    /// A list of values of one type.
    Array(Array<'a>),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Signed, 64 bits.
    I64(i64),
    /// IEEE float, 64 bits.
    F64(f64),
}

impl<'a> Value<'a> {
    /// The type the file gives.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The value if it is an integer of any width.
    pub fn as_integer(&self) -> Option<i128> {
        match *self {
            Self::U8(value) => Some(value.into()),
            Self::I8(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::I16(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::I32(value) => Some(value.into()),
            Self::U64(value) => Some(value.into()),
            Self::I64(value) => Some(value.into()),
            _ => None,
        }
    }

    /// The value that fills `bytes`, which were checked when the file was opened.
    pub(super) fn whole(value_type: ValueType, mut bytes: &'a [u8]) -> Option<Self> {
        match value_type {
            // Its end is known: no need to walk through its elements to find it.
            ValueType::Array => Array::whole(bytes).map(Self::Array),
            _ => Self::decode(value_type, &mut bytes),
        }
    }

    /// Takes one value off the front of `bytes`, which were checked when the file was opened.
    ///
    /// `None` and empty text can only come of a file that was changed while open.
    fn decode(value_type: ValueType, bytes: &mut &'a [u8]) -> Option<Self> {
        Some(match value_type {
            ValueType::U8 => Self::U8(u8::from_le_bytes(take(bytes)?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(take(bytes)?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(take(bytes)?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(take(bytes)?)),
            ValueType::U32 => Self::U32(u32::from_le_bytes(take(bytes)?)),
            ValueType::I32 => Self::I32(i32::from_le_bytes(take(bytes)?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(take(bytes)?)),
            ValueType::Bool => Self::Bool(take(bytes)? != [0]),
            ValueType::String => Self::String(decode_text(bytes)?),
            ValueType::Array => Self::Array(Array::decode(bytes)?),
            ValueType::U64 => Self::U64(u64::from_le_bytes(take(bytes)?)),
            ValueType::I64 => Self::I64(i64::from_le_bytes(take(bytes)?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(take(bytes)?)),
        })
    }
}

/// Takes `N` bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (&taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}

fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(take(bytes)?)).ok()
}

fn decode_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let len = take_length(bytes)?;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(std::str::from_utf8(text).unwrap_or_default())
}

/// A list of values of one type, decoded as it is iterated.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    element_type: ValueType,
    len: usize,
    /// The elements as they lie in the file.
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The type of every element.
    pub fn element_type(&self) -> ValueType {
        self.element_type
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> ArrayIter<'a> {
        ArrayIter { element_type: self.element_type, left: self.len, bytes: self.bytes }
    }

    /// The elements as GGUF encodes them, one after the other.
    pub fn encoded(&self) -> &'a [u8] {
        self.bytes
    }

    /// The array that fills `bytes`.
    fn whole(mut bytes: &'a [u8]) -> Option<Self> {
        let element_type = ValueType::from_code(u32::from_le_bytes(take(&mut bytes)?))?;
        let len = take_length(&mut bytes)?;
        Some(Self { element_type, len, bytes })
    }

    /// Takes an array off the front of `bytes`.
    fn decode(bytes: &mut &'a [u8]) -> Option<Self> {
        let open_ended = Self::whole(bytes)?;
        let mut elements = open_ended.iter();
        if let Some(size) = open_ended.element_type.fixed_bytes() {
            elements.bytes = elements.bytes.get(open_ended.len.checked_mul(size)?..)?;
        } else {
            elements.by_ref().for_each(drop);
        }
        *bytes = elements.bytes;
        let len = open_ended.bytes.len() - elements.bytes.len();
        Some(Self { bytes: &open_ended.bytes[..len], ..open_ended })
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}]", self.element_type, self.len)
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Value<'a>;
    type IntoIter = ArrayIter<'a>;

    fn into_iter(self) -> ArrayIter<'a> {
        self.iter()
    }
}

/// The elements of an [`Array`].
#[derive(Clone, Debug)]
pub struct ArrayIter<'a> {
    element_type: ValueType,
    left: usize,
    bytes: &'a [u8],
}

impl<'a> Iterator for ArrayIter<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        Value::decode(self.element_type, &mut self.bytes)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.min(self.bytes.len() / self.element_type.min_bytes()), Some(self.left))
    }
}
