//! Reading what callers point at, and writing what they make room for.
//!
//! Every function here asks the same of its caller: a pointer that is not null is valid for as many elements as the call says,
//! and nobody else changes them meanwhile. That is what C callers promise by calling; all else is checked.

use std::ffi::{CStr, c_char};
use std::mem::{MaybeUninit, size_of};
use std::{ptr, slice};

use crate::status::{Failure, Outcome, akunu_status};

/// Structs beyond this many bytes are not structs of this header: their size was never set.
const LARGEST_STRUCT: usize = 4096;

/// A struct of the header that begins with its size and may have grown, or will.
///
/// # Safety
///
/// `#[repr(C)]`, the first field is `size: usize`, and all bytes 0 are a valid value.
pub(crate) unsafe trait SelfSized: Copy {}

/// Text that ends with a zero.
///
/// # Safety
///
/// As the module says; the text lives as long as the caller says it does.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(Failure::usage(format_args!("{name} is null")));
    }
    // SAFETY: not null; the caller promises that it ends with a zero.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|error| {
        Failure::usage(format_args!("{name} is not UTF-8 from byte {} on", error.valid_up_to()))
    })
}

/// The same where null means that there is none.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn optional_text<'a>(pointer: *const c_char, name: &str) -> Outcome<Option<&'a str>> {
    // SAFETY: handed on.
    if pointer.is_null() { Ok(None) } else { unsafe { text(pointer, name) }.map(Some) }
}

/// `count` elements. Null is fine where there are none.
///
/// # Safety
///
/// As the module says; the elements live as long as the caller says they do.
pub(crate) unsafe fn elements<'a, T>(pointer: *const T, count: usize, name: &str) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || !pointer.is_aligned() {
        let problem = if pointer.is_null() { "null" } else { "not aligned" };
        return Err(Failure::usage(format_args!("{name} is {problem}, with a count of {count}")));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::usage(format_args!("{name} cannot have {count} elements")));
    }
    // SAFETY: not null, aligned, of a possible size; the caller promises the rest.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// Writes one value.
///
/// # Safety
///
/// As the module says.
pub(crate) unsafe fn write<T>(pointer: *mut T, value: T, name: &str) -> Outcome {
    if pointer.is_null() || !pointer.is_aligned() {
        let problem = if pointer.is_null() { "null" } else { "not aligned" };
        return Err(Failure::usage(format_args!("{name} is {problem}")));
    }
    // SAFETY: not null and aligned; the caller promises the rest.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Sets `length`, which may be null, and fails where that is more than there is room for.
///
/// # Safety
///
/// As the module says.
pub(crate) unsafe fn check_room(needed: usize, capacity: usize, length: *mut usize) -> Outcome {
    if !length.is_null() {
        // SAFETY: handed on.
        unsafe { write(length, needed, "the length")? };
    }
    if needed > capacity {
        let message = format!("the buffer has room for {capacity}, and {needed} are needed");
        return Err(Failure::new(akunu_status::AKUNU_SHORT_BUFFER, message));
    }
    Ok(())
}

/// A text in a field of fixed size, cut where it is longer, with a zero after it.
pub(crate) fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}

/// Writes all of `from`, or says how much room it takes. `length` may be null.
///
/// # Safety
///
/// As the module says: `buffer` has room for `capacity` elements.
pub(crate) unsafe fn fill<T: Copy>(
    from: &[T],
    buffer: *mut T,
    capacity: usize,
    length: *mut usize,
) -> Outcome {
    // SAFETY: handed on.
    unsafe { check_room(from.len(), capacity, length)? };
    if !from.is_empty() {
        if buffer.is_null() || !buffer.is_aligned() {
            return Err(Failure::usage("the buffer is null or not aligned"));
        }
        // SAFETY: there is room for `capacity`, which is no less.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), buffer, from.len()) };
    }
    Ok(())
}

/// Writes text and a zero after it. `length` is the text's alone; a buffer needs one byte more.
///
/// # Safety
///
/// As the module says: `buffer` has room for `capacity` bytes.
pub(crate) unsafe fn fill_text(
    from: &[u8],
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Outcome {
    if capacity <= from.len() {
        if !length.is_null() {
            // SAFETY: handed on.
            unsafe { write(length, from.len(), "the length")? };
        }
        let message = format!("the buffer has room for {capacity} bytes, and {} are needed", from.len() + 1);
        return Err(Failure::new(akunu_status::AKUNU_SHORT_BUFFER, message));
    }
    let buffer = buffer.cast::<u8>();
    // SAFETY: handed on.
    unsafe {
        fill(from, buffer, capacity, length)?;
        write(buffer.wrapping_add(from.len()), 0, "the buffer")
    }
}

/// Options as this version knows them; those that are null or absent are zero.
///
/// # Safety
///
/// As the module says: the struct has as many bytes as its first field says.
pub(crate) unsafe fn sized<T: SelfSized>(pointer: *const T, name: &str) -> Outcome<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    if !pointer.is_null() {
        // SAFETY: handed on.
        let size = unsafe { size(pointer, name)? };
        // SAFETY: `size` bytes, by the caller's promise.
        let bytes = unsafe { slice::from_raw_parts(pointer.cast::<u8>(), size) };
        let (known, newer) = bytes.split_at(size.min(size_of::<T>()));
        if newer.iter().any(|&byte| byte != 0) {
            let message = format!("{name} uses fields that this version of akunu does not have");
            return Err(Failure::new(akunu_status::AKUNU_UNSUPPORTED, message));
        }
        // SAFETY: no more bytes than a `T` has.
        unsafe { ptr::copy_nonoverlapping(known.as_ptr(), value.as_mut_ptr().cast::<u8>(), known.len()) };
    }
    // SAFETY: bytes of a C caller's `T`, or zeros, which `SelfSized` says are fine.
    Ok(unsafe { value.assume_init() })
}

/// Writes as much of an answer as the caller's struct has room for; its size stays.
///
/// # Safety
///
/// As the module says: the struct has as many bytes as its first field says.
pub(crate) unsafe fn write_sized<T: SelfSized>(pointer: *mut T, mut value: T, name: &str) -> Outcome {
    // SAFETY: handed on.
    let theirs = unsafe { size(pointer, name)? };
    let bytes = theirs.min(size_of::<T>());
    // SAFETY: `SelfSized`: the first field is the size.
    unsafe { (&raw mut value).cast::<usize>().write(theirs) };
    // SAFETY: both have that many bytes.
    unsafe { ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), pointer.cast::<u8>(), bytes) };
    Ok(())
}

/// The size a struct says it has.
///
/// # Safety
///
/// As the module says: there is a size, at least.
unsafe fn size<T: SelfSized>(pointer: *const T, name: &str) -> Outcome<usize> {
    if pointer.is_null() || !pointer.is_aligned() {
        let problem = if pointer.is_null() { "null" } else { "not aligned" };
        return Err(Failure::usage(format_args!("{name} is {problem}")));
    }
    // SAFETY: not null and aligned, and `SelfSized`: the first field is the size.
    let size = unsafe { pointer.cast::<usize>().read() };
    if !(size_of::<usize>()..=LARGEST_STRUCT).contains(&size) {
        return Err(Failure::usage(format_args!("{name}: size is {size}, and should be sizeof the struct")));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Options {
        size: usize,
        first: u64,
        second: u64,
    }

    // SAFETY: the first field is the size, and numbers may be 0.
    unsafe impl SelfSized for Options {}

    #[repr(C)]
    struct Newer {
        known: Options,
        third: u64,
    }

    fn read(options: *const Options) -> Outcome<Options> {
        // SAFETY: every test's struct has the size it says, or more.
        unsafe { sized(options, "options") }
    }

    #[test]
    fn fields_an_older_program_does_not_know_are_zero() {
        let options = Options { size: 16, first: 7, second: 9 };
        assert_eq!(read(&raw const options).unwrap(), Options { size: 16, first: 7, second: 0 });
        assert_eq!(read(ptr::null()).unwrap(), Options { size: 0, first: 0, second: 0 });
    }

    #[test]
    fn fields_a_newer_program_sets_are_refused_unless_they_are_zero() {
        let mut newer = Newer { known: Options { size: size_of::<Newer>(), first: 7, second: 9 }, third: 0 };
        let pointer = (&raw const newer).cast::<Options>();
        assert_eq!(read(pointer).unwrap().second, 9);
        newer.third = 1;
        assert!(read((&raw const newer).cast::<Options>()).is_err());
    }

    #[test]
    fn a_size_that_was_never_set_is_found_out() {
        for size in [0, 7, LARGEST_STRUCT + 1, usize::MAX] {
            let options = Options { size, first: 0, second: 0 };
            assert!(read(&raw const options).is_err(), "{size}");
        }
    }

    #[test]
    fn an_answer_fits_into_the_structs_of_older_programs() {
        let mut theirs = Options { size: 16, first: 0, second: 5 };
        // SAFETY: the struct has more bytes than it says.
        unsafe { write_sized(&raw mut theirs, Options { size: 24, first: 1, second: 2 }, "answer").unwrap() };
        assert_eq!(theirs, Options { size: 16, first: 1, second: 5 });
    }

    #[test]
    fn a_short_buffer_is_left_alone_and_told_what_it_needs() {
        let mut buffer = [9_u8; 4];
        let mut length = 0;
        // SAFETY: the buffer has the room that is named.
        let mut fill_4 =
            |from: &[u8]| unsafe { fill_text(from, buffer.as_mut_ptr().cast(), 4, &raw mut length) };
        assert!(fill_4(b"four").is_err());
        assert!(fill_4(b"two").is_ok());
        assert_eq!((length, buffer), (3, *b"two\0"));
        // SAFETY: nothing is written where there is no room.
        assert!(unsafe { fill_text(b"four", ptr::null_mut(), 0, &raw mut length) }.is_err());
        assert_eq!(length, 4);
    }

    #[test]
    fn impossible_counts_are_refused() {
        // SAFETY: refused before anything is read.
        assert!(unsafe { elements::<u32>(ptr::without_provenance(4), usize::MAX, "tokens") }.is_err());
        // SAFETY: as above.
        assert!(unsafe { elements::<u32>(ptr::null(), 1, "tokens") }.is_err());
        // SAFETY: nothing is read.
        assert!(unsafe { elements::<u32>(ptr::null(), 0, "tokens") }.unwrap().is_empty());
    }
}
