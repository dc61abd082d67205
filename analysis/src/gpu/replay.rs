//! The schedule of a job, rebuilt under changed pauses.
//!
//! Overlap is not cause: a pause during a full launch queue costs nothing, and a pause that drains the queue is paid
//! for later. So a [`ReplayModel`] learns from the measured times the waits between things, and how long everything
//! takes on its own. [`ReplayModel::replay`] computes when everything would have happened without some pauses, or
//! with others. Unchanged, it gives the measured times exactly. A shorter pause never makes anything later: order is
//! fixed, and every time is the latest of (something before it + a delay).
//!
//! Assumptions where the trace is silent are documented where they are made: `threads.rs`
//! (hand-overs between threads), `pauses.rs` (the GIL), `waits.rs` (waits between streams),
//! `blocking.rs` (what blocking calls wait for), `queue_limit.rs` (full queues).

mod attribute;
mod blocking;
mod delays;
mod exposed;
mod layout;
mod ledger;
mod network;
mod pauses;
mod queue_limit;
mod schedule;
mod skeleton;
pub(crate) mod steps;
mod streams;
mod threads;
mod timestamps;
mod typical_gap;
mod waits;

use crate::spans::PauseSpan;
pub use attribute::{
    AttributionBudget, MarginalCost, PauseAttribution, PauseCost, PauseId, attribute,
};
pub(super) use ledger::{DeviceRankTimes, LateSums, RankLedger, RankTimes, StepIdle};
pub(super) use network::{MAX_EDGES, MAX_NODES};
pub use schedule::ReplaySchedule;
pub use skeleton::{JoinedReplay, JoinedSkeletons, Skeleton};
pub use steps::StepEvidenceReport;

use super::timeline::{OpIndex, PauseIndex, ThreadIndex, Timeline};
use crate::spans::index::Index;
use crate::time::{later, signed};
use layout::ReplayLayout;
use network::{Network, NetworkBuilder, NetworkNodeId, NetworkRun, TieOrder};
use pauses::PauseEffects;
use std::sync::Arc;

/// One job: the timelines of its ranks (one where there is one), on a common clock.
#[derive(Clone, Debug, Default)]
pub struct ReplayJob<'a> {
    /// The timelines of the job, one per process.
    pub timelines: Vec<&'a Timeline>,
    /// Clock offsets in ns, one per timeline: added to a timestamp of the timeline of the same
    /// index, they give the job's common clock.
    pub offsets_ns: Vec<i64>,
    /// Collectives that several timelines took part in.
    pub collectives: Vec<ReplayCollective>,
}

impl<'a> ReplayJob<'a> {
    /// A job of one process, on its own clock.
    pub fn single(timeline: &'a Timeline) -> Self {
        Self { timelines: vec![timeline], offsets_ns: vec![0], collectives: Vec::new() }
    }
}

/// A collective, or a send with its receive: its data transfer starts when the last member has
/// started, and all members end with it. A member that had ended before the last one started did
/// not wait for it: what a send of few bytes sends is kept until it is received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayCollective {
    /// Kernels of the collective, one for each rank that took part.
    pub members: Vec<CollectiveMember>,
}

/// Members that end this much before the last one starts may have waited for it: clocks of GPUs are
/// read with an error of some microseconds.
const SLACK_NS: i64 = 20_000;

impl ReplayCollective {
    /// The start of the last member on the job's common clock, and for each member whether it
    /// waited for that.
    pub(crate) fn waits(&self, job: &ReplayJob<'_>) -> (i64, Vec<bool>) {
        let spans = self.members.iter().map(|member| {
            let at = member.timeline as usize;
            let op = &job.timelines[at].ops[member.op];
            let on_clock = |at_ns| later(signed(at_ns), job.offsets_ns[at]);
            (on_clock(op.start_ns), on_clock(op.end_ns))
        });
        last_and_waited(&spans.collect::<Vec<_>>())
    }
}

/// The start of the last member of a collective, and for each member whether it waited for that.
/// `spans`: their starts and ends on a common clock.
fn last_and_waited(spans: &[(i64, i64)]) -> (i64, Vec<bool>) {
    let last_ns = spans.iter().map(|(start_ns, _)| *start_ns).max();
    let last_ns = last_ns.unwrap_or_default();
    let waited = spans.iter();
    let waited = waited.map(|(_, end_ns)| later(*end_ns, SLACK_NS) >= last_ns);
    (last_ns, waited.collect())
}

/// One rank's kernel of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveMember {
    /// Index of the rank's timeline in [`ReplayJob::timelines`].
    pub timeline: u32,
    /// The kernel of the collective, in that timeline.
    pub op: OpIndex,
}

/// Changes in a replay. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayChange {
    /// New lengths of pauses; pauses not listed keep theirs. If a pause is listed twice, the last
    /// entry counts.
    pub lengths: Vec<PauseLength>,
    /// Additional pauses that the recorded run did not have.
    pub inserted: Vec<InsertedPause>,
}

/// A new length of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseLength {
    /// Index of the timeline in [`ReplayJob::timelines`].
    pub timeline: u32,
    /// The pause with the changed length, in that timeline.
    pub pause: PauseIndex,
    /// Nanoseconds; 0 removes it, more than measured is allowed.
    pub length_ns: u64,
}

/// A pause that was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertedPause {
    /// Index of the timeline in [`ReplayJob::timelines`].
    pub timeline: u32,
    /// The thread that collects, in that timeline.
    pub thread: ThreadIndex,
    /// Measured start of the pause, on the clock of its own timeline. If it is in the middle of a call: after the
    /// call.
    pub at_ns: u64,
    /// Length of the pause, in ns.
    pub length_ns: u64,
}

impl ReplayChange {
    /// Every pause of every timeline removed.
    pub fn without_all(job: &ReplayJob<'_>) -> Self {
        Self::without(job, |_, _| true)
    }

    /// Removes the pauses that match `predicate` (index of the timeline, pause).
    pub fn without(job: &ReplayJob<'_>, predicate: impl Fn(usize, &PauseSpan) -> bool) -> Self {
        let mut change = Self::default();
        for (timeline, content) in (0..).zip(&job.timelines) {
            let pauses = Index::enumerate(&content.pauses);
            let removed = pauses.filter(|(_, pause)| predicate(timeline as usize, pause));
            change.remove(timeline, removed.map(|(pause, _)| pause));
        }
        change
    }

    /// Removes pauses of one timeline.
    pub(crate) fn remove(&mut self, timeline: u32, pauses: impl IntoIterator<Item = PauseIndex>) {
        let removed = pauses.into_iter().map(|pause| PauseLength { timeline, pause, length_ns: 0 });
        self.lengths.extend(removed);
    }
}

/// A model of a job: the waits between things and how long everything took on its own.
#[derive(Clone, Debug)]
pub struct ReplayModel<'a> {
    inner: Arc<ModelParts<'a>>,
}

#[derive(Debug)]
struct ModelParts<'a> {
    network: Network,
    layouts: Vec<ReplayLayout<'a>>,
    effects: Vec<PauseEffects>,
}

impl<'a> ReplayModel<'a> {
    /// Learns a model from the measured times.
    ///
    /// # Panics
    ///
    /// If a member of a collective is not in the job, or the model would have more than 2^32 - 1
    /// times (two per call and operation, one per process and per collective) or delays between them.
    pub fn learn(job: &ReplayJob<'a>) -> Self {
        // A graph of dependencies from the trace, and a simulation of it, as in Daydream (Zhu et
        // al., ATC 2020): https://www.usenix.org/conference/atc20/presentation/zhu-hongyu
        let mut builder = NetworkBuilder::default();
        let base = layout::base(job);
        let mut layouts: Vec<ReplayLayout<'_>> = (0..job.timelines.len())
            .map(|at| ReplayLayout::new(job, at, base, &mut builder))
            .collect();
        for collective in &job.collectives {
            let (_, waited) = collective.waits(job);
            for (member, waited) in collective.members.iter().zip(waited) {
                layouts[member.timeline as usize].meets[member.op.at()] = waited;
            }
        }
        for (timeline, layout) in job.timelines.iter().zip(&mut layouts) {
            // Sets when a thread is unusually quiet; pauses are judged by this below.
            threads::learn(timeline, layout, &mut builder);
            let (queues, typical) = streams::learn(timeline, layout, &mut builder);
            layout.launch_ns = typical.launch_ns;
            waits::learn(timeline, layout, &queues, &typical, &mut builder);
            layout.loading = typical.loading;
            streams::link_ends(layout, &mut builder);
            blocking::learn(timeline, layout, &queues, &mut builder);
            queue_limit::learn(timeline, layout, &queues, &mut builder);
        }
        meet(job, &layouts, &mut builder);
        let effects = job.timelines.iter().zip(&layouts);
        let effects = effects
            .map(|(timeline, layout)| PauseEffects::learn(timeline, layout, &mut builder))
            .collect();
        let network = builder.finish();
        Self { inner: Arc::new(ModelParts { network, layouts, effects }) }
    }

    /// The schedule under a change; without one, exactly the measured one.
    ///
    /// # Panics
    ///
    /// If the change names a pause or a thread that is not in the job.
    pub fn replay(&self, change: &ReplayChange) -> ReplaySchedule<'a> {
        let applied = pauses::apply(&self.inner.layouts, &self.inner.effects, change);
        let mut run = self.run();
        run.change(&applied.deltas(), None);
        ReplaySchedule::new(Arc::clone(&self.inner), run.into_times(), applied)
    }

    /// Times in it: two for each call and each operation.
    pub fn timestamps(&self) -> usize {
        self.inner.network.len()
    }

    fn run(&self) -> NetworkRun<'_> {
        self.inner.network.run()
    }
}

/// Members of a collective wait for the last one, and end together; the time from the last start to
/// each end is kept.
fn meet(job: &ReplayJob<'_>, layouts: &[ReplayLayout<'_>], builder: &mut NetworkBuilder) {
    for collective in &job.collectives {
        let members = collective.members.iter();
        let members: Vec<(NetworkNodeId, NetworkNodeId)> =
            members.map(|member| layouts[member.timeline as usize].op(member.op)).collect();
        let starts = members.iter().map(|(start, _)| builder.time(*start));
        let Some(last) = starts.max() else {
            continue;
        };
        let meeting = builder.node(last, TieOrder::Meeting);
        let (_, waited) = collective.waits(job);
        for ((start, end), waited) in members.into_iter().zip(waited) {
            builder.edge(start, meeting, 0);
            if waited {
                builder.fixed(meeting, end);
            }
        }
    }
}
