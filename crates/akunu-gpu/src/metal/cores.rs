//! How many cores the GPU has, which Metal does not say and the registry of drivers does.

use std::ffi::{CStr, c_char, c_void};

/// Assumed where the registry does not say: the smallest of Apple's GPUs for computers.
pub(super) const LEAST: u32 = 7;

/// Class of Apple's GPU drivers, and their property.
const CLASS: &CStr = c"AGXAccelerator";
const PROPERTY: &CStr = c"gpu-core-count";

/// `kCFStringEncodingUTF8` and `kCFNumberSInt32Type`.
const UTF8: u32 = 0x0800_0100;
const SIGNED_32: isize = 3;

#[link(name = "IOKit", kind = "framework")]
unsafe extern "C" {
    fn IOServiceMatching(name: *const c_char) -> *mut c_void;
    fn IOServiceGetMatchingService(port: u32, matching: *mut c_void) -> u32;
    fn IORegistryEntryCreateCFProperty(
        entry: u32,
        key: *const c_void,
        allocator: *const c_void,
        options: u32,
    ) -> *const c_void;
    fn IOObjectRelease(object: u32) -> i32;
}

#[link(name = "CoreFoundation", kind = "framework")]
unsafe extern "C" {
    fn CFStringCreateWithCString(
        allocator: *const c_void,
        text: *const c_char,
        encoding: u32,
    ) -> *const c_void;
    fn CFNumberGetValue(number: *const c_void, kind: isize, value: *mut c_void) -> u8;
    fn CFGetTypeID(object: *const c_void) -> usize;
    fn CFNumberGetTypeID() -> usize;
    fn CFRelease(object: *const c_void);
}

/// The GPU's cores, if the registry says.
pub(super) fn count() -> Option<u32> {
    let none = std::ptr::null();
    // SAFETY: strings end in zeros; every object that is created is released once; a matching dictionary is released by the
    // function it is given to; the number is read as the type it was checked to have.
    unsafe {
        let entry = IOServiceGetMatchingService(0, IOServiceMatching(CLASS.as_ptr()));
        if entry == 0 {
            return None;
        }
        let key = CFStringCreateWithCString(none, PROPERTY.as_ptr(), UTF8);
        let number = if key.is_null() { none } else { IORegistryEntryCreateCFProperty(entry, key, none, 0) };
        let (mut value, mut found) = (0i32, false);
        if !number.is_null() {
            found = CFGetTypeID(number) == CFNumberGetTypeID()
                && CFNumberGetValue(number, SIGNED_32, (&raw mut value).cast()) != 0;
            CFRelease(number);
        }
        if !key.is_null() {
            CFRelease(key);
        }
        IOObjectRelease(entry);
        found.then_some(u32::try_from(value).ok()).flatten().filter(|n| *n > 0)
    }
}
