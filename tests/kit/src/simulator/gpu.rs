//! The libraries as a program sees them: functions by name.

use super::libraries;
use libloading::Library;
use std::ffi::CString;

/// `cudaStreamNonBlocking`.
pub const NON_BLOCKING: u32 = 1;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3(pub u32, pub u32, pub u32);

/// The libraries of the simulated GPU, loaded.
pub struct Gpu {
    /// `libcuda.so.1`.
    pub driver: Library,
    /// `libcudart.so.12`.
    pub runtime: Library,
}

/// Calls a function of a library with the types of the arguments as they are.
#[macro_export]
macro_rules! c {
    ($library:expr, $name:ident($($argument:expr => $type:ty),*)) => {{
        let function: extern "C" fn($($type),*) -> i32 =
            $crate::simulator::gpu::function(&$library, stringify!($name));
        function($($argument),*)
    }};
}
pub use crate::c;

/// A function by name; `F` must be its type in C. Panics if the library has no such function.
pub fn function<F: Copy>(library: &Library, name: &str) -> F {
    // SAFETY: the tests give the types of the simulated library's own functions.
    let function = unsafe { library.get::<F>(name.as_bytes()) };
    *function.expect(name)
}

impl Gpu {
    /// Loaded, and nothing called yet.
    pub fn load() -> Self {
        // SAFETY: the libraries run nothing when they are loaded.
        let load = |name| unsafe { Library::new(libraries().join(name)).expect(name) };
        Self { driver: load("libcuda.so.1"), runtime: load("libcudart.so.12") }
    }

    /// Initialized, with the context of device 0.
    pub fn ready() -> Self {
        let gpu = Self::load();
        assert_eq!(c!(gpu.runtime, cudaSetDevice(0 => i32)), 0);
        gpu
    }

    /// A function whose kernels run this long.
    pub fn kernel(&self, nanoseconds: u64) -> u64 {
        let mut function = 0;
        let name = CString::new(format!("kernel_{nanoseconds}")).expect("no zero in it");
        let result = c!(self.driver, simgpuKernel(
            name.as_ptr() => *const std::ffi::c_char, nanoseconds => u64, &mut function => &mut u64));
        assert_eq!(result, 0);
        function
    }

    /// A new stream that does not wait for the default one.
    pub fn stream(&self) -> u64 {
        let mut stream = 0;
        assert_eq!(
            c!(self.runtime, cudaStreamCreateWithFlags(&mut stream => &mut u64, NON_BLOCKING => u32)),
            0
        );
        stream
    }

    /// A new event.
    pub fn event(&self) -> u64 {
        let mut event = 0;
        assert_eq!(c!(self.runtime, cudaEventCreate(&mut event => &mut u64)), 0);
        event
    }

    /// Launches a kernel; the call's result.
    pub fn launch(&self, kernel: u64, stream: u64) -> i32 {
        c!(self.runtime, cudaLaunchKernel(kernel => u64, Dim3(4, 3, 2) => Dim3, Dim3(128, 1, 1) => Dim3,
            0 => u64, 0 => u64, stream => u64))
    }

    /// Waits until a stream is empty.
    pub fn wait(&self, stream: u64) {
        assert_eq!(c!(self.runtime, cudaStreamSynchronize(stream => u64)), 0);
    }

    /// The address of new device memory, or the call's error code.
    pub fn allocate(&self, bytes: u64) -> Result<u64, i32> {
        let mut address = 0;
        match c!(self.runtime, cudaMalloc(&mut address => &mut u64, bytes => u64)) {
            0 => Ok(address),
            error => Err(error),
        }
    }
}
