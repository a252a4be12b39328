//! Objects that programs in C hold on to.
//!
//! A handle looks like a pointer, so that the compiler tells models from sequences, but is a number: the key of a table of
//! what is alive. No number is given out twice, so a handle that was freed is recognised for ever.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::arguments::write;
use crate::status::{Failure, Outcome, akunu_status};

/// The next number, over all kinds: a handle of one kind is never one of another.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The living objects of one kind. `H` is the type the header calls it by.
pub(crate) struct Handles<T> {
    /// The kind, for messages.
    kind: &'static str,
    live: Mutex<BTreeMap<usize, Arc<T>>>,
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: &'static str) -> Handles<T> {
        Handles { kind, live: Mutex::new(BTreeMap::new()) }
    }

    /// Gives an object a handle.
    pub(crate) fn insert<H>(&self, object: T) -> *mut H {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.live().insert(number, Arc::new(object));
        ptr::without_provenance_mut(number)
    }

    /// Makes an object and writes its handle, which is null if that fails. `name` is the argument's.
    ///
    /// # Safety
    ///
    /// As [`arguments`](crate::arguments) says.
    pub(crate) unsafe fn give<H>(
        &self,
        handle: *mut *mut H,
        name: &str,
        make: impl FnOnce() -> Outcome<T>,
    ) -> Outcome {
        // SAFETY: handed on.
        unsafe { write(handle, ptr::null_mut(), name)? };
        let made = make()?;
        // SAFETY: handed on.
        unsafe { write(handle, self.insert(made), name) }
    }

    /// The object of a handle. It stays alive while the caller has it, even if the handle is freed meanwhile.
    pub(crate) fn get<H>(&self, handle: *const H) -> Outcome<Arc<T>> {
        self.live().get(&handle.addr()).map(Arc::clone).ok_or_else(|| self.unknown(handle))
    }

    /// Ends a handle. Null is none, and fine.
    pub(crate) fn remove<H>(&self, handle: *const H) -> Outcome {
        if handle.is_null() {
            return Ok(());
        }
        let removed = self.live().remove(&handle.addr());
        // The object itself goes when the table is open again: that may take long.
        removed.map(drop).ok_or_else(|| self.unknown(handle))
    }

    fn unknown<H>(&self, handle: *const H) -> Failure {
        let kind = self.kind;
        let message = if handle.is_null() {
            format!("the {kind} is null")
        } else {
            format!("this {kind} was freed, or never was one")
        };
        Failure::new(akunu_status::AKUNU_BAD_HANDLE, message)
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<T>>> {
        // A map is whole before and after each of these calls.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Thing {}

    #[test]
    fn a_freed_handle_is_recognised_for_ever() {
        let handles = Handles::new("number");
        let first: *mut Thing = handles.insert(7);
        assert_eq!(*handles.get(first).unwrap(), 7);
        handles.remove(first).unwrap();
        let second: *mut Thing = handles.insert(8);
        assert_ne!(first, second);
        assert!(handles.get(first).is_err());
        assert!(handles.remove(first).is_err());
        assert!(handles.remove(ptr::null::<Thing>()).is_ok());
        assert!(handles.get(ptr::null::<Thing>()).is_err());
    }

    #[test]
    fn an_object_in_use_outlives_its_handle() {
        let handles = Handles::new("number");
        let handle: *mut Thing = handles.insert(7);
        let object = handles.get(handle).unwrap();
        handles.remove(handle).unwrap();
        assert_eq!(*object, 7);
    }
}
