//! Products of several decode rows with integer weights, by tiles: the sums of [`IntProduct`], to the bit.
//!
//! The dot of a group is exact, whatever makes it. With short weights (of two to six bits, for most) tiles of bf16 do: an activation is
//! `2^k (128 high + low)`, of which both parts are numbers of bf16, as codes are, and all sums of a group are whole numbers of 24 bits
//! under the same power of two. They come out as floats that nothing was rounded of. Dots with other weights are longer: they are made
//! by tiles of bytes with the high parts and with the low ones, joined as integers, made floats and scaled.
//!
//! That matters because processors whose tiles are in use do floats of 512 bits on one of two ports. And as few tile registers are used as
//! will do: the more of them hold something, the fewer are left for renaming, and where another thread runs on the same core there are
//! hardly any. (`docs/performance-notes.md` has figures of both.)
//!
//! Columns are taken some at a time, so that their activations stay in the first-level cache while all panels pass. Weights are
//! made tiles a step before they are multiplied, and sums are added a step later: neither a tile that was just written nor sums that
//! just left a register can be read before they have reached the cache.
//!
//! [`IntProduct`]: crate::kernels::int::IntProduct

use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::Isa;
use crate::kernels::int::{B2, B3, B4, B5, B6, B8, Listed, Unpack};
use crate::kernels::product::{LARGEST, Product};
use crate::kernels::scales::{FloatScales, HalfScales, NibbleScales, ScaleView, SuperScales};
use crate::pack::{Codes, Form, Matrix, Scales, TILE, TILES_PER_SUPER};
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};

use super::amx::{Shape, Tiles};
use super::laid::{Laid, LaidForm};
use super::product::{Scratch, is_whole};
use super::scaled::Scaled;
use super::stream::{AHEAD, Stream, floats};
use super::{HALF, TILE_BYTES, TILE_ROWS};

/// Whether so many rows of a block of [`TILE_ROWS`] are multiplied faster together than by dots.
pub(crate) fn are_several(rows: usize) -> bool {
    rows >= 6
}

/// Tiles of columns that are taken at a time, at most, where that is not a super-block: their activations stay in the first-level cache,
/// beside what passes by. Floats, and bytes, as measured (`docs/performance-notes.md`).
const STRETCH_OF_FLOATS: usize = 6;
const STRETCH_OF_BYTES: usize = 20;

/// Panels that are taken at a time, at most: their sums go to memory and back between two stretches of columns.
const PANELS: usize = 16;

/// Groups that are multiplied in a step: two tiles of columns, or the two halves of one.
const TOGETHER: usize = 2;

/// Rows of a block that are multiplied.
pub(crate) struct Lines<'a> {
    pub(crate) laid: Laid,
    /// Of the block.
    pub(crate) rows: Range<usize>,
    /// The worker's own.
    pub(crate) scratch: &'a Scratch,
}

/// A product of some rows of a block, of which `x` is not looked at: they have been laid out.
pub(crate) type SeveralFn = fn(&Product<'_>, &Lines<'_>);

/// The kernel for a matrix and how it asks for activations, where there is one.
pub(crate) fn several_fn(isa: Isa, matrix: &Matrix) -> Option<(LaidForm, SeveralFn)> {
    let Form::Int { codes, scales, .. } = matrix.form else { return None };
    macro_rules! several {
        ($codes:ty, $scales:ty) => {{
            // SAFETY: chosen for AMX alone, which a backend refuses where it is not available.
            let product: SeveralFn = |p, x| unsafe { Several::<$codes, $scales>::new(p, x).run() };
            (Several::<$codes, $scales>::FORM, product)
        }};
    }
    // Two tiles are multiplied in a step.
    let fits = (matrix.cols / TILE).is_multiple_of(TOGETHER);
    (isa == Isa::Amx && fits).then(|| for_codes_and_scales!(codes, scales, several))
}

const fn groups_per_tile<'a, Z: ScaleView<'a>>() -> usize {
    if Z::HALVES { 2 } else { 1 }
}

/// Loads a tile register.
macro_rules! load {
    ($tile:literal, $at:expr, $line:expr) => {
        asm!(
            concat!("tileloadd tmm", $tile, ", [{at} + {line}*1]"),
            at = in(reg) $at,
            line = in(reg) $line as usize,
            options(nostack),
        )
    };
}

/// Writes a tile register to memory.
macro_rules! store {
    ($tile:literal, $at:expr) => {
        asm!(
            concat!("tilestored [{at} + {line}*1], tmm", $tile),
            at = in(reg) $at,
            line = in(reg) 64usize,
            options(nostack),
        )
    };
}

/// Adds a product of bf16.
macro_rules! add_floats {
    ($sums:literal) => {
        asm!(concat!("tdpbf16ps tmm", $sums, ", tmm4, tmm6"), options(nostack))
    };
}

/// Sums of a product of bytes, of which those of weights are `signed` or not.
macro_rules! bytes {
    ($signed:expr, $sums:literal) => {
        if $signed {
            asm!(
                concat!("tilezero tmm", $sums),
                concat!("tdpbssd tmm", $sums, ", tmm4, tmm6"),
                options(nostack)
            )
        } else {
            asm!(
                concat!("tilezero tmm", $sums),
                concat!("tdpbsud tmm", $sums, ", tmm4, tmm6"),
                options(nostack)
            )
        }
    };
}

/// Asks for a line that will be written.
#[inline(always)]
fn ask_to_write(at: *const f32) {
    // SAFETY: nothing is read or written, and all processors with AMX know the instruction.
    unsafe { asm!("prefetchw [{0}]", in(reg) at, options(nostack, readonly, preserves_flags)) };
}

/// Weights of one step, as tiles are loaded from them.
#[repr(C, align(64))]
struct Weights([[u8; TILE_BYTES]; TOGETHER]);

/// Sums of one step as they come out of the tiles. Of bytes there are two for each group: with high parts, and with low ones, which are
/// halves of one if they were multiplied as one.
#[repr(C, align(64))]
struct Sums([[[f32; LANES]; TILE_ROWS]; 2 * TOGETHER]);

/// Does something for each row. Not a loop: vectors must be in registers from the beginning.
macro_rules! each_row {
    (|$row:ident| $body:expr) => {
        each_row!(@ $row, $body; 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    };
    (@ $row:ident, $body:expr; $($i:literal),+) => {
        $({
            const $row: usize = $i;
            $body
        })+
    };
}

struct Several<'a, U, Z> {
    product: &'a Product<'a>,
    x: &'a Lines<'a>,
    /// Codes without their zero point, as bf16.
    table: [__m512i; 2],
    /// What other codes are looked up in, if they are.
    values: &'static [u8; 16],
    kind: PhantomData<(U, Z)>,
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Several<'a, U, Z> {
    /// Codes have a zero point in their middle; short ones with minima have none.
    const SIGNED: bool = U::WIDE || !Z::MIN;

    /// Floats where all sums of a group are whole numbers of 24 bits.
    const FORM: LaidForm = {
        let codes = 1 << U::BITS;
        let largest = if Self::SIGNED { codes / 2 } else { codes - 1 };
        let exact = !U::WIDE && largest * LARGEST as usize * TILE / groups_per_tile::<Z>() < 1 << 24;
        if exact { LaidForm::Floats } else { LaidForm::Bytes }
    };
    const FLOATS: bool = matches!(Self::FORM, LaidForm::Floats);

    /// Tiles that are multiplied in a step.
    const PER_STEP: usize = TOGETHER / groups_per_tile::<Z>();

    /// Whether high and low parts of so many rows, which lie one after the other, are multiplied as one tile. Not floats: their two
    /// products go to the same sums.
    const fn joins(rows: usize) -> bool {
        rows == HALF && !Self::FLOATS
    }

    /// Bytes of a tile of weights.
    const WEIGHTS: usize = if Self::FLOATS { TILE_BYTES } else { TILE_BYTES / 2 };

    fn new(product: &'a Product<'a>, x: &'a Lines<'a>) -> Self {
        let Form::Int { codes, zero, .. } = product.matrix.form else { unreachable!("chosen by form") };
        // Sums of minima are of whole tiles where they are not of super-blocks.
        const { assert!(Z::SUPER || !(Z::HALVES && Z::MIN)) };
        let middle = if U::WIDE { 128 } else { 1 << (U::BITS - 1) };
        assert_eq!(zero, if Self::SIGNED { middle } else { 0 });
        const { assert!(Self::FLOATS || U::WIDE || !Self::SIGNED) };
        assert!(x.laid.form == Self::FORM && x.laid.tiles == product.matrix.cols / TILE);
        assert!(x.rows.len() == product.count && x.rows.end <= x.laid.lines);
        let half = |first: usize| -> [u8; 64] {
            std::array::from_fn(|i| {
                let code = ((first + i / 2) % (1 << U::BITS)) as i32;
                ((code - zero) as f32).to_be_bytes()[1 - i % 2]
            })
        };
        // SAFETY: as many bytes.
        let table = [0, 32].map(|first| unsafe { std::mem::transmute::<[u8; 64], __m512i>(half(first)) });
        Several { product, x, table, values: codes.values(), kind: PhantomData }
    }

    /// # Safety
    /// AMX is available.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run(&self) {
        let line = Self::FORM.line() / groups_per_tile::<Z>();
        // SAFETY: the caller's promise, here and below.
        unsafe {
            if self.x.laid.lines == HALF {
                let rows = if Self::joins(HALF) { TILE_ROWS } else { HALF };
                let _tiles = Tiles::configure(&Shape::of(rows as u8, line as u8));
                self.panels::<HALF>();
            } else {
                let _tiles = Tiles::configure(&Shape::of(TILE_ROWS as u8, line as u8));
                self.panels::<TILE_ROWS>();
            }
        }
    }

    /// All panels, stretch by stretch.
    ///
    /// # Safety
    /// AMX is available, and tiles are configured.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn panels<const ROWS: usize>(&self) {
        let tiles = self.x.laid.tiles;
        let most = if Self::FLOATS { STRETCH_OF_FLOATS } else { STRETCH_OF_BYTES };
        let stretch = if Z::SUPER {
            TILES_PER_SUPER
        } else {
            tiles.div_ceil(tiles.div_ceil(most)).next_multiple_of(Self::PER_STEP)
        };
        let all = self.product.panels.clone();
        if all.is_empty() {
            return;
        }
        let together = all.len().div_ceil(all.len().div_ceil(PANELS));
        for first in all.clone().step_by(together) {
            let panels = first..all.end.min(first + together);
            for start in (0..tiles).step_by(stretch) {
                // SAFETY: the caller's promise.
                unsafe { self.stretch::<ROWS>(panels.clone(), start..tiles.min(start + stretch)) };
            }
        }
    }

    /// Adds a stretch of columns to the sums of some panels.
    ///
    /// # Safety
    /// AMX is available, and tiles are configured.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn stretch<const ROWS: usize>(&self, panels: Range<usize>, columns: Range<usize>) {
        let (x, matrix) = (self.x.laid, self.product.matrix);
        let begins = columns.start == 0;
        let ends = columns.end == x.tiles;
        let total = panels.len() * columns.len() / Self::PER_STEP;
        let rows = self.x.rows.clone();
        let joins = const { Self::joins(ROWS) };
        // Bytes of one part of a tile, known when this is compiled.
        let part = ROWS * Self::FORM.line();
        assert_eq!(part, x.part());
        let then = self.then(&panels, &columns);
        let mut stream = self.stream(&panels, &columns, &then);
        // Where the sums of a panel go from their registers, in the first row, if they do.
        let mut out;
        let stride = self.product.out.stride;
        // SAFETY: the worker's own scratch, which nothing else uses here.
        let room = unsafe { self.x.scratch.sums_of_panels(PANELS) };
        let mut weights = [const { MaybeUninit::<Weights>::uninit() }; 2];
        let weights: *mut u8 = weights.as_mut_ptr().cast();
        let mut done = MaybeUninit::<Sums>::uninit();
        let done: *mut u8 = done.as_mut_ptr().cast();
        let mut sums = [Avx512::splat(0.0); TILE_ROWS];
        // Activations from the first tile of the stretch to its end, and those that are multiplied in a step.
        let first = x.parts(columns.start);
        let end = first.wrapping_add(columns.len() * 2 * part);
        let mut a = first;
        // The tile whose sums are added, its panel, and where the weights are that are multiplied.
        let (mut tile, mut panel, mut turn) = (columns.start, panels.start, 0);
        let mut scales = Z::view(matrix, panel, AHEAD * matrix.planes.end);
        macro_rules! begin {
            () => {
                out = if ends { self.whole(panel) } else { None };
                if let Some(out) = out {
                    (0..rows.len()).for_each(|row| ask_to_write(out.wrapping_add(row * stride)));
                }
                each_row!(|ROW| if ROW < ROWS {
                    sums[ROW] = if begins || Z::SUPER {
                        Avx512::splat(0.0)
                    } else {
                        Avx512::load(&room[panel - panels.start][ROW])
                    };
                });
            };
        }
        begin!();
        for i in 0..Self::PER_STEP {
            // SAFETY: AVX-512 is there; room for one tile each.
            unsafe { self.make(&mut stream, weights.add(i * Self::WEIGHTS)) };
        }
        for n in 0..=total {
            let (other, half) = if Z::HALVES { (tile, 1) } else { (tile + 1, 0) };
            // SAFETY: AMX is available and tiles are configured; all places are in the block, the matrix, the ring and the scratch.
            unsafe {
                let b = weights.add(turn);
                let next = weights.add(turn ^ size_of::<Weights>());
                let b_other = b.add(if Z::HALVES { Self::WEIGHTS / 2 } else { Self::WEIGHTS });
                let a_other = a.add(if Z::HALVES { Self::FORM.line() / 2 } else { 2 * part });
                let done_other = done.add(2 * TILE_BYTES);
                // From sums with high parts to those with low ones.
                let low_sums = if joins { TILE_BYTES / 2 } else { TILE_BYTES };
                macro_rules! add {
                    ($done:expr, $of:expr; $quarter:literal) => {
                        each_row!(|ROW| if ROW < ROWS && ROW / (ROWS / 4) == $quarter {
                            sums[ROW] = $of.add(Self::FLOATS, $done, low_sums, ROW, sums[ROW]);
                        })
                    };
                }
                // One of two groups. Floats are stored while those of the other are multiplied, in its register; of bytes there are two
                // registers for each group, or one if they are multiplied as one, which are stored at its end.
                macro_rules! group {
                    (
                        $multiplies:expr, $adds:expr, $makes:expr, $sums:literal in $done:ident from $a:ident, $b:ident,
                        of $tile:expr, $half:expr, $stores:expr => $other:literal in $done_other:ident, $next:expr
                    ) => {
                        let of = if $adds { Scaled::of(x, &scales, $tile, $half) } else { Scaled::none() };
                        if $multiplies {
                            load!(6, $b, 64);
                        }
                        if $adds {
                            add!($done, of; 0);
                        }
                        if $multiplies {
                            load!(4, $a, Self::FORM.line());
                            if Self::FLOATS {
                                asm!(concat!("tilezero tmm", $sums), options(nostack));
                                add_floats!($sums);
                            } else {
                                bytes!(Self::SIGNED, 0);
                            }
                        }
                        if $makes {
                            self.make(&mut stream, $next);
                        }
                        if $multiplies && !joins {
                            load!(4, $a.add(part), Self::FORM.line());
                        }
                        if $adds {
                            add!($done, of; 1);
                        }
                        if $multiplies && !joins {
                            if Self::FLOATS {
                                add_floats!($sums);
                            } else {
                                bytes!(Self::SIGNED, 1);
                            }
                        }
                        if $adds {
                            add!($done, of; 2);
                        }
                        if $stores && Self::FLOATS {
                            store!($other, $done_other);
                        }
                        if $adds {
                            add!($done, of; 3);
                        }
                        if $multiplies && !Self::FLOATS {
                            store!(0, $done);
                            if !joins {
                                store!(1, $done.add(low_sums));
                            }
                        }
                    };
                }
                macro_rules! step {
                    ($multiplies:expr, $adds:expr, $makes:expr) => {
                        group!(
                            $multiplies, $adds, $makes, 0 in done from a, b,
                            of tile, 0, $adds => 1 in done_other, next
                        );
                        group!(
                            $multiplies, $adds, $makes && Self::PER_STEP == 2, 1 in done_other from a_other, b_other,
                            of other, half, $multiplies => 0 in done, next.add(Self::WEIGHTS)
                        );
                    };
                }
                if 0 < n && n + 1 < total {
                    step!(true, true, true);
                } else {
                    step!(n < total, n > 0, n + 1 < total);
                }
            }
            turn ^= size_of::<Weights>();
            a = a.wrapping_add(Self::PER_STEP * 2 * part);
            if a == end {
                a = first;
            }
            if n == 0 {
                continue;
            }
            tile += Self::PER_STEP;
            if tile < columns.end {
                continue;
            }
            tile = columns.start;
            let partial = &mut room[panel - panels.start];
            if Z::SUPER {
                let block = columns.start / TILES_PER_SUPER;
                let [scale, min] = scales.outer::<Avx512>(block);
                let minima = self.minima(&scales, block, ROWS);
                each_row!(|ROW| if ROW < ROWS {
                    let before = if begins { Avx512::splat(0.0) } else { Avx512::load(&partial[ROW]) };
                    sums[ROW] = Avx512::fma(sums[ROW], scale, before);
                    if Z::MIN {
                        sums[ROW] = Avx512::fma(Avx512::load(&minima[ROW]), min, sums[ROW]);
                    }
                });
            }
            if let Some(out) = out {
                each_row!(|ROW| if ROW < ROWS && rows.contains(&ROW) {
                    let out = out.wrapping_add((ROW - rows.start) * stride);
                    // SAFETY: `rows` are as many as the product has, all sixteen outputs are in its slice (`whole` has looked), and its
                    // panels belong to this worker alone.
                    Avx512::store(sums[ROW], unsafe { &mut *out.cast() });
                });
            } else {
                each_row!(|ROW| if ROW < ROWS {
                    Avx512::store(sums[ROW], &mut partial[ROW]);
                });
                if ends {
                    for (row, sums) in partial[rows.clone()].iter().enumerate() {
                        self.product.put::<Avx512>(row, panel, Avx512::load(sums));
                    }
                }
            }
            panel += 1;
            if panel < panels.end {
                scales = Z::view(matrix, panel, AHEAD * matrix.planes.end);
                begin!();
            }
        }
    }

    /// Where the outputs of a panel are in the first row, if all of them are wanted as they are.
    fn whole(&self, panel: usize) -> Option<*mut f32> {
        let Product { slice, out, bias, .. } = self.product;
        let whole = bias.is_none() && is_whole(self.product, panel);
        whole.then(|| out.start.wrapping_add(panel * LANES - slice.start))
    }

    /// Makes the next tile of weights.
    ///
    /// # Safety
    /// The processor has AVX-512, there is another tile, and room for it.
    #[inline(always)]
    unsafe fn make(&self, stream: &mut Stream, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let vectors = std::slice::from_raw_parts(stream.next(U::BITS), U::BITS);
            if Self::FLOATS {
                floats::<U>(vectors, self.table, to.cast());
            } else {
                let middle = _mm512_set1_epi8(if Self::SIGNED { -128 } else { 0 });
                for (i, codes) in U::unpack::<Avx512>(vectors, self.values).into_iter().enumerate() {
                    _mm512_store_si512(to.cast::<__m512i>().add(i), _mm512_xor_si512(codes, middle));
                }
            }
        }
    }

    /// What comes after the last panels of a stretch of columns: the first ones' next stretch, the panels behind them, or another product.
    fn then(&self, panels: &Range<usize>, columns: &Range<usize>) -> [usize; AHEAD] {
        let matrix = self.product.matrix;
        std::array::from_fn(|i| match self.product.next {
            _ if columns.end < self.x.laid.tiles => {
                matrix.address(panels.start + i, columns.end * U::BITS * 64)
            }
            Some((next, first)) if panels.end == self.product.panels.end => next.address(first + i, 0),
            _ => matrix.address(panels.end + i, 0),
        })
    }

    /// Codes of a stretch of columns of some panels.
    fn stream<'s>(
        &self,
        panels: &Range<usize>,
        columns: &Range<usize>,
        then: &'s [usize; AHEAD],
    ) -> Stream<'s> {
        let (panel, tile) = (self.product.matrix.planes.end, U::BITS * 64);
        let codes = self.product.matrix.plane::<u8>(panels.start, 0, panels.len() * panel);
        Stream::new(codes, columns.start * tile..columns.end * tile, panel, then)
    }

    /// What a super-block's minima come to for each row, before they are scaled.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn minima(&self, scales: &Z, block: usize, rows: usize) -> [[f32; LANES]; TILE_ROWS] {
        let mut minima = [[0.0; LANES]; TILE_ROWS];
        if !Z::MIN {
            return minima;
        }
        let per_tile = groups_per_tile::<Z>();
        let groups = TILES_PER_SUPER * per_tile;
        let mut mins = [Avx512::splat(0.0); 2 * TILES_PER_SUPER];
        for (i, min) in mins[..groups].iter_mut().enumerate() {
            *min = scales.min::<Avx512>(TILES_PER_SUPER * block + i / per_tile, i % per_tile);
        }
        for (row, minima) in minima[..rows].iter_mut().enumerate() {
            let mut sum = Avx512::splat(0.0);
            for (i, min) in mins[..groups].iter().enumerate() {
                let numbers = self.x.laid.numbers(TILES_PER_SUPER * block + i / per_tile);
                // SAFETY: there are numbers of every tile and row.
                let numbers = unsafe { &*numbers.add(row) };
                let x = if Z::HALVES { numbers.half_sums[i % 2] } else { numbers.sum };
                sum = Avx512::fma(*min, Avx512::splat(x), sum);
            }
            Avx512::store(sum, minima);
        }
        minima
    }
}
