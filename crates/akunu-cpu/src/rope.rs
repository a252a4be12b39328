//! Sines and cosines by position, computed when a position is first used.

use akunu_program::rope::{RopeLayout, RopeTable};

pub(crate) struct RopeRows {
    pub(crate) layout: RopeLayout,
    frequencies: Vec<f32>,
    magnitude: f32,
    /// `[position][pair]`.
    cos: Vec<f32>,
    sin: Vec<f32>,
    /// `[position]`: whether its row has been computed.
    known: Vec<bool>,
}

impl RopeRows {
    pub(crate) fn new(table: &RopeTable, context: usize) -> RopeRows {
        let pairs = table.frequencies.len();
        RopeRows {
            layout: table.layout,
            frequencies: table.frequencies.clone(),
            magnitude: table.magnitude,
            cos: vec![0.0; context * pairs],
            sin: vec![0.0; context * pairs],
            known: vec![false; context],
        }
    }

    /// Sees to it that a position's row is there.
    pub(crate) fn prepare(&mut self, position: usize) {
        let pairs = self.frequencies.len();
        if std::mem::replace(&mut self.known[position], true) {
            return;
        }
        let at = position * pairs..(position + 1) * pairs;
        let magnitude = f64::from(self.magnitude);
        for ((cos, sin), frequency) in
            self.cos[at.clone()].iter_mut().zip(&mut self.sin[at]).zip(&self.frequencies)
        {
            let angle = position as f64 * f64::from(*frequency);
            *cos = (angle.cos() * magnitude) as f32;
            *sin = (angle.sin() * magnitude) as f32;
        }
    }

    /// Cosines and sines that move what was rotated before by so many positions; magnitudes stay.
    pub(crate) fn turn(&self, by: i32) -> (Vec<f32>, Vec<f32>) {
        let angles = self.frequencies.iter().map(|frequency| f64::from(by) * f64::from(*frequency));
        angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip()
    }

    /// Cosines and sines of a prepared position.
    pub(crate) fn row(&self, position: usize) -> (&[f32], &[f32]) {
        let pairs = self.frequencies.len();
        let at = position * pairs..(position + 1) * pairs;
        (&self.cos[at.clone()], &self.sin[at])
    }
}
