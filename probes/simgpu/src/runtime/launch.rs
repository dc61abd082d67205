//! Kernel launches.

use super::with_context;
use crate::call::exported;
use crate::driver::launch::config;
use crate::link::driver;

/// `dim3`: passed by value in two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

exported! { Runtime;
    fn cudaLaunchKernel(function: u64, grid: Dim3, block: Dim3, parameters: u64, shared_bytes: u64, stream: u64)
        [stream: stream, grid: [grid.x, grid.y, grid.z]] => with_context(|| driver::cuLaunchKernel(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, narrow(shared_bytes), stream, parameters, 0,
        ));
    fn cudaLaunchKernel_ptsz(function: u64, grid: Dim3, block: Dim3, parameters: u64, shared_bytes: u64, stream: u64)
        [stream: stream, grid: [grid.x, grid.y, grid.z]] => with_context(|| driver::cuLaunchKernel_ptsz(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, narrow(shared_bytes), stream, parameters, 0,
        ));
    fn cudaLaunchCooperativeKernel(
        function: u64, grid: Dim3, block: Dim3, parameters: u64, shared_bytes: u64, stream: u64,
    ) [stream: stream, grid: [grid.x, grid.y, grid.z]] => with_context(|| driver::cuLaunchCooperativeKernel(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, narrow(shared_bytes), stream, parameters,
        ));
    fn cudaLaunchKernelExC(configuration: u64, function: u64, parameters: u64)
        [stream: config(configuration).stream, grid: config(configuration).grid] =>
        with_context(|| driver::cuLaunchKernelEx(configuration, function, parameters, 0));
    fn cudaLaunchKernelExC_ptsz(configuration: u64, function: u64, parameters: u64)
        [stream: config(configuration).stream, grid: config(configuration).grid] =>
        with_context(|| driver::cuLaunchKernelEx_ptsz(configuration, function, parameters, 0));
}

fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
