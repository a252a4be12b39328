//! The CPU backend.
//!
//! [`Cpu`] packs weights once into panels of sixteen rows ([`akunu_program::Backend::load`]), lowers a program into a list of
//! steps with all their memory planned ([`akunu_program::Backend::compile`]), and runs batches by letting its threads walk
//! that list together. Instruction sets are chosen once: see [`Isa`].
//!
//! What a row gets depends on the row alone, not on the number of threads, the rows beside it or how a prompt is cut:
//! activations are quantised in fixed groups, integer dots are exact, and floats are added in a fixed order.
//!
//! ```
//! use akunu_cpu::{Cpu, Isa};
//! use akunu_program::Backend;
//!
//! let cpu = Cpu::new(2)?;
//! assert_eq!(cpu.name(), "cpu");
//! println!("{} threads, {}", cpu.threads(), cpu.isa());
//! # Ok::<(), akunu_cpu::Error>(())
//! ```

mod ceilings;
mod error;
mod exec;
mod isa;
mod kernels;
mod kv;
mod lower;
mod memory;
mod pack;
mod plan;
mod pool;
mod rope;
mod share;
mod simd;
mod state;
mod step;
mod timing;
mod walk_attend;
mod walk_experts;
mod walk_rows;
mod walk_tiles;
mod walk_wide;
mod weights;

use std::any::Any;
use std::sync::Arc;

use akunu_program::program::{KvGroup, Program, WeightUse};
use akunu_program::{Backend, Executable, KvStore, KvType, Limits, TensorSource, Weights};

pub use ceilings::{Ceilings, MemoryReader};
pub use error::Error;
pub use isa::{ISA_VARIABLE, Isa};

use exec::CpuExecutable;
use kv::CpuKv;
use pool::Pool;
use weights::CpuWeights;

/// The CPU as a device, with its threads.
pub struct Cpu {
    isa: Isa,
    pool: Arc<Pool>,
}

impl Cpu {
    /// A backend with so many threads and the best instruction set, or the one [`ISA_VARIABLE`] names.
    pub fn new(threads: usize) -> Result<Cpu, Error> {
        Cpu::with_isa(threads, Isa::detect()?)
    }

    /// A backend with so many threads and this instruction set.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Cpu, Error> {
        let isa = Isa::named(isa.name())?;
        Ok(Cpu { isa, pool: Arc::new(Pool::new(threads)?) })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// How many threads work, the caller's included.
    pub fn threads(&self) -> usize {
        self.pool.size()
    }
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn load(&self, source: &dyn TensorSource, uses: &[WeightUse]) -> akunu_program::Result<Arc<dyn Weights>> {
        Ok(CpuWeights::load(source, uses, self.isa, &self.pool)?)
    }

    fn kv(
        &self,
        groups: &[KvGroup],
        blocks: &[u32],
        kind: KvType,
    ) -> akunu_program::Result<Arc<dyn KvStore>> {
        Ok(Arc::new(CpuKv::new(groups, blocks, kind)?))
    }

    fn compile(
        &self,
        program: &Program,
        weights: Arc<dyn Weights>,
        kv: Arc<dyn KvStore>,
        limits: &Limits,
    ) -> akunu_program::Result<Box<dyn Executable>> {
        let (weights, kv) = (own(weights, "weights")?, own(kv, "KV store")?);
        let pool = Arc::clone(&self.pool);
        Ok(Box::new(CpuExecutable::compile(program, weights, kv, limits, self.isa, pool)?))
    }
}

/// The concrete type behind what this backend itself made.
fn own<T: Any + Send + Sync>(any: Arc<dyn Any + Send + Sync>, what: &str) -> akunu_program::Result<Arc<T>> {
    any.downcast().map_err(|_| akunu_program::Error::Batch(format!("the {what} belong to another backend")))
}
