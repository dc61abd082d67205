//! Decodes the records of the ring buffers. Pure: nothing here uses libbpf.

use crate::counts;
use crate::wire::AllocationWire;
use crate::wire::CodeWire;
use crate::wire::EventKind;
use crate::wire::FileKey;
use crate::wire::HoldWire;
use crate::wire::LibraryWire;
use crate::wire::NO_OFFSET;
use crate::wire::PauseFlag;
use crate::wire::PauseWire;
use crate::wire::ProcessWire;
use crate::wire::StackWire;
use crate::wire::read;
use gctrace_event::EventSource;
use gctrace_event::GcReason;
use gctrace_event::Pause;
use zerocopy::FromBytes as _;

/// An event in a recorded process.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all events are pauses, the largest; boxing each would cost more than it saves"
)]
pub enum KernelEvent {
    /// The collector ran.
    Pause(PauseEvent),
    /// A process was forked, changed its program, or exited.
    Process(ProcessEvent),
    /// A stack is seen for the first time.
    Stack(StackEvent),
    /// A code object is seen for the first time.
    Code(CodeEvent),
    /// A sampled allocation in a window.
    Allocation(AllocationEvent),
}

/// Identifies a stack within one recording.
pub type StackId = u64;

/// The Python stack of a thread, sent before the first event that refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackEvent {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Id by which later events refer to the stack; never 0.
    pub id: StackId,
    /// Index of the layout, returned by [`crate::BpfSession::add_layout`], of its interpreter.
    pub layout: u32,
    /// Its frames, innermost first, up to the depth given by [`crate::SessionConfig::stack_depth`].
    pub frames: Vec<CapturedFrame>,
    /// Whether there are more outer frames.
    pub truncated: bool,
}

/// One Python frame as the kernel captured it: not yet a function, file and line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// The code object it executes, described by a [`CodeEvent`].
    pub code: CodeId,
    /// Byte offset of the instruction within the code; `None` before the first one.
    pub offset: Option<u32>,
}

/// Identity of a code object in a process; an address alone may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeId {
    /// Address of the code object in the memory of the process.
    pub address: u64,
    /// Distinguishes objects that reused an address.
    pub identity: u32,
}

/// Data to resolve the lines of a code object, read while it was certainly alive. Members in memory
/// that was not resident are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeEvent {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// The code object that this event describes, as frames refer to it.
    pub code: CodeId,
    /// Index of the layout, returned by [`crate::BpfSession::add_layout`], of its interpreter.
    pub layout: u32,
    /// `co_firstlineno`, from which the line table counts.
    pub first_line: i32,
    /// First bytes of the `str` object of its file name, header included.
    pub file_name: Vec<u8>,
    /// First bytes of the `str` object of its name.
    pub function_name: Vec<u8>,
    /// First bytes of its line table.
    pub line_table: Vec<u8>,
    /// Length of the whole line table in bytes, if it could be read.
    pub line_table_length: Option<u64>,
}

/// A sampled allocation in an allocation window, of which only the stack is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationEvent {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Id of the allocating thread's stack, as in [`StackEvent::id`].
    pub stack: StackId,
}

/// A pause with the data read along with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseEvent {
    /// The pause. Its generation is unknown if the end of its process cut it short and the function
    /// chooses the generation itself (3.13 and later, automatic).
    pub pause: Pause,
    /// `gc.get_threshold()` at the end, if it could be read.
    pub thresholds: Option<[i32; 3]>,
    /// `gc.isenabled()` at the end, if it could be read.
    pub enabled: Option<bool>,
    /// Forked during its parent's pause: the start is the fork.
    pub forked: bool,
    /// The stack when the pause started; [`Pause::stack`] is left for the code that resolves
    /// frames.
    pub stack: Option<StackId>,
    /// `gc.get_count()` at the start, if it could be read.
    pub counts: Option<[u32; 3]>,
}

/// Whether a process was stopped until its probes are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldState {
    /// It is stopped and waits for [`crate::HeldProcesses::release`].
    Stopped {
        /// Its parent was already stopped before.
        parent_was_stopped: bool,
    },
    /// Stopping was not necessary.
    NotNeeded,
    /// It should be stopped, but is running.
    Refused(NotHeld),
}

/// Why a process was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// It runs as a user whose processes this gctrace may not resume.
    OtherUser,
    /// The recording is ending, or the rings were not polled for a while
    /// ([`crate::BpfSession::hold_until`]).
    NotNow,
    /// It would be noticed: by a debugger, a shell with job control, sudo.
    Seen,
    /// Too many are stopped, or the signal failed.
    Failed,
}

/// Kind of library, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibraryKind {
    /// A libpython.
    Python,
    /// One of CUDA, NCCL or torch.
    Cuda,
}

/// A lifecycle event of a process. Timestamps are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Debug)]
pub enum ProcessEvent {
    /// A recorded process has a new child, recorded from its first instruction on.
    Fork {
        /// Process id of the child.
        pid: u32,
        /// Process id of the parent.
        parent: u32,
        /// Time of the fork.
        at_ns: u64,
    },
    /// A recorded process runs another program (exec).
    Exec {
        /// Process id.
        pid: u32,
        /// The executable.
        file: FileKey,
        /// Whether it is stopped.
        hold: HoldState,
        /// The executable need not be examined: it was marked as known, or certainly contains no
        /// collector.
        known: bool,
        /// Time of the exec.
        at_ns: u64,
    },
    /// A process reached the entry point of its program: its libraries are mapped.
    ProgramEntry {
        /// Process id.
        pid: u32,
        /// Whether it is stopped.
        hold: HoldState,
        /// Time of the event.
        at_ns: u64,
    },
    /// A recorded process is about to map a libpython, or an unknown file named like a CUDA, NCCL
    /// or torch library.
    Library {
        /// Process id.
        pid: u32,
        /// The library file.
        file: FileKey,
        /// Kind of library, by its name.
        kind: LibraryKind,
        /// Whether the file was marked as known before.
        known: bool,
        /// Whether it is stopped, once the mapping exists.
        hold: HoldState,
        /// Time of the event.
        at_ns: u64,
    },
    /// A recorded process runs a program that gctrace's user may not inspect: it is no longer
    /// recorded.
    Foreign {
        /// Process id.
        pid: u32,
        /// Time of the exec.
        at_ns: u64,
    },
    /// The last thread of a recorded process exited.
    Exit {
        /// Process id.
        pid: u32,
        /// Status as wait(2) reports it.
        status: i32,
        /// Time of the exit.
        at_ns: u64,
    },
}

/// Decodes one record of either ring; `None` if it is invalid (too short, unknown kind).
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<KernelEvent> {
    let kind = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    match EventKind(kind) {
        EventKind::EVENT_PAUSE => read(bytes).map(|wire| KernelEvent::Pause(pause(&wire, bytes))),
        EventKind::EVENT_STACK => read(bytes).map(|wire| KernelEvent::Stack(stack(&wire))),
        EventKind::EVENT_CODE => code(bytes).map(KernelEvent::Code),
        EventKind::EVENT_ALLOCATION => read(bytes).map(|wire: AllocationWire| {
            KernelEvent::Allocation(AllocationEvent {
                pid: wire.pid,
                stack: wire.stack,
            })
        }),
        _ => process(&read(bytes)?).map(KernelEvent::Process),
    }
}

fn process(wire: &ProcessWire) -> Option<ProcessEvent> {
    let (pid, at_ns, hold) = (wire.pid, wire.at_ns, hold(wire));
    Some(match EventKind(wire.kind) {
        EventKind::EVENT_FORK => ProcessEvent::Fork {
            pid,
            parent: wire.parent,
            at_ns,
        },
        EventKind::EVENT_EXEC => ProcessEvent::Exec {
            pid,
            file: wire.file,
            hold,
            known: wire.known != 0,
            at_ns,
        },
        EventKind::EVENT_PROGRAM_ENTRY => ProcessEvent::ProgramEntry { pid, hold, at_ns },
        EventKind::EVENT_LIBRARY => ProcessEvent::Library {
            pid,
            file: wire.file,
            kind: match LibraryWire(wire.library) {
                LibraryWire::LIBRARY_PYTHON => LibraryKind::Python,
                _ => LibraryKind::Cuda,
            },
            known: wire.known != 0,
            hold,
            at_ns,
        },
        EventKind::EVENT_FOREIGN => ProcessEvent::Foreign { pid, at_ns },
        EventKind::EVENT_EXIT => ProcessEvent::Exit {
            pid,
            status: wire.exit_code,
            at_ns,
        },
        _ => return None,
    })
}

fn hold(wire: &ProcessWire) -> HoldState {
    match HoldWire(wire.hold) {
        HoldWire::HOLD_STOPPED => HoldState::Stopped {
            parent_was_stopped: wire.parent_stopped != 0,
        },
        HoldWire::HOLD_OTHER_USER => HoldState::Refused(NotHeld::OtherUser),
        HoldWire::HOLD_NOT_NOW => HoldState::Refused(NotHeld::NotNow),
        HoldWire::HOLD_SEEN => HoldState::Refused(NotHeld::Seen),
        HoldWire::HOLD_FAILED => HoldState::Refused(NotHeld::Failed),
        _ => HoldState::NotNeeded,
    }
}

fn stack(wire: &StackWire) -> StackEvent {
    let frames = wire.frames.iter().take(wire.depth as usize);
    StackEvent {
        pid: wire.pid,
        id: wire.id,
        layout: wire.layout,
        frames: frames
            .map(|frame| CapturedFrame {
                code: CodeId {
                    address: frame.code,
                    identity: frame.identity,
                },
                offset: (frame.offset != NO_OFFSET).then_some(frame.offset),
            })
            .collect(),
        truncated: wire.truncated != 0,
    }
}

fn code(bytes: &[u8]) -> Option<CodeEvent> {
    let (wire, table) = CodeWire::read_from_prefix(bytes).ok()?;
    let first = |bytes: &[u8], count: u32| {
        let count = bytes.len().min(count as usize);
        bytes.get(..count).unwrap_or_default().to_vec()
    };
    Some(CodeEvent {
        pid: wire.pid,
        code: CodeId {
            address: wire.code,
            identity: wire.identity,
        },
        layout: wire.layout,
        first_line: wire.first_line,
        file_name: first(&wire.file_name, wire.file_name_bytes),
        function_name: first(&wire.function_name, wire.function_name_bytes),
        line_table: first(table, wire.table_bytes),
        line_table_length: u64::try_from(wire.table_length).ok(),
    })
}

fn has(wire: &PauseWire, flag: PauseFlag) -> bool {
    wire.flags & flag.0 != 0
}

/// `bytes`: the whole record.
fn pause(wire: &PauseWire, bytes: &[u8]) -> PauseEvent {
    let end_ns = wire.end_ns.max(wire.start_ns);
    let length = end_ns - wire.start_ns;
    let cpu_ns = (!has(wire, PauseFlag::PAUSE_SWITCH_MISSED))
        .then_some(length.saturating_sub(wire.off_cpu_ns));
    let counted = !has(wire, PauseFlag::PAUSE_NO_STATS) && !has(wire, PauseFlag::PAUSE_UNFINISHED);
    let pause = Pause {
        pid: wire.pid,
        tid: wire.tid,
        start_ns: wire.start_ns,
        end_ns,
        generation: generation(wire).unwrap_or(Pause::UNKNOWN_GENERATION),
        reason: reason(wire),
        collected: counted.then(|| sum(&wire.moved.collected)),
        uncollectable: counted.then(|| sum(&wire.moved.uncollectable)),
        interpreter: (wire.interpreter >= 0).then_some(wire.interpreter),
        cpu_ns,
        stop_the_world_ns: (wire.stopped_ns > 0).then_some(wire.stopped_ns.min(length)),
        oldest_objects: u64::try_from(wire.oldest_objects).ok(),
        heap_objects: u64::try_from(wire.heap_objects).ok(),
        unfinished: has(wire, PauseFlag::PAUSE_UNFINISHED),
        stack: None,
        young_count: counts(wire).map(|counts| u64::from(counts[0])),
        counters: counts::of_pause(wire, bytes, cpu_ns),
        source: EventSource::Probes,
    };
    PauseEvent {
        pause,
        thresholds: (wire.thresholds[0] >= 0)
            .then_some(wire.thresholds.map(|threshold| threshold.max(0))),
        enabled: (wire.enabled >= 0).then_some(wire.enabled != 0),
        forked: has(wire, PauseFlag::PAUSE_FORKED),
        stack: (wire.stack != 0).then_some(wire.stack),
        counts: counts(wire),
    }
}

fn counts(wire: &PauseWire) -> Option<[u32; 3]> {
    let count = |of: usize| u32::try_from(*wire.counts.get(of)?).ok();
    Some([count(0)?, count(1)?, count(2).unwrap_or(0)])
}

/// Counters wrap modulo 2^64, and a torn read must not overflow.
fn sum(values: &[u64; 3]) -> u64 {
    values
        .iter()
        .fold(0, |total: u64, value| total.saturating_add(*value))
}

/// The generation whose collection counter increased; else the function's argument.
fn generation(wire: &PauseWire) -> Option<u8> {
    let moved = (0u8..3)
        .rev()
        .find(|i| wire.moved.collections[usize::from(*i)] > 0);
    moved.or_else(|| {
        u8::try_from(wire.generation_argument)
            .ok()
            .filter(|generation| *generation < 3)
    })
}

/// `reason` argument of `gc_collect_main`, `_PyGC_Reason` of CPython 3.13.
const REASON_SHUTDOWN: i32 = 1;
const REASON_MANUAL: i32 = 2;

/// An explicit call is manual even during finalization; collections by finalization itself
/// (`PyGC_Collect`, `_PyGC_CollectNoFail`) are shutdown collections whatever the argument.
fn reason(wire: &PauseWire) -> GcReason {
    if has(wire, PauseFlag::PAUSE_IN_GC_COLLECT) {
        GcReason::Manual
    } else if has(wire, PauseFlag::PAUSE_FINALIZING)
        || has(wire, PauseFlag::PAUSE_NOFAIL)
        || wire.reason_argument == REASON_SHUTDOWN
    {
        GcReason::Shutdown
    } else if has(wire, PauseFlag::PAUSE_IN_PYGC_COLLECT) || wire.reason_argument == REASON_MANUAL {
        GcReason::Manual
    } else {
        GcReason::Automatic
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ARGUMENT_UNKNOWN;
    use proptest::prelude::*;
    use zerocopy::IntoBytes as _;

    fn wire() -> PauseWire {
        PauseWire {
            kind: EventKind::EVENT_PAUSE.0,
            pid: 7,
            tid: 8,
            start_ns: 100,
            end_ns: 350,
            off_cpu_ns: 50,
            interpreter: 0,
            oldest_objects: 5,
            heap_objects: -1,
            thresholds: [700, 10, 10],
            enabled: 1,
            generation_argument: ARGUMENT_UNKNOWN,
            reason_argument: ARGUMENT_UNKNOWN,
            ..PauseWire::default()
        }
    }

    fn decoded(wire: &PauseWire) -> PauseEvent {
        match decode(wire.as_bytes()) {
            Some(KernelEvent::Pause(pause)) => pause,
            other => panic!("not a pause: {other:?}"),
        }
    }

    #[test]
    fn the_counter_that_increased_gives_the_generation() {
        let mut wire = wire();
        wire.moved.collections = [0, 1, 0];
        wire.moved.collected = [0, 12, 0];
        wire.generation_argument = 2;
        let event = decoded(&wire);
        assert_eq!(event.pause.generation, 1);
        assert_eq!(event.pause.collected, Some(12));
        assert_eq!(event.pause.cpu_ns, Some(200));
        assert_eq!(event.pause.oldest_objects, Some(5));
        assert_eq!(event.pause.heap_objects, None);
        assert_eq!(event.thresholds, Some([700, 10, 10]));
    }

    #[test]
    fn an_explicit_call_is_manual_even_at_shutdown_and_finalization_is_not() {
        let mut wire = wire();
        wire.flags = PauseFlag::PAUSE_FINALIZING.0 | PauseFlag::PAUSE_IN_PYGC_COLLECT.0;
        assert_eq!(decoded(&wire).pause.reason, GcReason::Shutdown);
        wire.flags |= PauseFlag::PAUSE_IN_GC_COLLECT.0;
        assert_eq!(decoded(&wire).pause.reason, GcReason::Manual);
    }

    #[test]
    fn an_unfinished_pause_with_an_automatic_argument_has_no_generation() {
        let mut wire = wire();
        wire.flags = PauseFlag::PAUSE_UNFINISHED.0;
        wire.generation_argument = -1;
        let event = decoded(&wire);
        assert_eq!(event.pause.generation, Pause::UNKNOWN_GENERATION);
        assert!(event.pause.unfinished);
        assert_eq!(event.pause.collected, None);
    }

    proptest! {
        /// The rings are ours, but nothing read from them is trusted: any bytes decode to something
        /// valid, or to nothing.
        #[test]
        fn any_bytes_decode_sensibly(kind in 0..10u32, rest in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let bytes: Vec<u8> = kind.to_ne_bytes().into_iter().chain(rest).collect();
            match decode(&bytes) {
                Some(KernelEvent::Pause(PauseEvent { pause, .. })) => {
                    prop_assert!(pause.start_ns <= pause.end_ns);
                    prop_assert!(pause.cpu_ns.is_none_or(|cpu| cpu <= pause.duration_ns()));
                    prop_assert!(pause.stop_the_world_ns.is_none_or(|stopped| stopped <= pause.duration_ns()));
                    prop_assert!(pause.generation < 3 || pause.generation == Pause::UNKNOWN_GENERATION);
                }
                Some(KernelEvent::Process(_)) => prop_assert!(bytes.len() >= size_of::<ProcessWire>()),
                Some(KernelEvent::Stack(stack)) => {
                    prop_assert!(stack.frames.len() <= crate::MAX_STACK_DEPTH as usize);
                }
                Some(KernelEvent::Code(code)) => {
                    prop_assert!(code.line_table.len() <= bytes.len() - size_of::<CodeWire>());
                }
                Some(KernelEvent::Allocation(_)) => prop_assert!(bytes.len() >= size_of::<AllocationWire>()),
                None => prop_assert!(kind > 8 || kind == 0 || bytes.len() < size_of::<StackWire>()),
            }
        }
    }

    #[test]
    fn too_few_bytes_are_rejected() {
        assert!(decode(&[]).is_none());
        assert!(decode(&[1, 0, 0]).is_none());
        let wire = wire();
        assert!(
            wire.as_bytes()
                .get(..170)
                .is_some_and(|cut| decode(cut).is_none())
        );
    }
}
