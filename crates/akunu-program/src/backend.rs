//! What a backend must do: load weights, hold keys and values, compile a program, and run it over batches of rows.
//!
//! The host decides which rows run and which cache blocks they may use; a backend only computes. All state that advances
//! from token to token lives in *slots*, small per-sequence records inside the executable: block tables, the tokens so
//! far, sampling parameters.

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use akunu_format::{Mapping, ModelFile, Tensor};

use crate::program::{GroupId, KvGroup, Program, WeightUse};
use crate::select::{Mask, Sampling};
use crate::{Error, KvType, Result, Timing};

/// Positions in a block of the KV cache.
pub const BLOCK: usize = 64;

/// Where weights come from.
pub trait TensorSource {
    /// The tensor of that name, if there is one.
    fn find(&self, name: &str) -> Option<Tensor<'_>>;

    /// The mapped file that a tensor's blocks lie in, if they do: for backends that use them where they are.
    fn mapping(&self, _name: &str) -> Option<&Mapping> {
        None
    }

    /// Says that a tensor was read and copied: its memory may be given back, and reading it again costs time.
    fn release(&self, _name: &str) {}

    /// Says how many bytes of the weights are loaded, of how many: both of what the backend makes of them. A break ends loading with
    /// [`Error::Stopped`].
    fn loaded(&self, _done: u64, _total: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl TensorSource for ModelFile {
    fn find(&self, name: &str) -> Option<Tensor<'_>> {
        self.get_tensor(name)
    }

    fn mapping(&self, name: &str) -> Option<&Mapping> {
        ModelFile::mapping(self, name)
    }

    fn release(&self, name: &str) {
        self.release_tensor(name);
    }
}

/// A device that can run programs. It owns its threads or queue.
pub trait Backend: Send + Sync {
    /// The name users give with `--backend`.
    fn name(&self) -> &'static str;

    /// Reads or maps the weights.
    fn load(&self, source: &dyn TensorSource, uses: &[WeightUse]) -> Result<Arc<dyn Weights>>;

    /// Reserves `blocks[g]` blocks for each group `g`.
    fn kv(&self, groups: &[KvGroup], blocks: &[u32], kind: KvType) -> Result<Arc<dyn KvStore>>;

    /// Turns a program into the backend's own command list and plans all its buffers.
    fn compile(
        &self,
        program: &Program,
        weights: Arc<dyn Weights>,
        kv: Arc<dyn KvStore>,
        limits: &Limits,
    ) -> Result<Box<dyn Executable>>;
}

/// Weights held by a backend.
pub trait Weights: Any + Send + Sync {}

/// Keys and values held by a backend.
pub trait KvStore: Any + Send + Sync {}

/// The largest batch an executable will see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Slots, numbered from 0.
    pub slots: u32,
    /// Rows in one batch.
    pub rows: u32,
    /// Rows of logits in one batch.
    pub outputs: u32,
    /// Positions in one slot.
    pub context: u32,
}

/// Which sequence a span belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

/// Consecutive positions of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The sequence.
    pub slot: SlotId,
    /// The position of the first row.
    pub start: u32,
    /// How many rows.
    pub rows: u32,
    /// Which set of kernels the rows may use.
    pub phase: Phase,
}

/// Prompt rows may use kernels made for many rows; decode rows may not, so that a token's logits never depend on how many
/// rows happen to run beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Part of a prompt.
    Prompt,
    /// A generated token or a draft to verify.
    Decode,
}

/// What one run works on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// Changes to slots, made first.
    pub edits: &'a [SlotEdit<'a>],
    /// Blocks to copy, after the edits and before the rows.
    pub copies: &'a [BlockCopy],
    /// Blocks whose keys move to other positions, after the copies and before the rows.
    pub shifts: &'a [KeyShift],
    /// The rows, span after span.
    pub spans: &'a [Span],
    /// One token for each row of the spans; none for programs that look nothing up by token.
    pub tokens: &'a [u32],
    /// For programs that begin with [`Input`](crate::program::Op::Input): the frames of the spans, one behind the other,
    /// [`FRAMES_PER_TOKEN`](crate::program::FRAMES_PER_TOKEN) for each row.
    pub inputs: &'a [f32],
    /// Rows whose logits are wanted, ascending.
    pub outputs: &'a [u32],
    /// For every output row which tokens may follow it, or that all may; empty where all may everywhere. For
    /// [`Work::Step`] alone.
    pub masks: &'a [Option<Mask<'a>>],
}

/// A change to a slot.
#[derive(Clone, Debug)]
pub enum SlotEdit<'a> {
    /// Sets the blocks of one group, from the block that holds position `first · BLOCK` on.
    Blocks {
        /// The slot.
        slot: SlotId,
        /// The group.
        group: GroupId,
        /// Index of the first entry set.
        first: u32,
        /// Block numbers.
        blocks: &'a [u32],
    },
    /// Sets what the slot's tokens are from position `at` on (a prefix whose keys and values are in the cache already).
    Tokens {
        /// The slot.
        slot: SlotId,
        /// The first position.
        at: u32,
        /// The tokens.
        tokens: &'a [u32],
    },
    /// Sets how the slot chooses its tokens.
    Sampling {
        /// The slot.
        slot: SlotId,
        /// The parameters.
        sampling: Sampling,
    },
}

/// Copies one block, all layers of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// The group.
    pub group: GroupId,
    /// The source.
    pub from: u32,
    /// The destination.
    pub to: u32,
}

/// Rotates the keys of a block, all layers of its group, so that they stand `by` positions further on (or back, if
/// negative): for a table entry that moves because blocks before it were dropped. Values have no positions and stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyShift {
    /// The group.
    pub group: GroupId,
    /// The block, which no other sequence holds.
    pub block: u32,
    /// Positions.
    pub by: i32,
}

/// How far a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Logits of the output rows.
    Forward,
    /// The next token of each output row.
    Step,
    /// `n` tokens for every span without returning to the host; each span has one row, which is an output.
    Chain(u32),
}

/// What a run produced. Reused from run to run, so that decoding allocates nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// `[outputs][vocabulary]`, after [`Work::Forward`].
    pub logits: Vec<f32>,
    /// One token per output row after [`Work::Step`]; `[n][spans]` after [`Work::Chain`].
    pub tokens: Vec<u32>,
}

/// Ends a run early, from any thread.
#[derive(Debug, Default)]
pub struct StopFlag(AtomicBool);

impl StopFlag {
    /// Asks the run to end at the next operation.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets the next run go on.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// An error when a stop was asked for.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }
}

/// A compiled program. One caller at a time.
pub trait Executable: Send {
    /// Runs a batch and waits for it. After an error the cache holds what it held before at all positions below those of
    /// the batch's rows.
    fn run(&mut self, batch: &Batch<'_>, work: Work, stop: &StopFlag, out: &mut Outputs) -> Result<()>;

    /// Times every step of the runs from now on, or no longer, and forgets what was measured before. False where it cannot.
    fn set_timing(&mut self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// The steps in the order they run, and choosing tokens; empty unless they are timed.
    fn timings(&self) -> Vec<Timing> {
        Vec::new()
    }
}
