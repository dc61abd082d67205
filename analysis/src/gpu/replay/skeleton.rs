//! Data that one rank's schedule needs from the other ranks, and that they need from it.
//!
//! Ranks wait for each other in collectives, sends and receives only. So the network of a rank is cut there: the end
//! of a collective, send or receive comes from outside. From the rest, only two things stay. The first are nodes that
//! something outside asks for: starts and ends of these, steps, the end of the rank. The second are the delays
//! between them that can decide in one of the scenarios, with their length in each: see `chains.rs`, `cut.rs` and
//! `graph.rs`. That is exact: joined with the other ranks' skeletons (`joined.rs`), all these times are as in a
//! replay of the whole job.

mod chains;
mod cut;
mod graph;
mod joined;

use crate::gpu::timeline::{OpIndex, Timeline};
pub use joined::{JoinedReplay, JoinedSkeletons};

use super::pauses::AppliedChange;
use super::{ModelParts, ReplayChange, ReplayJob, ReplayModel, pauses};
use crate::spans::index::Index;
use cut::Cut;
use graph::{DelayRows, EdgeDelays};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The reduced network of one rank. Refers to nothing outside itself, but for the operations that
/// are collectives, by their place in the timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skeleton {
    /// First time of anything on the clock of the timeline, in ns: zero of `times_ns`.
    origin_ns: u64,
    /// Measured time of each node. The first one is the origin.
    times_ns: Vec<i64>,
    /// By the node that waits.
    edges: Vec<SkeletonEdge>,
    /// Differences from the measured delays; the first is the measured run, without any.
    columns: Vec<Vec<ChangedEdge>>,
    /// Index of each scenario in `columns`: see [`ReplayModel::skeleton`].
    scenarios: Vec<u32>,
    /// Kernels that may be collectives, by operation.
    meets: Vec<SkeletonMeet>,
    /// Last end of any operation or call, except of threads that only poll; `None` without any.
    end: Option<u32>,
    /// All steps.
    stepping: Option<SteppingMarks>,
    /// The steps of the thread that has most.
    steps: Vec<MarkedStep>,
    /// Number and time of the pauses of the rank.
    pauses: u64,
    paused_ns: u64,
}

/// `to` is no earlier than `from` plus the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SkeletonEdge {
    from: u32,
    to: u32,
    delay_ns: i64,
}

/// A delay that is longer, by so much, in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ChangedEdge {
    edge: u32,
    by_ns: i64,
}

/// A kernel that may be part of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SkeletonMeet {
    op: u32,
    start: u32,
    end: u32,
}

/// A timestamp of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SkeletonMark {
    node: u32,
    /// It is no later than this node.
    no_later: Option<u32>,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MarkedStep {
    start: SkeletonMark,
    end: SkeletonMark,
    /// Whether a pause started in it.
    paused: bool,
}

/// From the start of the first step until everything launched in the steps has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SteppingMarks {
    /// Number of steps.
    count: u64,
    start: SkeletonMark,
    /// End of the step that ends last.
    end: SkeletonMark,
    /// Last end of the operations launched from `start` to `end`; `None` without any.
    finished: Option<u32>,
}

impl Skeleton {
    /// Gives the operations that may be collectives other places, in the same order. `of`: by the
    /// place that each has.
    pub(crate) fn renumber(&mut self, of: impl Fn(usize) -> OpIndex) {
        for meet in &mut self.meets {
            meet.op = small(of(meet.op as usize).at());
        }
    }

    /// Number of times in it.
    pub fn nodes(&self) -> usize {
        self.times_ns.len()
    }

    /// Number of delays in it.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }
}

impl ReplayModel<'_> {
    /// The skeleton of a model of one timeline alone. `meets`: the operations that may be collectives. Scenario 0 of
    /// the skeleton is the measured run, 1 the run without any of its pauses. Scenarios from 2 on are `changes`, of
    /// the timeline 0.
    ///
    /// # Panics
    ///
    /// If the model is not of this timeline alone, if it does not contain one of the operations, or
    /// if a change names a pause or a thread that is not in it.
    pub fn skeleton(
        &self,
        timeline: &Timeline,
        meets: &[OpIndex],
        changes: &[ReplayChange],
    ) -> Skeleton {
        assert_eq!(self.inner.layouts.len(), 1, "a model of one timeline");
        let scenarios = Scenarios::of(&self.inner, timeline, changes);
        let cut = Cut::new(&self.inner, scenarios, meets);
        cut.skeleton(timeline)
    }
}

/// The delays of a network in all scenarios.
struct Scenarios<'a> {
    /// The scenarios that differ, the measured one first.
    columns: Vec<AppliedChange>,
    /// Index of each scenario among them.
    places: Vec<u32>,
    delays: EdgeDelays<'a>,
    rows: DelayRows,
}

impl<'a> Scenarios<'a> {
    fn of(model: &'a ModelParts<'_>, timeline: &Timeline, changes: &[ReplayChange]) -> Self {
        let without = ReplayChange::without_all(&ReplayJob::single(timeline));
        let mut columns: Vec<AppliedChange> = Vec::new();
        let mut places = Vec::new();
        for change in [&ReplayChange::default(), &without].into_iter().chain(changes) {
            let applied = pauses::apply(&model.layouts, &model.effects, change);
            let known = columns.iter().position(|column| *column == applied);
            let place = known.unwrap_or_else(|| {
                columns.push(applied);
                columns.len() - 1
            });
            places.push(small(place));
        }
        let network = &model.network;
        let mut rows = DelayRows::new(columns.len() - 1);
        let mut delays = EdgeDelays::new(network);
        let mut changed: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for (column, applied) in columns.iter().enumerate().skip(1) {
            for delta in applied.deltas() {
                if let Some(edge) = network.edge_place(delta.edge) {
                    let by_ns = changed.entry(edge).or_insert_with(|| vec![0; columns.len()]);
                    by_ns[column] = delta.by_ns;
                }
            }
        }
        for (edge, by_ns) in changed {
            delays.change(edge, &mut rows, by_ns.into_iter().skip(1));
        }
        Self { columns, places, delays, rows }
    }
}

/// Numbers of nodes and edges: [`Index::new`] panics beyond `u32`.
fn small(place: usize) -> u32 {
    Index::<()>::new(place).at() as u32
}
