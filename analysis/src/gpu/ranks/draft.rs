//! A job while its ranks are found one after the other.
//!
//! Owns the collectives found so far and how the next rank's kernels are matched with them;
//! `ranks.rs` selects the timelines to try.

use super::kernels::{CollectiveKernel, CollectiveKernels, CollectiveKey};
use super::pairs::{DraftCollective, KernelPairs, KeylessCollectives, SLACK_NS};
use super::{RankMember, pairs};
use crate::gpu::timeline::{NameIndex, Timeline};
use crate::time::offset::{TOLERANCE_NS, TimestampPair};
use crate::time::{difference, later, offset};
use std::collections::{HashMap, HashSet};

/// Fewer agreeing collectives than this do not relate two clocks ...
const FEWEST: usize = 3;
/// ... or than this, if their sequence numbers are equal. One suffices if it is where the wall
/// clocks or steps expect it,
const FEWEST_KEYED: usize = 2;
/// to within this: hosts of a cluster synchronize their clocks to milliseconds.
const ABOUT_NS: u64 = 1_000_000_000;
/// Ends with a larger median difference are not of the same collectives, even with equal sequence
/// numbers: two runs of one program have the same numbers.
const LARGEST_ERROR_NS: u64 = 5_000_000;
/// An offset is as good as the best if it has this many tenths of its score, with ends no further
/// apart.
const AS_GOOD_TENTHS: u64 = 6;

/// For an offset that is as good: its share of kernels in pairs, between the first pair and the last, must be at
/// least this many tenths of the best offset's share. Shifted by a step, kernels are left over before and after;
/// shifted by a collective, in each step.
const AS_COMPLETE_TENTHS: u64 = 9;

/// Knowledge about the clocks decides between offsets if the others are this many times further
/// off.
const CLEARLY_NEARER: u64 = 4;

/// Timelines of one job, with their collectives.
#[derive(Clone, Debug, Default)]
pub(super) struct JobDraft {
    /// Without their number in the job.
    pub(super) members: Vec<RankMember>,
    pub(super) meetings: Vec<DraftCollective>,
    by_key: HashMap<CollectiveKey, usize>,
    communicators: Vec<KeylessCollectives>,
    /// Ranks of the members.
    ranks: HashSet<u32>,
    /// Clock offset of the members, by trace.
    traces: HashMap<usize, i64>,
    /// The lowest and the highest difference of a member's wall clock from the job's clock.
    wall_ns: Option<(i64, i64)>,
}

/// Known facts about a timeline's clock before its collectives are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockKnowledge {
    /// The offset, exactly: it is the same clock.
    Same(i64),
    /// About the offset: by the number of steps, or the hosts' wall clocks.
    About(i64),
    /// Unknown.
    Unknown,
}

/// How a timeline matches a draft.
#[derive(Clone, Debug)]
pub(super) struct DraftFit {
    pub(super) offset_ns: i64,
    pub(super) error_ns: u64,
    pub(super) ambiguous: bool,
    same_clock: bool,
    score: u64,
    /// Kernels and collectives without a key between the first pair and the last: in pairs, all.
    complete: (u64, u64),
    pairs: KernelPairs,
}

impl DraftFit {
    /// Whether the part in pairs is not clearly smaller than another fit's.
    fn is_as_complete(&self, (paired, all): (u64, u64)) -> bool {
        u128::from(self.complete.0) * u128::from(all) * 10
            >= u128::from(self.complete.1) * u128::from(paired) * u128::from(AS_COMPLETE_TENTHS)
    }

    /// Collectives that the timeline shares with the draft.
    pub(super) fn shared(&self) -> usize {
        self.pairs.pairs.len()
    }

    /// Whether it shows that the timeline belongs to the draft.
    fn is_sound(&self, clock: ClockKnowledge) -> bool {
        let fewest = match clock {
            ClockKnowledge::Same(_) => 1,
            ClockKnowledge::About(about)
                if self.pairs.keyed > 0 && about.abs_diff(self.offset_ns) <= ABOUT_NS =>
            {
                1
            }
            _ if self.pairs.keyed >= FEWEST_KEYED => FEWEST_KEYED,
            _ => FEWEST,
        };
        self.shared() >= fewest && self.error_ns <= LARGEST_ERROR_NS
    }
}

impl JobDraft {
    /// A job of one timeline, with its clock as the job's.
    pub(super) fn new(timeline: usize, about: &Timeline, kernels: &CollectiveKernels) -> Self {
        let mut draft = Self::default();
        let pairs = pairs::none(kernels);
        draft.join(
            timeline,
            about,
            kernels,
            &DraftFit {
                offset_ns: 0,
                error_ns: 0,
                ambiguous: false,
                same_clock: true,
                score: 0,
                complete: (0, 0),
                pairs,
            },
        );
        draft
    }

    /// How a timeline's kernels match the collectives, `None` if they do not.
    pub(super) fn fit(
        &self,
        kernels: &CollectiveKernels,
        clock: ClockKnowledge,
    ) -> Option<DraftFit> {
        let offsets = match clock {
            ClockKnowledge::Same(offset) => vec![offset],
            ClockKnowledge::About(_) | ClockKnowledge::Unknown => self.offsets(kernels, clock),
        };
        let fits = offsets.into_iter().filter_map(|offset| {
            let same = matches!(clock, ClockKnowledge::Same(_));
            let fit = self.fit_at(kernels, offset, same)?;
            if fit.is_sound(clock) { Some(fit) } else { None }
        });
        let mut fits: Vec<DraftFit> = fits.collect();
        fits.sort_by_key(|fit| (std::cmp::Reverse(fit.score), fit.error_ns));
        let best = fits.first()?;
        let (score, error_ns, complete) = (best.score, best.error_ns, best.complete);
        fits.retain(|fit| {
            fit.score * 10 >= score * AS_GOOD_TENTHS
                && fit.error_ns <= error_ns * 2 + 2_000
                && fit.is_as_complete(complete)
        });
        if let ClockKnowledge::About(offset) = clock {
            fits.sort_by_key(|fit| fit.offset_ns.abs_diff(offset));
        }
        let ambiguous = is_ambiguous(&fits, clock);
        let mut chosen = fits.into_iter().next()?;
        chosen.ambiguous = ambiguous;
        Some(chosen)
    }

    /// The candidates for the offset.
    fn offsets(&self, kernels: &CollectiveKernels, clock: ClockKnowledge) -> Vec<i64> {
        let keyed = kernels.collective.iter().filter_map(|kernel| {
            let meeting = *self.by_key.get(&kernel.key?)?;
            Some(difference(self.meetings[meeting].end_ns, kernel.end_ns))
        });
        let mut keyed: Vec<i64> = keyed.collect();
        if let Some(offset) = gctrace_stats::median_low(&mut keyed) {
            return vec![offset];
        }
        let mut series: HashMap<NameIndex, TimestampPair> = HashMap::new();
        let communicators = self.communicators.iter();
        for meeting in communicators.flat_map(|communicator| &communicator.collectives) {
            let meeting = &self.meetings[*meeting];
            let series = series.entry(meeting.label.name).or_default();
            series.fixed.push(meeting.end_ns);
        }
        for kernel in &kernels.collective {
            if kernel.key.is_none() {
                series.entry(kernel.label.name).or_default().moved.push(kernel.end_ns);
            }
        }
        let mut offsets = offset::candidates(series.values());
        if let ClockKnowledge::About(offset) = clock {
            offsets.push(offset);
        }
        offsets
    }

    /// `None` if nothing matches.
    fn fit_at(
        &self,
        kernels: &CollectiveKernels,
        mut offset_ns: i64,
        same_clock: bool,
    ) -> Option<DraftFit> {
        if !same_clock {
            let found = self.pairs(kernels, offset_ns);
            let mut differences = self.differences(kernels, &found);
            offset_ns = gctrace_stats::median_low(&mut differences)?;
        }
        let mut pairs = self.pairs(kernels, offset_ns);
        pairs.keep_simultaneous(&self.meetings, &kernels.collective, offset_ns);
        let mut differences = self.differences(kernels, &pairs);
        if !same_clock {
            offset_ns = gctrace_stats::median_low(&mut differences)?;
        }
        let off = |found_ns: &i64| difference(*found_ns, offset_ns);
        Some(DraftFit {
            offset_ns,
            error_ns: gctrace_stats::spread(&differences, offset_ns)?,
            ambiguous: false,
            same_clock,
            score: differences.iter().map(off).map(offset::weight).sum(),
            complete: self.complete(kernels, offset_ns, &pairs),
            pairs,
        })
    }

    /// See [`DraftFit::complete`].
    fn complete(
        &self,
        kernels: &CollectiveKernels,
        offset_ns: i64,
        pairs: &KernelPairs,
    ) -> (u64, u64) {
        let mut spans: Vec<Option<(i64, i64, u64)>> = vec![None; kernels.chains];
        for (_, kernel) in &pairs.pairs {
            let kernel = &kernels.collective[*kernel];
            if kernel.key.is_none() {
                let end_ns = later(kernel.end_ns, offset_ns);
                let span = spans[kernel.chain].get_or_insert((end_ns, end_ns, 0));
                *span = (span.0.min(end_ns), span.1.max(end_ns), span.2 + 2);
            }
        }
        let (mut paired, mut all) = (0, 0);
        let chains = kernels.by_chain();
        for ((chain, communicator), span) in chains.iter().zip(&pairs.communicators).zip(spans) {
            let (Some(communicator), Some((first_ns, last_ns, in_pairs))) = (*communicator, span)
            else {
                continue;
            };
            let range = later(first_ns, -SLACK_NS)..=later(last_ns, SLACK_NS);
            let kernels_of_chain = chain.iter().map(|at| &kernels.collective[*at]);
            let in_range =
                kernels_of_chain.filter(|kernel| range.contains(&later(kernel.end_ns, offset_ns)));
            let known = self.communicators[communicator].collectives.iter();
            let known = known.filter(|at| range.contains(&self.meetings[**at].end_ns));
            paired += in_pairs;
            all += (in_range.count() + known.count()) as u64;
        }
        (paired, all.max(paired))
    }

    fn pairs(&self, kernels: &CollectiveKernels, offset_ns: i64) -> KernelPairs {
        let mut pairs = pairs::in_order(&self.meetings, &self.communicators, kernels, offset_ns);
        let mut keyed: Vec<(usize, usize)> = Vec::new();
        let mut ends: Vec<(i64, i64)> = Vec::new();
        for (at, kernel) in kernels.collective.iter().enumerate() {
            if let Some(key) = kernel.key
                && let Some(meeting) = self.by_key.get(&key)
            {
                keyed.push((*meeting, at));
                ends.push((self.meetings[*meeting].end_ns, kernel.end_ns));
            }
        }
        ends.sort_unstable();
        if pairs::keep_step(&ends) {
            pairs.keyed = keyed.len();
            pairs.pairs.extend(keyed);
        }
        pairs
    }

    /// The offset according to each pair.
    fn differences(&self, kernels: &CollectiveKernels, pairs: &KernelPairs) -> Vec<i64> {
        let differences = pairs.pairs.iter().map(|(meeting, kernel)| {
            let kernel = &kernels.collective[*kernel];
            difference(self.meetings[*meeting].end_ns, kernel.end_ns)
        });
        differences.collect()
    }

    /// The clock of a timeline relative to a member of the same trace; `None` without one.
    pub(super) fn same_clock(&self, timeline: &Timeline) -> Option<i64> {
        self.traces.get(&timeline.trace).copied()
    }

    /// Whether a job of other ranks with partly unnamed collectives may be a part of this one: none of its ranks is
    /// here.
    pub(super) fn may_belong(&self, other: &Self) -> bool {
        !other.communicators.is_empty() && self.ranks.is_disjoint(&other.ranks)
    }

    /// Whether a member has that rank.
    pub(super) fn has_rank(&self, timeline: &Timeline) -> bool {
        let Some(rank) = timeline.rank else { return false };
        self.ranks.contains(&rank)
    }

    /// Whether the wall clocks of all members are within `apart_ns` of a timeline's.
    pub(super) fn wall_clocks_allow(
        &self,
        timeline: &Timeline,
        offset_ns: i64,
        apart_ns: u64,
    ) -> bool {
        let Some(unix_ns) = timeline.unix_offset_ns else { return true };
        let Some((lowest, highest)) = self.wall_ns else { return true };
        let difference = difference(unix_ns, offset_ns);
        difference.abs_diff(lowest).max(difference.abs_diff(highest)) <= apart_ns
    }

    /// Adds a timeline as [`JobDraft::fit`] found it to fit. `about`: the timeline.
    pub(super) fn join(
        &mut self,
        timeline: usize,
        about: &Timeline,
        kernels: &CollectiveKernels,
        fit: &DraftFit,
    ) {
        self.ranks.extend(about.rank);
        self.traces.entry(about.trace).or_insert(fit.offset_ns);
        if let Some(unix_ns) = about.unix_offset_ns {
            let difference = difference(unix_ns, fit.offset_ns);
            let (lowest, highest) = self.wall_ns.unwrap_or((difference, difference));
            self.wall_ns = Some((lowest.min(difference), highest.max(difference)));
        }
        let position = self.members.len();
        self.members.push(RankMember {
            timeline,
            rank: 0,
            offset_ns: fit.offset_ns,
            error_ns: fit.error_ns,
            aligned_by: if fit.same_clock { 0 } else { fit.shared() as u64 },
            ambiguous: fit.ambiguous,
            point_to_point: kernels.transfers.len() as u64,
            keyed: fit.pairs.keyed > 0,
        });
        let met: HashMap<usize, usize> =
            fit.pairs.pairs.iter().map(|(meeting, kernel)| (*kernel, *meeting)).collect();
        let mut new: Vec<Option<usize>> = fit.pairs.communicators.clone();
        for (at, kernel) in kernels.collective.iter().enumerate() {
            match met.get(&at) {
                Some(meeting) => self.meetings[*meeting].take(kernel, position, fit.offset_ns),
                None => self.begin(kernel, position, fit.offset_ns, &mut new),
            }
        }
        new.sort_unstable();
        new.dedup();
        for communicator in new.into_iter().flatten() {
            let meetings = &self.meetings;
            let collectives = &mut self.communicators[communicator].collectives;
            collectives.sort_by_key(|at| meetings[*at].end_ns);
        }
    }

    /// A collective that no timeline before took part in.
    fn begin(
        &mut self,
        kernel: &CollectiveKernel,
        by: usize,
        offset_ns: i64,
        of_chain: &mut [Option<usize>],
    ) {
        let at = self.meetings.len();
        self.meetings.push(DraftCollective::begin(kernel, by, offset_ns));
        if let Some(key) = kernel.key {
            self.by_key.entry(key).or_insert(at);
            return;
        }
        let communicator = *of_chain[kernel.chain].get_or_insert_with(|| {
            self.communicators
                .push(KeylessCollectives { name: kernel.group, collectives: Vec::new() });
            self.communicators.len() - 1
        });
        self.communicators[communicator].collectives.push(at);
    }
}

/// Whether others of equally good fits could as well be meant as the first.
fn is_ambiguous(fits: &[DraftFit], clock: ClockKnowledge) -> bool {
    let Some(first) = fits.first() else { return false };
    let apart = TOLERANCE_NS.unsigned_abs();
    let mut others = fits.iter().filter(|fit| fit.offset_ns.abs_diff(first.offset_ns) > apart);
    match clock {
        ClockKnowledge::Same(_) => false,
        ClockKnowledge::Unknown => others.next().is_some(),
        ClockKnowledge::About(offset) => {
            let off = |fit: &DraftFit| fit.offset_ns.abs_diff(offset);
            others.any(|fit| off(fit) / CLEARLY_NEARER < off(first))
        }
    }
}
