//! A simulated GPU behind the C ABIs of libcuda, libcudart, libnccl, libnvidia-ml and libcupti, so
//! that programs run and gctrace records them where there is no GPU.
//!
//! [`lay_out`] creates a folder of libraries under their real names; a program that finds it
//! through `LD_LIBRARY_PATH` uses the simulator. `core` documents what it simulates and by which
//! rules: streams are FIFOs in real time, calls that wait really wait. Device memory is counted but
//! not backed: copies take time but move nothing.
//!
//! # Settings
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `SIMGPU_DEVICES` | 1 | number of devices |
//! | `SIMGPU_MEMORY` | 17179869184 | bytes of each device |
//! | `SIMGPU_LATENCY_NS` | 5000 | from a launch to the earliest start of the kernel |
//! | `SIMGPU_GAP_NS` | 1000 | between two operations of a stream |
//! | `SIMGPU_KERNEL_NS` | 10000 | duration of kernels without one |
//! | `SIMGPU_COPY_GBPS` | 12 | speed of copies between host and device |
//! | `SIMGPU_LINK_GBPS` | 100 | speed of collectives |
//! | `SIMGPU_LOG` | | prefix of the truth logs |
//! | `SIMGPU_LOG_MS` | 100 | how often they are written; measurements on few CPUs should write them at exit only |
//! | `SIMGPU_SHARED` | `shared` next to the libraries | folder that processes share |
//! | `SIMGPU_CUPTI` | 12.4 | version of CUPTI's records: `11.8`, `12.4`, `13.0`, `13.2` (which has host functions) or `future` (longer ones) |
//! | `SIMGPU_FAULT` | | faults, comma-separated: `subscribe-busy`, `cupti-15`, `cupti-999`, `cupti-partial`, `dropped-records`, `wrong-clock`, `never-completing`, `crash-at-exit`, `no-nvml`, `nvml-lost` |
//!
//! # Kernels
//!
//! `int simgpuKernel(const char *name, uint64_t nanoseconds, void **function)` registers a kernel;
//! the handle goes to `cudaLaunchKernel`, `cuLaunchKernel` and their kin. `cuModuleGetFunction`
//! works too: a name that ends in `@<nanoseconds>` carries its duration.
//!
//! # Truth log
//!
//! `<prefix>.<pid>.csv`, a first line that starts with `#`, then two kinds of line. Timestamps are
//! CLOCK_MONOTONIC nanoseconds, handles hexadecimal.
//!
//! ```text
//! call,function,layer,pid,tid,start,end,stream handle,bytes,grid x,y,z,device,correlation,result,event handle
//! op,kind,name,pid,device,stream handle,stream id,launched,start,end,correlation,bytes,awaited,communicator,number
//! ```
//!
//! The layer is `driver`, `runtime` or `nccl`; nested calls are logged too, before the outer one
//! and with its correlation id. Kinds of operation: `kernel`, `memcpy`, `memset`, `collective`,
//! `host` (a function that the host runs), `event`, `wait`. An operation is logged once it is scheduled, which may be before it ends. Lines
//! are written every `SIMGPU_LOG_MS` milliseconds and at exit; a program that leaves by `_exit` or
//! `exec` calls `simgpuFlush()` first, and a killed one loses the last lines, one of which may be
//! cut. Stream and event handle of a call are those that the caller passed (0: none, or the default
//! stream). For a `wait`, `awaited` is the correlation id of the call that recorded the event (0
//! otherwise). For a `collective`, `communicator` is the name that all its ranks share and `number`
//! the index of the collective in it, from 0 (empty and 0 otherwise).
//!
//! # Limits
//!
//! No contexts other than the primary ones; collectives, but no `ncclSend` and `ncclRecv`; graphs
//! by capture of kernels in one stream; no managed memory, no peer access, no textures; CUPTI's
//! activity API without its callbacks. The folder's files may be symbolic links to one file: then
//! all layers are one file to the loader, to probes and in `/proc/<pid>/maps`. As with the real
//! driver, a forked child cannot use CUDA and gets 3 from every call.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod c;
mod call;
mod clock;
mod collective;
mod core;
mod cupti;
mod driver;
mod error;
mod handles;
mod host_function;
mod layout;
mod link;
mod log;
mod memory;
mod nccl;
mod nvml;
mod runtime;
mod settings;
mod simulator;
mod sync;
mod thread;
mod usage;

pub use layout::{LayoutError, NAMES, find_library, lay_out, lay_out_contents};
