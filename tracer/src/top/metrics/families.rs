//! Every metric family: name, unit, type, and what it means.
//!
//! Names follow Prometheus's conventions (base units, unit at the end, `_total` for counters) and are an interface:
//! docs/metrics.md lists them, dashboards ask for them. `gctrace_process_*` is about one recorded process,
//! other `gctrace_*` about all of them together, `process_*`, as everywhere, about the program that serves: gctrace.

use prometheus_client::metrics::MetricType;

/// A family. OpenMetrics' name of it is `name`, then its unit.
#[derive(Debug)]
pub(super) struct MetricFamily {
    /// Without unit and `_total`.
    pub(super) name: &'static str,
    /// Unit, where it has one; ends the name.
    pub(super) unit: Option<&'static str>,
    /// Type.
    pub(super) kind: MetricType,
    /// One sentence, without a quotation mark or backslash.
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
        /// All of them.
        #[cfg(test)]
        pub(super) const ALL: &[MetricFamily] = &[$($constant),*];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

families! {
    RECORDING = "gctrace"; Info;
        "What records, and how: version of gctrace, mode (ebpf, inject or both), name of the machine.";
    STARTED = "gctrace_recording_start_time", "seconds"; Gauge;
        "Begin of the recording, since 1970.";
    PROCESSES = "gctrace_processes"; Gauge;
        "Recorded processes that run Python now.";
    PROCESSES_SEEN = "gctrace_processes_seen"; Counter;
        "Processes that ran Python, those that ended included.";
    PROCESSES_LEFT_OUT = "gctrace_processes_left_out"; Gauge;
        "Processes without metrics of their own on this page, because there are too many.";

    PAUSES = "gctrace_pauses"; Counter;
        "Collections of all processes, those that ended included (measured).";
    PAUSE_TIME = "gctrace_pause", "seconds"; Counter;
        "Time in collections, added over all processes, those that ended included (measured).";
    PAUSE_DURATION = "gctrace_pause_duration", "seconds"; Histogram;
        "How long collections of all processes were, those that ended included (measured).";
    LONGEST_PAUSE = "gctrace_longest_pause", "seconds"; Gauge;
        "The longest collection of all since the begin (measured).";
    COLLECTED = "gctrace_collected_objects"; Counter;
        "Objects freed by collections of all processes, as far as they tell (measured).";
    UNCOLLECTABLE = "gctrace_uncollectable_objects"; Counter;
        "Objects found unreachable and not freed, as far as collections tell (measured).";
    WITH_COLLECTED = "gctrace_pauses_with_collected"; Counter;
        "Collections that tell how many objects they freed.";

    PROCESS = "gctrace_process"; Info;
        "A recorded process: rank, interpreter, command (cut), parent.";
    PROCESS_SINCE = "gctrace_process_recorded_since_time", "seconds"; Gauge;
        "From when on the collections of the process are complete, since 1970.";
    PROCESS_PAUSES = "gctrace_process_pauses"; Counter;
        "Collections of the process (measured).";
    PROCESS_PAUSE_TIME = "gctrace_process_pause", "seconds"; Counter;
        "Time of the process in collections; those of several interpreters or threads at the same time are added (measured).";
    PROCESS_PAUSED = "gctrace_process_paused", "seconds"; Counter;
        "Time in which at least one collection of the process ran: its rate is the share of wall time (measured).";
    PROCESS_LONGEST_PAUSE = "gctrace_process_longest_pause", "seconds"; Gauge;
        "The longest collection of the process so far (measured).";
    PROCESS_COLLECTED = "gctrace_process_collected_objects"; Counter;
        "Objects freed by collections of the process, as far as they tell (measured).";
    PROCESS_UNCOLLECTABLE = "gctrace_process_uncollectable_objects"; Counter;
        "Objects of the process found unreachable and not freed, as far as collections tell (measured).";
    PROCESS_HEAP = "gctrace_process_heap_objects"; Gauge;
        "Objects that the collector tracks, as the last collection that told it counted; scope: all, or those of the oldest generation only (measured).";
    PROCESS_ENABLED = "gctrace_process_gc_enabled"; Gauge;
        "Whether automatic collection is on in the process (gc.isenabled).";
    PROCESS_THRESHOLD = "gctrace_process_gc_threshold"; Gauge;
        "Threshold of each generation in the process (gc.get_threshold).";
    PROCESS_CONTAINERS = "gctrace_process_net_containers_per_second"; Gauge;
        "Container objects allocated less those freed, per second, as last told (inferred from the collections).";
    PROCESS_ARENAS = "gctrace_process_arena_bytes_per_second"; Gauge;
        "Bytes of memory arenas mapped less those unmapped, per second, as last told (measured).";
    PROCESS_ALLOCATIONS = "gctrace_process_allocations_per_cpu_second"; Gauge;
        "Allocations for each second of CPU time of the process, as last told (counted in windows).";
    PROCESS_RESIDENT = "gctrace_process_resident_memory", "bytes"; Gauge;
        "Resident memory of the process (read from /proc).";
    PROCESS_GPU = "gctrace_process_gpu"; Info;
        "A device as the process counts (CUDA) and as NVML does, where both are known.";
    PROCESS_TORCH_ALLOCATED = "gctrace_process_torch_allocated", "bytes"; Gauge;
        "Memory of the GPU that the allocator of torch has given to the program (measured).";
    PROCESS_TORCH_RESERVED = "gctrace_process_torch_reserved", "bytes"; Gauge;
        "Memory of the GPU that the allocator of torch has from the driver (measured).";
    PROCESS_GPU_MEMORY = "gctrace_process_gpu_memory", "bytes"; Gauge;
        "Memory of the process on the GPU (NVML).";
    PROCESS_GPU_BUSY = "gctrace_process_gpu_busy", "seconds"; Counter;
        "Time in which any operation of the process ran on the GPU, up to the last that was told of (CUPTI, exact).";
    PROCESS_GPU_IDLE = "gctrace_process_gpu_idle", "seconds"; Counter;
        "Time in which no operation of the process ran on the GPU, from its first to its last (CUPTI, exact).";
    PROCESS_GPU_IDLE_IN_GC = "gctrace_process_gpu_idle_in_gc", "seconds"; Counter;
        "The part of the idle time in which the process was in a collection: overlap, which need not be the cause (CUPTI, exact).";

    GPU = "gctrace_gpu"; Info;
        "A GPU: index of NVML, product name.";
    GPU_UTILIZATION = "gctrace_gpu_utilization", "ratio"; Gauge;
        "Part of the last sample period of the driver in which any kernel of any process ran, from 0 to 1 (NVML, sampled).";
    GPU_MEMORY_USED = "gctrace_gpu_memory_used", "bytes"; Gauge;
        "Memory of the GPU in use by all processes (NVML).";
    GPU_MEMORY_CAPACITY = "gctrace_gpu_memory_capacity", "bytes"; Gauge;
        "Memory that the GPU has (NVML).";

    LOST = "gctrace_lost_events"; Counter;
        "Events that were lost, by where; anything but 0 makes other figures too low.";
    HITS = "gctrace_probe_hits"; Counter;
        "Times that probes or hooks in recorded programs were hit.";
    PROBE_COST = "gctrace_probe_cost", "seconds"; Counter;
        "CPU time that probes on the collector took of recorded programs: hits by the measured cost of one (inferred).";
    OWN_CPU = "process_cpu", "seconds"; Counter;
        "CPU time of gctrace itself.";
    OWN_RESIDENT = "process_resident_memory", "bytes"; Gauge;
        "Resident memory of gctrace itself.";
}
