//! The work of the recorded programs.

use test_kit::simulator::gpu::{Gpu, c};

/// The functions called below that are checked.
pub(crate) const FUNCTIONS: [&str; 9] = [
    "cudaLaunchKernel",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "cudaStreamSynchronize",
    "cudaGraphLaunch",
    "cudaDeviceSynchronize",
    "cuLaunchKernel",
    "cuStreamSynchronize",
    "cuMemsetD8Async",
];

/// Kernels of both layers, copies, fills, an event, on a stream of its own.
pub(crate) fn stream(gpu: &Gpu, kernel_ns: u64, rounds: usize) {
    let (kernel, stream, event) = (gpu.kernel(kernel_ns), gpu.stream(), gpu.event());
    for _ in 0..rounds {
        gpu.launch(kernel, stream);
        c!(gpu.driver, cuLaunchKernel(kernel => u64, 1 => u32, 1 => u32, 1 => u32, 32 => u32, 1 => u32, 1 => u32,
            0 => u32, stream => u64, 0 => u64, 0 => u64));
        c!(gpu.runtime, cudaMemcpyAsync(0 => u64, 0 => u64, 4096 => u64, 1 => i32, stream => u64));
        c!(gpu.runtime, cudaMemsetAsync(0 => u64, 0 => i32, 512 => u64, stream => u64));
        c!(gpu.runtime, cudaEventRecord(event => u64, stream => u64));
        let mut device = 0;
        c!(gpu.runtime, cudaGetDevice(&mut device => &mut i32));
    }
    gpu.wait(stream);
    assert_eq!(c!(gpu.driver, cuStreamSynchronize(stream => u64)), 0);
}

/// A captured graph of three kernels, launched several times.
pub(crate) fn graph(gpu: &Gpu, launches: usize) {
    let (kernel, stream) = (gpu.kernel(7_000), gpu.stream());
    let (mut graph, mut executable) = (0_u64, 0_u64);
    c!(gpu.runtime, cudaStreamBeginCapture(stream => u64, 0 => i32));
    (0..3).for_each(|_| {
        gpu.launch(kernel, stream);
    });
    c!(gpu.runtime, cudaStreamEndCapture(stream => u64, &mut graph => &mut u64));
    c!(gpu.runtime, cudaGraphInstantiate(&mut executable => &mut u64, graph => u64, 0 => u64));
    for _ in 0..launches {
        assert_eq!(c!(gpu.runtime, cudaGraphLaunch(executable => u64, stream => u64)), 0);
    }
    gpu.wait(stream);
}

/// Three threads with a stream each, and a graph in parallel.
pub(crate) fn everything(rounds: usize) {
    let gpu = Gpu::ready();
    std::thread::scope(|scope| {
        for number in 1..=3_u64 {
            let gpu = &gpu;
            scope.spawn(move || {
                assert_eq!(c!(gpu.runtime, cudaSetDevice(0 => i32)), 0);
                stream(gpu, 5_000 * number, rounds);
            });
        }
        graph(&gpu, 40);
    });
    assert_eq!(c!(gpu.runtime, cudaDeviceSynchronize()), 0);
}
