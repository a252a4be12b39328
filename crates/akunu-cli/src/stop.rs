//! Ctrl-C: the first asks the running command to clean up and end, the second ends the process.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// How soon a stop is noticed.
const POLL: Duration = Duration::from_millis(20);

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Begins to listen.
pub fn listen() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // In this order: only a signal that finds the flag set ends the process.
        flag::register_conditional_default(signal, &STOPPED)?;
        flag::register(signal, &STOPPED)?;
    }
    Ok(())
}

/// What long work asks now and then.
pub fn asked() -> ControlFlow<()> {
    if STOPPED.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Whether a stop was asked for, which is forgotten with this: the program goes on.
pub fn take() -> bool {
    STOPPED.swap(false, Ordering::Relaxed)
}

/// While it lives, Ctrl-C stops a generation.
pub struct Watch {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Watch {
    /// Begins to watch.
    pub fn new(handle: akunu::StopHandle) -> Watch {
        let ended = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            while !watched.load(Ordering::Relaxed) {
                if asked().is_break() {
                    handle.stop();
                }
                thread::park_timeout(POLL);
            }
        });
        Watch { ended, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot panic, and nothing depends on it.
            let _ = thread.join();
        }
    }
}
