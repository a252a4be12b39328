//! Many requests at once: one run of the model serves a token of each.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use engine::scheduler::{Event, Limits, Request, Response};
use engine::{FinishReason, Scheduler};

use crate::arguments::{elements, write_sized};
use crate::generate::{akunu_piece, akunu_statistics, piece_view};
use crate::handles::Handles;
use crate::model::{akunu_model, loaded};
use crate::options::{akunu_generate_options, settings};
use crate::sequence::Report;
use crate::status::{Failure, Outcome, akunu_status, guard};

/// How long a stop may take to be noticed where no piece comes.
const ATTENTION: Duration = Duration::from_millis(20);

/// Serves many requests with one model. Threads may share it: what they ask for runs together.
pub struct akunu_scheduler {
    _private: (),
}

static SCHEDULERS: Handles<Shared> = Handles::new("scheduler");

struct Shared {
    scheduler: Scheduler,
    /// How often everything was stopped.
    stops: AtomicU64,
}

/// A prompt and what is wanted of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_request {
    /// The tokens to continue: prompt_count of them.
    pub prompt: *const u32,
    /// How many.
    pub prompt_count: usize,
    /// How; may be null. append and speculate are not for this.
    pub options: *const akunu_generate_options,
    /// Where to put what it took; may be null.
    pub statistics: *mut akunu_statistics,
}

/// Hears each piece of request number `index`; false ends that request. It must not throw. The piece is gone when it returns.
pub type akunu_batch_callback =
    Option<unsafe extern "C" fn(user: *mut c_void, index: usize, piece: *const akunu_piece) -> bool>;

/// Makes a scheduler. All sequences of the model are for it: as many requests run at the same time, others wait. `*scheduler`
/// is to be given to akunu_scheduler_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_scheduler_create(
    model: *const akunu_model,
    scheduler: *mut *mut akunu_scheduler,
) -> akunu_status {
    let make = || {
        // Callers wait for their own requests, so that is what limits the queue.
        let limits = Limits { queue: usize::MAX / 2, ..Limits::default() };
        let made = Scheduler::new(loaded(model)?.model.clone(), &limits)?;
        Ok(Shared { scheduler: made, stops: AtomicU64::new(0) })
    };
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { SCHEDULERS.give(scheduler, "scheduler", make) })
}

/// Frees a scheduler; null is fine. If another thread waits for requests, they end first.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_scheduler_free(scheduler: *mut akunu_scheduler) -> akunu_status {
    guard(|| SCHEDULERS.remove(scheduler))
}

/// Ends all requests that are under way, from any thread: they finish as AKUNU_CANCELLED.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_scheduler_stop(scheduler: *const akunu_scheduler) -> akunu_status {
    guard(|| {
        SCHEDULERS.get(scheduler)?.stops.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// Runs requests together until all have ended, and gives their pieces to `callback`, which may be null, on this thread. If one
/// fails, so does the call, and the others end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_scheduler_run(
    scheduler: *const akunu_scheduler,
    requests: *const akunu_request,
    count: usize,
    callback: akunu_batch_callback,
    user: *mut c_void,
) -> akunu_status {
    guard(|| {
        let shared = SCHEDULERS.get(scheduler)?;
        let stops = shared.stops.load(Ordering::Relaxed);
        // SAFETY: the caller's promise, see `arguments`.
        let requests = unsafe { elements(requests, count, "requests")? };
        let mut running = Vec::with_capacity(requests.len());
        for request in requests {
            // SAFETY: as above.
            let response = shared.scheduler.submit(unsafe { read(request)? })?;
            running.push(Running { response: Some(response), report: Report::default() });
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        while running.iter().any(|running| running.response.is_some()) {
            let mut heard = false;
            for (index, running) in running.iter_mut().enumerate() {
                while let Some(event) = running.poll(&mut context) {
                    heard = true;
                    running.take(event?, |piece| match callback {
                        // SAFETY: the caller's function, of the type the header gives it.
                        Some(callback) => unsafe { callback(user, index, &raw const *piece) },
                        None => true,
                    });
                }
            }
            if shared.stops.load(Ordering::Relaxed) != stops {
                running.iter_mut().for_each(Running::cancel);
            } else if !heard {
                std::thread::park_timeout(ATTENTION);
            }
        }
        for (request, running) in requests.iter().zip(&running) {
            if !request.statistics.is_null() {
                // SAFETY: the caller's promise, see `arguments`.
                unsafe { write_sized(request.statistics, (&running.report).into(), "statistics")? };
            }
        }
        Ok(())
    })
}

/// Wakes the thread that waits for events.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A request on its way.
struct Running {
    /// `None` at the end.
    response: Option<Response>,
    report: Report,
}

impl Running {
    /// What happened, if anything did.
    fn poll(&mut self, context: &mut Context<'_>) -> Option<Outcome<Event>> {
        match self.response.as_mut()?.poll_event(context) {
            Poll::Pending => None,
            Poll::Ready(Some(Event::Failed(error))) => Some(Err(error.into())),
            Poll::Ready(Some(event)) => Some(Ok(event)),
            Poll::Ready(None) => {
                self.response = None;
                Some(Err(Failure::new(akunu_status::AKUNU_INTERNAL, "the scheduler fell silent")))
            }
        }
    }

    fn take(&mut self, event: Event, callback: impl FnOnce(&akunu_piece) -> bool) {
        match event {
            Event::Started { .. } | Event::Failed(_) => {}
            Event::Piece { mut piece, .. } => {
                self.report.statistics.generated_tokens += piece.tokens.len();
                piece.text.push('\0');
                if !callback(&piece_view(&piece)) {
                    self.cancel();
                }
            }
            Event::Finished { reason, .. } => self.report.finish = Some(reason),
            Event::Done(statistics) => {
                self.report.statistics = statistics;
                self.response = None;
            }
        }
    }

    /// Ends the request: that nobody listens is how the scheduler hears of it.
    fn cancel(&mut self) {
        if self.response.take().is_some() && self.report.finish.is_none() {
            self.report.finish = Some(FinishReason::Cancelled);
        }
    }
}

/// # Safety
///
/// As [`arguments`](crate::arguments) says.
unsafe fn read(request: &akunu_request) -> Outcome<Request> {
    // SAFETY: handed on.
    let prompt = unsafe { elements(request.prompt, request.prompt_count, "prompt")? };
    // SAFETY: handed on.
    let (settings, append) = unsafe { settings(request.options)? };
    if append {
        return Err(Failure::usage("a request has no sequence to go on from: options.append makes no sense"));
    }
    Ok(Request { settings, ..Request::new(prompt.to_vec()) })
}
