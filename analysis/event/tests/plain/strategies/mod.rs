//! Headers, records and ends of traces, any.

mod garbage;
mod gpu_work;
mod layers;

use gctrace_event::{
    CollectorKind, Counter, Counters, EventSource, ExaminedProcesses, FORMAT, Frame, GcReason,
    GcSettings, GenerationTotal, GpuDevice, GpuProcess, GpuSample, Interpreter, NotKept, Note,
    OmittedPauses, Pause, Pressure, ProbeCost, Process, ProcessCounters, ProcessExit,
    ProcessOrigin, Record, RecordedTotals, RecordingMode, Segment, ThreadName, TraceEnd,
    TraceHeader, UnseenCollections,
};
use gctrace_units::{Count, Ns};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;

/// Times of a machine that has been up for at most some 280 years.
fn time() -> impl Strategy<Value = u64> {
    0..(1u64 << 62)
}

fn count() -> impl Strategy<Value = Option<u64>> {
    of(0..(1u64 << 62))
}

fn reason() -> impl Strategy<Value = GcReason> {
    prop_oneof![
        Just(GcReason::Automatic),
        Just(GcReason::Manual),
        Just(GcReason::Shutdown),
        Just(GcReason::Unknown),
    ]
}

prop_compose! {
    fn counters()(
        values in vec((prop::sample::select(Counter::ALL), 0..(1u64 << 62)), 0..12),
        (scaled, migrated) in any::<(bool, bool)>(),
    ) -> Counters {
        let mut counters = Counters::default();
        (counters.scaled, counters.migrated) = (scaled, migrated);
        values.iter().for_each(|(counter, value)| counters.set(*counter, *value));
        counters
    }
}

prop_compose! {
    pub(crate) fn frame()(
        (id, parent, line) in any::<(u32, Option<u32>, Option<u32>)>(),
        (function, file) in any::<(String, String)>(),
    ) -> Record {
        Record::Frame(Frame { id, parent, function, file, line })
    }
}

prop_compose! {
    fn process_counters()(
        pid in any::<u32>(),
        (since_ns, length_ns) in (time(), 0..(1u64 << 61)),
        counters in counters(),
    ) -> Record {
        let at_ns = since_ns + length_ns;
        Record::Counters(ProcessCounters { pid, since_ns, at_ns, counters })
    }
}

prop_compose! {
    fn pressure()(
        pid in any::<u32>(),
        (since_ns, length_ns) in (time(), 0..(1u64 << 61)),
        (collections, net_containers) in any::<(u64, u64)>(),
        counts in any::<Option<[u32; 3]>>(),
        (arenas_mapped, arenas_unmapped) in any::<(Option<u64>, Option<u64>)>(),
        (resident_bytes, private_bytes, kept_bytes) in any::<(Option<u64>, Option<u64>, Option<u64>)>(),
        (cpu_ns, cpu_wait_ns) in any::<(Option<u64>, Option<u64>)>(),
    ) -> Record {
        Record::Pressure(Pressure {
            pid, since_ns, at_ns: since_ns + length_ns, collections, net_containers, counts,
            arenas_mapped, arenas_unmapped, resident_bytes, private_bytes, kept_bytes, cpu_ns, cpu_wait_ns,
        })
    }
}

prop_compose! {
    fn gpu_device()(
        (index, at_ns, mig) in (any::<u32>(), time(), any::<bool>()),
        (uuid, name, driver) in any::<(Option<String>, Option<String>, Option<String>)>(),
        memory_total_bytes in any::<Option<u64>>(),
    ) -> Record {
        Record::GpuDevice(GpuDevice { index, at_ns, uuid, name, memory_total_bytes, driver, mig })
    }
}

prop_compose! {
    fn gpu_sample()(
        (device, at_ns) in (0..3u32, time()),
        (utilization_percent, memory_utilization_percent) in any::<(Option<u32>, Option<u32>)>(),
        (memory_used_bytes, power_mw) in any::<(Option<u64>, Option<u32>)>(),
        (sm_clock_mhz, memory_clock_mhz) in any::<(Option<u32>, Option<u32>)>(),
        (pcie_rx_kb_per_s, pcie_tx_kb_per_s) in any::<(Option<u32>, Option<u32>)>(),
        throttle_reasons in of(vec(any::<String>(), 0..3)),
        processes in of(vec(any::<(u32, Option<u64>)>(), 0..3)),
    ) -> Record {
        let process = |(pid, memory_bytes)| GpuProcess { pid, memory_bytes };
        let processes = processes.map(|all| all.into_iter().map(process).collect());
        Record::GpuSample(GpuSample {
            device, at_ns, utilization_percent, memory_utilization_percent, memory_used_bytes,
            power_mw, sm_clock_mhz, memory_clock_mhz, pcie_rx_kb_per_s, pcie_tx_kb_per_s,
            throttle_reasons, processes,
        })
    }
}

fn source() -> impl Strategy<Value = EventSource> {
    let both = (time(), 0..(1u64 << 61)).prop_map(|(start_ns, length_ns)| EventSource::Both {
        start_ns,
        end_ns: start_ns + length_ns,
    });
    prop_oneof![Just(EventSource::Probes), Just(EventSource::Injected), both]
}

prop_compose! {
    pub(crate) fn pause()(
        (pid, tid) in any::<(u32, u32)>(),
        (start_ns, length_ns) in (time(), 0..(1u64 << 61)),
        generation in prop_oneof![0..3u8, Just(Pause::UNKNOWN_GENERATION)],
        reason in reason(),
        (collected, uncollectable, cpu_ns) in (count(), count(), count()),
        (stop_the_world_ns, oldest_objects, heap_objects) in (count(), count(), count()),
        interpreter in any::<Option<i64>>(),
        unfinished in any::<bool>(),
        (stack, young_count, counters) in (any::<Option<u32>>(), count(), counters()),
        freed_bytes in count(),
        source in source(),
    ) -> Record {
        Record::Pause(Pause {
            pid, tid, start_ns, end_ns: start_ns + length_ns, generation, reason, collected,
            uncollectable, interpreter, cpu_ns, stop_the_world_ns, oldest_objects, heap_objects,
            unfinished, stack, young_count, counters, source, freed_bytes,
        })
    }
}

prop_compose! {
    fn interpreter()(
        (file, version, found_by) in any::<(String, String, String)>(),
        collector in prop_oneof![
            Just(CollectorKind::Generational), Just(CollectorKind::Incremental),
            Just(CollectorKind::FreeThreaded), "[A-Z]*".prop_map(CollectorKind::Other),
        ],
        free_threaded in any::<bool>(),
        build_id in any::<Option<String>>(),
    ) -> Interpreter {
        Interpreter { file, version, free_threaded, collector, found_by, build_id }
    }
}

prop_compose! {
    fn process()(
        pid in any::<u32>(),
        (namespace_pid, parent, rank) in any::<(Option<u32>, Option<u32>, Option<u32>)>(),
        origin in prop_oneof![Just(ProcessOrigin::Launched), Just(ProcessOrigin::Child), Just(ProcessOrigin::Attached)],
        since_ns in time(),
        command in vec(any::<String>(), 0..4),
        interpreter in of(interpreter()),
        torch in of(any::<String>()),
        memory_limit_bytes in any::<Option<u64>>(),
        unseen in of(unseen()),
    ) -> Record {
        Record::Process(Process {
            pid, namespace_pid, parent, origin, since_ns, command, rank, interpreter, torch,
            memory_limit_bytes, unseen,
        })
    }
}

prop_compose! {
    fn unseen()(
        (at_start, at_end, uncounted, end_ns) in any::<(u64, u64, u64, u64)>(),
    ) -> UnseenCollections {
        UnseenCollections { at_start, at_end, uncounted, end_ns }
    }
}

prop_compose! {
    pub(crate) fn end()(
        ended_ns in time(),
        why in any::<String>(),
        exit_code in any::<Option<i32>>(),
        lost in btree_map(any::<String>(), any::<u64>(), 0..3),
        unseen in of(unseen()),
        processes in of((any::<u64>(), any::<Option<u64>>(), btree_map(any::<String>(), any::<u64>(), 0..3))),
        (omitted, waits) in any::<((u64, u64), (u64, u64))>(),
        others in btree_map(any::<String>(), any::<(u64, u64)>(), 0..3),
        probes in vec((any::<String>(), any::<u64>(), of(0.0..1e6f64)), 0..3),
        totals in of(segment()),
    ) -> TraceEnd {
        TraceEnd {
            ended_ns, why, exit_code, lost, unseen,
            processes: processes
                .map(|(python, other, unexamined)| ExaminedProcesses { python, other, unexamined }),
            omitted: OmittedPauses::of(omitted.0, omitted.1),
            omitted_waits: OmittedPauses::of(waits.0, waits.1),
            omitted_others: others
                .into_iter()
                .map(|(name, (count, total_ns))| (name, OmittedPauses::of(count, total_ns)))
                .collect(),
            probes: probes
                .into_iter()
                .map(|(probe, hits, ns_per_hit)| ProbeCost {
                    probe,
                    hits,
                    ns_per_hit,
                    ns_per_hit_range: ns_per_hit.map(|ns| [ns / 2.0, ns * 2.0]),
                })
                .collect(),
            totals: totals.map(|segment| segment.before),
            cpu_ns: Some(ended_ns),
        }
    }
}

pub(crate) fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        4 => pause(),
        1 => process(),
        2 => frame(),
        1 => process_counters(),
        1 => pressure(),
        1 => gpu_device(),
        2 => gpu_sample(),
        10 => gpu_work::record(),
        3 => garbage::record(),
        1 => layers::record(),
        1 => (any::<u32>(), time(), any::<Option<i32>>(), any::<Option<i32>>()).prop_map(
            |(pid, at_ns, code, signal)| {
                Record::ProcessExit(ProcessExit { pid, at_ns, code, signal })
            }
        ),
        1 => (any::<u32>(), any::<u32>(), any::<String>())
            .prop_map(|(pid, tid, name)| Record::ThreadName(ThreadName { pid, tid, name })),
        1 => (any::<u32>(), time(), any::<Option<bool>>(), any::<[i32; 3]>(), of(1..=u32::MAX)).prop_map(
            |(pid, at_ns, enabled, thresholds, stack)| {
                Record::Settings(GcSettings { pid, at_ns, enabled, thresholds, stack })
            }
        ),
        1 => (any::<Option<u32>>(), time(), any::<String>())
            .prop_map(|(pid, at_ns, message)| Record::Note(Note { pid, at_ns, message })),
    ]
}

prop_compose! {
    fn segment()(
        (number, recording_started_ns, recording_started_unix_ns, lost) in any::<(u64, u64, u64, u64)>(),
        (count, total_ns, min_wait_ns) in any::<(u64, u64, u64)>(),
        generations in btree_map(any::<u8>(), any::<(u64, u64, u64)>(), 0..4),
    ) -> Segment {
        let generations = generations.into_iter().map(|(generation, (count, total_ns, collected))| {
            GenerationTotal {
                generation,
                count: Count(count),
                total_ns: Ns(total_ns),
                collected: Count(collected),
                ..GenerationTotal::default()
            }
        });
        let generations = generations.collect();
        let omitted = OmittedPauses::of(count, total_ns);
        let (waits, omitted_waits) = (omitted, OmittedPauses::of(total_ns, count));
        let (operations, calls) = (waits, omitted_waits);
        let before = RecordedTotals {
            generations, omitted, waits, omitted_waits, operations, calls, lost,
            not_kept: NotKept { count, longest_ns: total_ns, longest_at_ns: min_wait_ns },
        };
        Segment { number, recording_started_ns, recording_started_unix_ns, min_wait_ns, before }
    }
}

prop_compose! {
    pub(crate) fn header()(
        (gctrace, host, kernel) in any::<(String, String, String)>(),
        command in vec(any::<String>(), 0..4),
        (attached_pid, rank) in any::<(Option<u32>, Option<u32>)>(),
        cpus in of(1..=u32::MAX),
        (started_ns, started_unix_ns, min_pause_ns) in any::<(u64, u64, u64)>(),
        (follow, stack_depth, cuda) in any::<(bool, u32, Option<String>)>(),
        mode in prop_oneof![
            Just(RecordingMode::Ebpf), Just(RecordingMode::Inject), Just(RecordingMode::Both),
            "[g-z]+".prop_map(RecordingMode::Other),
        ],
        counters in vec(any::<String>(), 0..3),
        counters_missing in btree_map(any::<String>(), any::<String>(), 0..3),
        sample_hz in any::<Option<u32>>(),
        segment in of(segment()),
        (git_commit, git_modified, step_function) in any::<(Option<String>, Option<bool>, Option<String>)>(),
    ) -> TraceHeader {
        let started_ns = started_ns >> 2;
        TraceHeader {
            git_commit, git_modified, step_function, sample_hz,
            format: FORMAT.to_owned(), gctrace, command, attached_pid, host, kernel, cpus, rank,
            started_ns, started_unix_ns, min_pause_ns, follow, stack_depth, cuda, mode,
            counters,
            counters_missing, segment,
        }
    }
}
