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
    /// Four bits that stand for these values, which are integers plus 128.
    Listed(&'static [u8; 16]),
}

impl Codes {
    pub(crate) const fn bits(self) -> usize {
        match self {
            Codes::B2 => 2,
            Codes::B3 => 3,
            Codes::B4 | Codes::Listed(_) => 4,
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
        match self {
            Codes::Listed(values) => values[usize::from(stored)],
            _ => stored,
        }
    }

    /// What the kernels look codes up in, if they do.
    pub(crate) const fn values(self) -> &'static [u8; 16] {
        match self {
            Codes::Listed(values) => values,
            _ => &[0; 16],
        }
    }
}

/// The values of the codes of IQ4_NL and IQ4_XS, plus 128.
pub(crate) static IQ4_CODES: [u8; 16] = {
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
    /// The same for groups of 16, with integers of four bits: a byte has the scale, and the minimum above it.
    Nibbles,
    /// F32 per group.
    Float { halves: bool, min: bool },
}

impl Scales {
    pub(crate) const fn halves(self) -> bool {
        matches!(
            self,
            Scales::Super { halves: true, .. } | Scales::Nibbles | Scales::Float { halves: true, .. }
        )
    }

    /// Bytes of one scale, and of one minimum.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Scales::Half { .. } => 2,
            Scales::Super { .. } | Scales::Nibbles => 1,
            Scales::Float { .. } => 4,
        }
    }

    pub(crate) const fn min(self) -> bool {
        match self {
            Scales::Half { min } | Scales::Super { min, .. } | Scales::Float { min, .. } => min,
            Scales::Nibbles => true,
        }
    }

    /// Whether minima have a plane of their own.
    pub(super) const fn min_apart(self) -> bool {
        self.min() && !matches!(self, Scales::Nibbles)
    }

    /// Whether super-blocks have a scale, and, where there are minima, another one for these.
    pub(super) const fn supers(self) -> bool {
        matches!(self, Scales::Super { .. } | Scales::Nibbles)
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
        // Bytes of codes, scales, minima, scales of super-blocks, and of those for minima.
        let bytes = match self {
            Form::F32 => [4 * cols * LANES, 0, 0, 0, 0],
            Form::F16 | Form::Bf16 => [2 * cols * LANES, 0, 0, 0, 0],
            Form::Pairs => {
                let scales = 4 * cols.div_ceil(PAIRS_STRETCH) * LANES;
                [2 * cols.next_multiple_of(LANES) * LANES, scales, 0, 0, 0]
            }
            Form::Int { codes, scales, .. } => {
                let groups = if scales.halves() { 2 * tiles } else { tiles };
                let scale = scales.bytes() * groups * LANES;
                let large = 2 * tiles / TILES_PER_SUPER * LANES;
                let or_none = |there: bool, bytes: usize| if there { bytes } else { 0 };
                let (min, d) = (or_none(scales.min_apart(), scale), or_none(scales.supers(), large));
                [tiles * codes.tile_bytes(), scale, min, d, or_none(scales.min(), d)]
            }
        };
        let [codes, scale, min, d, dmin] = bytes.map(line);
        let scales = codes;
        let mins = scales + scale;
        let supers = mins + min;
        let super_mins = supers + d;
        Planes { scales, mins, supers, super_mins, end: super_mins + dmin }
    }
}
