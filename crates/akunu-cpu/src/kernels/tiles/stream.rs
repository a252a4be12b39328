//! Weights of [several rows](super::several) on their way from memory to tiles.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::kernels::int::Unpack;
use crate::simd::avx512::Avx512;

/// How many panels ahead weights are asked for.
pub(super) const AHEAD: usize = 2;

/// Asks for a line to be in the second-level cache: from the third, weights come faster so (`docs/performance-notes.md`).
#[inline(always)]
fn ask_early(at: *const u8) {
    // SAFETY: nothing is read.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
}

/// The codes of a stretch of columns of some panels, tile by tile.
pub(super) struct Stream<'a> {
    at: *const u8,
    /// Where the stretch ends in this panel.
    end: *const u8,
    /// Bytes of a panel, and those of them that are not of the stretch.
    panel: usize,
    rest: usize,
    /// Panels after this one.
    panels: usize,
    /// Bytes to what is asked for.
    ahead: usize,
    /// Where that begins for the last panels. Not in here: what is looked up by number is kept in memory, with all that it is part of.
    then: &'a [usize; AHEAD],
}

impl<'a> Stream<'a> {
    /// The bytes of a `stretch` in each of some panels, which are all of `codes`.
    pub(super) fn new(
        codes: &[u8],
        stretch: Range<usize>,
        panel: usize,
        then: &'a [usize; AHEAD],
    ) -> Stream<'a> {
        assert!(stretch.end <= panel);
        // Of all panels, not of the first one's stretch: the others' are read by way of it.
        let at = codes[stretch.start..].as_ptr();
        let (end, rest) = (at.wrapping_add(stretch.len()), panel - stretch.len());
        let mut stream = Stream { at, end, panel, rest, panels: codes.len() / panel - 1, ahead: 0, then };
        stream.look_ahead();
        stream
    }

    /// The next tile's codes, of so many bits.
    #[inline(always)]
    pub(super) fn next(&mut self, bits: usize) -> *const [u8; 64] {
        let tile: *const [u8; 64] = self.at.cast();
        for i in 0..bits {
            ask_early(tile.wrapping_add(i).cast::<u8>().wrapping_add(self.ahead));
        }
        self.at = self.at.wrapping_add(bits * 64);
        if self.at == self.end {
            self.at = self.at.wrapping_add(self.rest);
            self.end = self.end.wrapping_add(self.panel);
            self.panels = self.panels.wrapping_sub(1);
            self.look_ahead();
        }
        tile
    }

    /// Begins a panel.
    #[inline(always)]
    fn look_ahead(&mut self) {
        self.ahead = match self.then.get((AHEAD - 1).wrapping_sub(self.panels)) {
            Some(then) => then.wrapping_sub(self.at.addr()),
            None => AHEAD * self.panel,
        };
    }
}

/// Makes a tile of bf16 of a tile's codes: for each four columns a line of the first and the third, and one of the others.
///
/// # Safety
/// The processor has AVX-512; there is room for sixteen lines.
#[inline(always)]
pub(super) unsafe fn floats<U: Unpack>(vectors: &[[u8; 64]], table: [__m512i; 2], to: *mut __m512i) {
    // SAFETY: the caller's promise.
    unsafe {
        let look = |words: __m512i| {
            if U::BITS > 5 {
                _mm512_permutex2var_epi16(table[0], words, table[1])
            } else {
                _mm512_permutexvar_epi16(words, table[0])
            }
        };
        let load = |i: usize| _mm512_loadu_si512(vectors[i].as_ptr().cast());
        // What is above a code's own bits in a word makes no difference to the table.
        macro_rules! shifted {
            ($words:ident, $($shift:literal => $line:expr),+) => {
                $(_mm512_store_si512(to.add($line), look(_mm512_srli_epi16::<$shift>($words)));)+
            };
        }
        match U::BITS {
            2 => {
                for i in 0..2 {
                    let words = load(i);
                    let line = 8 * i;
                    shifted!(words, 0 => line, 2 => line + 2, 4 => line + 4, 6 => line + 6);
                    shifted!(words, 8 => line + 1, 10 => line + 3, 12 => line + 5, 14 => line + 7);
                }
            }
            4 => {
                for i in 0..4 {
                    let words = load(i);
                    shifted!(words, 0 => 2 * i, 4 => 2 * i + 8, 8 => 2 * i + 1, 12 => 2 * i + 9);
                }
            }
            _ => {
                // Codes that are looked up are bytes, and come not here.
                for (i, words) in U::unpack::<Avx512>(vectors, &[0; 16]).into_iter().enumerate() {
                    shifted!(words, 0 => 2 * i, 8 => 2 * i + 1);
                }
            }
        }
    }
}
