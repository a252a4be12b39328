//! The header in the repository is the one the sources give.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::path::Path;

/// With `AKUNU_WRITE_HEADER=1` in the environment the header is written instead.
#[test]
fn the_header_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let mut written = Vec::new();
    cbindgen::generate_with_config(folder, config).unwrap().write(&mut written);
    let header = folder.join("include/akunu.h");
    if std::env::var_os("AKUNU_WRITE_HEADER").is_some() {
        std::fs::write(&header, &written).unwrap();
    }
    let committed = std::fs::read(&header).unwrap_or_default();
    assert!(
        committed == written,
        "include/akunu.h is not what the sources give: AKUNU_WRITE_HEADER=1 cargo test -p akunu-capi --test header"
    );
}
