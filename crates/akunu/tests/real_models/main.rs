//! The engine with real models: run scripts/fetch-test-data first. One program: each is compiled and linked with all it tests.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod continuations;
mod embeddings;
#[path = "../greedy/mod.rs"]
mod greedy;
mod reference;
mod speech;
mod summaries;
mod transcripts;
