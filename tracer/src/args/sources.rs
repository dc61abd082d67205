//! What `record` and `top` have in common: how programs are watched, and what of them.

use super::CounterChoice;
use super::CudaMode;
use super::RecordConfig;
use super::RecordMode;
use super::RecordTarget;
use super::Verbosity;
use super::values;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
pub(super) struct SourceArgs {
    /// Record only the process itself, none of its children
    #[arg(long)]
    no_follow: bool,
    /// Under sudo: run the command as root instead of as the user who typed it
    #[arg(long)]
    as_root: bool,
    /// Python frames to record where a pause begins, innermost first; 0 records none
    #[arg(long, value_name = "FRAMES", allow_negative_numbers = true, default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(gctrace_ebpf::MAX_STACK_DEPTH)))]
    stack_depth: u32,
    /// Performance counters to record in each pause and for whole processes: names between commas,
    /// default, or none
    #[arg(long, value_name = "LIST", default_value = "default", value_parser = values::counters)]
    counters: CounterChoice,
    /// Estimate how much the program allocates and on which lines, from short windows of probes on its allocator
    #[arg(long)]
    alloc: bool,
    /// With --alloc: CPU time of the program that its windows may cost, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = values::percent)]
    alloc_budget: f64,
    /// How often per second to ask NVIDIA's driver how the GPUs do; 0 does not
    #[arg(long, value_name = "RATE", default_value_t = 5.0, value_parser = values::nvml_rate)]
    nvml_hz: f64,
    /// Calls of CUDA and NCCL to record where a program makes any: each of them (all), launches only counted by
    /// the millisecond (launches), no launches (sync), or none (off)
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value = "launches",
        hide_possible_values = true
    )]
    cuda: CudaMode,
    /// How to record: from the kernel (ebpf, needs privileges), from within the programs (inject, works for everyone),
    /// both and compare, or what fits here (auto; gctrace doctor says what that is)
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value = "auto",
        hide_possible_values = true
    )]
    mode: RecordMode,
    /// Leave NVIDIA's profiling interface (CUPTI) to the program's own profiler; GPU times are not recorded then
    #[arg(long)]
    gpu_yield: bool,
    /// Size of the buffer between kernel and gctrace: a power of two, at least 4KiB
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = values::ring_size)]
    ring_size: u32,
}

impl SourceArgs {
    /// A recording of `target` from these sources.
    pub(super) fn recording(
        self,
        target: RecordTarget,
        output: Option<PathBuf>,
        min_pause: Duration,
        verbosity: Verbosity,
    ) -> RecordConfig {
        RecordConfig {
            target,
            output,
            follow: !self.no_follow,
            min_pause,
            as_root: self.as_root,
            ring_size: self.ring_size,
            stack_depth: self.stack_depth,
            verbosity,
            duration: None,
            counters: self.counters,
            alloc_budget: self.alloc.then_some(self.alloc_budget / 100.0),
            nvml_hz: (self.nvml_hz > 0.0).then_some(self.nvml_hz),
            cuda: self.cuda,
            mode: self.mode,
            gpu_yield: self.gpu_yield,
        }
    }
}
