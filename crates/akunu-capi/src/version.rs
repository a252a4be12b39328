//! What version this is.

use std::ffi::c_char;

/// The number of this header's binary interface. It changes when programs must be compiled again.
pub const AKUNU_ABI_VERSION: u32 = 1;

/// The library's `AKUNU_ABI_VERSION`: a program should refuse to run with another than its header's.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_abi_version() -> u32 {
    AKUNU_ABI_VERSION
}

/// The library's version, such as "0.1.0". Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn akunu_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_and_the_header_have_one_abi_number() {
        assert!(include_str!("../build.rs").contains(&format!("const ABI: u32 = {AKUNU_ABI_VERSION};")));
    }
}
