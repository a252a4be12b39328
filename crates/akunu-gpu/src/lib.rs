//! The GPU backend: one set of Metal kernels for Apple GPUs, NVIDIA GPUs and an emulator on the CPU.
//!
//! [`Gpu`] keeps weights as planes on a device ([`akunu_program::Backend::load`]), lowers a program to a flat list of commands
//! ([`akunu_program::Backend::compile`]) and replays that list for every token: token, position, block table and sampling lie
//! in buffers that the list itself advances. What a device must do for that is a [`Host`].
//!
//! | module | holds |
//! |---|---|
//! | `kernels/*.metal` | the kernels |
//! | `lower`, `arena` | operations joined, values placed |
//! | `table` | commands for a batch of some shape |
//! | `form`, `weights`, `kv` | what lies on the device |
//! | `upload` | how it gets there |
//! | `exec` | running batches |
//!
//! ```
//! # #[cfg(feature = "emulator")] {
//! use akunu_gpu::{Emulator, Gpu, Schedule};
//! use akunu_program::Backend;
//!
//! let gpu = Gpu::new(Emulator::new(Schedule::InTurn));
//! assert_eq!(gpu.name(), "emulator");
//! # }
//! ```

mod arena;
mod chip;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "emulator")]
mod emulator;
mod exec;
mod form;
mod host;
mod kv;
mod lower;
#[cfg(all(feature = "metal", target_os = "macos"))]
mod metal;
mod params;
mod table;
#[cfg(any(all(feature = "metal", target_os = "macos"), all(test, feature = "emulator")))]
mod threads;
mod upload;
mod weights;

use std::any::Any;
use std::sync::Arc;

use akunu_program::program::{KvGroup, Program, WeightUse};
use akunu_program::{Backend, Error, Executable, KvStore, KvType, Limits, Result, TensorSource, Weights};

pub use chip::ChipConfig;
#[cfg(feature = "cuda")]
pub use cuda::Cuda;
#[cfg(feature = "emulator")]
pub use emulator::{Emulator, Schedule};
pub use host::{Bind, Command, Facts, Host};
#[cfg(all(feature = "metal", target_os = "macos"))]
pub use metal::Metal;
pub use upload::{Lane, Piece};

use exec::GpuExecutable;
use kv::GpuKv;
use weights::GpuWeights;

/// A device as a backend.
pub struct Gpu<H: Host> {
    host: Arc<H>,
}

impl<H: Host> Gpu<H> {
    /// A backend on this device.
    pub fn new(host: H) -> Gpu<H> {
        Gpu { host: Arc::new(host) }
    }

    /// The device.
    pub fn host(&self) -> &H {
        &self.host
    }
}

impl<H: Host> Backend for Gpu<H> {
    fn name(&self) -> &'static str {
        self.host.name()
    }

    fn load(&self, source: &dyn TensorSource, uses: &[WeightUse]) -> Result<Arc<dyn Weights>> {
        Ok(GpuWeights::load(&*self.host, source, uses)?)
    }

    fn kv(&self, groups: &[KvGroup], blocks: &[u32], kind: KvType) -> Result<Arc<dyn KvStore>> {
        Ok(Arc::new(GpuKv::new(&*self.host, groups, blocks, kind)?))
    }

    fn compile(
        &self,
        program: &Program,
        weights: Arc<dyn Weights>,
        kv: Arc<dyn KvStore>,
        limits: &Limits,
    ) -> Result<Box<dyn Executable>> {
        let (weights, kv): (Arc<GpuWeights<H>>, Arc<GpuKv<H>>) =
            (own(weights, "weights")?, own(kv, "KV store")?);
        Ok(Box::new(GpuExecutable::compile(Arc::clone(&self.host), program, weights, kv, limits)?))
    }
}

/// The concrete type behind what this backend itself made.
fn own<T: Any + Send + Sync>(any: Arc<dyn Any + Send + Sync>, what: &str) -> Result<Arc<T>> {
    any.downcast().map_err(|_| Error::Batch(format!("the {what} belong to another backend")))
}
