//! The engine people depend on: open a model, look into it, convert it, fetch it.

mod error;
pub mod hub;
pub mod summary;

pub use error::{Error, Kind, Result};
pub use summary::Summary;
