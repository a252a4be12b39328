//! Block layouts, field by field in file order. Multi-byte fields are little-endian.
//!
//! `d`, `dmin` and `m` are F16 bit patterns. "Low/high" means the low and high nibble of a byte. An *octet* is eight
//! consecutive elements, a *quad* four.

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
        const _: () = {
            assert!(align_of::<$name>() == 1);
            assert!(size_of::<$name>() == $name::DTYPE.block_bytes());
            assert!($name::LEN == $name::DTYPE.block_len());
        };
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
        /// Sixteen 6-bit scales. Their low four bits: scales 0..8 low in bytes 0..8, scales 8..16 high. Their upper
        /// two bits: scale `i` in bits `2 (i / 4) ..` of byte `8 + i % 4`.
        scales: [u8; 12],
        d: F16,
    }
}

block! {
    /// `x = d * scale * q - dmin * min` over sub-blocks of 32.
    Q4_K(SUPER_BLOCK) {
        d: F16,
        dmin: F16,
        /// Eight 6-bit scales and eight 6-bit minima. Of sub-blocks 0..4, the scales are the low six bits of bytes
        /// 0..4, the minima those of bytes 4..8. Of sub-blocks 4..8, the low four bits are the low (scale) and high
        /// (minimum) of bytes 8..12, the upper two bits the upper two of bytes 0..4 (scale) and 4..8 (minimum).
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

/// What the sixteen codes of IQ4_NL and IQ4_XS stand for.
pub(crate) const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

block! {
    /// `x = d * IQ4_VALUES[q]`, nibbles as in Q4_0.
    IQ4_NL(32) { d: F16, qs: [u8; 16], }
}

block! {
    /// `x = d * (scale - 32) * IQ4_VALUES[q]` over sub-blocks of 32.
    IQ4_XS(SUPER_BLOCK) {
        d: F16,
        /// Upper two bits of the scales: sub-block `b` in bits `2 b ..` of the 16-bit word.
        scales_h: [u8; 2],
        /// Low four bits of the scales: sub-block `2 i` low, `2 i + 1` high.
        scales_l: [u8; 4],
        /// Sixteen bytes per sub-block, nibbles as in Q4_0.
        qs: [[u8; 16]; 8],
    }
}

block! {
    /// `x = d * (2 scale + 1) / 8 * sign * grid` over sub-blocks of 32.
    IQ2_XXS(SUPER_BLOCK) {
        d: F16,
        qs: [IQ2_XXS_Sub; 8],
    }
}

/// A sub-block of 32 in IQ2_XXS.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct IQ2_XXS_Sub {
    /// A grid point per octet.
    pub grid: [u8; 4],
    /// Four times seven bits of signs from the lowest, then a 4-bit scale.
    pub signs_scale: [u8; 4],
}

block! {
    /// `x = d * (2 scale + 1) / 8 * sign * grid` over sub-blocks of 16.
    IQ2_XS(SUPER_BLOCK) {
        d: F16,
        /// A word per octet: nine bits of grid point, seven bits of signs.
        qs: [[u8; 2]; 32],
        /// Sub-block `2 i` low, `2 i + 1` high.
        scales: [u8; 8],
    }
}

block! {
    /// `x = d * (2 scale + 1) / 8 * sign * grid` over sub-blocks of 16.
    IQ2_S(SUPER_BLOCK) {
        d: F16,
        /// Low eight bits of each octet's grid point.
        qs: [u8; 32],
        /// Bit `i` of an octet's byte: element `i` is negative.
        signs: [u8; 32],
        /// Upper two bits of the grid points: octet `o` in bits `2 (o % 4) ..` of `qh[o / 4]`.
        qh: [u8; 8],
        /// Sub-block `2 i` low, `2 i + 1` high.
        scales: [u8; 8],
    }
}

block! {
    /// `x = d * (2 scale + 1) / 4 * sign * grid` over sub-blocks of 32.
    IQ3_XXS(SUPER_BLOCK) {
        d: F16,
        /// A grid point per quad.
        qs: [u8; 64],
        /// Per sub-block a word: four times seven bits of signs from the lowest, then a 4-bit scale.
        signs_scales: [[u8; 4]; 8],
    }
}

block! {
    /// `x = d * (2 scale + 1) * sign * grid` over sub-blocks of 32.
    IQ3_S(SUPER_BLOCK) {
        d: F16,
        /// Low eight bits of each quad's grid point.
        qs: [u8; 64],
        /// Ninth bits: quad `k` in bit `k % 8` of `qh[k / 8]`.
        qh: [u8; 8],
        /// Bit `i` of an octet's byte: element `i` is negative.
        signs: [u8; 32],
        /// Sub-block `2 i` low, `2 i + 1` high.
        scales: [u8; 4],
    }
}

block! {
    /// `x = d * (2 scale + 1) * (grid + delta)` over sub-blocks of 32.
    IQ1_S(SUPER_BLOCK) {
        d: F16,
        /// Low eight bits of each octet's grid point.
        qs: [u8; 32],
        /// Per sub-block a word: four times the upper three bits of a grid point from the lowest, a 3-bit scale, and
        /// the sign of delta.
        qh: [[u8; 2]; 8],
    }
}

block! {
    /// `x = d * (2 scale + 1) * (grid + delta)` over sub-blocks of 16.
    IQ1_M(SUPER_BLOCK) {
        /// Low eight bits of each octet's grid point.
        qs: [u8; 32],
        /// A nibble per octet, low first: the upper three bits of its grid point, then the sign of its delta.
        qh: [u8; 16],
        /// Four words: each has four 3-bit scales from the lowest, then four bits of `d`, whose lowest are in the
        /// first word.
        scales: [[u8; 2]; 4],
    }
}

block! {
    /// `x = d * (q - 1)`, five base-3 digits to a byte.
    ///
    /// The byte is the digits read as a fraction of 3^5, scaled to 256 and rounded up, so that multiplying it by 3
    /// carries the first digit out of the byte.
    TQ1_0(SUPER_BLOCK) {
        /// Bytes 0..32: digit `n` of byte `j` is element `32 n + j`. Bytes 32..48: element `160 + 16 n + j`.
        qs: [u8; 48],
        /// Four digits each: digit `n` of byte `j` is element `240 + 4 n + j`.
        qh: [u8; 4],
        d: F16,
    }
}

block! {
    /// `x = d * (q - 1)`, bits as in Q2_K.
    TQ2_0(SUPER_BLOCK) { qs: [u8; 64], d: F16, }
}

/// Twice the value of each 4-bit float (one sign, two exponent, one mantissa bit), so that all are integers. The
/// format's negative zero is decoded as zero.
pub(crate) const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

block! {
    /// `x = 2^(e - 127) * float4`, nibbles as in Q4_0.
    MXFP4(32) { e: u8, qs: [u8; 16], }
}

block! {
    /// `x = scale * float4` over sub-blocks of 16.
    NVFP4(64) {
        /// Unsigned 8-bit floats: four exponent bits (bias 7), three mantissa bits.
        scales: [u8; 4],
        /// Eight bytes per sub-block. Low: its element `j`; high: `j + 8`.
        qs: [[u8; 8]; 4],
    }
}
