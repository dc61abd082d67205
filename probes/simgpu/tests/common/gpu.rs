//! The libraries as a program sees them: functions by name.

use super::libraries;
use libloading::Library;
use std::ffi::CString;

pub(crate) const NON_BLOCKING: u32 = 1;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dim3(pub(crate) u32, pub(crate) u32, pub(crate) u32);

pub(crate) struct Gpu {
    pub(crate) driver: Library,
    pub(crate) runtime: Library,
}

/// Calls a function of a library with the types of the arguments as they are.
macro_rules! c {
    ($library:expr, $name:ident($($argument:expr => $type:ty),*)) => {{
        // SAFETY: the types are those of the C function.
        unsafe {
            let name = concat!(stringify!($name), "\0").as_bytes();
            let function = $library.get::<extern "C" fn($($type),*) -> i32>(name);
            function.expect(stringify!($name))($($argument),*)
        }
    }};
}
pub(crate) use c;

impl Gpu {
    pub(crate) fn load() -> Self {
        // SAFETY: the libraries run nothing when they are loaded.
        let load = |name| unsafe { Library::new(libraries().join(name)).expect(name) };
        Self {
            driver: load("libcuda.so.1"),
            runtime: load("libcudart.so.12"),
        }
    }

    /// Initialized, with the context of device 0.
    pub(crate) fn ready() -> Self {
        let gpu = Self::load();
        assert_eq!(c!(gpu.runtime, cudaSetDevice(0 => i32)), 0);
        gpu
    }

    pub(crate) fn kernel(&self, nanoseconds: u64) -> u64 {
        let mut function = 0;
        let name = CString::new(format!("kernel_{nanoseconds}")).expect("no zero in it");
        let result = c!(self.driver, simgpuKernel(
            name.as_ptr() => *const std::ffi::c_char, nanoseconds => u64, &mut function => &mut u64));
        assert_eq!(result, 0);
        function
    }

    pub(crate) fn stream(&self) -> u64 {
        let mut stream = 0;
        assert_eq!(
            c!(self.runtime, cudaStreamCreateWithFlags(&mut stream => &mut u64, NON_BLOCKING => u32)),
            0
        );
        stream
    }

    pub(crate) fn event(&self) -> u64 {
        let mut event = 0;
        assert_eq!(c!(self.runtime, cudaEventCreate(&mut event => &mut u64)), 0);
        event
    }

    pub(crate) fn launch(&self, kernel: u64, stream: u64) -> i32 {
        c!(self.runtime, cudaLaunchKernel(kernel => u64, Dim3(4, 3, 2) => Dim3, Dim3(128, 1, 1) => Dim3,
            0 => u64, 0 => u64, stream => u64))
    }

    pub(crate) fn wait(&self, stream: u64) {
        assert_eq!(c!(self.runtime, cudaStreamSynchronize(stream => u64)), 0);
    }

    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, i32> {
        let mut address = 0;
        match c!(self.runtime, cudaMalloc(&mut address => &mut u64, bytes => u64)) {
            0 => Ok(address),
            error => Err(error),
        }
    }
}
