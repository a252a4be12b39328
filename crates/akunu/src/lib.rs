//! The engine people depend on: open a model, run it, serve many with it, look into it, convert it, fetch it.
//!
//! | to | begin with |
//! |---|---|
//! | continue a text or hold a conversation | [`Model::load`], then [`Model::generate`] or [`Model::chat`] |
//! | answer many at once | [`Scheduler`] |
//! | write down what is said in a recording | [`Transcriber`] |
//! | turn texts into vectors | [`Embedder`] |
//! | feed tokens and read logits yourself | [`Sequence`] |
//! | know what a file holds and what running it takes | [`Summary`] |
//! | convert a model to other dtypes | [`quantize`] |
//! | fetch a model by its name | [`hub`] |
//!
//! ```
//! use akunu::{Model, Options, Settings};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../akunu-program/tests/fixtures/tiny/llama/model.gguf");
//! let model = Model::load(path, &Options::default())?;
//! let settings = Settings { max_tokens: Some(8), ..Settings::default() };
//! let mut generation = model.generate("Once upon a time", &settings)?;
//! let mut text = String::new();
//! for piece in &mut generation {
//!     text += &piece?.text;
//! }
//! assert!(generation.finish_reason().is_some());
//! assert!(generation.statistics().generated_tokens <= 8);
//! # Ok::<(), akunu::Error>(())
//! ```
//!
//! Whatever goes wrong is an [`Error`](enum@Error) that says what was wrong, where, and what to do about it; its [`Kind`]
//! tells programs the same in one word.

mod backends;
mod blocks;
mod chat;
mod constraint;
pub mod embed;
mod error;
mod generation;
pub mod hub;
mod kv;
mod model;
mod perplexity;
mod pieces;
mod profile;
pub mod quantize;
pub mod scheduler;
mod self_test;
mod sequence;
mod settings;
mod speculate;
pub mod speech;
pub mod summary;
mod text;
mod transcript;

pub use akunu_cpu::{Ceilings, MemoryReader};
pub use akunu_program::Tally;
pub use akunu_program::conformance::Outcome;
pub use akunu_program::select::Sampling;
pub use akunu_program::{KvType, Phase};
pub use akunu_text::chat::{Channel, Message};
pub use akunu_text::tokenizer;
pub use backends::{BACKENDS, backend, ceilings, describe_backend, memory_reader};
pub use chat::{Answer, AnswerPiece, Chat};
pub use constraint::{Constraint, Matcher, ToolChoice};
pub use embed::Embedder;
pub use error::{Error, Kind, Result};
pub use generation::{FinishReason, Generation, Statistics};
pub use model::{Model, Options};
pub use perplexity::{Perplexity, perplexity};
pub use pieces::Piece;
pub use profile::StepTime;
pub use scheduler::Scheduler;
pub use self_test::{SelfTest, self_test};
pub use sequence::{Sequence, StopHandle};
pub use settings::Settings;
pub use speculate::Speculate;
pub use speech::Transcriber;
pub use summary::Summary;
pub use text::{load_tokenizer, read_text};

/// The documentation's examples, compiled with this crate's own.
#[cfg(doctest)]
mod documentation {
    #[doc = include_str!("../../../docs/embeddings.md")]
    struct Embeddings;
    #[doc = include_str!("../../../docs/in-your-program.md")]
    struct InYourProgram;
    #[doc = include_str!("../../../docs/speech.md")]
    struct Speech;
    #[doc = include_str!("../../../docs/structured-output.md")]
    struct StructuredOutput;
}
