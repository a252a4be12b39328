//! Sound in and spectrograms out. One program: each is compiled and linked with all it tests.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod bad_input;
mod formats;
mod mel;
mod wav;
