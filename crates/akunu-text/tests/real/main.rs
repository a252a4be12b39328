//! Vocabularies and templates of real models.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod chat_templates;
mod fuzz;
mod huggingface;
mod libraries;
mod llama_cpp;
mod llama_unigram;
mod vocabularies;
