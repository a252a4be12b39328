//! Sound in and spectrograms out.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod bad_input;
mod formats;
mod mel;
mod wav;
