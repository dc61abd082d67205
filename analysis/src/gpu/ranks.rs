//! Several ranks: timelines of one job, their clock, and the collectives they share.
//!
//! Ranks of a job are recognized by their collectives alone; the number of a rank only excludes timelines. The waits
//! for each other are in `waits.rs`, what the pauses of one rank cost another in `victims.rs`, what each communicator
//! waited in `communicators.rs`.

pub(crate) mod communicators;
mod draft;
mod groups;
mod kernels;
pub(crate) mod late;
mod pairs;
mod reduced;
pub(crate) mod spread;
pub(crate) mod summary;
mod transfers;
pub(crate) mod victims;
pub(crate) mod waits;

pub(crate) use reduced::{reduced, shared_ops};
pub use summary::report;
pub(crate) use summary::{report_of, wait_ends, waits as waits_of};

use super::kept::KeptTimeline;
use super::replay::{CollectiveMember, ReplayCollective, ReplayJob};
use super::timeline::{StepSource, StringTable, Timeline};
use crate::time::{difference, later, signed};
use draft::{ClockKnowledge, JobDraft};
use groups::{OtherRanks, PlacedRank};
use kernels::CollectiveKernels;
use std::collections::HashMap;

/// Hosts with wall clocks farther apart are not of one job. Kerberos refuses tickets at this difference (RFC 4120,
/// 8.2: 5 minutes), so cooperating hosts stay below it.
const WALL_CLOCKS_APART_NS: u64 = 300_000_000_000;

/// Timelines with a rank and GPU times, grouped into jobs.
#[derive(Clone, Debug, Default)]
pub struct RankJobs {
    /// Jobs of at least two ranks each.
    pub jobs: Vec<RankJob>,
    /// Timelines with a rank, but with collectives that match no other rank's, as indices.
    pub alone: Vec<usize>,
}

/// Timelines of the ranks of one job.
#[derive(Clone, Debug, Default)]
pub struct RankJob {
    /// The members of the job, one for each rank, by rank.
    pub members: Vec<RankMember>,
    /// Collectives of at least two members, by end; timelines are positions in `members`.
    pub collectives: Vec<ReplayCollective>,
    /// Kernels of collectives that no other rank's kernel was found for.
    pub unmatched: u64,
    /// Of these, kernels that ended when not all ranks were recorded.
    pub unmatched_outside: u64,
    /// Kernels that may or may not be of one collective with other ranks' kernels; they are in no
    /// collective.
    pub ambiguous: u64,
    /// A sending kernel and the kernel that receives from it, by end; like `collectives`.
    pub transfers: Vec<ReplayCollective>,
}

/// One rank of a job: its timeline, and its clock relative to the other members'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankMember {
    /// Index among the timelines that [`jobs`] was given.
    pub timeline: usize,
    /// Number of the rank in its job, from 0.
    pub rank: u32,
    /// Add to its times to get the job's common clock: the first member's, later by a constant
    /// where another member's times would be negative on it.
    pub offset_ns: i64,
    /// Median distance of its ends of collectives from the previous ranks' ends, in ns.
    pub error_ns: u64,
    /// Number of collectives that the offset was computed from; 0 if its clock is known: for the first member, and
    /// for members from the same trace.
    pub aligned_by: u64,
    /// Other offsets fit the collectives about as well, and nothing else decides.
    pub ambiguous: bool,
    /// Kernels of NCCL that send to or receive from single ranks.
    pub point_to_point: u64,
    /// Whether sequence numbers helped to align it.
    keyed: bool,
}

impl RankJob {
    /// The job for a replay. `timelines`: as passed to [`jobs`].
    pub fn job<'a>(&self, timelines: &[&'a Timeline]) -> ReplayJob<'a> {
        let members = self.members.iter();
        ReplayJob {
            timelines: members.map(|member| timelines[member.timeline]).collect(),
            offsets_ns: self.members.iter().map(|member| member.offset_ns).collect(),
            collectives: self.meetings().cloned().collect(),
        }
    }

    /// Where its ranks wait for each other: the collectives, then the sends and receives.
    pub(crate) fn meetings(&self) -> impl Iterator<Item = &ReplayCollective> {
        self.collectives.iter().chain(&self.transfers)
    }
}

/// Groups timelines into jobs by their collectives. Timelines without a rank or GPU times are left out.
pub fn jobs(timelines: &[&Timeline]) -> RankJobs {
    let firsts_ns = timelines.iter().map(|timeline| {
        let (first_ns, _) = timeline.window()?;
        if timeline.has_gpu_times() { Some(first_ns) } else { None }
    });
    related(timelines, &firsts_ns.collect::<Vec<_>>())
}

/// The same for the parts of timelines that are at hand: operations are places there.
pub(crate) fn jobs_of(timelines: &[&KeptTimeline]) -> RankJobs {
    let firsts_ns = timelines.iter().map(|kept| {
        let (first_ns, _) = kept.window()?;
        if kept.has_gpu_times() { Some(first_ns) } else { None }
    });
    let firsts_ns: Vec<Option<u64>> = firsts_ns.collect();
    let at_hand: Vec<&Timeline> = timelines.iter().map(|kept| kept.at_hand()).collect();
    related(&at_hand, &firsts_ns)
}

/// `firsts_ns`: the first time of anything on each timeline; `None` leaves it out.
fn related(timelines: &[&Timeline], firsts_ns: &[Option<u64>]) -> RankJobs {
    let mut ranked: Vec<(u32, usize)> = Vec::new();
    for (at, (timeline, first_ns)) in timelines.iter().zip(firsts_ns).enumerate() {
        if let (Some(rank), Some(_)) = (timeline.rank, first_ns) {
            ranked.push((rank, at));
        }
    }
    ranked.sort_unstable();
    if ranked.len() < 2 {
        return RankJobs {
            jobs: Vec::new(),
            alone: ranked.into_iter().map(|(_, at)| at).collect(),
        };
    }
    let mut names = StringTable::default();
    let kernels = timelines.iter().map(|timeline| CollectiveKernels::of(timeline, &mut names));
    let finder = JobFinder { timelines, firsts_ns, kernels: kernels.collect() };
    let mut drafts: Vec<JobDraft> = Vec::new();
    let mut waiting: Vec<usize> = ranked.into_iter().map(|(_, at)| at).collect();
    while let Some(left) = finder.settle(&mut drafts, &waiting) {
        waiting = left;
    }
    let (jobs, alone): (Vec<&JobDraft>, Vec<&JobDraft>) =
        drafts.iter().partition(|draft| draft.members.len() > 1);
    let found = jobs.iter().map(|draft| {
        let is_complete = !drafts.iter().any(|other| draft.may_belong(other));
        finder.job(draft, is_complete)
    });
    RankJobs {
        jobs: found.collect(),
        alone: alone
            .iter()
            .flat_map(|draft| draft.members.iter().map(|member| member.timeline))
            .collect(),
    }
}

/// Tries timelines against drafts.
struct JobFinder<'a> {
    timelines: &'a [&'a Timeline],
    /// First time of anything on each timeline.
    firsts_ns: &'a [Option<u64>],
    kernels: Vec<CollectiveKernels>,
}

impl JobFinder<'_> {
    /// Puts each timeline into a draft that it fits, the others into drafts of their own. Returns lone timelines if
    /// another round could change that: two that share nothing may both share collectives with a third.
    fn settle(&self, drafts: &mut Vec<JobDraft>, waiting: &[usize]) -> Option<Vec<usize>> {
        let mut joined = false;
        for timeline in waiting {
            let kernels = &self.kernels[*timeline];
            let fits = drafts.iter().enumerate().filter_map(|(at, draft)| {
                let fit = draft.fit(kernels, self.clock(draft, *timeline)?)?;
                let about = self.timelines[*timeline];
                let may_be = draft.wall_clocks_allow(about, fit.offset_ns, WALL_CLOCKS_APART_NS);
                if may_be { Some((at, fit)) } else { None }
            });
            let best = fits.max_by_key(|(_, fit)| fit.shared());
            match best {
                Some((at, fit)) => {
                    drafts[at].join(*timeline, self.timelines[*timeline], kernels, &fit);
                    joined = true;
                }
                None => {
                    let about = self.timelines[*timeline];
                    drafts.push(JobDraft::new(*timeline, about, kernels));
                }
            }
        }
        let alone = drafts.iter().filter(|draft| draft.members.len() == 1);
        let alone: Vec<usize> =
            alone.flat_map(|draft| draft.members.iter().map(|member| member.timeline)).collect();
        let again = joined && !alone.is_empty() && drafts.len() > alone.len();
        if again {
            drafts.retain(|draft| draft.members.len() > 1);
        }
        if again { Some(alone) } else { None }
    }

    /// The clock of a timeline, `None` if the draft has its rank already.
    fn clock(&self, draft: &JobDraft, timeline: usize) -> Option<ClockKnowledge> {
        let timeline = self.timelines[timeline];
        if draft.has_rank(timeline) {
            return None;
        }
        if let Some(offset) = draft.same_clock(timeline) {
            return Some(ClockKnowledge::Same(offset));
        }
        let members = || {
            let members = draft.members.iter();
            members.map(|member| (self.timelines[member.timeline], member.offset_ns))
        };
        let numbered = numbered_steps(timeline);
        let by_steps = || {
            members()
                .find_map(|(other, offset)| Some(later(steps_apart(other, &numbered)?, offset)))
        };
        let by_wall = || {
            members().find_map(|(other, offset)| Some(later(wall_apart(other, timeline)?, offset)))
        };
        // Without steps or a wall clock of its own, no other member has to be searched.
        let by_steps = if numbered.is_empty() { None } else { by_steps() };
        let about = match by_steps {
            None if timeline.unix_offset_ns.is_some() => by_wall(),
            by_steps => by_steps,
        };
        Some(about.map_or(ClockKnowledge::Unknown, ClockKnowledge::About))
    }

    fn job(&self, draft: &JobDraft, is_complete: bool) -> RankJob {
        let ranks = draft.members.iter().enumerate();
        let ranks = ranks.filter_map(|(position, member)| {
            Some((self.timelines[member.timeline].rank?, position))
        });
        let mut order: Vec<(u32, usize)> = ranks.collect();
        order.sort_unstable();
        let mut places = vec![0; order.len()];
        for (place, (_, position)) in (0..).zip(&order) {
            places[*position] = place;
        }
        let known = match (is_complete, self.is_pair(draft)) {
            (_, true) => OtherRanks::None,
            (true, false) => OtherRanks::Unknown,
            (false, false) => OtherRanks::InTraces,
        };
        let found = groups::find(&self.placed(&draft.members), known);
        let mut joined = draft.members.clone();
        self.refine(&mut joined, &found.collectives);
        let shift_ns = self.shift(&joined);
        let members = order.iter().map(|(rank, position)| {
            let member = joined[*position];
            RankMember { rank: *rank, offset_ns: later(member.offset_ns, shift_ns), ..member }
        });
        let mut job = RankJob {
            members: members.collect(),
            ambiguous: found.ambiguous,
            ..RankJob::default()
        };
        let common = self.common_time(&joined);
        let keyed = draft.meetings.iter().filter(|meeting| meeting.keyed);
        let mut meetings: Vec<&pairs::DraftCollective> = keyed.chain(&found.collectives).collect();
        meetings.sort_by_key(|meeting| meeting.end_ns);
        for meeting in meetings {
            if meeting.members.len() < 2 {
                job.unmatched += 1;
                let inside = (common.0..=common.1).contains(&meeting.end_ns);
                job.unmatched_outside += u64::from(!inside);
                continue;
            }
            let members = meeting.members.iter();
            let members = members
                .map(|(position, op)| CollectiveMember { timeline: places[*position], op: *op });
            let mut members: Vec<CollectiveMember> = members.collect();
            members.sort_unstable_by_key(|member| member.timeline);
            job.collectives.push(ReplayCollective { members });
        }
        let mut pairs = transfers::find(&self.placed(&joined));
        pairs.sort_by_key(|pair| pair.receive.1.end_ns);
        let pairs = pairs.into_iter().map(|pair| {
            let members = [pair.send, pair.receive];
            let mut members = members.map(|(position, kernel)| CollectiveMember {
                timeline: places[position],
                op: kernel.op,
            });
            members.sort_unstable_by_key(|member| member.timeline);
            ReplayCollective { members: members.to_vec() }
        });
        job.transfers = pairs.collect();
        job
    }

    /// Whether they are two ranks of a job that has no other, on clocks that are sure: then all their
    /// collectives are with each other.
    fn is_pair(&self, draft: &JobDraft) -> bool {
        draft.members.len() == 2
            && draft.members.iter().all(|member| {
                self.timelines[member.timeline].world_size == Some(2) && !member.ambiguous
            })
    }

    /// The kernels of members, each with its clock offset.
    fn placed(&self, members: &[RankMember]) -> Vec<PlacedRank<'_>> {
        let placed = members.iter().map(|member| PlacedRank {
            offset_ns: member.offset_ns,
            is_certain: member.keyed || member.aligned_by == 0,
            kernels: &self.kernels[member.timeline],
        });
        placed.collect()
    }

    /// Computes the clock offsets again that rest on kernels without a sequence number: only from kernels that
    /// certainly are of one collective.
    fn refine(&self, members: &mut [RankMember], collectives: &[pairs::DraftCollective]) {
        let mut ends_by_member: Vec<Vec<(usize, i64)>> = vec![Vec::new(); members.len()];
        for (at, collective) in collectives.iter().enumerate() {
            for (position, op) in &collective.members {
                let timeline = self.timelines[members[*position].timeline];
                ends_by_member[*position].push((at, signed(timeline.ops[*op].end_ns)));
            }
        }
        let mut ends: Vec<Option<i64>> = vec![None; collectives.len()];
        for (member, member_ends) in members.iter_mut().zip(ends_by_member) {
            let differences =
                member_ends.iter().filter_map(|(at, end_ns)| Some(difference(ends[*at]?, *end_ns)));
            let mut differences: Vec<i64> = differences.collect();
            if member.aligned_by > 0
                && !member.keyed
                && let Some(offset_ns) = gctrace_stats::median_low(&mut differences)
                && let Some(error_ns) = gctrace_stats::spread(&differences, offset_ns)
            {
                member.offset_ns = offset_ns;
                member.error_ns = error_ns;
                member.aligned_by = differences.len() as u64;
            }
            for (at, end_ns) in member_ends {
                ends[at].get_or_insert(later(end_ns, member.offset_ns));
            }
        }
    }

    /// Offset to add to all times, so that none is negative on the job's clock.
    fn shift(&self, members: &[RankMember]) -> i64 {
        let first = members.iter().filter_map(|member| {
            let first_ns = self.firsts_ns[member.timeline]?;
            Some(later(signed(first_ns), member.offset_ns))
        });
        difference(0, first.fold(0, i64::min))
    }

    /// The time with kernels of collectives in all members, on the draft's clock.
    fn common_time(&self, members: &[RankMember]) -> (i64, i64) {
        let mut common = (i64::MIN, i64::MAX);
        for member in members {
            let kernels = &self.kernels[member.timeline].collective;
            if let (Some(first), Some(last)) = (kernels.first(), kernels.last()) {
                let first_ns = later(first.end_ns, member.offset_ns);
                let last_ns = later(last.end_ns, member.offset_ns);
                common = (common.0.max(first_ns), common.1.min(last_ns));
            }
        }
        common
    }
}

/// How far apart the starts of the steps with the same number are, in ns; `None` without common
/// steps.
fn steps_apart(other: &Timeline, numbered: &HashMap<u64, i64>) -> Option<i64> {
    let apart = numbered_steps(other)
        .into_iter()
        .filter_map(|(number, start_ns)| Some(difference(start_ns, *numbered.get(&number)?)));
    let mut apart: Vec<i64> = apart.collect();
    gctrace_stats::median_low(&mut apart)
}

/// The starts of the profiler's steps, by number.
fn numbered_steps(timeline: &Timeline) -> HashMap<u64, i64> {
    let steps = timeline.steps.iter();
    let steps = steps.filter(|step| step.source == StepSource::ProfilerStep);
    let numbered = steps.map(|step| (step.number, signed(step.start_ns)));
    numbered.collect()
}

/// How far apart the clocks of two traces are by the wall clocks of their hosts, in ns.
fn wall_apart(other: &Timeline, timeline: &Timeline) -> Option<i64> {
    Some(difference(timeline.unix_offset_ns?, other.unix_offset_ns?))
}
