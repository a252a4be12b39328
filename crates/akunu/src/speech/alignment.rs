//! When each token is said: the shortest way through what tokens attend to.

/// Width of the median filter, in states.
const MEDIAN: usize = 7;

/// Attention of some heads, `[heads][tokens][states]`.
pub(super) struct Attention<'a> {
    pub weights: &'a [f32],
    pub heads: usize,
    pub tokens: usize,
    pub states: usize,
}

impl Attention<'_> {
    /// The state at which each of the tokens from `first` to before `last` begins, when only the first `heard` states are sound.
    pub fn beginnings(&self, first: usize, last: usize, heard: usize) -> Vec<usize> {
        let heard = heard.clamp(1, self.states);
        let rows = last - first;
        let mut mean = vec![0.0f32; rows * heard];
        let mut head = vec![0.0f32; self.tokens * heard];
        let mut filtered = vec![0.0f32; heard];
        for weights in self.weights.chunks_exact(self.tokens * self.states).take(self.heads) {
            for (row, weights) in head.chunks_exact_mut(heard).zip(weights.chunks_exact(self.states)) {
                let sum: f32 = weights[..heard].iter().sum();
                // All attention may lie on what is no sound.
                let scale = if sum > 0.0 { 1.0 / sum } else { 0.0 };
                row.iter_mut().zip(weights).for_each(|(out, weight)| *out = weight * scale);
            }
            standardise(&mut head, heard);
            let wanted = head[first * heard..last * heard].chunks_exact(heard);
            for (row, sums) in wanted.zip(mean.chunks_exact_mut(heard)) {
                median(row, &mut filtered);
                sums.iter_mut().zip(&filtered).for_each(|(sum, value)| *sum += value / self.heads as f32);
            }
        }
        mean.iter_mut().for_each(|value| *value = -*value);
        warp(&mean, rows, heard)
    }
}

/// Makes every column's mean zero and its standard deviation one.
fn standardise(values: &mut [f32], columns: usize) {
    let rows = (values.len() / columns) as f64;
    let mut sums = vec![(0.0f64, 0.0f64); columns];
    for row in values.chunks_exact(columns) {
        for ((sum, squares), &value) in sums.iter_mut().zip(row) {
            *sum += f64::from(value);
            *squares += f64::from(value) * f64::from(value);
        }
    }
    for row in values.chunks_exact_mut(columns) {
        for ((sum, squares), value) in sums.iter().zip(row) {
            let mean = sum / rows;
            let deviation = (squares / rows - mean * mean).max(0.0).sqrt();
            *value = if deviation > 0.0 { ((f64::from(*value) - mean) / deviation) as f32 } else { 0.0 };
        }
    }
}

/// The median of the values around each; before the beginning and after the end they are mirrored.
fn median(values: &[f32], out: &mut [f32]) {
    let reach = MEDIAN / 2;
    let count = values.len();
    if count <= reach {
        out.copy_from_slice(values);
        return;
    }
    for (i, out) in out.iter_mut().enumerate() {
        let mut around = [0.0; MEDIAN];
        for (k, value) in around.iter_mut().enumerate() {
            let at = (i + k).abs_diff(reach);
            *value = values[if at < count { at } else { 2 * (count - 1) - at }];
        }
        around.sort_unstable_by(f32::total_cmp);
        *out = around[reach];
    }
}

/// Where the way of least cost through `[rows][columns]` enters each row: dynamic time warping. A step goes one row down, one
/// column on, or both.
fn warp(costs: &[f32], rows: usize, columns: usize) -> Vec<usize> {
    #[derive(Clone, Copy)]
    enum Step {
        Both,
        Row,
        Column,
    }
    let width = columns + 1;
    let mut steps = vec![Step::Column; (rows + 1) * width];
    let mut above = vec![f32::INFINITY; width];
    above[0] = 0.0;
    for i in 1..=rows {
        let mut here = vec![f32::INFINITY; width];
        for j in 1..=columns {
            let (both, row, column) = (above[j - 1], above[j], here[j - 1]);
            let (cost, step) = if both < row && both < column {
                (both, Step::Both)
            } else if row < both && row < column {
                (row, Step::Row)
            } else {
                (column, Step::Column)
            };
            here[j] = costs[(i - 1) * columns + j - 1] + cost;
            steps[i * width + j] = step;
        }
        above = here;
    }
    let mut entered = vec![0; rows];
    let (mut i, mut j) = (rows, columns);
    while i > 0 {
        // Walking back, the last visit of a row is its first.
        entered[i - 1] = j.saturating_sub(1);
        let step = if j == 0 { Step::Row } else { steps[i * width + j] };
        match step {
            Step::Both => (i, j) = (i - 1, j - 1),
            Step::Row => i -= 1,
            Step::Column => j -= 1,
        }
    }
    entered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_follows_the_diagonal_of_what_is_cheap() {
        // Token 0 at states 0 to 2, token 1 at 3, token 2 from 4 on.
        let at = [0, 0, 0, 1, 2, 2];
        let costs: Vec<f32> =
            (0..3).flat_map(|row| at.map(|cheap| if row == cheap { -1.0 } else { 1.0 })).collect();
        assert_eq!(warp(&costs, 3, 6), [0, 3, 4]);
        assert_eq!(warp(&[0.5], 1, 1), [0]);
        // More tokens than states: several begin in the same one.
        assert_eq!(warp(&[-1.0, -1.0, -1.0], 3, 1), [0, 0, 0]);
    }

    #[test]
    fn medians_are_mirrored_at_the_ends() {
        let mut out = [0.0; 8];
        median(&[9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0], &mut out);
        // Around the first: 2 8 1 [9] 1 8 2; around the last: 7 3 6 [4] 6 3 7.
        assert_eq!((out[0], out[3], out[7]), (2.0, 6.0, 6.0));
        let mut short = [0.0; 3];
        median(&[3.0, 1.0, 2.0], &mut short);
        assert_eq!(short, [3.0, 1.0, 2.0]);
    }

    #[test]
    fn heads_are_weighed_alike_however_sharp_they_are() {
        // Two heads, three tokens, eight states; the second head is the first times a number, plus one.
        let first: Vec<f32> = (0..24).map(|i| if i % 8 / 3 == i / 8 { 0.3 } else { 0.02 }).collect();
        let weights: Vec<f32> = first.iter().copied().chain(first.iter().map(|x| x * 0.1 + 1.0)).collect();
        let attention = Attention { weights: &weights, heads: 2, tokens: 3, states: 8 };
        assert_eq!(attention.beginnings(0, 3, 8).len(), 3);
        assert!(attention.beginnings(0, 3, 8).is_sorted());
        assert_eq!(attention.beginnings(1, 3, 4).len(), 2);
    }
}
