//! What the tests of several crates share: where the data lie that `scripts/fetch-test-data` brings, and an allocator that counts.

pub mod allocator;

use std::path::{Path, PathBuf};

/// A file or folder of the test data: in the folder `AKUNU_TEST_DATA`, or `target/test-data` of this workspace.
///
/// # Panics
/// When it is not there, with what to do about it.
pub fn data(name: &str) -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-data");
    let path = std::env::var_os("AKUNU_TEST_DATA").map_or(default, PathBuf::from).join(name);
    assert!(path.exists(), "{} is missing: run scripts/fetch-test-data", path.display());
    path
}
