//! Generating text in a sequence.

use std::ffi::{c_char, c_void};

use akunu_text::chat::Syntax;
use akunu_text::tokenizer::{AddSpecial, Special};
use engine::{Error, FinishReason, Model, Settings};

use crate::arguments::{SelfSized, elements, write, write_sized};
use crate::options::{akunu_generate_options, settings};
use crate::sequence::{Report, Shared, State, akunu_sequence, shared};
use crate::status::{Failure, Outcome, akunu_status, guard, guard_status};
use crate::text::{akunu_message, conversation};

/// The generation goes on.
pub const AKUNU_UNFINISHED: u32 = 0;
/// The model said that it is done, or nothing may follow.
pub const AKUNU_END: u32 = 1;
/// A stop string came.
pub const AKUNU_STOP_STRING: u32 = 2;
/// As many tokens as were asked for, or as the context holds.
pub const AKUNU_LENGTH: u32 = 3;
/// Someone stopped it.
pub const AKUNU_CANCELLED: u32 = 4;

/// A piece of generated text. It belongs to the library.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_piece {
    /// Whole characters, perhaps none; a zero follows that text_length does not count.
    pub text: *const c_char,
    /// Bytes of the text.
    pub text_length: usize,
    /// The tokens that the text so far completes.
    pub tokens: *const u32,
    /// How many.
    pub token_count: usize,
}

/// What a generation took.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_statistics {
    /// sizeof(akunu_statistics), set by the caller.
    pub size: usize,
    /// Why it ended: AKUNU_UNFINISHED, AKUNU_END, ...
    pub finish: u32,
    /// Which stop string came.
    pub stop_index: u32,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Of those, how many the sequence held already.
    pub cached_tokens: u64,
    /// Tokens generated, those of a stop string included, the end token not.
    pub generated_tokens: u64,
    /// Tokens guessed by speculation, and how many were right.
    pub guessed_tokens: u64,
    /// Of those, how many were right.
    pub right_guesses: u64,
    /// Time the prompt took.
    pub prefill_seconds: f64,
    /// Time all tokens after the first took.
    pub decode_seconds: f64,
    /// Prompt tokens per second, without those the sequence held.
    pub prefill_rate: f64,
    /// Generated tokens per second, without the first.
    pub decode_rate: f64,
}

// SAFETY: the first field is the size; numbers may be 0.
unsafe impl SelfSized for akunu_statistics {}

/// Hears each piece while text is generated; false ends the generation. It must not throw. The piece is gone when it returns.
pub type akunu_piece_callback =
    Option<unsafe extern "C" fn(user: *mut c_void, piece: *const akunu_piece) -> bool>;

impl From<&Report> for akunu_statistics {
    fn from(report: &Report) -> akunu_statistics {
        let statistics = &report.statistics;
        let (finish, stop_index) = match report.finish {
            None => (AKUNU_UNFINISHED, 0),
            Some(FinishReason::Stop) => (AKUNU_END, 0),
            Some(FinishReason::StopString(index)) => (AKUNU_STOP_STRING, index as u32),
            Some(FinishReason::Length) => (AKUNU_LENGTH, 0),
            Some(FinishReason::Cancelled) => (AKUNU_CANCELLED, 0),
        };
        akunu_statistics {
            size: 0,
            finish,
            stop_index,
            prompt_tokens: statistics.prompt_tokens as u64,
            cached_tokens: statistics.cached_tokens as u64,
            generated_tokens: statistics.generated_tokens as u64,
            guessed_tokens: statistics.guessed as u64,
            right_guesses: statistics.right_guesses as u64,
            prefill_seconds: statistics.prefill.as_secs_f64(),
            decode_seconds: statistics.decode.as_secs_f64(),
            prefill_rate: statistics.prefill_rate(),
            decode_rate: statistics.decode_rate(),
        }
    }
}

/// A piece as C sees it. The text must end with a zero.
pub(crate) fn piece_view(piece: &engine::Piece) -> akunu_piece {
    akunu_piece {
        text: piece.text.as_ptr().cast(),
        text_length: piece.text.len().saturating_sub(1),
        tokens: piece.tokens.as_ptr(),
        token_count: piece.tokens.len(),
    }
}

impl State {
    /// The next piece, with a zero after its text; `None` at the end.
    fn next(&mut self) -> Outcome<Option<&engine::Piece>> {
        let generation = self.generation()?;
        let next = generation.next();
        self.report = Report {
            statistics: *self.generation()?.statistics(),
            finish: self.generation()?.finish_reason(),
        };
        match next {
            None => Ok(None),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(mut piece)) => {
                piece.text.push('\0');
                self.piece = piece;
                Ok(Some(&self.piece))
            }
        }
    }
}

/// Begins a generation with the prompt that `prompt` makes, and lets others stop it. `prompt` may change the settings.
///
/// # Safety
///
/// As [`arguments`](crate::arguments) says, for the options.
unsafe fn begin(
    shared: &Shared,
    state: &mut State,
    options: *const akunu_generate_options,
    prompt: impl FnOnce(&Model, &mut Settings, bool) -> Outcome<Vec<u32>>,
) -> Outcome {
    // SAFETY: handed on.
    let (mut settings, append) = unsafe { settings(options)? };
    let model = state.idle()?.model().clone();
    let prompt = prompt(&model, &mut settings, append)?;
    // Held until the new handle is in its place, so that no stop is lost between the two.
    let mut stop = shared.stop_handle();
    *stop = state.begin(&prompt, append, &settings)?;
    Ok(())
}

/// Begins to continue tokens. Nothing is computed before the first piece. What the sequence holds is replaced, and what it has in
/// common with the prompt is not fed again; with options.append the prompt comes after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_generate_begin(
    sequence: *mut akunu_sequence,
    prompt: *const u32,
    count: usize,
    options: *const akunu_generate_options,
) -> akunu_status {
    guard(|| {
        let shared = shared(sequence)?;
        let mut state = shared.lock()?;
        // SAFETY: the caller's promise, see `arguments`.
        let tokens = || unsafe { elements(prompt, count, "prompt") };
        // SAFETY: as above.
        unsafe { begin(&shared, &mut state, options, |_, _, _| Ok(tokens()?.to_vec())) }
    })
}

/// The same for text. Names of special tokens in it are special tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_generate_begin_text(
    sequence: *mut akunu_sequence,
    prompt: *const c_char,
    options: *const akunu_generate_options,
) -> akunu_status {
    guard(|| {
        let shared = shared(sequence)?;
        let mut state = shared.lock()?;
        // SAFETY: the caller's promise, see `arguments`.
        let text = || unsafe { crate::arguments::text(prompt, "prompt") };
        let tokens = |model: &Model, _: &mut Settings, append: bool| {
            let add = if append { AddSpecial::No } else { AddSpecial::Yes };
            Ok(model.tokenizer()?.encode(text()?, Special::Parse, add))
        };
        // SAFETY: as above.
        unsafe { begin(&shared, &mut state, options, tokens) }
    })
}

/// The same for a conversation, given whole every time: what the sequence holds of it already is not fed again. Thoughts come
/// with the marks the model puts around them. options.append is not for this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_generate_begin_chat(
    sequence: *mut akunu_sequence,
    messages: *const akunu_message,
    message_count: usize,
    options: *const akunu_generate_options,
) -> akunu_status {
    guard(|| {
        let shared = shared(sequence)?;
        let mut state = shared.lock()?;
        let tokens = |model: &Model, settings: &mut Settings, append: bool| {
            if append {
                return Err(Failure::usage("a conversation is given whole: options.append makes no sense"));
            }
            settings.shown_tokens = thought_marks(model)?;
            // SAFETY: the caller's promise, see `arguments`.
            let (prompt, _) = unsafe { conversation(model, messages, message_count)? };
            Ok(prompt)
        };
        // SAFETY: as above.
        unsafe { begin(&shared, &mut state, options, tokens) }
    })
}

/// Control tokens around a model's thoughts, which would have no text otherwise.
fn thought_marks(model: &Model) -> Outcome<Vec<u32>> {
    let template = model.templates().choose(None, false).map_err(Error::from)?;
    let Some(syntax) = Syntax::of_template(template.source()) else { return Ok(Vec::new()) };
    let tokenizer = model.tokenizer()?;
    let marks = [syntax.reasoning.open, syntax.reasoning.close];
    Ok(marks.iter().filter_map(|mark| tokenizer.id_of(mark)).collect())
}

/// Gives the next piece, or AKUNU_DONE at the end. The piece is valid until the next call with this sequence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_generate_next(
    sequence: *mut akunu_sequence,
    piece: *mut akunu_piece,
) -> akunu_status {
    guard_status(|| {
        let shared = shared(sequence)?;
        let mut state = shared.lock()?;
        let Some(next) = state.next()? else { return Ok(akunu_status::AKUNU_DONE) };
        // SAFETY: the caller's promise, see `arguments`.
        unsafe { write(piece, piece_view(next), "piece")? };
        Ok(akunu_status::AKUNU_OK)
    })
}

/// What the sequence's last generation took so far, and why it ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_generate_statistics(
    sequence: *const akunu_sequence,
    statistics: *mut akunu_statistics,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { write_sized(statistics, (&shared(sequence)?.lock()?.report).into(), "statistics") })
}

/// All of it in one call: begins to continue tokens, and gives every piece to `callback`. `statistics` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_generate(
    sequence: *mut akunu_sequence,
    prompt: *const u32,
    count: usize,
    options: *const akunu_generate_options,
    callback: akunu_piece_callback,
    user: *mut c_void,
    statistics: *mut akunu_statistics,
) -> akunu_status {
    guard(|| {
        let shared = shared(sequence)?;
        let mut state = shared.lock()?;
        // SAFETY: the caller's promise, see `arguments`.
        let tokens = || unsafe { elements(prompt, count, "prompt") };
        // SAFETY: as above.
        unsafe { begin(&shared, &mut state, options, |_, _, _| Ok(tokens()?.to_vec()))? };
        let mut listening = true;
        while let Some(piece) = state.next()? {
            if let (Some(callback), true) = (callback, listening) {
                let view = piece_view(piece);
                // SAFETY: the caller's function, of the type the header gives it.
                listening = unsafe { callback(user, &raw const view) };
            }
            if !listening {
                shared.stop_handle().stop();
            }
        }
        if statistics.is_null() {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { write_sized(statistics, (&state.report).into(), "statistics") }
    })
}
