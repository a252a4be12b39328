//! The server over real sockets, with tiny models.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod behaviour;
mod embeddings;
mod models;
mod openai;
mod openapi;
mod other_dialects;
mod rerank;
mod structured;
mod support;
mod thinking;
