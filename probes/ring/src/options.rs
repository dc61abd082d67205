//! Options of the injected library, in one environment variable.

use crate::layout::{GPU_RECORDS, MAX_RECORDS, SLOT_BYTES};
use gctrace_settings::GarbageDetail;
use std::fmt;

/// Environment variable that contains the [`InjectOptions`].
pub const OPTIONS_VARIABLE: &str = "GCTRACE_INJECT";

/// Environment variable with the name of the function that marks steps by its calls: `train_step`, `Trainer.step` (its
/// qualified name, or the last parts of it) or `train.py:train_step`. Not set or empty: none.
pub const STEP_FUNCTION_VARIABLE: &str = "GCTRACE_STEP_FUNCTION";

/// Environment variable with the file for PyTorch's snapshots of device memory, with `%r` and `%p` for rank and process
/// id. Not set or empty: none are written.
pub const MEMORY_HISTORY_VARIABLE: &str = "GCTRACE_MEMORY_HISTORY";

/// Options of the injected library, passed in [`OPTIONS_VARIABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectOptions {
    /// Whether to record collections, through an entry in `gc.callbacks`.
    pub collections: bool,
    /// Python frames to record at the start of a pause; 0: none.
    pub stack_depth: u32,
    /// Whether to count every allocation of the interpreter, by size class.
    pub allocations: bool,
    /// What to record of the objects that collections free.
    pub garbage: GarbageDetail,
    /// Overhead that this may cost, in millionths of the process's CPU time.
    pub garbage_budget_ppm: u32,
    /// Whether to record marks of training steps.
    pub steps: bool,
    /// Whether to record turns of loops; needs `collections`.
    pub turns: bool,
    /// Steps with measured memory by layer: every N-th, 0: none,
    /// [`LAYERS_BY_BUDGET`](gctrace_settings::LAYERS_BY_BUDGET).
    pub layers: u32,
    /// Record GPU work and the calls that enqueue it, by CUPTI.
    pub cuda: bool,
    /// Record only the calls that synchronize, copy or fill (`--cuda sync`).
    pub only_waits: bool,
    /// Leave CUPTI to the program's own profiler (`--gpu-yield`).
    pub yields: bool,
    /// Slots of the GPU ring: a power of two.
    pub gpu_records: u32,
    /// Children are recorded too; if not, our variables are removed from their environment.
    pub follow: bool,
    /// Number of seccomp filters that apply to gctrace itself
    /// ([`seccomp_filters`]); under more the library stays inactive.
    /// `u32::MAX`: never.
    pub filters: u32,
    /// A process reports and waits at the end of this full collection ([`crate::HeapNotice`]), counted from 1; 0:
    /// never.
    pub heap: u32,
    /// Id of the interpreter with the counted full collections.
    pub heap_interpreter: u32,
}

impl Default for InjectOptions {
    /// Everything but allocations and garbage, 24 frames.
    fn default() -> Self {
        Self {
            collections: true,
            stack_depth: 24,
            allocations: false,
            garbage: GarbageDetail::Off,
            garbage_budget_ppm: 10_000,
            steps: true,
            turns: true,
            layers: 0,
            cuda: true,
            only_waits: false,
            yields: false,
            gpu_records: GPU_RECORDS as u32,
            follow: true,
            filters: u32::MAX,
            heap: 0,
            heap_interpreter: 0,
        }
    }
}

impl InjectOptions {
    /// Records nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            collections: false,
            stack_depth: 0,
            steps: false,
            turns: false,
            cuda: false,
            ..Self::default()
        }
    }

    /// Sets the size of the GPU ring to about this many bytes, as nearly as a ring can have them.
    #[must_use]
    pub fn gpu_ring_of(bytes: u32) -> u32 {
        power_of_two(bytes / SLOT_BYTES as u32)
    }

    /// Parses the variable's value; unknown words are ignored, missing ones have their defaults.
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let mut options = Self::default();
        for word in value.split(|byte| *byte == b',') {
            let mut parts = word.splitn(2, |byte| *byte == b'=');
            let (name, Some(value)) = (parts.next().unwrap_or_default(), parts.next()) else {
                continue;
            };
            let Ok(value) = str::from_utf8(value) else { continue };
            let Ok(number) = value.parse::<u32>() else { continue };
            match name {
                b"stack" => options.stack_depth = number,
                b"gc" => options.collections = number != 0,
                b"alloc" => options.allocations = number != 0,
                b"garbage" => {
                    options.garbage = match number {
                        0 => GarbageDetail::Off,
                        1 => GarbageDetail::Types,
                        _ => GarbageDetail::Cycles,
                    }
                }
                b"garbage_ppm" => options.garbage_budget_ppm = number,
                b"steps" => options.steps = number != 0,
                b"turns" => options.turns = number != 0,
                b"layers" => options.layers = number,
                b"cuda" => options.cuda = number != 0,
                b"waits" => options.only_waits = number != 0,
                b"ring" => options.gpu_records = power_of_two(number),
                b"yield" => options.yields = number != 0,
                b"follow" => options.follow = number != 0,
                b"filters" => options.filters = number,
                b"heap" => options.heap = number,
                b"heap_interpreter" => options.heap_interpreter = number,
                _ => {}
            }
        }
        options
    }
}

/// Number of seccomp filters that apply to a process, from its `/proc/PID/status` (proc_pid_status(5)); `None` if
/// unknown. Kernels before 5.9 only state whether there are any: this counts as one.
#[must_use]
pub fn seccomp_filters(status: &[u8]) -> Option<u32> {
    let value = |name: &[u8]| {
        let line = status
            .split(|byte| *byte == b'\n')
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(b":"))?;
        str::from_utf8(line).ok()?.trim().parse::<u32>().ok()
    };
    /// `SECCOMP_MODE_DISABLED`.
    const NONE: u32 = 0;
    match value(b"Seccomp")? {
        NONE => Some(0),
        _ => Some(value(b"Seccomp_filters").unwrap_or(1).max(1)),
    }
}

/// The nearest possible number of slots below.
fn power_of_two(records: u32) -> u32 {
    /// 64 KiB.
    const LEAST: u32 = 1 << 10;
    1 << records.clamp(LEAST, MAX_RECORDS).ilog2()
}

/// Formats the variable's value.
impl fmt::Display for InjectOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "gc={},stack={},alloc={},garbage={},garbage_ppm={},steps={},turns={},layers={},cuda={},waits={},yield={},ring={},follow={},filters={},heap={},heap_interpreter={}",
            u8::from(self.collections),
            self.stack_depth,
            u8::from(self.allocations),
            self.garbage as u8,
            self.garbage_budget_ppm,
            u8::from(self.steps),
            u8::from(self.turns),
            self.layers,
            u8::from(self.cuda),
            u8::from(self.only_waits),
            u8::from(self.yields),
            self.gpu_records,
            u8::from(self.follow),
            self.filters,
            self.heap,
            self.heap_interpreter,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let asked = InjectOptions {
            collections: false,
            stack_depth: 3,
            allocations: true,
            garbage: GarbageDetail::Cycles,
            garbage_budget_ppm: 5,
            steps: false,
            turns: false,
            layers: 9,
            cuda: false,
            only_waits: true,
            yields: true,
            gpu_records: 1 << 12,
            follow: false,
            filters: 2,
            heap: 7,
            heap_interpreter: 1,
        };
        assert_eq!(InjectOptions::parse(asked.to_string().as_bytes()), asked);
        let status = |text: &str| seccomp_filters(text.as_bytes());
        assert_eq!(status("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"), Some(0));
        assert_eq!(status("Seccomp:\t2\nSeccomp_filters:\t3\n"), Some(3));
        assert_eq!((status("Seccomp:\t2\n"), status("Name:\tx\n")), (Some(1), None));
        assert_eq!(InjectOptions::parse(b"stack=x,,new=1,\xff"), InjectOptions::default());
    }
}
