//! NVIDIA GPUs, through the driver alone: kernels as PTX that the driver compiles for its device when a list first needs them.
//! Lists of small commands are walked by one kernel that stays on the device; others are CUDA graphs.

mod driver;
mod pinned;
mod ptx;
mod walk;

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use akunu_program::{Error, Result};

use crate::host::{Bind, Command, Facts, Host};
use crate::upload::{Lane, Written};
use driver::{Address, Driver, Handle};
use pinned::{Pinned, PinnedLane};
use ptx::Ptx;
use walk::{Steps, WALK_LARGEST, Walker};

include!(concat!(env!("OUT_DIR"), "/cuda_kernels.rs"));

/// The kernels, for every device from the sm_80 generation on.
const KERNELS_PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

/// A GPU with its queue.
pub struct Cuda {
    device: Arc<Device>,
    facts: Facts,
    source: Ptx,
    /// Those that are loaded, by name: the function and the threads of a threadgroup.
    kernels: Mutex<HashMap<&'static str, (Kernel, u32)>>,
    walker: Walker,
    /// Where what is read arrives.
    landing: Mutex<Pinned>,
}

/// Bytes that are read through pinned memory at most: the logits of a token, of any vocabulary there is.
const LANDING: usize = 2 << 20;

/// A function on the device.
#[derive(Clone, Copy)]
struct Kernel(Handle);

/// The driver's handles, which may be used from any thread once the context is set there.
struct Device {
    driver: Driver,
    ordinal: i32,
    context: Handle,
    stream: Handle,
    /// For reading what is done while other work runs.
    reader: Handle,
    /// All that were loaded.
    modules: Mutex<Vec<Module>>,
}

/// Compiled kernels.
#[derive(Clone, Copy)]
struct Module(Handle);

// SAFETY: the driver's handles belong to the process and not to a thread; `Device::here` sets the context on whatever thread uses
// them, and the driver does its own locking.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// Attributes of a device, by the driver's numbers.
const MULTIPROCESSORS: i32 = 16;
const CAPABILITY: i32 = 75;
const BLOCK_MEMORY: i32 = 97;

/// Threadgroup memory that walking takes for itself, and that kernels take besides the rows of a product of several, in bytes.
const RESERVED: u32 = 4 << 10;
const BESIDE_ROOM: u32 = 1 << 10;

/// Options for compiling, by the driver's numbers.
const ERROR_LOG: i32 = 5;
const ERROR_LOG_BYTES: i32 = 6;

/// How the names of kernels begin that are told how much threadgroup memory they have, and how much, as in `kernels/tensor.clcpp`: of
/// halves, a multiprocessor runs two blocks at once.
const WITH_MEMORY: [(&str, Limits); 3] = [
    ("tensor_f16", Limits { memory: 64 << 10, blocks: 2 }),
    ("tensor_bf16", Limits { memory: 96 << 10, blocks: 1 }),
    ("tensor_", Limits { memory: 88 << 10, blocks: 1 }),
];

/// The driver's number for how much threadgroup memory a kernel may be given.
const MEMORY_ATTRIBUTE: i32 = 8;

/// What a kernel is allowed.
#[derive(Clone, Copy)]
struct Limits {
    /// Bytes of threadgroup memory besides what its source declares.
    memory: u32,
    /// Blocks that a multiprocessor runs at once, which bounds their registers.
    blocks: u32,
}

fn limits(kernel: &str) -> Limits {
    let named = WITH_MEMORY.iter().find(|(start, _)| kernel.starts_with(start));
    named.map_or(Limits { memory: 0, blocks: 1 }, |(_, limits)| *limits)
}

/// Streams that do not wait for the default one.
const NON_BLOCKING: u32 = 1;
/// Events that nobody measures time by.
const WITHOUT_TIME: u32 = 2;
/// Captures that leave other threads alone.
const THREAD_LOCAL: i32 = 1;

impl Cuda {
    /// The first GPU.
    pub fn new() -> Result<Cuda> {
        let driver = Driver::find()?;
        let [mut context, mut stream, mut reader] = [std::ptr::null_mut(); 3];
        let mut ordinal = 0;
        let (mut units, mut capability, mut memory, mut block_memory) = (0, 0, 0, 0);
        let mut name: [c_char; 128] = [0; 128];
        // SAFETY: all pointers are to locals of the types the driver writes.
        unsafe {
            driver.init(0)?;
            driver.device_get(&raw mut ordinal, 0)?;
            driver.device_attribute(&raw mut units, MULTIPROCESSORS, ordinal)?;
            driver.device_attribute(&raw mut capability, CAPABILITY, ordinal)?;
            driver.device_attribute(&raw mut block_memory, BLOCK_MEMORY, ordinal)?;
            driver.device_memory(&raw mut memory, ordinal)?;
            driver.device_name(name.as_mut_ptr(), 127, ordinal)?;
            if capability < 8 {
                let problem = "this GPU is older than the sm_80 generation, which the kernels need";
                return Err(Error::Device(problem.to_owned()));
            }
            driver.context_retain(&raw mut context, ordinal)?;
            driver.context_set(context)?;
            driver.stream_create(&raw mut stream, NON_BLOCKING)?;
            driver.stream_create(&raw mut reader, NON_BLOCKING)?;
        }
        let device = Arc::new(Device { driver, ordinal, context, stream, reader, modules: Mutex::default() });
        let block_memory = (block_memory as u32).saturating_sub(RESERVED).min(WALK_LARGEST);
        let walker = Walker::new(&device, units as u32, block_memory)?;
        let landing = Mutex::new(Pinned::new(&device, LANDING)?);
        let bytes: Vec<u8> = name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        let name = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Cuda {
            device,
            facts: Facts {
                name,
                units: units as u32,
                memory: memory as u64,
                tensor: true,
                ordered: true,
                room: block_memory.saturating_sub(BESIDE_ROOM),
            },
            source: Ptx::new(KERNELS_PTX),
            kernels: Mutex::default(),
            walker,
            landing,
        })
    }
}

impl Device {
    /// The driver, with the context set on this thread.
    fn here(&self) -> Result<&Driver> {
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { self.driver.context_set(self.context)? };
        Ok(&self.driver)
    }

    /// Compiles PTX.
    fn load(&self, text: &str) -> Result<Module> {
        let image = CString::new(text).map_err(|_| Error::Device("the kernels are damaged".to_owned()))?;
        let (mut module, mut log) = (std::ptr::null_mut(), vec![0u8; 8192]);
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
        let driver = self.here()?;
        // SAFETY: the image ends in a zero; the driver writes at most so many bytes of a log.
        let loaded = unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            driver.module_load(&raw mut module, image.as_ptr().cast(), 2, options, values)
        };
        loaded.map_err(|error| {
            let end = log.iter().position(|c| *c == 0).unwrap_or(0);
            Error::Device(format!("{error}: {}", String::from_utf8_lossy(&log[..end])))
        })?;
        self.modules.lock().unwrap_or_else(PoisonError::into_inner).push(Module(module));
        Ok(Module(module))
    }

    /// A kernel of a module.
    fn function(&self, module: Module, name: &str) -> Result<Kernel> {
        let (symbol, mut function) = (CString::new(name).unwrap_or_default(), std::ptr::null_mut());
        // SAFETY: the module is loaded and the name ends in a zero.
        unsafe { self.here()?.module_function(&raw mut function, module.0, symbol.as_ptr())? };
        Ok(Kernel(function))
    }

    /// Memory of the device, zeroed.
    fn allocate(self: &Arc<Device>, bytes: usize) -> Result<Buffer> {
        let (driver, mut address) = (self.here()?, 0);
        // SAFETY: the driver writes an address of at least one byte, which is then within bounds.
        unsafe {
            driver.allocate(&raw mut address, bytes.max(16))?;
            driver.set(address, 0, bytes.max(16), self.stream)?;
        }
        Ok(Buffer { device: Arc::clone(self), address, bytes })
    }

    /// The point after all that a stream was asked for so far.
    fn mark(self: &Arc<Device>, stream: Handle, flags: u32) -> Result<Mark> {
        let (driver, mut event) = (self.here()?, std::ptr::null_mut());
        // SAFETY: the driver writes a handle.
        unsafe { driver.event_create(&raw mut event, flags)? };
        let mark = Mark { device: Arc::clone(self), event };
        // SAFETY: the event was just made; the caller's stream lives.
        unsafe { driver.event_record(event, stream)? };
        Ok(mark)
    }

    /// Writes to a buffer of the device.
    fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let address = buffer.at(offset, bytes.len())?;
        // SAFETY: in bounds on both sides; from pageable memory the driver has copied the bytes when it returns.
        unsafe { self.here()?.to_device(address, bytes.as_ptr().cast(), bytes.len(), self.stream) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // What fails here has nobody to tell.
        // SAFETY: nothing on the device outlives it: buffers and lists hold an `Arc` of it.
        unsafe {
            let _ = self.driver.context_set(self.context);
            let _ = self.driver.stream_wait(self.stream);
            let modules = std::mem::take(self.modules.get_mut().unwrap_or_else(PoisonError::into_inner));
            for Module(module) in modules {
                let _ = self.driver.module_unload(module);
            }
            let _ = self.driver.stream_destroy(self.stream);
            let _ = self.driver.stream_destroy(self.reader);
            let _ = self.driver.context_release(self.ordinal);
        }
    }
}

/// Memory of the device.
pub struct Buffer {
    device: Arc<Device>,
    address: Address,
    bytes: usize,
}

impl Buffer {
    fn at(&self, offset: usize, bytes: usize) -> Result<Address> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let outside = || Error::Device(format!("{bytes} bytes at {offset} of {}", self.bytes));
        inside.then_some(self.address + offset as u64).ok_or_else(outside)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the address was allocated with this buffer; work in flight is waited for by whoever started it.
        let _ = self.device.here().and_then(|driver| unsafe { driver.free(self.address) });
    }
}

/// An event of a stream.
pub struct Mark {
    device: Arc<Device>,
    event: Handle,
}

// SAFETY: as for `Device`.
unsafe impl Send for Mark {}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the event was made with this mark.
        let _ = self.device.here().and_then(|driver| unsafe { driver.event_destroy(self.event) });
    }
}

/// Commands, ready to run.
pub struct List(Recorded);

enum Recorded {
    /// One launch, however often it runs.
    Walk(Steps),
    Graph(Graph),
}

/// A graph, with the lists that its launches walk.
struct Graph {
    device: Arc<Device>,
    executable: Handle,
    _walked: Vec<Steps>,
}

// SAFETY: as for `Device`.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the executable was made with this graph.
        let _ = self.device.here().and_then(|driver| unsafe { driver.graph_forget(self.executable) });
    }
}

impl Host for Cuda {
    type Buffer = Buffer;
    type List = List;
    type Mark = Mark;

    fn name(&self) -> &'static str {
        "cuda"
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.device.allocate(bytes)
    }

    fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        self.device.write(buffer, offset, bytes)
    }

    fn lane<'a>(&'a self, buffer: &'a Buffer, largest: usize) -> Result<Box<dyn Lane + 'a>> {
        // A system may allow little pinned memory; ordinary memory takes longer.
        Ok(match PinnedLane::new(buffer, largest) {
            Ok(lane) => Box::new(lane),
            Err(_) => Box::new(Written::new(self, buffer)),
        })
    }

    fn read(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.fetch(buffer, offset, out, self.device.stream)
    }

    fn mark(&self) -> Result<Mark> {
        self.device.mark(self.device.stream, WITHOUT_TIME)
    }

    fn read_after(&self, mark: &Mark, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let reader = self.device.reader;
        // SAFETY: the event and the stream live.
        unsafe { self.device.here()?.stream_follow(reader, mark.event, 0)? };
        self.fetch(buffer, offset, out, reader)
    }

    fn copy(&self, buffer: &Buffer, from: usize, to: usize, bytes: usize) -> Result<()> {
        let (from, to) = (buffer.at(from, bytes)?, buffer.at(to, bytes)?);
        // SAFETY: in bounds, and the caller says that the ranges do not overlap.
        unsafe { self.device.here()?.copy(to, from, bytes, self.device.stream) }
    }

    unsafe fn record<'b>(&self, commands: &[Command], buffer: &dyn Fn(Bind) -> &'b Buffer) -> Result<List> {
        let runs: Vec<&[Command]> = commands.chunk_by(|a, b| walk::can(a) && walk::can(b)).collect();
        let is_walked = |run: &[Command]| run.len() >= walk::WORTHWHILE;
        if let [run] = runs[..]
            && is_walked(run)
        {
            return Ok(List(Recorded::Walk(self.walker.steps(run, buffer)?)));
        }
        let steps = |run: &&[Command]| is_walked(run).then(|| self.walker.steps(run, buffer)).transpose();
        let walked: Vec<Option<Steps>> = runs.iter().map(steps).collect::<Result<_>>()?;
        let launched = runs.iter().zip(&walked).filter(|(_, steps)| steps.is_none());
        self.need(launched.flat_map(|(run, _)| *run).map(|command| command.kernel))?;
        let (driver, stream) = (self.device.here()?, self.device.stream);
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: launches are captured and not run; their parameters are copied by the driver before it returns. That the buffers
        // live and are large enough is the caller's promise.
        unsafe {
            driver.capture_begin(stream, THREAD_LOCAL)?;
            let launched = runs.iter().zip(&walked).try_for_each(|(run, steps)| match steps {
                Some(steps) => self.walker.launch(&self.device, steps, 1),
                None => run.iter().try_for_each(|command| self.launch(command, buffer)),
            });
            let ended = driver.capture_end(stream, &raw mut graph);
            launched.and(ended)?;
            let made = driver.graph_instantiate(&raw mut executable, graph, 0);
            driver.graph_destroy(graph)?;
            made?;
        }
        let (device, walked) = (Arc::clone(&self.device), walked.into_iter().flatten().collect());
        Ok(List(Recorded::Graph(Graph { device, executable, _walked: walked })))
    }

    fn replay(&self, list: &List, times: u32) -> Result<()> {
        let driver = self.device.here()?;
        match &list.0 {
            // SAFETY: whoever recorded the list promised that it may run.
            Recorded::Walk(steps) => unsafe { self.walker.launch(&self.device, steps, times) },
            Recorded::Graph(graph) => {
                // SAFETY: as above.
                let launch = || unsafe { driver.graph_launch(graph.executable, self.device.stream) };
                (0..times).try_for_each(|_| launch())
            }
        }
    }

    fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as the device.
        unsafe { self.device.here()?.stream_wait(self.device.stream) }
    }
}

impl Cuda {
    /// Reads from a buffer in the order of a stream.
    fn fetch(&self, buffer: &Buffer, offset: usize, out: &mut [u8], stream: Handle) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let (address, driver) = (buffer.at(offset, out.len())?, self.device.here()?);
        let copy = |to: &mut [u8]| {
            // SAFETY: in bounds on both sides, and the bytes have come when this returns.
            unsafe {
                driver.to_host(to.as_mut_ptr().cast(), address, to.len(), stream)?;
                driver.stream_wait(stream)
            }
        };
        if out.len() > LANDING {
            return copy(out);
        }
        let mut landing = self.landing.lock().unwrap_or_else(PoisonError::into_inner);
        let landing = &mut landing.bytes_mut()[..out.len()];
        copy(landing)?;
        out.copy_from_slice(landing);
        Ok(())
    }

    /// Loads kernels, those that are not loaded yet together.
    fn need(&self, names: impl Iterator<Item = &'static str>) -> Result<()> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing: Vec<&str> = names.filter(|name| !kernels.contains_key(name)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let mut text = self.source.preamble();
        let mut threads = Vec::new();
        for name in &missing {
            let count = KERNELS.iter().find(|kernel| kernel.0 == *name).map(|kernel| kernel.1);
            let kernel = count.and_then(|count| self.source.kernel(name, count, limits(name).blocks));
            text += &kernel.ok_or_else(|| Error::Device(format!("there is no kernel \"{name}\"")))?;
            threads.extend(count);
        }
        let module = self.device.load(&text)?;
        for (name, threads) in missing.into_iter().zip(threads) {
            let (kernel, memory) = (self.device.function(module, name)?, limits(name).memory);
            if memory > 0 {
                // SAFETY: the function is loaded.
                unsafe { self.device.driver.function_attribute(kernel.0, MEMORY_ATTRIBUTE, memory as i32)? };
            }
            kernels.insert(name, (kernel, threads));
        }
        Ok(())
    }

    /// Launches a kernel on the stream, which may be capturing.
    unsafe fn launch<'b>(&self, command: &Command, buffer: &dyn Fn(Bind) -> &'b Buffer) -> Result<()> {
        let kernel = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).get(command.kernel).copied();
        let (Kernel(function), threads) =
            kernel.ok_or_else(|| Error::Device(format!("kernel \"{}\" is not loaded", command.kernel)))?;
        let mut addresses: Vec<Address> = command.buffers.iter().map(|bind| buffer(*bind).address).collect();
        // Copied to where structures of vectors may lie.
        let mut params = vec![0u128; command.params.len().div_ceil(16)];
        bytemuck::cast_slice_mut(&mut params)[..command.params.len()].copy_from_slice(&command.params);
        let mut arguments: Vec<*mut c_void> =
            addresses.iter_mut().map(|address| (&raw mut *address).cast()).collect();
        arguments.push(params.as_mut_ptr().cast());
        let [x, y, z] = command.groups;
        let (stream, none) = (self.device.stream, std::ptr::null_mut());
        // SAFETY: one argument for each parameter, of its type and size.
        unsafe {
            self.device.driver.launch(
                function,
                x,
                y,
                z,
                threads,
                1,
                1,
                limits(command.kernel).memory,
                stream,
                arguments.as_mut_ptr(),
                none,
            )
        }
    }
}
