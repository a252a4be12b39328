//! Speech as text.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use engine::StopHandle;
use engine::hub::Hub;
use engine::speech::{Event, Format, Sound, SpeechOptions, SpeechSettings, Transcriber, Transcription};

use crate::arguments::{
    SelfSized, elements, field, fill_text, optional_text, sized, text, write, write_sized,
};
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
    /// Hypotheses that are followed; 0 for 5, or as many as the transcriber was loaded for; 1 takes the likeliest token each time.
    pub beams: usize,
    /// The same seed gives the same samples.
    pub seed: u64,
    /// Write English, whatever is spoken.
    pub translate: bool,
    /// Do without times: segments are whole windows then.
    pub no_timestamps: bool,
    /// Find out when each word is said; AKUNU_FORMAT_JSON has the words.
    pub words: bool,
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
    /// Time it took to write down what is said.
    pub transcribe_seconds: f64,
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
    guard(|| {
        // SAFETY: the caller's promise, see `arguments`.
        unsafe {
            write(transcriber, std::ptr::null_mut(), "transcriber")?;
            let given = sized(options, "options")?;
            let default = SpeechOptions::default();
            let options = SpeechOptions {
                backend: optional_text(given.backend, "options.backend")?
                    .map_or(default.backend, str::to_owned),
                threads: Some(given.threads).filter(|&threads| threads != 0),
                beams: if given.beams == 0 { default.beams } else { given.beams },
                longest: default.longest,
            };
            let path = Hub::from_env()?.resolve(text(path, "path")?)?;
            let loaded = Transcriber::load(path, &options)?;
            let listening = Listening {
                transcriber: loaded,
                busy: Mutex::default(),
                stop: Mutex::default(),
                last: Mutex::default(),
            };
            write(transcriber, TRANSCRIBERS.insert(listening), "transcriber")
        }
    })
}

/// Frees a transcriber; null is fine.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_transcriber_free(transcriber: *mut akunu_transcriber) -> akunu_status {
    guard(|| TRANSCRIBERS.remove(transcriber))
}

/// Whether the model knows languages other than English.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_transcriber_multilingual(
    transcriber: *const akunu_transcriber,
    multilingual: *mut bool,
) -> akunu_status {
    guard(|| {
        let answer = TRANSCRIBERS.get(transcriber)?.transcriber.multilingual();
        // SAFETY: the caller's promise, see `arguments`.
        unsafe { write(multilingual, answer, "multilingual") }
    })
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
    let transcription = listening.transcriber.transcribe(&sound, &settings, &stop, &mut |event| {
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
        transcribe_seconds: (began.elapsed() - read).as_secs_f64(),
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
    let default = SpeechSettings::default();
    Ok(SpeechSettings {
        language: language.map(str::to_owned),
        prompt: prompt.map(str::to_owned),
        translate: given.translate,
        timestamps: !given.no_timestamps,
        words: given.words,
        beams: if given.beams == 0 { default.beams.min(most) } else { given.beams },
        best_of: default.best_of.min(most),
        seed: given.seed,
        ..default
    })
}
