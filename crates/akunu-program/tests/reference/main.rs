//! The reference backend against oracles. One program: each is compiled and linked with all it tests.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod encoders;
mod quants;
mod speech;
mod tiny;
