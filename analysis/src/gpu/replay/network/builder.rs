//! Nodes and edges, until they are ordered.

use super::{EdgeIndex, EdgeRank, LIMIT_NS, Network, NetworkNodeId, Rank};
use crate::gpu::replay::delays::DelayList;
use crate::spans::index::Index;
use crate::time::later;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Collects nodes and edges.
#[derive(Debug, Default)]
pub(in crate::gpu::replay) struct NetworkBuilder {
    times: Vec<i64>,
    /// If nodes have the same time, the one with the lower class comes first.
    classes: Vec<TieOrder>,
    edges: Vec<Edge>,
}

/// `to` is at least `delay_ns` after `from`.
#[derive(Debug, Clone, Copy)]
pub(in crate::gpu::replay) struct Edge {
    from: NetworkNodeId,
    to: NetworkNodeId,
    delay_ns: i64,
}

/// Order of two nodes with the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::gpu::replay) enum TieOrder {
    Origin,
    OpEnd,
    CallEnd,
    CallBegin,
    OpBegin,
    Meeting,
}

impl NetworkBuilder {
    /// As many nodes will be added.
    pub(in crate::gpu::replay) fn reserve(&mut self, nodes: usize) {
        self.times.reserve_exact(nodes);
        self.classes.reserve_exact(nodes);
    }

    /// Adds a node with its measured time.
    pub(in crate::gpu::replay) fn node(&mut self, time_ns: i64, class: TieOrder) -> NetworkNodeId {
        self.classes.push(class);
        self.times.push(time_ns.clamp(-LIMIT_NS, LIMIT_NS));
        Index::new(self.times.len() - 1)
    }

    /// The measured time of a node.
    pub(in crate::gpu::replay) fn time(&self, node: NetworkNodeId) -> i64 {
        self.times[node.at()]
    }

    /// `to` waits for `from`, at least `delay_ns`; never more than was measured between them. Of
    /// the edges to a node, the one with the latest time is extended to the measured time.
    pub(in crate::gpu::replay) fn edge(
        &mut self,
        from: NetworkNodeId,
        to: NetworkNodeId,
        delay_ns: i64,
    ) -> EdgeIndex {
        let measured_ns = self.time(to) - self.time(from);
        let delay_ns = delay_ns.min(measured_ns);
        Index::push(&mut self.edges, Edge { from, to, delay_ns })
    }

    /// `to` stays at the measured distance from `from`.
    pub(in crate::gpu::replay) fn fixed(
        &mut self,
        from: NetworkNodeId,
        to: NetworkNodeId,
    ) -> EdgeIndex {
        self.edge(from, to, i64::MAX)
    }

    /// Makes an edge's delay longer, up to the measured.
    pub(in crate::gpu::replay) fn lengthen(&mut self, edge: EdgeIndex, by_ns: i64) {
        let Edge { from, to, delay_ns } = self.edges[edge];
        let measured_ns = self.time(to) - self.time(from);
        self.edges[edge].delay_ns = later(delay_ns, by_ns).min(measured_ns);
    }

    /// Orders the nodes. Edges that would close a circle are left out.
    pub(in crate::gpu::replay) fn finish(mut self) -> Network {
        self.edges.shrink_to_fit();
        let rank = self.ranks();
        let mut network = self.by_rank(rank);
        network.tighten();
        network
    }

    /// The place of every node: all that it waits for first, else by time. In a circle the
    /// earliest goes first.
    fn ranks(&self) -> Vec<Rank> {
        // Topological sorting (Kahn, CACM 5, 1962: https://doi.org/10.1145/368996.369025), but for
        // circles: many edges are inferred, and two of them may contradict each other.
        let count = self.times.len();
        let (first_out, out) = self.successors();
        let mut missing = vec![0u32; count];
        for edge in &self.edges {
            missing[edge.to.at()] += 1;
        }
        let nodes = || (0..count).map(NetworkNodeId::new);
        let key = |node: NetworkNodeId| (self.times[node.at()], self.classes[node.at()], node);
        let sorted = || {
            let mut by_time: Vec<NetworkNodeId> = nodes().collect();
            by_time.sort_unstable_by_key(|node| key(*node));
            by_time.into_iter()
        };
        let mut by_time = None;
        let ready = nodes().filter(|node| missing[node.at()] == 0);
        let mut heap: BinaryHeap<_> = ready.map(|node| Reverse(key(node))).collect();
        let mut placed = vec![false; count];
        let mut ranks = vec![Rank::new(0); count];
        for rank in (0..count).map(Rank::new) {
            let ready = heap.pop().map(|Reverse((_, _, node))| node);
            let circle = || {
                let by_time = by_time.get_or_insert_with(sorted);
                by_time.find(|node| !placed[node.at()])
            };
            let Some(node) = ready.or_else(circle) else {
                break;
            };
            debug_assert!(!placed[node.at()], "a node becomes ready once");
            placed[node.at()] = true;
            ranks[node.at()] = rank;
            let range = first_out[node.at()] as usize..first_out[node.at() + 1] as usize;
            for to in &out[range] {
                let missing = &mut missing[to.at()];
                *missing -= 1;
                if *missing == 0 && !placed[to.at()] {
                    heap.push(Reverse(key(*to)));
                }
            }
        }
        ranks
    }

    fn successors(&self) -> (Vec<u32>, Vec<NetworkNodeId>) {
        let mut first = vec![0u32; self.times.len() + 1];
        for edge in &self.edges {
            first[edge.from.at() + 1] += 1;
        }
        accumulate(&mut first);
        let mut slots = first.clone();
        let mut out = vec![NetworkNodeId::new(0); self.edges.len()];
        for edge in &self.edges {
            let slot = &mut slots[edge.from.at()];
            out[*slot as usize] = edge.to;
            *slot += 1;
        }
        (first, out)
    }

    fn by_rank(self, rank: Vec<Rank>) -> Network {
        let count = self.times.len();
        let mut measured = vec![0; count];
        for (time, rank) in self.times.into_iter().zip(&rank) {
            measured[rank.at()] = time;
        }
        let ranked = |edge: &Edge| (rank[edge.from.at()], rank[edge.to.at()]);
        let mut first = vec![0u32; count + 1];
        let mut reach: Vec<Rank> = (0..count).map(Rank::new).collect();
        let mut kept = 0;
        for edge in &self.edges {
            let (from, to) = ranked(edge);
            if from < to {
                first[to.at() + 1] += 1;
                reach[from.at()] = reach[from.at()].max(to);
                kept += 1;
            }
        }
        accumulate(&mut first);
        let mut slots = first.clone();
        let (mut from_of, mut delays) = (vec![Rank::new(0); kept], DelayList::zeros(kept));
        let position = self.edges.iter().map(|edge| {
            let (from, to) = ranked(edge);
            (from < to).then(|| {
                let slot = slots[to.at()] as usize;
                slots[to.at()] += 1;
                from_of[slot] = from;
                delays.set(slot, edge.delay_ns);
                EdgeRank::new(slot)
            })
        });
        Network {
            position: position.collect(),
            first,
            from: from_of,
            delays,
            measured,
            reach,
            rank,
        }
    }
}

fn accumulate(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}
