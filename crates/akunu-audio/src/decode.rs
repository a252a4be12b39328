//! Sound files: containers and codecs, channels, and samples that are no numbers.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as Symphonia;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

use crate::resample::Resampler;
use crate::{Error, RATE, Result};

/// Most seconds of sound in one file: a day, whose spectrogram is 2.8 GB (80 bands). A small file can hold any length of silence.
pub const LONGEST: u64 = 24 * 3600;

/// Rates that sound is recorded at, in samples a second. Others are mistakes or traps.
const RATES: std::ops::RangeInclusive<u32> = 1000..=768_000;

/// Reads a sound file, piece by piece, as mono samples at [`RATE`].
///
/// Channels are averaged; samples outside of -1 to 1 are cut there, as they are in 16 bits. A file that breaks off, or has
/// damaged parts, gives what is whole: [`Decoder::damage`] tells.
pub struct Decoder {
    name: String,
    reader: Box<dyn FormatReader>,
    codec: Box<dyn AudioDecoder>,
    track: u32,
    /// The rate of the file, and what changes it; absent where nothing needs to.
    rate: u32,
    resampler: Option<Resampler>,
    /// What a packet holds: `[frame][channel]`.
    interleaved: Vec<f32>,
    mono: Vec<f32>,
    /// At [`RATE`].
    out: Vec<f32>,
    given: u64,
    /// Most seconds that are given.
    longest: u64,
    ended: bool,
    /// The file was written before its length was known: it ends where it ends.
    endless: bool,
    damage: Damage,
}

#[derive(Default)]
struct Damage {
    /// Packets that could not be decoded and are left out, and why the first could not.
    packets: u64,
    packet: Option<String>,
    /// Why the file ends before its end.
    end: Option<String>,
    /// Samples that were no numbers and are silence now.
    samples: u64,
}

impl Decoder {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Decoder> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let io = |source| Error::Io { name: name.clone(), source };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            return Err(io(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if metadata.is_file() && metadata.len() == 0 {
            return Err(Error::Empty { name });
        }
        Decoder::new(Box::new(file), name)
    }

    /// Reads a file that is in memory. The name is for messages, and its ending a hint.
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Decoder> {
        if bytes.is_empty() {
            return Err(Error::Empty { name: name.to_owned() });
        }
        Decoder::new(Box::new(Cursor::new(bytes)), name.to_owned())
    }

    fn new(mut source: Box<dyn MediaSource>, name: String) -> Result<Decoder> {
        let endless = source.is_seekable()
            && endless(source.as_mut()).map_err(|source| Error::Io { name: name.clone(), source })?;
        let stream = MediaSourceStream::new(source, Default::default());
        let mut hint = Hint::new();
        if let Some(extension) = Path::new(&name).extension().and_then(|extension| extension.to_str()) {
            hint.with_extension(extension);
        }
        let probed = guarded(|| {
            symphonia::default::get_probe().probe(
                &hint,
                stream,
                FormatOptions::default(),
                MetadataOptions::default(),
            )
        });
        let reader = probed.map_err(|error| {
            let problem = match &error {
                Symphonia::Unsupported(_) => "its format is not known".to_owned(),
                error => problem(error),
            };
            Error::Unknown { name: name.clone(), problem }
        })?;
        let (track, codec) = choose(&*reader, &name)?;
        Ok(Decoder {
            name,
            reader,
            codec,
            track,
            rate: RATE,
            resampler: None,
            interleaved: Vec::new(),
            mono: Vec::new(),
            out: Vec::new(),
            given: 0,
            longest: LONGEST,
            ended: false,
            endless,
            damage: Damage::default(),
        })
    }

    /// Takes so many seconds of sound at most, if that is less than [`LONGEST`]: more is an error.
    pub fn take_at_most(&mut self, seconds: u64) {
        self.longest = seconds.min(LONGEST);
    }

    /// What messages call the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next piece, or nothing at the end.
    pub fn next_piece(&mut self) -> Result<Option<&[f32]>> {
        self.out.clear();
        while self.out.is_empty() && !self.ended {
            match self.next_packet()? {
                Some(packet) => self.decode(&packet)?,
                None => self.finish(),
            }
        }
        self.given += self.out.len() as u64;
        if self.given > self.longest * u64::from(RATE) {
            return Err(Error::TooLong { name: self.name.clone(), seconds: self.longest });
        }
        if self.ended && self.given == 0 {
            return Err(match self.damage.packet.take().or(self.damage.end.take()) {
                Some(problem) => Error::Malformed { name: self.name.clone(), problem },
                None => Error::Empty { name: self.name.clone() },
            });
        }
        Ok((!self.out.is_empty()).then_some(self.out.as_slice()))
    }

    /// All that is left.
    pub fn read_all(&mut self) -> Result<Vec<f32>> {
        let mut samples = Vec::new();
        while let Some(piece) = self.next_piece()? {
            samples.extend_from_slice(piece);
        }
        Ok(samples)
    }

    /// What was wrong with what was read so far, where that did not matter enough to give up.
    pub fn damage(&self) -> Option<String> {
        let damage = &self.damage;
        let mut parts = Vec::new();
        if let Some(problem) = &damage.packet {
            parts.push(format!("{} damaged parts are left out (the first: {problem})", damage.packets));
        }
        if damage.samples > 0 {
            parts.push(format!("{} samples are not numbers and became silence", damage.samples));
        }
        if let Some(problem) = &damage.end {
            let seconds = self.given as f64 / f64::from(RATE);
            parts.push(format!("the file breaks off after {seconds:.2} seconds ({problem})"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The next packet of our track, or nothing at the end.
    fn next_packet(&mut self) -> Result<Option<Packet>> {
        loop {
            match guarded(|| self.reader.next_packet()) {
                Ok(Some(packet)) if packet.track_id == self.track => return Ok(Some(packet)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                // Another piece of sound follows in the same file.
                Err(Symphonia::ResetRequired) => {
                    (self.track, self.codec) = choose(&*self.reader, &self.name)?;
                }
                Err(Symphonia::IoError(error))
                    if self.endless && error.kind() == io::ErrorKind::UnexpectedEof =>
                {
                    return Ok(None);
                }
                Err(error) => {
                    self.damage.end = Some(problem(&error));
                    return Ok(None);
                }
            }
        }
    }

    fn decode(&mut self, packet: &Packet) -> Result<()> {
        let (codec, interleaved) = (&mut self.codec, &mut self.interleaved);
        let decoded = guarded(|| {
            let sound = codec.decode(packet)?;
            sound.copy_to_vec_interleaved::<f32>(interleaved);
            Ok((sound.spec().rate(), sound.spec().channels().count()))
        });
        let (rate, channels) = match decoded {
            Ok(spec) => spec,
            Err(error) => {
                self.damage.packets += 1;
                self.damage.packet.get_or_insert_with(|| problem(&error));
                return Ok(());
            }
        };
        if channels == 0 || !RATES.contains(&rate) {
            return Err(Error::Unsupported {
                name: self.name.clone(),
                problem: format!("{channels} channels at {rate} samples a second"),
            });
        }
        self.set_rate(rate);
        self.mono.clear();
        let share = 1.0 / channels as f32;
        for frame in self.interleaved.chunks_exact(channels) {
            let mut sum = 0.0;
            for &sample in frame {
                if sample.is_finite() {
                    sum += sample.clamp(-1.0, 1.0);
                } else {
                    self.damage.samples += 1;
                }
            }
            self.mono.push(sum * share);
        }
        match &mut self.resampler {
            Some(resampler) => resampler.push(&self.mono, &mut self.out),
            None => self.out.extend_from_slice(&self.mono),
        }
        Ok(())
    }

    /// Makes ready for samples at another rate; most files have one only.
    fn set_rate(&mut self, rate: u32) {
        if rate != self.rate {
            self.flush();
            self.rate = rate;
            self.resampler = (rate != RATE).then(|| Resampler::new(rate));
        }
    }

    fn finish(&mut self) {
        self.ended = true;
        self.flush();
    }

    fn flush(&mut self) {
        if let Some(mut resampler) = self.resampler.take() {
            resampler.finish(&mut self.out);
        }
    }
}

/// The sound of a file, where it has several things, and what decodes it.
fn choose(reader: &dyn FormatReader, name: &str) -> Result<(u32, Box<dyn AudioDecoder>)> {
    let unsupported = |problem: String| Error::Unsupported { name: name.to_owned(), problem };
    let track = reader
        .default_track(TrackType::Audio)
        .ok_or_else(|| unsupported("there is no sound among what the file holds".to_owned()))?;
    let parameters = track
        .codec_params
        .as_ref()
        .and_then(|parameters| parameters.audio())
        .ok_or_else(|| unsupported("the file does not say how its sound is encoded".to_owned()))?;
    let options = AudioDecoderOptions::default();
    let codec = guarded(|| symphonia::default::get_codecs().make_audio_decoder(parameters, &options));
    match codec {
        Ok(codec) => Ok((track.id, codec)),
        Err(Symphonia::Unsupported(_)) => {
            let codec = match parameters.codec {
                CODEC_ID_OPUS => "Opus".to_owned(),
                other => other.to_string(),
            };
            Err(unsupported(format!(
                "its codec ({codec}) cannot be read; convert it first, for example with `ffmpeg -i {name} sound.wav`"
            )))
        }
        Err(error) => Err(Error::Malformed { name: name.to_owned(), problem: problem(&error) }),
    }
}

/// Calls into the decoders, in which arithmetic on hostile files may panic.
fn guarded<T>(
    call: impl FnOnce() -> symphonia::core::errors::Result<T>,
) -> symphonia::core::errors::Result<T> {
    // They are safe Rust: what a panic leaves half done makes wrong sound at worst.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Symphonia::DecodeError("it makes no sense")))
}

/// Whether a WAV says that it goes on for as long as can be said, or not at all: it was written into a pipe.
fn endless(source: &mut dyn MediaSource) -> io::Result<bool> {
    let mut head = Vec::new();
    source.take(8).read_to_end(&mut head)?;
    source.rewind()?;
    let size = head.strip_prefix(b"RIFF").and_then(|size| Some(u32::from_le_bytes(size.try_into().ok()?)));
    // Some programs write the largest number there is, others the largest signed one or a little less.
    Ok(size.is_some_and(|size| size == 0 || size == u32::MAX || (0x7fff_0000..=0x7fff_ffff).contains(&size)))
}

fn problem(error: &Symphonia) -> String {
    match error {
        Symphonia::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "its end is missing".to_owned()
        }
        Symphonia::IoError(error) => error.to_string(),
        Symphonia::DecodeError(text) | Symphonia::LimitError(text) => (*text).to_owned(),
        Symphonia::Unsupported(text) => format!("{text} is not supported"),
        other => other.to_string(),
    }
}
