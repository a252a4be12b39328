//! Apple GPUs: the kernels compiled by Metal when the program starts, lists encoded into command buffers.
//!
//! This host has never run: it is checked by the compiler alone (`docs/metal.md`).

mod archive;
mod cores;

use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use akunu_format::Mapping;
use akunu_program::{Error, Result};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLBlitCommandEncoder, MTLBuffer, MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandEncoder,
    MTLCommandQueue, MTLCompileOptions, MTLComputeCommandEncoder, MTLComputePipelineState,
    MTLCreateSystemDefaultDevice, MTLDevice, MTLGPUFamily, MTLLibrary, MTLResourceOptions, MTLSize,
};

use archive::Archive;

use crate::host::{Bind, Command, Facts, Host, ROOM};
use crate::threads::threads;

/// All kernels, as Metal's compiler takes them.
const SOURCE: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.metal"));

// Without it Metal gives a command-line program no device.
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// Lanes of a SIMD group, which the kernels are written for.
const LANES: usize = 32;

/// Bytes of a page, of which buffers that are made without a copy are whole numbers.
const PAGE: usize = 16 << 10;

/// Metal's objects are counted references that any thread may use.
struct Shared<T: ?Sized>(Retained<ProtocolObject<T>>);

// SAFETY: Apple documents devices, queues, libraries, pipelines and buffers as safe to use from any thread; command buffers are
// only encoded by the thread that made them.
unsafe impl<T: ?Sized> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized> Sync for Shared<T> {}

/// An Apple GPU with its queue.
pub struct Metal {
    device: Shared<dyn MTLDevice>,
    queue: Shared<dyn MTLCommandQueue>,
    library: Shared<dyn MTLLibrary>,
    archive: Option<Archive>,
    /// Kernels made ready so far, by name.
    pipelines: Mutex<HashMap<&'static str, Shared<dyn MTLComputePipelineState>>>,
    running: Mutex<Running>,
    facts: Facts,
}

/// Command buffers that were committed and not waited for, in their order.
#[derive(Default)]
struct Running {
    buffers: VecDeque<Shared<dyn MTLCommandBuffer>>,
    /// How many were committed before the first of these.
    before: u64,
}

impl Metal {
    /// The system's GPU.
    pub fn new() -> Result<Metal> {
        let device = MTLCreateSystemDefaultDevice()
            .ok_or_else(|| Error::Device("there is no Metal device on this machine".to_owned()))?;
        if !device.supportsFamily(MTLGPUFamily::Apple7) {
            let problem =
                format!("the kernels need an Apple GPU of the M1 or later, and this is {}", device.name());
            return Err(failed(&problem));
        }
        let queue = device.newCommandQueue().ok_or_else(|| failed("no command queue could be made"))?;
        let options = MTLCompileOptions::new();
        // Kernels say `fma` where they mean it, and compare with minus infinity. The newer `mathMode` is not on all systems.
        #[allow(deprecated)]
        options.setFastMathEnabled(false);
        let library =
            device.newLibraryWithSource_options_error(&NSString::from_str(SOURCE), Some(&*options)).map_err(
                |error| failed(&format!("the kernels do not compile: {}", error.localizedDescription())),
            )?;
        let facts = Facts {
            name: device.name().to_string(),
            units: cores::count().unwrap_or(cores::LEAST),
            memory: device.recommendedMaxWorkingSetSize(),
            tensor: false,
            ordered: false,
            room: ROOM,
        };
        let archive = Archive::open(&device, SOURCE);
        Ok(Metal {
            archive,
            device: Shared(device),
            queue: Shared(queue),
            library: Shared(library),
            pipelines: Mutex::default(),
            running: Mutex::default(),
            facts,
        })
    }

    /// A kernel made ready, the first time it is asked for.
    fn pipeline(&self, kernel: &'static str) -> Result<Shared<dyn MTLComputePipelineState>> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Shared(pipeline)) = pipelines.get(kernel) {
            return Ok(Shared(pipeline.clone()));
        }
        let function = self.library.0.newFunctionWithName(&NSString::from_str(kernel));
        let function = function.ok_or_else(|| failed(&format!("there is no kernel \"{kernel}\"")))?;
        let pipeline = match &self.archive {
            Some(archive) => archive.pipeline(&self.device.0, &function),
            None => self.device.0.newComputePipelineStateWithFunction_error(&function),
        };
        let pipeline = pipeline
            .map_err(|error| failed(&format!("kernel {kernel}: {}", error.localizedDescription())))?;
        let (lanes, most) = (pipeline.threadExecutionWidth(), pipeline.maxTotalThreadsPerThreadgroup());
        if lanes != LANES || most < threads(kernel) as usize {
            let needed = threads(kernel);
            let problem = format!(
                "kernel {kernel} needs {needed} threads, {LANES} to a SIMD group, and may have {most}, {lanes} to one"
            );
            return Err(failed(&problem));
        }
        pipelines.insert(kernel, Shared(pipeline.clone()));
        Ok(Shared(pipeline))
    }

    /// A command buffer that `encode` fills, committed.
    fn commit(&self, encode: impl FnOnce(&ProtocolObject<dyn MTLCommandBuffer>) -> Result<()>) -> Result<()> {
        autoreleasepool(|_| {
            let buffer =
                self.queue.0.commandBuffer().ok_or_else(|| failed("no command buffer could be made"))?;
            encode(&buffer)?;
            buffer.commit();
            self.running().buffers.push_back(Shared(buffer));
            Ok(())
        })
    }

    /// Whether so many bytes more are what the GPU can use well.
    fn check_room(&self, bytes: usize) -> Result<()> {
        let taken = self.device.0.currentAllocatedSize() as u64;
        let most = self.device.0.recommendedMaxWorkingSetSize();
        if taken.saturating_add(bytes as u64) > most {
            let problem =
                format!("{bytes} bytes more than {taken} do not fit the {most} that the GPU can use well");
            return Err(failed(&problem));
        }
        Ok(())
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the command buffers before a mark, and says what the first that failed says.
    fn wait_until(&self, mark: u64) -> Result<()> {
        let mut problem = Ok(());
        loop {
            let running = self.running();
            let before = running.before;
            let Some(Shared(buffer)) = running.buffers.front().filter(|_| before < mark) else {
                return problem;
            };
            let buffer = buffer.clone();
            drop(running);
            buffer.waitUntilCompleted();
            let mut running = self.running();
            // Another thread may have waited for it too.
            if running.before == before {
                running.buffers.pop_front();
                running.before += 1;
            }
            drop(running);
            if buffer.status() == MTLCommandBufferStatus::Error && problem.is_ok() {
                let text = buffer.error().map_or_else(
                    || "a command buffer failed without saying why".to_owned(),
                    |error| error.localizedDescription().to_string(),
                );
                problem = Err(failed(&text));
            }
        }
    }
}

fn failed(problem: &str) -> Error {
    Error::Device(format!("Metal: {problem}"))
}

/// Memory that the CPU and the GPU share.
pub struct Buffer {
    buffer: Shared<dyn MTLBuffer>,
    bytes: usize,
    /// What it is made of, where that is a file: only read.
    file: Option<Mapping>,
}

impl Buffer {
    /// The address of a range, on the CPU.
    fn at(&self, offset: usize, bytes: usize) -> Result<*mut u8> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if !inside {
            return Err(Error::Device(format!("{bytes} bytes at {offset} of {}", self.bytes)));
        }
        // SAFETY: within the buffer, which is never shorter than `self.bytes`.
        Ok(unsafe { self.buffer.0.contents().as_ptr().cast::<u8>().add(offset) })
    }
}

/// Commands with their kernels and buffers looked up.
pub struct List(Vec<Launch>);

struct Launch {
    pipeline: Shared<dyn MTLComputePipelineState>,
    threads: usize,
    buffers: Vec<Shared<dyn MTLBuffer>>,
    params: Vec<u8>,
    groups: MTLSize,
}

impl Host for Metal {
    type Buffer = Buffer;
    type List = List;
    /// How many command buffers were committed.
    type Mark = u64;

    fn name(&self) -> &'static str {
        "metal"
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        let (device, length) = (&self.device.0, bytes.max(16));
        self.check_room(length)?;
        let buffer = device.newBufferWithLength_options(length, MTLResourceOptions::StorageModeShared);
        let buffer = buffer.ok_or_else(|| failed(&format!("{bytes} bytes could not be had")))?;
        // SAFETY: `length` bytes that nothing else knows of yet.
        unsafe { buffer.contents().as_ptr().cast::<u8>().write_bytes(0, length) };
        Ok(Buffer { buffer: Shared(buffer), bytes, file: None })
    }

    fn adopt(&self, file: &Mapping) -> Result<Option<Buffer>> {
        let (device, bytes) = (&self.device.0, file.bytes());
        // What is behind the end of the file is part of its last page.
        let length = bytes.len().next_multiple_of(PAGE);
        let start = bytes.as_ptr().cast_mut();
        let Some(pointer) = NonNull::new(start.cast()).filter(|_| start.addr().is_multiple_of(PAGE)) else {
            return Ok(None);
        };
        // What is used of the file may fit by itself.
        if length > device.maxBufferLength() || self.check_room(length).is_err() {
            return Ok(None);
        }
        let options = MTLResourceOptions::StorageModeShared;
        // SAFETY: whole pages that stay mapped as long as the buffer holds the file; kernels take them as constants, and `write`
        // refuses them.
        let buffer = unsafe {
            device.newBufferWithBytesNoCopy_length_options_deallocator(pointer, length, options, None)
        };
        let of = |buffer| Buffer { buffer: Shared(buffer), bytes: bytes.len(), file: Some(file.clone()) };
        Ok(buffer.map(of))
    }

    fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        if buffer.file.is_some() {
            return Err(failed("a file is only read"));
        }
        let to = buffer.at(offset, bytes.len())?;
        self.wait()?;
        // SAFETY: in bounds, and no command runs that could read it.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read(&self, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let from = buffer.at(offset, out.len())?;
        self.wait()?;
        // SAFETY: in bounds, and no command runs that could write it.
        unsafe { from.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn mark(&self) -> Result<u64> {
        let running = self.running();
        Ok(running.before + running.buffers.len() as u64)
    }

    fn read_after(&self, mark: &u64, buffer: &Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        let from = buffer.at(offset, out.len())?;
        self.wait_until(*mark)?;
        // SAFETY: in bounds, and the caller says that no later command writes it.
        unsafe { from.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn copy(&self, buffer: &Buffer, from: usize, to: usize, bytes: usize) -> Result<()> {
        buffer.at(from, bytes)?;
        buffer.at(to, bytes)?;
        let memory = &buffer.buffer.0;
        self.commit(|commands| {
            let encoder = commands.blitCommandEncoder().ok_or_else(|| failed("no copy could be encoded"))?;
            // SAFETY: both ranges are in bounds, and the caller says that they do not overlap.
            unsafe {
                encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                    memory, from, memory, to, bytes,
                );
            }
            encoder.endEncoding();
            Ok(())
        })
    }

    unsafe fn record<'b>(&self, commands: &[Command], buffer: &dyn Fn(Bind) -> &'b Buffer) -> Result<List> {
        let launch = |command: &Command| {
            let [width, height, depth] = command.groups.map(|n| n as usize);
            Ok(Launch {
                pipeline: self.pipeline(command.kernel)?,
                threads: threads(command.kernel) as usize,
                buffers: command.buffers.iter().map(|bind| Shared(buffer(*bind).buffer.0.clone())).collect(),
                params: command.params.clone(),
                groups: MTLSize { width, height, depth },
            })
        };
        let list = List(commands.iter().map(launch).collect::<Result<_>>()?);
        if let Some(archive) = &self.archive {
            // Nothing is added while it is written.
            let _pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
            archive.save();
        }
        Ok(list)
    }

    fn replay(&self, list: &List, times: u32) -> Result<()> {
        self.commit(|commands| {
            // Commands of one encoder run one after the other, each seeing what those before wrote.
            let encoder =
                commands.computeCommandEncoder().ok_or_else(|| failed("no commands could be encoded"))?;
            for launch in (0..times).flat_map(|_| &list.0) {
                encoder.setComputePipelineState(&launch.pipeline.0);
                for (i, buffer) in launch.buffers.iter().enumerate() {
                    // SAFETY: the list holds the buffer; the kernel takes one at this index.
                    unsafe { encoder.setBuffer_offset_atIndex(Some(&*buffer.0), 0, i) };
                }
                let params = NonNull::from(&launch.params[..]).cast();
                // SAFETY: Metal copies the bytes before it returns.
                unsafe { encoder.setBytes_length_atIndex(params, launch.params.len(), launch.buffers.len()) };
                let threads = MTLSize { width: launch.threads, height: 1, depth: 1 };
                encoder.dispatchThreadgroups_threadsPerThreadgroup(launch.groups, threads);
            }
            encoder.endEncoding();
            Ok(())
        })
    }

    fn wait(&self) -> Result<()> {
        self.wait_until(u64::MAX)
    }
}
