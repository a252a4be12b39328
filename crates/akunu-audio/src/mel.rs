//! Log-mel spectrograms as OpenAI's Whisper defines them.
//!
//! Windows of 400 samples (25 ms), one every 160 (10 ms), centred: the sound is mirrored before its beginning and silent after its
//! end. Power spectrum, bands on Slaney's mel scale, logarithm to base 10. Values are then cut at 8 below the highest of the whole
//! sound, and moved and scaled by (x + 4) / 4.

use crate::spectrum::{BINS, SIZE, Spectrum};
use crate::{Decoder, RATE, Result};

/// Samples from one frame to the next.
pub const HOP: usize = 160;
/// Power below which everything is alike.
const FLOOR: f32 = 1e-10;
/// How far values may lie below the highest, in powers of ten.
const RANGE: f32 = 8.0;

/// The log-mel spectrogram of a whole sound.
#[derive(Clone, Debug)]
pub struct Mel {
    bands: usize,
    /// Logarithms of power, before the cut: `[frame][band]`. Frames that see nothing but the silence after the end are left out.
    values: Vec<f32>,
    highest: f32,
    samples: u64,
}

impl Mel {
    /// The spectrogram of all a decoder gives.
    pub fn read(decoder: &mut Decoder, bands: usize) -> Result<Mel> {
        let mut builder = MelBuilder::new(bands);
        while let Some(piece) = decoder.next_piece()? {
            builder.push(piece);
        }
        Ok(builder.finish())
    }

    /// The spectrogram of samples.
    pub fn of(samples: &[f32], bands: usize) -> Mel {
        let mut builder = MelBuilder::new(bands);
        builder.push(samples);
        builder.finish()
    }

    /// Bands of a frame.
    pub fn bands(&self) -> usize {
        self.bands
    }

    /// Whole frames of sound, 100 a second.
    pub fn frames(&self) -> usize {
        (self.samples / HOP as u64) as usize
    }

    /// Samples of the sound, at [`RATE`].
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Length of the sound in seconds.
    pub fn seconds(&self) -> f64 {
        self.samples as f64 / f64::from(RATE)
    }

    /// Whether there is no sound at all in `count` frames from `start` on: digital silence.
    pub fn is_silent(&self, start: usize, count: usize) -> bool {
        let length = self.values.len();
        let first = (start * self.bands).min(length);
        let last = (first + count * self.bands).min(length);
        self.values[first..last].iter().all(|&value| value <= FLOOR.log10())
    }

    /// `count` frames from `start` on: `[count][bands]`. After the end of the sound is silence.
    pub fn window(&self, start: usize, count: usize, out: &mut Vec<f32>) {
        let lowest = self.highest - RANGE;
        let scale = |value: f32| (value.max(lowest) + 4.0) / 4.0;
        let length = self.values.len();
        let first = (start * self.bands).min(length);
        let last = (first + count * self.bands).min(length);
        out.clear();
        out.extend(self.values[first..last].iter().map(|&value| scale(value)));
        out.resize(count * self.bands, scale(FLOOR.log10()));
    }
}

/// Makes a [`Mel`] of sound that comes in pieces.
pub struct MelBuilder {
    spectrum: Spectrum,
    hann: [f32; SIZE],
    filters: Vec<Filter>,
    /// Sound that windows to come will see, from the first sample of the next one on.
    waiting: Vec<f32>,
    /// Whether the mirrored beginning is among it.
    begun: bool,
    values: Vec<f32>,
    samples: u64,
}

/// One band: the frequencies it sees and their weights.
struct Filter {
    first: usize,
    weights: Vec<f32>,
}

impl MelBuilder {
    /// Begins a spectrogram of so many bands: Whisper has 80, from its third version on 128.
    pub fn new(bands: usize) -> MelBuilder {
        let mut hann = [0.0; SIZE];
        for (i, value) in hann.iter_mut().enumerate() {
            let turn = 2.0 * std::f64::consts::PI * i as f64 / SIZE as f64;
            *value = (0.5 - 0.5 * turn.cos()) as f32;
        }
        MelBuilder {
            spectrum: Spectrum::new(),
            hann,
            filters: filters(bands).chunks_exact(BINS).map(Filter::new).collect(),
            waiting: Vec::new(),
            begun: false,
            values: Vec::new(),
            samples: 0,
        }
    }

    /// Takes more of the sound.
    pub fn push(&mut self, samples: &[f32]) {
        self.samples += samples.len() as u64;
        self.waiting.extend_from_slice(samples);
        if self.begun || self.waiting.len() > SIZE / 2 {
            self.begin();
            self.run(usize::MAX);
        }
    }

    /// The spectrogram of all that was taken.
    pub fn finish(mut self) -> Mel {
        self.waiting.extend([0.0; 2 * SIZE]);
        self.begin();
        // The last frame that sees any sound begins half a window before it.
        let frames = (self.samples as usize + SIZE / 2).div_ceil(HOP);
        self.run(frames);
        let highest = self.values.iter().copied().fold(FLOOR.log10(), f32::max);
        Mel { bands: self.filters.len(), values: self.values, highest, samples: self.samples }
    }

    /// Puts half a window of the sound, mirrored, before it. There is more than that of it.
    fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            let mirrored: Vec<f32> = self.waiting[1..=SIZE / 2].iter().rev().copied().collect();
            self.waiting.splice(..0, mirrored);
        }
    }

    /// Computes the frames whose sound is there, until there are `frames` of them.
    fn run(&mut self, frames: usize) {
        let bands = self.filters.len();
        let mut start = 0;
        while start + SIZE <= self.waiting.len() && self.values.len() < frames.saturating_mul(bands) {
            self.frame(start);
            start += HOP;
        }
        self.waiting.drain(..start);
    }

    /// Computes the frame whose window begins at `start`.
    fn frame(&mut self, start: usize) {
        let (mut window, mut power) = ([0.0; SIZE], [0.0; BINS]);
        for ((out, sample), weight) in window.iter_mut().zip(&self.waiting[start..]).zip(&self.hann) {
            *out = sample * weight;
        }
        self.spectrum.power(&window, &mut power);
        for filter in &self.filters {
            let seen = &power[filter.first..filter.first + filter.weights.len()];
            let sum: f32 = seen.iter().zip(&filter.weights).map(|(power, weight)| power * weight).sum();
            self.values.push(sum.max(FLOOR).log10());
        }
    }
}

impl Filter {
    /// The part of a row of [`filters`] that is not zero.
    fn new(row: &[f32]) -> Filter {
        let first = row.iter().position(|&weight| weight != 0.0).unwrap_or(0);
        let last = row.iter().rposition(|&weight| weight != 0.0).map_or(first, |last| last + 1);
        Filter { first, weights: row[first..last].to_vec() }
    }
}

/// Triangles on Slaney's mel scale from 0 to 8 kHz, each of area 1 on the scale of frequencies: `[band][frequency]`, 201 frequencies.
pub fn filters(bands: usize) -> Vec<f32> {
    let highest = to_mel(f64::from(RATE) / 2.0);
    let edges: Vec<f64> = (0..bands + 2).map(|i| to_hertz(highest * i as f64 / (bands + 1) as f64)).collect();
    let mut weights = Vec::with_capacity(bands * BINS);
    for edge in edges.windows(3) {
        let area = 2.0 / (edge[2] - edge[0]);
        for bin in 0..BINS {
            let frequency = f64::from(RATE) * bin as f64 / SIZE as f64;
            let rise = (frequency - edge[0]) / (edge[1] - edge[0]);
            let fall = (edge[2] - frequency) / (edge[2] - edge[1]);
            weights.push((rise.min(fall).max(0.0) * area) as f32);
        }
    }
    weights
}

/// Hertz of a mel, up to where the scale turns from a line into a logarithm.
const LINE: f64 = 200.0 / 3.0;
/// Where it turns, in hertz.
const TURN: f64 = 1000.0;
/// Mels for which the frequency grows 6.4 times, above.
const MELS: f64 = 27.0;

fn to_mel(hertz: f64) -> f64 {
    if hertz < TURN { hertz / LINE } else { TURN / LINE + (hertz / TURN).ln() / 6.4f64.ln() * MELS }
}

fn to_hertz(mel: f64) -> f64 {
    let turn = TURN / LINE;
    if mel < turn { mel * LINE } else { TURN * (6.4f64.ln() * (mel - turn) / MELS).exp() }
}
