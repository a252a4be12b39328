//! The engine with real models: run scripts/fetch-test-data first.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod continuations;
mod embeddings;
#[path = "../greedy/mod.rs"]
mod greedy;
mod reference;
mod speech;
mod summaries;
mod transcripts;
