//! What the main thread of one process did: it executed something, or was off the CPU for something.

use super::meanwhile::Meanwhile;
use super::off_cpu::{LISTED, is_fetch, is_own_lock};
use super::stacks::StackTree;
use super::thread_activity::ThreadActivity;
use super::thread_spans::{ThreadDid, ThreadSpan};
use crate::bounded::ranked;
use crate::paths::package;
use crate::report::{CpuLine, LoadingReport, Location, MainThreadReport, PackageSamples};
use crate::time::{add_to, duration_ns, sum};
use gctrace_event::OffCpuReason;
use std::collections::BTreeMap;

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
    /// Of the process with this id, by what its threads did.
    pub(crate) fn of(tree: &StackTree, spans: &[ThreadSpan], pid: u32, within: (u64, u64)) -> Self {
        let mut sums = Self { interval_ns: duration_ns(within.0, within.1), ..Self::default() };
        for span in spans.iter().filter(|span| span.tid == pid) {
            let Some((part, (start_ns, end_ns))) = span.within(within) else {
                continue;
            };
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
        }
    }

    fn packages(&self, tree: &StackTree) -> Vec<PackageSamples> {
        let mut by_package: BTreeMap<String, f64> = BTreeMap::new();
        for (node, samples) in &self.activity.ran {
            let line = node.and_then(|node| tree.frames(node).next());
            if let Some(package) = line.and_then(|line| package(&line.file)) {
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
            if let Some(node) = node.filter(|node| tree.frames(*node).any(is_fetch)) {
                add_to(by_line.entry(tree.own_line(node)).or_default(), ns);
            }
        }
        let (line, line_ns) = by_line.iter().max_by_key(|(_, ns)| **ns)?;
        let time_ns = sum(by_line.values().copied());
        Some(LoadingReport { time_ns, line: (*line).clone(), line_ns: *line_ns })
    }
}
