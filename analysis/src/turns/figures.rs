//! The report on the loop of a process.

use super::lengths::Lengths;
use crate::figure::Location;
use gctrace_event::{OffCpuReason, THREAD_CALL, WORK_CALL};
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt;

/// Threads that are busy for less than this part of one thread's time are no service, beside another loop.
pub(super) const BACKGROUND: f64 = 0.02;

/// The loop of a process: a thread that waits for input again and again at the same place. What it does from the return
/// of a wait to the next is a turn. Measured; lengths to one part in 64.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoopReport {
    /// Index of the trace in `traces`.
    pub trace: usize,
    /// Process id on the host.
    pub pid: u32,
    /// Kernel id of the thread; of threads with one turn each, of the main thread.
    pub tid: u32,
    /// Whether that is the main thread.
    pub main_thread: bool,
    /// Threads of a pool, which wait at the same line for work or read there; 1 of any other loop.
    pub threads: usize,
    /// The call in which it waits, `epoll_wait` for example; `queue` where it waits for work from another thread; `thread`
    /// where a thread is started for each piece of work, whose life is a turn.
    pub call: String,
    /// The line that calls it, or that starts the threads; `null` if no stack was taken.
    pub line: Option<Location>,
    /// Its first wait, in ns after the start of the trace.
    pub since_start_ns: u64,
    /// Time in turns and waits, in ns; of threads with one turn each, from the first of them on.
    pub observed_ns: u64,
    /// Number of turns.
    pub turns: u64,
    /// `turns` per second of `observed_ns`. Turns of several threads: per second since the first turn.
    pub turns_per_s: Option<f64>,
    /// Whether a look for input that does not wait ends a turn, as in `asyncio` while callbacks are ready. Otherwise
    /// each turn is a busy period.
    pub sees_looks: bool,
    /// Share of `observed_ns` in turns; of threads with one turn each, how many of them there are at a time.
    pub busy_ratio: Option<f64>,
    /// Times between two waits: one or several turns without a wait.
    pub busy_periods: u64,
    /// The longest of them, in ns.
    pub longest_busy_ns: u64,
    /// How long turns are.
    pub figures: TurnFigures,
    /// How long they would be without collections, at most: each long turn less its collections. What queued up meanwhile
    /// is still in the turns after it. `null` if no long turn contains one.
    pub without_collections: Option<TurnFigures>,
    /// Long turns that contain collections, or waited for a collection in another thread.
    pub collected_turns: u64,
    /// The 10 longest turns, as far as they were recorded one by one.
    pub longest: Vec<TurnReport>,
    /// The next ones that are nearly as long as the first, at most 90: ten may be by one of several equal causes.
    #[serde(skip)]
    pub(crate) as_long: Vec<TurnReport>,
}

/// The distribution of turns.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnFigures {
    /// Median, in ns.
    pub p50_ns: Option<u64>,
    /// 99 % of turns are not longer, in ns.
    pub p99_ns: Option<u64>,
    /// 99.9 % of turns are not longer, in ns.
    pub p999_ns: Option<u64>,
    /// The longest, in ns.
    pub longest_ns: u64,
    /// What arrives at a random moment waits so long for the end of the turn, in ns, in 99 % of the cases at most.
    pub lag_p99_ns: Option<u64>,
    /// Share of the time in which an arrival waits longer than 10 ms.
    pub late_10_ms_ratio: Option<f64>,
    /// Share of the time in which an arrival waits longer than 100 ms.
    pub late_100_ms_ratio: Option<f64>,
}

/// A long turn.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnReport {
    /// Its start, in ns after the start of the trace.
    pub since_start_ns: u64,
    /// Its length, in ns.
    pub length_ns: u64,
    /// What it was spent on, the most first. The parts add up to `length_ns`.
    pub parts: Vec<TurnPart>,
}

/// A part of a turn.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnPart {
    /// The cause.
    pub cause: TurnCause,
    /// Its time, in ns.
    pub time_ns: u64,
    /// Of a wait, its line: each of the three with most time has a part of its own, by waits of a millisecond or longer.
    /// Otherwise the line with most samples; of a wait for the GIL the line that another thread executed meanwhile.
    /// `null` if unknown.
    pub line: Option<Location>,
}

/// What a part of a turn was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TurnCause {
    /// A collection in this thread, with its waits.
    Collection,
    /// A collection in another thread, which had the GIL.
    CollectionElsewhere,
    /// It was on a CPU.
    OwnCode,
    /// It was off the CPU. Only kernel probes see why.
    OffCpu,
    /// It waited for the GIL.
    Gil,
    /// It waited for a lock.
    Lock,
    /// It waited for other files or sockets to be ready.
    Poll,
    /// It read from or wrote to a pipe or a socket.
    Pipe,
    /// It slept.
    Sleep,
    /// It waited for another process to start or to end.
    Process,
    /// It waited for a disk.
    Disk,
    /// It waited for a page of its memory.
    PageFault,
    /// It waited in a device's driver.
    Driver,
    /// It could have run: it was preempted, or woken and not run yet.
    Cpu,
    /// It was stopped.
    Stopped,
    /// It waited for something else.
    Other,
}

impl LoopReport {
    /// The loop of a service comes first: one that waits for several inputs at once, then one that is held up, then the one
    /// of the process that the verdict is about (`judged`: its trace and id), then the one with most time in turns. Who
    /// asks and waits for the answer has turns too.
    pub(crate) fn rank(&self, judged: Option<(usize, u32)>) -> impl Ord + use<> {
        let is_judged = judged == Some((self.trace, self.pid));
        let busy_ns = self.busy_ratio.map_or(0.0, |ratio| ratio * self.observed_ns as f64);
        let is_last = (self.is_in_background(), !self.waits_for_many());
        (is_last, !self.is_held_up(), !is_judged, Reverse(busy_ns as u64), self.trace, self.pid)
    }

    /// Whether its threads get work from other threads: a pool, the consumer of a queue, a thread for each request.
    #[must_use]
    pub fn takes_work(&self) -> bool {
        self.call == WORK_CALL || self.is_of_lives()
    }

    /// Whether its turns are of several threads, which share the work of the process.
    #[must_use]
    pub fn is_of_several(&self) -> bool {
        self.takes_work() || self.threads > 1
    }

    /// Whether each turn is the life of a thread.
    #[must_use]
    pub fn is_of_lives(&self) -> bool {
        self.call == THREAD_CALL
    }

    /// Whether its threads are seldom busy, like a log writer.
    #[must_use]
    pub fn is_in_background(&self) -> bool {
        let busy = self.busy_ratio.unwrap_or(0.0) * self.threads as f64;
        self.takes_work() && busy < BACKGROUND
    }

    /// Whether it waits for several inputs, or for connections.
    #[must_use]
    pub fn waits_for_many(&self) -> bool {
        gctrace_event::waits_for_many(&self.call)
    }
}

impl TurnFigures {
    /// The same, without the figures of arrivals.
    pub(super) fn without_arrivals(self) -> Self {
        Self { lag_p99_ns: None, late_10_ms_ratio: None, late_100_ms_ratio: None, ..self }
    }

    /// `time_ns`: in turns and waits.
    /// `arrivals`: times in which an arrival waits for their end; collections of other threads while the loop waits are
    /// among them.
    pub(super) fn of(lengths: &Lengths, arrivals: &Lengths, longest_ns: u64, time_ns: u64) -> Self {
        Self {
            p50_ns: lengths.quantile_ns(0.5).map(|ns| ns.min(longest_ns)),
            p99_ns: lengths.quantile_ns(0.99).map(|ns| ns.min(longest_ns)),
            p999_ns: lengths.quantile_ns(0.999).map(|ns| ns.min(longest_ns)),
            longest_ns,
            lag_p99_ns: arrivals.lag_ns(0.99, time_ns),
            late_10_ms_ratio: arrivals.late_share(10_000_000, time_ns),
            late_100_ms_ratio: arrivals.late_share(100_000_000, time_ns),
        }
    }
}

impl TurnCause {
    pub(super) fn of(reason: OffCpuReason) -> Self {
        match reason {
            OffCpuReason::Gil => Self::Gil,
            OffCpuReason::Lock => Self::Lock,
            OffCpuReason::Poll => Self::Poll,
            OffCpuReason::Pipe => Self::Pipe,
            OffCpuReason::Sleep => Self::Sleep,
            OffCpuReason::Process => Self::Process,
            OffCpuReason::Disk => Self::Disk,
            OffCpuReason::PageFault => Self::PageFault,
            OffCpuReason::Driver => Self::Driver,
            OffCpuReason::Cpu => Self::Cpu,
            OffCpuReason::Stopped => Self::Stopped,
            OffCpuReason::Other => Self::Other,
        }
    }
}

/// As in "81.8 ms in a collection".
impl fmt::Display for TurnCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Collection => "in a collection",
            Self::CollectionElsewhere => "behind a collection of another thread",
            Self::OwnCode => "on the CPU",
            Self::OffCpu => "off the CPU, kernel probes say why",
            Self::Gil => "waiting for the GIL",
            Self::Lock => "waiting for a lock",
            Self::Poll => "waiting for other input",
            Self::Pipe => "reading or writing",
            Self::Sleep => "sleeping",
            Self::Process => "waiting for a process",
            Self::Disk => "waiting for the disk",
            Self::PageFault => "waiting for memory",
            Self::Driver => "waiting for a driver",
            Self::Cpu => "waiting for a CPU",
            Self::Stopped => "stopped",
            Self::Other => "waiting for something else",
        })
    }
}
