//! Gives the shared library the name programs ask the loader for: it changes when old programs would no longer work with it.

/// `AKUNU_ABI_VERSION` of the header; a test holds the two together.
const ABI: u32 = 1;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux" | "android" | "freebsd") => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libakunu.so.{ABI}");
        }
        Ok("macos") => {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libakunu.{ABI}.dylib");
        }
        _ => {}
    }
}
