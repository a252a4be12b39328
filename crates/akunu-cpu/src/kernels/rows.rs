//! Kernels that work on one row at a time.

use akunu_program::program::{Activation, NormKind};
use akunu_program::rope::RopeLayout;

use crate::pack::TILE;
use crate::simd::{Kernel, LANES, LOW_BITS, Simd};

use super::product::{Group, LARGEST};

/// What one of an activation's high part stands for.
const LOW: i32 = 1 << LOW_BITS;

/// Calls `f` with every sixteen elements, the last ones padded with zeros.
#[inline(always)]
fn each<S: Simd>(x: &[f32], mut f: impl FnMut(S::F)) {
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        f(S::load(x));
    }
    if !rest.is_empty() {
        f(S::load(&padded(rest)));
    }
}

#[inline(always)]
fn padded(x: &[f32]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..x.len()].copy_from_slice(x);
    lanes
}

/// `out = f(x, y)`, element by element.
#[inline(always)]
fn zip<S: Simd>(x: &[f32], y: &[f32], out: &mut [f32], f: impl Fn(S::F, S::F) -> S::F) {
    let (xs, x) = x.as_chunks::<LANES>();
    let (ys, y) = y.as_chunks::<LANES>();
    let (outs, out) = out.as_chunks_mut::<LANES>();
    for ((x, y), out) in xs.iter().zip(ys).zip(outs) {
        S::store(f(S::load(x), S::load(y)), out);
    }
    if !out.is_empty() {
        let mut lanes = [0.0; LANES];
        S::store(f(S::load(&padded(x)), S::load(&padded(y))), &mut lanes);
        out.copy_from_slice(&lanes[..out.len()]);
    }
}

/// `out = x + y`.
pub(crate) struct Add<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) y: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Add<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        zip::<S>(self.x, self.y, self.out, S::add);
    }
}

/// Normalises each of the row's groups, as long as `weight`.
pub(crate) struct Norm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) kind: NormKind,
    pub(crate) eps: f32,
    pub(crate) weight: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Norm<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let width = self.weight.len();
        let count = width as f32;
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            match self.kind {
                NormKind::Rms { offset } => {
                    let mut squares = S::splat(0.0);
                    each::<S>(x, |x| squares = S::fma(x, x, squares));
                    let scale = S::splat(1.0 / (S::sum(squares) / count + self.eps).sqrt());
                    let offset = S::splat(offset);
                    zip::<S>(x, self.weight, out, |x, w| S::mul(S::mul(x, scale), S::add(w, offset)));
                }
                NormKind::Layer => {
                    let mut sum = S::splat(0.0);
                    each::<S>(x, |x| sum = S::add(sum, x));
                    let mean = S::sum(sum) / count;
                    let center = S::splat(mean);
                    let mut squares = S::splat(0.0);
                    each::<S>(x, |x| {
                        let d = S::sub(x, center);
                        squares = S::fma(d, d, squares);
                    });
                    // The zeros that pad the last vector each counted as the mean's square.
                    let padding = (x.len().next_multiple_of(LANES) - x.len()) as f32;
                    let variance = (S::sum(squares) - padding * mean * mean) / count;
                    let scale = S::splat(1.0 / (variance + self.eps).sqrt());
                    zip::<S>(x, self.weight, out, |x, w| S::mul(S::mul(S::sub(x, center), scale), w));
                    if let Some(bias) = self.bias {
                        out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
                    }
                }
            }
        }
    }
}

/// `out = activation(gate) · up`.
pub(crate) struct Gate<'a> {
    pub(crate) gate: &'a [f32],
    pub(crate) up: &'a [f32],
    pub(crate) activation: Activation,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for Gate<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let one = S::splat(1.0);
        match self.activation {
            Activation::Silu => zip::<S>(self.gate, self.up, self.out, |g, u| {
                let e = S::exp(S::sub(S::splat(0.0), g));
                S::mul(S::div(g, S::add(one, e)), u)
            }),
            Activation::GeluTanh => zip::<S>(self.gate, self.up, self.out, |g, u| {
                let cube = S::mul(S::mul(g, g), g);
                let inner = S::mul(S::splat(0.797_884_6), S::fma(S::splat(0.044_715), cube, g));
                S::mul(S::mul(S::mul(S::splat(0.5), g), S::add(one, S::tanh(inner))), u)
            }),
            Activation::GeluErf => zip::<S>(self.gate, self.up, self.out, |g, u| {
                let erf = S::erf(S::mul(g, S::splat(std::f32::consts::FRAC_1_SQRT_2)));
                S::mul(S::mul(S::mul(S::splat(0.5), g), S::add(one, erf)), u)
            }),
        }
    }
}

/// `x = cap · tanh(scale · x / cap)`, or `scale · x`.
pub(crate) struct Cap<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) scale: f32,
    pub(crate) cap: Option<f32>,
}

impl Kernel for Cap<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let scale = S::splat(self.scale);
        let capped = |x: S::F| match self.cap {
            Some(cap) => {
                let x = S::div(S::mul(x, scale), S::splat(cap));
                S::mul(S::splat(cap), S::tanh(x))
            }
            None => S::mul(x, scale),
        };
        let (whole, rest) = self.x.as_chunks_mut::<LANES>();
        for x in whole {
            S::store(capped(S::load(x)), x);
        }
        let mut lanes = [0.0; LANES];
        S::store(capped(S::load(&padded(rest))), &mut lanes);
        rest.copy_from_slice(&lanes[..rest.len()]);
    }
}

/// Activations to integers, each tile of 32 under its own scale: the largest becomes ±[`LARGEST`].
pub(crate) struct Quantize<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) out: &'a mut [Group],
}

impl Kernel for Quantize<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        for (x, out) in self.x.as_chunks::<TILE>().0.iter().zip(self.out) {
            let [x0, x1] = x.as_chunks::<LANES>().0 else { unreachable!() };
            let halves = [S::load(x0), S::load(x1)];
            let zero = S::splat(0.0);
            let [a, b] = halves.map(|x| S::max(x, S::sub(zero, x)));
            let largest = S::largest(S::max(a, b));
            // Tiles so small that the quotient would overflow are zero.
            let inverse = S::splat(if largest > 1e-30 { LARGEST as f32 / largest } else { 0.0 });
            out.scale = largest / LARGEST as f32;
            let (mut high, mut low) = ([[0i8; LANES]; 2], [[0i8; LANES]; 2]);
            for (i, x) in halves.into_iter().enumerate() {
                let q = S::round(S::mul(x, inverse));
                // Whole numbers below 2^24: all of this is exact.
                let whole = S::to_float(q);
                let upper = S::round(S::mul(whole, S::splat(1.0 / LOW as f32)));
                let lower = S::round(S::fma(S::to_float(upper), S::splat(-LOW as f32), whole));
                S::store_i8(upper, &mut high[i]);
                S::store_i8(lower, &mut low[i]);
                let sum = S::sum_i(q);
                out.sums[i] = sum;
                out.scaled_sums[i] = sum as f32 * out.scale;
            }
            (out.high, out.low) = (words(&high), words(&low));
        }
    }
}

/// Four bytes to a word.
#[inline(always)]
fn words(bytes: &[[i8; LANES]; 2]) -> [i32; TILE / 4] {
    let bytes = bytes.as_flattened();
    std::array::from_fn(|i| i32::from_le_bytes(std::array::from_fn(|j| bytes[4 * i + j] as u8)))
}

/// Rotates every head of a row, in place.
pub(crate) struct Rotate<'a> {
    /// `[head][head_dim]`.
    pub(crate) x: &'a mut [f32],
    pub(crate) head_dim: usize,
    pub(crate) layout: RopeLayout,
    /// One per pair.
    pub(crate) cos: &'a [f32],
    pub(crate) sin: &'a [f32],
}

impl Kernel for Rotate<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let pairs = self.cos.len();
        for head in self.x.chunks_exact_mut(self.head_dim) {
            match self.layout {
                RopeLayout::Interleaved => {
                    for ((pair, cos), sin) in head.as_chunks_mut().0.iter_mut().zip(self.cos).zip(self.sin) {
                        let [a, b]: [f32; 2] = *pair;
                        *pair = [a * cos - b * sin, a * sin + b * cos];
                    }
                }
                RopeLayout::SplitHalf => {
                    let (left, right) = head[..2 * pairs].split_at_mut(pairs);
                    for (((a, b), cos), sin) in left.iter_mut().zip(right).zip(self.cos).zip(self.sin) {
                        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                    }
                }
            }
        }
    }
}

/// The largest of some logits, the lowest index among equals; NaN and −∞ never win.
pub(crate) struct Argmax<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) best: &'a mut Option<(f32, u32)>,
}

impl Kernel for Argmax<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let mut largest = S::splat(f32::NEG_INFINITY);
        let (whole, rest) = self.x.as_chunks::<LANES>();
        for x in whole {
            let x = S::load(x);
            // Not `max`, whose answer for NaN depends on the instruction set.
            largest = S::select_less(largest, x, x, largest);
        }
        let best = rest.iter().fold(S::largest(largest), |best, &x| if x > best { x } else { best });
        *self.best = None;
        if best > f32::NEG_INFINITY {
            *self.best = self.x.iter().position(|&x| x == best).map(|at| (best, at as u32));
        }
    }
}
