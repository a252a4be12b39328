//! Memory shared by the workers: aligned, zeroed, written in disjoint pieces.

use std::alloc::{self, Layout};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr::NonNull;

use akunu_program::{Error, Result};

/// Alignment of every buffer: a cache line, and the widest vector.
pub(crate) const ALIGN: usize = 64;

/// The size of a large page, and from which on they are asked for.
const LARGE_PAGE: usize = 2 << 20;

/// Zeroed bytes that several workers may write at once, each its own part.
pub(crate) struct Shared {
    start: NonNull<u8>,
    len: usize,
    /// The mapping `start` lies in, where it was not allocated.
    #[cfg(target_os = "linux")]
    pages: Option<memmap2::MmapMut>,
}

// SAFETY: a plain allocation; who may touch which part when is the contract of the unsafe accessors.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// `len` zero bytes; pages are not touched until they are used. What is large lies in large pages where the system has
    /// them: weights are read from end to end for every token, and small pages would cost a walk of the page tables every 4 KB.
    ///
    /// For what is small: where the system does not give it, there is nothing left to do. [`Shared::for_user`] is for the rest.
    pub(crate) fn new(len: usize) -> Shared {
        Shared::allocate(len).expect("memory for small things")
    }

    /// The same for what grows with what a user asked for.
    pub(crate) fn for_user(len: usize, what: &'static str) -> Result<Shared> {
        Shared::allocate(len).ok_or(Error::Memory { what, bytes: len })
    }

    fn allocate(len: usize) -> Option<Shared> {
        #[cfg(target_os = "linux")]
        if len >= LARGE_PAGE
            && let Ok(mut pages) = memmap2::MmapMut::map_anon(len.saturating_add(LARGE_PAGE))
        {
            // Only a wish: kernels without large pages refuse it.
            let _ = pages.advise(memmap2::Advice::HugePage);
            let skip = pages.as_ptr().align_offset(LARGE_PAGE);
            let start = NonNull::from(&mut pages[skip..skip + len]).cast();
            return Some(Shared { start, len, pages: Some(pages) });
        }
        let layout = Layout::from_size_align(len.max(1), ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start)?;
        Some(Shared {
            start,
            len,
            #[cfg(target_os = "linux")]
            pages: None,
        })
    }

    /// The bytes of one of the pages it lies in: large ones, or parts as large where the system has none.
    pub(crate) fn page(&self, page: usize) -> Option<Range<usize>> {
        let start = page * LARGE_PAGE;
        (start < self.len).then(|| start..self.len.min(start + LARGE_PAGE))
    }

    /// Has the system clear a page now, not when it is first written, if it can.
    pub(crate) fn populate(&self, page: &Range<usize>) {
        #[cfg(target_os = "linux")]
        if let Some(pages) = &self.pages {
            let skipped = self.address() - pages.as_ptr().addr();
            // Older kernels refuse, and clear it later.
            let _ = pages.advise_range(memmap2::Advice::PopulateWrite, skipped + page.start, page.len());
        }
        #[cfg(not(target_os = "linux"))]
        let _ = page;
    }

    /// A view of `count` values from byte `offset` on.
    ///
    /// # Safety
    /// Nobody writes that part while the view lives. `T` is plain data for which zero bytes are valid.
    pub(crate) unsafe fn get<T: Plain>(&self, offset: usize, count: usize) -> &[T] {
        self.check::<T>(offset, count);
        // SAFETY: in bounds and aligned by the check; not written by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset).cast(), count) }
    }

    /// A view that may be written.
    ///
    /// # Safety
    /// Nobody else reads or writes that part while the view lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn get_mut<T: Plain>(&self, offset: usize, count: usize) -> &mut [T] {
        self.check::<T>(offset, count);
        // SAFETY: in bounds and aligned by the check; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset).cast(), count) }
    }

    /// Where `count` values from byte `offset` on begin.
    pub(crate) fn start_of<T: Plain>(&self, offset: usize, count: usize) -> *mut T {
        self.check::<T>(offset, count);
        // SAFETY: in bounds by the check.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// Where it is.
    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// That there are so many values. Not a call: a kernel that reads a panel at a time would have to save its registers for it.
    #[inline(always)]
    fn check<T>(&self, offset: usize, count: usize) {
        let end = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        assert!(end.is_some_and(|end| end <= self.len) && offset.is_multiple_of(align_of::<T>()));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if self.pages.is_some() {
            return;
        }
        // SAFETY: allocated in `new` with this very layout.
        unsafe {
            let layout = Layout::from_size_align_unchecked(self.len.max(1), ALIGN);
            alloc::dealloc(self.start.as_ptr(), layout);
        }
    }
}

/// Asks for the cache line at that address, which need not be one, where the processor can be asked.
#[inline(always)]
pub(crate) fn ask(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: nothing is read.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: nothing is read.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Types any bytes are a value of.
///
/// # Safety
/// No padding, no invalid bit patterns.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: numbers.
unsafe impl Plain for u8 {}
// SAFETY: numbers.
unsafe impl Plain for i8 {}
// SAFETY: numbers.
unsafe impl Plain for u16 {}
// SAFETY: numbers.
unsafe impl Plain for u32 {}
// SAFETY: numbers.
unsafe impl Plain for i32 {}
// SAFETY: numbers.
unsafe impl Plain for f32 {}
// SAFETY: numbers.
unsafe impl Plain for [u8; 2] {}

/// A value that one worker writes while the others are kept away by barriers.
pub(crate) struct Turn<T>(UnsafeCell<T>);

// SAFETY: access goes through the unsafe methods, whose callers take turns.
unsafe impl<T: Send> Sync for Turn<T> {}

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Turn<T> {
        Turn(UnsafeCell::new(value))
    }

    /// # Safety
    /// No worker holds the value for writing.
    pub(crate) unsafe fn get(&self) -> &T {
        // SAFETY: the caller's promise.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    /// No other worker holds the value at all.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn get_mut(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }

    /// The value, when there is nobody to take turns with.
    pub(crate) fn own(&mut self) -> &mut T {
        self.0.get_mut()
    }
}
