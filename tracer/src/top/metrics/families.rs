//! All metric families: name, unit, type, help and samples, in the order of the page.
//!
//! Names follow Prometheus conventions (base units, unit at the end, `_total` for counters) and are
//! a public interface: docs/metrics.md is made from this table, dashboards query them.
//! `gctrace_process_*` is per recorded process, other `gctrace_*` is the sum over all processes, and
//! `process_*`, as usual, describes the exporter: gctrace.

use super::collect::MetricValue::{Real, Signed, Whole};
use super::collect::{MetricValue, MetricsFigures, Sample, seconds};
use super::labels;
use prometheus_client::metrics::MetricType;

/// A family. Its OpenMetrics name is `name` followed by the unit.
pub(super) struct MetricFamily {
    /// Name without the unit and without `_total`, which the encoder adds.
    pub(super) name: &'static str,
    /// Unit, if any; it ends the name.
    pub(super) unit: Option<&'static str>,
    /// OpenMetrics type, which determines the suffixes of the samples.
    pub(super) kind: MetricType,
    /// Help text: one sentence without quotation marks or backslashes.
    pub(super) help: &'static str,
    /// The samples of a page; a family without any is left out.
    pub(super) samples: Samples,
}

type Samples = for<'a> fn(&'a MetricsFigures) -> Vec<Sample<'a>>;

macro_rules! families {
    ($($name:literal $(, $unit:literal)?; $kind:ident; $help:literal; $samples:expr;)*) => {
        /// All families, in the order of the page.
        pub(super) const FAMILIES: &[MetricFamily] = &[$(MetricFamily {
            name: $name,
            unit: families!(@unit $($unit)?),
            kind: MetricType::$kind,
            help: $help,
            samples: $samples,
        }),*];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

families! {
    "gctrace"; Info;
        "The recording: version of gctrace, mode (ebpf, inject or both), host name.";
        |page| vec![(page.recording(), Whole(1))];
    "gctrace_recording_start_time", "seconds"; Gauge;
        "Recording start, Unix time.";
        |page| one(page.unix(page.snapshot.started_ns));
    "gctrace_processes"; Gauge;
        "Recorded Python processes that are running.";
        |page| one(Whole(page.snapshot.totals.processes - page.snapshot.totals.ended));
    "gctrace_processes_seen"; Counter;
        "Python processes seen, including exited ones.";
        |page| one(Whole(page.snapshot.totals.processes));
    "gctrace_processes_left_out"; Gauge;
        "Processes without metrics of their own because of the limit per page.";
        |page| one(Whole(page.left_out));

    "gctrace_pauses"; Counter;
        "Collections of all processes, including exited ones (measured).";
        |page| page.of_all(|pauses| Whole(pauses.count));
    "gctrace_pause", "seconds"; Counter;
        "Time in collections, summed over all processes, including exited ones (measured).";
        |page| page.of_all(|pauses| seconds(pauses.time_ns));
    "gctrace_pause_duration", "seconds"; Histogram;
        "Duration of collections of all processes, including exited ones (measured).";
        |page| page.durations();
    "gctrace_longest_pause", "seconds"; Gauge;
        "Longest collection of any process since the start (measured).";
        |page| one(seconds(page.snapshot.totals.collections.longest_ns));
    "gctrace_collected_objects"; Counter;
        "Objects freed by collections of all processes that report it (measured).";
        |page| one(Whole(page.snapshot.totals.collections.collected));
    "gctrace_uncollectable_objects"; Counter;
        "Unreachable objects that could not be freed, of collections that report it (measured).";
        |page| one(Whole(page.snapshot.totals.collections.uncollectable));
    "gctrace_pauses_with_collected"; Counter;
        "Collections that report how many objects they freed.";
        |page| one(Whole(page.snapshot.totals.collections.with_collected));

    "gctrace_process"; Info;
        "A recorded process: rank, interpreter, command (cut), parent.";
        |page| page.described();
    "gctrace_process_recorded_since_time", "seconds"; Gauge;
        "Time from which on all collections of the process are recorded, Unix time.";
        |page| page.each(|process| Some(page.unix(process.since_ns)));
    "gctrace_process_pauses"; Counter;
        "Collections of the process (measured).";
        |page| page.of_each(|pauses| Whole(pauses.count));
    "gctrace_process_pause", "seconds"; Counter;
        "Time of the process in collections, summed if several interpreters or threads collect at the same time (measured).";
        |page| page.of_each(|pauses| seconds(pauses.time_ns));
    "gctrace_process_paused", "seconds"; Counter;
        "Time in which at least one collection of the process ran; the rate is the share of wall time (measured).";
        |page| page.each(|process| Some(seconds(process.paused_ns)));
    "gctrace_process_longest_pause", "seconds"; Gauge;
        "Longest collection of the process so far (measured).";
        |page| page.each(|process| Some(seconds(process.collections.longest_ns)));
    "gctrace_process_collected_objects"; Counter;
        "Objects freed by collections of the process that report it (measured).";
        |page| page.each(|process| Some(Whole(process.collections.collected)));
    "gctrace_process_uncollectable_objects"; Counter;
        "Unreachable objects of the process that could not be freed, of collections that report it (measured).";
        |page| page.each(|process| Some(Whole(process.collections.uncollectable)));
    "gctrace_process_garbage_objects"; Counter;
        "Objects in the examined garbage of the process by type: the 20 types seen first, and other (measured).";
        |page| page.garbage_types();
    "gctrace_process_garbage_examined_objects"; Counter;
        "Objects freed by collections of the process whose garbage was examined; divided by gctrace_process_collected_objects_total it is the share examined (measured).";
        |page| page.each(|process| Some(Whole(process.garbage.as_ref()?.examined_collected)));
    "gctrace_process_freed_since_freeze_objects"; Counter;
        "Objects that automatic collections of the process freed since its heap was frozen (the freeze is inferred from the heap size).";
        |page| page.each(|process| Some(Whole(process.freeze?.freed_since)));
    "gctrace_process_heap_growing"; Gauge;
        "1 if what the process keeps (objects, resident or device memory) has grown by more than chance for ten minutes or more after its warm-up, else 0 (inferred).";
        |page| page.running(|process| Some(Whole(process.heap_trend?.keeps_growing().into())));
    "gctrace_process_growing_outside_python"; Gauge;
        "1 if the resident memory of the process keeps growing and its objects do not: native code, the allocator, a device, or few large objects; else 0 (inferred).";
        |page| page.running(|process| {
            let trend = process.heap_trend?;
            Some(Whole((trend.keeps_growing() && trend.outside_python == Some(true)).into()))
        });
    "gctrace_process_heap_growth_objects_per_hour"; Gauge;
        "Theil-Sen slope of the objects that full collections of the process leave, after its warm-up (inferred).";
        |page| page.running(|process| Some(Real(process.heap_trend?.objects_per_hour?)));
    "gctrace_process_resident_growth_bytes_per_hour"; Gauge;
        "Theil-Sen slope of the resident memory of the process after its warm-up (inferred).";
        |page| page.running(|process| Some(Real(process.heap_trend?.resident_bytes_per_hour?)));
    "gctrace_process_device_growth_bytes_per_hour"; Gauge;
        "Theil-Sen slope of the device memory that PyTorch has allocated in the process, after its warm-up (inferred).";
        |page| page.running(|process| Some(Real(process.heap_trend?.device_bytes_per_hour?)));
    "gctrace_process_memory_limit", "bytes"; Gauge;
        "Memory that the process may use: the smallest limit of its cgroups, or the memory of the machine.";
        |page| page.running(|process| Some(Whole(process.heap_trend?.memory_limit_bytes?)));
    "gctrace_process_memory_limit_reached_in", "seconds"; Gauge;
        "Time from the last sample until resident memory reaches the limit, if it rises as before (predicted).";
        |page| page.running(|process| Some(seconds(process.heap_trend?.reaches_limit_in_ns?)));
    "gctrace_process_heap_objects"; Gauge;
        "Objects that the collector tracks, as of the last collection that reports it; scope: all, or oldest for the oldest generation only (measured).";
        |page| page.heap_objects();
    "gctrace_process_gc_enabled"; Gauge;
        "Whether automatic collection is enabled in the process (gc.isenabled).";
        |page| page.running(|process| Some(Whole(process.enabled?.into())));
    "gctrace_process_gc_threshold"; Gauge;
        "Threshold per generation in the process (gc.get_threshold).";
        |page| page.thresholds();
    "gctrace_process_net_containers_per_second"; Gauge;
        "Containers allocated minus containers freed, per second, latest value (inferred from collections).";
        |page| page.running(|process| Some(Whole(process.pressure?.net_containers_per_second?)));
    "gctrace_process_arena_bytes_per_second"; Gauge;
        "Bytes of arenas mapped minus unmapped, per second, latest value (measured).";
        |page| page.running(|process| Some(Signed(process.pressure?.arena_bytes_per_second?)));
    "gctrace_process_allocations_per_cpu_second"; Gauge;
        "Allocations per second of CPU time of the process, latest value (counted in windows).";
        |page| page.running(|process| Some(Whole(process.pressure?.allocations_per_cpu_second?)));
    "gctrace_process_auto"; Info;
        "What gctrace auto does in the process: its state, and the setting that it holds.";
        |page| page.searches();
    "gctrace_process_auto_saved", "seconds"; Gauge;
        "CPU time that gctrace auto saved in the process, if proven: mean, low and high end of the 95 % interval (measured in pairs of blocks, in part computed).";
        |page| page.savings();
    "gctrace_process_auto_cost", "seconds"; Gauge;
        "CPU time that finding and checking the setting cost in the process (estimated).";
        |page| page.running(|process| Some(seconds(process.auto.as_ref()?.cost_ns)));
    "gctrace_process_resident_memory", "bytes"; Gauge;
        "Resident memory of the process (read from /proc).";
        |page| page.running(|process| Some(Whole(process.resident_bytes?)));
    "gctrace_process_gpu"; Info;
        "CUDA index of a device in the process, and its NVML index, if both are known.";
        |page| page.known_by_both();
    "gctrace_process_torch_allocated", "bytes"; Gauge;
        "GPU memory that the allocator of torch has handed out to the program (measured).";
        |page| page.on_gpus(true, |gpu| Some(Whole(gpu.torch_allocated_bytes?)));
    "gctrace_process_torch_reserved", "bytes"; Gauge;
        "GPU memory that the allocator of torch has reserved from the driver (measured).";
        |page| page.on_gpus(true, |gpu| Some(Whole(gpu.torch_reserved_bytes?)));
    "gctrace_process_gpu_memory", "bytes"; Gauge;
        "GPU memory of the process (NVML).";
        |page| page.gpu_memory();
    "gctrace_process_gpu_busy", "seconds"; Counter;
        "Time in which any operation of the process ran on the GPU, up to the last reported one (CUPTI, exact).";
        |page| page.on_gpus(false, |gpu| Some(seconds(gpu.busy?.total_busy_ns)));
    "gctrace_process_gpu_idle", "seconds"; Counter;
        "Time in which no operation of the process ran on the GPU, from its first to its last (CUPTI, exact).";
        |page| page.on_gpus(false, |gpu| Some(seconds(gpu.busy?.total_idle_ns)));
    "gctrace_process_gpu_idle_in_gc", "seconds"; Counter;
        "Part of the GPU idle time in which the process was in a collection: overlap, not necessarily the cause (CUPTI, exact).";
        |page| page.on_gpus(false, |gpu| Some(seconds(gpu.busy?.total_idle_in_gc_ns)));
    "gctrace_process_gpu_idle_by_cause", "seconds"; Counter;
        "GPU idle time of the process by cause, known some seconds late; host is an upper bound with waiting for data, files and other ranks in it (inferred).";
        |page| page.idle_causes();

    "gctrace_gpu"; Info;
        "A GPU: NVML index and product name.";
        |page| page.snapshot.gpus.iter().map(|gpu| {
            let name = labels::text("name", gpu.name.as_deref().unwrap_or(""));
            (vec![labels::number("gpu", gpu.index), name], Whole(1))
        }).collect();
    "gctrace_gpu_utilization", "ratio"; Gauge;
        "Share of the last sample period in which any kernel of any process ran, 0 to 1 (NVML, sampled).";
        |page| page.gpus(|gpu| Some(Real(f64::from(gpu.utilization_percent?) / 100.0)));
    "gctrace_gpu_memory_used", "bytes"; Gauge;
        "GPU memory in use by all processes (NVML).";
        |page| page.gpus(|gpu| Some(Whole(gpu.memory_used_bytes?)));
    "gctrace_gpu_memory_capacity", "bytes"; Gauge;
        "Total GPU memory (NVML).";
        |page| page.gpus(|gpu| Some(Whole(gpu.memory_total_bytes?)));

    "gctrace_lost_events"; Counter;
        "Lost events, by place; if not 0, other figures are too low.";
        |page| page.lost();
    "gctrace_probe_hits"; Counter;
        "Hits of probes and hooks in recorded programs.";
        |page| one(Whole(page.snapshot.recorder.hits));
    "gctrace_probe_cost", "seconds"; Counter;
        "CPU time that recorded programs spent in probes on the collector (hits times what is likely for a hit) and in the injected library (inferred).";
        |page| one_if(page.snapshot.recorder.probe_overhead_ns.map(seconds));
    "process_cpu", "seconds"; Counter;
        "CPU time of gctrace itself.";
        |page| one_if(page.snapshot.recorder.cpu_ns.map(seconds));
    "process_resident_memory", "bytes"; Gauge;
        "Resident memory of gctrace itself.";
        |page| one_if(page.snapshot.recorder.resident_bytes.map(Whole));
}

/// The samples of a family with one series.
fn one(value: MetricValue<'_>) -> Vec<Sample<'_>> {
    one_if(Some(value))
}

/// The samples of a family with one series, none if the value is unknown.
fn one_if(value: Option<MetricValue<'_>>) -> Vec<Sample<'_>> {
    value.into_iter().map(|value| (Vec::new(), value)).collect()
}
