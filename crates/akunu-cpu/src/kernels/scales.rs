//! How kernels read the scales and minima of packed integers.

use crate::memory::{ALIGN, ask};
use crate::pack::{Matrix, TILE, TILES_PER_SUPER};
use crate::simd::{LANES, Simd};

/// The scales and minima of one panel. Tiles and super-blocks that are asked for must be the matrix's: they are read unchecked.
pub(crate) trait ScaleView<'a>: Copy {
    /// Whether groups of 16 have their own.
    const HALVES: bool;
    /// Whether there are minima.
    const MIN: bool;
    /// Whether the scales and minima of a super-block have a scale of their own.
    const SUPER: bool;
    /// Of one panel. Whoever reads a vector asks for the one `ahead` bytes further on.
    fn view(matrix: &'a Matrix, panel: usize, ahead: usize) -> Self;
    fn scale<S: Simd>(&self, tile: usize, half: usize) -> S::F;
    fn min<S: Simd>(&self, tile: usize, half: usize) -> S::F;
    /// What the scales and the minima of a super-block are to be multiplied by.
    fn outer<S: Simd>(&self, _super_block: usize) -> [S::F; 2] {
        unreachable!("there are no super-blocks")
    }
}

/// Reads a vector of a plane.
#[inline(always)]
fn read<T>(plane: &[T], at: usize) -> &T {
    debug_assert!(at < plane.len());
    // SAFETY: a plane has a vector for each group, or super-block, of its panel, and kernels go over those of the matrix.
    unsafe { plane.get_unchecked(at) }
}

/// Reads a vector of a plane, and asks for what lies `ahead` bytes further on.
#[inline(always)]
fn stream<T>(plane: &[T], at: usize, ahead: usize) -> &T {
    let vector = read(plane, at);
    ask(std::ptr::from_ref(vector).cast::<u8>().wrapping_add(ahead));
    vector
}

/// The same for the group of a tile, or of one of its halves. Where both halves are in one line, whoever reads the first asks for it.
#[inline(always)]
fn stream_group<T, const HALVES: bool>(plane: &[T], tile: usize, half: usize, ahead: usize) -> &T {
    match (HALVES, half) {
        (false, _) => stream(plane, tile, ahead),
        (true, 1) if 2 * size_of::<T>() <= ALIGN => read(plane, 2 * tile + 1),
        (true, _) => stream(plane, 2 * tile + half, ahead),
    }
}

/// F16, one per tile.
#[derive(Clone, Copy)]
pub(crate) struct HalfScales<'a, const MIN: bool> {
    scales: &'a [[u16; LANES]],
    mins: &'a [[u16; LANES]],
    ahead: usize,
}

impl<'a, const MIN: bool> ScaleView<'a> for HalfScales<'a, MIN> {
    const HALVES: bool = false;
    const MIN: bool = MIN;
    const SUPER: bool = false;
    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize, ahead: usize) -> Self {
        let plane = |at| matrix.plane::<u16>(panel, at, matrix.cols / TILE * LANES).as_chunks().0;
        let scales = plane(matrix.planes.scales);
        HalfScales { scales, mins: if MIN { plane(matrix.planes.mins) } else { scales }, ahead }
    }
    #[inline(always)]
    fn scale<S: Simd>(&self, tile: usize, _: usize) -> S::F {
        S::load_f16(stream(self.scales, tile, self.ahead))
    }
    #[inline(always)]
    fn min<S: Simd>(&self, tile: usize, _: usize) -> S::F {
        S::load_f16(stream(self.mins, tile, self.ahead))
    }
}

/// Integers per group under F16 per super-block.
#[derive(Clone, Copy)]
pub(crate) struct SuperScales<'a, const HALVES: bool, const MIN: bool> {
    scales: &'a [[i8; LANES]],
    mins: &'a [[i8; LANES]],
    supers: &'a [[u16; LANES]],
    super_mins: &'a [[u16; LANES]],
    ahead: usize,
}

impl<'a, const HALVES: bool, const MIN: bool> ScaleView<'a> for SuperScales<'a, HALVES, MIN> {
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
    const SUPER: bool = true;
    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize, ahead: usize) -> Self {
        let tiles = matrix.cols / TILE;
        assert!(tiles.is_multiple_of(TILES_PER_SUPER));
        let groups = if HALVES { 2 * tiles } else { tiles };
        let small = |at| matrix.plane::<i8>(panel, at, groups * LANES).as_chunks().0;
        let large = |at| matrix.plane::<u16>(panel, at, tiles / TILES_PER_SUPER * LANES).as_chunks().0;
        let (scales, supers) = (small(matrix.planes.scales), large(matrix.planes.supers));
        let (mins, super_mins) =
            if MIN { (small(matrix.planes.mins), large(matrix.planes.super_mins)) } else { (scales, supers) };
        SuperScales { scales, mins, supers, super_mins, ahead }
    }
    #[inline(always)]
    fn scale<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        S::load_i8(stream_group::<_, HALVES>(self.scales, tile, half, self.ahead))
    }
    #[inline(always)]
    fn min<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        S::load_i8(stream_group::<_, HALVES>(self.mins, tile, half, self.ahead))
    }
    #[inline(always)]
    fn outer<S: Simd>(&self, super_block: usize) -> [S::F; 2] {
        let scale = S::load_f16(stream(self.supers, super_block, self.ahead));
        let min = if MIN { S::load_f16(stream(self.super_mins, super_block, self.ahead)) } else { scale };
        [scale, min]
    }
}

/// Integers of four bits per group of 16, scale and minimum in a byte, under F16 per super-block.
#[derive(Clone, Copy)]
pub(crate) struct NibbleScales<'a> {
    both: &'a [[u8; LANES]],
    supers: &'a [[u16; LANES]],
    super_mins: &'a [[u16; LANES]],
    ahead: usize,
}

impl<'a> ScaleView<'a> for NibbleScales<'a> {
    const HALVES: bool = true;
    const MIN: bool = true;
    const SUPER: bool = true;
    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize, ahead: usize) -> Self {
        let tiles = matrix.cols / TILE;
        assert!(tiles.is_multiple_of(TILES_PER_SUPER));
        let both = matrix.plane::<u8>(panel, matrix.planes.scales, 2 * tiles * LANES).as_chunks().0;
        let large = |at| matrix.plane::<u16>(panel, at, tiles / TILES_PER_SUPER * LANES).as_chunks().0;
        let (supers, super_mins) = (large(matrix.planes.supers), large(matrix.planes.super_mins));
        NibbleScales { both, supers, super_mins, ahead }
    }
    #[inline(always)]
    fn scale<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        S::load_nibbles(stream_group::<_, true>(self.both, tile, half, self.ahead))[0]
    }
    #[inline(always)]
    fn min<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        // Whoever read the scale has asked for it.
        S::load_nibbles(read(self.both, 2 * tile + half))[1]
    }
    #[inline(always)]
    fn outer<S: Simd>(&self, super_block: usize) -> [S::F; 2] {
        let scale = S::load_f16(stream(self.supers, super_block, self.ahead));
        [scale, S::load_f16(stream(self.super_mins, super_block, self.ahead))]
    }
}

/// F32 per group.
#[derive(Clone, Copy)]
pub(crate) struct FloatScales<'a, const HALVES: bool, const MIN: bool> {
    scales: &'a [[f32; LANES]],
    mins: &'a [[f32; LANES]],
    ahead: usize,
}

impl<'a, const HALVES: bool, const MIN: bool> ScaleView<'a> for FloatScales<'a, HALVES, MIN> {
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;
    const SUPER: bool = false;
    #[inline(always)]
    fn view(matrix: &'a Matrix, panel: usize, ahead: usize) -> Self {
        let tiles = matrix.cols / TILE;
        let groups = if HALVES { 2 * tiles } else { tiles };
        let plane = |at| matrix.plane::<f32>(panel, at, groups * LANES).as_chunks().0;
        let scales = plane(matrix.planes.scales);
        FloatScales { scales, mins: if MIN { plane(matrix.planes.mins) } else { scales }, ahead }
    }
    #[inline(always)]
    fn scale<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        S::load(stream_group::<_, HALVES>(self.scales, tile, half, self.ahead))
    }
    #[inline(always)]
    fn min<S: Simd>(&self, tile: usize, half: usize) -> S::F {
        S::load(stream_group::<_, HALVES>(self.mins, tile, half, self.ahead))
    }
}
