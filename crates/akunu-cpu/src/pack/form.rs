//! The forms a packed matrix can have.
//!
//! A matrix is cut into *panels* of sixteen rows and, along its columns, into *tiles* of 32 elements. Inside a panel
//! there is one plane for the codes and one for each kind of scale, so that every plane is read straight through:
//!
//! | plane | for each tile |
//! |---|---|
//! | codes | `bits` vectors of 64 bytes; byte `4 r + j` of a vector belongs to row `r` and element `4 s + j` of the tile, for the *steps* `s` it holds |
//! | scales, minima | sixteen numbers, one per row (twice that where groups of 16 have their own) |
//!
//! Codes of four bits: vector `v` holds step `v` in its low and step `v + 4` in its high nibbles. Two bits: vector `v` holds
//! steps `4 v ..` from the lowest bits up. One bit: bit `s` is step `s`. Three, five and six bits are the low two or four bits
//! followed by the rest. Eight bits: a vector for each step.

use crate::simd::LANES;

/// Elements in a tile.
pub(crate) const TILE: usize = 32;

/// Columns of pairs under one scale.
pub(crate) const PAIRS_STRETCH: usize = 64;

/// Tiles in a super-block of the K-quants.
pub(crate) const TILES_PER_SUPER: usize = 8;

/// How a packed matrix holds its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `[panel][column][16 rows]`.
    F32,
    /// As F32.
    F16,
    /// As F32.
    Bf16,
    /// Floats as integers of 16 bits, each row's under one scale for every [`PAIRS_STRETCH`] columns: `[panel][pair of
    /// columns][16 rows][2]`, and scales `[panel][stretch][16 rows]`. Only prompts can be multiplied with it.
    Pairs,
    /// `scale · (code - zero) + minimum`.
    Int { codes: Codes, scales: Scales, zero: i32 },
}

/// How wide codes are and what they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    B2,
    B3,
    B4,
    B5,
    B6,
    B8,
    /// Four bits that stand for the values of IQ4_NL plus 128.
    Iq4,
}

impl Codes {
    pub(crate) const fn bits(self) -> usize {
        match self {
            Codes::B2 => 2,
            Codes::B3 => 3,
            Codes::B4 | Codes::Iq4 => 4,
            Codes::B5 => 5,
            Codes::B6 => 6,
            Codes::B8 => 8,
        }
    }

    pub(crate) const fn tile_bytes(self) -> usize {
        self.bits() * 4 * LANES
    }

    /// The code as the kernels see it.
    pub(crate) fn value(self, stored: u8) -> u8 {
        if self == Codes::Iq4 { IQ4_CODES[usize::from(stored)] } else { stored }
    }
}

/// The values of IQ4_NL's codes, plus 128.
pub(crate) const IQ4_CODES: [u8; 16] = {
    const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = (VALUES[i] as i32 + 128) as u8;
        i += 1;
    }
    codes
};

/// How scales are kept. `halves`: groups of 16 instead of 32. `min`: there is a minimum beside each scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// F16, one per tile.
    Half { min: bool },
    /// `d · scale` and `dmin · minimum`: F16 per super-block of 256, 8-bit integers per group.
    Super { halves: bool, min: bool },
    /// F32 per group.
    Float { halves: bool, min: bool },
}

impl Scales {
    pub(crate) const fn halves(self) -> bool {
        matches!(self, Scales::Super { halves: true, .. } | Scales::Float { halves: true, .. })
    }

    pub(crate) const fn min(self) -> bool {
        matches!(
            self,
            Scales::Half { min: true } | Scales::Super { min: true, .. } | Scales::Float { min: true, .. }
        )
    }
}

/// Byte offsets of the planes in a panel. Planes a form does not have are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planes {
    pub(crate) scales: usize,
    pub(crate) mins: usize,
    /// Super-blocks' `d`.
    pub(crate) supers: usize,
    pub(crate) super_mins: usize,
    /// Bytes of a panel.
    pub(crate) end: usize,
}

impl Form {
    pub(crate) fn planes(self, cols: usize) -> Planes {
        let line = |bytes: usize| bytes.next_multiple_of(crate::memory::ALIGN);
        let tiles = cols / TILE;
        let (codes, scale, d) = match self {
            Form::F32 => (4 * cols * LANES, 0, 0),
            Form::F16 | Form::Bf16 => (2 * cols * LANES, 0, 0),
            Form::Pairs => {
                (2 * cols.next_multiple_of(LANES) * LANES, 4 * cols.div_ceil(PAIRS_STRETCH) * LANES, 0)
            }
            Form::Int { codes, scales, .. } => {
                let groups = if scales.halves() { 2 * tiles } else { tiles };
                let (scale, d) = match scales {
                    Scales::Half { .. } => (2 * groups * LANES, 0),
                    Scales::Super { .. } => (groups * LANES, 2 * tiles / TILES_PER_SUPER * LANES),
                    Scales::Float { .. } => (4 * groups * LANES, 0),
                };
                (tiles * codes.tile_bytes(), scale, d)
            }
        };
        let min = matches!(self, Form::Int { scales, .. } if scales.min());
        let scales = line(codes);
        let mins = scales + line(scale);
        let supers = mins + if min { line(scale) } else { 0 };
        let super_mins = supers + line(d);
        let end = super_mins + if min { line(d) } else { 0 };
        Planes { scales, mins, supers, super_mins, end }
    }
}
