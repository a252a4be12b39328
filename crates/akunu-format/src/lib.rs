//! Model files, read exactly and safely: GGUF, SafeTensors (Hugging Face and MLX), PyTorch's `.pt` and Whisper's GGML container.
//!
//! [`ModelFile`] opens any of them by what it is, not by what it is called, and gives its tensors as [`Tensor`]s: a
//! name, a shape, and borrowed bytes with a [`DType`]. Nothing here knows about devices or the names of layers.
//!
//! | what | where |
//! |---|---|
//! | GGUF: [`Metadata`](gguf::Metadata) by key, shards, a [`Writer`](gguf::Writer) | [`gguf`] |
//! | Directories of SafeTensors with their `config.json`, MLX's quantised ones too | [`checkpoint`], [`mlx`] |
//! | whisper.cpp's container | [`whisper_ggml`] |
//! | what `torch.save` writes, without executing it | [`torch`] |
//! | every element type, its code, block length and block size | [`DType`] |
//! | blocks to `f32` and back | [`quant`] |
//!
//! ```
//! use akunu_format::gguf::Writer;
//! use akunu_format::{DType, ModelFile};
//!
//! # let directory = tempfile::tempdir().unwrap();
//! let path = directory.path().join("tiny.gguf");
//! let mut writer = Writer::new();
//! writer.metadata("general.architecture", "llama")?.metadata("llama.block_count", &1u32)?;
//! writer.tensor("output_norm.weight", DType::F32, &[4])?;
//! let mut tensors = writer.create(&path)?;
//! tensors.append("output_norm.weight", bytemuck::cast_slice(&[1.0f32, 2.0, 3.0, 4.0]))?;
//! tensors.finish()?;
//!
//! let model = ModelFile::open(&path)?;
//! let norm = model.tensor("output_norm.weight")?;
//! assert_eq!((norm.shape, norm.to_f32()?), (&[4][..], vec![1.0, 2.0, 3.0, 4.0]));
//! let ModelFile::Gguf(gguf) = &model else { unreachable!() };
//! assert_eq!(gguf.metadata().require::<usize>("llama.block_count")?, 1);
//! # Ok::<(), akunu_format::Error>(())
//! ```
//!
//! # What can be relied on
//!
//! Files are mapped into memory. A header is read and checked completely when the file is opened, which takes a
//! millisecond or two; large arrays of metadata stay where they are until asked for, and a tensor's pages are touched when
//! it is used. Whatever the bytes are, the result is a model or an [`Error`](enum@Error) that names file, field and byte
//! offset: never a panic, a read out of bounds, or more memory than eight times the file's size. What is not supported is
//! refused by name.
//!
//! One thing is left to the caller, as with every mapping: **the file must not be changed or cut short while it is open**.
//! On most systems a process that reads pages which are gone is killed. Replacing a file under the same name, as
//! [`Writer`](gguf::Writer) does, is safe.

pub mod checkpoint;
mod cursor;
mod dtype;
mod error;
pub mod gguf;
mod mapped;
pub mod mlx;
mod model_file;
pub mod quant;
mod table;
mod tensor;
mod tensor_writer;
pub mod torch;
pub mod whisper_ggml;

pub use dtype::{DType, SUPER_BLOCK, Support};
pub use error::{Error, Result};
pub use model_file::ModelFile;
pub use tensor::{Data, Tensor};
