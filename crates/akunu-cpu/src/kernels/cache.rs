//! Keys and values as the cache keeps them: one *tile* holds what one head has in one block.
//!
//! Keys lie `[position / 16][dim][position % 16]`, so that sixteen positions are scored at once; values `[position][dim]`. An
//! 8-bit cache keeps integers in these orders and its scales apart from them, `[group of 32 dims][position]` for both.

use akunu_program::{BLOCK, KV_GROUP};

use crate::simd::{Kernel, LANES, Simd};

/// Vectors of positions in a block.
pub(crate) const SUBTILES: usize = BLOCK / LANES;

/// Groups of a head of `dim` elements.
pub(crate) const fn groups(dim: usize) -> usize {
    dim.div_ceil(KV_GROUP)
}

/// How a tile's keys and values are read.
pub(crate) trait Tile: Copy {
    /// Whether values must be multiplied by their scales.
    const SCALED: bool;

    /// Bytes of an element.
    const BYTES: usize;

    /// The scales of the keys of one group, for all positions.
    fn key_scales<S: Simd>(self, group: usize) -> [S::F; SUBTILES];

    /// Element `d` of the keys of sixteen positions.
    ///
    /// # Safety
    /// The tile has that many subtiles, and heads of `dim` elements, of which `d` is one.
    unsafe fn key<S: Simd>(self, subtile: usize, d: usize, dim: usize, scale: S::F) -> S::F;

    /// The scales of the values of one group, for all positions.
    fn value_scales<S: Simd>(self, group: usize) -> [f32; BLOCK];

    /// Sixteen elements of the value of one position, not scaled.
    ///
    /// # Safety
    /// `vector` counts vectors from the first position's on, and the tile has that many.
    unsafe fn value<S: Simd>(self, vector: usize) -> S::F;
}

/// A tile of F16.
#[derive(Clone, Copy)]
pub(crate) struct HalfTile<'a> {
    pub(crate) keys: &'a [u16],
    pub(crate) values: &'a [u16],
}

impl Tile for HalfTile<'_> {
    const SCALED: bool = false;
    const BYTES: usize = size_of::<u16>();

    #[inline(always)]
    fn key_scales<S: Simd>(self, _: usize) -> [S::F; SUBTILES] {
        [S::splat(1.0); SUBTILES]
    }

    #[inline(always)]
    unsafe fn key<S: Simd>(self, subtile: usize, d: usize, dim: usize, _: S::F) -> S::F {
        // SAFETY: the caller's promise.
        S::load_f16(unsafe { self.keys.as_chunks().0.get_unchecked(subtile * dim + d) })
    }

    #[inline(always)]
    fn value_scales<S: Simd>(self, _: usize) -> [f32; BLOCK] {
        [1.0; BLOCK]
    }

    #[inline(always)]
    unsafe fn value<S: Simd>(self, vector: usize) -> S::F {
        // SAFETY: the caller's promise.
        S::load_f16(unsafe { self.values.as_chunks().0.get_unchecked(vector) })
    }
}

/// A tile of 8-bit integers under F16 scales.
#[derive(Clone, Copy)]
pub(crate) struct ByteTile<'a> {
    pub(crate) keys: &'a [i8],
    pub(crate) values: &'a [i8],
    pub(crate) key_scales: &'a [u16],
    pub(crate) value_scales: &'a [u16],
}

impl Tile for ByteTile<'_> {
    const SCALED: bool = true;
    const BYTES: usize = size_of::<i8>();

    #[inline(always)]
    fn key_scales<S: Simd>(self, group: usize) -> [S::F; SUBTILES] {
        let scales = &self.key_scales.as_chunks().0[group * SUBTILES..(group + 1) * SUBTILES];
        let mut loaded = [S::splat(0.0); SUBTILES];
        // Not by `zip`, which would be called, here and below.
        for i in 0..SUBTILES {
            loaded[i] = S::load_f16(&scales[i]);
        }
        loaded
    }

    #[inline(always)]
    unsafe fn key<S: Simd>(self, subtile: usize, d: usize, dim: usize, scale: S::F) -> S::F {
        // SAFETY: the caller's promise.
        let codes = unsafe { self.keys.as_chunks().0.get_unchecked(subtile * dim + d) };
        S::mul(S::load_i8(codes), scale)
    }

    #[inline(always)]
    fn value_scales<S: Simd>(self, group: usize) -> [f32; BLOCK] {
        let from = &self.value_scales.as_chunks().0[group * SUBTILES..(group + 1) * SUBTILES];
        let mut scales = [0.0; BLOCK];
        let to = scales.as_chunks_mut().0;
        for i in 0..SUBTILES {
            S::store(S::load_f16(&from[i]), &mut to[i]);
        }
        scales
    }

    #[inline(always)]
    unsafe fn value<S: Simd>(self, vector: usize) -> S::F {
        // SAFETY: the caller's promise.
        S::load_i8(unsafe { self.values.as_chunks().0.get_unchecked(vector) })
    }
}

/// A tile of either kind.
#[derive(Clone, Copy)]
pub(crate) enum AnyTile<'a> {
    Half(HalfTile<'a>),
    Byte(ByteTile<'a>),
}

impl AnyTile<'_> {
    /// Where the keys begin.
    #[inline(always)]
    pub(crate) fn keys(self) -> *const u8 {
        match self {
            AnyTile::Half(tile) => tile.keys.as_ptr().cast(),
            AnyTile::Byte(tile) => tile.keys.as_ptr().cast(),
        }
    }
}

/// A tile as [`Widen`] leaves it.
#[derive(Clone, Copy)]
pub(crate) struct WideTile<'a> {
    /// `[dim][position]`
    pub(crate) keys: &'a [f32],
    /// `[position][dim]`
    pub(crate) values: &'a [f32],
}

/// Makes `f32`s of the first positions of a tile, for many queries that would each convert them again. Of keys all positions come
/// together, so that they are read from end to end.
pub(crate) struct Widen<'a, T> {
    pub(crate) tile: T,
    /// A multiple of the vector length.
    pub(crate) dim: usize,
    pub(crate) positions: usize,
    /// `BLOCK · dim` each.
    pub(crate) keys: &'a mut [f32],
    pub(crate) values: &'a mut [f32],
}

impl<T: Tile> Kernel for Widen<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let Widen { tile, dim, positions, keys, values } = self;
        debug_assert!(positions <= BLOCK);
        let keys = keys.as_chunks_mut::<LANES>().0;
        for group in 0..groups(dim) {
            let scales = tile.key_scales::<S>(group);
            for (i, &scale) in scales.iter().enumerate().take(positions.div_ceil(LANES)) {
                for d in group * KV_GROUP..dim.min((group + 1) * KV_GROUP) {
                    // SAFETY: a subtile of the block, and an element of the head.
                    S::store(unsafe { tile.key::<S>(i, d, dim, scale) }, &mut keys[d * SUBTILES + i]);
                }
            }
        }
        let (values, vectors) = (values.as_chunks_mut::<LANES>().0, dim / LANES);
        for column in 0..vectors {
            let mut scales = [1.0; BLOCK];
            if T::SCALED {
                scales = tile.value_scales::<S>(column * LANES / KV_GROUP);
            }
            for (position, scale) in scales.into_iter().enumerate().take(positions) {
                let at = position * vectors + column;
                // SAFETY: the tile has `BLOCK · vectors` vectors of values.
                let value = unsafe { tile.value::<S>(at) };
                S::store(if T::SCALED { S::mul(value, S::splat(scale)) } else { value }, &mut values[at]);
            }
        }
    }
}

/// Where one head's keys, or values, of one block begin, for writing.
#[derive(Clone, Copy)]
pub(crate) enum Plane {
    Half(*mut u16),
    Byte { codes: *mut i8, scales: *mut u16 },
}

/// How far apart consecutive elements of one position lie.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    Keys,
    Values,
}

impl Order {
    /// Where a position begins, and the step from element to element.
    fn place(self, position: usize, dim: usize) -> (usize, usize) {
        match self {
            Order::Keys => (position / LANES * dim * LANES + position % LANES, LANES),
            Order::Values => (position * dim, 1),
        }
    }
}

/// Writes the key or value of one head at one position.
pub(crate) struct Remember<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) plane: Plane,
    pub(crate) order: Order,
    /// Padded; not less than the head's length. The plane has `BLOCK · dim` elements. The executor lets one worker write a
    /// position, and nobody read it meanwhile.
    pub(crate) dim: usize,
    /// Within the block.
    pub(crate) position: usize,
}

impl Kernel for Remember<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        debug_assert!(self.x.len() <= self.dim && self.position < BLOCK);
        let (first, step) = self.order.place(self.position, self.dim);
        match self.plane {
            Plane::Half(start) => {
                for (i, x) in self.x.chunks(LANES).enumerate() {
                    let place = first + i * LANES * step;
                    if step == 1 && x.len() == LANES {
                        // SAFETY: so many places of this position, side by side.
                        S::store_f16(limited::<S>(x), unsafe { &mut *start.add(place).cast() });
                        continue;
                    }
                    let mut bits = [0; LANES];
                    S::store_f16(limited::<S>(x), &mut bits);
                    let write = |count: usize| {
                        for (j, bits) in bits[..count].iter().enumerate() {
                            // SAFETY: a place of this position in the plane.
                            unsafe { *start.add(place + j * step) = *bits };
                        }
                    };
                    // Whole vectors are written without a loop.
                    if x.len() == LANES { write(LANES) } else { write(x.len()) }
                }
            }
            Plane::Byte { codes, scales } => {
                for (group, x) in self.x.chunks(KV_GROUP).enumerate() {
                    let (scale, bits) = scale::<S>(x);
                    // SAFETY: the plane has a scale for each group and position.
                    unsafe { *scales.add(group * BLOCK + self.position) = bits };
                    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                    for (i, x) in x.chunks(LANES).enumerate() {
                        let mut bytes = [0i8; LANES];
                        let steps = S::mul(padded::<S>(x), S::splat(inverse));
                        let steps = S::min(S::max(steps, S::splat(-127.0)), S::splat(127.0));
                        S::store_i8(S::round(steps), &mut bytes);
                        for (j, byte) in bytes[..x.len()].iter().enumerate() {
                            let element = group * KV_GROUP + i * LANES + j;
                            // SAFETY: a place of this position in the plane.
                            unsafe { *codes.add(first + element * step) = *byte };
                        }
                    }
                }
            }
        }
    }
}

/// A vector of numbers that may be fewer.
#[inline(always)]
pub(super) fn padded<S: Simd>(x: &[f32]) -> S::F {
    if let Ok(whole) = x.try_into() {
        return S::load(whole);
    }
    let mut lanes = [0.0; LANES];
    lanes[..x.len()].copy_from_slice(x);
    S::load(&lanes)
}

/// What is too large for F16 becomes the largest.
#[inline(always)]
fn limited<S: Simd>(x: &[f32]) -> S::F {
    const LARGEST: f32 = 65504.0;
    S::min(S::max(padded::<S>(x), S::splat(-LARGEST)), S::splat(LARGEST))
}

/// The scale of a group, rounded to F16, and its bits.
#[inline(always)]
fn scale<S: Simd>(x: &[f32]) -> (f32, u16) {
    let mut largest = 0f32;
    for x in x.chunks(LANES) {
        let x = padded::<S>(x);
        largest = largest.max(S::largest(S::max(x, S::sub(S::splat(0.0), x))));
    }
    let (mut bits, mut back) = ([0; LANES], [0.0; LANES]);
    S::store_f16(limited::<S>(&[largest / 127.0]), &mut bits);
    S::store(S::load_f16(&bits), &mut back);
    (back[0], bits[0])
}

/// Reads one key back: `x` has the head's own length.
pub(crate) struct Recall<'a, T> {
    pub(crate) tile: T,
    /// Padded.
    pub(crate) dim: usize,
    /// Within the block.
    pub(crate) position: usize,
    pub(crate) x: &'a mut [f32],
}

impl<T: Tile> Kernel for Recall<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        debug_assert!(self.x.len() <= self.dim && self.position < BLOCK);
        let (subtile, lane) = (self.position / LANES, self.position % LANES);
        for (group, x) in self.x.chunks_mut(KV_GROUP).enumerate() {
            let scales = self.tile.key_scales::<S>(group);
            for (i, x) in x.iter_mut().enumerate() {
                let mut lanes = [0.0; LANES];
                // SAFETY: the position lies in the block and the element in the head.
                let keys =
                    unsafe { self.tile.key::<S>(subtile, group * KV_GROUP + i, self.dim, scales[subtile]) };
                S::store(keys, &mut lanes);
                *x = lanes[lane];
            }
        }
    }
}
