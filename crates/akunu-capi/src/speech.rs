//! Speech as text.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use akunu_program::arch::{Architecture, FeedForward, SpeechArchitecture};
use engine::StopHandle;
use engine::hub::Hub;
use engine::speech::{
    Event, Format, Sound, SpeechOptions, SpeechSettings, SpeechStatistics, Transcriber, Transcription,
};

use crate::arguments::{SelfSized, elements, field, fill_text, optional_text, sized, text, write_sized};
use crate::handles::Handles;
use crate::status::{Failure, Outcome, akunu_status, guard};

/// A speech model that is ready to listen. It listens to one recording at a time: other threads, and callbacks, get
/// AKUNU_IN_USE.
pub struct akunu_transcriber {
    _private: (),
}

static TRANSCRIBERS: Handles<Listening> = Handles::new("transcriber");

struct Listening {
    transcriber: Transcriber,
    /// Held while a recording is transcribed.
    busy: Mutex<()>,
    /// Stops what is under way.
    stop: Mutex<StopHandle>,
    /// What was said last.
    last: Mutex<Option<Transcription>>,
}

/// One line for each segment.
pub const AKUNU_FORMAT_TEXT: u32 = 0;
/// Subtitles as SubRip has them.
pub const AKUNU_FORMAT_SRT: u32 = 1;
/// Subtitles as WebVTT has them.
pub const AKUNU_FORMAT_VTT: u32 = 2;
/// All there is to know, as JSON.
pub const AKUNU_FORMAT_JSON: u32 = 3;

/// How a transcriber is loaded. Zero is the default of every field but the size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_transcriber_options {
    /// sizeof(akunu_transcriber_options).
    pub size: usize,
    /// "cpu", "cuda", "metal", "reference"; null for akunu's choice.
    pub backend: *const c_char,
    /// Threads; 0 for all cores.
    pub threads: usize,
    /// Most hypotheses and samples at once; 0 for 5.
    pub beams: usize,
}

// SAFETY: the first field is the size; numbers and pointers may be 0.
unsafe impl SelfSized for akunu_transcriber_options {}

/// What is wanted of a recording. Zero is the default of every field but the size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_transcribe_options {
    /// sizeof(akunu_transcribe_options).
    pub size: usize,
    /// The language that is spoken, by code or English name; found out where null.
    pub language: *const c_char,
    /// Text that could have come before: names and words to expect; may be null.
    pub prompt: *const c_char,
    /// Tried one after the other until a transcript is neither repetitive nor unsure; null for 0, 0.2, 0.4, 0.6, 0.8 and 1.
    pub temperatures: *const f32,
    /// How many temperatures there are.
    pub temperature_count: usize,
    /// Hypotheses that are followed; 0 for 5, or as many as the transcriber was loaded for; 1 takes the likeliest token each time.
    pub beams: usize,
    /// Samples of which the best is taken at temperatures above 0; 0 for 5, or as many as the transcriber was loaded for.
    pub best_of: usize,
    /// The same seed gives the same samples.
    pub seed: u64,
    /// How many times as many hypotheses must end before a search does; 0 for 1.
    pub patience: f32,
    /// By how much length counts when hypotheses are compared, up to 1; 0 for fully.
    pub length_penalty: f32,
    /// Above this, text is repetitive; 0 for 2.4, INFINITY for never.
    pub compression_ratio: f32,
    /// Below this mean of the logarithms of probabilities, a transcript is unsure; 0 for -1, -INFINITY for never.
    pub log_probability: f32,
    /// Above this probability nobody speaks, unless the transcript is sure; 0 for 0.6, INFINITY for never.
    pub no_speech: f32,
    /// Write English, whatever is spoken.
    pub translate: bool,
    /// Do without times: segments are whole windows then.
    pub no_timestamps: bool,
    /// Find out when each word is said; AKUNU_FORMAT_JSON has the words.
    pub words: bool,
    /// Give the prompt to every window, not to the first alone.
    pub carry_prompt: bool,
    /// Do not give each window the text before it as context.
    pub no_context: bool,
}

// SAFETY: the first field is the size; numbers and pointers may be 0, and false is 0.
unsafe impl SelfSized for akunu_transcribe_options {}

/// A part of what was said, about a sentence. It belongs to the library.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_segment {
    /// Seconds from the beginning of the recording.
    pub start: f64,
    /// Seconds from the beginning of the recording.
    pub end: f64,
    /// What was said; ends with a zero.
    pub text: *const c_char,
}

/// What a model of speech is made of.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_transcriber_info {
    /// sizeof(akunu_transcriber_info), set by the caller.
    pub size: usize,
    /// The backend that runs it, such as "cpu"; ends with a zero.
    pub backend: [c_char; 16],
    /// Most hypotheses and samples at once, as it was loaded.
    pub beams: u64,
    /// Bands of a frame of sound.
    pub mels: u64,
    /// Tokens it can choose from.
    pub vocabulary: u64,
    /// States the encoder makes of 30 seconds.
    pub encoder_context: u64,
    /// Layers of the encoder.
    pub encoder_layers: u64,
    /// Heads of its layers.
    pub encoder_heads: u64,
    /// Width of its residual stream.
    pub encoder_hidden: u64,
    /// Width inside its feed-forward networks.
    pub encoder_feed_forward: u64,
    /// Tokens of a window's text, those before it included.
    pub decoder_context: u64,
    /// Layers of the decoder.
    pub decoder_layers: u64,
    /// Heads of its layers.
    pub decoder_heads: u64,
    /// Width of its residual stream.
    pub decoder_hidden: u64,
    /// Width inside its feed-forward networks.
    pub decoder_feed_forward: u64,
    /// Whether it knows languages other than English, and can translate them.
    pub multilingual: bool,
}

// SAFETY: the first field is the size; numbers may be 0, and false is 0.
unsafe impl SelfSized for akunu_transcriber_info {}

/// What a transcription took.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_transcribe_statistics {
    /// sizeof(akunu_transcribe_statistics), set by the caller.
    pub size: usize,
    /// Length of the recording.
    pub audio_seconds: f64,
    /// Time it took to read it.
    pub read_seconds: f64,
    /// Time the encoder took.
    pub encode_seconds: f64,
    /// Time it took to find the text of what was encoded.
    pub decode_seconds: f64,
    /// The code of the language that is spoken, such as "en"; ends with a zero.
    pub language: [c_char; 16],
}

// SAFETY: the first field is the size; numbers may be 0.
unsafe impl SelfSized for akunu_transcribe_statistics {}

/// Hears each segment as it is done; false ends the transcription. It must not throw. The segment is gone when it returns.
pub type akunu_segment_callback =
    Option<unsafe extern "C" fn(user: *mut c_void, segment: *const akunu_segment) -> bool>;

impl Listening {
    fn stop_handle(&self) -> MutexGuard<'_, StopHandle> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn info(&self) -> akunu_transcriber_info {
        let SpeechArchitecture { encoder, decoder, mels, vocabulary, .. } = self.transcriber.architecture();
        // All layers of either side are alike.
        let heads = |side: &Architecture| side.layers.first().map_or(0, |layer| layer.heads as u64);
        let inner = |side: &Architecture| match side.layers.first().map(|layer| &layer.feed_forward) {
            Some(FeedForward::Plain { inner } | FeedForward::Dense { inner }) => *inner as u64,
            Some(FeedForward::Experts { inner, .. }) => *inner as u64,
            None => 0,
        };
        akunu_transcriber_info {
            size: 0,
            backend: field(self.transcriber.backend()),
            beams: self.transcriber.beams() as u64,
            mels: *mels as u64,
            vocabulary: *vocabulary as u64,
            encoder_context: encoder.context as u64,
            encoder_layers: encoder.layers.len() as u64,
            encoder_heads: heads(encoder),
            encoder_hidden: encoder.hidden as u64,
            encoder_feed_forward: inner(encoder),
            decoder_context: decoder.context as u64,
            decoder_layers: decoder.layers.len() as u64,
            decoder_heads: heads(decoder),
            decoder_hidden: decoder.hidden as u64,
            decoder_feed_forward: inner(decoder),
            multilingual: self.transcriber.multilingual(),
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<Transcription>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Loads a speech model. `path` is a file or a directory, or the name of a model that `akunu pull` fetched; `options` may be
/// null. `*transcriber` is to be given to akunu_transcriber_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_transcriber_load(
    path: *const c_char,
    options: *const akunu_transcriber_options,
    transcriber: *mut *mut akunu_transcriber,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    let load = || unsafe {
        let given = sized(options, "options")?;
        let default = SpeechOptions::default();
        let options = SpeechOptions {
            backend: optional_text(given.backend, "options.backend")?.map_or(default.backend, str::to_owned),
            threads: Some(given.threads).filter(|&threads| threads != 0),
            beams: if given.beams == 0 { default.beams } else { given.beams },
            longest: default.longest,
        };
        let path = Hub::from_env()?.resolve(text(path, "path")?)?;
        Ok(Listening {
            transcriber: Transcriber::load(path, &options)?,
            busy: Mutex::default(),
            stop: Mutex::default(),
            last: Mutex::default(),
        })
    };
    // SAFETY: as above.
    guard(|| unsafe { TRANSCRIBERS.give(transcriber, "transcriber", load) })
}

/// Frees a transcriber; null is fine.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_transcriber_free(transcriber: *mut akunu_transcriber) -> akunu_status {
    guard(|| TRANSCRIBERS.remove(transcriber))
}

/// What the model is made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_transcriber_get_info(
    transcriber: *const akunu_transcriber,
    info: *mut akunu_transcriber_info,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { write_sized(info, TRANSCRIBERS.get(transcriber)?.info(), "info") })
}

/// Ends what the transcriber is doing, from any thread: the call fails with AKUNU_STOPPED.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_transcriber_stop(transcriber: *const akunu_transcriber) -> akunu_status {
    guard(|| {
        TRANSCRIBERS.get(transcriber)?.stop_handle().stop();
        Ok(())
    })
}

/// Writes down what is said in a sound file (WAV, FLAC, MP3, Ogg, M4A and others). `options`, `callback` and `statistics` may be
/// null; akunu_transcriber_text has the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_transcribe(
    transcriber: *const akunu_transcriber,
    path: *const c_char,
    options: *const akunu_transcribe_options,
    callback: akunu_segment_callback,
    user: *mut c_void,
    statistics: *mut akunu_transcribe_statistics,
) -> akunu_status {
    guard(|| {
        let listening = TRANSCRIBERS.get(transcriber)?;
        // SAFETY: the caller's promise, see `arguments`.
        let path = unsafe { text(path, "path")? };
        let open = |transcriber: &Transcriber, stop: &StopHandle| Ok(transcriber.open(path, stop)?);
        // SAFETY: as above.
        unsafe { transcribe(&listening, open, options, callback, user, statistics) }
    })
}

/// The same for samples: one channel at 16 kHz, from -1 to 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_transcribe_pcm(
    transcriber: *const akunu_transcriber,
    samples: *const f32,
    count: usize,
    options: *const akunu_transcribe_options,
    callback: akunu_segment_callback,
    user: *mut c_void,
    statistics: *mut akunu_transcribe_statistics,
) -> akunu_status {
    guard(|| {
        let listening = TRANSCRIBERS.get(transcriber)?;
        // SAFETY: the caller's promise, see `arguments`.
        let samples = unsafe { elements(samples, count, "samples")? };
        let open = |transcriber: &Transcriber, _: &StopHandle| Ok(transcriber.sound(samples));
        // SAFETY: as above.
        unsafe { transcribe(&listening, open, options, callback, user, statistics) }
    })
}

/// What was said in the last recording that was transcribed whole: `format` is one of AKUNU_FORMAT_*.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_transcriber_text(
    transcriber: *const akunu_transcriber,
    format: u32,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> akunu_status {
    guard(|| {
        let format = match format {
            AKUNU_FORMAT_TEXT => Format::Text,
            AKUNU_FORMAT_SRT => Format::Srt,
            AKUNU_FORMAT_VTT => Format::Vtt,
            AKUNU_FORMAT_JSON => Format::Json,
            other => return Err(Failure::usage(format_args!("no AKUNU_FORMAT_* is {other}"))),
        };
        let listening = TRANSCRIBERS.get(transcriber)?;
        let last = listening.last();
        let Some(last) = &*last else {
            return Err(Failure::usage("nothing was transcribed yet"));
        };
        // SAFETY: the caller's promise, see `arguments`.
        unsafe { fill_text(last.write(format).as_bytes(), buffer, capacity, length) }
    })
}

/// # Safety
///
/// As [`arguments`](crate::arguments) says.
unsafe fn transcribe(
    listening: &Arc<Listening>,
    open: impl FnOnce(&Transcriber, &StopHandle) -> Outcome<Sound>,
    options: *const akunu_transcribe_options,
    callback: akunu_segment_callback,
    user: *mut c_void,
    statistics: *mut akunu_transcribe_statistics,
) -> Outcome {
    // SAFETY: handed on.
    let settings = unsafe { settings(options, listening.transcriber.beams())? };
    let _busy = match listening.busy.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let message = "the transcriber is in use, by another thread or by the call this one came from";
            return Err(Failure::new(akunu_status::AKUNU_IN_USE, message));
        }
        // What a panic left behind is made anew.
        free => free,
    };
    let stop = StopHandle::default();
    *listening.stop_handle() = stop.clone();
    let began = Instant::now();
    let sound = open(&listening.transcriber, &stop)?;
    let read = began.elapsed();
    let mut took = SpeechStatistics::default();
    let transcription = listening.transcriber.transcribe(&sound, &settings, &stop, &mut |event| {
        if let Event::Done(statistics) = event {
            took = statistics;
        }
        let (Event::Segment(segment), Some(callback)) = (event, callback) else { return };
        let text = CString::new(segment.text.replace('\0', " ")).unwrap_or_default();
        let view = akunu_segment { start: segment.start, end: segment.end, text: text.as_ptr() };
        // SAFETY: the caller's function, of the type the header gives it.
        if !unsafe { callback(user, &raw const view) } {
            stop.stop();
        }
    })?;
    let answer = akunu_transcribe_statistics {
        size: 0,
        audio_seconds: sound.seconds(),
        read_seconds: read.as_secs_f64(),
        encode_seconds: took.encode.as_secs_f64(),
        decode_seconds: took.decode.as_secs_f64(),
        language: field(&transcription.language),
    };
    *listening.last() = Some(transcription);
    if statistics.is_null() {
        return Ok(());
    }
    // SAFETY: handed on.
    unsafe { write_sized(statistics, answer, "statistics") }
}

/// # Safety
///
/// As [`arguments`](crate::arguments) says.
unsafe fn settings(pointer: *const akunu_transcribe_options, most: usize) -> Outcome<SpeechSettings> {
    // SAFETY: handed on.
    let given = unsafe { sized(pointer, "options")? };
    // SAFETY: handed on.
    let language = unsafe { optional_text(given.language, "options.language")? };
    // SAFETY: handed on.
    let prompt = unsafe { optional_text(given.prompt, "options.prompt")? };
    // SAFETY: handed on.
    let temperatures =
        unsafe { elements(given.temperatures, given.temperature_count, "options.temperatures")? };
    let default = SpeechSettings::default();
    let or = |given: f32, default: Option<f32>| if given == 0.0 { default } else { Some(given) };
    let count = |given: usize, default: usize| if given == 0 { default.min(most) } else { given };
    Ok(SpeechSettings {
        language: language.map(str::to_owned),
        translate: given.translate,
        prompt: prompt.map(str::to_owned),
        carry_prompt: given.carry_prompt,
        condition_on_previous_text: !given.no_context,
        timestamps: !given.no_timestamps,
        words: given.words,
        beams: count(given.beams, default.beams),
        patience: if given.patience == 0.0 { default.patience } else { given.patience },
        best_of: count(given.best_of, default.best_of),
        length_penalty: or(given.length_penalty, default.length_penalty),
        temperatures: if temperatures.is_empty() { default.temperatures } else { temperatures.to_vec() },
        compression_ratio: or(given.compression_ratio, default.compression_ratio),
        log_probability: or(given.log_probability, default.log_probability),
        no_speech: or(given.no_speech, default.no_speech),
        seed: given.seed,
    })
}
