//! Decodes the records of the ring buffers. Pure: nothing here uses libbpf.

mod garbage;
mod off_cpu;
mod turns;

pub(crate) use off_cpu::off_cpu;
pub use off_cpu::waits_for;
pub(crate) use turns::{key as loop_key, turns};

use crate::counts;
use crate::event::{
    AllocationEvent, CapturedFrame, CodeEvent, CodeId, KernelEvent, LibraryKind, NotStopped,
    PauseEvent, ProcessEvent, SampleEvent, StackEvent, StopState,
};
use crate::wire::{
    AllocationWire, CodeWire, EventKind, LibraryWire, LoopWire, NO_OFFSET, PauseFlag, PauseWire,
    ProcessWire, SampleFlag, SampleWire, StackWire, StopWire, read,
};
use gctrace_event::{CpuSamples, EventSource, GcReason, Pause};
use std::sync::OnceLock;
use zerocopy::FromBytes as _;

/// Decodes one record of either ring; `None` if it is invalid (too short, unknown kind).
pub fn decode(bytes: &[u8]) -> Option<KernelEvent> {
    let kind = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    match EventKind(kind) {
        EventKind::EVENT_PAUSE => read(bytes).map(|wire| KernelEvent::Pause(pause(&wire, bytes))),
        EventKind::EVENT_STACK => read(bytes).map(|wire| KernelEvent::Stack(stack(&wire))),
        EventKind::EVENT_CODE => code(bytes).map(KernelEvent::Code),
        EventKind::EVENT_ALLOCATION => read(bytes).map(|wire: AllocationWire| {
            KernelEvent::Allocation(AllocationEvent { pid: wire.pid, stack: wire.stack })
        }),
        EventKind::EVENT_SAMPLE => read(bytes).map(|wire| KernelEvent::Sample(sample(&wire))),
        EventKind::EVENT_OFF_CPU => off_cpu(&read(bytes)?).map(KernelEvent::OffCpu),
        EventKind::EVENT_LOOP => {
            read(bytes).map(|wire: LoopWire| KernelEvent::Loop(turns::key(&wire.place)))
        }
        EventKind::EVENT_TURN => turns::turn(&read(bytes)?).map(KernelEvent::Turn),
        EventKind::EVENT_TYPE => {
            read(bytes).map(|wire| KernelEvent::Type(garbage::type_event(&wire)))
        }
        EventKind::EVENT_GARBAGE => garbage::garbage(bytes).map(KernelEvent::Garbage),
        _ => process(&read(bytes)?).map(KernelEvent::Process),
    }
}

fn process(wire: &ProcessWire) -> Option<ProcessEvent> {
    let (pid, at_ns, stop) = (wire.pid, wire.at_ns, stop(wire));
    Some(match EventKind(wire.kind) {
        EventKind::EVENT_FORK => ProcessEvent::Fork { pid, parent: wire.parent, stop, at_ns },
        EventKind::EVENT_EXEC => ProcessEvent::Exec {
            pid,
            file: wire.file,
            stop,
            known: wire.known != 0,
            by_thread: wire.by_thread != 0,
            at_ns,
        },
        EventKind::EVENT_PROGRAM_ENTRY => ProcessEvent::ProgramEntry { pid, stop, at_ns },
        EventKind::EVENT_LIBRARY => ProcessEvent::Library {
            pid,
            file: wire.file,
            kind: match LibraryWire(wire.library) {
                LibraryWire::LIBRARY_PYTHON => LibraryKind::Python,
                _ => LibraryKind::Cuda,
            },
            known: wire.known != 0,
            stop,
            at_ns,
        },
        EventKind::EVENT_FOREIGN => ProcessEvent::Foreign { pid, at_ns },
        EventKind::EVENT_EXIT => ProcessEvent::Exit { pid, status: wire.exit_code, at_ns },
        _ => return None,
    })
}

fn stop(wire: &ProcessWire) -> StopState {
    match StopWire(wire.stop) {
        StopWire::STOP_SENT => StopState::Stopped { parent_was_stopped: wire.parent_stopped != 0 },
        StopWire::STOP_OTHER_USER => StopState::Refused(NotStopped::OtherUser),
        StopWire::STOP_NOT_NOW => StopState::Refused(NotStopped::NotNow),
        StopWire::STOP_SEEN => StopState::Refused(NotStopped::Seen),
        StopWire::STOP_FAILED => StopState::Refused(NotStopped::Failed),
        _ => StopState::NotNeeded,
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
                code: CodeId { address: frame.code, identity: frame.identity },
                offset: if frame.offset != NO_OFFSET { Some(frame.offset) } else { None },
            })
            .collect(),
        truncated: wire.truncated != 0,
        unreadable: wire.unreadable != 0,
    }
}

fn sample(wire: &SampleWire) -> SampleEvent {
    let has = |flag: SampleFlag| wire.flags & flag.0 != 0;
    SampleEvent {
        samples: CpuSamples {
            pid: wire.pid,
            tid: wire.tid,
            at_ns: wire.at_ns,
            until_ns: wire.at_ns,
            count: 1,
            in_pause: has(SampleFlag::SAMPLE_IN_PAUSE),
            ..CpuSamples::default()
        },
        stack: if wire.stack != 0 { Some(wire.stack) } else { None },
        instruction: if has(SampleFlag::SAMPLE_IN_KERNEL) { None } else { Some(wire.instruction) },
    }
}

fn code(bytes: &[u8]) -> Option<CodeEvent> {
    let (wire, table) = CodeWire::read_from_prefix(bytes).ok()?;
    let first = |bytes: &[u8], count: u32| {
        let count = bytes.len().min(count as usize);
        bytes[..count].to_vec()
    };
    Some(CodeEvent {
        pid: wire.pid,
        code: CodeId { address: wire.code, identity: wire.identity },
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
    let on_cpu_ns = length.saturating_sub(wire.off_cpu_ns);
    let cpu_ns = if has(wire, PauseFlag::PAUSE_SWITCH_MISSED) { None } else { Some(on_cpu_ns) };
    let unfinished = has(wire, PauseFlag::PAUSE_UNFINISHED);
    let counted = !has(wire, PauseFlag::PAUSE_NO_STATS) && !unfinished;
    let stopped_ns = wire.stopped_ns.min(length);
    let pause = Pause {
        pid: wire.pid,
        tid: wire.tid,
        start_ns: wire.start_ns,
        end_ns,
        generation: generation(wire).unwrap_or(Pause::UNKNOWN_GENERATION),
        reason: reason(wire),
        collected: if counted { Some(sum(&wire.moved.collected)) } else { None },
        uncollectable: if counted { Some(sum(&wire.moved.uncollectable)) } else { None },
        interpreter: if wire.interpreter >= 0 { Some(wire.interpreter) } else { None },
        cpu_ns,
        stop_the_world_ns: if wire.stopped_ns > 0 { Some(stopped_ns) } else { None },
        oldest_objects: u64::try_from(wire.oldest_objects).ok(),
        heap_objects: u64::try_from(wire.heap_objects).ok(),
        // At its end an interrupted one has another memory, or none.
        freed_bytes: if unfinished { None } else { freed_bytes(wire.freed_pages) },
        unfinished,
        stack: None,
        young_count: counts(wire).map(|counts| u64::from(counts[0])),
        counters: counts::of_pause(wire, bytes, cpu_ns),
        source: EventSource::Probes,
    };
    let thresholds = wire.thresholds.map(|threshold| threshold.max(0));
    PauseEvent {
        pause,
        thresholds: if wire.thresholds[0] >= 0 { Some(thresholds) } else { None },
        enabled: if wire.enabled >= 0 { Some(wire.enabled != 0) } else { None },
        forked: has(wire, PauseFlag::PAUSE_FORKED),
        stack: if wire.stack != 0 { Some(wire.stack) } else { None },
        counts: counts(wire),
    }
}

/// Less than this is none, in bytes.
const LEAST_FREED: u64 = 2 << 20;

/// Memory that a pause gave back to the kernel; `None` for less than the kernel's sum is off by: 32 pages per CPU, or
/// two per CPU and CPU (`percpu_counter_batch`), of the few that the process ran on.
fn freed_bytes(pages: i64) -> Option<u64> {
    let bytes = u64::try_from(pages).ok()?.checked_mul(page_bytes())?;
    if bytes >= LEAST_FREED { Some(bytes) } else { None }
}

fn page_bytes() -> u64 {
    static PAGE_BYTES: OnceLock<u64> = OnceLock::new();
    *PAGE_BYTES.get_or_init(|| {
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
        page.ok().flatten().and_then(|page| u64::try_from(page).ok()).unwrap_or(4096)
    })
}

fn counts(wire: &PauseWire) -> Option<[u32; 3]> {
    let count = |of: usize| u32::try_from(*wire.counts.get(of)?).ok();
    Some([count(0)?, count(1)?, count(2).unwrap_or(0)])
}

/// Counters wrap modulo 2^64, and a torn read must not overflow.
fn sum(values: &[u64; 3]) -> u64 {
    values.iter().fold(0, |total: u64, value| total.saturating_add(*value))
}

/// The oldest generation with an increased collection counter; else the function's argument.
fn generation(wire: &PauseWire) -> Option<u8> {
    let moved = (0u8..3).rev().find(|i| wire.moved.collections[usize::from(*i)] > 0);
    match (moved, u8::try_from(wire.generation_argument)) {
        (None, Ok(argument @ ..3)) => Some(argument),
        (moved, _) => moved,
    }
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
    use crate::event::OffCpuEvent;
    use crate::wire::{ARGUMENT_UNKNOWN, GarbageKindWire, GarbageWire, TypeWire};
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
    fn memory_that_a_pause_gave_back_is_more_than_the_kernels_error() {
        let freed = |pages| freed_bytes(pages).map(|bytes| bytes / page_bytes());
        let least = LEAST_FREED / page_bytes();
        let pages = [least, least - 1, 0].map(u64::cast_signed);
        assert_eq!(pages.map(freed), [Some(least), None, None]);
        assert_eq!(freed(-3), None);
        assert_eq!(freed_bytes(i64::MAX), None);
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
        fn any_bytes_decode_sensibly(kind in 0..16u32, rest in proptest::collection::vec(any::<u8>(), 0..2048)) {
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
                Some(KernelEvent::Sample(sample)) => {
                    prop_assert!(sample.stack != Some(0));
                }
                Some(KernelEvent::OffCpu(OffCpuEvent { off, stack })) => {
                    prop_assert!(stack != Some(0) && off.at_ns <= off.end_ns());
                }
                Some(KernelEvent::Type(seen)) => {
                    prop_assert!(bytes.len() >= size_of::<TypeWire>() && !seen.name.contains(&0));
                }
                Some(KernelEvent::Garbage(garbage)) => {
                    let rest = bytes.len() - size_of::<GarbageWire>();
                    prop_assert!(garbage.kinds.len() <= rest / size_of::<GarbageKindWire>());
                }
                Some(KernelEvent::Loop(_)) => prop_assert!(bytes.len() >= size_of::<LoopWire>()),
                Some(KernelEvent::Turn(turn)) => prop_assert!(turn.start_ns <= turn.end_ns),
                None => prop_assert!(kind > 8 || kind == 0 || bytes.len() < size_of::<StackWire>()),
            }
        }
    }

    #[test]
    fn too_few_bytes_are_rejected() {
        assert!(decode(&[]).is_none());
        assert!(decode(&[1, 0, 0]).is_none());
        let wire = wire();
        assert!(wire.as_bytes().get(..170).is_some_and(|cut| decode(cut).is_none()));
    }
}
