//! The dtype table: every element type a model file may name, with its code, block length and block size.

use std::fmt;

use crate::{Error, Result};

/// Elements in a K-quant, IQ or ternary super-block.
pub const SUPER_BLOCK: usize = 256;

macro_rules! dtypes {
    ($($variant:ident = $code:literal, $name:literal, $block_len:expr, $block_bytes:literal, $support:ident, $doc:literal;)*) => {
        /// An element type, named and numbered as in GGUF.
        ///
        /// A tensor's innermost dimension is cut into blocks of [`DType::block_len`] elements, each stored in
        /// [`DType::block_bytes`] bytes.
        ///
        /// ```
        /// use akunu_format::DType;
        /// assert_eq!(DType::Q4_K.row_bytes(512)?, 288);
        /// assert!(DType::Q4_K.row_bytes(576).is_err()); // not a multiple of 256
        /// # Ok::<(), akunu_format::Error>(())
        /// ```
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType { $(#[doc = $doc] $variant,)* }

        impl DType {
            /// Every dtype, in the order of their codes.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The dtype with this GGUF code.
            pub fn from_code(code: u32) -> Option<DType> {
                match code { $($code => Some(DType::$variant),)* _ => None }
            }

            /// The code GGUF stores for this dtype.
            pub fn code(self) -> u32 {
                match self { $(DType::$variant => $code,)* }
            }

            /// The name people use, such as `Q4_K`.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Elements in one block.
            pub const fn block_len(self) -> usize {
                match self { $(DType::$variant => $block_len,)* }
            }

            /// Bytes in one block.
            pub const fn block_bytes(self) -> usize {
                match self { $(DType::$variant => $block_bytes,)* }
            }

            /// What this crate can do with the dtype.
            pub fn support(self) -> Support {
                match self { $(DType::$variant => Support::$support,)* }
            }
        }
    };
}

/// What this crate can do with a dtype, beyond naming it and knowing its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Support {
    /// Listed by `inspect`; its values are not read as weights.
    Inspect,
    /// Can be turned into `f32`.
    Read,
    /// Can be turned into `f32` and made from it.
    ReadWrite,
}

dtypes! {
    F32     =  0, "F32",     1,           4,   ReadWrite, "32-bit IEEE float.";
    F16     =  1, "F16",     1,           2,   ReadWrite, "16-bit IEEE float.";
    Q4_0    =  2, "Q4_0",    32,          18,  ReadWrite, "4 bits, one scale per 32.";
    Q4_1    =  3, "Q4_1",    32,          20,  ReadWrite, "4 bits, scale and minimum per 32.";
    Q5_0    =  6, "Q5_0",    32,          22,  ReadWrite, "5 bits, one scale per 32.";
    Q5_1    =  7, "Q5_1",    32,          24,  ReadWrite, "5 bits, scale and minimum per 32.";
    Q8_0    =  8, "Q8_0",    32,          34,  ReadWrite, "8 bits, one scale per 32.";
    Q8_1    =  9, "Q8_1",    32,          36,  Inspect,   "8 bits with scale and sum per 32: an activation format.";
    Q2_K    = 10, "Q2_K",    SUPER_BLOCK, 84,  ReadWrite, "2 bits, 16 sub-blocks of 16.";
    Q3_K    = 11, "Q3_K",    SUPER_BLOCK, 110, ReadWrite, "3 bits, 16 sub-blocks of 16.";
    Q4_K    = 12, "Q4_K",    SUPER_BLOCK, 144, ReadWrite, "4 bits, 8 sub-blocks of 32.";
    Q5_K    = 13, "Q5_K",    SUPER_BLOCK, 176, ReadWrite, "5 bits, 8 sub-blocks of 32.";
    Q6_K    = 14, "Q6_K",    SUPER_BLOCK, 210, ReadWrite, "6 bits, 16 sub-blocks of 16.";
    Q8_K    = 15, "Q8_K",    SUPER_BLOCK, 292, Inspect,   "8 bits with sums: an activation format.";
    IQ2_XXS = 16, "IQ2_XXS", SUPER_BLOCK, 66,  Read,      "2.06 bits, lattice of 8.";
    IQ2_XS  = 17, "IQ2_XS",  SUPER_BLOCK, 74,  Read,      "2.31 bits, lattice of 8.";
    IQ3_XXS = 18, "IQ3_XXS", SUPER_BLOCK, 98,  Read,      "3.06 bits, lattice of 4.";
    IQ1_S   = 19, "IQ1_S",   SUPER_BLOCK, 50,  Read,      "1.56 bits, ternary lattice of 8.";
    IQ4_NL  = 20, "IQ4_NL",  32,          18,  ReadWrite, "4 bits through a non-linear table, one scale per 32.";
    IQ3_S   = 21, "IQ3_S",   SUPER_BLOCK, 110, Read,      "3.44 bits, lattice of 4.";
    IQ2_S   = 22, "IQ2_S",   SUPER_BLOCK, 82,  Read,      "2.56 bits, lattice of 8.";
    IQ4_XS  = 23, "IQ4_XS",  SUPER_BLOCK, 136, Read,      "4 bits through a non-linear table, 8 sub-blocks of 32.";
    I8      = 24, "I8",      1,           1,   Inspect,   "8-bit signed integer.";
    I16     = 25, "I16",     1,           2,   Inspect,   "16-bit signed integer.";
    I32     = 26, "I32",     1,           4,   Inspect,   "32-bit signed integer.";
    I64     = 27, "I64",     1,           8,   Inspect,   "64-bit signed integer.";
    F64     = 28, "F64",     1,           8,   Inspect,   "64-bit IEEE float.";
    IQ1_M   = 29, "IQ1_M",   SUPER_BLOCK, 56,  Read,      "1.75 bits, ternary lattice of 8.";
    BF16    = 30, "BF16",    1,           2,   ReadWrite, "The upper half of a 32-bit float.";
    TQ1_0   = 34, "TQ1_0",   SUPER_BLOCK, 54,  Read,      "Ternary, 5 to a byte.";
    TQ2_0   = 35, "TQ2_0",   SUPER_BLOCK, 66,  Read,      "Ternary, 2 bits each.";
    MXFP4   = 39, "MXFP4",   32,          17,  Read,      "4-bit floats, one power-of-two scale per 32.";
    NVFP4   = 40, "NVFP4",   64,          36,  Read,      "4-bit floats, one 8-bit float scale per 16.";
    Q1_0    = 41, "Q1_0",    128,         18,  Inspect,   "1 bit, one scale per 128.";
    Q2_0    = 42, "Q2_0",    64,          18,  Inspect,   "2 bits, one scale per 64.";
}

impl DType {
    /// The dtype called `name`, in any letter case.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|d| d.name().eq_ignore_ascii_case(name))
    }

    /// Whether values are stored in blocks with shared scales.
    pub fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of a row of `len` elements; an error when `len` is not a whole number of blocks.
    pub fn row_bytes(self, len: usize) -> Result<usize> {
        let block = self.block_len();
        if !len.is_multiple_of(block) {
            return Err(Error::RowLength { dtype: self, len, block });
        }
        (len / block).checked_mul(self.block_bytes()).ok_or(Error::RowLength { dtype: self, len, block })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_lead_back_to_their_dtype() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(DType::from_name(&dtype.name().to_lowercase()), Some(dtype));
        }
    }

    #[test]
    fn retired_codes_are_unknown() {
        for code in [4, 5, 31, 32, 33, 36, 37, 38, u32::MAX] {
            assert_eq!(DType::from_code(code), None);
        }
    }
}
