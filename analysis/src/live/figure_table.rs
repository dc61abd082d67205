//! The figures of a [`Snapshot`], each declared once: metrics, columns of `top` and its lines follow.
//!
//! Ids and units are names of metrics, a public interface: docs/metrics.md is made from these tables, and dashboards
//! query them. Their order is the order of the page.

use super::snapshot::{
    CollectionCounts, GENERATION_NAMES, GpuFigures, ProcessFigures, ProcessGpu, RecorderCost, SavedTime, Snapshot,
};
use crate::figure::Basis::{Inferred, Measured, Predicted};
use crate::figure::Get::{Each, One};
use crate::figure::Nature::{Lasting, Level, Total};
use crate::figure::Unit::{At, Bytes, Classes, Count, Info, Ns, Ppm, Ratio};
use crate::figure::Value::{Durations, Real, Signed, Whole};
use crate::figure::{Basis, Figure, info, metric, number, one, word};

const MEASURED: Option<Basis> = Some(Measured);
const INFERRED: Option<Basis> = Some(Inferred);

/// Figures of the recording itself.
pub const RECORDING: &[Figure<Snapshot>] = &[
    metric("", (Info, Lasting, None), Each(|all| info([
            word("version", env!("CARGO_PKG_VERSION")), word("mode", all.mode.as_ref()), word("host", &all.host),
        ])),
        "The recording: version of gctrace, mode (ebpf, inject or both), host name"),
    metric("recording_start_time", (At, Lasting, None), One(|all| Some(Whole(all.started_ns))),
        "Recording start, Unix time"),
    metric("processes", (Count, Level, None), One(|all| Some(Whole(all.totals.processes - all.totals.ended))),
        "Recorded Python processes that are running"),
    metric("processes_seen", (Count, Total, None), One(|all| Some(Whole(all.totals.processes))),
        "Python processes seen, including exited ones"),
];

/// Time in collections, of one process or of all.
pub const PAUSE_TIME: Figure<CollectionCounts> =
    metric("pause", (Ns, Total, MEASURED), Each(|all: &CollectionCounts| all.by_reason(|pauses| pauses.time_ns)),
        "Total length of collections of {of}").column("GC TIME", 7);

/// The longest collection, of one process or of all.
pub const LONGEST: Figure<CollectionCounts> =
    metric("longest_pause", (Ns, Lasting, MEASURED), One(|all: &CollectionCounts| Some(all.outcomes.longest_ns).filter(|ns| *ns > 0).map(Whole)),
        "Longest collection of {of}").column("WORST", 7).line("worst", 6);

/// Collections, of one process or of all.
pub const COLLECTIONS: &[Figure<CollectionCounts>] = &[
    metric("pauses", (Count, Total, MEASURED), Each(|all| all.by_reason(|pauses| pauses.count)),
        "Collections of {of}"),
    PAUSE_TIME,
    LONGEST,
    metric("collected_objects", (Count, Total, MEASURED), One(|all| Some(Whole(all.outcomes.collected))),
        "Objects freed by collections of {of} that report it"),
    metric("uncollectable_objects", (Count, Total, MEASURED), One(|all| Some(Whole(all.outcomes.uncollectable))),
        "Unreachable objects of {of} that could not be freed, of collections that report it"),
];

/// Figures that only the collections of all processes have.
pub const ALL_COLLECTIONS: &[Figure<CollectionCounts>] = &[
    metric("pause_duration", (Classes, Total, MEASURED), Each(|all| {
            let times = GENERATION_NAMES.into_iter().zip(all.histogram.iter().zip(all.pause_ns));
            let known = times.filter(|(name, (classes, _))| *name != "unknown" || classes.iter().any(|n| *n > 0));
            known.map(|(name, (classes, ns))| one(word("generation", name), Durations(classes, ns))).collect()
        }),
        "Duration of collections of {of}"),
    metric("pauses_with_collected", (Count, Total, None), One(|all| Some(Whole(all.outcomes.with_collected))),
        "Collections that report how many objects they freed"),
];

/// Description of a process, as opposed to its activity.
pub const DESCRIPTION: &[Figure<ProcessFigures>] = &[
    metric("", (Info, Lasting, None), Each(|process| {
            let parent = process.parent.map(|parent| number("parent", parent));
            let inner = process.namespace_pid.map(|pid| number("namespace_pid", pid));
            let known = [word("interpreter", &process.interpreter), word("command", &process.command)];
            info(known.into_iter().chain(parent).chain(inner))
        }),
        "A recorded process: rank, interpreter, command (cut), parent"),
    metric("recorded_since_time", (At, Lasting, None), One(|process| Some(Whole(process.since_ns))),
        "Start of the complete record of the process' collections, Unix time"),
];

/// Share of its wall time that a process was in collections.
pub const SHARE: Figure<ProcessFigures> =
    metric("", (Ppm, Lasting, MEASURED), One(|process: &ProcessFigures| Some(Whole(process.share_ppm))),
        "Share of wall time in collections, since first seen").column("SHARE%", 7).line("share", 5);

/// The last collection of a process, none before the first.
pub const LAST: Figure<ProcessFigures> =
    metric("", (Ns, Lasting, MEASURED), One(|process: &ProcessFigures| Some(Whole(process.last?.duration_ns))),
        "Length of the last collection").column("LAST", 7).line("last", 6);

/// Overlap of collections with an idle GPU.
pub const OVERLAP: Figure<ProcessFigures> =
    metric("", (Ppm, Level, MEASURED), One(|process: &ProcessFigures| process.window_ppm(|busy| busy.idle_in_gc_ns).map(Whole)),
        "GPU idle time during collections: overlap, not cause").column("OVERLAP%", 8);

/// Allocation pressure of a process in the last seconds.
pub const NET_CONTAINERS: Figure<ProcessFigures> =
    metric("net_containers_per_second", (Count, Level, INFERRED),
        One(|process: &ProcessFigures| Some(Whole(process.pressure?.net_containers_per_second?))),
        "Containers allocated minus freed, per second, latest value").column("~NET/s", 7);

/// Resident memory of a process that runs.
pub const RESIDENT: Figure<ProcessFigures> =
    metric("resident_memory", (Bytes, Level, None), One(|process: &ProcessFigures| process.resident_bytes.map(Whole)),
        "Resident memory of the process (read from /proc)").column("RSS", 6);

/// Memory of a process on all its GPUs.
pub const GPU_MEMORY: Figure<ProcessFigures> =
    metric("gpu_memory", (Bytes, Level, None), Each(|process: &ProcessFigures| process.gpus.iter().filter_map(|gpu| {
            let index = if gpu.by_nvml { gpu.device } else { gpu.nvml_index? };
            Some(one(number("gpu", index), Whole(gpu.memory_bytes?)))
        }).collect()),
        "GPU memory of the process (NVML)").column("GPUMEM", 6);

/// Length that 99 % of the turns of a process's loop do not exceed.
pub const TURN_P99: Figure<ProcessFigures> =
    metric("turn_p99", (Ns, Lasting, MEASURED), One(|process: &ProcessFigures| process.turns?.p99_ns.map(Whole)),
        "Length that 99 % of the turns of the loop do not exceed").column("P99", 7);

/// Activity and memory of a process.
pub const PROCESS: &[Figure<ProcessFigures>] = &[
    metric("paused", (Ns, Total, MEASURED), One(|process| Some(Whole(process.paused_ns))),
        "Time during collections of the process; the rate is the share of wall time"),
    metric("garbage_objects", (Count, Total, MEASURED), Each(|process| {
            let types = process.garbage.iter().flat_map(|garbage| &garbage.objects);
            types.map(|(name, objects)| one(word("type", name), Whole(*objects))).collect()
        }),
        "Objects in the examined garbage of the process by type: the 20 types seen first, and other"),
    metric("garbage_examined_objects", (Count, Total, MEASURED),
        One(|process| Some(Whole(process.garbage.as_ref()?.examined_collected))),
        "Objects freed by examined collections of the process; divided by gctrace_process_collected_objects_total it is the share examined"),
    metric("freed_since_freeze_objects", (Count, Total, None), One(|process| Some(Whole(process.freeze?.freed_since))),
        "Objects that automatic collections of the process freed since its heap was frozen (the freeze is inferred from the heap size)"),
    metric("heap_growing", (Count, Level, INFERRED), One(|process| Some(Whole(process.heap_trend?.keeps_growing().into()))),
        "1 if what the process keeps (objects, resident or device memory) has grown by more than chance for ten minutes or more after its warm-up, else 0"),
    metric("growing_outside_python", (Count, Level, INFERRED), One(|process| {
            let trend = process.heap_trend?;
            Some(Whole((trend.keeps_growing() && trend.outside_python == Some(true)).into()))
        }),
        "1 if the resident memory of the process keeps growing and its objects do not: native code, the allocator, a device, or few large objects; else 0"),
    metric("heap_growth_objects_per_hour", (Count, Level, INFERRED), One(|process| process.heap_trend?.objects_per_hour.map(Real)),
        "Theil-Sen slope of the objects that full collections of the process leave, after its warm-up"),
    metric("resident_growth_bytes_per_hour", (Count, Level, INFERRED), One(|process| process.heap_trend?.resident_bytes_per_hour.map(Real)),
        "Theil-Sen slope of the resident memory of the process after its warm-up"),
    metric("device_growth_bytes_per_hour", (Count, Level, INFERRED), One(|process| process.heap_trend?.device_bytes_per_hour.map(Real)),
        "Theil-Sen slope of the device memory that PyTorch has allocated in the process, after its warm-up"),
    metric("memory_limit", (Bytes, Level, None), One(|process| process.heap_trend?.memory_limit_bytes.map(Whole)),
        "Memory that the process may use: the smallest limit of its cgroups, or the memory of the machine"),
    metric("memory_limit_reached_in", (Ns, Level, Some(Predicted)), One(|process| process.heap_trend?.reaches_limit_in_ns.map(Whole)),
        "Time from the last sample until resident memory reaches the limit, if it rises as before"),
    metric("heap_objects", (Count, Level, MEASURED), Each(|process| {
            let scope = |all| word("scope", if all { "all" } else { "oldest" });
            process.heap_objects.iter().map(|heap| one(scope(heap.all), Whole(heap.count))).collect()
        }),
        "Objects that the collector tracks, as of the last collection that reports it; scope: all, or oldest for the oldest generation only"),
    metric("gc_enabled", (Count, Level, None), One(|process| Some(Whole(process.enabled?.into()))),
        "Whether automatic collection is enabled in the process (gc.isenabled)"),
    metric("gc_threshold", (Count, Level, None), Each(|process| {
            let named = GENERATION_NAMES.into_iter().zip(process.thresholds.into_iter().flatten());
            named.map(|(name, threshold)| one(word("generation", name), Signed(threshold.into()))).collect()
        }),
        "Threshold per generation in the process (gc.get_threshold)"),
    NET_CONTAINERS,
    metric("arena_bytes_per_second", (Count, Level, MEASURED), One(|process| process.pressure?.arena_bytes_per_second.map(Signed)),
        "Bytes of arenas mapped minus unmapped, per second, latest value"),
    metric("allocations_per_cpu_second", (Count, Level, None), One(|process| process.pressure?.allocations_per_cpu_second.map(Whole)),
        "Allocations per second of CPU time of the process, latest value (counted in windows)"),
    metric("auto", (Info, Level, None), Each(|process| process.auto.iter().flat_map(|auto| {
            info([word("state", &auto.state), word("setting", gctrace_units::if_known(auto.setting.as_deref()))])
        }).collect()),
        "What gctrace auto does in the process: its state, and the setting that it holds"),
    metric("auto_saved", (Ns, Level, None), Each(|process| {
            let saved = process.auto.as_ref().and_then(|auto| auto.saved);
            let ends = saved.into_iter().flat_map(|SavedTime { mean_ns, low_ns, high_ns }| {
                [("mean", mean_ns), ("low", low_ns), ("high", high_ns)]
            });
            ends.map(|(bound, ns)| one(word("bound", bound), Signed(ns))).collect()
        }),
        "CPU time that gctrace auto saved in the process, if proven: mean, low and high end of the 95 % interval (measured in pairs of blocks, in part computed)"),
    metric("auto_cost", (Ns, Level, None), One(|process| Some(Whole(process.auto.as_ref()?.cost_ns))),
        "CPU time that finding and checking the setting cost in the process (estimated)"),
    metric("turns", (Count, Total, MEASURED), One(|process| Some(Whole(process.turns?.turns))),
        "Turns of the loop: what its thread does between two waits for input"),
    metric("turn_time", (Ns, Total, MEASURED), One(|process| Some(Whole(process.turns?.turn_ns))),
        "Time in turns of the loop; the rate is the share of time that it is busy"),
    TURN_P99,
    metric("longest_turn", (Ns, Lasting, MEASURED), One(|process| Some(Whole(process.turns?.longest_ns))),
        "Longest turn of the loop"),
    RESIDENT,
    GPU_MEMORY,
];

/// A GPU as a process uses it.
pub const PROCESS_GPU: &[Figure<ProcessGpu>] = &[
    metric("gpu", (Info, Level, None), Each(|gpu| {
            let index = if gpu.by_nvml { None } else { gpu.nvml_index };
            index.into_iter().flat_map(|index| info([number("gpu", index)])).collect()
        }),
        "CUDA index of a device in the process, and its NVML index, if both are known"),
    metric("torch_allocated", (Bytes, Level, MEASURED), One(|gpu| gpu.torch_allocated_bytes.map(Whole)),
        "GPU memory that the allocator of torch has handed out to the program"),
    metric("torch_reserved", (Bytes, Level, MEASURED), One(|gpu| gpu.torch_reserved_bytes.map(Whole)),
        "GPU memory that the allocator of torch has reserved from the driver"),
    metric("gpu_busy", (Ns, Total, None), One(|gpu| Some(Whole(gpu.busy?.total_busy_ns))),
        "Time during operations of the process on the GPU, up to the last reported one (CUPTI, exact)"),
    metric("gpu_idle", (Ns, Total, None), One(|gpu| Some(Whole(gpu.busy?.total_idle_ns))),
        "Time without any operation of the process on the GPU, from its first to its last (CUPTI, exact)"),
    metric("gpu_idle_in_gc", (Ns, Total, None), One(|gpu| Some(Whole(gpu.busy?.total_idle_in_gc_ns))),
        "Part of the GPU idle time during collections of the process: overlap, not necessarily the cause (CUPTI, exact)"),
    metric("gpu_idle_by_cause", (Ns, Total, INFERRED), Each(|gpu| {
            let parts = gpu.idle.iter().flat_map(|idle| &idle.total);
            parts.map(|part| one(word("cause", part.cause.into()), Whole(part.time_ns))).collect()
        }),
        "GPU idle time of the process by cause, known some seconds late; host is an upper bound with waiting for data, files and other ranks in it"),
];

/// A GPU of the machine, by NVML.
pub const GPU: &[Figure<GpuFigures>] = &[
    metric("", (Info, Lasting, None), Each(|gpu| info([word("name", gctrace_units::if_known(gpu.name.as_deref()))])),
        "A GPU: NVML index and product name"),
    metric("utilization", (Ratio, Level, None), One(|gpu| Some(Real(f64::from(gpu.utilization_percent?) / 100.0))),
        "Share of the last sample period with a kernel of any process running, 0 to 1 (NVML, sampled)"),
    metric("memory_used", (Bytes, Level, None), One(|gpu| gpu.memory_used_bytes.map(Whole)),
        "GPU memory in use by all processes (NVML)"),
    metric("memory_capacity", (Bytes, Level, None), One(|gpu| gpu.memory_total_bytes.map(Whole)),
        "Total GPU memory (NVML)"),
];

/// Cost of recording to programs, and its losses.
pub const RECORDER: &[Figure<RecorderCost>] = &[
    metric("lost_events", (Count, Total, None), Each(|cost| {
            // Always at least one series, so that alerts on losses can detect an absent metric.
            if cost.lost.is_empty() {
                return vec![one(word("where", ""), Whole(0))];
            }
            cost.lost.iter().map(|(place, count)| one(word("where", place), Whole(*count))).collect()
        }),
        "Lost events, by place; if not 0, other figures are too low"),
    metric("probe_hits", (Count, Total, None), One(|cost| Some(Whole(cost.hits))),
        "Hits of probes and hooks in recorded programs"),
    metric("probe_cost", (Ns, Total, INFERRED), One(|cost| cost.probe_overhead_ns.map(Whole)),
        "CPU time that recorded programs spent in probes on the collector (hits times the likely cost of a hit) and in the injected library"),
];

/// gctrace's own process, as any exporter describes its own.
pub const EXPORTER: &[Figure<RecorderCost>] = &[
    metric("cpu", (Ns, Total, None), One(|cost| cost.cpu_ns.map(Whole)),
        "CPU time of gctrace itself"),
    metric("resident_memory", (Bytes, Level, None), One(|cost| cost.resident_bytes.map(Whole)),
        "Resident memory of gctrace itself"),
];
