//! The pickle in a PyTorch checkpoint, read as data.
//!
//! A pickle is a program for a stack machine that can call any Python function. Here a value is a number, a text, a list, a
//! dictionary or a tensor and nothing else; the few functions that a state dict names are known and done here, and every
//! other function or instruction is refused by name. Nothing is executed.

use std::mem::replace;
use std::ops::Range;
use std::path::Path;

use crate::cursor::Cursor;
use crate::{Error, Result};

/// A value: small, since there are many. Those that have parts are numbers of objects, which pickles share and change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float,
    /// Its place among the pickle's texts.
    Text(u32),
    /// A tuple or list: its place among the objects.
    List(u32),
    /// Its place among the objects.
    Dict(u32),
    Function(Function),
    Storage(u32),
    Tensor(u32),
    /// Where the values for a list or dictionary begin; never leaves the stack.
    Mark,
}

/// What a pickle may name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Function {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    /// A kind of storage, by its place in [`STORAGES`].
    Storage(u8),
}

/// An element type, as `torch` calls its storage and as SafeTensors calls the type.
pub(super) const STORAGES: [(&str, &str); 11] = [
    ("FloatStorage", "F32"),
    ("HalfStorage", "F16"),
    ("BFloat16Storage", "BF16"),
    ("DoubleStorage", "F64"),
    ("CharStorage", "I8"),
    ("ShortStorage", "I16"),
    ("IntStorage", "I32"),
    ("LongStorage", "I64"),
    ("ByteStorage", "U8"),
    ("BoolStorage", "BOOL"),
    ("ComplexFloatStorage", "C64"),
];

/// Opening a file takes at most eight times its size, and a vector that grows up to three times what is in it: both copies.
const ROOM_PER_BYTE: usize = 8;
/// Room for small files.
const FIXED_ROOM: usize = 4096;
/// The longest name of a storage; they are small numbers.
const LONGEST_KEY: usize = 64;

/// Bytes that several tensors may share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage<'a> {
    /// Its place in [`STORAGES`].
    pub(super) kind: u8,
    /// The name of its record.
    pub(super) key: &'a str,
}

/// A view of a storage.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) storage: u32,
    /// In elements.
    pub(super) offset: i64,
    /// Lists of dimensions and of the elements between neighbours along each.
    pub(super) shape: u32,
    pub(super) strides: u32,
    /// Where it is made in the file.
    pub(super) at: usize,
}

/// What a pickle describes.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    pub(super) root: Value,
    /// Each is checked where it stands in the file, however often it is used.
    texts: Vec<&'a str>,
    /// Elements of lists; keys and values of dictionaries in turn.
    objects: Vec<Vec<Value>>,
    pub(super) storages: Vec<Storage<'a>>,
    pub(super) views: Vec<View>,
    /// Bytes of memory that may still be taken.
    room: usize,
}

/// There is no room left.
pub(super) struct Full;

impl Full {
    pub(super) const PROBLEM: &str = "it asks for more values than a file of this size can need";
}

impl<'a> Pickle<'a> {
    /// Counts what is to be kept in memory, before it is.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), Full> {
        self.room = self.room.checked_sub(bytes).ok_or(Full)?;
        Ok(())
    }

    /// The text that a value is, if it is one.
    pub(super) fn text(&self, value: Value) -> Option<&'a str> {
        let Value::Text(text) = value else { return None };
        Some(self.texts[text as usize])
    }

    pub(super) fn list(&self, object: u32) -> &[Value] {
        &self.objects[object as usize]
    }

    pub(super) fn entries(&self, object: u32) -> impl Iterator<Item = (Value, Value)> {
        self.objects[object as usize].as_chunks().0.iter().map(|&[key, value]| (key, value))
    }

    /// A text that is the key of two entries. Once there is none, all keys together are no longer than the file.
    pub(super) fn repeated(&self, object: u32) -> Option<&'a str> {
        let mut seen = vec![false; self.texts.len()];
        let mut keys = self.entries(object).map(|(key, _)| key);
        let repeated =
            keys.find(|key| matches!(*key, Value::Text(text) if replace(&mut seen[text as usize], true)));
        self.text(repeated?)
    }

    /// The value under a key that is text; of several the last.
    pub(super) fn get(&self, object: u32, key: &str) -> Option<Value> {
        self.entries(object).filter(|(name, _)| self.text(*name) == Some(key)).last().map(|(_, value)| value)
    }
}

/// Reads the pickle at `range` of a file.
pub(super) fn read<'a>(path: &'a Path, file: &'a [u8], range: Range<usize>) -> Result<Pickle<'a>> {
    let mut cursor = Cursor::new(path, &file[..range.end]);
    cursor.take(range.start as u64, "pickle")?;
    if u32::try_from(range.len()).is_err() {
        return Err(cursor.malformed("pickle", range.start, "it is larger than 4 GiB"));
    }
    let pickle = Pickle {
        root: Value::None,
        texts: Vec::new(),
        objects: Vec::new(),
        storages: Vec::new(),
        views: Vec::new(),
        room: FIXED_ROOM + file.len() / 3 * ROOM_PER_BYTE,
    };
    Machine { cursor, pickle, stack: Vec::new(), highest: 0, memo: Vec::new() }.run()
}

struct Machine<'a> {
    cursor: Cursor<'a>,
    pickle: Pickle<'a>,
    stack: Vec<Value>,
    /// The most values that were on the stack, which keeps their memory.
    highest: usize,
    /// Values that may come again.
    memo: Vec<Value>,
}

impl<'a> Machine<'a> {
    fn run(mut self) -> Result<Pickle<'a>> {
        loop {
            let at = self.cursor.position();
            let [opcode] = self.cursor.array("pickle: instruction")?;
            if opcode == b'.' {
                self.pickle.root = self.pop(at)?;
                self.pickle.room += (self.highest + self.memo.len()) * size_of::<Value>();
                return Ok(self.pickle);
            }
            self.step(opcode, at)?;
        }
    }

    /// One instruction; the names are those of Python's `pickletools`.
    fn step(&mut self, opcode: u8, at: usize) -> Result<()> {
        const FIELD: &str = "pickle: instruction";
        match opcode {
            // PROTO
            0x80 => {
                let [version] = self.cursor.array(FIELD)?;
                if !(2..=5).contains(&version) {
                    let problem = format!("version {version}; 2 to 5 are read");
                    return Err(self.cursor.malformed("pickle: version", at, problem));
                }
            }
            // FRAME
            0x95 => {
                self.cursor.u64(FIELD)?;
            }
            b'N' => self.push(Value::None, at)?,
            0x88 => self.push(Value::Bool(true), at)?,
            0x89 => self.push(Value::Bool(false), at)?,
            // BININT, BININT1, BININT2, LONG1
            b'J' => {
                let value = i32::from_le_bytes(self.cursor.array(FIELD)?);
                self.push(Value::Int(value.into()), at)?;
            }
            b'K' => {
                let [value] = self.cursor.array(FIELD)?;
                self.push(Value::Int(value.into()), at)?;
            }
            b'M' => {
                let value = self.cursor.u16(FIELD)?;
                self.push(Value::Int(value.into()), at)?;
            }
            0x8a => {
                let value = self.long(at)?;
                self.push(Value::Int(value), at)?;
            }
            // BINFLOAT: no number that is read here has a fraction.
            b'G' => {
                self.cursor.take(8, FIELD)?;
                self.push(Value::Float, at)?;
            }
            // BINUNICODE, SHORT_BINUNICODE
            b'X' => {
                let len = self.cursor.u32(FIELD)?;
                self.push_text(len, at)?;
            }
            0x8c => {
                let [len] = self.cursor.array(FIELD)?;
                self.push_text(len.into(), at)?;
            }
            b'(' => self.push(Value::Mark, at)?,
            b')' | b']' => self.push_list(0, at)?,
            b'}' => {
                let object = self.object(Vec::new(), at)?;
                self.push(Value::Dict(object), at)?;
            }
            // TUPLE, TUPLE1 to TUPLE3
            b't' => {
                let first = self.mark(at)?;
                let count = self.stack.len() - first;
                let object = self.gather(count, at)?;
                self.stack.pop();
                self.push(Value::List(object), at)?;
            }
            0x85..=0x87 => self.push_list(usize::from(opcode - 0x84), at)?,
            b'a' => self.extend(self.stack.len().saturating_sub(1), false, at)?,
            b's' => self.extend(self.stack.len().saturating_sub(2), false, at)?,
            b'e' | b'u' => {
                let first = self.mark(at)?;
                self.extend(first, true, at)?;
            }
            // BINPUT, LONG_BINPUT, MEMOIZE
            b'q' => {
                let [number] = self.cursor.array(FIELD)?;
                self.remember(number.into(), at)?;
            }
            b'r' => {
                let number = self.cursor.u32(FIELD)?;
                self.remember(number, at)?;
            }
            0x94 => self.remember(self.memo.len() as u32, at)?,
            // BINGET, LONG_BINGET
            b'h' => {
                let [number] = self.cursor.array(FIELD)?;
                self.recall(number.into(), at)?;
            }
            b'j' => {
                let number = self.cursor.u32(FIELD)?;
                self.recall(number, at)?;
            }
            // GLOBAL, STACK_GLOBAL
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push_function(module, name, at)?;
            }
            0x93 => {
                let (name, module) = (self.pop(at)?, self.pop(at)?);
                let (Some(module), Some(name)) = (self.pickle.text(module), self.pickle.text(name)) else {
                    return Err(self.unfit("a function whose name is no text", at));
                };
                self.push_function(module, name, at)?;
            }
            b'Q' => self.storage(at)?,
            b'R' => self.call(at)?,
            // BUILD: attributes of a dictionary, such as the versions of its modules.
            b'b' => {
                self.pop(at)?;
                if !matches!(self.stack.last(), Some(Value::Dict(_) | Value::Tensor(_))) {
                    return Err(self.unfit("attributes of what is no dictionary", at));
                }
            }
            other => {
                let what = format!("the pickle instruction {} at byte {at}", name_of(other));
                let hint = "only dictionaries of tensors and numbers are read, and nothing is executed";
                return Err(Error::unsupported(self.cursor.path(), what, hint));
            }
        }
        Ok(())
    }

    /// An integer of up to 8 bytes.
    fn long(&mut self, at: usize) -> Result<i64> {
        let [len] = self.cursor.array("pickle: integer")?;
        let bytes = self.cursor.take(len.into(), "pickle: integer")?;
        let Some(&last) = bytes.last() else { return Ok(0) };
        if bytes.len() > 8 {
            return Err(self.unfit("an integer of more than 64 bits", at));
        }
        let mut value = if last & 0x80 == 0 { [0; 8] } else { [0xff; 8] };
        value[..bytes.len()].copy_from_slice(bytes);
        Ok(i64::from_le_bytes(value))
    }

    /// Text up to the end of a line.
    fn line(&mut self) -> Result<&'a str> {
        let len = self.cursor.rest().iter().position(|&byte| byte == b'\n');
        let len = len.unwrap_or(self.cursor.remaining());
        let text = self.cursor.text(len as u64, "pickle: name")?;
        self.cursor.take(1, "pickle: name")?;
        Ok(text)
    }

    fn push_text(&mut self, len: u32, at: usize) -> Result<()> {
        let text = self.cursor.text(len.into(), "pickle: text")?;
        self.charge::<&str>(1, at)?;
        self.pickle.texts.push(text);
        self.push(Value::Text(self.pickle.texts.len() as u32 - 1), at)
    }

    /// Counts `count` values of a type that are to be kept.
    fn charge<T>(&mut self, count: usize, at: usize) -> Result<()> {
        let full = |_| self.cursor.malformed("pickle: instruction", at, Full::PROBLEM);
        self.pickle.charge(count * size_of::<T>()).map_err(full)
    }

    fn push(&mut self, value: Value, at: usize) -> Result<()> {
        if self.stack.len() == self.highest {
            self.charge::<Value>(1, at)?;
            self.highest += 1;
        }
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self, at: usize) -> Result<Value> {
        match self.stack.pop() {
            Some(Value::Mark) | None => Err(self.unfit("a value that is not there", at)),
            Some(value) => Ok(value),
        }
    }

    /// Makes an object of values.
    fn object(&mut self, values: Vec<Value>, at: usize) -> Result<u32> {
        self.charge::<Vec<Value>>(1, at)?;
        self.charge::<Value>(values.len(), at)?;
        self.pickle.objects.push(values);
        Ok(self.pickle.objects.len() as u32 - 1)
    }

    /// Makes an object of the last `count` values.
    fn gather(&mut self, count: usize, at: usize) -> Result<u32> {
        let Some(first) = self.stack.len().checked_sub(count) else {
            return Err(self.unfit("a value that is not there", at));
        };
        if self.stack[first..].contains(&Value::Mark) {
            return Err(self.unfit("a value that is not there", at));
        }
        let values = self.stack.split_off(first);
        self.object(values, at)
    }

    fn push_list(&mut self, count: usize, at: usize) -> Result<()> {
        let object = self.gather(count, at)?;
        self.push(Value::List(object), at)
    }

    /// Where the values after the last mark begin.
    fn mark(&self, at: usize) -> Result<usize> {
        let mark = self.stack.iter().rposition(|value| *value == Value::Mark);
        mark.map(|mark| mark + 1).ok_or_else(|| self.unfit("a mark that is not there", at))
    }

    /// Moves values from `first` on into the list or dictionary before them, and before their mark if they have one.
    fn extend(&mut self, first: usize, marked: bool, at: usize) -> Result<()> {
        let target = first.checked_sub(1 + usize::from(marked)).map(|i| self.stack[i]);
        let count = self.stack.len() - first;
        let object = match target {
            Some(Value::List(object)) => object,
            Some(Value::Dict(object)) if count.is_multiple_of(2) => object,
            _ => return Err(self.unfit("values for what is neither a list nor a dictionary", at)),
        };
        if self.stack[first..].contains(&Value::Mark) {
            return Err(self.unfit("a value that is not there", at));
        }
        self.charge::<Value>(count, at)?;
        self.pickle.objects[object as usize].extend(self.stack.drain(first..));
        if marked {
            self.stack.pop();
        }
        Ok(())
    }

    fn remember(&mut self, number: u32, at: usize) -> Result<()> {
        let Some(&value) = self.stack.last().filter(|value| **value != Value::Mark) else {
            return Err(self.unfit("a value that is not there", at));
        };
        let number = number as usize;
        if number > self.memo.len() {
            return Err(self.unfit("values that are numbered out of order", at));
        }
        if number == self.memo.len() {
            self.charge::<Value>(1, at)?;
            self.memo.push(value);
        }
        self.memo[number] = value;
        Ok(())
    }

    fn recall(&mut self, number: u32, at: usize) -> Result<()> {
        match self.memo.get(number as usize) {
            Some(&value) => self.push(value, at),
            None => Err(self.unfit(&format!("value {number}, which was never set"), at)),
        }
    }

    fn push_function(&mut self, module: &str, name: &str, at: usize) -> Result<()> {
        let storage = || STORAGES.iter().position(|(storage, _)| *storage == name);
        let function = match (module, name) {
            ("collections", "OrderedDict") => Some(Function::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Function::RebuildTensor),
            ("torch._utils", "_rebuild_parameter") => Some(Function::RebuildParameter),
            ("torch", _) => storage().map(|kind| Function::Storage(kind as u8)),
            _ => None,
        };
        let Some(function) = function else {
            let what = format!("\"{}.{}\" in a checkpoint", shown(module), shown(name));
            let hint = "only dictionaries of tensors and numbers are read, and nothing is executed: \
                        save the model's state_dict alone";
            return Err(Error::unsupported(self.cursor.path(), what, hint));
        };
        self.push(Value::Function(function), at)
    }

    /// `("storage", kind, key, device, elements)`
    fn storage(&mut self, at: usize) -> Result<()> {
        let id = self.pop(at)?;
        let parts = match id {
            Value::List(object) => self.pickle.list(object),
            _ => &[],
        };
        let (kind, key) = match *parts {
            [role, Value::Function(Function::Storage(kind)), key, ..]
                if self.pickle.text(role) == Some("storage") =>
            {
                (Some(kind), self.pickle.text(key))
            }
            _ => (None, None),
        };
        let (Some(kind), Some(key)) = (kind, key) else {
            return Err(self.unfit("what should name a storage and does not", at));
        };
        if key.len() > LONGEST_KEY {
            return Err(self.unfit(&format!("a storage whose name has {} bytes", key.len()), at));
        }
        self.charge::<Storage<'_>>(1, at)?;
        self.pickle.storages.push(Storage { kind, key });
        self.push(Value::Storage(self.pickle.storages.len() as u32 - 1), at)
    }

    fn call(&mut self, at: usize) -> Result<()> {
        let arguments = match self.pop(at)? {
            Value::List(object) => self.pickle.list(object),
            _ => return Err(self.unfit("arguments that are no tuple", at)),
        };
        let arguments: [Value; 4] = std::array::from_fn(|i| arguments.get(i).copied().unwrap_or(Value::None));
        let function = self.pop(at)?;
        match (function, arguments) {
            (Value::Function(Function::OrderedDict), [Value::None, ..]) => {
                let object = self.object(Vec::new(), at)?;
                self.push(Value::Dict(object), at)
            }
            (Value::Function(Function::RebuildParameter), [Value::Tensor(view), ..]) => {
                self.push(Value::Tensor(view), at)
            }
            (
                Value::Function(Function::RebuildTensor),
                [Value::Storage(storage), Value::Int(offset), Value::List(shape), Value::List(strides)],
            ) => {
                self.charge::<View>(1, at)?;
                self.pickle.views.push(View { storage, offset, shape, strides, at });
                self.push(Value::Tensor(self.pickle.views.len() as u32 - 1), at)
            }
            _ => Err(self.unfit("a call with arguments that no state dict has", at)),
        }
    }

    fn unfit(&self, what: &str, at: usize) -> Error {
        self.cursor.malformed("pickle: instruction", at, format!("it asks for {what}"))
    }
}

/// The beginning of a text, for messages.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(60).collect::<String>().escape_debug().to_string()
}

/// The instruction as `pickletools` calls it, where it is one that programs use, else its number.
fn name_of(opcode: u8) -> String {
    let name = match opcode {
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        0x82..=0x84 => "EXT",
        b'P' => "PERSID",
        b'0' => "POP",
        b'1' => "POP_MARK",
        b'2' => "DUP",
        b'I' => "INT",
        b'L' => "LONG",
        0x8b => "LONG4",
        b'F' => "FLOAT",
        b'S' | b'T' | b'U' => "STRING",
        b'B' | b'C' | 0x8e => "BINBYTES",
        0x96 => "BYTEARRAY8",
        b'V' => "UNICODE",
        0x8d => "BINUNICODE8",
        b'l' | b'd' | b'p' | b'g' => "an instruction of version 0",
        0x8f..=0x91 => "SET",
        _ => return format!("{opcode:#04x}"),
    };
    name.to_owned()
}
