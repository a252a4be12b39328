//! Ctrl-C: the first asks the running command to clean up and end, the second ends the process.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

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
