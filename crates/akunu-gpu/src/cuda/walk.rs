//! Lists of commands that one kernel walks on the device (`kernels/walk.clcpp`), so that a chain of tokens is one launch.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use akunu_program::{Error, Result};
use bytemuck::{Pod, Zeroable};

use super::driver::Address;
use super::ptx::{Ptx, inlined};
use super::{BESIDE_ROOM, Buffer, Device, Kernel, MEMORY_ATTRIBUTE};
use crate::host::{Bind, Command};

include!(concat!(env!("OUT_DIR"), "/walk_kernels.rs"));

/// The walking kernel and what it may call.
const WALK_PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/walk.ptx"));

/// Commands in a row from which on walking them beats launching them.
pub(super) const WORTHWHILE: usize = 8;

/// Threads of a block of the walking kernel.
const THREADS: u32 = 512;

/// Marks the number of a kernel whose threadgroups have all threads of a block, as `kernels/walk.clcpp` does.
const WHOLE: u32 = 1 << 31;

/// One command, as `kernels/walk.clcpp` reads it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Step {
    number: u32,
    groups: [u32; 3],
    buffers: [Address; 6],
    params: [[u8; 16]; 17],
}

/// The kernels that a walking kernel calls, each with its threads; a step's number is a place here.
type Called = Vec<(&'static str, u32)>;

/// What walks lists on a device.
pub(super) struct Walker {
    source: Ptx,
    /// Walking kernels, by what they call.
    kernels: Mutex<HashMap<Called, Kernel>>,
    /// How many blocks have arrived at meetings, ever.
    arrived: Buffer,
    blocks: u32,
    /// Bytes of threadgroup memory that a block can have.
    block_memory: u32,
}

/// A list on the device.
pub(super) struct Steps {
    kernel: Kernel,
    /// Bytes of threadgroup memory that its blocks have.
    memory: u32,
    buffer: Buffer,
    count: u32,
}

/// Whether a command can be walked.
pub(super) fn can(command: &Command) -> bool {
    WALKED.iter().any(|walked| walked.0 == command.kernel)
}

impl Walker {
    /// One block for each of so many multiprocessors, which can have so much threadgroup memory.
    pub(super) fn new(device: &Arc<Device>, blocks: u32, block_memory: u32) -> Result<Walker> {
        let (source, arrived) = (Ptx::new(WALK_PTX), device.allocate(8)?);
        Ok(Walker { source, kernels: Mutex::default(), arrived, blocks, block_memory })
    }

    /// The kernel that calls these.
    fn kernel(&self, called: &Called) -> Result<Kernel> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(called) {
            return Ok(*kernel);
        }
        let missing = |name: &str| Error::Device(format!("there is no function \"{name}\""));
        let function = |&(name, threads): &(&'static str, u32)| {
            let text = self.source.function(&format!("walk_{name}")).ok_or_else(|| missing(name))?;
            Ok((name, threads, text))
        };
        let functions = called.iter().map(function).collect::<Result<Vec<_>>>()?;
        let kernel = self.source.kernel("walk", THREADS, 1);
        let kernel = kernel.and_then(|kernel| inlined(&kernel, &functions)).ok_or_else(|| missing("walk"))?;
        let text = self.source.preamble() + &kernel;
        let device = &self.arrived.device;
        let kernel = device.function(device.load(&text)?, "walk")?;
        // SAFETY: the function is loaded.
        unsafe {
            device.driver.function_attribute(
                kernel.0,
                MEMORY_ATTRIBUTE,
                self.block_memory.max(WALK_MEMORY) as i32,
            )?;
        };
        kernels.insert(called.clone(), kernel);
        Ok(kernel)
    }

    /// Puts a list on the device.
    pub(super) fn steps<'b>(
        &self,
        commands: &[Command],
        buffer: &dyn Fn(Bind) -> &'b Buffer,
    ) -> Result<Steps> {
        let is_used = |walked: &&(&str, u32)| commands.iter().any(|c| c.kernel == walked.0);
        let called: Called = WALKED.iter().filter(is_used).copied().collect();
        let step = |command: &Command| {
            let number = called.iter().position(|walked| walked.0 == command.kernel);
            let number =
                number.ok_or_else(|| Error::Device(format!("{} cannot be walked", command.kernel)))?;
            let whole = if called[number].1 == THREADS { WHOLE } else { 0 };
            let mut step = Step {
                number: number as u32 | whole,
                groups: command.groups,
                buffers: [0; 6],
                params: [[0; 16]; 17],
            };
            for (address, bind) in step.buffers.iter_mut().zip(&command.buffers) {
                *address = buffer(*bind).address;
            }
            step.params.as_flattened_mut()[..command.params.len()].copy_from_slice(&command.params);
            Ok(step)
        };
        let steps = commands.iter().map(step).collect::<Result<Vec<Step>>>()?;
        let device = &self.arrived.device;
        let kernel = self.kernel(&called)?;
        let (buffer, count) = (device.allocate(size_of_val(&steps[..]))?, steps.len() as u32);
        let room = commands.iter().map(|command| command.room).max().unwrap_or(0);
        let memory = WALK_MEMORY.max(if room > 0 { room + BESIDE_ROOM } else { 0 });
        let list = Steps { kernel, memory, buffer, count };
        device.write(&list.buffer, 0, bytemuck::cast_slice(&steps))?;
        Ok(list)
    }

    /// Walks a list so many times.
    ///
    /// # Safety
    /// The buffers that the list names live and are large enough, until the stream was waited for.
    pub(super) unsafe fn launch(&self, device: &Device, steps: &Steps, times: u32) -> Result<()> {
        let (mut list, mut arrived) = (steps.buffer.address, self.arrived.address);
        let (mut count, mut turns) = (steps.count, times);
        let mut arguments: [*mut c_void; 4] = [
            (&raw mut list).cast(),
            (&raw mut arrived).cast(),
            (&raw mut count).cast(),
            (&raw mut turns).cast(),
        ];
        let arguments = arguments.as_mut_ptr();
        // SAFETY: one argument for each parameter, of its type and size; the caller promises the rest.
        unsafe {
            device.driver.launch_together(
                steps.kernel.0,
                self.blocks,
                1,
                1,
                THREADS,
                1,
                1,
                steps.memory,
                device.stream,
                arguments,
            )
        }
    }
}
