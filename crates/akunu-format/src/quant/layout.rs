//! Block layouts, field by field in file order. Multi-byte fields are little-endian.
//!
//! `d`, `dmin` and `m` are F16 bit patterns. "Low/high" means the low and high nibble of a byte.

use bytemuck::{Pod, Zeroable};

use crate::{DType, SUPER_BLOCK};

/// A block as it lies in a file. Alignment is 1: blocks may start at any byte.
pub(crate) trait Block: Pod {
    const DTYPE: DType;
    const LEN: usize;
}

/// A little-endian F16 as it lies in a file.
pub(crate) type F16 = [u8; 2];

macro_rules! block {
    ($(#[$doc:meta])* $name:ident($len:expr) { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Pod, Zeroable)]
        #[repr(C)]
        pub(crate) struct $name { $($(#[$field_doc])* pub $field: $ty,)* }

        impl Block for $name {
            const DTYPE: DType = DType::$name;
            const LEN: usize = $len;
        }
        const _: () = assert!(align_of::<$name>() == 1);
    };
}

block! {
    /// `x = d * (q - 8)`.
    Q4_0(32) {
        d: F16,
        /// Low: element `j`; high: element `j + 16`.
        qs: [u8; 16],
    }
}

block! {
    /// `x = d * q + m`, nibbles as in Q4_0.
    Q4_1(32) { d: F16, m: F16, qs: [u8; 16], }
}

block! {
    /// `x = d * (q - 16)`.
    Q5_0(32) {
        d: F16,
        /// Bit `i` is the fifth bit of element `i`.
        qh: [u8; 4],
        qs: [u8; 16],
    }
}

block! {
    /// `x = d * q + m`, bits as in Q5_0.
    Q5_1(32) { d: F16, m: F16, qh: [u8; 4], qs: [u8; 16], }
}

block! {
    /// `x = d * q`.
    Q8_0(32) { d: F16, qs: [i8; 32], }
}

block! {
    /// `x = d * scale * q - dmin * min` over sub-blocks of 16.
    Q2_K(SUPER_BLOCK) {
        /// Low: scale; high: minimum.
        scales: [u8; 16],
        /// Element `128 h + 32 s + l` is bits `2 s ..` of `qs[32 h + l]`.
        qs: [u8; 64],
        d: F16,
        dmin: F16,
    }
}

block! {
    /// `x = d * (scale - 32) * (q - 4)` over sub-blocks of 16.
    Q3_K(SUPER_BLOCK) {
        /// Bit `e / 32` of `hmask[e % 32]` is the third bit of element `e`.
        hmask: [u8; 32],
        /// The low two bits, ordered as in Q2_K.
        qs: [u8; 64],
        /// Sixteen 6-bit scales: the low nibbles in bytes 0..8, the upper two bits in bytes 8..12.
        scales: [u8; 12],
        d: F16,
    }
}

block! {
    /// `x = d * scale * q - dmin * min` over sub-blocks of 32.
    Q4_K(SUPER_BLOCK) {
        d: F16,
        dmin: F16,
        /// Eight 6-bit scales and eight 6-bit minima.
        scales: [u8; 12],
        /// Bytes `32 c .. 32 c + 32`: low, sub-block `2 c`; high, sub-block `2 c + 1`.
        qs: [u8; 128],
    }
}

block! {
    /// As Q4_K with a fifth bit.
    Q5_K(SUPER_BLOCK) {
        d: F16,
        dmin: F16,
        scales: [u8; 12],
        /// Bit `b` of `qh[l]` is the fifth bit of element `l` of sub-block `b`.
        qh: [u8; 32],
        qs: [u8; 128],
    }
}

block! {
    /// `x = d * scale * (q - 32)` over sub-blocks of 16.
    Q6_K(SUPER_BLOCK) {
        /// Low four bits: element `128 h + 32 g + l` is in `ql[64 h + 32 (g & 1) + l]`, low for `g < 2`, else high.
        ql: [u8; 128],
        /// Upper two bits: bits `2 g ..` of `qh[32 h + l]`.
        qh: [u8; 64],
        scales: [i8; 16],
        d: F16,
    }
}

block! {
    /// `x = d * table[q]`, nibbles as in Q4_0.
    IQ4_NL(32) { d: F16, qs: [u8; 16], }
}
