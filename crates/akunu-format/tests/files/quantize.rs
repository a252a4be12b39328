//! `quantize` against llama.cpp's bytes (fixtures: `scripts/oracle/quantize.py`).

use std::fs;
use std::path::PathBuf;

use akunu_format::quant::{dequantize, quantize};
use akunu_format::{DType, Error, Support};
use half::{bf16, f16};
use proptest::prelude::*;

const SIMPLE: [DType; 5] = [DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0];
const SEARCHED: [DType; 6] = [DType::Q2_K, DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_NL];

/// The kinds of rows in `values.bin`, in their order, eight rows of each.
const KINDS: [&str; 8] =
    ["normal", "uneven", "outliers", "positive", "negative", "sixteen levels", "seven levels", "degenerate"];
const KIND_LEN: usize = 8 * 256;

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quantize").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn fixture_values() -> Vec<f32> {
    let values: Vec<f32> =
        fixture("values.bin").as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_eq!(values.len(), KINDS.len() * KIND_LEN);
    values
}

fn encoded(dtype: DType, values: &[f32]) -> Vec<u8> {
    let mut blocks = vec![0xAA; dtype.row_bytes(values.len()).expect("whole blocks")];
    quantize(dtype, values, &mut blocks).expect("finite values");
    blocks
}

fn decoded(dtype: DType, blocks: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; blocks.len() / dtype.block_bytes() * dtype.block_len()];
    dequantize(dtype, blocks, &mut values).expect("whole blocks");
    values
}

/// Root mean square of the difference between the values and what became of them.
fn rmse(values: &[f32], dtype: DType, blocks: &[u8]) -> f64 {
    let decoded = decoded(dtype, blocks);
    let squares = values.iter().zip(&decoded).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    (squares.sum::<f64>() / values.len() as f64).sqrt()
}

#[test]
fn simple_types_have_the_bytes_of_llama_cpp() {
    let values = fixture_values();
    for dtype in SIMPLE {
        let (ours, theirs) = (encoded(dtype, &values), fixture(&format!("{dtype}.bin")));
        let size = dtype.block_bytes();
        for (i, (ours, theirs)) in ours.chunks(size).zip(theirs.chunks(size)).enumerate() {
            assert_eq!(ours, theirs, "{dtype} block {i} of {:?}", &values[32 * i..32 * (i + 1)]);
        }
    }
}

#[test]
fn searched_types_leave_no_more_error_than_llama_cpp() {
    let values = fixture_values();
    for dtype in SEARCHED {
        let (ours, theirs) = (encoded(dtype, &values), fixture(&format!("{dtype}.bin")));
        let size = ours.len() / KINDS.len();
        let kinds = values.chunks(KIND_LEN).zip(ours.chunks(size)).zip(theirs.chunks(size));
        for (kind, ((values, ours), theirs)) in KINDS.iter().zip(kinds) {
            let (ours, theirs) = (rmse(values, dtype, ours), rmse(values, dtype, theirs));
            assert!(ours <= theirs, "{dtype}, {kind}: {ours:.4e} against {theirs:.4e}");
        }
    }
}

#[test]
fn f16_and_bf16_round_to_nearest_even() {
    for record in fixture("floats.bin").chunks_exact(8) {
        let value = f32::from_le_bytes([record[0], record[1], record[2], record[3]]);
        let half = encoded(DType::F16, &[value]);
        let brain = encoded(DType::BF16, &[value]);
        if value.is_nan() {
            assert!(f16::from_le_bytes([half[0], half[1]]).is_nan());
            assert!(bf16::from_le_bytes([brain[0], brain[1]]).is_nan());
        } else {
            assert_eq!(half, record[4..6], "F16 of {value:e}");
            assert_eq!(brain, record[6..8], "BF16 of {value:e}");
        }
        assert_eq!(encoded(DType::F32, &[value]), record[..4]);
    }
}

#[test]
fn the_dtypes_marked_as_writable_are_written_and_no_others() {
    for &dtype in DType::ALL {
        let values = vec![0.5; dtype.block_len()];
        let mut block = vec![0; dtype.block_bytes()];
        match quantize(dtype, &values, &mut block) {
            Ok(()) => assert_eq!(dtype.support(), Support::ReadWrite, "{dtype}"),
            Err(error) => {
                assert!(matches!(error, Error::NoConversion { action: "written", .. }), "{dtype}: {error}");
                assert_ne!(dtype.support(), Support::ReadWrite, "{dtype}");
            }
        }
    }
}

#[test]
fn sizes_that_do_not_match_are_refused() {
    assert!(matches!(quantize(DType::Q4_K, &[0.0; 128], &mut [0; 144]), Err(Error::RowLength { .. })));
    assert!(matches!(quantize(DType::Q4_K, &[0.0; 256], &mut [0; 143]), Err(Error::BufferSize { .. })));
}

#[test]
fn values_that_are_not_finite_are_refused_by_index() {
    for dtype in SIMPLE.into_iter().chain(SEARCHED) {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = [0.25; 512];
            values[300] = bad;
            let mut blocks = vec![0; dtype.row_bytes(512).expect("whole blocks")];
            let error = quantize(dtype, &values, &mut blocks).expect_err("not finite");
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("value {bad} at index 300 cannot be stored as {dtype}")),
                "{error}"
            );
        }
    }
}

#[test]
fn values_beyond_the_largest_scale_are_refused() {
    for dtype in SIMPLE.into_iter().chain(SEARCHED) {
        for huge in [f32::MAX, -f32::MAX, 1e20, -1e14, 1e10] {
            let mut values = [0.25; 512];
            values[300] = huge;
            let mut blocks = vec![0; dtype.row_bytes(512).expect("whole blocks")];
            let error = quantize(dtype, &values, &mut blocks).expect_err("too large");
            assert!(matches!(error, Error::Value { index: 300, .. }), "{dtype} {huge}: {error}");
        }
    }
    let error = quantize(DType::F16, &[1.0, 65520.0], &mut [0; 4]).expect_err("beyond F16");
    assert!(matches!(error, Error::Value { index: 1, .. }), "{error}");
}

#[test]
fn small_values_are_searched_within_the_subnormal_scales() {
    // The smallest F16 is 6e-8: a tensor of 1e-5 has to make do with a coarse scale for the super-block.
    let values: Vec<f32> = fixture_values()[..KIND_LEN].iter().map(|v| v * 5e-4).collect();
    let power = rmse(&values, DType::F32, &encoded(DType::F32, &vec![0.0; KIND_LEN]));
    for (dtype, bound) in [(DType::Q3_K, 0.2), (DType::Q4_K, 0.15), (DType::Q5_K, 0.1), (DType::Q6_K, 0.05)] {
        let error = rmse(&values, dtype, &encoded(dtype, &values));
        assert!(error < bound * power, "{dtype}: {:.3} of the values", error / power);
    }
}

#[test]
fn values_that_lay_on_a_subnormal_grid_of_q6_k_are_found_again() {
    let mut state = 1_u32;
    let mut below = |n: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % n
    };
    let mut grid = Vec::new();
    for _ in 0..64 {
        // In units of the smallest F16, as the scales of trained models are.
        let d = (60 + below(60)) as f32 * 2.0_f32.powi(-24);
        for sub in 0..16 {
            let scale = if sub == 0 { 128.0 } else { (40 + below(88)) as f32 };
            let codes = (0..16).map(|i| if i == 0 { -32.0 } else { below(63) as f32 - 31.0 });
            grid.extend(codes.map(|code| d * -scale * code));
        }
    }
    // A quantised model may have been stored as F16 in between.
    let halves: Vec<f32> = grid.iter().map(|v| f16::from_f32(*v).to_f32()).collect();
    let squares = halves.iter().zip(&grid).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    let known = (squares.sum::<f64>() / grid.len() as f64).sqrt();
    let found = rmse(&halves, DType::Q6_K, &encoded(DType::Q6_K, &halves));
    assert!(found <= 1.02 * known, "{found:.4e}, although blocks with {known:.4e} exist");
}

proptest! {
    #[test]
    fn blocks_do_not_influence_each_other(
        a in prop::collection::vec(-1e3_f32..1e3, 256),
        b in prop::collection::vec(-1e-3_f32..1e-3, 256),
    ) {
        for dtype in SIMPLE.into_iter().chain(SEARCHED) {
            let together = encoded(dtype, &[a.clone(), b.clone()].concat());
            prop_assert_eq!(together, [encoded(dtype, &a), encoded(dtype, &b)].concat());
        }
    }

    /// No value is further off than half a step would be if the whole range of the block had to be covered, with one
    /// step in reserve for the rounding of scales.
    #[test]
    fn every_value_comes_back_within_the_step_of_its_block(
        values in prop::collection::vec(-1e3_f32..1e3, 256),
        exponent in -3..2,
    ) {
        let values: Vec<f32> = values.iter().map(|v| v * 10_f32.powi(exponent)).collect();
        let range = 2.0 * values.iter().fold(0.0_f32, |most, v| most.max(v.abs()));
        let steps = [
            (DType::Q4_0, 15.0), (DType::Q4_1, 15.0), (DType::Q5_0, 31.0), (DType::Q5_1, 31.0), (DType::Q8_0, 254.0),
            (DType::Q2_K, 3.0), (DType::Q3_K, 7.0), (DType::Q4_K, 15.0), (DType::Q5_K, 31.0), (DType::Q6_K, 63.0),
            (DType::IQ4_NL, 10.0),
        ];
        for (dtype, steps) in steps {
            for (value, back) in values.iter().zip(decoded(dtype, &encoded(dtype, &values))) {
                prop_assert!((value - back).abs() <= 1.5 * range / steps, "{} {} {}", dtype, value, back);
            }
        }
    }
}
