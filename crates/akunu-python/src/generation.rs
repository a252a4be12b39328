//! Text on its way from a thread of its own to Python.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, TryLockError};
use std::thread::JoinHandle;

use akunu::{FinishReason, StopHandle};
use pyo3::PyClass;
use pyo3::prelude::*;

use crate::errors::{raise, usage};
use crate::waiting;

/// Pieces that may wait for Python before the generation waits too.
const AHEAD: usize = 64;

/// What comes from the thread that generates.
pub(crate) enum Event {
    /// It has begun, and can be stopped.
    Begun(StopHandle),
    /// More text, or more of the model's thoughts.
    Piece { text: String, thought: bool, tokens: Vec<u32> },
    /// The end.
    Done(Option<FinishReason>, akunu::Statistics),
    /// Another end.
    Failed(akunu::Error),
}

/// Where a generation sends what it makes; false when nobody listens any more.
pub(crate) struct Listener(SyncSender<Event>);

impl Listener {
    pub(crate) fn send(&self, event: Event) -> bool {
        self.0.send(event).is_ok()
    }
}

/// Text as it is generated, and what is known when it ends.
pub(crate) struct Stream {
    events: Option<Mutex<Receiver<Event>>>,
    thread: Option<JoinHandle<()>>,
    stop: StopHandle,
    pub(crate) text: String,
    pub(crate) thoughts: String,
    tokens: Vec<u32>,
    end: Option<(Option<FinishReason>, akunu::Statistics)>,
}

impl Stream {
    /// Lets `work` generate on a thread of its own. It must free its sequence before it sends the end.
    pub(crate) fn begin(py: Python<'_>, work: impl FnOnce(&Listener) + Send + 'static) -> PyResult<Stream> {
        let (sender, receiver) = sync_channel(AHEAD);
        let receiver = Mutex::new(receiver);
        let thread = std::thread::spawn(move || work(&Listener(sender)));
        match waiting::receive(py, &receiver, || {})? {
            Some(Event::Begun(stop)) => Ok(Stream {
                events: Some(receiver),
                thread: Some(thread),
                stop,
                text: String::new(),
                thoughts: String::new(),
                tokens: Vec::new(),
                end: None,
            }),
            Some(Event::Failed(error)) => Err(raise(&error)),
            _ => Err(broken()),
        }
    }

    /// The next piece that is not a thought; `None` at the end.
    pub(crate) fn next(&mut self, py: Python<'_>) -> PyResult<Option<String>> {
        loop {
            let Some(events) = self.events.as_ref().filter(|_| self.end.is_none()) else { return Ok(None) };
            match waiting::receive(py, events, || self.stop.stop())? {
                Some(Event::Piece { text, thought, tokens }) => {
                    self.tokens.extend(tokens);
                    let whole = if thought { &mut self.thoughts } else { &mut self.text };
                    whole.push_str(&text);
                    if !thought && !text.is_empty() {
                        return Ok(Some(text));
                    }
                }
                Some(Event::Done(finish, statistics)) => self.end = Some((finish, statistics)),
                Some(Event::Failed(error)) => {
                    self.events = None;
                    return Err(raise(&error));
                }
                Some(Event::Begun(_)) | None => {
                    self.events = None;
                    return Err(broken());
                }
            }
        }
    }

    /// All text to the end.
    pub(crate) fn read(&mut self, py: Python<'_>) -> PyResult<String> {
        while self.next(py)?.is_some() {}
        Ok(self.text.clone())
    }

    pub(crate) fn finish_reason(&self) -> Option<&'static str> {
        self.end.as_ref().map(|(finish, _)| match finish {
            Some(FinishReason::Stop) => "stop",
            Some(FinishReason::StopString(_)) => "stop_string",
            Some(FinishReason::Length) => "length",
            Some(FinishReason::Cancelled) | None => "cancelled",
        })
    }

    pub(crate) fn statistics(&self) -> Option<Statistics> {
        self.end.as_ref().map(|(_, statistics)| Statistics(*statistics))
    }
}

impl Drop for Stream {
    /// The sequence is free when this returns. The thread never wants the interpreter's lock.
    fn drop(&mut self) {
        self.stop.stop();
        self.events = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

fn broken() -> PyErr {
    usage("a mistake in akunu: the generation fell silent (see stderr)")
}

/// What a generation took.
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Statistics(akunu::Statistics);

#[pymethods]
impl Statistics {
    /// Tokens of the prompt.
    #[getter]
    fn prompt_tokens(&self) -> usize {
        self.0.prompt_tokens
    }

    /// Of those, how many were in the cache already.
    #[getter]
    fn cached_tokens(&self) -> usize {
        self.0.cached_tokens
    }

    /// Tokens generated, the end token not included.
    #[getter]
    fn generated_tokens(&self) -> usize {
        self.0.generated_tokens
    }

    /// Seconds the prompt took.
    #[getter]
    fn prefill_seconds(&self) -> f64 {
        self.0.prefill.as_secs_f64()
    }

    /// Seconds all tokens after the first took.
    #[getter]
    fn decode_seconds(&self) -> f64 {
        self.0.decode.as_secs_f64()
    }

    /// Prompt tokens per second, those in the cache left out.
    #[getter]
    fn prefill_rate(&self) -> f64 {
        self.0.prefill_rate()
    }

    /// Generated tokens per second, the first left out.
    #[getter]
    fn decode_rate(&self) -> f64 {
        self.0.decode_rate()
    }

    fn __repr__(&self) -> String {
        format!(
            "Statistics(prompt_tokens={}, generated_tokens={})",
            self.0.prompt_tokens, self.0.generated_tokens
        )
    }
}

/// A stream that one thread at a time reads and every thread may stop: what `Generation` and `Answer` have in common.
#[pyclass(frozen, subclass, name = "_Pieces", module = "akunu._akunu")]
pub(crate) struct Pieces {
    stream: Mutex<Stream>,
    stop: StopHandle,
}

impl Pieces {
    /// An object of a class over this one, for the stream.
    pub(crate) fn give<T>(py: Python<'_>, stream: Stream, own: T) -> PyResult<Py<T>>
    where
        T: PyClass<BaseType = Pieces>,
    {
        let stop = stream.stop.clone();
        let pieces = PyClassInitializer::from(Pieces { stream: Mutex::new(stream), stop });
        Py::new(py, pieces.add_subclass(own))
    }

    /// The stream, unless another thread has it. Waiting for it would mean waiting with the interpreter's lock in hand.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Stream) -> T) -> PyResult<T> {
        match self.stream.try_lock() {
            Ok(mut stream) => Ok(work(&mut stream)),
            Err(TryLockError::Poisoned(poisoned)) => Ok(work(&mut poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => Err(usage("another thread is reading this generation")),
        }
    }
}

#[pymethods]
impl Pieces {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(|stream| stream.next(py))?
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("akunu._aio")?.call_method1("pieces", (slf,))
    }

    /// Generates to the end and gives the whole text.
    fn read(&self, py: Python<'_>) -> PyResult<String> {
        self.with(|stream| stream.read(py))?
    }

    /// Ends the generation, from any thread. What was generated stays.
    fn stop(&self) {
        self.stop.stop();
    }

    /// The text so far.
    #[getter]
    fn text(&self) -> PyResult<String> {
        self.with(|stream| stream.text.clone())
    }

    /// Why it ended: "stop" (the model is done), "stop_string", "length" or "cancelled"; None while it goes on.
    #[getter]
    fn finish_reason(&self) -> PyResult<Option<&'static str>> {
        self.with(|stream| stream.finish_reason())
    }

    /// What it took; None while it goes on.
    #[getter]
    fn statistics(&self) -> PyResult<Option<Statistics>> {
        self.with(|stream| stream.statistics())
    }
}

/// Text as it is generated: an iterator of pieces, also for `async for`.
///
/// >>> generation = model.generate("Once upon a time", max_tokens=4)
/// >>> "".join(generation) == generation.text
/// True
/// >>> generation.finish_reason, generation.statistics.generated_tokens
/// ('length', 4)
///
/// Letting go of it ends the generation.
#[pyclass(frozen, extends = Pieces, module = "akunu")]
pub(crate) struct Generation;

#[pymethods]
impl Generation {
    /// The tokens so far.
    #[getter]
    fn tokens(slf: &Bound<'_, Self>) -> PyResult<Vec<u32>> {
        slf.as_super().get().with(|stream| stream.tokens.clone())
    }
}
