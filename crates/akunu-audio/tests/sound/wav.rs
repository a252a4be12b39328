//! WAV files made by hand, right or wrong.

/// How samples are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    U8,
    I16,
    I24,
    F32,
}

/// A WAV file whose header may lie about the length of its data.
pub struct Wav {
    pub rate: u32,
    pub channels: u16,
    pub samples: Samples,
    pub claimed: Option<u32>,
}

impl Wav {
    pub fn new(rate: u32, channels: u16, samples: Samples) -> Wav {
        Wav { rate, channels, samples, claimed: None }
    }

    /// The file; every value goes to all channels.
    pub fn bytes(&self, values: &[f32]) -> Vec<u8> {
        let mut data = Vec::new();
        for &value in values {
            for _ in 0..self.channels {
                match self.samples {
                    Samples::U8 => data.push((value * 127.0 + 128.0).round() as u8),
                    Samples::I16 => data.extend(((value * 32767.0).round() as i16).to_le_bytes()),
                    Samples::I24 => data.extend(&((value * 8_388_607.0).round() as i32).to_le_bytes()[..3]),
                    Samples::F32 => data.extend(value.to_le_bytes()),
                }
            }
        }
        let size: u16 = match self.samples {
            Samples::U8 => 1,
            Samples::I16 => 2,
            Samples::I24 => 3,
            Samples::F32 => 4,
        };
        let block = size * self.channels;
        let length = self.claimed.unwrap_or(data.len() as u32);
        let mut file = b"RIFF".to_vec();
        file.extend(length.saturating_add(36).to_le_bytes());
        file.extend(b"WAVEfmt \x10\0\0\0");
        file.extend(if self.samples == Samples::F32 { 3u16 } else { 1 }.to_le_bytes());
        file.extend(self.channels.to_le_bytes());
        file.extend(self.rate.to_le_bytes());
        file.extend(self.rate.saturating_mul(u32::from(block)).to_le_bytes());
        file.extend(block.to_le_bytes());
        file.extend((8 * size).to_le_bytes());
        file.extend(b"data");
        file.extend(length.to_le_bytes());
        file.extend(data);
        file
    }
}
