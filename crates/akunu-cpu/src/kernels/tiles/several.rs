//! Products of several decode rows with integer weights, by tiles of bytes: the sums of [`IntProduct`], to the bit.
//!
//! The dot of a group is exact, whatever makes it. Here products of tiles make those of up to sixteen rows and sixteen outputs: one with
//! the high parts of the activations and one with the low ones, or of up to eight rows a single one, whose rows are both. They leave
//! the tile registers as integers and are scaled and added in the same order as there.
//!
//! No step waits for the one before it: weights are made tiles some steps before they are multiplied, and sums are added to
//! the others some steps later, because neither a tile that was just written nor sums that just left a register can be read
//! before they have reached the first-level cache. What is between them is small enough to stay there.
//!
//! [`IntProduct`]: crate::kernels::int::IntProduct

use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use crate::Isa;
use crate::kernels::int::{
    AHEAD, B2, B3, B4, B5, B6, B8, FloatScales, HalfScales, Iq4, ScaleView, SuperScales, Unpack,
};
use crate::kernels::product::{Group, Product};
use crate::memory::ask;
use crate::pack::{Codes, Form, Matrix, Scales, TILE, TILES_PER_SUPER};
use crate::simd::avx512::{Avx512, joined};
use crate::simd::{LANES, LOW_BITS, Simd};

use super::TILE_ROWS;
use super::amx::{GROUPS, HALF_GROUPS, Tiles};
use super::product::Scratch;

/// Up to so many rows, both parts of their activations are in one tile.
const HALF: usize = TILE_ROWS / 2;

/// How many rows of some should be multiplied together by tiles; none where dots are faster. Not a part of nine to eleven: weights
/// would be read twice.
pub(crate) fn several(rows: usize) -> usize {
    match rows {
        12.. => rows.min(TILE_ROWS),
        6..=HALF => rows,
        _ => 0,
    }
}

/// A product of a block of rows, of which `x` is not looked at: they have been laid out.
pub(crate) type SeveralFn = fn(&Product<'_>, &Laid<'_>);

/// The kernel for a matrix, where there is one.
pub(crate) fn several_fn(isa: Isa, matrix: &Matrix) -> Option<SeveralFn> {
    let Form::Int { codes, scales, .. } = matrix.form else { return None };
    macro_rules! several {
        ($codes:ty, $scales:ty) => {
            // SAFETY: chosen for AMX alone, which a backend refuses where it is not available.
            |p: &Product<'_>, x: &Laid<'_>| unsafe { Several::<$codes, $scales>::new(p, x).run() }
        };
    }
    let fits = Laid::bytes(matrix.cols / TILE) <= Scratch::WEIGHTS_BYTES;
    (isa == Isa::Amx && fits).then(|| for_codes_and_scales!(codes, scales, several))
}

/// Bytes of one row in a tile of activations.
const LINE: usize = TILE;

/// Groups that are multiplied in a step: two tiles of columns, or the two halves of one.
const TOGETHER: usize = 2;

/// Steps between a tile's unpacking and its product.
const EARLY: usize = 3;

/// Steps between a product and the adding of its sums.
const LATE: usize = 2;

/// The tiles of weights of one step.
#[repr(C, align(64))]
struct Weights([[u8; 64]; 16]);

/// Sums of one step as they come out of the tiles: of each group those with high parts, then those with low ones.
#[repr(C, align(64))]
struct Whole([[i32; LANES]; 2 * TOGETHER * TILE_ROWS]);

/// Activations of a block of rows, as tiles are loaded from them.
pub(crate) struct Laid<'a> {
    rows: usize,
    /// For how many rows there is room: [`HALF`] of a tile, or a whole one.
    room: usize,
    tiles: usize,
    /// `[tile][high, low][row]` of bytes.
    parts: *mut u8,
    /// `[tile][row]`, as all that follow.
    scales: *mut f32,
    /// Sums of each tile, times the scale.
    sums: *mut f32,
    /// The same of each half of a tile.
    half_sums: *mut f32,
    scratch: PhantomData<&'a Scratch>,
}

impl<'a> Laid<'a> {
    /// Both parts of each element; a scale, a sum and two sums of halves for each tile. One tile more than there are may be multiplied.
    fn bytes(tiles: usize) -> usize {
        (tiles + 1) * TILE_ROWS * (2 * LINE + 4 * size_of::<f32>())
    }

    /// Copies the activations of a block of rows to a worker's scratch, for matrices that a kernel was chosen for.
    /// Where rows are missing, what is multiplied is anything, but scaled by zero.
    ///
    /// # Safety
    /// Nobody else uses the scratch's room for weights while this is used.
    pub(crate) unsafe fn new(x: &[Group], rows: usize, scratch: &'a Scratch) -> Laid<'a> {
        let tiles = x.len() / rows;
        assert!(rows <= TILE_ROWS && Laid::bytes(tiles) <= Scratch::WEIGHTS_BYTES);
        let parts: *mut u8 = scratch.weights.start_of(0, Scratch::WEIGHTS_BYTES);
        let floats = parts.wrapping_add((tiles + 1) * TILE_ROWS * 2 * LINE).cast::<f32>();
        let plane = |i: usize| floats.wrapping_add(i * (tiles + 1) * TILE_ROWS);
        let (scales, sums, half_sums) = (plane(0), plane(1), plane(2));
        let room = if rows <= HALF { HALF } else { TILE_ROWS };
        for tile in 0..tiles {
            for row in 0..room {
                let group = (row < rows).then(|| &x[row * tiles + tile]);
                let [a, b] = group.map_or([0.0; 2], |group| group.scaled_sums);
                // SAFETY: the scratch has room for all tiles; nobody else uses it by the caller's promise.
                unsafe {
                    if let Some(group) = group {
                        let to = parts.add((2 * room * tile + row) * LINE);
                        to.cast::<[i32; TILE / 4]>().write_unaligned(group.high);
                        to.add(room * LINE).cast::<[i32; TILE / 4]>().write_unaligned(group.low);
                    }
                    scales.add(tile * TILE_ROWS + row).write(group.map_or(0.0, |group| group.scale));
                    sums.add(tile * TILE_ROWS + row).write(a + b);
                    half_sums.add(2 * tile * TILE_ROWS + row).write(a);
                    half_sums.add((2 * tile + 1) * TILE_ROWS + row).write(b);
                }
            }
        }
        Laid { rows, room, tiles, parts, scales, sums, half_sums, scratch: PhantomData }
    }
}

const fn groups_per_tile<'a, Z: ScaleView<'a>>() -> usize {
    if Z::HALVES { 2 } else { 1 }
}

/// Sums of a tile of activations with one of weights, from zero.
macro_rules! product {
    ($signed:expr, $sums:literal, $x:literal, $weights:literal) => {
        if $signed {
            asm!(
                concat!("tilezero tmm", $sums),
                apart!(concat!("tdpbssd tmm", $sums, ", tmm", $x, ", tmm", $weights)),
                options(nostack)
            )
        } else {
            asm!(
                concat!("tilezero tmm", $sums),
                apart!(concat!("tdpbsud tmm", $sums, ", tmm", $x, ", tmm", $weights)),
                options(nostack)
            )
        }
    };
}

/// The codes of all panels, step by step.
struct Stream {
    at: *const u8,
    /// Tiles that are left of a panel.
    left: usize,
    tiles: usize,
    /// Bytes from the end of a panel's codes to those of the next one.
    between: usize,
}

impl Stream {
    /// Makes a step's tiles of codes, less their zero point where they are `signed`.
    ///
    /// # Safety
    /// The processor has AVX-512, and not all steps have been made.
    #[inline(always)]
    unsafe fn unpack<U: Unpack>(&mut self, per_step: usize, signed: bool, zero: i8, to: *mut Weights) {
        let count = per_step.min(self.left);
        // SAFETY: the caller's promise; a step has sixteen lines.
        unsafe {
            for i in 0..count {
                let vectors = std::slice::from_raw_parts(self.at.cast::<[u8; 64]>(), U::BITS);
                for vector in vectors {
                    ask(vector.as_ptr().wrapping_add(AHEAD));
                }
                let codes = U::unpack::<Avx512>(vectors);
                let to = to.cast::<__m512i>().add(8 * i);
                let zero = _mm512_set1_epi8(zero);
                macro_rules! line {
                    ($($line:literal),+) => {
                        $(
                            let line = if signed { _mm512_sub_epi8(codes[$line], zero) } else { codes[$line] };
                            _mm512_store_si512(to.add($line), line);
                        )+
                    };
                }
                line!(0, 1, 2, 3, 4, 5, 6, 7);
                self.at = self.at.add(U::BITS * 64);
            }
        }
        self.left -= count;
        if self.left == 0 {
            self.left = self.tiles;
            self.at = self.at.wrapping_add(self.between);
        }
    }
}

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
    x: &'a Laid<'a>,
    zero: i32,
    kind: PhantomData<(U, Z)>,
}

impl<'a, U: Unpack, Z: ScaleView<'a>> Several<'a, U, Z> {
    /// Codes are signed bytes once their zero point is taken from them; short ones with minima have none.
    const SIGNED: bool = U::WIDE || !Z::MIN;

    /// Whether dots of high parts, within ±127, fit sixteen bits.
    const NARROW: bool = {
        let largest = if Self::SIGNED { 1 << (U::BITS - 1) } else { (1 << U::BITS) - 1 };
        !U::WIDE && largest * 127 * TILE / groups_per_tile::<Z>() < 1 << 15
    };

    fn new(product: &'a Product<'a>, x: &'a Laid<'a>) -> Self {
        let Form::Int { zero, .. } = product.matrix.form else { unreachable!("chosen by form") };
        // Sums of minima are of whole tiles where they are not of super-blocks.
        const { assert!(Z::SUPER || !(Z::HALVES && Z::MIN)) };
        let middle = 1 << (if U::WIDE { 8 } else { U::BITS } - 1);
        assert_eq!(zero, if Self::SIGNED { middle } else { 0 });
        assert!(x.tiles == product.matrix.cols / TILE && x.rows == product.count);
        Several { product, x, zero, kind: PhantomData }
    }

    /// # Safety
    /// AMX is available.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn run(&self) {
        // SAFETY: the caller's promise, here and below.
        unsafe {
            let _tiles = Tiles::configure(if Z::HALVES { &HALF_GROUPS } else { &GROUPS });
            if self.x.room == HALF {
                self.panels::<HALF>();
            } else {
                self.panels::<TILE_ROWS>();
            }
        }
    }

    /// All panels, where there is room for so many rows.
    ///
    /// # Safety
    /// AMX is available, and tiles are configured.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn panels<const ROWS: usize>(&self) {
        let (x, matrix) = (self.x, self.product.matrix);
        let per_tile = groups_per_tile::<Z>();
        let per_step = TOGETHER / per_tile;
        let steps = x.tiles.div_ceil(per_step);
        let mut panel = self.product.panels.start;
        let panels = self.product.panels.len();
        let total = panels * steps;
        if total == 0 {
            return;
        }
        let codes = matrix.plane::<u8>(panel, 0, panels * matrix.planes.end);
        let between = matrix.planes.end - x.tiles * U::BITS * 64;
        let mut stream = Stream { at: codes.as_ptr(), left: x.tiles, tiles: x.tiles, between };
        let zero = self.zero as i8;
        let mut weights = [const { MaybeUninit::<Weights>::uninit() }; EARLY + 1];
        let mut whole = [const { MaybeUninit::<Whole>::uninit() }; LATE + 1];
        let mut sums = [Avx512::splat(0.0); TILE_ROWS];
        let mut outer = [[0.0; LANES]; TILE_ROWS];
        let mut scales = Z::view(matrix, panel, AHEAD);
        let (mut step, mut added, mut ring) = (0, 0, 0);
        for room in weights.iter_mut().take(EARLY.min(total)) {
            // SAFETY: AMX is available.
            unsafe { stream.unpack::<U>(per_step, Self::SIGNED, zero, room.as_mut_ptr()) };
        }
        for n in 0..total + LATE {
            let b: *const u8 = weights[n % (EARLY + 1)].as_ptr().cast();
            let now: *mut u8 = whole[ring].as_mut_ptr().cast();
            let before: *mut u8 = whole[if ring == 0 { LATE } else { ring - 1 }].as_mut_ptr().cast();
            ring = if ring == LATE { 0 } else { ring + 1 };
            let done: *const i32 = whole[ring].as_ptr().cast();
            let (multiplies, stores, adds) = (n < total, 0 < n && n <= total, n >= LATE);
            let tile = added * per_step;
            let (other, half) = if Z::HALVES { (tile, 1) } else { (tile + 1, 0) };
            // A last tile may be alone.
            let adds_other = adds && other < x.tiles;
            // SAFETY: AMX is available and tiles are configured; all places are in the scratch and the rings.
            unsafe {
                let a = x.parts.add(step * per_step * 2 * ROWS * LINE);
                let a_other = a.add(if Z::HALVES { LINE / 2 } else { 2 * ROWS * LINE });
                let b_other = b.add(if Z::HALVES { 64 * TILE / 8 } else { 64 * TILE / 4 });
                let done_other = done.add(2 * TILE_ROWS * LANES);
                macro_rules! add {
                    ($done:ident, $rows:ident, $($row:literal),+) => {
                        $(
                            sums[$row] = $rows.add::<ROWS, $row>($done, Self::NARROW, sums[$row]);
                        )+
                    };
                }
                macro_rules! add_first {
                    ($done:ident, $rows:ident) => {
                        add!($done, $rows, 0, 1, 2, 3);
                        if ROWS > HALF {
                            add!($done, $rows, 4, 5, 6, 7);
                        }
                    };
                }
                macro_rules! add_last {
                    ($done:ident, $rows:ident) => {
                        if ROWS > HALF {
                            add!($done, $rows, 8, 9, 10, 11, 12, 13, 14, 15);
                        } else {
                            add!($done, $rows, 4, 5, 6, 7);
                        }
                    };
                }
                // Low parts that are not in the same tile as the high ones.
                let apart = ROWS > HALF;
                let low = ROWS * LINE;
                if multiplies {
                    tile!("tileloadd tmm6, [{at} + {line}*1]", b, 64);
                    tile!("tileloadd tmm4, [{at} + {line}*1]", a, LINE);
                    product!(Self::SIGNED, 0, 4, 6);
                    if apart {
                        tile!("tileloadd tmm5, [{at} + {line}*1]", a.add(low), LINE);
                    }
                }
                if stores {
                    tile!("tilestored [{at} + {line}*1], tmm2", before.add(2048), 64);
                }
                let rows = if adds { Rows::of(x, &scales, tile, 0) } else { Rows::none() };
                if adds {
                    add_first!(done, rows);
                }
                if multiplies {
                    if apart {
                        product!(Self::SIGNED, 1, 5, 6);
                    }
                    tile!("tileloadd tmm7, [{at} + {line}*1]", b_other, 64);
                    tile!("tileloadd tmm4, [{at} + {line}*1]", a_other, LINE);
                }
                if stores && apart {
                    tile!("tilestored [{at} + {line}*1], tmm3", before.add(3072), 64);
                }
                if adds {
                    add_last!(done, rows);
                }
                if multiplies {
                    product!(Self::SIGNED, 2, 4, 7);
                    if apart {
                        tile!("tileloadd tmm5, [{at} + {line}*1]", a_other.add(low), LINE);
                    }
                    tile!("tilestored [{at} + {line}*1], tmm0", now, 64);
                }
                let rows = if adds_other { Rows::of(x, &scales, other, half) } else { Rows::none() };
                if adds_other {
                    add_first!(done_other, rows);
                }
                if multiplies && apart {
                    product!(Self::SIGNED, 3, 5, 7);
                    tile!("tilestored [{at} + {line}*1], tmm1", now.add(1024), 64);
                }
                if adds_other {
                    add_last!(done_other, rows);
                }
                if n + EARLY < total {
                    let room = weights[(n + EARLY) % (EARLY + 1)].as_mut_ptr();
                    stream.unpack::<U>(per_step, Self::SIGNED, zero, room);
                }
            }
            step = if step + 1 == steps { 0 } else { step + 1 };
            if !adds {
                continue;
            }
            if Z::SUPER && (other + 1).is_multiple_of(TILES_PER_SUPER) {
                let block = other / TILES_PER_SUPER;
                let [scale, min] = scales.outer::<Avx512>(block);
                let minima = self.minima(&scales, block, ROWS);
                each_row!(|ROW| if ROW < ROWS {
                    let mut sum = Avx512::fma(sums[ROW], scale, Avx512::load(&outer[ROW]));
                    if Z::MIN {
                        sum = Avx512::fma(Avx512::load(&minima[ROW]), min, sum);
                    }
                    Avx512::store(sum, &mut outer[ROW]);
                    sums[ROW] = Avx512::splat(0.0);
                });
            }
            added += 1;
            if added == steps {
                added = 0;
                if !Z::SUPER {
                    each_row!(|ROW| if ROW < ROWS {
                        Avx512::store(sums[ROW], &mut outer[ROW]);
                    });
                    sums = [Avx512::splat(0.0); TILE_ROWS];
                }
                for (row, sums) in outer[..x.rows].iter().enumerate() {
                    self.product.put::<Avx512>(row, panel, Avx512::load(sums));
                }
                outer = [[0.0; LANES]; TILE_ROWS];
                panel += 1;
                if panel < self.product.panels.end {
                    scales = Z::view(matrix, panel, AHEAD);
                }
            }
        }
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
        let sums = if Z::HALVES { self.x.half_sums } else { self.x.sums };
        for (row, minima) in minima[..rows].iter_mut().enumerate() {
            let mut sum = Avx512::splat(0.0);
            for (i, min) in mins[..groups].iter().enumerate() {
                // SAFETY: there is a sum for every group and row.
                let x = unsafe { *sums.add((groups * block + i) * TILE_ROWS + row) };
                sum = Avx512::fma(*min, Avx512::splat(x), sum);
            }
            Avx512::store(sum, minima);
        }
        minima
    }
}

/// `2^LOW_BITS · high + low`, where `high` has sixteen bits.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn join_narrow(high: __m512i, low: __m512i) -> __m512i {
    let mut sum = low;
    // SAFETY: registers alone. One instruction; written with the compiler's function it may become two.
    unsafe {
        asm!(
            "vpdpwssd {sum}, {high}, {factor}",
            sum = inout(zmm_reg) sum,
            high = in(zmm_reg) high,
            factor = in(zmm_reg) _mm512_set1_epi32(1 << LOW_BITS),
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// What the sums of one group are scaled by.
struct Rows<Z> {
    scale: __m512,
    min: __m512,
    scales: *const f32,
    sums: *const f32,
    kind: PhantomData<Z>,
}

impl<'a, Z: ScaleView<'a>> Rows<Z> {
    /// # Safety
    /// The processor has AVX-512, and there is such a tile.
    #[inline(always)]
    unsafe fn of(x: &Laid<'_>, scales: &Z, tile: usize, half: usize) -> Rows<Z> {
        let scale = scales.scale::<Avx512>(tile, half);
        let min = if Z::MIN && !Z::SUPER { scales.min::<Avx512>(tile, half) } else { scale };
        // SAFETY: the caller's promise.
        let [scales, sums] = unsafe { [x.scales.add(tile * TILE_ROWS), x.sums.add(tile * TILE_ROWS)] };
        Rows { scale, min, scales, sums, kind: PhantomData }
    }

    /// Where there is nothing to add: what is added is in two pieces, and both need it.
    #[inline(always)]
    fn none() -> Rows<Z> {
        let (zero, none) = (Avx512::splat(0.0), std::ptr::null());
        Rows { scale: zero, min: zero, scales: none, sums: none, kind: PhantomData }
    }

    /// Adds a group's sums of one row of `ROWS`. `narrow`: those with high parts have sixteen bits.
    ///
    /// # Safety
    /// As [`Rows::of`]; `whole` has the sums of a group.
    #[inline(always)]
    unsafe fn add<const ROWS: usize, const ROW: usize>(
        &self,
        whole: *const i32,
        narrow: bool,
        sum: __m512,
    ) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe {
            let high = _mm512_load_si512(whole.add(ROW * LANES).cast());
            let low = _mm512_load_si512(whole.add((ROWS + ROW) * LANES).cast());
            let dot = if narrow { join_narrow(high, low) } else { joined(high, low) };
            let scale = _mm512_mul_ps(self.scale, _mm512_set1_ps(*self.scales.add(ROW)));
            let sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sum);
            if Z::MIN && !Z::SUPER {
                _mm512_fmadd_ps(self.min, _mm512_set1_ps(*self.sums.add(ROW)), sum)
            } else {
                sum
            }
        }
    }
}
