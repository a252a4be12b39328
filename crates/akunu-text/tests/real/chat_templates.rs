//! Real chat templates: right, and safe.

mod injection;
mod oracle;
mod test_data;
mod tokens;
mod tools;
