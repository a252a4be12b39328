//! Model files, read exactly and safely.
//!
//! A file is memory-mapped; its header is checked once, completely, when it is opened; tensors are typed views into
//! the mapping and are touched only when used. Nothing here knows about devices or the names of layers.

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
pub mod whisper_ggml;

pub use dtype::{DType, SUPER_BLOCK, Support};
pub use error::{Error, Result};
pub use model_file::ModelFile;
pub use tensor::{Data, Tensor};
