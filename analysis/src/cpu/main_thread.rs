//! What the main thread of one process did: it executed something, or was off the CPU for something.

use super::CpuLine;
use super::activity::ThreadActivity;
use super::meanwhile::{Meanwhile, MeanwhileReport};
use super::off_cpu::{LISTED, OffCpuLine, is_fetch, is_own_lock};
use super::spans::{ThreadDid, ThreadSpan};
use crate::bounded::ranked;
use crate::figure::Location;
use crate::paths::package;
use crate::stacks::StackTree;
use crate::time::{add_to, duration_ns, sum};
use gctrace_event::OffCpuReason;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the main thread of a process did: it was on a CPU for `samples` / `hertz` s, off it for
/// `off_cpu_ns` and `off_cpu_in_pauses_ns`, and for the rest of `interval_ns` off it for less than a
/// millisecond each; measured.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MainThreadReport {
    /// The interval that this is about, in ns: the training phase in the process of the verdict if steps are known,
    /// otherwise `observed_ns`.
    pub interval_ns: u64,
    /// Whether it is about training alone.
    pub training: bool,
    /// Its samples.
    pub samples: u64,
    /// Samples in collections.
    pub samples_in_pauses: u64,
    /// The 20 lines with most samples outside of collections, as in `lines` of the process.
    pub lines: Vec<CpuLine>,
    /// The 20 packages with most samples outside of collections, by the innermost Python line: machine code called
    /// from it included.
    pub packages: Vec<PackageSamples>,
    /// Time off the CPU of a millisecond or longer each, outside of collections, in ns.
    pub off_cpu_ns: u64,
    /// The same in collections, in ns.
    pub off_cpu_in_pauses_ns: u64,
    /// The 20 lines and reasons with the most time of `off_cpu_ns`.
    pub off_cpu: Vec<OffCpuLine>,
    /// What other threads of the process executed while it waited for the GIL: as a rule the thread that had it;
    /// `null` if it did not wait.
    pub gil: Option<MeanwhileReport>,
    /// What the threads with a lock did while it waited for that lock; `null` if it did not wait. Inferred for each
    /// wait: of the threads that came back from a wait meanwhile, the most frequent last one, or else a thread that
    /// ran then.
    pub lock: Option<MeanwhileReport>,
    /// What its child processes did while it waited for data; `null` if it did not, or has none.
    pub workers: Option<MeanwhileReport>,
    /// What other threads of the process executed while it waited for data; `null` if it did not, or they
    /// executed nothing.
    pub threads: Option<MeanwhileReport>,
    /// What it loaded itself, as PyTorch's DataLoader without workers does; `null` if it loaded nothing.
    pub loading: Option<LoadingReport>,
    /// Where a process without a loop waits most, for others or for time to pass; `null` with a loop or training steps,
    /// if the process ended by itself, if this is about less than 5 s, and if it waits for less than half of that.
    pub no_loop: Option<OffCpuLine>,
}

/// A shorter recording may have no turn yet. 5 s.
const NO_LOOP_NS: u64 = 5_000_000_000;
/// What waits for less than this part of its time computes.
const WAITS_RATIO: f64 = 0.5;

impl MainThreadReport {
    /// The longest of its waits for others, or for time to pass, if these take most of its time. What makes data for it
    /// is no client.
    pub(crate) fn waits_most(&self) -> Option<OffCpuLine> {
        let is_for_others = |of: &&OffCpuLine| {
            !of.for_data
                && matches!(
                    of.reason,
                    OffCpuReason::Poll
                        | OffCpuReason::Pipe
                        | OffCpuReason::Lock
                        | OffCpuReason::Sleep
                        | OffCpuReason::Process
                )
        };
        let waits = || self.off_cpu.iter().filter(is_for_others);
        let waited_ns = sum(waits().map(|of| of.time_ns)) as f64;
        let is_most = waited_ns >= WAITS_RATIO * self.interval_ns as f64;
        let longest = waits().find(|of| of.line.is_some())?;
        (is_most && self.interval_ns >= NO_LOOP_NS).then(|| longest.clone())
    }

    /// Whether it waited at a line of Python; main threads that do not, as a shell's, execute none.
    pub fn waits_in_python(&self) -> bool {
        self.off_cpu.iter().any(|of| of.line.is_some())
    }
}

/// Data that a main thread fetched itself from PyTorch's dataset; measured.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadingReport {
    /// Its time on a CPU, by samples, and off it, of a millisecond or longer each, outside of collections,
    /// in ns.
    pub time_ns: u64,
    /// The line with most of it.
    pub line: Location,
    /// The time at this line, in ns.
    pub line_ns: u64,
}

/// Samples of lines of an installed package.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PackageSamples {
    /// Its name as imported, `torch` for example.
    pub package: String,
    /// Its samples.
    pub samples: u64,
}

/// Sums over the main thread within an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct MainThread {
    interval_ns: u64,
    activity: ThreadActivity,
    /// When it waited for data, for the GIL, and for a lock of the program.
    data_waits: Vec<(u64, u64)>,
    gil_waits: Vec<(u64, u64)>,
    lock_waits: Vec<(u64, u64)>,
}

impl MainThread {
    /// The main thread of the process with this id, by the activity of its threads.
    pub(crate) fn of(tree: &StackTree, spans: &[ThreadSpan], pid: u32, within: (u64, u64)) -> Self {
        let mut sums = Self { interval_ns: duration_ns(within.0, within.1), ..Self::default() };
        for span in spans.iter().filter(|span| span.tid == pid) {
            let Some((part, (start_ns, end_ns))) = span.within(within) else { continue };
            sums.activity.add(span, span.samples() * part, end_ns - start_ns);
            match span.did {
                _ if span.in_pause => {}
                ThreadDid::Wait { for_data: true, .. } => sums.data_waits.push((start_ns, end_ns)),
                ThreadDid::Wait { reason: OffCpuReason::Gil, .. } => {
                    sums.gil_waits.push((start_ns, end_ns));
                }
                ThreadDid::Wait { reason: OffCpuReason::Lock, .. }
                    if span.node.is_some_and(|node| is_own_lock(tree.frames(node))) =>
                {
                    sums.lock_waits.push((start_ns, end_ns));
                }
                _ => {}
            }
        }
        sums
    }

    /// `own`: what its threads did; `others`: the waits of its threads other than the main one; `children`: what
    /// the threads of each child process did.
    pub(crate) fn report<'a>(
        &self,
        tree: &StackTree,
        hertz: u64,
        (own, pid): (&[ThreadSpan], u32),
        others: &[ThreadSpan],
        children: impl IntoIterator<Item = &'a [ThreadSpan]>,
    ) -> MainThreadReport {
        let activity = &self.activity;
        let whole = |samples: f64| samples.round() as u64;
        let lines = activity.lines(tree);
        let lines = lines.map(|(line, samples)| CpuLine { line, samples: whole(samples) });
        let mut gil = Meanwhile::of(&self.gil_waits);
        let mut threads: BTreeMap<u32, Vec<&ThreadSpan>> = BTreeMap::new();
        for span in own.iter().filter(|span| span.tid != pid) {
            threads.entry(span.tid).or_default().push(span);
        }
        let mut loaders = Meanwhile::of(&self.data_waits);
        for spans in threads.into_values() {
            gil.add(spans.iter().copied());
            loaders.add(spans);
        }
        let holders = Meanwhile::of_holders(
            &self.lock_waits,
            own.iter().filter(|span| span.tid != pid).chain(others),
        );
        let mut workers = Meanwhile::of(&self.data_waits);
        children.into_iter().for_each(|spans| workers.add(spans));
        MainThreadReport {
            interval_ns: self.interval_ns,
            training: false,
            samples: whole(activity.ran.values().sum::<f64>() + activity.ran_in_pauses),
            samples_in_pauses: whole(activity.ran_in_pauses),
            lines: ranked(lines, LISTED, |line| line.samples),
            packages: self.packages(tree),
            off_cpu_ns: activity.off_cpu.sum_ns(),
            off_cpu_in_pauses_ns: activity.off_cpu_in_pauses_ns,
            off_cpu: activity.off_cpu.lines(tree),
            gil: gil.report(tree, hertz),
            lock: holders.report(tree, hertz),
            workers: workers.report(tree, hertz),
            threads: loaders.report(tree, hertz),
            loading: self.loading(tree, hertz),
            no_loop: None,
        }
    }

    fn packages(&self, tree: &StackTree) -> Vec<PackageSamples> {
        let mut by_package: BTreeMap<String, f64> = BTreeMap::new();
        for (node, samples) in &self.activity.ran {
            let package = || package(&tree.frames((*node)?).next()?.file);
            if let Some(package) = package() {
                *by_package.entry(package).or_default() += samples;
            }
        }
        let packages = by_package.into_iter();
        let packages = packages
            .map(|(package, samples)| PackageSamples { package, samples: samples.round() as u64 });
        ranked(packages, LISTED, |of| of.samples)
    }

    fn loading(&self, tree: &StackTree, hertz: u64) -> Option<LoadingReport> {
        let sample_ns = 1e9 / hertz.max(1) as f64;
        let ran =
            self.activity.ran.iter().map(|(node, samples)| (*node, (samples * sample_ns) as u64));
        let mut by_line: BTreeMap<&Location, u64> = BTreeMap::new();
        for (node, ns) in ran.chain(self.activity.off_cpu.by_stack()) {
            if let Some(node) = node
                && tree.frames(node).any(is_fetch)
            {
                add_to(by_line.entry(tree.own_line(node)).or_default(), ns);
            }
        }
        let (line, line_ns) = by_line.iter().max_by_key(|(_, ns)| **ns)?;
        let time_ns = sum(by_line.values().copied());
        Some(LoadingReport { time_ns, line: (*line).clone(), line_ns: *line_ns })
    }
}
