//! Files of every kind, read and written.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod checkpoint;
mod dequantize;
mod dtype_table;
mod gguf;
mod gguf_round_trip;
mod model_file;
mod quantize;
mod torch;
mod whisper_ggml;
