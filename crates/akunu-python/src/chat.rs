//! Conversations.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use akunu::{Channel, Message};
use pyo3::prelude::*;

use crate::errors::usage;
use crate::generation::{Event, Listener, Pieces, Stream};

/// A conversation with a model. What was said before stays in the cache and is not read again.
///
/// >>> chat = chatty.chat(system="Be brief.", max_tokens=4, temperature=0)
/// >>> answer = chat.ask("Hello!")
/// >>> "".join(answer) == answer.text
/// True
/// >>> [message["role"] for message in chat.messages]
/// ['system', 'user', 'assistant']
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Chat(Arc<Mutex<akunu::Chat>>);

impl Chat {
    pub(crate) fn new(chat: akunu::Chat) -> Chat {
        Chat(Arc::new(Mutex::new(chat)))
    }

    /// The conversation, unless an answer is being generated.
    fn with<T>(&self, work: impl FnOnce(&mut akunu::Chat) -> T) -> PyResult<T> {
        match self.0.try_lock() {
            Ok(mut chat) => Ok(work(&mut chat)),
            Err(TryLockError::Poisoned(poisoned)) => Ok(work(&mut poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => {
                Err(usage("the last answer is still being generated: read it to its end, or let go of it"))
            }
        }
    }
}

#[pymethods]
impl Chat {
    /// Says something and gives the answer as it is generated. Whatever was generated becomes part of the conversation.
    fn ask(&self, py: Python<'_>, text: String) -> PyResult<Py<Answer>> {
        self.with(|_| ())?;
        let chat = Arc::clone(&self.0);
        let work = move |listener: &Listener| {
            let mut chat = chat.lock().unwrap_or_else(PoisonError::into_inner);
            let end = match answer(&mut chat, &text, listener) {
                Ok(Some(end)) => end,
                Ok(None) => return,
                Err(error) => Event::Failed(error),
            };
            // Whoever hears of the end may ask on.
            drop(chat);
            listener.send(end);
        };
        Pieces::give(py, Stream::begin(py, work)?, Answer)
    }

    /// The conversation so far: dictionaries with "role" and "content".
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = self.with(|chat| serde_json::to_string(chat.messages()))?;
        let json = json.map_err(|error| usage(&error.to_string()))?;
        py.import("json")?.call_method1("loads", (json,))
    }

    #[setter]
    fn set_messages(&self, messages: &Bound<'_, PyAny>) -> PyResult<()> {
        let json: String = messages.py().import("json")?.call_method1("dumps", (messages,))?.extract()?;
        let messages: Vec<Message> = serde_json::from_str(&json)
            .map_err(|error| usage(&format!("these are no messages of a conversation: {error}")))?;
        self.with(|chat| chat.set_messages(messages))
    }

    /// Forgets the conversation, except what the model should be like.
    fn reset(&self) -> PyResult<()> {
        self.with(akunu::Chat::reset)
    }
}

/// Generates an answer; `None` when nobody listens any more.
fn answer(chat: &mut akunu::Chat, text: &str, listener: &Listener) -> akunu::Result<Option<Event>> {
    let mut answer = chat.ask(text)?;
    if !listener.send(Event::Begun(answer.stop_handle())) {
        return Ok(None);
    }
    for piece in answer.by_ref() {
        let piece = piece?;
        let thought = piece.channel == Channel::Reasoning;
        if !listener.send(Event::Piece { text: piece.text, thought, tokens: Vec::new() }) {
            return Ok(None);
        }
    }
    Ok(Some(Event::Done(answer.finish_reason(), *answer.statistics())))
}

/// An answer as it is generated: an iterator of pieces, also for `async for`. Thoughts are kept apart.
#[pyclass(frozen, extends = Pieces, module = "akunu")]
pub(crate) struct Answer;

#[pymethods]
impl Answer {
    /// What the model thought so far.
    #[getter]
    fn thoughts(slf: &Bound<'_, Self>) -> PyResult<String> {
        slf.as_super().get().with(|stream| stream.thoughts.clone())
    }
}
