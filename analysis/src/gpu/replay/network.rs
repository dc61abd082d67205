//! A schedule as a network: nodes, and what each of them waits for.
//!
//! The time of a node is the latest of (time of a node that it waits for + delay). Owns the order
//! of nodes, the delays, and the propagation of changed delays. Knows nothing of GPUs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No edge, no node.
pub(super) const NONE: u32 = u32::MAX;

/// Times stay within this many nanoseconds of the origin (36 years), so that sums of a few of them
/// cannot overflow.
pub(super) const LIMIT_NS: i64 = 1 << 60;

/// Collects nodes and edges.
#[derive(Debug, Default)]
pub(super) struct NetworkBuilder {
    times: Vec<i64>,
    /// Of nodes with the same time, the one with the lower class comes first.
    classes: Vec<u8>,
    edges: Vec<Edge>,
}

/// The time of `to` is at least that of `from` plus `delay_ns`.
#[derive(Debug, Clone, Copy)]
struct Edge {
    from: u32,
    to: u32,
    delay_ns: i64,
}

/// Order of two nodes with the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum TieOrder {
    Origin,
    OpEnd,
    CallEnd,
    CallBegin,
    OpBegin,
    Meeting,
}

impl NetworkBuilder {
    /// Adds a node with its measured time.
    pub(super) fn node(&mut self, time_ns: i64, class: TieOrder) -> u32 {
        let node = u32::try_from(self.times.len()).unwrap_or(NONE);
        self.times.push(time_ns.clamp(-LIMIT_NS, LIMIT_NS));
        self.classes.push(class as u8);
        node
    }

    /// The measured time of a node.
    pub(super) fn time(&self, node: u32) -> i64 {
        self.times.get(node as usize).copied().unwrap_or(0)
    }

    /// `to` waits for `from`, at least `delay_ns`; never more than was measured between them. Of
    /// the edges to a node, the one with the latest time is extended to the measured time.
    pub(super) fn edge(&mut self, from: u32, to: u32, delay_ns: i64) -> u32 {
        let edge = u32::try_from(self.edges.len()).unwrap_or(NONE);
        let measured = self.time(to) - self.time(from);
        self.edges.push(Edge {
            from,
            to,
            delay_ns: delay_ns.min(measured),
        });
        edge
    }

    /// The time of `to` is that of `from` plus the measured difference.
    pub(super) fn fixed(&mut self, from: u32, to: u32) -> u32 {
        self.edge(from, to, i64::MAX)
    }

    /// Makes an edge's delay longer, up to the measured.
    pub(super) fn lengthen(&mut self, edge: u32, by_ns: i64) {
        let Some(found) = self.edges.get(edge as usize).copied() else {
            return;
        };
        let measured = self.time(found.to) - self.time(found.from);
        if let Some(slot) = self.edges.get_mut(edge as usize) {
            slot.delay_ns = found.delay_ns.saturating_add(by_ns).min(measured);
        }
    }

    /// Orders the nodes. Edges that would close a circle are left out.
    pub(super) fn finish(self) -> Network {
        let rank = self.ranks();
        let mut network = self.by_rank(&rank);
        network.rank = rank;
        network.tighten();
        network
    }

    /// The place of every node: all that it waits for first, else by time. In a circle the
    /// earliest goes first.
    fn ranks(&self) -> Vec<u32> {
        let count = self.times.len();
        let (first_out, out) = self.successors();
        let mut missing = vec![0u32; count];
        for edge in &self.edges {
            missing[edge.to as usize] += 1;
        }
        let key = |node: u32| (self.times[node as usize], self.classes[node as usize], node);
        let mut by_time: Vec<u32> = (0..count as u32).collect();
        by_time.sort_unstable_by_key(|node| key(*node));
        let mut by_time = by_time.into_iter();
        let ready = (0..count as u32).filter(|node| missing[*node as usize] == 0);
        let mut heap: BinaryHeap<Reverse<(i64, u8, u32)>> =
            ready.map(|node| Reverse(key(node))).collect();
        let mut rank = vec![NONE; count];
        let mut next = 0;
        while next < count as u32 {
            let node = match heap.pop() {
                Some(Reverse((_, _, node))) => node,
                None => match by_time.find(|node| rank[*node as usize] == NONE) {
                    Some(node) => node,
                    None => break,
                },
            };
            if rank[node as usize] != NONE {
                continue;
            }
            rank[node as usize] = next;
            next += 1;
            let range = first_out[node as usize] as usize..first_out[node as usize + 1] as usize;
            for to in &out[range] {
                let missing = &mut missing[*to as usize];
                *missing = missing.saturating_sub(1);
                if *missing == 0 && rank[*to as usize] == NONE {
                    heap.push(Reverse(key(*to)));
                }
            }
        }
        rank
    }

    fn successors(&self) -> (Vec<u32>, Vec<u32>) {
        let mut first = vec![0u32; self.times.len() + 1];
        for edge in &self.edges {
            first[edge.from as usize + 1] += 1;
        }
        accumulate(&mut first);
        let mut slots = first.clone();
        let mut out = vec![0u32; self.edges.len()];
        for edge in &self.edges {
            let slot = &mut slots[edge.from as usize];
            out[*slot as usize] = edge.to;
            *slot += 1;
        }
        (first, out)
    }

    fn by_rank(&self, rank: &[u32]) -> Network {
        let count = self.times.len();
        let mut measured = vec![0; count];
        for (node, time) in self.times.iter().enumerate() {
            measured[rank[node] as usize] = *time;
        }
        let ranked = |edge: &Edge| (rank[edge.from as usize], rank[edge.to as usize]);
        let mut first = vec![0u32; count + 1];
        let mut reach: Vec<u32> = (0..count as u32).collect();
        for edge in &self.edges {
            let (from, to) = ranked(edge);
            if from < to {
                first[to as usize + 1] += 1;
                reach[from as usize] = reach[from as usize].max(to);
            }
        }
        accumulate(&mut first);
        let mut slots = first.clone();
        let kept = first.last().copied().unwrap_or(0) as usize;
        let (mut from_of, mut delays) = (vec![0; kept], vec![0; kept]);
        let mut position = vec![NONE; self.edges.len()];
        for (index, edge) in self.edges.iter().enumerate() {
            let (from, to) = ranked(edge);
            if from < to {
                let slot = &mut slots[to as usize];
                from_of[*slot as usize] = from;
                delays[*slot as usize] = edge.delay_ns;
                position[index] = *slot;
                *slot += 1;
            }
        }
        Network {
            first,
            from: from_of,
            delays,
            measured,
            reach,
            rank: Vec::new(),
            position,
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

/// Nodes in an order in which each comes after all nodes that it waits for.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Edges into node `n`: `first[n]..first[n + 1]`.
    first: Vec<u32>,
    from: Vec<u32>,
    delays: Vec<i64>,
    measured: Vec<i64>,
    /// The last node that waits for this one.
    reach: Vec<u32>,
    /// Place of each node of the builder.
    rank: Vec<u32>,
    /// Place of each edge of the builder, [`NONE`] if it was left out.
    position: Vec<u32>,
}

/// A changed delay, by the builder's number of the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DelayChange {
    pub(super) edge: u32,
    pub(super) by_ns: i64,
}

impl Network {
    /// Extends the edge with the latest time to the measured time, so that unchanged delays give
    /// the measured times exactly.
    fn tighten(&mut self) {
        for node in 0..self.measured.len() {
            let edges = self.edges(node);
            let latest = edges.max_by_key(|edge| {
                let from = self.measured[self.from[*edge] as usize];
                from.saturating_add(self.delays[*edge])
            });
            if let Some(edge) = latest {
                self.delays[edge] = self.measured[node] - self.measured[self.from[edge] as usize];
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

    /// Whether a node may be the last of all: no other node is certain to be no earlier.
    pub(super) fn may_be_last(&self) -> Vec<bool> {
        let mut last = vec![true; self.len()];
        for (from, delay) in self.from.iter().zip(&self.delays) {
            if *delay >= 0 {
                last[*from as usize] = false;
            }
        }
        let of = |rank: &u32| last.get(*rank as usize).copied().unwrap_or(false);
        self.rank.iter().map(of).collect()
    }

    /// The measured time of a node.
    pub(super) fn measured(&self, node: u32) -> i64 {
        self.time_in(&self.measured, node)
    }

    /// The time of a node in a run.
    pub(super) fn time_in(&self, times: &[i64], node: u32) -> i64 {
        let rank = self.rank.get(node as usize);
        rank.and_then(|rank| times.get(*rank as usize))
            .copied()
            .unwrap_or(0)
    }

    /// A run with all delays as learned.
    pub(super) fn run(&self) -> NetworkRun<'_> {
        NetworkRun {
            network: self,
            times: self.measured.clone(),
            delays: self.delays.clone(),
        }
    }
}

/// Times under changed delays.
#[derive(Debug, Clone)]
pub(super) struct NetworkRun<'a> {
    network: &'a Network,
    times: Vec<i64>,
    delays: Vec<i64>,
}

impl NetworkRun<'_> {
    /// Changes delays and recomputes all times that depend on them. Overwritten values are added to
    /// `undo`, if given.
    pub(super) fn change(&mut self, deltas: &[DelayChange], mut undo: Option<&mut DelayUndo>) {
        let network = self.network;
        let (mut start, mut horizon) = (usize::MAX, 0);
        for delta in deltas {
            let position = network.position.get(delta.edge as usize).copied();
            let Some(position) = position.filter(|position| *position != NONE) else {
                continue;
            };
            let delay = &mut self.delays[position as usize];
            if let Some(undo) = undo.as_deref_mut() {
                undo.delays.push((position, *delay));
            }
            *delay = delay.saturating_add(delta.by_ns);
            let node = network
                .first
                .partition_point(|first| *first <= position)
                .saturating_sub(1);
            start = start.min(node);
            horizon = horizon.max(node);
        }
        let mut node = start;
        while node <= horizon {
            let time = self.time(node);
            if time != self.times[node] {
                if let Some(undo) = undo.as_deref_mut() {
                    undo.times.push((node as u32, self.times[node]));
                }
                self.times[node] = time;
                horizon = horizon.max(network.reach[node] as usize);
            }
            node += 1;
        }
    }

    fn time(&self, node: usize) -> i64 {
        let network = self.network;
        let mut latest = None;
        for edge in network.edges(node) {
            let from = self.times[network.from[edge] as usize];
            latest = latest.max(Some(from.saturating_add(self.delays[edge])));
        }
        latest.unwrap_or(network.measured[node])
    }

    /// Undoes a change.
    pub(super) fn undo(&mut self, undo: &mut DelayUndo) {
        for (position, delay) in undo.delays.drain(..).rev() {
            self.delays[position as usize] = delay;
        }
        for (node, time) in undo.times.drain(..).rev() {
            self.times[node as usize] = time;
        }
    }

    /// The time of a node of the builder.
    pub(super) fn time_of(&self, node: u32) -> i64 {
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
    delays: Vec<(u32, i64)>,
    times: Vec<(u32, i64)>,
}
