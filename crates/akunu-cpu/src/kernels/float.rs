//! Products of float weights with `f32` activations.
//!
//! Even and odd columns are summed apart and added at the end, whatever the number of rows.

use std::marker::PhantomData;
use std::ops::Range;

use crate::memory::{Plain, ask};
use crate::simd::{Kernel, LANES, Simd};

use super::many;
use super::product::{Input, Product};

/// Rows worked on together at most.
const MANY: usize = 8;

/// How far ahead of their use weights are asked for, in bytes.
const AHEAD: usize = 4 << 10;

/// Panels that a single row goes over side by side: a core gets more from memory in several streams than in one.
const BESIDE: usize = 4;

/// [`AHEAD`] of each of these streams.
const AHEAD_BESIDE: usize = 2 << 10;

/// Bytes of activations that should stay in the second-level cache while panels pass over them.
const CACHED: usize = 512 << 10;

/// A stored float.
pub(crate) trait Float {
    type Bits: Plain;
    fn load<S: Simd>(from: &[Self::Bits; LANES]) -> S::F;
}

macro_rules! float {
    ($name:ident, $bits:ty, $load:ident) => {
        pub(crate) struct $name;
        impl Float for $name {
            type Bits = $bits;
            #[inline(always)]
            fn load<S: Simd>(from: &[$bits; LANES]) -> S::F {
                S::$load(from)
            }
        }
    };
}

float!(F32, f32, load);
float!(F16, u16, load_f16);
float!(Bf16, u16, load_bf16);

/// A product with weights of that type.
pub(crate) struct FloatProduct<'a, T> {
    pub(super) product: &'a Product<'a>,
    pub(super) x: &'a [f32],
    kind: PhantomData<T>,
}

impl<'a, T> FloatProduct<'a, T> {
    pub(crate) fn new(product: &'a Product<'a>) -> Self {
        let Input::Floats(x) = product.x else { unreachable!("lowered with float activations") };
        assert!(x.len() >= product.count * product.matrix.cols);
        FloatProduct { product, x, kind: PhantomData }
    }
}

impl<T: Float> Kernel for FloatProduct<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let Product { matrix, count, .. } = *self.product;
        let mut panels = self.product.panels.clone();
        if count == 1 && S::TOGETHER {
            panels = self.beside::<S>(panels);
        }
        let rows_cached = (CACHED / (matrix.cols * size_of::<f32>())).max(1).next_multiple_of(MANY);
        let done = match self.product.room {
            Some(room) if S::MANY_APART && count >= many::LEAST => self.many::<S>(room),
            _ => 0,
        };
        for first in (done..count).step_by(rows_cached) {
            let end = count.min(first + rows_cached);
            for panel in panels.clone() {
                let weights = matrix.plane::<T::Bits>(panel, 0, matrix.cols * LANES).as_chunks().0;
                let mut row = first;
                while row < end {
                    row += match end - row {
                        _ if !S::TOGETHER => self.block::<S, 1>(weights, panel, row),
                        MANY.. if !S::MANY_APART => self.block::<S, MANY>(weights, panel, row),
                        4.. => self.block::<S, 4>(weights, panel, row),
                        2.. => self.block::<S, 2>(weights, panel, row),
                        _ => self.block::<S, 1>(weights, panel, row),
                    };
                }
            }
        }
    }
}

impl<T: Float> FloatProduct<'_, T> {
    /// Panels by the only row; returns the last one where it is alone.
    #[inline(always)]
    fn beside<S: Simd>(&self, mut panels: Range<usize>) -> Range<usize> {
        while panels.len() > 1 {
            panels.start += match panels.len() {
                BESIDE.. => self.panels::<S, BESIDE>(panels.start),
                _ => self.panels::<S, 2>(panels.start),
            };
        }
        panels
    }

    /// `P` panels by the only row, in the same order of sums as [`FloatProduct::block`]; returns `P`.
    #[inline(always)]
    fn panels<S: Simd, const P: usize>(&self, first: usize) -> usize {
        let matrix = self.product.matrix;
        let cols = matrix.cols;
        let x = &self.x[..cols];
        let weights: [&[[T::Bits; LANES]]; P] =
            std::array::from_fn(|p| matrix.plane::<T::Bits>(first + p, 0, cols * LANES).as_chunks().0);
        let vector = size_of::<[T::Bits; LANES]>();
        let early = (AHEAD_BESIDE / vector).clamp(1, cols);
        // Past the end of a panel comes the beginning of the one that its stream goes on with.
        let past: [_; P] = std::array::from_fn(|p| {
            self.product.further(first + p, P).codes.wrapping_sub((cols - early) * vector)
        });
        let (mut even, mut odd) = ([S::splat(0.0); P], [S::splat(0.0); P]);
        let (pairs, last) = x.as_chunks::<2>();
        for (i, &[x0, x1]) in pairs.iter().enumerate() {
            let ends = 2 * i + early >= cols;
            for p in 0..P {
                let from = &weights[p][2 * i..2 * i + 2];
                let ahead = if ends { past[p] } else { early * vector };
                for line in (0..2 * vector).step_by(64) {
                    ask(from.as_ptr().cast::<u8>().wrapping_add(ahead).wrapping_add(line));
                }
                even[p] = S::fma(T::load::<S>(&from[0]), S::splat(x0), even[p]);
                odd[p] = S::fma(T::load::<S>(&from[1]), S::splat(x1), odd[p]);
            }
        }
        for &x in last {
            for p in 0..P {
                even[p] = S::fma(T::load::<S>(&weights[p][cols - 1]), S::splat(x), even[p]);
            }
        }
        for p in 0..P {
            self.product.put::<S>(0, first + p, S::add(even[p], odd[p]));
        }
        P
    }

    /// One panel by `M` rows; returns `M`.
    #[inline(always)]
    fn block<S: Simd, const M: usize>(
        &self,
        weights: &[[T::Bits; LANES]],
        panel: usize,
        row: usize,
    ) -> usize {
        let cols = weights.len();
        let x = &self.x[row * cols..(row + M) * cols];
        let (mut even, mut odd) = ([S::splat(0.0); M], [S::splat(0.0); M]);
        let (pairs, last) = weights.as_chunks::<2>();
        for (i, [w0, w1]) in pairs.iter().enumerate() {
            for line in (0..2 * size_of_val(w0)).step_by(64) {
                ask(w0.as_ptr().cast::<u8>().wrapping_add(AHEAD + line));
            }
            let (w0, w1) = (T::load::<S>(w0), T::load::<S>(w1));
            for m in 0..M {
                // SAFETY: `x` holds `M` rows of `cols`, and `2 i + 1` is below `cols`.
                let (x0, x1) = unsafe {
                    let at = x.as_ptr().add(m * cols + 2 * i);
                    (*at, *at.add(1))
                };
                even[m] = S::fma(w0, S::splat(x0), even[m]);
                odd[m] = S::fma(w1, S::splat(x1), odd[m]);
            }
        }
        for w in last {
            let w = T::load::<S>(w);
            for m in 0..M {
                even[m] = S::fma(w, S::splat(x[(m + 1) * cols - 1]), even[m]);
            }
        }
        for m in 0..M {
            self.product.put::<S>(row + m, panel, S::add(even[m], odd[m]));
        }
        M
    }
}
