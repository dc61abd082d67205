//! What other threads and processes did while a main thread waited for them.

use super::activity::ThreadActivity;
use super::off_cpu::{LISTED, OffCpuLine};
use super::spans::{ThreadDid, ThreadSpan};
use crate::bounded::ranked;
use crate::figure::Location;
use crate::stacks::StackTree;
use crate::time::intervals::Intervals;
use crate::time::{after, sum};
use gctrace_event::OffCpuReason;
use serde::Serialize;
use std::collections::BTreeMap;

/// What others did while the main thread waited for them: CPU time of all their threads; off the CPU their
/// main threads only, as others may idle, except for a lock; measured.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The line with their longest running time, and that time in ns.
    pub(crate) fn longest_line(&self) -> Option<(&Location, u64)> {
        let with_line = self.lines.iter().filter_map(|of| Some((of.line.as_ref()?, of.cpu_ns)));
        with_line.max_by_key(|(_, ns)| *ns)
    }

    /// Their longest activity at one line, running or off the CPU.
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
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeanwhileLine {
    /// The line; `null`: no Python stack.
    pub line: Option<Location>,
    /// Its CPU time by samples, in ns.
    pub cpu_ns: u64,
}

/// Sums over the child processes, or the process's other threads, within the waits of a main thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Meanwhile {
    waits: Intervals,
    /// From the first to the last known time of each of them.
    lives: Vec<(u64, u64)>,
    activity: ThreadActivity,
}

impl Meanwhile {
    /// Sums for a thread that waited in these intervals, in any order.
    pub(super) fn of(waits: &[(u64, u64)]) -> Self {
        Self { waits: waits.iter().copied().collect(), ..Self::default() }
    }

    /// For a thread that waited for a lock in these intervals: what the thread with the lock did. The trace does not
    /// name this thread: of the threads that came back from a wait meanwhile it is the most frequent last one, or
    /// else a thread that ran then.
    pub(super) fn of_holders<'a>(
        waits: &[(u64, u64)],
        others: impl Iterator<Item = &'a ThreadSpan>,
    ) -> Self {
        if waits.is_empty() {
            return Self::default();
        }
        let mut threads: BTreeMap<u32, Vec<&ThreadSpan>> = BTreeMap::new();
        for span in others {
            threads.entry(span.tid).or_default().push(span);
        }
        for spans in threads.values_mut() {
            spans.sort_by_key(|span| span.span());
        }
        let may_have_it = |wait: (u64, u64)| {
            let rank = move |(tid, spans): (&u32, &Vec<&ThreadSpan>)| {
                Some((released_at(spans, wait)?, *tid))
            };
            threads.iter().filter_map(rank)
        };
        // Another thread may come back by chance: the most frequent last one counts more.
        let mut times_last: BTreeMap<u32, usize> = BTreeMap::new();
        for wait in waits {
            if let Some((_, tid)) = may_have_it(*wait).max() {
                *times_last.entry(tid).or_default() += 1;
            }
        }
        let mut holders: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for wait in waits {
            let often = |(at, tid): &((bool, u64), u32)| (at.0, times_last.get(tid).copied(), at.1);
            if let Some((_, tid)) = may_have_it(*wait).max_by_key(often) {
                holders.entry(tid).or_default().push(*wait);
            }
        }
        let mut all = Self::of(waits);
        for (tid, waits) in holders {
            let mut one = Self::of(&waits);
            one.add(threads.remove(&tid).into_iter().flatten());
            all.lives.append(&mut one.lives);
            all.activity.merge(&one.activity);
        }
        all
    }

    /// Adds what one of them did.
    pub(super) fn add<'a>(&mut self, spans: impl IntoIterator<Item = &'a ThreadSpan>) {
        let mut seen = false;
        let (mut from_ns, mut until_ns) = (u64::MAX, 0);
        for span in spans {
            let (start_ns, end_ns) = span.span();
            (from_ns, until_ns) = (from_ns.min(start_ns), until_ns.max(end_ns));
            let within_ns = self.waits.length_within(start_ns, end_ns);
            if within_ns == 0 {
                continue;
            }
            seen = true;
            let samples = span.samples() * within_ns as f64 / (end_ns - start_ns) as f64;
            self.activity.add(span, samples, within_ns);
        }
        if seen {
            self.lives.push((from_ns, until_ns));
        }
    }

    /// The most that there were at once: a DataLoader starts other workers in each epoch.
    fn at_once(&self) -> u64 {
        const ENDS: i64 = -1;
        const STARTS: i64 = 1;
        let edges = self.lives.iter().flat_map(|(from, until)| [(*from, STARTS), (*until, ENDS)]);
        let mut edges: Vec<(u64, i64)> = edges.collect();
        edges.sort_unstable();
        let mut running = 0;
        let counts = edges.iter().map(|(_, change)| {
            running += change;
            running
        });
        if let Some(most) = counts.max() { most.unsigned_abs() } else { 0 }
    }

    /// `None` if nothing was seen of any.
    pub(super) fn report(&self, tree: &StackTree, hertz: u64) -> Option<MeanwhileReport> {
        let others = self.at_once();
        if others == 0 {
            return None;
        }
        let ns = |samples: f64| (samples * 1e9 / hertz.max(1) as f64) as u64;
        let Self { waits, activity, .. } = self;
        let lines = || activity.lines(tree).map(|(line, samples)| (line, ns(samples)));
        let listed = lines().map(|(line, cpu_ns)| MeanwhileLine { line, cpu_ns });
        Some(MeanwhileReport {
            others,
            waited_ns: waits.length_ns(),
            cpu_ns: sum(lines().map(|(_, cpu_ns)| cpu_ns)),
            lines: ranked(listed, LISTED, |line| line.cpu_ns),
            collecting_ns: sum([ns(activity.ran_in_pauses), activity.off_cpu_in_pauses_ns]),
            off_cpu_ns: activity.off_cpu.sum_ns(),
            off_cpu: activity.off_cpu.lines(tree),
        })
    }
}

/// How likely a thread released the lock at the end of this wait: whether it came back from a wait within it, and
/// when; `None` if it did nothing then. `spans` in the order of their start.
fn released_at(spans: &[&ThreadSpan], (start_ns, end_ns): (u64, u64)) -> Option<(bool, u64)> {
    /// The waiting thread runs so much later than the other's wait ends at most, as it is woken meanwhile.
    const SLACK_NS: u64 = 1_000_000;
    let later = spans.partition_point(|span| span.span().0 < end_ns);
    // A thread's spans hardly overlap: of the last few one is the last to end.
    const LAST: usize = 8;
    let last = &spans[later.saturating_sub(LAST)..later];
    let ends = last.iter().filter_map(|span| {
        let until_ns = span.span().1;
        match span.did {
            ThreadDid::Run(_) if until_ns > start_ns => Some((false, until_ns.min(end_ns))),
            ThreadDid::Wait { reason: OffCpuReason::Lock, .. } | ThreadDid::Run(_) => None,
            ThreadDid::Wait { .. } => {
                let is_within = until_ns > start_ns && until_ns <= after(end_ns, SLACK_NS);
                if is_within { Some((true, until_ns)) } else { None }
            }
        }
    });
    ends.max()
}

#[cfg(test)]
mod tests {
    use super::Meanwhile;

    #[test]
    fn workers_of_two_epochs_are_not_added_up() {
        let of = |lives: &[(u64, u64)]| Meanwhile { lives: lives.to_vec(), ..Meanwhile::default() };
        assert_eq!(of(&[(0, 10), (1, 9), (10, 20), (11, 20)]).at_once(), 2);
        assert_eq!(of(&[(0, 10), (1, 9), (5, 20)]).at_once(), 3);
        assert_eq!(of(&[]).at_once(), 0);
    }
}
