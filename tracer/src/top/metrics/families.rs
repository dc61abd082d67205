//! All metric families: name, unit, type and help.
//!
//! Names follow Prometheus conventions (base units, unit at the end, `_total` for counters) and are
//! a public interface: docs/metrics.md lists them, dashboards query them. `gctrace_process_*` is per
//! recorded process, other `gctrace_*` is the sum over all processes, and `process_*`, as usual,
//! describes the exporter: gctrace.

use prometheus_client::metrics::MetricType;

/// A family. Its OpenMetrics name is `name` followed by the unit.
#[derive(Debug)]
pub(super) struct MetricFamily {
    /// Name without the unit and without `_total`, which the encoder adds.
    pub(super) name: &'static str,
    /// Unit, if any; it ends the name.
    pub(super) unit: Option<&'static str>,
    /// OpenMetrics type, which determines the suffixes of the samples.
    pub(super) kind: MetricType,
    /// Help text: one sentence without quotation marks or backslashes.
    pub(super) help: &'static str,
}

macro_rules! families {
    ($($constant:ident = $name:literal $(, $unit:literal)?; $kind:ident; $help:literal;)*) => {
        $(
            #[doc = $help]
            pub(super) const $constant: MetricFamily = MetricFamily {
                name: $name,
                unit: families!(@unit $($unit)?),
                kind: MetricType::$kind,
                help: $help,
            };
        )*
        /// All families, in the order in which they are declared.
        #[cfg(test)]
        pub(super) const ALL: &[MetricFamily] = &[$($constant),*];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

families! {
    RECORDING = "gctrace"; Info;
        "The recording: version of gctrace, mode (ebpf, inject or both), host name.";
    STARTED = "gctrace_recording_start_time", "seconds"; Gauge;
        "Recording start, Unix time.";
    PROCESSES = "gctrace_processes"; Gauge;
        "Recorded Python processes that are running.";
    PROCESSES_SEEN = "gctrace_processes_seen"; Counter;
        "Python processes seen, including exited ones.";
    PROCESSES_LEFT_OUT = "gctrace_processes_left_out"; Gauge;
        "Processes without metrics of their own because of the limit per page.";

    PAUSES = "gctrace_pauses"; Counter;
        "Collections of all processes, including exited ones (measured).";
    PAUSE_TIME = "gctrace_pause", "seconds"; Counter;
        "Time in collections, summed over all processes, including exited ones (measured).";
    PAUSE_DURATION = "gctrace_pause_duration", "seconds"; Histogram;
        "Duration of collections of all processes, including exited ones (measured).";
    LONGEST_PAUSE = "gctrace_longest_pause", "seconds"; Gauge;
        "Longest collection of any process since the start (measured).";
    COLLECTED = "gctrace_collected_objects"; Counter;
        "Objects freed by collections of all processes that report it (measured).";
    UNCOLLECTABLE = "gctrace_uncollectable_objects"; Counter;
        "Unreachable objects that could not be freed, of collections that report it (measured).";
    WITH_COLLECTED = "gctrace_pauses_with_collected"; Counter;
        "Collections that report how many objects they freed.";

    PROCESS = "gctrace_process"; Info;
        "A recorded process: rank, interpreter, command (cut), parent.";
    PROCESS_SINCE = "gctrace_process_recorded_since_time", "seconds"; Gauge;
        "Time from which on all collections of the process are recorded, Unix time.";
    PROCESS_PAUSES = "gctrace_process_pauses"; Counter;
        "Collections of the process (measured).";
    PROCESS_PAUSE_TIME = "gctrace_process_pause", "seconds"; Counter;
        "Time of the process in collections, summed if several interpreters or threads collect at the same time (measured).";
    PROCESS_PAUSED = "gctrace_process_paused", "seconds"; Counter;
        "Time in which at least one collection of the process ran; the rate is the share of wall time (measured).";
    PROCESS_LONGEST_PAUSE = "gctrace_process_longest_pause", "seconds"; Gauge;
        "Longest collection of the process so far (measured).";
    PROCESS_COLLECTED = "gctrace_process_collected_objects"; Counter;
        "Objects freed by collections of the process that report it (measured).";
    PROCESS_UNCOLLECTABLE = "gctrace_process_uncollectable_objects"; Counter;
        "Unreachable objects of the process that could not be freed, of collections that report it (measured).";
    PROCESS_HEAP = "gctrace_process_heap_objects"; Gauge;
        "Objects that the collector tracks, as of the last collection that reports it; scope: all, or oldest for the oldest generation only (measured).";
    PROCESS_GARBAGE = "gctrace_process_garbage_objects"; Counter;
        "Objects in the examined garbage of the process by type: the 20 types seen first, and other (measured).";
    PROCESS_GARBAGE_EXAMINED = "gctrace_process_garbage_examined_objects"; Counter;
        "Objects freed by collections of the process whose garbage was examined; divided by gctrace_process_collected_objects_total it is the share examined (measured).";
    PROCESS_FREED_SINCE_FREEZE = "gctrace_process_freed_since_freeze_objects"; Counter;
        "Objects that automatic collections of the process freed since its heap was frozen (the freeze is inferred from the heap size).";
    PROCESS_HEAP_GROWING = "gctrace_process_heap_growing"; Gauge;
        "1 if the objects or the resident memory at full collections of the process rise by more than chance, else 0 (inferred).";
    PROCESS_HEAP_GROWTH = "gctrace_process_heap_growth_objects_per_hour"; Gauge;
        "Theil-Sen slope of the objects that full collections of the process leave (inferred).";
    PROCESS_MEMORY_GROWTH = "gctrace_process_resident_growth_bytes_per_hour"; Gauge;
        "Theil-Sen slope of the resident memory at full collections of the process (inferred).";
    PROCESS_MEMORY_LIMIT = "gctrace_process_memory_limit", "bytes"; Gauge;
        "Memory that the process may use: the smallest limit of its cgroups, or the memory of the machine.";
    PROCESS_LIMIT_REACHED = "gctrace_process_memory_limit_reached_in", "seconds"; Gauge;
        "Time from the last full collection until resident memory reaches the limit, if it rises as before (predicted).";
    PROCESS_ENABLED = "gctrace_process_gc_enabled"; Gauge;
        "Whether automatic collection is enabled in the process (gc.isenabled).";
    PROCESS_THRESHOLD = "gctrace_process_gc_threshold"; Gauge;
        "Threshold per generation in the process (gc.get_threshold).";
    PROCESS_CONTAINERS = "gctrace_process_net_containers_per_second"; Gauge;
        "Containers allocated minus containers freed, per second, latest value (inferred from collections).";
    PROCESS_ARENAS = "gctrace_process_arena_bytes_per_second"; Gauge;
        "Bytes of arenas mapped minus unmapped, per second, latest value (measured).";
    PROCESS_ALLOCATIONS = "gctrace_process_allocations_per_cpu_second"; Gauge;
        "Allocations per second of CPU time of the process, latest value (counted in windows).";
    PROCESS_RESIDENT = "gctrace_process_resident_memory", "bytes"; Gauge;
        "Resident memory of the process (read from /proc).";
    PROCESS_GPU = "gctrace_process_gpu"; Info;
        "CUDA index of a device in the process, and its NVML index, if both are known.";
    PROCESS_TORCH_ALLOCATED = "gctrace_process_torch_allocated", "bytes"; Gauge;
        "GPU memory that the allocator of torch has handed out to the program (measured).";
    PROCESS_TORCH_RESERVED = "gctrace_process_torch_reserved", "bytes"; Gauge;
        "GPU memory that the allocator of torch has reserved from the driver (measured).";
    PROCESS_GPU_MEMORY = "gctrace_process_gpu_memory", "bytes"; Gauge;
        "GPU memory of the process (NVML).";
    PROCESS_GPU_BUSY = "gctrace_process_gpu_busy", "seconds"; Counter;
        "Time in which any operation of the process ran on the GPU, up to the last reported one (CUPTI, exact).";
    PROCESS_GPU_IDLE = "gctrace_process_gpu_idle", "seconds"; Counter;
        "Time in which no operation of the process ran on the GPU, from its first to its last (CUPTI, exact).";
    PROCESS_GPU_IDLE_IN_GC = "gctrace_process_gpu_idle_in_gc", "seconds"; Counter;
        "Part of the GPU idle time in which the process was in a collection: overlap, not necessarily the cause (CUPTI, exact).";

    GPU = "gctrace_gpu"; Info;
        "A GPU: NVML index and product name.";
    GPU_UTILIZATION = "gctrace_gpu_utilization", "ratio"; Gauge;
        "Share of the last sample period in which any kernel of any process ran, 0 to 1 (NVML, sampled).";
    GPU_MEMORY_USED = "gctrace_gpu_memory_used", "bytes"; Gauge;
        "GPU memory in use by all processes (NVML).";
    GPU_MEMORY_CAPACITY = "gctrace_gpu_memory_capacity", "bytes"; Gauge;
        "Total GPU memory (NVML).";

    LOST = "gctrace_lost_events"; Counter;
        "Lost events, by place; if not 0, other figures are too low.";
    HITS = "gctrace_probe_hits"; Counter;
        "Hits of probes and hooks in recorded programs.";
    PROBE_COST = "gctrace_probe_cost", "seconds"; Counter;
        "Time that recorded programs spent in probes on the collector (hits times the measured cost per hit) and in the injected library (inferred).";
    OWN_CPU = "process_cpu", "seconds"; Counter;
        "CPU time of gctrace itself.";
    OWN_RESIDENT = "process_resident_memory", "bytes"; Gauge;
        "Resident memory of gctrace itself.";
}
