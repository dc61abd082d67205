//! Matches kernels of one rank with the collectives of others at a given clock offset.
//!
//! Knows no communicators by name: decides whether a chain of kernels and the collectives of a
//! communicator are the same.

use super::kernels::{CollectiveKernel, CollectiveKernels, CollectiveLabel};
use crate::gpu::timeline::{NameIndex, OpIndex};
use crate::time::offset::TOLERANCE_NS;
use crate::time::{difference, later, offset, signed};

/// This many tenths of the kernels of the side with fewer must match: some profiles are thinned
/// out, some start later than others.
pub(super) const FEWEST_TENTHS: usize = 3;
/// If this many tenths of the kernels from the time with both recorded match, their number shows that they are the
/// same.
const MAX_TENTHS: usize = 9;
/// Random ends are a quarter of the distance between collectives apart, at the median. If most
/// kernels match, ends must be closer than this part of the distance,
const CLOSE: i64 = 16;
/// else than this one: two runs of one program can keep step for a while.
const VERY_CLOSE: i64 = 50;
/// Ends this close match, however often collectives follow each other.
const ALWAYS_NS: i64 = 15_000;
/// By how much kernels of one collective may miss each other: clocks of GPUs are read with an error
/// of some microseconds.
pub(super) const SLACK_NS: i64 = 20_000;

/// A collective, as far as its ranks are known.
#[derive(Clone, Debug)]
pub(super) struct DraftCollective {
    /// Start on the last of its ranks, on the job's clock.
    pub(super) start_ns: i64,
    /// When the first of its ranks in the draft ended.
    pub(super) end_ns: i64,
    /// The operation of the collective.
    pub(super) label: CollectiveLabel,
    /// Position in the draft's members, and the operation.
    pub(super) members: Vec<(usize, OpIndex)>,
    /// Whether its sequence number is known.
    pub(super) keyed: bool,
}

impl DraftCollective {
    /// Starts a collective of one kernel; `position`: of its rank among the draft's members.
    pub(super) fn begin(kernel: &CollectiveKernel, position: usize, offset_ns: i64) -> Self {
        Self {
            start_ns: later(kernel.start_ns, offset_ns),
            end_ns: later(kernel.end_ns, offset_ns),
            label: kernel.label,
            members: vec![(position, kernel.op)],
            keyed: kernel.key.is_some(),
        }
    }

    /// As the kernel of its last rank, on the job's clock.
    pub(super) fn kernel(&self) -> CollectiveKernel {
        CollectiveKernel {
            op: self.members[0].1,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            label: self.label,
            chain: 0,
            group: None,
            key: None,
        }
    }

    /// Whether a kernel ran at the same time: ranks of one collective wait for each other.
    pub(super) fn overlaps(&self, kernel: &CollectiveKernel, offset_ns: i64) -> bool {
        let start_ns = later(kernel.start_ns, offset_ns);
        let end_ns = later(kernel.end_ns, offset_ns);
        start_ns <= later(self.end_ns, SLACK_NS) && self.start_ns <= later(end_ns, SLACK_NS)
    }

    /// Adds the ranks of another part of the same collective.
    pub(super) fn merge(&mut self, other: Self) {
        self.start_ns = self.start_ns.max(other.start_ns);
        let known = [self.label.operation, other.label.operation];
        self.label.operation = known.into_iter().flatten().min();
        self.members.extend(other.members);
    }

    /// Adds a rank's kernel; `position`: of the rank among the draft's members.
    pub(super) fn take(&mut self, kernel: &CollectiveKernel, position: usize, offset_ns: i64) {
        self.start_ns = self.start_ns.max(later(kernel.start_ns, offset_ns));
        let known = [self.label.operation, kernel.label.operation];
        self.label.operation = known.into_iter().flatten().min();
        self.members.push((position, kernel.op));
    }
}

/// The assignment of kernels to collectives.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelPairs {
    /// Index of the meeting, index of the kernel.
    pub(super) pairs: Vec<(usize, usize)>,
    /// Number of the pairs with equal sequence numbers.
    pub(super) keyed: usize,
    /// By chain: index of the communicator.
    pub(super) communicators: Vec<Option<usize>>,
}

impl KernelPairs {
    /// Leaves out kernels that did not run at the same time: ranks of one collective wait for each other.
    pub(super) fn keep_simultaneous(
        &mut self,
        meetings: &[DraftCollective],
        kernels: &[CollectiveKernel],
        offset_ns: i64,
    ) {
        self.pairs
            .retain(|(meeting, kernel)| meetings[*meeting].overlaps(&kernels[*kernel], offset_ns));
    }
}

/// No kernel in any collective.
pub(super) fn none(kernels: &CollectiveKernels) -> KernelPairs {
    KernelPairs { communicators: vec![None; kernels.chains], ..KernelPairs::default() }
}

/// One chain matched with one communicator.
struct ChainCandidate {
    chain: usize,
    communicator: usize,
    score: u64,
    pairs: Vec<(usize, usize)>,
}

/// Pairs the kernels that have no key: each chain with the communicator that it fits best.
pub(super) fn in_order(
    meetings: &[DraftCollective],
    communicators: &[KeylessCollectives],
    kernels: &CollectiveKernels,
    offset_ns: i64,
) -> KernelPairs {
    let beside = OffsetMatch { meetings, kernels: &kernels.collective, offset_ns };
    let mut found: Vec<ChainCandidate> = Vec::new();
    for (chain, members) in kernels.by_chain().iter().enumerate() {
        let Some(first) = members.first() else { continue };
        let name = kernels.collective[*first].group;
        for (communicator, known) in communicators.iter().enumerate() {
            if known.name != name {
                continue;
            }
            let known = &known.collectives;
            let pairs = beside.pairs(known, members);
            if beside.agree(known, members, &pairs) {
                found.push(ChainCandidate {
                    chain,
                    communicator,
                    score: beside.score(&pairs),
                    pairs,
                });
            }
        }
    }
    found.sort_by_key(|candidate| std::cmp::Reverse(candidate.score));
    let mut chosen = none(kernels);
    for candidate in found {
        let taken = chosen.communicators.contains(&Some(candidate.communicator));
        let slot = &mut chosen.communicators[candidate.chain];
        if !taken && slot.is_none() {
            *slot = Some(candidate.communicator);
            chosen.pairs.extend(candidate.pairs);
        }
    }
    chosen
}

/// Collectives without a key of one communicator.
#[derive(Clone, Debug, Default)]
pub(super) struct KeylessCollectives {
    /// Its name, if the profiler recorded it.
    pub(super) name: Option<NameIndex>,
    /// Indices of its collectives, by end.
    pub(super) collectives: Vec<usize>,
}

/// Collectives and kernels at one offset.
pub(super) struct OffsetMatch<'a> {
    pub(super) meetings: &'a [DraftCollective],
    pub(super) kernels: &'a [CollectiveKernel],
    pub(super) offset_ns: i64,
}

impl OffsetMatch<'_> {
    fn meeting(&self, at: usize) -> (i64, CollectiveLabel) {
        let meeting = &self.meetings[at];
        (meeting.end_ns, meeting.label)
    }

    fn kernel(&self, at: usize) -> (i64, CollectiveLabel) {
        let kernel = &self.kernels[at];
        (later(kernel.end_ns, self.offset_ns), kernel.label)
    }

    /// In order, each with the nearest end of the same label, unless the next is nearer to it.
    pub(super) fn pairs(&self, communicator: &[usize], chain: &[usize]) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        let mut from = 0;
        for (at, kernel) in chain.iter().enumerate() {
            let (end_ns, label) = self.kernel(*kernel);
            let next = chain.get(at + 1).map(|next| self.kernel(*next));
            let mut nearest: Option<(u64, usize)> = None;
            for (place, meeting) in communicator.iter().enumerate().skip(from) {
                let (other_ns, other) = self.meeting(*meeting);
                if other_ns < later(end_ns, -TOLERANCE_NS) {
                    from = place + 1;
                    continue;
                }
                if other_ns > later(end_ns, TOLERANCE_NS) {
                    break;
                }
                let off = other_ns.abs_diff(end_ns);
                let nearer = match next {
                    Some((next_ns, next)) => next.agrees(label) && next_ns.abs_diff(other_ns) < off,
                    None => false,
                };
                if other.agrees(label) && !nearer && nearest.is_none_or(|(known, _)| off < known) {
                    nearest = Some((off, place));
                }
            }
            if let Some((_, place)) = nearest {
                pairs.push((communicator[place], *kernel));
                from = place + 1;
            }
        }
        pairs
    }

    /// Whether a chain can be a rank's part of a communicator.
    pub(super) fn agree(
        &self,
        communicator: &[usize],
        chain: &[usize],
        pairs: &[(usize, usize)],
    ) -> bool {
        let ends: Vec<i64> = communicator.iter().map(|at| self.meeting(*at).0).collect();
        let other_ends: Vec<i64> = chain.iter().map(|at| self.kernel(*at).0).collect();
        let both = within(&ends, &other_ends).min(within(&other_ends, &ends));
        let mut off: Vec<i64> = pairs.iter().map(|pair| self.off(pair)).collect();
        let Some(center) = gctrace_stats::median_low(&mut off) else { return false };
        let Some(error_ns) = gctrace_stats::spread(&off, center) else { return false };
        let part = if pairs.len() * 10 >= both * MAX_TENTHS { CLOSE } else { VERY_CLOSE };
        let allowed = |distance: i64| (distance / part).max(ALWAYS_NS);
        pairs.len() * 10 >= ends.len().min(other_ends.len()) * FEWEST_TENTHS
            && distance(&ends).is_none_or(|distance| signed(error_ns) <= allowed(distance))
    }

    fn off(&self, (meeting, kernel): &(usize, usize)) -> i64 {
        difference(self.meeting(*meeting).0, self.kernel(*kernel).0)
    }

    fn score(&self, pairs: &[(usize, usize)]) -> u64 {
        let off = pairs.iter().map(|pair| self.off(pair));
        off.map(offset::weight).sum()
    }
}

/// How many of the timestamps are within the time of the others; both sorted.
pub(super) fn within(timestamps: &[i64], others: &[i64]) -> usize {
    let (Some(first), Some(last)) = (others.first(), others.last()) else { return 0 };
    let first = later(*first, -TOLERANCE_NS);
    let last = later(*last, TOLERANCE_NS);
    let inside = timestamps.iter().filter(|timestamp| (first..=last).contains(*timestamp));
    inside.count()
}

/// Median distance between times that follow each other; `None` of fewer than two.
fn distance(sorted: &[i64]) -> Option<i64> {
    let mut distances: Vec<i64> =
        sorted.windows(2).map(|pair| difference(pair[1], pair[0])).collect();
    gctrace_stats::median_low(&mut distances)
}

/// Whether the profiler's sequence numbers identify the same collectives on both ranks: then the
/// difference of two ends hardly changes from one pair to the next. `ends`: pairs of ends with
/// equal numbers, sorted by the first.
pub(super) fn keep_step(ends: &[(i64, i64)]) -> bool {
    let changes = ends.windows(2).map(|pair| {
        let (before, after) = (pair[0], pair[1]);
        let change = difference(after.0, before.0).abs_diff(difference(after.1, before.1));
        signed(change)
    });
    let mut changes: Vec<i64> = changes.collect();
    let change = gctrace_stats::median_low(&mut changes);
    let firsts: Vec<i64> = ends.iter().map(|(first, _)| *first).collect();
    let allowed = |distance: i64| (distance / VERY_CLOSE).max(2 * ALWAYS_NS);
    // Of two pairs nothing but the one change is known: two steps of two runs may be as long.
    let few = ends.len() <= 2;
    let (Some(distance), Some(change)) = (distance(&firsts), change) else { return true };
    change <= if few { 2 * ALWAYS_NS } else { allowed(distance) }
}
