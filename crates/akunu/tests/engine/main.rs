//! The engine with tiny models.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod bad_models;
mod chat;
mod constraints;
mod context_shift;
mod embed;
mod fidelity_page;
mod generation;
mod perplexity;
mod quantize;
mod quantize_huggingface;
mod quantize_whisper;
mod rank;
mod scheduler;
mod sequence;
mod speech;
mod summary;
#[path = "../tiny/mod.rs"]
mod tiny;
