//! The part of the CUDA driver's interface that is used, looked up in the driver's library when the program runs.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use akunu_program::{Error, Result};
use libloading::Library;

/// An address on the device.
pub(super) type Address = u64;
/// A handle of the driver.
pub(super) type Handle = *mut c_void;
/// Zero, or what went wrong.
type Status = c_int;

macro_rules! driver {
    ($($name:ident = $symbol:literal ($($argument:ident: $ty:ty),*);)*) => {
        /// The driver's functions.
        pub(super) struct Driver {
            $($name: unsafe extern "C" fn($($ty),*) -> Status,)*
            error_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
            /// Keeps the functions valid.
            _library: Library,
        }

        impl Driver {
            /// Finds the driver.
            pub(super) fn find() -> Result<Driver> {
                let names = if cfg!(windows) { ["nvcuda.dll"; 2] } else { ["libcuda.so.1", "libcuda.so"] };
                // SAFETY: the driver's library has no initialisers with conditions of their own.
                let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
                let library = library
                    .ok_or_else(|| Error::Device("there is no NVIDIA driver on this machine".to_owned()))?;
                let missing = |symbol: &str| Error::Device(format!("the NVIDIA driver is too old: it has no {symbol}"));
                // SAFETY: the types are those of the driver's documentation.
                unsafe {
                    Ok(Driver {
                        $($name: *library.get($symbol).map_err(|_| missing(stringify!($name)))?,)*
                        error_string: *library.get(b"cuGetErrorString\0").map_err(|_| missing("cuGetErrorString"))?,
                        _library: library,
                    })
                }
            }

            $(
                /// # Safety
                /// As the driver's documentation says of this function.
                #[allow(clippy::too_many_arguments)]
                pub(super) unsafe fn $name(&self, $($argument: $ty),*) -> Result<()> {
                    // SAFETY: the caller's promise.
                    self.check(stringify!($name), unsafe { (self.$name)($($argument),*) })
                }
            )*
        }
    };
}

driver! {
    init = b"cuInit\0" (flags: c_uint);
    device_get = b"cuDeviceGet\0" (device: *mut c_int, ordinal: c_int);
    device_name = b"cuDeviceGetName\0" (name: *mut c_char, length: c_int, device: c_int);
    device_memory = b"cuDeviceTotalMem_v2\0" (bytes: *mut usize, device: c_int);
    device_attribute = b"cuDeviceGetAttribute\0" (value: *mut c_int, attribute: c_int, device: c_int);
    context_retain = b"cuDevicePrimaryCtxRetain\0" (context: *mut Handle, device: c_int);
    context_release = b"cuDevicePrimaryCtxRelease_v2\0" (device: c_int);
    context_set = b"cuCtxSetCurrent\0" (context: Handle);
    module_load = b"cuModuleLoadDataEx\0"
        (module: *mut Handle, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void);
    module_unload = b"cuModuleUnload\0" (module: Handle);
    module_function = b"cuModuleGetFunction\0" (function: *mut Handle, module: Handle, name: *const c_char);
    allocate = b"cuMemAlloc_v2\0" (address: *mut Address, bytes: usize);
    free = b"cuMemFree_v2\0" (address: Address);
    pin = b"cuMemHostAlloc\0" (memory: *mut *mut c_void, bytes: usize, flags: c_uint);
    unpin = b"cuMemFreeHost\0" (memory: *mut c_void);
    set = b"cuMemsetD8Async\0" (address: Address, value: u8, bytes: usize, stream: Handle);
    to_device = b"cuMemcpyHtoDAsync_v2\0" (to: Address, from: *const c_void, bytes: usize, stream: Handle);
    to_host = b"cuMemcpyDtoHAsync_v2\0" (to: *mut c_void, from: Address, bytes: usize, stream: Handle);
    copy = b"cuMemcpyDtoDAsync_v2\0" (to: Address, from: Address, bytes: usize, stream: Handle);
    stream_create = b"cuStreamCreate\0" (stream: *mut Handle, flags: c_uint);
    stream_destroy = b"cuStreamDestroy_v2\0" (stream: Handle);
    stream_wait = b"cuStreamSynchronize\0" (stream: Handle);
    stream_follow = b"cuStreamWaitEvent\0" (stream: Handle, event: Handle, flags: c_uint);
    event_create = b"cuEventCreate\0" (event: *mut Handle, flags: c_uint);
    event_record = b"cuEventRecord\0" (event: Handle, stream: Handle);
    event_wait = b"cuEventSynchronize\0" (event: Handle);
    event_destroy = b"cuEventDestroy_v2\0" (event: Handle);
    capture_begin = b"cuStreamBeginCapture_v2\0" (stream: Handle, mode: c_int);
    capture_end = b"cuStreamEndCapture\0" (stream: Handle, graph: *mut Handle);
    graph_instantiate = b"cuGraphInstantiateWithFlags\0" (executable: *mut Handle, graph: Handle, flags: u64);
    graph_destroy = b"cuGraphDestroy\0" (graph: Handle);
    graph_forget = b"cuGraphExecDestroy\0" (executable: Handle);
    graph_launch = b"cuGraphLaunch\0" (executable: Handle, stream: Handle);
    function_attribute = b"cuFuncSetAttribute\0" (function: Handle, attribute: c_int, value: c_int);
    launch_together = b"cuLaunchCooperativeKernel\0" (
        function: Handle, x: c_uint, y: c_uint, z: c_uint, threads_x: c_uint, threads_y: c_uint, threads_z: c_uint,
        shared: c_uint, stream: Handle, params: *mut *mut c_void
    );
    launch = b"cuLaunchKernel\0" (
        function: Handle, x: c_uint, y: c_uint, z: c_uint, threads_x: c_uint, threads_y: c_uint, threads_z: c_uint,
        shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void
    );
}

impl Driver {
    fn check(&self, what: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the driver writes a pointer to a string of its own, or null.
        unsafe { (self.error_string)(status, &raw mut text) };
        let text = if text.is_null() {
            "an unknown error".into()
        } else {
            // SAFETY: as above; the string lives as long as the driver.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        Err(Error::Device(format!("CUDA, {what}: {text} ({status})")))
    }
}
