//! Real chat templates: right, and safe.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

mod injection;
mod oracle;
mod test_data;
mod tokens;
mod tools;
