//! The backends of this build, by name.

use akunu_program::Backend;
use akunu_program::reference::Reference;

use crate::{Error, Result};

/// The names `--backend` takes, the one that `auto` means first.
pub const BACKENDS: [&str; 1] = ["reference"];

/// The backend of that name; `auto` is the fastest there is. `threads` are for those that run on the CPU.
pub fn backend(name: &str, threads: Option<usize>) -> Result<Box<dyn Backend>> {
    if threads == Some(0) {
        return Err(Error::Usage {
            problem: "0 threads cannot do anything".to_owned(),
            hint: "leave the number of threads out to use every core".to_owned(),
        });
    }
    let name = if name == "auto" { BACKENDS[0] } else { name };
    match name {
        "reference" => Ok(Box::new(Reference)),
        _ => Err(Error::Usage {
            problem: format!("there is no backend \"{name}\" in this build"),
            hint: format!("use one of: auto, {}", BACKENDS.join(", ")),
        }),
    }
}

/// What a backend is, in a few words.
pub fn describe_backend(name: &str) -> Result<String> {
    backend(name, None).map(|backend| match backend.name() {
        "reference" => "plain f32 arithmetic on one thread: slow, and the definition of right".to_owned(),
        other => other.to_owned(),
    })
}
