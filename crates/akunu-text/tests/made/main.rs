//! Vocabularies and templates made for a test. One program: each is compiled and linked with all it tests.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod bad_vocabulary;
mod chat_builtin;
mod round_trip;
