//! The wire records of `bpf/event.h`, as the skeleton generated them from the object's BTF.
//! `build.rs` derives zerocopy's traits for them: all are integers without padding.

use gctrace_abi::ProbePointKind;
use gctrace_event::MAX_STACK_DEPTH;
use zerocopy::FromBytes;

crate::skeleton!(pub(crate) mod "gctrace");

/// Arenas that a process mapped and unmapped: see `struct arenas` in `bpf/event.h`.
pub use skeleton::types::arenas as Arenas;
/// An executable file, as identified by the kernel: opaque, only to be compared.
pub use skeleton::types::file_key as FileKey;

pub(crate) use skeleton::types::{
    allocation_event as AllocationWire, code_event as CodeWire,
    counted_pause_event as CountedPauseWire, counter as Counter, earlier_wait as EarlierWaitWire,
    event_kind as EventKind, followed_process as FollowedProcess, frame_layout as FrameWire,
    garbage_event as GarbageWire, garbage_kind as GarbageKindWire,
    hardware_counter as HardwareCounter, hardware_counts as HardwareCounts,
    instruction_kind as InstructionKind, layout as LayoutWire, library as LibraryWire,
    loop_event as LoopWire, loop_key as LoopKeyWire, loop_state as LoopState,
    object_layout as ObjectsWire, off_cpu_event as OffCpuWire, off_cpu_flag as OffCpuFlag,
    pause_event as PauseWire, pause_flag as PauseFlag, point as Point, point_kind as PointKind,
    process_counts as ProcessCountsWire, process_event as ProcessWire,
    process_hardware as ProcessHardware, sample_event as SampleWire, sample_flag as SampleFlag,
    sampled_thread as SampledThread, software_counts as SoftwareCounts, stack_event as StackWire,
    stop as StopWire, task_counts as TaskCounts, turn_event as TurnWire, type_event as TypeWire,
    wait_reason as WaitReason,
};

/// `NO_OFFSET` of `bpf/event.h`: this build has no such field.
pub(crate) const NO_OFFSET: u32 = u32::MAX;
/// `OF_CLASS` of `bpf/event.h`.
pub(crate) const OF_CLASS: u32 = u32::MAX - 1;
/// `BYTES_UNKNOWN` of `bpf/event.h`.
pub(crate) const BYTES_UNKNOWN: u64 = u64::MAX;
/// `ARGUMENT_UNKNOWN` of `bpf/event.h`.
pub(crate) const ARGUMENT_UNKNOWN: i32 = -128;
/// `MAX_POINTS` of `bpf/event.h`.
pub(crate) const MAX_POINTS: u32 = 1024;
/// `MAX_LAYOUTS` of `bpf/event.h`.
pub(crate) const MAX_LAYOUTS: u32 = 256;

// `MAX_STACK_DEPTH` of `bpf/event.h`.
const _: () = assert!(size_of::<StackWire>() == 32 + 16 * MAX_STACK_DEPTH as usize);

// `enum point_kind` has the values of `ProbePointKind`.
const _: () = {
    assert!(PointKind::POINT_COLLECT.0 == ProbePointKind::Collect as u32);
    assert!(PointKind::POINT_GC_COLLECT.0 == ProbePointKind::GcCollectBuiltin as u32);
    assert!(PointKind::POINT_PYGC_COLLECT.0 == ProbePointKind::PyGcCollect as u32);
    assert!(PointKind::POINT_STOP_WORLD.0 == ProbePointKind::StopTheWorld as u32);
    assert!(PointKind::POINT_START_WORLD.0 == ProbePointKind::StartTheWorld as u32);
    assert!(PointKind::POINT_USDT_START.0 == ProbePointKind::UsdtStart as u32);
    assert!(PointKind::POINT_USDT_DONE.0 == ProbePointKind::UsdtDone as u32);
    assert!(PointKind::POINT_PROGRAM_ENTRY.0 == ProbePointKind::ProgramEntry as u32);
    assert!(PointKind::POINT_CODE_DEALLOC.0 == ProbePointKind::CodeDealloc as u32);
    assert!(PointKind::POINT_GARBAGE.0 == ProbePointKind::Garbage as u32);
};

/// Reads a record from the start of `bytes`; `None` if they are too short.
pub(crate) fn read<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(record, _)| record)
}

impl FileKey {
    /// The key of a file with these numbers, as reported by stat(2). On file systems that report a
    /// device other than their own (btrfs, some overlays) it matches nothing.
    pub fn of(device: u64, inode: u64) -> Self {
        // MINORBITS, include/linux/kdev_t.h
        let (major, minor) = (libc::major(device), libc::minor(device));
        Self { inode, device: u64::from(major) << 20 | u64::from(minor) }
    }
}
