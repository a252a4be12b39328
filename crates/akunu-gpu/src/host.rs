//! What a device must be able to do: hold buffers, and run lists of kernels over them.

use akunu_format::Mapping;
use akunu_program::Result;

use crate::upload::{Lane, Written};

/// The buffers a command can name. What they are is decided when a list is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bind {
    /// Weights in planes, and all norms and biases.
    Weights,
    /// The file of the model, where its matrices are used where they lie.
    File,
    /// All values of the program.
    Arena,
    /// The rows of the batch: `[slot, position, token, end of the span]`.
    Rows,
    /// The rows whose logits are wanted.
    Outputs,
    /// Block tables, `[slot][group][entry]`.
    Tables,
    /// Cosines and sines, `[rotation][position][pair][2]`.
    Angles,
    /// Tokens so far, `[slot][position]`.
    Tokens,
    /// How each slot chooses its tokens.
    Samplings,
    /// The tokens chosen, `[turn][output]`.
    Chosen,
    /// How far the keys of each layer turn when a block moves.
    Turns,
    /// Keys and values of a group.
    Kv(u32),
}

/// Threadgroup memory that `kernels/several.metal` declares, on hosts that give kernels what they declare.
#[cfg(any(feature = "emulator", all(feature = "metal", target_os = "macos")))]
pub(crate) const ROOM: u32 = 16 * 1536;

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The kernel's name; its threads per threadgroup are part of its source.
    pub kernel: &'static str,
    /// What its buffers are, in the order of their indices.
    pub buffers: Vec<Bind>,
    /// Its parameters, which come after the buffers.
    pub params: Vec<u8>,
    /// Threadgroups in x, y and z.
    pub groups: [u32; 3],
    /// Bytes of threadgroup memory that it was told it has, where that depends on the device; else 0.
    pub room: u32,
}

/// What a device reports of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Cores (Apple) or multiprocessors (NVIDIA).
    pub units: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Whether prompts are multiplied by the `tensor_*` kernels, for all dtypes but F32.
    pub tensor: bool,
    /// Whether threadgroups of one launch see what others wrote before they counted themselves as done.
    pub ordered: bool,
    /// Bytes of threadgroup memory for the rows of wide products of several; kernels take no more than they declare.
    pub room: u32,
}

/// A device and its queue. Work runs in the order it was asked for.
pub trait Host: Send + Sync + 'static {
    /// Memory of the device, freed when dropped.
    type Buffer: Send + Sync + 'static;
    /// Commands made ready to run again and again.
    type List: Send;
    /// A point in the order of work.
    type Mark: Send;

    /// The name users give with `--backend`.
    fn name(&self) -> &'static str;

    /// What the device reports.
    fn facts(&self) -> &Facts;

    /// Reserves memory, zeroed.
    fn allocate(&self, bytes: usize) -> Result<Self::Buffer>;

    /// A file as memory that the device reads and never writes, without a copy; the buffer keeps it mapped. None where that cannot be.
    fn adopt(&self, _file: &Mapping) -> Result<Option<Self::Buffer>> {
        Ok(None)
    }

    /// Writes to a buffer; `bytes` may be reused when this returns.
    fn write(&self, buffer: &Self::Buffer, offset: usize, bytes: &[u8]) -> Result<()>;

    /// A way for many bytes to a buffer that no work uses yet, in pieces of at most so many. Each thread of an upload takes one.
    fn lane<'a>(&'a self, buffer: &'a Self::Buffer, _largest: usize) -> Result<Box<dyn Lane + 'a>>
    where
        Self: Sized,
    {
        Ok(Box::new(Written::new(self, buffer)))
    }

    /// Reads from a buffer, after all work before.
    fn read(&self, buffer: &Self::Buffer, offset: usize, out: &mut [u8]) -> Result<()>;

    /// The point after all that was asked for so far.
    fn mark(&self) -> Result<Self::Mark>;

    /// Reads from a buffer after all work before a mark, and while what was asked for later may run: it does not write there.
    fn read_after(
        &self,
        mark: &Self::Mark,
        buffer: &Self::Buffer,
        offset: usize,
        out: &mut [u8],
    ) -> Result<()>;

    /// Copies within a buffer between ranges that do not overlap.
    fn copy(&self, buffer: &Self::Buffer, from: usize, to: usize, bytes: usize) -> Result<()>;

    /// Makes a list ready.
    ///
    /// # Safety
    /// The buffers outlive the list, and every command stays within them.
    unsafe fn record<'b>(
        &self,
        commands: &[Command],
        buffer: &dyn Fn(Bind) -> &'b Self::Buffer,
    ) -> Result<Self::List>;

    /// Runs a list so many times, one after the other. May return before it has run.
    fn replay(&self, list: &Self::List, times: u32) -> Result<()>;

    /// Waits for all work and reports what failed.
    fn wait(&self) -> Result<()>;
}
