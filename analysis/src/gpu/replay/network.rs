//! A schedule as a network: nodes, and the nodes that each waits for.
//!
//! The time of a node is the latest of (time of a node that it waits for + delay). Owns the delays
//! and the propagation of changed delays; `network/builder.rs` the order of nodes. Knows nothing of GPUs.

mod builder;

pub(super) use self::builder::{Edge, NetworkBuilder, TieOrder};

use super::delays::DelayList;
use crate::spans::index::Index;
use crate::time::later;

/// A node of the builder.
#[derive(Debug)]
pub(super) struct Node;
pub(super) type NetworkNodeId = Index<Node>;
/// An edge of the builder.
pub(super) type EdgeIndex = Index<Edge>;
/// Place of a node, and of an edge, in the [`Network`].
pub(super) type Rank = Index<Network>;
pub(super) type EdgeRank = Index<NetworkRun<'static>>;

/// Times stay within this many nanoseconds of the origin (36 years), so that sums of a few of them
/// cannot overflow.
pub(super) const LIMIT_NS: i64 = 1 << 60;

/// Most nodes of a network. Nodes and edges are numbered with 32 bits; a node has two to three
/// edges into it, so that the edges of this number of nodes fit, too. The lists of such a network
/// take about 30 GB.
pub(in crate::gpu) const MAX_NODES: u64 = u32::MAX as u64 / MAX_EDGES;
/// Most edges for each of these nodes.
pub(in crate::gpu) const MAX_EDGES: u64 = 8;

/// Nodes in an order with each after all nodes that it waits for.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Edges into node `n`: `first[n]..first[n + 1]`.
    first: Vec<u32>,
    from: Vec<Rank>,
    delays: DelayList,
    measured: Vec<i64>,
    /// The last node that waits for this one.
    reach: Vec<Rank>,
    /// Place of each node of the builder.
    rank: Vec<Rank>,
    /// Place of each edge of the builder; `None` if it was left out.
    position: Vec<Option<EdgeRank>>,
}

/// A changed delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DelayChange {
    pub(super) edge: EdgeIndex,
    pub(super) by_ns: i64,
}

/// One reason of a node to wait, by places in the network.
#[derive(Debug, Clone, Copy)]
pub(super) struct NetworkWait {
    pub(super) edge: usize,
    pub(super) from: usize,
    pub(super) delay_ns: i64,
}

impl Network {
    /// Extends the edge with the latest time to the measured time, so that unchanged delays give
    /// the measured times exactly.
    fn tighten(&mut self) {
        for node in 0..self.measured.len() {
            let edges = self.edges(node);
            let from_ns = |edge: usize| self.measured[self.from[edge].at()];
            // Measured times are within the limit, delays and differences within twice of it.
            let latest = edges.max_by_key(|edge| from_ns(*edge) + self.delays.get(*edge));
            if let Some(edge) = latest {
                self.delays.set(edge, self.measured[node] - from_ns(edge));
            }
        }
    }

    fn edges(&self, node: usize) -> std::ops::Range<usize> {
        self.first[node] as usize..self.first[node + 1] as usize
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.measured.len()
    }

    /// Number of edges that were not left out.
    pub(super) fn edge_count(&self) -> usize {
        self.from.len()
    }

    /// Place of a node in the order.
    pub(super) fn place(&self, node: NetworkNodeId) -> usize {
        self.rank[node.at()].at()
    }

    /// The nodes in their order.
    pub(super) fn in_order(&self) -> Vec<NetworkNodeId> {
        let mut nodes = vec![NetworkNodeId::new(0); self.len()];
        for (node, rank) in self.rank.iter().enumerate() {
            nodes[rank.at()] = Index::new(node);
        }
        nodes
    }

    /// Place of an edge of the builder; `None` if it was left out.
    pub(super) fn edge_place(&self, edge: EdgeIndex) -> Option<usize> {
        self.position[edge.at()].map(Index::at)
    }

    /// The waits of the node at a place, in the order of the edges.
    pub(super) fn waits(&self, place: usize) -> impl Iterator<Item = NetworkWait> {
        self.edges(place).map(|edge| NetworkWait {
            edge,
            from: self.from[edge].at(),
            delay_ns: self.delays.get(edge),
        })
    }

    /// The delay of the edge at a place.
    pub(super) fn delay_at(&self, edge: usize) -> i64 {
        self.delays.get(edge)
    }

    /// The wait that decided the time of the node at a place: if there are several, the wait that [`Self::tighten`]
    /// extends. `None` for a node that waits for nothing.
    pub(super) fn decisive(&self, place: usize) -> Option<NetworkWait> {
        self.waits(place).max_by_key(|wait| self.measured[wait.from] + wait.delay_ns)
    }

    /// The measured time of the node at a place.
    pub(super) fn measured_at(&self, place: usize) -> i64 {
        self.measured[place]
    }

    /// Whether a node may be the last of all: no other node is certain to be no earlier.
    pub(super) fn may_be_last(&self) -> Vec<bool> {
        let mut last = vec![true; self.len()];
        for (from, delay) in self.from.iter().zip(self.delays.iter()) {
            if delay >= 0 {
                last[from.at()] = false;
            }
        }
        self.rank.iter().map(|rank| last[rank.at()]).collect()
    }

    /// The measured time of a node.
    pub(super) fn measured(&self, node: NetworkNodeId) -> i64 {
        self.time_in(&self.measured, node)
    }

    /// The time of a node in a run.
    pub(super) fn time_in(&self, times: &[i64], node: NetworkNodeId) -> i64 {
        times[self.rank[node.at()].at()]
    }

    /// A run with all delays as learned.
    pub(super) fn run(&self) -> NetworkRun<'_> {
        NetworkRun { network: self, times: self.measured.clone(), delays: self.delays.clone() }
    }
}

/// Times under changed delays.
#[derive(Debug, Clone)]
pub(super) struct NetworkRun<'a> {
    network: &'a Network,
    times: Vec<i64>,
    delays: DelayList,
}

impl NetworkRun<'_> {
    /// Changes delays and recomputes all times that depend on them. Overwritten values are added to
    /// `undo`, if given.
    pub(super) fn change(&mut self, deltas: &[DelayChange], undo: Option<&mut DelayUndo>) {
        let network = self.network;
        let placed = deltas
            .iter()
            .filter_map(|delta| Some((network.position[delta.edge.at()]?, delta.by_ns)));
        self.change_with(placed, undo);
    }

    /// The same, of delays by the place of their edge ([`NetworkWait::edge`]).
    pub(super) fn change_at(&mut self, deltas: impl Iterator<Item = (EdgeRank, i64)>) {
        self.change_with(deltas, None);
    }

    fn change_with(
        &mut self,
        deltas: impl Iterator<Item = (EdgeRank, i64)>,
        mut undo: Option<&mut DelayUndo>,
    ) {
        let network = self.network;
        let (mut first, mut last) = (usize::MAX, 0);
        for (place, by_ns) in deltas {
            let delay_ns = self.delays.get(place.at());
            if let Some(undo) = undo.as_deref_mut() {
                undo.delays.push((place, delay_ns));
            }
            self.delays.set(place.at(), later(delay_ns, by_ns));
            (first, last) = (first.min(place.at()), last.max(place.at()));
        }
        if first > last {
            return;
        }
        // Edges are in the order of the nodes that they lead to.
        let to = |edge| network.first.partition_point(|first| *first as usize <= edge) - 1;
        let (start, mut horizon) = (to(first), to(last));
        // Every edge leads to a later place: after the last node that waits for a changed one nothing changes.
        let mut node = start;
        while node <= horizon {
            let time = self.time(node);
            if time != self.times[node] {
                if let Some(undo) = undo.as_deref_mut() {
                    undo.times.push((Rank::new(node), self.times[node]));
                }
                self.times[node] = time;
                horizon = horizon.max(network.reach[node].at());
            }
            node += 1;
        }
    }

    fn time(&self, node: usize) -> i64 {
        let network = self.network;
        let mut latest = None;
        for edge in network.edges(node) {
            let from = self.times[network.from[edge].at()];
            latest = latest.max(Some(later(from, self.delays.get(edge))));
        }
        latest.unwrap_or(network.measured[node])
    }

    /// Back to the delays as learned.
    pub(super) fn restart(&mut self) {
        self.times.clone_from(&self.network.measured);
        self.delays.clone_from(&self.network.delays);
    }

    /// Undoes a change.
    pub(super) fn undo(&mut self, undo: &mut DelayUndo) {
        for (position, delay) in undo.delays.drain(..).rev() {
            self.delays.set(position.at(), delay);
        }
        for (node, time) in undo.times.drain(..).rev() {
            self.times[node.at()] = time;
        }
    }

    /// The time of a node of the builder.
    pub(super) fn time_of(&self, node: NetworkNodeId) -> i64 {
        self.network.time_in(&self.times, node)
    }

    /// All times, in the network's order.
    pub(super) fn into_times(self) -> Vec<i64> {
        self.times
    }
}

/// The values that a change overwrote.
#[derive(Debug, Default)]
pub(super) struct DelayUndo {
    delays: Vec<(EdgeRank, i64)>,
    times: Vec<(Rank, i64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Steps that are quadratic would not end.
    #[test]
    fn changes_of_a_million_operations_in_a_row_reach_all_that_follow() {
        const OPERATIONS: i64 = 1_000_000;
        let mut builder = NetworkBuilder::default();
        let mut before = builder.node(0, TieOrder::Origin);
        let mut edges = Vec::new();
        for at in 0..OPERATIONS {
            let start = builder.node(at * 10 + 3, TieOrder::OpBegin);
            let end = builder.node(at * 10 + 10, TieOrder::OpEnd);
            edges.extend([builder.fixed(before, start), builder.fixed(start, end)]);
            before = end;
        }
        let network = builder.finish();
        let (mut run, mut undo) = (network.run(), DelayUndo::default());
        let shorter = |edge: &EdgeIndex| DelayChange { edge: *edge, by_ns: -1 };
        for changed in [&edges[..1], &edges[..]] {
            let changes: Vec<DelayChange> = changed.iter().map(shorter).collect();
            run.change(&changes, Some(&mut undo));
            assert_eq!(run.time_of(before), OPERATIONS * 10 - changed.len() as i64);
            run.undo(&mut undo);
            assert_eq!(run.times, network.measured);
        }
    }

    proptest! {
        /// Whatever waits for whatever: shorter delays make nothing later, the shortest least of all, in any order,
        /// and undone they leave the measured times.
        #[test]
        fn shorter_delays_make_nothing_later(
            times in prop::collection::vec(0..1_000i64, 1..30),
            edges in prop::collection::vec((0..30usize, 0..30usize, -100..1_100i64), 0..60),
            shorter in prop::collection::vec((0..60usize, 0..500i64), 0..20),
        ) {
            let mut builder = NetworkBuilder::default();
            let nodes: Vec<_> = times.iter().map(|at| builder.node(*at, TieOrder::Origin)).collect();
            let edges: Vec<EdgeIndex> = edges
                .iter()
                .filter(|(from, to, _)| from.max(to) < &nodes.len())
                .map(|(from, to, delay_ns)| builder.edge(nodes[*from], nodes[*to], *delay_ns))
                .collect();
            let network = builder.finish();
            let of = |(edge, by_ns): &(usize, i64)| {
                edges.get(*edge).map(|edge| DelayChange { edge: *edge, by_ns: -by_ns })
            };
            let changes: Vec<DelayChange> = shorter.iter().filter_map(of).collect();
            let (mut run, mut undo) = (network.run(), DelayUndo::default());
            for change in &changes {
                let before = run.times.clone();
                run.change(&[*change], Some(&mut undo));
                prop_assert!(run.times.iter().zip(&before).all(|(now, before)| now <= before));
            }
            let mut other = network.run();
            other.change(&changes.iter().rev().copied().collect::<Vec<_>>(), None);
            prop_assert_eq!(&other.times, &run.times);
            run.undo(&mut undo);
            prop_assert_eq!(&run.times, &network.measured);
        }
    }
}
