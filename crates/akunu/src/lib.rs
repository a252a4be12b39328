//! The engine people depend on: open a model, run it, look into it, convert it, fetch it.

mod backends;
mod blocks;
mod error;
pub mod hub;
mod kv;
mod model;
mod sequence;
mod settings;
pub mod summary;

pub use akunu_program::Phase;
pub use akunu_program::select::Sampling;
pub use backends::{BACKENDS, backend};
pub use error::{Error, Kind, Result};
pub use model::{Model, Options};
pub use sequence::{Sequence, StopHandle};
pub use summary::Summary;
