//! One module for each command: its arguments and its work.

pub mod bench;
pub mod chat;
pub mod complete;
pub mod completions;
pub mod devices;
pub mod embed;
pub mod inspect;
pub mod models;
pub mod perplexity;
pub mod profile;
pub mod pull;
pub mod quantize;
pub mod rerank;
pub mod rm;
pub mod serve;
pub mod tokenize;
pub mod transcribe;
