//! `docs/dtypes.md` says what the code does.

use std::fs;
use std::path::Path;

use akunu_format::{DType, Support};

#[test]
fn the_documented_table_is_the_one_in_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dtypes.md");
    let page = fs::read_to_string(&path).expect("docs/dtypes.md");
    // Columns: dtype, code, bits per value, values, bytes, block, support.
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").collect::<Vec<_>>())
        .filter(|row| row[0] != "dtype")
        .collect();
    for &dtype in DType::ALL {
        let row =
            rows.iter().find(|row| row[0] == dtype.name()).unwrap_or_else(|| panic!("no row for {dtype}"));
        let support = match dtype.support() {
            Support::Inspect => "inspect",
            Support::Read => "read",
            Support::ReadWrite => "read, write",
        };
        let bits_per_value = 8.0 * dtype.block_bytes() as f64 / dtype.block_len() as f64;
        let expected = [
            dtype.code().to_string(),
            bits_per_value.to_string(),
            dtype.block_len().to_string(),
            dtype.block_bytes().to_string(),
        ];
        assert_eq!(row[1..5], expected, "{dtype}");
        assert_eq!(row[6], support, "{dtype}");
    }
    assert_eq!(rows.len(), DType::ALL.len());
}
