//! Hits of probes and losses, as counted by the programs.

use crate::wire::Counter;
use gctrace_abi::ProbePointKind;

/// Hits and losses that the programs counted since they were loaded, over all CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCounts {
    pub(super) values: [u64; Counter::COUNTERS.0 as usize],
}

impl Default for ProgramCounts {
    fn default() -> Self {
        Self { values: [0; Counter::COUNTERS.0 as usize] }
    }
}

/// Samples of recorded threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Samples, the lost ones included.
    pub taken: u64,
    /// Time that taking them took, in ns; not the interrupt itself.
    pub took_ns: u64,
    /// Switches of recorded threads, by one of 64.
    pub switches: u64,
    /// Time that the program took at them, in ns, by the same.
    pub switches_ns: u64,
    /// System calls in which loops look for input, or wait.
    pub looks: u64,
    /// Time of the program at them, in ns; without the kernel's way to it.
    pub looks_ns: u64,
}

/// Hits of the probe on garbage, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GarbageCounts {
    /// Collections with examined garbage.
    pub examined: u64,
    /// Collections passed over to keep the budget.
    pub skipped: u64,
    /// Collections that had no garbage, or where its list was not found.
    pub empty: u64,
    /// Time that examining took, in ns.
    pub took_ns: u64,
}

impl ProgramCounts {
    fn value(&self, index: u32) -> u64 {
        self.values[index as usize]
    }

    /// Hits of one kind of probe in recorded processes.
    pub fn hits(&self, kind: ProbePointKind) -> u64 {
        self.value(Counter::COUNTER_HITS.0 + kind as u32)
    }

    /// Hits of one kind of probe in processes that are not recorded but run the same files. With
    /// probes in the recorded process alone there are none.
    pub fn foreign_hits(&self, kind: ProbePointKind) -> u64 {
        self.value(Counter::COUNTER_FOREIGN_HITS.0 + kind as u32)
    }

    /// Mean time that the programs took at a hit of this kind, at all its ends, in ns; `None` if no hit
    /// was timed.
    pub fn inside_ns(&self, kind: ProbePointKind) -> Option<f64> {
        let timed = self.value(Counter::COUNTER_TIMED.0 + kind as u32);
        let ns = self.value(Counter::COUNTER_TIMED_NS.0 + kind as u32);
        let ends = if kind.has_return() { 2.0 } else { 1.0 };
        if timed > 0 { Some(ends * ns as f64 / timed as f64) } else { None }
    }

    /// Counts since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut values = self.values;
        for (value, before) in values.iter_mut().zip(before.values) {
            *value = value.saturating_sub(before);
        }
        Self { values }
    }

    /// Children that recorded processes forked.
    pub fn forks(&self) -> u64 {
        self.value(Counter::COUNTER_FORKS.0)
    }

    /// Programs that recorded processes executed.
    pub fn execs(&self) -> u64 {
        self.value(Counter::COUNTER_EXECS.0)
    }

    /// Calls of the collector that collected nothing; these are not pauses.
    pub fn nothing_done(&self) -> u64 {
        self.value(Counter::COUNTER_NOTHING_DONE.0)
    }

    /// Collections that CPython counted but no probe saw: they ran in a function that is not
    /// probed.
    pub fn unprobed(&self) -> u64 {
        self.value(Counter::COUNTER_UNPROBED.0)
    }

    /// Collections with examined garbage, collections passed over to keep the budget, and collections without a list of
    /// garbage.
    pub fn garbage(&self) -> GarbageCounts {
        GarbageCounts {
            examined: self.value(Counter::COUNTER_GARBAGE_WALKED.0),
            skipped: self.value(Counter::COUNTER_GARBAGE_SKIPPED.0),
            empty: self.value(Counter::COUNTER_GARBAGE_EMPTY.0),
            took_ns: self.value(Counter::COUNTER_GARBAGE_NS.0),
        }
    }

    /// Samples that were taken.
    pub fn samples(&self) -> SampleCounts {
        SampleCounts {
            taken: self.value(Counter::COUNTER_SAMPLES.0),
            took_ns: self.value(Counter::COUNTER_SAMPLE_NS.0),
            switches: self.value(Counter::COUNTER_SWITCHES.0),
            switches_ns: self.value(Counter::COUNTER_SWITCH_NS.0),
            looks: self.value(Counter::COUNTER_LOOKS.0),
            looks_ns: self.value(Counter::COUNTER_LOOK_NS.0),
        }
    }

    /// Pauses lost because the ring was full.
    pub fn lost_pauses(&self) -> u64 {
        self.value(Counter::COUNTER_LOST_PAUSES.0)
    }

    /// Other losses in words, with their number; only nonzero ones.
    pub fn lost(&self) -> Vec<(&'static str, u64)> {
        [
            (Counter::COUNTER_LOST_PROCESS_EVENTS, "process events: their ring buffer was full"),
            (Counter::COUNTER_LOST_THREADS, "pauses: too many threads were collecting at once"),
            (Counter::COUNTER_LOST_DEPTH, "pauses: nested too deeply"),
            (Counter::COUNTER_LOST_PROCESSES, "processes: too many at once"),
            (
                Counter::COUNTER_LOST_STACKS,
                "stacks of pauses: the ring buffer was full (--ring-size)",
            ),
            (
                Counter::COUNTER_LOST_GARBAGE,
                "garbage of collections: the ring buffer was full (--ring-size)",
            ),
            (Counter::COUNTER_GARBAGE_AT_ONCE, "garbage of collections: too many at once"),
            (
                Counter::COUNTER_GARBAGE_TOO_LONG,
                "garbage of collections: more than 1,048,576 objects",
            ),
            (Counter::COUNTER_GARBAGE_UNREADABLE, "garbage of collections: not in memory"),
            (Counter::COUNTER_LOST_SAMPLES, "samples: the ring buffer was full (--ring-size)"),
            (
                Counter::COUNTER_LOST_OFF_CPU,
                "times off the CPU: the ring buffer was full (--ring-size)",
            ),
            (
                Counter::COUNTER_LOST_TURNS,
                "long turns of loops: the ring buffer was full (--ring-size)",
            ),
            (Counter::COUNTER_LOST_LOOPS, "waits of loops: more than 512 at once"),
            (Counter::COUNTER_LOST_TYPES, "names of types: the ring buffer was full (--ring-size)"),
        ]
        .into_iter()
        .map(|(counter, what)| (what, self.value(counter.0)))
        .filter(|(_, count)| *count > 0)
        .collect()
    }
}
