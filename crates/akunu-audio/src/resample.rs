//! From the rate of a file to the one everything else uses.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler as _, WindowFunction};

use crate::RATE;

/// About how many samples of the file are transformed together: long enough for a steep filter, short enough to smear nothing.
const BLOCK: usize = 1024;

/// Changes the rate of one channel, piece by piece. What comes out is aligned with what went in.
pub(crate) struct Resampler {
    fft: Fft<f32>,
    /// Samples of the file that wait for a whole block.
    waiting: Vec<f32>,
    /// What one block becomes.
    block: Vec<f32>,
    /// Samples at the beginning of the output that are the filter's own delay.
    delay: usize,
    rate: u32,
    taken: u64,
    given: u64,
}

impl Resampler {
    /// A resampler from `rate`, which is not zero.
    pub fn new(rate: u32) -> Result<Resampler, String> {
        // An even number of the shortest blocks that are whole at both rates: the delay is half a block, and whole so too.
        let shortest = 2 * (rate / gcd(rate, RATE)) as usize;
        let fft = Fft::new_custom(
            rate as usize,
            RATE as usize,
            BLOCK.next_multiple_of(shortest),
            1,
            1,
            WindowFunction::BlackmanHarris2,
            FixedSync::Both,
        )
        .map_err(|error| error.to_string())?;
        let block = vec![0.0; fft.output_frames_max()];
        let delay = fft.output_delay();
        Ok(Resampler { fft, waiting: Vec::new(), block, delay, rate, taken: 0, given: 0 })
    }

    /// Takes samples of the file and appends what they become.
    pub fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) -> Result<(), String> {
        self.taken += samples.len() as u64;
        self.waiting.extend_from_slice(samples);
        let size = self.fft.input_frames_next();
        let mut done = 0;
        while self.waiting.len() - done >= size {
            self.process(done, size, out)?;
            done += size;
        }
        self.waiting.drain(..done);
        Ok(())
    }

    /// Appends what is still on its way, so that all that came out is as long as what went in.
    pub fn finish(&mut self, out: &mut Vec<f32>) -> Result<(), String> {
        let expected = (self.taken * u64::from(RATE)).div_ceil(u64::from(self.rate));
        let mut length = self.waiting.len();
        while self.given < expected {
            self.process(0, length, out)?;
            length = 0;
        }
        out.truncate(out.len() - (self.given - expected) as usize);
        Ok(())
    }

    /// Runs one block: `length` samples that wait from `start` on, and silence for the rest.
    fn process(&mut self, start: usize, length: usize, out: &mut Vec<f32>) -> Result<(), String> {
        let input = InterleavedSlice::new(&self.waiting[start..start + length], 1, length)
            .map_err(|error| error.to_string())?;
        let size = self.block.len();
        let mut output =
            InterleavedSlice::new_mut(&mut self.block, 1, size).map_err(|error| error.to_string())?;
        let part = Indexing::new().partial_len(length);
        let (_, written) = self
            .fft
            .process_into_buffer(&input, &mut output, Some(&part))
            .map_err(|error| error.to_string())?;
        let late = self.delay.min(written);
        self.delay -= late;
        out.extend_from_slice(&self.block[late..written]);
        self.given += (written - late) as u64;
        Ok(())
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, count: usize) -> Vec<f32> {
        let step = 2.0 * std::f64::consts::PI * 1000.0 / f64::from(rate);
        (0..count).map(|i| (0.5 * (i as f64 * step).sin()) as f32).collect()
    }

    #[test]
    fn a_tone_stays_itself_at_any_rate_and_in_any_pieces() {
        for rate in [8000, 11_025, 22_050, 44_100, 44_056, 48_000, 192_000] {
            let input = tone(rate, rate as usize * 3 / 2);
            let mut whole = Vec::new();
            let mut resampler = Resampler::new(rate).unwrap();
            resampler.push(&input, &mut whole).unwrap();
            resampler.finish(&mut whole).unwrap();

            let mut pieces = Vec::new();
            let mut resampler = Resampler::new(rate).unwrap();
            for piece in input.chunks(777) {
                resampler.push(piece, &mut pieces).unwrap();
            }
            resampler.finish(&mut pieces).unwrap();
            assert_eq!(whole, pieces, "{rate}");

            let expected = tone(RATE, RATE as usize * 3 / 2);
            assert_eq!(whole.len(), expected.len(), "{rate}");
            // The ends are cut off a tone, which is no tone there.
            for (i, (a, b)) in whole.iter().zip(&expected).enumerate().skip(2000).take(expected.len() - 4000)
            {
                assert!((a - b).abs() < 1e-3, "{rate}: sample {i} is {a}, expected {b}");
            }
        }
    }

    #[test]
    fn a_single_sample_gives_as_much_as_its_time() {
        let mut out = Vec::new();
        let mut resampler = Resampler::new(48_000).unwrap();
        resampler.push(&[0.5], &mut out).unwrap();
        resampler.finish(&mut out).unwrap();
        assert_eq!(out.len(), 1);
    }
}
