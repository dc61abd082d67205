//! What each pause cost: by replay without it, and by removing one after the other.

use super::exposed::PauseSurroundings;
use super::network::{DelayChange, DelayUndo, NetworkNodeId, NetworkRun};
use super::{ReplayChange, ReplayJob, ReplayModel, pauses};
use crate::gpu::timeline::PauseIndex;
use crate::spans::PauseSpan;
use crate::spans::index::Index;
use crate::time::duration_ns;
use std::ops::Range;

/// Limits of the work of an attribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributionBudget {
    /// Pauses that are replayed one by one, the longest; the others in groups between them.
    pub single: usize,
}

/// Limit of the nodes that an attribution computes, so that it takes at most a few seconds: a
/// replay computes some hundred million per second.
const MAX_EVENTS: usize = 200_000_000;
/// At least this many pauses are replayed one by one, whatever the size ...
const FEWEST: usize = 32;
/// ... and at most this many.
const MOST: usize = 2_000;

impl AttributionBudget {
    /// For a model: fewer pauses one by one the larger it is.
    pub fn for_model(model: &ReplayModel<'_>) -> Self {
        // Each is removed twice: alone, and after all earlier ones.
        let replays = MAX_EVENTS / model.timestamps().max(1) / 2;
        Self { single: replays.clamp(FEWEST, MOST) }
    }
}

/// The cost of all pauses and of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseAttribution {
    /// End of the job as measured, on its common clock.
    pub end_ns: u64,
    /// How much earlier the job ends without any pause, in ns.
    pub cost_ns: u64,
    /// The shares in order of time; they sum to [`PauseAttribution::cost_ns`].
    pub shares: Vec<MarginalCost>,
    /// The pauses that were replayed one by one, longest first.
    pub pauses: Vec<PauseCost>,
}

/// Identifies a pause by its timeline in the job and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PauseId {
    /// Index of the timeline in [`ReplayJob::timelines`].
    pub timeline: u32,
    /// Index of the pause in that timeline.
    pub pause: PauseIndex,
}

/// How much earlier the job ends without a pause if all pauses before it are already removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarginalCost {
    /// The pause that the share belongs to.
    pub pause: PauseId,
    /// Share in ns; for pauses removed together, divided by length.
    pub share_ns: u64,
    /// Whether it was removed together with others.
    pub grouped: bool,
}

/// What one pause cost by itself, all other pauses unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseCost {
    /// The pause that was removed alone.
    pub pause: PauseId,
    /// Length of the pause, in ns.
    pub length_ns: u64,
    /// How much earlier the job ends without this pause alone, in ns.
    pub cost_ns: u64,
    /// The exposed part of the cost: GPU idle time between the start of the pause and the first
    /// operation that its thread launched after it.
    pub exposed_ns: u64,
    /// The deferred part of the cost: the rest, paid later because the pause had drained the queue.
    pub deferred_ns: u64,
    /// Length minus cost; 0 if the pause cost more.
    pub hidden_ns: u64,
}

/// Attributes the cost of a job's pauses.
pub fn attribute(
    job: &ReplayJob<'_>,
    model: &ReplayModel<'_>,
    budget: AttributionBudget,
) -> PauseAttribution {
    let pauses = in_order(job);
    let single = longest(job, &pauses, budget.single);
    let ends = model.ends();
    let end_ns = ends.latest(&model.run());
    let (shares, end_without_ns) = shares(job, model, &pauses, &single, &ends);
    let mut alone = SinglePauseReplay {
        job,
        model,
        around: PauseSurroundings::of(job),
        run: model.run(),
        ends: &ends,
        end_ns,
    };
    let mut costs: Vec<PauseCost> = single.iter().map(|at| alone.cost(pauses[*at])).collect();
    costs.sort_by_key(|cost| (std::cmp::Reverse(cost.length_ns), cost.pause));
    PauseAttribution {
        end_ns: model.on_clock(end_ns),
        // Not from times on the clock: without its pauses a job may end before the clock's zero.
        cost_ns: sooner(end_ns, end_without_ns),
        shares,
        pauses: costs,
    }
}

/// All pauses of the job by start on the common clock.
fn in_order(job: &ReplayJob<'_>) -> Vec<PauseId> {
    let mut pauses: Vec<(i128, PauseId)> = Vec::new();
    for ((index, timeline), offset_ns) in (0u32..).zip(&job.timelines).zip(&job.offsets_ns) {
        let of_one = Index::enumerate(&timeline.pauses).map(|(pause, span)| {
            let id = PauseId { timeline: index, pause };
            (i128::from(span.start_ns) + i128::from(*offset_ns), id)
        });
        pauses.extend(of_one);
    }
    pauses.sort_unstable();
    pauses.into_iter().map(|(_, pause)| pause).collect()
}

fn span<'a>(job: &ReplayJob<'a>, id: PauseId) -> &'a PauseSpan {
    &job.timelines[id.timeline as usize].pauses[id.pause]
}

/// The places of the longest pauses, in order of time.
fn longest(job: &ReplayJob<'_>, pauses: &[PauseId], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..pauses.len()).collect();
    places.sort_by_key(|at| std::cmp::Reverse(span(job, pauses[*at]).duration_ns()));
    places.truncate(count);
    places.sort_unstable();
    places
}

/// Groups of pauses that are removed together: each of `single` alone, and the runs of others
/// between them.
fn groups(count: usize, single: &[usize]) -> Vec<Range<usize>> {
    let mut groups = Vec::with_capacity(single.len() * 2 + 1);
    let mut from = 0;
    for at in single {
        if *at > from {
            groups.push(from..*at);
        }
        groups.push(*at..at + 1);
        from = at + 1;
    }
    if from < count {
        groups.push(from..count);
    }
    groups
}

fn shares(
    job: &ReplayJob<'_>,
    model: &ReplayModel<'_>,
    pauses: &[PauseId],
    single: &[usize],
    ends: &EndCandidates,
) -> (Vec<MarginalCost>, i64) {
    let mut run = model.run();
    let mut end = ends.latest(&run);
    let mut shares = Vec::with_capacity(pauses.len());
    for group in groups(pauses.len(), single) {
        let members = &pauses[group];
        // On top of earlier groups, so that the shares sum to the cost of all pauses: if two pauses hide each other,
        // neither costs anything alone.
        run.change(&model.removed(members), None);
        let without = ends.latest(&run);
        let gained = sooner(end, without);
        let lengths = members.iter().map(|pause| span(job, *pause).duration_ns());
        let parts = split(gained, &lengths.collect::<Vec<u64>>());
        let of_group = members.iter().zip(parts);
        shares.extend(of_group.map(|(pause, share_ns)| MarginalCost {
            pause: *pause,
            share_ns,
            grouped: members.len() > 1,
        }));
        end = without;
    }
    (shares, end)
}

/// From the earlier to the later, nanoseconds; 0 if they are in the wrong order.
fn sooner(later: i64, earlier: i64) -> u64 {
    later.abs_diff(earlier.min(later))
}

/// `total` in proportion to `weights`; the parts sum to it exactly.
pub(super) fn split(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut before = 0u128;
    let mut given = 0u64;
    let count = weights.len();
    let parts = weights.iter().enumerate().map(|(at, weight)| {
        before += u128::from(*weight);
        let until = match sum {
            _ if at + 1 == count => total,
            0 => 0,
            sum => (u128::from(total) * before / sum) as u64,
        };
        let part = until - given;
        given = until;
        part
    });
    parts.collect()
}

/// Replays the run without single pauses.
struct SinglePauseReplay<'a> {
    job: &'a ReplayJob<'a>,
    model: &'a ReplayModel<'a>,
    around: PauseSurroundings,
    run: NetworkRun<'a>,
    ends: &'a EndCandidates,
    end_ns: i64,
}

impl SinglePauseReplay<'_> {
    fn cost(&mut self, pause: PauseId) -> PauseCost {
        let at = pause.timeline as usize;
        let span = span(self.job, pause);
        let layout = &self.model.inner.layouts[at];
        let mut undo = DelayUndo::default();
        let deltas = self.model.removed(&[pause]);
        self.run.change(&deltas, Some(&mut undo));
        let cost_ns = sooner(self.end_ns, self.ends.latest(&self.run));
        let exposed = self.around.exposed_ns(at, span, layout, &self.run);
        self.run.undo(&mut undo);
        let exposed_ns = exposed.min(cost_ns);
        let length_ns = span.duration_ns();
        PauseCost {
            pause,
            length_ns,
            cost_ns,
            exposed_ns,
            deferred_ns: cost_ns - exposed_ns,
            hidden_ns: duration_ns(cost_ns, length_ns),
        }
    }
}

/// The nodes that may be the last of the job.
#[derive(Debug, Default)]
struct EndCandidates {
    nodes: Vec<NetworkNodeId>,
}

impl EndCandidates {
    /// The time of the last node; without any, the network's zero.
    fn latest(&self, run: &NetworkRun<'_>) -> i64 {
        let times = self.nodes.iter().map(|node| run.time_of(*node));
        times.max().unwrap_or_default()
    }
}

impl ReplayModel<'_> {
    /// What removing pauses changes.
    fn removed(&self, pauses: &[PauseId]) -> Vec<DelayChange> {
        let mut change = ReplayChange::default();
        for id in pauses {
            change.remove(id.timeline, [id.pause]);
        }
        pauses::apply(&self.inner.layouts, &self.inner.effects, &change).deltas()
    }

    /// The calls of working threads and the operations that may be last.
    fn ends(&self) -> EndCandidates {
        let last = self.inner.network.may_be_last();
        let mut nodes = Vec::new();
        for layout in &self.inner.layouts {
            nodes.extend(layout.working_calls().map(|call| layout.call(call).1));
            nodes.extend(layout.all_ops().map(|op| layout.op(op).1));
        }
        nodes.retain(|node| last[node.at()]);
        EndCandidates { nodes }
    }

    /// A time of the network on the job's common clock.
    fn on_clock(&self, time_ns: i64) -> u64 {
        let first = self.inner.layouts.first();
        if let Some(layout) = first { layout.on_clock(time_ns) } else { 0 }
    }
}
