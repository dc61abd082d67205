//! From the network of a rank to its skeleton: cut at collectives, with the nodes that are asked for,
//! then reduced.

use super::chains::{ChainEntries, Chains};
use super::graph::{Delay, DelayGraph, DelayRows, EdgeDelays, GraphIndex};
use super::{
    ChangedEdge, MarkedStep, Scenarios, Skeleton, SkeletonEdge, SkeletonMark, SkeletonMeet,
    SteppingMarks, small,
};
use crate::gpu::replay::ModelParts;
use crate::gpu::replay::layout::ReplayLayout;
use crate::gpu::replay::network::{Network, NetworkNodeId, Rank};
use crate::gpu::replay::pauses::AppliedChange;
use crate::gpu::replay::steps::paused_steps;
use crate::gpu::replay::timestamps::TimestampRule;
use crate::gpu::timeline::{OpIndex, ThreadIndex, Timeline};
use crate::spans::PauseSpan;
use crate::spans::index::Index;
use crate::time::{difference, sum};
use std::collections::BTreeMap;
use std::ops::Range;

/// The network of a rank while it is cut and reduced.
pub(super) struct Cut<'a> {
    network: &'a Network,
    layout: &'a ReplayLayout<'a>,
    columns: Vec<AppliedChange>,
    places: Vec<u32>,
    graph: DelayGraph,
    /// Measured time of each node of the graph, in ns after the origin.
    times_ns: Vec<i64>,
    origin: GraphIndex,
    /// The nodes of the graph that the places of the network follow, by place.
    sources: Vec<DelayedNode>,
    /// The sources of a place: `first_source[place]..first_source[place + 1]`.
    first_source: Vec<u32>,
    /// Per place that is the end of a collective, the place of its start.
    starts: Vec<Option<Rank>>,
    delays: EdgeDelays<'a>,
    /// Operation, and places of start and end.
    meets: Vec<(OpIndex, usize, usize)>,
    marks: BTreeMap<(ThreadIndex, u64), GraphMark>,
}

/// A node that another one follows after a delay.
type DelayedNode = (GraphIndex, Delay);

/// A timestamp, and a node that is an upper bound for it.
type GraphMark = (GraphIndex, Option<GraphIndex>);

/// A node of the network that follows more nodes of the graph than these becomes one itself: the
/// sum over a chain of such nodes would grow with the square of its length.
const SOURCES: usize = 3;

impl<'a> Cut<'a> {
    pub(super) fn new(
        model: &'a ModelParts<'a>,
        scenarios: Scenarios<'a>,
        meets: &[OpIndex],
    ) -> Self {
        let (network, layout) = (&model.network, &model.layouts[0]);
        let mut meets: Vec<(OpIndex, usize, usize)> = meets
            .iter()
            .map(|op| {
                let (start, end) = layout.op(*op);
                (*op, network.place(start), network.place(end))
            })
            .collect();
        meets.sort_unstable();
        meets.dedup();
        let mut starts = vec![None; network.len()];
        meets.iter().for_each(|(_, start, end)| starts[*end] = Some(Rank::new(*start)));
        let chains = Chains::new(network, &scenarios, layout, &starts);
        let mut graph = DelayGraph::new(scenarios.rows);
        let mut cut = Self {
            network,
            layout,
            columns: scenarios.columns,
            places: scenarios.places,
            origin: graph.add(true),
            graph,
            times_ns: vec![0],
            sources: Vec::new(),
            first_source: vec![0],
            starts,
            delays: scenarios.delays,
            meets,
            marks: BTreeMap::new(),
        };
        cut.fold(&chains);
        cut
    }

    /// Makes the graph of the network. Nodes that follow few nodes are left out right away.
    fn fold(&mut self, chains: &Chains) {
        let network = self.network;
        let mut kept: Vec<bool> = self.starts.iter().map(Option::is_some).collect();
        self.meets.iter().for_each(|(_, start, _)| kept[*start] = true);
        let mut entries = ChainEntries::default();
        let mut sources: Vec<DelayedNode> = Vec::new();
        for (node, is_kept) in kept.into_iter().enumerate() {
            let mut waits = network.waits(node).peekable();
            if self.starts[node].is_some() {
                // It comes from outside.
            } else if waits.peek().is_none() {
                sources.push((self.origin, DelayRows::same(network.measured_at(node))));
            } else {
                let before = chains.before(node);
                for wait in waits {
                    for (from, delay) in &self.sources[self.sources_of(wait.from)] {
                        let delay = self.graph.rows.sum(*delay, self.delays.at(wait.edge));
                        if before.is_some()
                            && before != Some(wait.from)
                            && !entries.add(chains, &self.graph.rows, node, *from, delay)
                        {
                            continue;
                        }
                        let rows = &mut self.graph.rows;
                        match sources.iter_mut().find(|(known, _)| known == from) {
                            Some((_, known)) => *known = rows.longest(*known, delay),
                            None => sources.push((*from, delay)),
                        }
                    }
                }
            }
            if !is_kept && sources.len() <= SOURCES {
                self.sources.extend_from_slice(&sources);
            } else {
                let add = self.add(network.measured_at(node), is_kept);
                for (from, delay) in &sources {
                    self.graph.link(*from, add, *delay);
                }
                entries.is_node(chains, node, add);
                self.sources.push((add, DelayRows::same(0)));
            }
            sources.clear();
            self.first_source.push(small(self.sources.len()));
        }
    }

    /// Adds a node to the graph.
    fn add(&mut self, measured_ns: i64, kept: bool) -> GraphIndex {
        self.times_ns.push(measured_ns);
        self.graph.add(kept)
    }

    /// A node of the graph is at least that much later than a place of the network.
    fn link(&mut self, place: usize, to: GraphIndex, delay: Delay) {
        for (from, before) in &self.sources[self.sources_of(place)] {
            let delay = self.graph.rows.sum(*before, delay);
            self.graph.link(*from, to, delay);
        }
    }

    /// Where the sources of a place are.
    fn sources_of(&self, place: usize) -> Range<usize> {
        self.first_source[place] as usize..self.first_source[place + 1] as usize
    }

    /// The node of the graph that a kept place of the network became.
    fn node(&self, place: usize) -> Option<GraphIndex> {
        Some(self.sources.get(self.sources_of(place).start)?.0)
    }

    /// `timeline`: the network was learned from it.
    pub(super) fn skeleton(mut self, timeline: &Timeline) -> Skeleton {
        let layout = self.layout;
        let calls = layout.working_calls().map(|call| layout.call(call).1);
        let ops = layout.all_ops().map(|op| layout.op(op).1);
        let end = self.last_of(calls.chain(ops));
        let steps: Vec<_> = paused_steps(timeline)
            .map(|(step, paused)| {
                let start = self.mark(step.thread, step.start_ns);
                (start, self.mark(step.thread, step.end_ns), paused)
            })
            .collect();
        let stepping = self.stepping(timeline);
        self.graph.reduce();
        let mut numbers: Vec<Option<u32>> = vec![None; self.times_ns.len()];
        let mut skeleton = Skeleton {
            origin_ns: timeline.origin_ns(),
            pauses: timeline.pauses.len() as u64,
            paused_ns: sum(timeline.pauses.iter().map(PauseSpan::duration_ns)),
            ..Skeleton::default()
        };
        for node in self.graph.left() {
            numbers[node.at()] = Some(small(skeleton.times_ns.len()));
            skeleton.times_ns.push(self.times_ns[node.at()]);
        }
        let number = |node: GraphIndex| numbers[node.at()].unwrap_or_default();
        let mark = |(node, no_later): GraphMark| SkeletonMark {
            node: number(node),
            no_later: no_later.map(number),
        };
        skeleton.end = end.map(number);
        skeleton.steps = steps
            .into_iter()
            .map(|(start, end, paused)| MarkedStep { start: mark(start), end: mark(end), paused })
            .collect();
        skeleton.stepping = stepping.map(|(start, end, finished)| SteppingMarks {
            count: timeline.steps.len() as u64,
            start: mark(start),
            end: mark(end),
            finished: finished.map(number),
        });
        let meets = self.meets.iter().filter_map(|(op, start, end)| {
            Some(SkeletonMeet {
                op: small(op.at()),
                start: number(self.node(*start)?),
                end: number(self.node(*end)?),
            })
        });
        skeleton.meets = meets.collect();
        skeleton.columns = vec![Vec::new(); self.columns.len()];
        for node in self.graph.left() {
            for (from, delay) in self.graph.waits(node) {
                let edge = small(skeleton.edges.len());
                let delay_ns = delay.measured_ns;
                for (other, column) in skeleton.columns.iter_mut().skip(1).enumerate() {
                    let by_ns = self.graph.rows.by_ns(delay, other);
                    if by_ns != 0 {
                        column.push(ChangedEdge { edge, by_ns });
                    }
                }
                skeleton.edges.push(SkeletonEdge {
                    from: number(from),
                    to: number(node),
                    delay_ns,
                });
            }
        }
        skeleton.scenarios = self.places;
        skeleton
    }

    /// A node at the time of the last of some; `None` without any. Nodes that another one of them
    /// certainly follows do not matter.
    fn last_of(&mut self, nodes: impl Iterator<Item = NetworkNodeId>) -> Option<GraphIndex> {
        let mut asked = vec![false; self.network.len()];
        for node in nodes {
            asked[self.network.place(node)] = true;
        }
        let asked_nodes = (0..asked.len()).filter(|node| asked[*node]);
        let measured_ns = asked_nodes.map(|node| self.network.measured_at(node)).max()?;
        let mut followed = vec![false; asked.len()];
        for (_, start, end) in &self.meets {
            let length_ns = self.network.measured_at(*end) - self.network.measured_at(*start);
            followed[*start] = length_ns >= 0 && asked[*end];
        }
        let last = self.add(measured_ns, true);
        for node in (0..asked.len()).rev() {
            if (asked[node] || followed[node]) && self.starts[node].is_none() {
                for wait in self.network.waits(node) {
                    let (shortest_ns, _) = self.graph.rows.range(self.delays.at(wait.edge));
                    followed[wait.from] |= shortest_ns >= 0;
                }
            }
            if asked[node] && !followed[node] {
                self.link(node, last, DelayRows::same(0));
            }
        }
        Some(last)
    }

    /// A timestamp on the clock of the timeline.
    fn mark(&mut self, thread: ThreadIndex, at_ns: u64) -> GraphMark {
        if let Some(known) = self.marks.get(&(thread, at_ns)) {
            return *known;
        }
        let network = self.network;
        let rule = TimestampRule::of(self.layout, thread, at_ns);
        let at = self.layout.on_network(at_ns);
        let mark = self.add(at, true);
        if let Some(after) = rule.after {
            let by_ns = self.columns.iter().skip(1);
            let by_ns =
                by_ns.map(|column| rule.paused.map_or(0, |edge| column.before(edge, at_ns)));
            let measured_ns = difference(at, network.measured(after));
            let delay = self.graph.rows.delay(measured_ns, by_ns);
            self.link(network.place(after), mark, delay);
        } else {
            self.graph.link(self.origin, mark, DelayRows::same(at));
        }
        if let Some(end) = rule.no_earlier {
            self.link(network.place(end), mark, DelayRows::same(0));
        }
        let no_later = rule.no_later.map(|next| {
            let no_later = self.add(network.measured(next), true);
            self.link(network.place(next), no_later, DelayRows::same(0));
            no_later
        });
        self.marks.insert((thread, at_ns), (mark, no_later));
        (mark, no_later)
    }

    /// Start of the first step, end of the last, and of everything launched in between.
    fn stepping(
        &mut self,
        timeline: &Timeline,
    ) -> Option<(GraphMark, GraphMark, Option<GraphIndex>)> {
        let first = timeline.steps.first()?;
        let last = timeline.steps.iter().max_by_key(|step| step.end_ns)?;
        let asked = Index::enumerate(&timeline.ops).filter(|(_, op)| {
            let call = timeline.call(op);
            matches!(call, Some(call) if (first.start_ns..=last.end_ns).contains(&call.start_ns))
        });
        let layout = self.layout;
        let finished = self.last_of(asked.map(|(op, _)| layout.op(op).1));
        let start = self.mark(first.thread, first.start_ns);
        Some((start, self.mark(last.thread, last.end_ns), finished))
    }
}
