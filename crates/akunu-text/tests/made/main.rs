//! Vocabularies and templates made for a test.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod bad_vocabulary;
mod chat_builtin;
mod round_trip;
