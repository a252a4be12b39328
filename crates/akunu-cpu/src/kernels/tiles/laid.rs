//! Activations of several decode rows, as products [together](super::several) take them.

use std::arch::x86_64::*;

use crate::kernels::rows::scale_of;
use crate::pack::TILE;
use crate::simd::{LANES, LOW_BITS};

use super::{HALF, TILE_ROWS, stretch};

/// What an activation of 15 bits is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaidForm {
    /// Two numbers of bf16, `scale · 128 · high` and `scale · low`: whole numbers of eight bits under a power of two.
    Floats,
    /// Two bytes, `256 · high + low`, under a scale that is kept apart.
    Bytes,
}

impl LaidForm {
    /// Bytes of a row of one part of a tile.
    pub(super) const fn line(self) -> usize {
        match self {
            LaidForm::Floats => 2 * TILE,
            LaidForm::Bytes => TILE,
        }
    }
}

/// A block of rows. For each tile of columns it has the `[high, low][row]` parts of activations, and behind those of all tiles
/// the [`Numbers`] of each row.
#[derive(Clone, Copy)]
pub(crate) struct Laid {
    at: *mut u8,
    pub(super) tiles: usize,
    pub(super) form: LaidForm,
    /// Lines there are for rows: a whole tile's, or half of them.
    pub(super) lines: usize,
}

/// What there is to know of one row of a tile beside its activations. Floats have it where they were asked for their sums.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Numbers {
    pub(super) scale: f32,
    pub(super) sum: f32,
    pub(super) half_sums: [f32; 2],
}

impl Laid {
    /// Bytes of a block of so many tiles, at most.
    pub(crate) const fn bytes(form: LaidForm, tiles: usize) -> usize {
        tiles * TILE_ROWS * (2 * form.line() + size_of::<Numbers>())
    }

    /// The block that begins here, of so many rows.
    pub(crate) fn new(at: *mut u8, form: LaidForm, tiles: usize, rows: usize) -> Laid {
        assert!(rows <= TILE_ROWS);
        Laid { at, tiles, form, lines: if rows <= HALF { HALF } else { TILE_ROWS } }
    }

    /// Bytes of one part of a tile.
    pub(super) fn part(self) -> usize {
        self.lines * self.form.line()
    }

    /// Both parts of a tile.
    pub(super) fn parts(self, tile: usize) -> *mut u8 {
        self.at.wrapping_add(tile * 2 * self.part())
    }

    /// The numbers of a tile, of all rows.
    pub(super) fn numbers(self, tile: usize) -> *mut Numbers {
        self.parts(self.tiles).cast::<Numbers>().wrapping_add(tile * self.lines)
    }
}

/// The upper halves of 32 floats, of each four columns the first, the third, the second and the fourth: words of weights hold two
/// codes, of which a table sees the lower one.
const ORDER: [u16; 2 * LANES] = {
    let mut order = [0; 2 * LANES];
    let mut i = 0;
    while i < order.len() {
        order[i] = (2 * (i / 4 * 4 + [0, 2, 1, 3][i % 4]) + 1) as u16;
        i += 1;
    }
    order
};

/// Makes integers of one row, as [`Quantize`] does, and writes them to a block.
///
/// [`Quantize`]: crate::kernels::rows::Quantize
pub(crate) struct Lay<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) out: Laid,
    /// Which tile of columns `x` begins with.
    pub(crate) first: usize,
    /// Which row of the block.
    pub(crate) line: usize,
    /// Whether floats are asked for their sums.
    pub(crate) sums: bool,
}

/// Both of two vectors. Not a function: what is called knows nothing of what the processor has.
macro_rules! both {
    ($x:ident in $vectors:expr => $result:expr) => {{
        let [first, second] = $vectors;
        [
            {
                let $x = first;
                $result
            },
            {
                let $x = second;
                $result
            },
        ]
    }};
}

impl Lay<'_> {
    /// # Safety
    /// The processor has AVX-512. Nobody else touches this row of the block, for whose tiles there is room.
    ///
    /// # Panics
    /// The block has no such row.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(crate) unsafe fn run(self) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
        let tiles = self.x.as_chunks::<TILE>().0;
        assert!(self.line < self.out.lines && self.first + tiles.len() <= self.out.tiles);
        let floats = self.out.form == LaidForm::Floats;
        let low_range = if floats { (1 << LOW_BITS) as f32 } else { 256.0 };
        // SAFETY: the caller's promise; vectors of the size of what they are read from.
        unsafe {
            let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
            let (up, down) = (_mm512_set1_ps(low_range), _mm512_set1_ps(1.0 / low_range));
            for (tile, x) in (self.first..).zip(tiles) {
                let x = [_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x[LANES..].as_ptr())];
                let (scale, inverse) = scale_of(stretch::largest(&x));
                let inverse = _mm512_set1_ps(inverse);
                let whole = both!(x in x => _mm512_roundscale_ps::<NEAREST>(_mm512_mul_ps(x, inverse)));
                let to = self.out.parts(tile).add(self.line * self.out.form.line());
                let to_low = to.add(self.out.part());
                if floats {
                    let high = both!(x in whole => _mm512_roundscale_ps::<NEAREST>(_mm512_mul_ps(x, down)));
                    let low =
                        [_mm512_fnmadd_ps(high[0], up, whole[0]), _mm512_fnmadd_ps(high[1], up, whole[1])];
                    let scale = _mm512_set1_ps(scale);
                    let high_scale = _mm512_mul_ps(scale, up);
                    let high = both!(x in high => _mm512_castps_si512(_mm512_mul_ps(x, high_scale)));
                    let low = both!(x in low => _mm512_castps_si512(_mm512_mul_ps(x, scale)));
                    _mm512_store_si512(to.cast(), _mm512_permutex2var_epi16(high[0], order, high[1]));
                    _mm512_store_si512(to_low.cast(), _mm512_permutex2var_epi16(low[0], order, low[1]));
                } else {
                    // The low byte of an integer, and what is left above it once that is taken as a signed one.
                    let low = both!(x in whole => _mm512_cvtps_epi32(x));
                    let high = both!(x in low => _mm512_srai_epi32::<8>(_mm512_add_epi32(x, _mm512_set1_epi32(128))));
                    _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(high[0]));
                    _mm_storeu_si128(to.add(LANES).cast(), _mm512_cvtepi32_epi8(high[1]));
                    _mm_storeu_si128(to_low.cast(), _mm512_cvtepi32_epi8(low[0]));
                    _mm_storeu_si128(to_low.add(LANES).cast(), _mm512_cvtepi32_epi8(low[1]));
                }
                if self.sums || !floats {
                    // Whole numbers below 2^24: all of this is exact.
                    let [a, b] = both!(x in whole => _mm512_reduce_add_ps(x));
                    let sums = [a * scale, b * scale];
                    let numbers = Numbers { scale, sum: sums[0] + sums[1], half_sums: sums };
                    self.out.numbers(tile).add(self.line).write(numbers);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn a_tile_with_something_that_is_not_finite_is_not_a_number() {
        if !Isa::Avx512.is_available() {
            return;
        }
        for form in [LaidForm::Floats, LaidForm::Bytes] {
            for (at, wrong) in (0..TILE).flat_map(|at| [(at, f32::NAN), (at, f32::NEG_INFINITY)]) {
                #[repr(align(64))]
                struct Room([u8; Laid::bytes(LaidForm::Floats, 2)]);
                let mut room = Room([0; _]);
                let out = Laid::new(room.0.as_mut_ptr(), form, 2, 4);
                let mut x = [0.5; 2 * TILE];
                x[TILE + at] = wrong;
                // SAFETY: the processor has AVX-512, and there is room for two tiles in either form.
                unsafe {
                    Lay { x: &x, out, first: 0, line: 3, sums: true }.run();
                    let scales = [0, 1].map(|tile| (*out.numbers(tile).add(3)).scale);
                    assert!(scales[0].is_finite() && scales[1].is_nan(), "{form:?}: {at}");
                    if form == LaidForm::Floats {
                        let high: [u16; TILE] =
                            out.parts(1).add(3 * form.line()).cast::<[u16; TILE]>().read();
                        assert!(high.iter().all(|x| f32::from_bits(u32::from(*x) << 16).is_nan()), "{at}");
                    }
                }
            }
        }
    }
}
