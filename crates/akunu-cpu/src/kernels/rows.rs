//! Kernels that work on one row at a time.

use std::mem::offset_of;

use akunu_program::program::{Activation, NormKind};
use akunu_program::rope::RopeLayout;

use crate::pack::TILE;
use crate::simd::{Kernel, LANES, Simd};

use super::product::{Group, LARGEST};

#[inline(always)]
fn padded(x: &[f32]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..x.len()].copy_from_slice(x);
    lanes
}

/// A function of two vectors: what a closure would be, if closures could be inlined for sure.
trait Pairwise {
    fn of<S: Simd>(&self, x: S::F, y: S::F) -> S::F;
}

/// `out = f(x, y)`, element by element.
#[inline(always)]
fn zip<S: Simd>(x: &[f32], y: &[f32], out: &mut [f32], f: &impl Pairwise) {
    let (xs, x) = x.as_chunks::<LANES>();
    let (ys, y) = y.as_chunks::<LANES>();
    let (outs, out) = out.as_chunks_mut::<LANES>();
    for ((x, y), out) in xs.iter().zip(ys).zip(outs) {
        S::store(f.of::<S>(S::load(x), S::load(y)), out);
    }
    if !out.is_empty() {
        let mut lanes = [0.0; LANES];
        S::store(f.of::<S>(S::load(&padded(x)), S::load(&padded(y))), &mut lanes);
        out.copy_from_slice(&lanes[..out.len()]);
    }
}

/// `Σ (x - center)`, or the sum of their squares.
#[inline(always)]
fn sum<S: Simd, const SQUARES: bool>(x: &[f32], center: f32) -> f32 {
    let center_vector = S::splat(center);
    let mut total = S::splat(0.0);
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        let d = S::sub(S::load(x), center_vector);
        total = if SQUARES { S::fma(d, d, total) } else { S::add(total, d) };
    }
    let mut sum = S::sum(total);
    for x in rest {
        let d = x - center;
        sum += if SQUARES { d * d } else { d };
    }
    sum
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
        zip::<S>(self.x, self.y, self.out, &Sum);
    }
}

struct Sum;

impl Pairwise for Sum {
    #[inline(always)]
    fn of<S: Simd>(&self, x: S::F, y: S::F) -> S::F {
        S::add(x, y)
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
            let (center, offset) = match self.kind {
                NormKind::Rms { offset } => (0.0, offset),
                NormKind::Layer => (sum::<S, false>(x, 0.0) / count, 0.0),
            };
            let variance = sum::<S, true>(x, center) / count;
            let scale = 1.0 / (variance + self.eps).sqrt();
            zip::<S>(x, self.weight, out, &Normal { center, scale, offset });
            if let Some(bias) = self.bias {
                out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
            }
        }
    }
}

struct Normal {
    center: f32,
    scale: f32,
    /// Added to the weights.
    offset: f32,
}

impl Pairwise for Normal {
    #[inline(always)]
    fn of<S: Simd>(&self, x: S::F, weight: S::F) -> S::F {
        let x = S::mul(S::sub(x, S::splat(self.center)), S::splat(self.scale));
        S::mul(x, S::add(weight, S::splat(self.offset)))
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
        match self.activation {
            Activation::Silu => zip::<S>(self.gate, self.up, self.out, &Silu),
            Activation::GeluTanh => zip::<S>(self.gate, self.up, self.out, &GeluTanh),
            Activation::GeluErf => zip::<S>(self.gate, self.up, self.out, &GeluErf),
        }
    }
}

/// One vector of [`Gate`], for kernels that go on with it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn gate<S: Simd>(activation: Activation, gate: S::F, up: S::F) -> S::F {
    match activation {
        Activation::Silu => Silu.of::<S>(gate, up),
        Activation::GeluTanh => GeluTanh.of::<S>(gate, up),
        Activation::GeluErf => GeluErf.of::<S>(gate, up),
    }
}

/// `x = activation(x)`.
pub(crate) struct Activate<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) activation: Activation,
}

impl Kernel for Activate<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        match self.activation {
            Activation::Silu => each::<S>(self.x, &Silu),
            Activation::GeluTanh => each::<S>(self.x, &GeluTanh),
            Activation::GeluErf => each::<S>(self.x, &GeluErf),
        }
    }
}

/// `x = f(x, 1)`, element by element.
#[inline(always)]
fn each<S: Simd>(x: &mut [f32], f: &impl Pairwise) {
    let one = S::splat(1.0);
    let (whole, rest) = x.as_chunks_mut::<LANES>();
    for x in whole {
        S::store(f.of::<S>(S::load(x), one), x);
    }
    if !rest.is_empty() {
        let mut lanes = [0.0; LANES];
        S::store(f.of::<S>(S::load(&padded(rest)), one), &mut lanes);
        rest.copy_from_slice(&lanes[..rest.len()]);
    }
}

struct Silu;

impl Pairwise for Silu {
    #[inline(always)]
    fn of<S: Simd>(&self, gate: S::F, up: S::F) -> S::F {
        let e = S::exp(S::sub(S::splat(0.0), gate));
        S::mul(S::mul(gate, S::reciprocal(S::add(S::splat(1.0), e))), up)
    }
}

struct GeluTanh;

impl Pairwise for GeluTanh {
    #[inline(always)]
    fn of<S: Simd>(&self, gate: S::F, up: S::F) -> S::F {
        let cube = S::mul(S::mul(gate, gate), gate);
        let inner = S::mul(S::splat(0.797_884_6), S::fma(S::splat(0.044_715), cube, gate));
        S::mul(S::mul(S::mul(S::splat(0.5), gate), S::add(S::splat(1.0), S::tanh(inner))), up)
    }
}

struct GeluErf;

impl Pairwise for GeluErf {
    #[inline(always)]
    fn of<S: Simd>(&self, gate: S::F, up: S::F) -> S::F {
        let erf = S::erf(S::mul(gate, S::splat(std::f32::consts::FRAC_1_SQRT_2)));
        S::mul(S::mul(S::mul(S::splat(0.5), gate), S::add(S::splat(1.0), erf)), up)
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
        let (whole, rest) = self.x.as_chunks_mut::<LANES>();
        for x in whole {
            S::store(capped::<S>(S::load(x), self.scale, self.cap), x);
        }
        let mut lanes = [0.0; LANES];
        S::store(capped::<S>(S::load(&padded(rest)), self.scale, self.cap), &mut lanes);
        rest.copy_from_slice(&lanes[..rest.len()]);
    }
}

#[inline(always)]
fn capped<S: Simd>(x: S::F, scale: f32, cap: Option<f32>) -> S::F {
    let x = S::mul(x, S::splat(scale));
    match cap {
        Some(cap) => S::mul(S::splat(cap), S::tanh(S::div(x, S::splat(cap)))),
        None => x,
    }
}

/// The largest number that is made an integer, 1.6e35. Tiles of bf16 sum up whole numbers below 2^24 under a tile's scale
/// (`tiles/several.rs`): these sums are finite.
const MOST: f32 = LARGEST as f32 * f32::from_bits((127 + 103) << 23);

/// The scale of a tile whose largest number is this, and its inverse: the least power of two under which it rounds to no more than
/// [`LARGEST`]. Tiles so small that the inverse would overflow are zero; what is not finite, or more than [`MOST`], is no number under
/// any scale.
#[inline(always)]
pub(crate) fn scale_of(largest: f32) -> (f32, f32) {
    const FRACTION: u32 = (1 << 23) - 1;
    const SQUARED_ONE: u32 = 254 << 23;
    if !matches!(largest, 0.0..=MOST) {
        return (f32::NAN, 0.0);
    }
    let scale = ((largest * (1.0 / LARGEST as f32)).to_bits() + FRACTION) & !FRACTION;
    let inverse = if largest > 1e-30 { f32::from_bits(SQUARED_ONE - scale) } else { 0.0 };
    (f32::from_bits(scale), inverse)
}

/// Activations to integers within ±[`LARGEST`], each tile of 32 under its own scale, a power of two: half of the range is used at least.
pub(crate) struct Quantize<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) out: &'a mut [Group],
}

impl Kernel for Quantize<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        for (x, out) in self.x.as_chunks::<TILE>().0.iter().zip(self.out) {
            let [x0, x1] = x.as_chunks::<LANES>().0 else { unreachable!() };
            let x = [S::load(x0), S::load(x1)];
            let (scale, inverse) = scale_of(S::magnitude(x));
            if scale.is_nan() {
                *out = Group { scale, scaled_sums: [scale; 3], ..Group::default() };
                continue;
            }
            let [a, b] = S::store_parts(x, inverse, parts(out));
            out.scale = scale;
            out.negated_sums = [-a, -b, -(a + b)];
            out.scaled_sums = [a as f32 * scale, b as f32 * scale, (a + b) as f32 * scale];
        }
    }
}

/// The bytes of the high and low words, the first of each in the lowest one. They are written where they belong: a word read back
/// from bytes written one after the other has to wait for them.
#[inline(always)]
fn parts(group: &mut Group) -> &mut [[i8; LANES]; 4] {
    const {
        assert!(cfg!(target_endian = "little") && offset_of!(Group, high) == 0);
        assert!(offset_of!(Group, low) == TILE && offset_of!(Group, scale) == 2 * TILE);
    }
    // SAFETY: the first bytes of a group are its high parts, and then the low ones, as is asserted above; any bytes are integers.
    unsafe { &mut *(&raw mut *group).cast() }
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
        /// What is looked through once more for the place of the largest.
        const PART: usize = 64 * LANES;
        let (mut best, mut first) = (f32::NEG_INFINITY, 0);
        for (i, part) in self.x.chunks(PART).enumerate() {
            let mut largest = S::splat(f32::NEG_INFINITY);
            let (whole, rest) = part.as_chunks::<LANES>();
            for x in whole {
                let x = S::load(x);
                // Not `max`, whose answer for NaN depends on the instruction set.
                largest = S::select_less(largest, x, x, largest);
            }
            let largest = rest.iter().fold(S::largest(largest), |best, &x| if x > best { x } else { best });
            if largest > best {
                (best, first) = (largest, i * PART);
            }
        }
        *self.best = None;
        if best > f32::NEG_INFINITY {
            let at = self.x[first..].iter().position(|&x| x == best);
            *self.best = at.map(|at| (best, (first + at) as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Group, LANES, LARGEST, MOST, Quantize, TILE, scale_of};
    use crate::Isa;

    #[test]
    fn scales_are_powers_of_two_under_which_the_largest_takes_half_of_the_range() {
        for largest in [1e-29, 0.7, 1.0, 16255.9, 16256.0, 16256.1, MOST] {
            let (scale, inverse) = scale_of(largest);
            assert_eq!((scale.to_bits() << 9, scale * inverse), (0, 1.0), "{largest}");
            let steps = (largest * inverse).round() as i32;
            assert!((LARGEST / 2..=LARGEST).contains(&steps), "{largest}: {steps}");
        }
        assert_eq!(scale_of(0.0).1, 0.0);
        assert_eq!(scale_of(MOST).0 * (1 << 24) as f32, 2f32.powi(127));
        for largest in [f32::NAN, -f32::NAN, f32::INFINITY, MOST.next_up()] {
            assert!(scale_of(largest).0.is_nan());
        }
    }

    #[test]
    fn a_tile_with_something_that_is_not_finite_has_no_scale() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for wrong in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in 0..TILE {
                    let mut x = [0.5; 2 * TILE];
                    x[at] = wrong;
                    let mut out = [Group::default(); 2];
                    isa.run(Quantize { x: &x, out: &mut out });
                    assert!(
                        out[0].scale.is_nan() && out[0].scaled_sums.iter().all(|x| x.is_nan()),
                        "{isa}: {at}"
                    );
                    assert_eq!(out[0].negated_sums, [0; 3]);
                    assert!(out[1].scale.is_finite() && out[1].negated_sums[0] < 0, "{isa}");
                }
            }
        }
    }

    /// Of halves that are to be rounded to even ones above all, in both places where they are rounded.
    #[test]
    fn integers_and_their_sums_are_the_same_with_every_instruction_set() {
        let number = |i: usize| match i % TILE {
            0 => 16256.0,
            1 => -16256.0,
            n if i.is_multiple_of(3) => (n * 64) as f32 - 1000.0,
            n => (n * i) as f32 * 1.5 - 8000.5,
        };
        let x: Vec<f32> = (0..40 * TILE).map(|i| number(i) * [1.0, 0.125, 0.0, -4.0][i / TILE % 4]).collect();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let mut out = vec![Group::default(); x.len() / TILE];
            isa.run(Quantize { x: &x, out: &mut out });
            for (x, group) in x.as_chunks::<TILE>().0.iter().zip(&out) {
                let (scale, inverse) = scale_of(x.iter().fold(0.0, |most, x| x.abs().max(most)));
                let whole = x.map(|x| (x * inverse).round_ties_even());
                let high = whole.map(|x| (x / 128.0).round_ties_even());
                let bytes = |words: [i32; TILE / 4]| words.map(i32::to_le_bytes).concat();
                let expected = |x: &[f32]| x.iter().map(|x| *x as i8 as u8).collect::<Vec<_>>();
                assert_eq!((group.scale, bytes(group.high)), (scale, expected(&high)), "{isa}");
                let low: Vec<f32> = whole.iter().zip(high).map(|(x, high)| x - 128.0 * high).collect();
                assert_eq!(bytes(group.low), expected(&low), "{isa}");
                let sums = [&whole[..LANES], &whole[LANES..], &whole].map(|x| x.iter().sum::<f32>());
                assert_eq!(
                    (group.negated_sums, group.scaled_sums),
                    (sums.map(|s| -(s as i32)), sums.map(|s| s * scale))
                );
            }
        }
    }
}
