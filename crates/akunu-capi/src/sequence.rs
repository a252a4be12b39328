//! Sequences: tokens fed and read one call at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use engine::{FinishReason, Generation, Phase, Piece, Sequence, Statistics, StopHandle};

use crate::arguments::{check_room, elements, fill, write};
use crate::handles::Handles;
use crate::model::{akunu_model, loaded};
use crate::options::{akunu_sampling, sampling};
use crate::status::{Failure, Outcome, akunu_status, guard};

/// A sequence of tokens and its place in the cache of a model: one conversation, say. One thread at a time may use it; others
/// get AKUNU_IN_USE. akunu_sequence_stop alone may be called by anyone.
pub struct akunu_sequence {
    _private: (),
}

pub(crate) static SEQUENCES: Handles<Shared> = Handles::new("sequence");

/// What the threads of a program share of a sequence.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Stops what is under way. Apart from the state, which whoever runs the sequence holds.
    stop: Mutex<StopHandle>,
}

/// A sequence, idle or generating.
pub(crate) struct State {
    work: Work,
    /// What the last generation made of the sequence, until tokens are fed by hand.
    history: Option<Vec<u32>>,
    /// The piece the caller has pointers into.
    pub(crate) piece: Piece,
    /// Of the last generation.
    pub(crate) report: Report,
}

enum Work {
    Idle(Box<Sequence>),
    Generating(Box<Generation>),
    /// A panic came between the two.
    Lost,
}

/// What a generation has come to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Report {
    pub(crate) statistics: Statistics,
    pub(crate) finish: Option<FinishReason>,
}

impl Shared {
    fn new(sequence: Sequence) -> Shared {
        let stop = Mutex::new(sequence.stop_handle());
        let work = Work::Idle(Box::new(sequence));
        let state = State { work, history: None, piece: Piece::default(), report: Report::default() };
        Shared { state: Mutex::new(state), stop }
    }

    /// The state, unless someone else is using it.
    pub(crate) fn lock(&self) -> Outcome<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            // A panic leaves `Work::Lost`, which is found out.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Failure::new(
                akunu_status::AKUNU_IN_USE,
                "the sequence is in use, by another thread or by the call this one came from",
            )),
        }
    }

    pub(crate) fn stop_handle(&self) -> MutexGuard<'_, StopHandle> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The sequence; a generation that is under way ends.
    pub(crate) fn idle(&mut self) -> Outcome<&mut Sequence> {
        if let Work::Generating(generation) = &self.work {
            self.history = Some(generation.history());
        }
        self.work = match std::mem::replace(&mut self.work, Work::Lost) {
            Work::Generating(generation) => Work::Idle(Box::new(generation.into_sequence())),
            work => work,
        };
        match &mut self.work {
            Work::Idle(sequence) => Ok(sequence),
            _ => Err(Failure::new(
                akunu_status::AKUNU_INTERNAL,
                "an earlier call broke this sequence: free it",
            )),
        }
    }

    /// The sequence for tokens fed by hand: what was generated and not fed no longer counts.
    fn by_hand(&mut self) -> Outcome<&mut Sequence> {
        self.idle()?;
        self.history = None;
        self.idle()
    }

    /// The generation that is under way.
    pub(crate) fn generation(&mut self) -> Outcome<&mut Generation> {
        match &mut self.work {
            Work::Generating(generation) => Ok(generation),
            _ => Err(Failure::usage("the sequence is not generating: begin first")),
        }
    }

    /// Begins a generation. Where the request makes no sense the sequence stays as it was.
    pub(crate) fn begin(
        &mut self,
        prompt: &[u32],
        append: bool,
        settings: &engine::Settings,
    ) -> Outcome<StopHandle> {
        self.idle()?;
        let history = self.history.take();
        let Work::Idle(sequence) = std::mem::replace(&mut self.work, Work::Lost) else {
            return Err(Failure::new(akunu_status::AKUNU_INTERNAL, "a sequence is neither idle nor broken"));
        };
        let begun = match (append, &history) {
            (false, _) => prompt.to_vec(),
            (true, None) => [sequence.tokens(), prompt].concat(),
            (true, Some(history)) => [history, prompt].concat(),
        };
        match Generation::begin(*sequence, begun, settings) {
            Ok(generation) => {
                let stop = generation.stop_handle();
                self.report = Report { statistics: *generation.statistics(), finish: None };
                self.work = Work::Generating(Box::new(generation));
                Ok(stop)
            }
            Err(refused) => {
                let (sequence, error) = *refused;
                self.work = Work::Idle(Box::new(sequence));
                self.history = history;
                Err(error.into())
            }
        }
    }
}

pub(crate) fn shared(sequence: *const akunu_sequence) -> Outcome<Arc<Shared>> {
    SEQUENCES.get(sequence)
}

/// Makes an empty sequence. There can be as many as the model was loaded with room for. `*sequence` is to be given to
/// akunu_sequence_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_sequence_create(
    model: *const akunu_model,
    sequence: *mut *mut akunu_sequence,
) -> akunu_status {
    let make = || Ok(Shared::new(loaded(model)?.model.sequence()?));
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { SEQUENCES.give(sequence, "sequence", make) })
}

/// Makes a second sequence with the same tokens. Nothing is copied before one of the two goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_sequence_fork(
    sequence: *mut akunu_sequence,
    fork: *mut *mut akunu_sequence,
) -> akunu_status {
    let make = || {
        let original = shared(sequence)?;
        let mut original = original.lock()?;
        let made = Shared::new(original.idle()?.fork()?);
        made.lock()?.history.clone_from(&original.history);
        Ok(made)
    };
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { SEQUENCES.give(fork, "fork", make) })
}

/// Frees a sequence; null is fine. If another thread is using it, that ends first.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_sequence_free(sequence: *mut akunu_sequence) -> akunu_status {
    guard(|| SEQUENCES.remove(sequence))
}

/// Ends what the sequence is doing, from any thread: a generation ends as AKUNU_CANCELLED, other calls fail with
/// AKUNU_STOPPED. A generation that begins later goes its way; of other calls, one that has not begun yet ends when it does.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_sequence_stop(sequence: *const akunu_sequence) -> akunu_status {
    guard(|| {
        shared(sequence)?.stop_handle().stop();
        Ok(())
    })
}

/// How many tokens the sequence holds: the position of the next one. A generation that is under way ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_sequence_position(
    sequence: *mut akunu_sequence,
    position: *mut usize,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { write(position, shared(sequence)?.lock()?.idle()?.position(), "position") })
}

/// The tokens the sequence holds. A generation that is under way ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_sequence_tokens(
    sequence: *mut akunu_sequence,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { fill(shared(sequence)?.lock()?.idle()?.tokens(), tokens, capacity, count) })
}

/// Takes back all tokens from `position` on; 0 empties the sequence.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_sequence_rollback(sequence: *mut akunu_sequence, position: usize) -> akunu_status {
    guard(|| {
        let sequence = shared(sequence)?;
        let mut state = sequence.lock()?;
        let sequence = state.by_hand()?;
        if position == 0 {
            sequence.reset();
            return Ok(());
        }
        Ok(sequence.rollback(position)?)
    })
}

/// Sets how akunu_sequence_prefill, _step and _chain choose tokens; null for the likeliest, as it is at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_sequence_set_sampling(
    sequence: *mut akunu_sequence,
    sampling: *const akunu_sampling,
) -> akunu_status {
    guard(|| {
        // SAFETY: the caller's promise, see `arguments`.
        let chosen = unsafe { self::sampling(sampling)? };
        Ok(shared(sequence)?.lock()?.by_hand()?.set_sampling(&chosen)?)
    })
}

/// Feeds tokens and gives the one chosen after them, which is not fed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_sequence_prefill(
    sequence: *mut akunu_sequence,
    tokens: *const u32,
    count: usize,
    next: *mut u32,
) -> akunu_status {
    guard(|| {
        // SAFETY: the caller's promise, see `arguments`.
        let tokens = unsafe { elements(tokens, count, "tokens")? };
        let chosen = shared(sequence)?.lock()?.by_hand()?.prefill(tokens)?;
        // SAFETY: as above.
        unsafe { write(next, chosen, "next") }
    })
}

/// Feeds one token and gives the one chosen after it, which is not fed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_sequence_step(
    sequence: *mut akunu_sequence,
    token: u32,
    next: *mut u32,
) -> akunu_status {
    guard(|| {
        let chosen = shared(sequence)?.lock()?.by_hand()?.step(token)?;
        // SAFETY: the caller's promise, see `arguments`.
        unsafe { write(next, chosen, "next") }
    })
}

/// Feeds `token`, the token chosen after it, and so on, in one go, until `count` tokens are chosen and in `tokens`. All but the
/// last were fed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_sequence_chain(
    sequence: *mut akunu_sequence,
    token: u32,
    count: usize,
    tokens: *mut u32,
) -> akunu_status {
    guard(|| {
        let sequence = shared(sequence)?;
        let mut state = sequence.lock()?;
        let sequence = state.by_hand()?;
        let room = sequence.room();
        if count > room {
            return Err(Failure::usage(format_args!("{count} tokens: the sequence has room for {room}")));
        }
        let chosen = sequence.chain(token, count)?.to_vec();
        sequence.commit(count)?;
        // SAFETY: the caller's promise, see `arguments`: there is room for `count`.
        unsafe { fill(&chosen, tokens, count, std::ptr::null_mut()) }
    })
}

/// Feeds tokens and gives the logits after each: count times vocabulary numbers. Not more tokens than the model was loaded with
/// outputs for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_sequence_logits(
    sequence: *mut akunu_sequence,
    tokens: *const u32,
    count: usize,
    logits: *mut f32,
    capacity: usize,
    length: *mut usize,
) -> akunu_status {
    guard(|| {
        // SAFETY: the caller's promise, see `arguments`.
        let tokens = unsafe { elements(tokens, count, "tokens")? };
        let sequence = shared(sequence)?;
        let mut state = sequence.lock()?;
        // Asking for the length must not feed anything, nor forget what was generated.
        let needed = tokens.len().saturating_mul(state.idle()?.model().vocabulary());
        // SAFETY: as above.
        unsafe { check_room(needed, capacity, length)? };
        // SAFETY: as above.
        unsafe { fill(state.by_hand()?.logits(tokens, Phase::Prompt)?, logits, capacity, length) }
    })
}
