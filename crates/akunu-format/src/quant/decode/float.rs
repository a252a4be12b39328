//! F32, F16 and BF16.

use half::{bf16, f16};

pub(super) fn f32_to_f32(bytes: &[u8], out: &mut [f32]) {
    for (bytes, value) in bytes.as_chunks().0.iter().zip(out) {
        *value = f32::from_le_bytes(*bytes);
    }
}

pub(super) fn f16_to_f32(bytes: &[u8], out: &mut [f32]) {
    for (bytes, value) in bytes.as_chunks().0.iter().zip(out) {
        *value = f16::from_le_bytes(*bytes).to_f32();
    }
}

pub(super) fn bf16_to_f32(bytes: &[u8], out: &mut [f32]) {
    for (bytes, value) in bytes.as_chunks().0.iter().zip(out) {
        *value = bf16::from_le_bytes(*bytes).to_f32();
    }
}
