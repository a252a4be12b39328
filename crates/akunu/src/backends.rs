//! The backends of this build, by name.

use std::thread::available_parallelism;

use akunu_cpu::{Ceilings, Cpu};
use akunu_program::Backend;
use akunu_program::reference::Reference;

use crate::{Error, Result};

/// The names `--backend` takes, the one that `auto` means first.
pub const BACKENDS: [&str; 2] = ["cpu", "reference"];

/// The backend of that name; `auto` is the first of [`BACKENDS`]. `threads` are for those that run on the CPU, by default one
/// for each core.
pub fn backend(name: &str, threads: Option<usize>) -> Result<Box<dyn Backend>> {
    if threads == Some(0) {
        return Err(Error::Usage {
            problem: "0 threads cannot do anything".to_owned(),
            hint: "leave the number of threads out to use every core".to_owned(),
        });
    }
    match if name == "auto" { BACKENDS[0] } else { name } {
        "cpu" => Ok(Box::new(cpu(threads)?)),
        "reference" => Ok(Box::new(Reference)),
        name => Err(Error::Usage {
            problem: format!("there is no backend \"{name}\" in this build"),
            hint: format!("use one of: auto, {}", BACKENDS.join(", ")),
        }),
    }
}

fn cpu(threads: Option<usize>) -> Result<Cpu> {
    let threads = threads.unwrap_or_else(|| available_parallelism().map_or(1, std::num::NonZero::get));
    Cpu::new(threads).map_err(|error| Error::Usage {
        problem: error.to_string(),
        hint: format!("change the number of threads, or {}", akunu_cpu::ISA_VARIABLE),
    })
}

/// What this machine's processor reaches at most with so many threads, measured in about a second.
pub fn ceilings(threads: Option<usize>) -> Result<Ceilings> {
    Ok(cpu(threads)?.ceilings())
}

/// What a backend is, in a few words.
pub fn describe_backend(name: &str) -> Result<String> {
    match name {
        "cpu" => {
            let cpu = cpu(None)?;
            Ok(format!("{} threads, {}", cpu.threads(), cpu.isa()))
        }
        _ => {
            backend(name, None).map(|_| "plain f32 arithmetic: slow, and the definition of right".to_owned())
        }
    }
}
