//! The backends of this build, by name.

use std::thread::available_parallelism;

use akunu_cpu::{Ceilings, Cpu, MemoryReader};
use akunu_program::Backend;
use akunu_program::reference::Reference;

use crate::{Error, Result};

/// The names `--backend` takes, the one that `auto` means first.
pub const BACKENDS: &[&str] = &[
    "cpu",
    "reference",
    #[cfg(feature = "cuda")]
    "cuda",
    #[cfg(all(feature = "metal", target_os = "macos"))]
    "metal",
    #[cfg(feature = "emulator")]
    "emulator",
];

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
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Box::new(cuda()?)),
        #[cfg(all(feature = "metal", target_os = "macos"))]
        "metal" => Ok(Box::new(metal()?)),
        #[cfg(feature = "emulator")]
        "emulator" => Ok(Box::new(emulator())),
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

#[cfg(feature = "cuda")]
fn cuda() -> Result<akunu_gpu::Gpu<akunu_gpu::Cuda>> {
    let host = akunu_gpu::Cuda::new().map_err(|error| Error::Usage {
        problem: error.to_string(),
        hint: "use another backend, or install NVIDIA's driver".to_owned(),
    })?;
    Ok(akunu_gpu::Gpu::new(host))
}

#[cfg(all(feature = "metal", target_os = "macos"))]
fn metal() -> Result<akunu_gpu::Gpu<akunu_gpu::Metal>> {
    let host = akunu_gpu::Metal::new().map_err(|error| Error::Usage {
        problem: error.to_string(),
        hint: "use another backend".to_owned(),
    })?;
    Ok(akunu_gpu::Gpu::new(host))
}

/// What a GPU reports of itself, or why there is none: a build for GPUs runs where there is none, and says so.
#[cfg(any(feature = "cuda", all(feature = "metal", target_os = "macos")))]
fn describe_gpu<H: akunu_gpu::Host>(gpu: Result<akunu_gpu::Gpu<H>>, units: &str) -> String {
    match gpu {
        Ok(gpu) => {
            let facts = gpu.host().facts();
            format!("{}, {} {units}, {} GB", facts.name, facts.units, facts.memory / 1_000_000_000)
        }
        Err(error) => error.to_string(),
    }
}

#[cfg(feature = "emulator")]
fn emulator() -> akunu_gpu::Gpu<akunu_gpu::Emulator> {
    akunu_gpu::Gpu::new(akunu_gpu::Emulator::new(akunu_gpu::Schedule::InTurn))
}

/// What arithmetic this machine's processor does at most with so many threads, measured in about a second.
pub fn ceilings(threads: Option<usize>) -> Result<Ceilings> {
    Ok(cpu(threads)?.ceilings())
}

/// Memory to measure with how fast so many threads read so many bytes again and again, 4 MiB at least and 1 GiB at most.
pub fn memory_reader(threads: Option<usize>, bytes: usize) -> Result<MemoryReader> {
    Ok(cpu(threads)?.memory_reader(bytes)?)
}

/// What a backend is, in a few words.
pub fn describe_backend(name: &str) -> Result<String> {
    match name {
        "cpu" => {
            let cpu = cpu(None)?;
            Ok(format!("{} threads, {}", cpu.threads(), cpu.isa()))
        }
        #[cfg(feature = "cuda")]
        "cuda" => Ok(describe_gpu(cuda(), "multiprocessors")),
        #[cfg(all(feature = "metal", target_os = "macos"))]
        "metal" => Ok(describe_gpu(metal(), "cores")),
        #[cfg(feature = "emulator")]
        "emulator" => Ok("the GPU's kernels on the CPU: very slow, to check them".to_owned()),
        _ => {
            backend(name, None).map(|_| "plain f32 arithmetic: slow, and the definition of right".to_owned())
        }
    }
}
