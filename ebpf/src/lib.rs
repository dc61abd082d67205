//! gctrace's BPF programs and everything that uses the kernel's BPF.
//!
//! The only crate that uses libbpf. It takes a plan (which file, which offsets, what kind of probe)
//! and returns events; where plans come from and what events mean is decided elsewhere.
//!
//! The length of each pause of one process; the caller knows where in the file the collector is:
//!
//! ```no_run
//! use gctrace_ebpf::ArgumentRegisters;
//! use gctrace_ebpf::BpfSession;
//! use gctrace_ebpf::CounterSet;
//! use gctrace_ebpf::KernelEvent;
//! use gctrace_ebpf::KernelSupport;
//! use gctrace_ebpf::PlannedPoint;
//! use gctrace_ebpf::PointKind;
//! use gctrace_ebpf::SessionConfig;
//! use gctrace_ebpf::unknown_layout;
//! use std::path::Path;
//! use std::time::Duration;
//!
//! let config = SessionConfig {
//!     follow_children: true,
//!     ring_bytes: 1 << 20,
//!     stack_depth: 0,
//!     counters: CounterSet::default(),
//! };
//! let mut session = BpfSession::open(config, &KernelSupport::probe())?;
//! let collector = PlannedPoint {
//!     kind: PointKind::POINT_COLLECT,
//!     // Times only: nothing is read from the process.
//!     layout: Some(session.add_layout(&unknown_layout())?),
//!     registers: ArgumentRegisters::default(),
//!     fixed_generation: None,
//!     runtime_delta: 0,
//!     entry: Some(0x14_2a30),
//!     on_return: Some(0x14_2a30),
//!     semaphore: None,
//! };
//! let _probes = session.attach(Path::new("/usr/bin/python3"), &[collector])?;
//! session.follow(1234)?;
//! for event in session.poll(Duration::from_secs(1))? {
//!     if let KernelEvent::Pause(event) = event {
//!         println!("{} ns", event.pause.duration_ns());
//!     }
//! }
//! # Ok::<(), gctrace_ebpf::Error>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "gctrace reads function arguments by the x86-64 calling convention; other machines are not supported yet"
);

mod allocations;
mod arenas;
mod attach;
mod calibrate;
mod counts;
mod cuda;
mod decode;
mod error;
mod per_cpu;
mod release;
mod ring_memory;
mod session;
mod support;
mod wire;

pub use allocations::AllocationCounts;
pub use allocations::AllocationProbe;
pub use allocations::AllocationPrograms;
pub use allocations::AllocationWindow;
pub use allocations::SizeSource;
pub use allocations::WindowTarget;
pub use attach::ArgumentRegisters;
pub use attach::PlannedPoint;
pub use calibrate::Calibration;
pub use calibrate::CalibrationLock;
pub use counts::CounterSet;
pub use cuda::BytesLocation;
pub use cuda::CallCounts;
pub use cuda::CallKind;
pub use cuda::CallProbe;
pub use cuda::CudaCalibration;
pub use cuda::CudaCallEvent;
pub use cuda::CudaEvent;
pub use cuda::CudaPrograms;
pub use cuda::DeviceMemoryEvent;
pub use cuda::GridLocation;
pub use cuda::StreamLocation;
pub use decode::AllocationEvent;
pub use decode::CapturedFrame;
pub use decode::CodeEvent;
pub use decode::CodeId;
pub use decode::HoldState;
pub use decode::KernelEvent;
pub use decode::LibraryKind;
pub use decode::NotHeld;
pub use decode::PauseEvent;
pub use decode::ProcessEvent;
pub use decode::StackEvent;
pub use decode::StackId;
pub use decode::decode;
pub use error::Error;
pub use release::HeldProcesses;
pub use session::Attachment;
pub use session::BpfSession;
pub use session::ProgramCounts;
pub use session::SessionConfig;
pub use session::SharedMaps;
pub use session::detach;
pub use support::AttachMethod;
pub use support::KernelSupport;
pub use support::OLDEST_LINUX;
pub use wire::Arenas;
pub use wire::FileKey;
pub use wire::FrameOffsets;
pub use wire::InstructionKind;
pub use wire::Layout;
pub use wire::MAX_STACK_DEPTH;
pub use wire::NO_OFFSET;
pub use wire::PointKind;
pub use wire::unknown_frames;
pub use wire::unknown_layout;
