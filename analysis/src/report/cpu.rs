//! The parts of a report about what threads executed, and for what they were off the CPU.

use super::Location;
use crate::time::sum;
use gctrace_event::OffCpuReason;
use schemars::JsonSchema;
use serde::Serialize;

/// What the threads of a process executed, by samples; measured. A thread that waits has none. Shares are
/// of `samples`; as CPU time a sample is 1 / `hertz` s.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CpuReport {
    /// Index of the trace in `traces`.
    pub trace: usize,
    /// Process id on the host.
    pub pid: u32,
    /// Time for which the process was observed, in ns.
    pub observed_ns: u64,
    /// Samples a second of CPU time of a thread.
    pub hertz: u64,
    /// All samples.
    pub samples: u64,
    /// Those of threads in a collection.
    pub in_pauses: u64,
    /// What Python code collections ran, finalizers for example (inferred); `null` if none was seen.
    pub called: Option<CalledSamples>,
    /// Threads with samples.
    pub threads: u64,
    /// Samples of the thread that has most.
    pub busiest_thread: u64,
    /// The 20 lines with most: of each stack the innermost line that is no library's, without one the
    /// innermost.
    pub lines: Vec<CpuLine>,
    /// The 20 files of machine code with most.
    pub files: Vec<CpuFile>,
    /// What its main thread did, times off the CPU included; `null` if none were recorded.
    pub main_thread: Option<MainThreadReport>,
}

/// Functions that ran in collections and triggered none: finalizers, callbacks, generators that were closed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CalledSamples {
    /// Samples in them.
    pub samples: u64,
    /// The same as a share of all samples in collections.
    pub ratio: f64,
    /// The one with most, at one of its lines.
    pub line: Location,
    /// Whether that one ran outside of collections too, as a generator does and a function in `gc.callbacks` does
    /// not.
    pub also_outside: bool,
}

/// What the main thread of a process did: it was on a CPU for `samples` / `hertz` s, off it for
/// `off_cpu_ns` and `off_cpu_in_pauses_ns`, and for the rest of `interval_ns` off it for less than a
/// millisecond each; measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MainThreadReport {
    /// The interval that this is about, in ns: the phase of training in the process that the verdict is about,
    /// if steps are known, otherwise `observed_ns`.
    pub interval_ns: u64,
    /// Whether it is about training alone.
    pub training: bool,
    /// Its samples.
    pub samples: u64,
    /// Those in collections.
    pub samples_in_pauses: u64,
    /// The 20 lines with most samples outside of collections, as in `lines` of the process.
    pub lines: Vec<CpuLine>,
    /// The 20 packages with most samples outside of collections, of the innermost Python line: what it calls of
    /// their machine code included.
    pub packages: Vec<PackageSamples>,
    /// Time off the CPU of a millisecond or longer each, outside of collections, in ns.
    pub off_cpu_ns: u64,
    /// The same in collections, in ns.
    pub off_cpu_in_pauses_ns: u64,
    /// The 20 lines and reasons with the most time of `off_cpu_ns`.
    pub off_cpu: Vec<OffCpuLine>,
    /// What other threads of the process executed while it waited for the GIL: as a rule the one that had it;
    /// `null` if it did not wait.
    pub gil: Option<MeanwhileReport>,
    /// What the threads that had a lock did while it waited for that lock: each time one that came back from a wait
    /// meanwhile, the one that most often was the last to, or else one that ran then (inferred); `null` if it did not
    /// wait.
    pub lock: Option<MeanwhileReport>,
    /// What its child processes did while it waited for data; `null` if it did not, or has none.
    pub workers: Option<MeanwhileReport>,
    /// What other threads of the process executed while it waited for data; `null` if it did not, or they
    /// executed nothing.
    pub threads: Option<MeanwhileReport>,
    /// What it loaded itself, as PyTorch's DataLoader without workers does; `null` if it did not.
    pub loading: Option<LoadingReport>,
}

impl MainThreadReport {
    /// Whether it waited at a line of Python; main threads that do not, as a shell's, execute none.
    #[must_use]
    pub fn waits_in_python(&self) -> bool {
        self.off_cpu.iter().any(|of| of.line.is_some())
    }
}

/// What a main thread fetched itself of PyTorch's dataset; measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LoadingReport {
    /// Its time on a CPU, by samples, and off it, of a millisecond or longer each, outside of collections,
    /// in ns.
    pub time_ns: u64,
    /// The line with most of it.
    pub line: Location,
    /// The time at this line, in ns.
    pub line_ns: u64,
}

/// Time off the CPU at one Python line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OffCpuLine {
    /// What the thread waited for, by its system call.
    #[schemars(with = "String")]
    pub reason: OffCpuReason,
    /// It waited for what another thread or process makes: in PyTorch's DataLoader, or in a queue, pipe,
    /// pool or future of the standard library.
    pub for_data: bool,
    /// The line; `null`: it has no Python stack, it was preempted, or the stack was not taken, as the
    /// waits were too many.
    pub line: Option<Location>,
    /// Number of times of a millisecond or longer.
    pub times: u64,
    /// Their length together, in ns.
    pub time_ns: u64,
}

/// What others did while the main thread waited for them: CPU time of all their threads; off the CPU their
/// main threads only, as others may idle, except for a lock; measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MeanwhileReport {
    /// Number of child processes, or of threads, that did anything meanwhile.
    pub others: u64,
    /// For how long the main thread waited, in ns.
    pub waited_ns: u64,
    /// CPU time meanwhile, outside of collections, in ns.
    pub cpu_ns: u64,
    /// The 20 lines with most of `cpu_ns`.
    pub lines: Vec<MeanwhileLine>,
    /// Time in collections meanwhile, in ns.
    pub collecting_ns: u64,
    /// Time off the CPU meanwhile, of a millisecond or longer each, in ns.
    pub off_cpu_ns: u64,
    /// The 20 lines and reasons with the most of `off_cpu_ns`.
    pub off_cpu: Vec<OffCpuLine>,
}

impl MeanwhileReport {
    /// The line at which they ran the longest, with that time in ns.
    #[must_use]
    pub(crate) fn longest_line(&self) -> Option<(&Location, u64)> {
        let with_line = self.lines.iter().filter_map(|of| Some((of.line.as_ref()?, of.cpu_ns)));
        with_line.max_by_key(|(_, ns)| *ns)
    }

    /// What they did the longest at one line, running or off the CPU.
    #[must_use]
    pub(crate) fn longest(&self) -> Option<OthersDid<'_>> {
        let share = |ns: u64| (ns as f64 / self.waited_ns.max(1) as f64).min(1.0);
        let runs = self.longest_line().map(|(line, ns)| (ns, None, line, self.cpu_ns));
        let waits = self.off_cpu.iter().filter_map(|of| {
            let same = self.off_cpu.iter().filter(|other| other.reason == of.reason);
            let all_ns = sum(same.map(|other| other.time_ns));
            Some((of.time_ns, Some(of.reason), of.line.as_ref()?, all_ns))
        });
        let all = runs.into_iter().chain(waits);
        let (line_ns, did, line, all_ns) = all.max_by_key(|(ns, ..)| *ns)?;
        Some(OthersDid { did, share: share(all_ns), line, line_share: share(line_ns) })
    }
}

/// What others did while a main thread waited for them. Shares are of that time.
#[derive(Debug)]
pub(crate) struct OthersDid<'a> {
    /// They are off the CPU for this reason; `None`: they run.
    pub(crate) did: Option<OffCpuReason>,
    /// The share of that.
    pub(crate) share: f64,
    /// The line with most of it.
    pub(crate) line: &'a Location,
    /// The share at this line.
    pub(crate) line_share: f64,
}

impl OthersDid<'_> {
    pub(crate) fn waits_for_disk(&self) -> bool {
        matches!(self.did, Some(OffCpuReason::Disk | OffCpuReason::PageFault))
    }
}

/// CPU time at one Python line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MeanwhileLine {
    /// The line; `null`: no Python stack.
    pub line: Option<Location>,
    /// Its CPU time by samples, in ns.
    pub cpu_ns: u64,
}

/// Samples of a Python line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CpuLine {
    /// The line; `null`: no Python stack, as in native threads.
    pub line: Option<Location>,
    /// Its samples, those of the functions that it calls included.
    pub samples: u64,
}

/// Samples of lines of an installed package.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PackageSamples {
    /// Its name as imported, `torch` for example.
    pub package: String,
    /// Its samples.
    pub samples: u64,
}

/// Samples in the code of a file.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CpuFile {
    /// Name of the executable or library, without its folder; `[kernel]`: system calls and page faults;
    /// `null`: unknown, code that was generated for example.
    pub file: Option<String>,
    /// Samples in it.
    pub samples: u64,
}
