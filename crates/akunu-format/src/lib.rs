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
//! # A tour
//!
//! **From a file to numbers.** A [`Tensor`] is a view: [`shape`](Tensor::shape) is outermost first whatever the format, and
//! [`data`](Tensor::data) says how the bytes are to be read. [`Data::Blocks`] is what GGUF has, plain numbers included: rows of
//! blocks of a [`DType`]. [`Data::Affine`] is MLX's: packed words with scales and biases. [`Data::Opaque`] can be listed and
//! nothing else. [`Tensor::to_f32`] and [`Tensor::dequantize_rows`] read the first two alike.
//!
//! **Blocks.** A quantised dtype stores a run of values (32, or 256 in the K and IQ families) in a block of fixed size with a
//! scale of its own; [`DType::row_bytes`] does the arithmetic. [`quant`] converts both ways:
//!
//! ```
//! use akunu_format::{DType, quant};
//!
//! let row: Vec<f32> = (0..64).map(|i| (i as f32 * 0.1).sin()).collect();
//! let mut blocks = vec![0; DType::Q4_0.row_bytes(row.len())?];
//! assert_eq!(blocks.len(), 2 * 18); // two blocks: 16 bytes of nibbles and an F16 scale each
//! quant::quantize(DType::Q4_0, &row, &mut blocks)?;
//! let mut back = vec![0.0; row.len()];
//! quant::dequantize(DType::Q4_0, &blocks, &mut back)?;
//! assert!(row.iter().zip(&back).all(|(a, b)| (a - b).abs() <= 1.0 / 8.0)); // one of 16 steps from -8/8 to 7/8
//! # Ok::<(), akunu_format::Error>(())
//! ```
//!
//! **What a model says of itself** differs by format: a GGUF file has typed [`Metadata`](gguf::Metadata) under keys, a
//! [`Checkpoint`](checkpoint::Checkpoint) has JSON [`Config`](checkpoint::Config)s and other files beside it
//! ([`companion`](checkpoint::Checkpoint::companion)), Whisper's container a fixed list of sizes. Match on [`ModelFile`] to reach
//! them.
//!
//! **When a file is bad**, the error says where:
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("cut.gguf");
//! std::fs::write(&path, b"GGUF\x03\0\0\0\x01\0")?; // the count of tensors has eight bytes
//! let error = akunu_format::ModelFile::open(&path).unwrap_err();
//! assert!(error.to_string().ends_with("at byte 8: needs 8 bytes, but the file ends after 2"), "{error}");
//! # Ok::<(), std::io::Error>(())
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
//! One thing is left to the caller, as with every mapping: **the file must not be changed or cut short while it
//! is open**, or a model that was loaded from it is in use.
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
pub use mapped::Mapping;
pub use model_file::ModelFile;
pub use tensor::{Data, Tensor};
