//! The commands as a user runs them, with tiny models or none.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod bench;
mod command_line;
#[path = "../common/mod.rs"]
mod common;
mod constraints;
mod profile;
#[cfg(unix)]
mod serve;
