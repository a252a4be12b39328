//! Sound files as mono samples at 16 kHz, and the log-mel spectrograms speech models read.
//!
//! A [`Decoder`] reads WAV, AIFF, FLAC, MP3, Ogg/Vorbis and M4A (AAC, ALAC) at any rate and with any number of channels, and
//! gives mono samples at [`RATE`], a piece at a time. A [`Mel`] is the log-mel spectrogram of all of them, within 1e-4 of what
//! OpenAI's Whisper computes, kept in 32 kB for each second (80 bands). Nothing here trusts what it reads: what is no sound is
//! an [`Error`] that names the file, and what is damaged gives the sound there is and says so.
//!
//! ```
//! use akunu_audio::{Decoder, Mel, RATE};
//!
//! // A WAV file: a second of a tone, 8-bit mono at 8 kHz.
//! let samples: Vec<u8> = (0..8000).map(|i| if i % 16 < 8 { 160 } else { 96 }).collect();
//! let mut wav = b"RIFF\x64\x1f\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
//! wav.extend([8000u32.to_le_bytes(), 8000u32.to_le_bytes()].concat());
//! wav.extend(b"\x01\0\x08\0data\x40\x1f\0\0");
//! wav.extend(samples);
//!
//! let mut decoder = Decoder::from_bytes(wav, "tone.wav")?;
//! let mel = Mel::read(&mut decoder, 80)?;
//! assert_eq!((mel.samples(), mel.frames()), (u64::from(RATE), 100));
//! assert_eq!(decoder.damage(), None);
//!
//! let mut window = Vec::new();
//! mel.window(0, 3000, &mut window); // [3000][80]
//! assert_eq!(window.len(), 3000 * 80);
//! # Ok::<(), akunu_audio::Error>(())
//! ```

mod decode;
mod error;
mod mel;
mod resample;
mod spectrum;

pub use decode::{Decoder, LONGEST};
pub use error::{Error, Result};
pub use mel::{HOP, Mel, MelBuilder, filters};

/// Samples of a second, of all sound that leaves this crate.
pub const RATE: u32 = 16_000;
