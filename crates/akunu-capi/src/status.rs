//! How functions say what became of them.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use engine::{Error, Kind};

/// What became of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum akunu_status {
    /// Done.
    AKUNU_OK = 0,
    /// The generation is over: there is no further piece. Not an error.
    AKUNU_DONE = 1,
    /// The buffer is too small; nothing was written but the length that is needed.
    AKUNU_SHORT_BUFFER = 2,
    /// The object is in use, on another thread or further up in this one.
    AKUNU_IN_USE = 3,
    /// The handle is null, was freed, or belongs to another kind of object.
    AKUNU_BAD_HANDLE = 4,
    /// The arguments make no sense.
    AKUNU_USAGE = 5,
    /// There is no such model, file or tensor.
    AKUNU_NOT_FOUND = 6,
    /// A file does not follow its format.
    AKUNU_BAD_DATA = 7,
    /// Well formed, but nothing akunu can do.
    AKUNU_UNSUPPORTED = 8,
    /// The system or a server said no.
    AKUNU_DENIED = 9,
    /// Something is full or busy; trying again may help.
    AKUNU_UNAVAILABLE = 10,
    /// The operating system failed.
    AKUNU_SYSTEM = 11,
    /// Somebody asked to stop.
    AKUNU_STOPPED = 12,
    /// A mistake in akunu. The objects of the call should be freed.
    AKUNU_INTERNAL = 13,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: akunu_status,
    message: String,
    hint: Option<String>,
}

/// What most functions do: something, or fail.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: akunu_status, message: impl Display) -> Failure {
        Failure { status, message: message.to_string(), hint: None }
    }

    /// The arguments make no sense.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure::new(akunu_status::AKUNU_USAGE, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match error.kind() {
            Kind::Usage => akunu_status::AKUNU_USAGE,
            Kind::NotFound => akunu_status::AKUNU_NOT_FOUND,
            Kind::BadData => akunu_status::AKUNU_BAD_DATA,
            Kind::Unsupported => akunu_status::AKUNU_UNSUPPORTED,
            Kind::Denied => akunu_status::AKUNU_DENIED,
            Kind::Unavailable => akunu_status::AKUNU_UNAVAILABLE,
            Kind::System => akunu_status::AKUNU_SYSTEM,
            Kind::Stopped => akunu_status::AKUNU_STOPPED,
            _ => akunu_status::AKUNU_INTERNAL,
        };
        Failure { status, hint: error.hint(), message: error.to_string() }
    }
}

/// What the last call that failed on a thread left behind.
struct LastError {
    message: CString,
    hint: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

/// Runs a function's body: nothing unwinds beyond it.
pub(crate) fn guard(body: impl FnOnce() -> Outcome) -> akunu_status {
    guard_status(|| body().map(|()| akunu_status::AKUNU_OK))
}

/// The same for bodies that have more than one good end.
pub(crate) fn guard_status(body: impl FnOnce() -> Outcome<akunu_status>) -> akunu_status {
    // What a panic leaves half done is found out by whoever uses it next: see `Sequence::parts`.
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(internal(panic.as_ref())));
    outcome.unwrap_or_else(|failure| {
        let status = failure.status;
        remember(failure);
        status
    })
}

fn internal(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panicked");
    Failure::new(akunu_status::AKUNU_INTERNAL, format_args!("a mistake in akunu: {text}"))
}

fn remember(failure: Failure) {
    let text = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
    let last = LastError { message: text(failure.message), hint: failure.hint.map(text) };
    // A thread that is ending has nobody left to ask.
    let _ = LAST.try_with(|cell| cell.replace(Some(last)));
}

/// A pointer to some text of this thread's last error, or null.
fn last(text: impl Fn(&LastError) -> Option<&CString>) -> *const c_char {
    let pointer = |cell: &RefCell<Option<LastError>>| {
        cell.borrow().as_ref().and_then(&text).map_or(ptr::null(), |text| text.as_ptr())
    };
    LAST.try_with(pointer).unwrap_or(ptr::null())
}

/// What went wrong in the last call that failed on this thread; null if none did. Valid until the next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_error_message() -> *const c_char {
    last(|last| Some(&last.message))
}

/// What can be done about it; null where that is plain from the message.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_error_hint() -> *const c_char {
    last(|last| last.hint.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn message() -> String {
        // SAFETY: the pointer is to this thread's last error, and no call follows before it is read.
        unsafe { CStr::from_ptr(akunu_error_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        assert_eq!(guard(|| panic!("out of {}", "luck")), akunu_status::AKUNU_INTERNAL);
        assert_eq!(message(), "a mistake in akunu: out of luck");
        assert!(akunu_error_hint().is_null());
    }

    #[test]
    fn every_thread_has_an_error_of_its_own() {
        assert_eq!(guard(|| Err(Failure::usage("mine"))), akunu_status::AKUNU_USAGE);
        std::thread::spawn(|| assert!(akunu_error_message().is_null())).join().unwrap();
        assert_eq!(message(), "mine");
    }
}
