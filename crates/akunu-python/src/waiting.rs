//! Waiting for work without holding the interpreter's lock, and with an ear for Ctrl-C.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::usage;

/// How long Ctrl-C may take to be noticed.
const ATTENTION: Duration = Duration::from_millis(50);

/// The next message; `None` when there will be no more. Ctrl-C calls `stop` and raises `KeyboardInterrupt`.
pub(crate) fn receive<T: Send>(
    py: Python<'_>,
    messages: &Mutex<Receiver<T>>,
    stop: impl Fn(),
) -> PyResult<Option<T>> {
    loop {
        let wait = || messages.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(ATTENTION);
        match py.detach(wait) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(interrupt) = py.check_signals() {
                    stop();
                    return Err(interrupt);
                }
            }
        }
    }
}

/// Runs `work` on a thread of its own and gives what it comes to. Ctrl-C calls `stop` and raises `KeyboardInterrupt`.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
    stop: impl Fn(),
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        // Nobody listens after an interrupt.
        let _ = sender.send(work());
    });
    receive(py, &Mutex::new(receiver), stop)?.ok_or_else(|| usage("a mistake in akunu: see stderr"))
}
