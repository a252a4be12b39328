//! GGUF: metadata and tensors in one file, or in several shards.

mod header;
mod metadata;
mod split;
mod value;
mod writer;

use std::path::{Path, PathBuf};

use crate::mapped::MappedFile;
use crate::table::TensorTable;
use crate::{Result, Tensor};

pub use crate::tensor_writer::TensorWriter;
pub use metadata::{FromValue, Metadata};
pub use value::{Array, ArrayIter, Value, ValueType};
pub use writer::{Encode, Writer};

pub(crate) use header::MAGIC;

/// An open GGUF model, versions 2 and 3.
///
/// The header is read and checked in full when the file is opened; metadata values and tensors are decoded when asked
/// for. A model may consist of shards (`NAME-00001-of-00003.gguf`) or hold a vocabulary and no tensors.
#[derive(Debug)]
pub struct Gguf {
    /// The path that was opened.
    path: PathBuf,
    /// One per file.
    headers: Vec<header::Header>,
    table: TensorTable,
}

impl Gguf {
    /// Opens a file, and if it is a shard (any of them), the whole model.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (files, headers, entries) = split::open(path)?;
        Ok(Self { path: path.to_owned(), headers, table: TensorTable::new(files, entries)? })
    }

    /// Reads a whole file that is in memory already. A shard is taken for itself.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let path = PathBuf::from("(in memory)");
        let file = MappedFile::from_bytes(path.clone(), bytes);
        let (header, entries) = header::read(&file, 0)?;
        Ok(Self { path, headers: vec![header], table: TensorTable::new(vec![file], entries)? })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files the model consists of, in order.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.table.files().iter().map(MappedFile::path)
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.headers[0].version
    }

    /// The model's metadata.
    pub fn metadata(&self) -> Metadata<'_> {
        self.headers[0].metadata(&self.table.files()[0])
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.table.iter()
    }

    /// The tensor called `name`, if there is one.
    pub fn get_tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.table.get(name)
    }

    /// See [`ModelFile::mapping`](crate::ModelFile::mapping).
    pub fn mapping(&self, name: &str) -> Option<&crate::Mapping> {
        self.table.mapping(name)
    }

    /// See [`ModelFile::release_tensor`](crate::ModelFile::release_tensor).
    pub fn release_tensor(&self, name: &str) {
        self.table.release(name);
    }

    /// The tensor called `name`, or an error that says so.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        self.table.require(name, &self.path)
    }
}
