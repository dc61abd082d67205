//! Options that `record` and `top` share: processes and events to record, and how.

use super::{CONFIGURABLE, CounterChoice, CudaMode, RecordMode, choices, values};
use clap::{ArgAction, Args};
use gctrace_settings::GarbageDetail;

/// As deep as recording a pause may cost (docs/evidence.md).
const DEFAULT_STACK_DEPTH: u32 = 24;

/// Values of `--garbage`.
const GARBAGE: [(&str, &str, GarbageDetail); 3] = [
    ("off", "Nothing", GarbageDetail::Off),
    ("types", "Their types, and the lines that belong to them", GarbageDetail::Types),
    ("cycles", "Also the cycles that they form; in-process only", GarbageDetail::Cycles),
];

#[derive(Args, Clone, Debug, PartialEq)]
pub struct SourceArgs {
    /// Do not record child processes
    #[arg(long = "no-follow", group = CONFIGURABLE, action = ArgAction::SetFalse)]
    pub follow: bool,
    /// Under sudo: run the command as root instead of the invoking user
    #[arg(long)]
    pub as_root: bool,
    /// Python stack frames to record per pause, innermost first; 0 disables stacks
    #[arg(long, group = CONFIGURABLE, value_name = "FRAMES", allow_negative_numbers = true, default_value_t = DEFAULT_STACK_DEPTH,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(gctrace_event::MAX_STACK_DEPTH)))]
    pub stack_depth: u32,
    /// Performance counters to record per pause and per process: comma-separated names, `default`
    /// or `none`
    #[arg(long, group = CONFIGURABLE, value_name = "LIST", default_value = "default", value_parser = values::counters)]
    pub counters: CounterChoice,
    /// Estimate allocation rates, sizes and lines from short windows with a probe on the allocator
    #[arg(long, group = CONFIGURABLE)]
    pub alloc: bool,
    /// With --alloc: maximum overhead of the windows, in percent of the program's CPU time
    #[arg(long, hide = true, group = CONFIGURABLE, value_name = "PERCENT", default_value = "1", value_parser = values::percent)]
    alloc_budget: f64,
    /// What to record of the objects that collections free: their types (`types`), their cycles too
    /// (`cycles`, in-process only), or nothing (`off`)
    #[arg(
        long,
        group = CONFIGURABLE,
        value_parser = choices::one_of(GARBAGE),
        value_name = "WHAT",
        default_value = "types",
        hide_possible_values = true
    )]
    pub garbage: GarbageDetail,
    /// With --garbage: maximum overhead, in percent of the program's CPU time; collections beyond
    /// it are not examined; 100: all are
    #[arg(long, group = CONFIGURABLE, value_name = "PERCENT", default_value = "1", value_parser = values::budget)]
    pub garbage_budget: f64,
    /// NVML polling rate in Hz; 0 disables polling
    #[arg(long, hide = true, group = CONFIGURABLE, value_name = "RATE", default_value_t = 5.0, value_parser = values::nvml_rate)]
    nvml_hz: f64,
    /// Samples a second of each running thread's Python stack and machine code; 0 disables them; needs kernel probes
    /// [default: 99 if a trace is written]
    #[arg(long, group = CONFIGURABLE, value_name = "HZ", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_SAMPLES)))]
    pub(super) sample: Option<u32>,
    /// CUDA and NCCL calls to record: every call (`all`), launches only as counts per millisecond
    /// (`launches`), no launches (`sync`), or no calls (`off`)
    #[arg(
        long,
        group = CONFIGURABLE,
        value_enum,
        value_name = "WHAT",
        default_value = "launches",
        hide_possible_values = true
    )]
    pub cuda: CudaMode,
    /// Source of events: kernel probes (`ebpf`, needs privileges), a library in the recorded
    /// programs (`inject`, needs none), `both`, or the best available (`auto`; see gctrace doctor)
    #[arg(
        long,
        group = CONFIGURABLE,
        value_enum,
        value_name = "HOW",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub mode: RecordMode,
    /// Mark a training step at each call of this Python function: train_step, Trainer.step or
    /// train.py:train_step; needs CPython 3.12 or later
    #[arg(long, group = CONFIGURABLE, value_name = "NAME", value_parser = values::step_function)]
    pub step_function: Option<String>,
    /// Measure PyTorch's memory by layer in every N-th training step, by the library in the programs; without
    /// N in as many as 0.3 % of the time allows
    #[arg(long, group = CONFIGURABLE, value_name = "N", num_args = 0..=1, default_missing_value = "auto", value_parser = values::layers)]
    pub layers: Option<u32>,
    /// Leave CUPTI to the program's own profiler; GPU times are then not recorded
    #[arg(long, group = CONFIGURABLE)]
    pub gpu_yield: bool,
    /// Size of the BPF ring buffer: a power of two, at least 4KiB
    #[arg(long, hide = true, group = CONFIGURABLE, value_name = "SIZE", default_value = "16MiB", value_parser = values::ring_size)]
    pub ring_size: u32,
}

/// Maximum of `--sample`: 3 to 5 us each are 0.5 % of a CPU.
const MOST_SAMPLES: u32 = 999;

impl SourceArgs {
    /// Whether `--sample` was named, not only taken as it is by default.
    pub fn asks_for_samples(&self) -> bool {
        let Some(hertz) = self.sample else { return false };
        hertz > 0
    }

    /// Share of CPU time (0 to 1) that allocation windows may cost; `None`: no windows.
    pub fn windows_budget(&self) -> Option<f64> {
        if self.alloc { Some(self.alloc_budget) } else { None }
    }

    /// NVML polling rate in Hz; `None`: NVML is not used.
    pub fn nvml_rate(&self) -> Option<f64> {
        if self.nvml_hz > 0.0 { Some(self.nvml_hz) } else { None }
    }
}
