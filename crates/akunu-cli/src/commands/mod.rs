//! One module for each command: its arguments and its work.

pub mod complete;
pub mod inspect;
pub mod models;
pub mod pull;
pub mod rm;
pub mod tokenize;
