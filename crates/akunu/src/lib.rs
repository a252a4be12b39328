//! The engine people depend on: open a model, run it, serve many with it, look into it, convert it, fetch it.

mod backends;
mod blocks;
mod chat;
mod error;
mod generation;
pub mod hub;
mod kv;
mod model;
mod perplexity;
mod pieces;
pub mod quantize;
pub mod scheduler;
mod sequence;
mod settings;
mod speculate;
pub mod summary;
mod text;
mod transcript;

pub use akunu_program::Phase;
pub use akunu_program::select::Sampling;
pub use akunu_text::chat::Message;
pub use akunu_text::tokenizer;
pub use backends::{BACKENDS, backend, describe_backend};
pub use chat::{Answer, Chat};
pub use error::{Error, Kind, Result};
pub use generation::{FinishReason, Generation, Statistics};
pub use model::{Model, Options};
pub use perplexity::{Perplexity, perplexity};
pub use pieces::Piece;
pub use scheduler::Scheduler;
pub use sequence::{Sequence, StopHandle};
pub use settings::Settings;
pub use speculate::Speculate;
pub use summary::Summary;
pub use text::load_tokenizer;
