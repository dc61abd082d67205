//! What the main thread of one process did: it executed something, or was off the CPU for something.

use super::meanwhile::Meanwhile;
use super::off_cpu::{LISTED, OffCpuPlaces, is_fetch, is_own_lock};
use super::stacks::{NodeId, StackTree};
use super::thread_spans::{ThreadDid, ThreadSpan};
use crate::paths::package;
use crate::report::{CpuLine, LoadingReport, Location, MainThreadReport, PackageSamples};
use crate::time::{add_to, sum};
use gctrace_event::OffCpuReason;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Sums over the main thread within an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct MainThread {
    interval_ns: u64,
    /// Samples by stack, outside of collections; parts of those of a record that is partly within.
    ran: BTreeMap<Option<NodeId>, f64>,
    ran_in_pauses: f64,
    /// Outside of collections.
    off_cpu: OffCpuPlaces,
    off_cpu_in_pauses_ns: u64,
    /// When it waited for data, for the GIL, and for a lock of the program.
    data_waits: Vec<(u64, u64)>,
    gil_waits: Vec<(u64, u64)>,
    lock_waits: Vec<(u64, u64)>,
}

impl MainThread {
    /// Of the process with this id, by what its threads did.
    pub(crate) fn of(tree: &StackTree, spans: &[ThreadSpan], pid: u32, within: (u64, u64)) -> Self {
        let mut sums = Self { interval_ns: within.1.saturating_sub(within.0), ..Self::default() };
        for span in spans.iter().filter(|span| span.tid == pid) {
            let Some((part, (start_ns, end_ns))) = span.within(within) else {
                continue;
            };
            match span.did {
                ThreadDid::Run(samples) if span.in_pause => {
                    sums.ran_in_pauses += samples as f64 * part
                }
                ThreadDid::Run(samples) => {
                    *sums.ran.entry(span.node).or_default() += samples as f64 * part;
                }
                ThreadDid::Wait { .. } if span.in_pause => {
                    add_to(&mut sums.off_cpu_in_pauses_ns, end_ns - start_ns);
                }
                ThreadDid::Wait { reason, for_data } => {
                    sums.off_cpu.add((reason, for_data), span.node, end_ns - start_ns);
                    if for_data {
                        sums.data_waits.push((start_ns, end_ns));
                    } else if reason == OffCpuReason::Gil {
                        sums.gil_waits.push((start_ns, end_ns));
                    } else if reason == OffCpuReason::Lock
                        && span.node.is_some_and(|node| is_own_lock(tree.frames(node)))
                    {
                        sums.lock_waits.push((start_ns, end_ns));
                    }
                }
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
        let mut by_line: BTreeMap<Option<&Location>, f64> = BTreeMap::new();
        for (node, samples) in &self.ran {
            let line = node.map(|node| tree.own_line(node));
            *by_line.entry(line).or_default() += samples;
        }
        let whole = |samples: f64| samples.round() as u64;
        let lines = by_line.into_iter();
        let lines =
            lines.map(|(line, samples)| CpuLine { line: line.cloned(), samples: whole(samples) });
        let mut lines: Vec<CpuLine> = lines.collect();
        lines.sort_by_key(|line| Reverse(line.samples));
        lines.truncate(LISTED);
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
            samples: whole(self.ran.values().sum::<f64>() + self.ran_in_pauses),
            samples_in_pauses: whole(self.ran_in_pauses),
            lines,
            packages: self.packages(tree),
            off_cpu_ns: self.off_cpu.sum_ns(),
            off_cpu_in_pauses_ns: self.off_cpu_in_pauses_ns,
            off_cpu: self.off_cpu.lines(tree),
            gil: gil.report(tree, hertz),
            lock: holders.report(tree, hertz),
            workers: workers.report(tree, hertz),
            threads: loaders.report(tree, hertz),
            loading: self.loading(tree, hertz),
        }
    }

    fn packages(&self, tree: &StackTree) -> Vec<PackageSamples> {
        let mut by_package: BTreeMap<String, f64> = BTreeMap::new();
        for (node, samples) in &self.ran {
            let line = node.and_then(|node| tree.frames(node).next());
            if let Some(package) = line.and_then(|line| package(&line.file)) {
                *by_package.entry(package).or_default() += samples;
            }
        }
        let packages = by_package.into_iter();
        let packages = packages
            .map(|(package, samples)| PackageSamples { package, samples: samples.round() as u64 });
        let mut packages: Vec<PackageSamples> = packages.collect();
        packages.sort_by_key(|of| Reverse(of.samples));
        packages.truncate(LISTED);
        packages
    }

    fn loading(&self, tree: &StackTree, hertz: u64) -> Option<LoadingReport> {
        let sample_ns = 1e9 / hertz.max(1) as f64;
        let ran = self.ran.iter().map(|(node, samples)| (*node, (samples * sample_ns) as u64));
        let mut by_line: BTreeMap<&Location, u64> = BTreeMap::new();
        for (node, ns) in ran.chain(self.off_cpu.by_stack()) {
            if let Some(node) = node.filter(|node| tree.frames(*node).any(is_fetch)) {
                add_to(by_line.entry(tree.own_line(node)).or_default(), ns);
            }
        }
        let (line, line_ns) = by_line.iter().max_by_key(|(_, ns)| **ns)?;
        let time_ns = sum(by_line.values().copied());
        Some(LoadingReport { time_ns, line: (*line).clone(), line_ns: *line_ns })
    }
}
