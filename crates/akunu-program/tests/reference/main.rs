//! The reference backend against oracles.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod encoders;
mod quants;
mod speech;
mod tiny;
