//! The arithmetic of each operation that does not touch the cache.

use crate::program::{Activation, FRAMES_PER_TOKEN, Index, NormKind};
use crate::rope::{RopeLayout, RopeTable};
use crate::slots::Row;

/// Looks up one row of the table per token.
pub(super) fn embed(table: &[f32], width: usize, by: Index, scale: f32, rows: &[Row]) -> Vec<f32> {
    rows.iter().flat_map(|row| &table[row.index(by) * width..][..width]).map(|x| scale * x).collect()
}

/// Every `stride`-th frame of `width` numbers beside the one before and the one after it, column by column; zeros beyond the
/// ends of its span.
pub(super) fn unfold(x: &[f32], width: usize, stride: usize, rows: &[Row]) -> Vec<f32> {
    let mut out = Vec::with_capacity(3 * x.len() / stride);
    for frame in (0..x.len() / width).step_by(stride) {
        let row = &rows[frame / FRAMES_PER_TOKEN];
        let at = FRAMES_PER_TOKEN * row.position as usize + frame % FRAMES_PER_TOKEN;
        let last = FRAMES_PER_TOKEN * row.end as usize - 1;
        for column in 0..width {
            let tap = |there: bool, frame: usize| if there { x[frame * width + column] } else { 0.0 };
            out.extend([tap(at > 0, frame.wrapping_sub(1)), tap(true, frame), tap(at < last, frame + 1)]);
        }
    }
    out
}

/// Normalises every `width` consecutive elements.
pub(super) fn norm(
    x: &[f32],
    width: usize,
    kind: NormKind,
    eps: f32,
    weight: &[f32],
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    for x in x.chunks_exact(width) {
        let mean = |f: &dyn Fn(f64) -> f64| x.iter().map(|&v| f(f64::from(v))).sum::<f64>() / width as f64;
        match kind {
            NormKind::Rms { offset } => {
                let scale = 1.0 / (mean(&|v| v * v) + f64::from(eps)).sqrt();
                out.extend(x.iter().zip(weight).map(|(v, w)| (f64::from(*v) * scale) as f32 * (w + offset)));
            }
            NormKind::Layer => {
                let center = mean(&|v| v);
                let scale = 1.0 / (mean(&|v| (v - center) * (v - center)) + f64::from(eps)).sqrt();
                out.extend(x.iter().zip(weight).enumerate().map(|(i, (v, w))| {
                    ((f64::from(*v) - center) * scale) as f32 * w + bias.map_or(0.0, |b| b[i])
                }));
            }
        }
    }
    out
}

/// `x`: `[rows][width]`, `weight`: `[out][width]`; gives `[rows][out]`.
pub(super) fn linear(x: &[f32], width: usize, weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len() / width * (weight.len() / width));
    for x in x.chunks_exact(width) {
        out.extend(
            weight.chunks_exact(width).enumerate().map(|(o, w)| dot(x, w) + bias.map_or(0.0, |b| b[o])),
        );
    }
    out
}

/// The sum of products, in `f64`: eight sums beside one another, since each addition waits for the one before.
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    let (x, x_rest) = x.as_chunks::<8>();
    let (y, y_rest) = y.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (x, y) in x.iter().zip(y) {
        for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
            *sum += f64::from(*x) * f64::from(*y);
        }
    }
    let rest = x_rest.iter().zip(y_rest).map(|(x, y)| f64::from(*x) * f64::from(*y));
    (sums.iter().sum::<f64>() + rest.sum::<f64>()) as f32
}

/// Rotates each head of `dim` elements in rows of `width`, in place.
pub(super) fn rope(x: &mut [f32], width: usize, dim: usize, table: &RopeTable, rows: &[Row]) {
    for (x, row) in x.chunks_exact_mut(width).zip(rows) {
        for head in x.chunks_exact_mut(dim) {
            turn(head, table, f64::from(row.position), table.magnitude);
        }
    }
}

/// Rotates one head by so many positions and multiplies what is rotated by `magnitude`.
pub(super) fn turn(head: &mut [f32], table: &RopeTable, positions: f64, magnitude: f32) {
    let pairs = table.frequencies.len();
    for (i, &frequency) in table.frequencies.iter().enumerate() {
        let angle = positions * f64::from(frequency);
        let magnitude = f64::from(magnitude);
        let (sin, cos) = ((angle.sin() * magnitude) as f32, (angle.cos() * magnitude) as f32);
        let (a, b) = match table.layout {
            RopeLayout::Interleaved => (2 * i, 2 * i + 1),
            RopeLayout::SplitHalf => (i, i + pairs),
        };
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
    }
}

/// `activation(gate) · up`.
pub(super) fn gate(gate: &[f32], up: &[f32], activation: Activation) -> Vec<f32> {
    gate.iter().zip(up).map(|(g, u)| activate(*g, activation) * u).collect()
}

pub(super) fn activate(x: f32, activation: Activation) -> f32 {
    let x = f64::from(x);
    let y = match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::GeluErf => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
    };
    y as f32
}

/// The error function, by its power series near 0 and a continued fraction of its complement further out.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a > 6.0 {
        return x.signum();
    }
    if a < 2.0 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        return x.signum() * sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    let fraction = (1..60).rev().fold(a, |f, n| a + f64::from(n) / 2.0 / f);
    x.signum() * (1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt()))
}

/// `cap · tanh(x / cap)`, or `x`.
pub(super) fn cap(x: f32, cap: Option<f32>) -> f32 {
    cap.map_or(x, |c| c * (x / c).tanh())
}

/// Each row's `chosen` best experts as (index, weight) pairs.
pub(super) fn route(logits: &[f32], experts: usize, chosen: usize, normalize: bool) -> Vec<f32> {
    let mut out = Vec::with_capacity(logits.len() / experts * chosen * 2);
    for logits in logits.chunks_exact(experts) {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exps: Vec<f64> = logits.iter().map(|z| f64::from(z - max).exp()).collect();
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a])); // stable: the lower index first among equals
        order.truncate(chosen);
        let total: f64 = if normalize { order.iter().map(|&e| exps[e]).sum() } else { exps.iter().sum() };
        out.extend(order.iter().flat_map(|&e| [e as f32, (exps[e] / total) as f32]));
    }
    out
}

/// The weighted sum of each row's chosen networks `[gate, up, down]`.
pub(super) fn experts(
    (x, width): (&[f32], usize),
    (routes, chosen): (&[f32], usize),
    networks: &[[&[f32]; 3]],
    activation: Activation,
) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    for ((x, routes), out) in
        x.chunks_exact(width).zip(routes.chunks_exact(2 * chosen)).zip(out.chunks_exact_mut(width))
    {
        for route in routes.chunks_exact(2) {
            let [gate_w, up_w, down_w] = networks[route[0] as usize];
            let inner = gate(&linear(x, width, gate_w, None), &linear(x, width, up_w, None), activation);
            for (out, y) in out.iter_mut().zip(linear(&inner, inner.len(), down_w, None)) {
                *out += route[1] * y;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_agrees_with_tabulated_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, y) in
            [(0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0), (3.0, 0.999_977_909_5)]
        {
            assert!((erf(x) - y).abs() < 1e-9, "erf({x}) = {}", erf(x));
            assert!((erf(-x) + y).abs() < 1e-9);
        }
    }

    #[test]
    fn routing_breaks_ties_towards_the_lower_index() {
        let routes = route(&[1.0, 3.0, 3.0, 0.0], 4, 2, true);
        assert_eq!(routes, [1.0, 0.5, 2.0, 0.5]);
    }
}
