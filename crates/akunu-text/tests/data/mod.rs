//! Where the data that scripts/fetch-test-data brings lies.

use std::path::{Path, PathBuf};

/// A file or folder of the test data.
pub fn path(name: &str) -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-data");
    let path = std::env::var_os("AKUNU_TEST_DATA").map_or(default, PathBuf::from).join(name);
    assert!(path.exists(), "{} is missing: run scripts/fetch-test-data", path.display());
    path
}
