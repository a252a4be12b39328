//! An allocator that counts, for tests that say what something allocates: they name it with
//! `#[global_allocator] static COUNTING: Counting = Counting;`.

#![allow(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// The system's allocator, counted.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE_IN_ALL: AtomicIsize = AtomicIsize::new(0);
static PEAK_IN_ALL: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: isize) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
    let live = LIVE_IN_ALL.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK_IN_ALL.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: memory comes from the system's allocator, called with the arguments this one was called with; counting neither
// allocates nor panics. `realloc` is the default one, so that both copies count while they exist.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        count(layout.size() as isize);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps `dealloc`'s contract, and the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How often any thread has allocated something so far.
pub fn allocations() -> usize {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Runs `work` and gives the most bytes that this thread had allocated at once beyond those that were before.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before) as usize)
}

/// The same for all threads together: for a test that runs alone in its process.
pub fn peak_of_all_threads<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE_IN_ALL.load(Ordering::Relaxed);
    PEAK_IN_ALL.store(before, Ordering::Relaxed);
    let result = work();
    (result, (PEAK_IN_ALL.load(Ordering::Relaxed) - before) as usize)
}
