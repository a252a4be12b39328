//! `dequantize` against the Python `gguf` package, bit for bit (fixtures: `scripts/oracle/dequantize.py`).

use std::fs;
use std::path::PathBuf;

use akunu_format::quant::dequantize;
use akunu_format::{DType, Error, Support};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

fn readable() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|dtype| dtype.support() >= Support::Read)
}

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dequantize").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / dtype.block_bytes() * dtype.block_len()];
    dequantize(dtype, bytes, &mut out).expect("whole blocks of a readable dtype");
    out
}

/// The bits of a value, all NaNs made one: their sign and payload are nobody's promise.
fn bits(value: f32) -> u32 {
    if value.is_nan() { 0x7FC0_0000 } else { value.to_bits() }
}

#[test]
fn every_value_of_the_fixture_blocks_agrees_to_the_bit() {
    for dtype in readable() {
        let fixture = fixture(&format!("{dtype}.bin"));
        let record = dtype.block_bytes() + 4 * dtype.block_len();
        assert!(
            fixture.len().is_multiple_of(record) && fixture.len() >= 20 * record,
            "{dtype}: fixture size"
        );
        for (i, record) in fixture.chunks_exact(record).enumerate() {
            let (block, expected) = record.split_at(dtype.block_bytes());
            let (expected, _) = expected.as_chunks();
            for (j, (value, expected)) in decoded(dtype, block).iter().zip(expected).enumerate() {
                let expected = f32::from_le_bytes(*expected);
                assert_eq!(
                    bits(*value),
                    bits(expected),
                    "{dtype} block {i} element {j}: {value:?}, not {expected:?}"
                );
            }
        }
    }
}

#[test]
fn a_thousand_pseudo_random_blocks_have_the_expected_hash() {
    let hashes = String::from_utf8(fixture("sha256.txt")).expect("text");
    for dtype in readable() {
        let expected = hashes.lines().find_map(|line| line.strip_prefix(&format!("{dtype} ")));
        let blocks = (65536 / dtype.block_len()).max(1024);
        let values = decoded(dtype, &pseudo_random_bytes(blocks * dtype.block_bytes()));
        let mut hash = Sha256::new();
        for value in values {
            hash.update(bits(value).to_le_bytes());
        }
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(Some(hash.as_str()), expected, "{dtype}");
    }
}

/// splitmix64 from seed 0, as in the script.
fn pseudo_random_bytes(count: usize) -> Vec<u8> {
    let mut state = 0u64;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31).to_le_bytes()
    });
    words.flatten().take(count).collect()
}

#[test]
fn dtypes_that_can_only_be_inspected_are_refused() {
    for &dtype in DType::ALL.iter().filter(|dtype| dtype.support() == Support::Inspect) {
        let (bytes, mut out) = (vec![0; dtype.block_bytes()], vec![0.0; dtype.block_len()]);
        let refused = dequantize(dtype, &bytes, &mut out);
        assert!(matches!(refused, Err(Error::NoConversion { action: "read", .. })), "{dtype}: {refused:?}");
    }
}

#[test]
fn no_blocks_give_no_values() {
    for dtype in readable() {
        assert!(decoded(dtype, &[]).is_empty());
    }
}

proptest! {
    #[test]
    fn any_bytes_of_the_right_size_are_decoded(
        dtype in prop::sample::select(readable().collect::<Vec<_>>()),
        seed in prop::collection::vec(any::<u8>(), 1..300),
        blocks in 1usize..4,
    ) {
        let bytes: Vec<u8> = seed.iter().copied().cycle().take(blocks * dtype.block_bytes()).collect();
        let mut out = vec![-1.234e-30; blocks * dtype.block_len()];
        prop_assert!(dequantize(dtype, &bytes, &mut out).is_ok());
        // Blocks do not look at their neighbours, and every element is written.
        let (first, values) = (&bytes[..dtype.block_bytes()], &out[..dtype.block_len()]);
        let alone: Vec<u32> = decoded(dtype, first).into_iter().map(bits).collect();
        prop_assert_eq!(alone, values.iter().copied().map(bits).collect::<Vec<_>>());
    }

    #[test]
    fn sizes_that_do_not_match_are_errors(
        dtype in prop::sample::select(readable().collect::<Vec<_>>()),
        bytes in 0usize..700,
        values in 0usize..700,
    ) {
        let right = values.is_multiple_of(dtype.block_len())
            && values / dtype.block_len() * dtype.block_bytes() == bytes;
        prop_assume!(!right);
        let result = dequantize(dtype, &vec![0x5A; bytes], &mut vec![0.0; values]);
        let refused = matches!(result, Err(Error::RowLength { .. } | Error::BufferSize { .. }));
        prop_assert!(refused, "{} {:?}", dtype, result);
    }
}
