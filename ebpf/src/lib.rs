//! gctrace's BPF programs and everything that uses the kernel's BPF.
//!
//! The only crate that uses libbpf. It takes a plan (files, offsets, kinds of probes) and returns events; other crates
//! make plans and interpret events.
//!
//! The length of each pause of one process; the caller knows where in the file the collector is:
//!
//! ```no_run
//! use gctrace_ebpf::BpfSession;
//! use gctrace_ebpf::CollectorArguments;
//! use gctrace_ebpf::CounterSet;
//! use gctrace_ebpf::KernelEvent;
//! use gctrace_ebpf::KernelSupport;
//! use gctrace_ebpf::PlannedPoint;
//! use gctrace_ebpf::ProbePointKind;
//! use gctrace_ebpf::SessionConfig;
//! use std::path::Path;
//! use std::time::Duration;
//!
//! let config = SessionConfig {
//!     follow_children: true,
//!     ring_bytes: 1 << 20,
//!     stack_depth: 0,
//!     counters: CounterSet::default(),
//!     samples: false,
//! };
//! let mut session = BpfSession::open(config, &KernelSupport::probe())?;
//! let collector = PlannedPoint {
//!     kind: ProbePointKind::Collect,
//!     // Times only: nothing is read from the process.
//!     layout: Some(session.add_layout(None, None, None)?),
//!     arguments: CollectorArguments::default(),
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

/// The module `skeleton` that `build.rs` generated of one of the objects in `bpf/`.
macro_rules! skeleton {
    ($visible:vis mod $object:literal) => {
        #[allow(
            warnings,
            clippy::all,
            clippy::allow_attributes,
            clippy::undocumented_unsafe_blocks,
            clippy::unwrap_used,
            clippy::expect_used,
            clippy::panic,
            reason = "generated"
        )]
        $visible mod skeleton {
            include!(concat!(env!("OUT_DIR"), "/", $object, ".skel.rs"));
        }
    };
}
use skeleton;

mod allocations;
mod arch;
mod arenas;
mod attach;
mod calibrate;
mod counts;
mod cuda;
mod decode;
mod error;
mod event;
mod garbage;
mod layout;
mod link;
mod release;
mod samples;
mod session;
mod support;
mod wire;

pub use allocations::{
    AllocationCounts, AllocationProbe, AllocationPrograms, AllocationWindow, WindowTarget,
};
pub use attach::PlannedPoint;
pub use calibrate::{Calibration, CalibrationLock, ProbeTimes};
pub use counts::CounterSet;
pub use cuda::{CallCounts, CallProbe, CudaCalibration, CudaCallEvent, CudaEvent, CudaPrograms};
pub use decode::{decode, waits_for};
pub use error::Error;
pub use event::{
    AllocationEvent, CapturedFrame, CapturedKind, CodeEvent, CodeId, EarlierWait, GarbageEvent,
    KernelEvent, KindOwner, LibraryKind, LoopKey, NotStopped, OffCpuEvent, PauseEvent,
    ProcessEvent, SampleEvent, StackEvent, StackId, StopState, TypeEvent, TypeId,
};
pub use garbage::GarbagePrograms;
pub use gctrace_abi::{CallKind, CollectorArguments, ProbePointKind};
pub use gctrace_event::MAX_STACK_DEPTH;
pub use release::StoppedProcesses;
pub use samples::{LoopReading, SamplePrograms};
pub use session::{
    Attachment, BpfSession, GarbageCounts, ProgramCounts, SampleCounts, SessionConfig, SharedMaps,
    detach,
};
pub use support::{AttachMethod, KernelSupport, OLDEST_LINUX};
pub use wire::{Arenas, FileKey};
