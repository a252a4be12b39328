//! Models as programs.
pub mod arch;
mod backend;
mod builder;
mod error;
pub mod program;
pub mod reference;
pub mod rope;
pub mod select;
pub use backend::*;
pub use builder::build;
pub use error::{Error, Result};
