//! The emulator: kernels compiled for this processor, every GPU thread a fiber. It is slow, and it finds what a GPU would hide:
//! barriers that are missing or not reached by all, and SIMD operations in divergent code.

mod fibers;

use std::sync::{Mutex, PoisonError};

use akunu_format::Mapping;
use akunu_program::{Error, Result};

use crate::host::{Bind, Command, Facts, Host, ROOM};

pub use fibers::Schedule;

/// A kernel as it was compiled: the addresses of its buffers, the address of its parameters.
type Entry = unsafe extern "C" fn(buffers: *const u64, params: *const u8);

include!(concat!(env!("OUT_DIR"), "/emulator_kernels.rs"));

/// Kernels keep their threadgroup memory in statics, so that one threadgroup runs at a time in the whole process.
static RUNNING: Mutex<()> = Mutex::new(());

/// Whether this processor has what the kernels were compiled for.
fn check_processor() -> Result<()> {
    #[cfg(target_arch = "x86_64")]
    if JOINED && !(is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")) {
        let problem = "the emulator was built for processors with FMA and F16C, and this one has not both: build it here";
        return Err(Error::Device(problem.to_owned()));
    }
    Ok(())
}

/// A GPU of one core, on the CPU.
#[derive(Debug)]
pub struct Emulator {
    schedule: Schedule,
    facts: Facts,
}

impl Emulator {
    /// An emulator that takes its threads in this order.
    pub fn new(schedule: Schedule) -> Emulator {
        Emulator {
            schedule,
            facts: Facts {
                name: "kernels on the CPU".to_owned(),
                units: 1,
                memory: 0,
                tensor: false,
                ordered: false,
                room: ROOM,
            },
        }
    }

    /// One that says it has so many cores, whose threadgroups see what others wrote before they counted themselves as done: then the
    /// last one of a row's attention adds the parts of all, and products are shared as on a device of so many cores.
    pub fn ordered(schedule: Schedule, units: u32) -> Emulator {
        let mut emulator = Emulator::new(schedule);
        (emulator.facts.ordered, emulator.facts.units) = (true, units);
        emulator
    }
}

/// Memory of the emulator: written by kernels through its address.
pub struct Buffer {
    data: Data,
    bytes: usize,
    address: u64,
}

enum Data {
    /// `u128` for the alignment that vector loads need.
    Own(Mutex<Box<[u128]>>),
    /// Only read.
    File(Mapping),
}

impl Buffer {
    fn with<T>(&self, offset: usize, bytes: usize, f: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        let end = end.ok_or_else(|| Error::Device(format!("{bytes} bytes at {offset} of {}", self.bytes)))?;
        match &self.data {
            Data::Own(data) => {
                let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(f(&mut bytemuck::cast_slice_mut(&mut data)[offset..end]))
            }
            Data::File(file) => Ok(f(&mut file.bytes()[offset..end].to_vec())),
        }
    }
}

/// Commands with their kernels and addresses looked up.
pub struct List(Vec<Launch>);

struct Launch {
    name: &'static str,
    entry: Entry,
    threads: u32,
    buffers: Vec<u64>,
    /// Aligned as vectors want it.
    params: Vec<u128>,
    groups: [u32; 3],
}

impl Host for Emulator {
    type Buffer = Buffer;
    type List = List;
    /// Work is done when it is asked for.
    type Mark = ();

    fn name(&self) -> &'static str {
        "emulator"
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        // Kernels may be given an empty buffer's address and must not read it; one unit keeps it valid.
        let mut data = vec![0u128; bytes.div_ceil(16).max(1)].into_boxed_slice();
        let address = data.as_mut_ptr() as u64;
        Ok(Buffer { data: Data::Own(Mutex::new(data)), bytes, address })
    }

    fn adopt(&self, file: &Mapping) -> Result<Option<Buffer>> {
        let (bytes, address) = (file.bytes().len(), file.bytes().as_ptr() as u64);
        Ok(Some(Buffer { data: Data::File(file.clone()), bytes, address }))
    }

    fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        if let Data::File(_) = buffer.data {
            return Err(Error::Device("a file is only read".to_owned()));
        }
        buffer.with(offset, bytes.len(), |to| to.copy_from_slice(bytes))
    }

    fn read(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        buffer.with(offset, out.len(), |from| out.copy_from_slice(from))
    }

    fn mark(&self) -> Result<()> {
        Ok(())
    }

    fn read_after(&self, (): &(), buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.read(buffer, offset, out)
    }

    fn copy(&self, buffer: &Buffer, from: usize, to: usize, bytes: usize) -> Result<()> {
        let block = buffer.with(from, bytes, |data| data.to_vec())?;
        self.write(buffer, to, &block)
    }

    unsafe fn record<'b>(&self, commands: &[Command], buffer: &dyn Fn(Bind) -> &'b Buffer) -> Result<List> {
        check_processor()?;
        let launch = |command: &Command| {
            let kernel = KERNELS.iter().find(|kernel| kernel.0 == command.kernel);
            let &(name, threads, entry) =
                kernel.ok_or_else(|| Error::Device(format!("there is no kernel \"{}\"", command.kernel)))?;
            let mut params = vec![0u128; command.params.len().div_ceil(16)];
            bytemuck::cast_slice_mut(&mut params)[..command.params.len()].copy_from_slice(&command.params);
            let buffers = command.buffers.iter().map(|bind| buffer(*bind).address).collect();
            Ok(Launch { name, entry, threads, buffers, params, groups: command.groups })
        };
        Ok(List(commands.iter().map(launch).collect::<Result<_>>()?))
    }

    fn replay(&self, list: &List, times: u32) -> Result<()> {
        let _one = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        for launch in (0..times).flat_map(|_| &list.0) {
            let call = (launch.entry, launch.buffers.as_ptr(), launch.params.as_ptr().cast());
            // SAFETY: whoever recorded the list promised that the buffers live and that commands stay within them.
            unsafe { fibers::launch(call, launch.groups, launch.threads, self.schedule) }
                .map_err(|problem| Error::Device(format!("kernel {}: {problem}", launch.name)))?;
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }
}
