//! A graph of delays that can lose nodes without changing the times of the kept ones.
//!
//! Each delay has a value in every scenario. A node is removed by linking all that it waited for with all that waited
//! for it; the longest of parallel delays counts, in each scenario.

use crate::gpu::replay::network::Network;
use crate::spans::index::Index;
use crate::time::{difference, later};

/// A node of the graph.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GraphNode {
    kept: bool,
    removed: bool,
    first_in: Option<LinkIndex>,
    first_out: Option<LinkIndex>,
    ins: u32,
    outs: u32,
}
pub(super) type GraphIndex = Index<GraphNode>;

/// A delay between two nodes, in the lists of both.
#[derive(Debug, Clone, Copy)]
struct Link {
    from: GraphIndex,
    to: GraphIndex,
    delay: Delay,
    next_in: Option<LinkIndex>,
    before_in: Option<LinkIndex>,
    next_out: Option<LinkIndex>,
    before_out: Option<LinkIndex>,
}
type LinkIndex = Index<Link>;

/// A delay in all scenarios.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delay {
    /// As measured, in ns.
    pub(super) measured_ns: i64,
    /// Differences in the other scenarios; `None` without any.
    others: Option<RowIndex>,
}

/// Differences from the measured delay in each other scenario.
#[derive(Debug)]
pub(super) struct Row;
type RowIndex = Index<Row>;

/// The delays of a network, by edge.
#[derive(Debug)]
pub(super) struct EdgeDelays<'a> {
    network: &'a Network,
    others: Vec<Option<RowIndex>>,
}

impl<'a> EdgeDelays<'a> {
    /// As measured in all scenarios.
    pub(super) fn new(network: &'a Network) -> Self {
        Self { network, others: vec![None; network.edge_count()] }
    }

    pub(super) fn at(&self, edge: usize) -> Delay {
        Delay { measured_ns: self.network.delay_at(edge), others: self.others[edge] }
    }

    /// An edge is longer by that much in each other scenario.
    pub(super) fn change(
        &mut self,
        edge: usize,
        rows: &mut DelayRows,
        by_ns: impl Iterator<Item = i64>,
    ) {
        self.others[edge] = rows.delay(self.network.delay_at(edge), by_ns).others;
    }
}

/// By how much delays differ from the measured in the other scenarios. Rows are shared: whatever is
/// added to a delay in all scenarios alike leaves its row as it is.
#[derive(Debug)]
pub(super) struct DelayRows {
    /// Scenarios in addition to the measured.
    others: usize,
    by_ns: Vec<i64>,
}

impl DelayRows {
    pub(super) fn new(others: usize) -> Self {
        Self { others, by_ns: Vec::new() }
    }

    /// A delay that is as measured in all scenarios.
    pub(super) fn same(measured_ns: i64) -> Delay {
        Delay { measured_ns, others: None }
    }

    /// A delay that is longer by that much in each other scenario.
    pub(super) fn delay(&mut self, measured_ns: i64, by_ns: impl Iterator<Item = i64>) -> Delay {
        let before = self.by_ns.len();
        self.by_ns.extend(by_ns);
        debug_assert_eq!(self.by_ns.len(), before + self.others);
        let row = &self.by_ns[before..];
        if row.iter().all(|by_ns| *by_ns == 0) {
            self.by_ns.truncate(before);
            return Self::same(measured_ns);
        }
        Delay { measured_ns, others: Some(Index::new(before / self.others)) }
    }

    /// By how much a delay is longer in one of the other scenarios.
    pub(super) fn by_ns(&self, delay: Delay, other: usize) -> i64 {
        let row = delay.others;
        if let Some(row) = row { self.by_ns[row.at() * self.others + other] } else { 0 }
    }

    /// A delay in one of all scenarios, the measured one being the first.
    pub(super) fn in_column(&self, delay: Delay, column: usize) -> i64 {
        match column.checked_sub(1) {
            Some(other) => self.value(delay, other),
            None => delay.measured_ns,
        }
    }

    fn value(&self, delay: Delay, other: usize) -> i64 {
        later(delay.measured_ns, self.by_ns(delay, other))
    }

    /// The shortest and the longest value of all scenarios.
    pub(super) fn range(&self, delay: Delay) -> (i64, i64) {
        let measured_ns = delay.measured_ns;
        let others = match delay.others {
            Some(_) => 0..self.others,
            None => 0..0,
        };
        let values = others.map(|other| self.value(delay, other));
        values.fold((measured_ns, measured_ns), |(least, most), value| {
            (least.min(value), most.max(value))
        })
    }

    pub(super) fn sum(&mut self, one: Delay, other: Delay) -> Delay {
        let measured_ns = later(one.measured_ns, other.measured_ns);
        let others = match (one.others, other.others) {
            (Some(_), Some(_)) => {
                let both = |at| later(self.by_ns(one, at), self.by_ns(other, at));
                let by_ns: Vec<i64> = (0..self.others).map(both).collect();
                return self.delay(measured_ns, by_ns.into_iter());
            }
            (row, None) | (None, row) => row,
        };
        Delay { measured_ns, others }
    }

    /// The longer of two delays in each scenario.
    pub(super) fn longest(&mut self, one: Delay, other: Delay) -> Delay {
        let measured_ns = one.measured_ns.max(other.measured_ns);
        if one.others == other.others {
            return Delay { measured_ns, ..one };
        }
        let values = |at| (self.value(one, at), self.value(other, at));
        let (mut first, mut second) =
            (one.measured_ns >= other.measured_ns, one.measured_ns <= other.measured_ns);
        for (one_ns, other_ns) in (0..self.others).map(values) {
            first &= one_ns >= other_ns;
            second &= one_ns <= other_ns;
        }
        if first {
            return one;
        }
        if second {
            return other;
        }
        let by_ns: Vec<i64> = (0..self.others)
            .map(values)
            .map(|(one_ns, other_ns)| difference(one_ns.max(other_ns), measured_ns))
            .collect();
        self.delay(measured_ns, by_ns.into_iter())
    }
}

/// Nodes and the delays between them.
#[derive(Debug)]
pub(super) struct DelayGraph {
    nodes: Vec<GraphNode>,
    links: Vec<Link>,
    free: Vec<LinkIndex>,
    pub(super) rows: DelayRows,
}

impl DelayGraph {
    pub(super) fn new(rows: DelayRows) -> Self {
        Self { nodes: Vec::new(), links: Vec::new(), free: Vec::new(), rows }
    }

    /// Adds a node; if it is not `kept` it may be removed.
    pub(super) fn add(&mut self, kept: bool) -> GraphIndex {
        let node = GraphNode { kept, ..GraphNode::default() };
        Index::push(&mut self.nodes, node)
    }

    /// `to` is at least this much later than `from`; the longest of several such links counts.
    pub(super) fn link(&mut self, from: GraphIndex, to: GraphIndex, delay: Delay) {
        if let Some(parallel) = self.between(from, to) {
            let before = self.links[parallel].delay;
            self.links[parallel].delay = self.rows.longest(before, delay);
            return;
        }
        let (next_out, next_in) = (self.nodes[from].first_out, self.nodes[to].first_in);
        let link = Link { from, to, delay, next_in, before_in: None, next_out, before_out: None };
        let index = match self.free.pop() {
            Some(index) => {
                self.links[index] = link;
                index
            }
            None => Index::push(&mut self.links, link),
        };
        if let Some(next) = next_out {
            self.links[next].before_out = Some(index);
        }
        if let Some(next) = next_in {
            self.links[next].before_in = Some(index);
        }
        let node = &mut self.nodes[from];
        (node.first_out, node.outs) = (Some(index), node.outs + 1);
        let node = &mut self.nodes[to];
        (node.first_in, node.ins) = (Some(index), node.ins + 1);
    }

    fn between(&self, from: GraphIndex, to: GraphIndex) -> Option<LinkIndex> {
        if self.nodes[from].outs <= self.nodes[to].ins {
            self.outs(from).find(|link| self.links[*link].to == to)
        } else {
            self.ins(to).find(|link| self.links[*link].from == from)
        }
    }

    fn ins(&self, node: GraphIndex) -> impl Iterator<Item = LinkIndex> {
        std::iter::successors(self.nodes[node].first_in, |link| self.links[*link].next_in)
    }

    fn outs(&self, node: GraphIndex) -> impl Iterator<Item = LinkIndex> {
        let first = self.nodes[node].first_out;
        std::iter::successors(first, |link| self.links[*link].next_out)
    }

    fn unlink(&mut self, index: LinkIndex) -> Link {
        let link = self.links[index];
        match link.before_out {
            Some(before) => self.links[before].next_out = link.next_out,
            None => self.nodes[link.from].first_out = link.next_out,
        }
        if let Some(next) = link.next_out {
            self.links[next].before_out = link.before_out;
        }
        match link.before_in {
            Some(before) => self.links[before].next_in = link.next_in,
            None => self.nodes[link.to].first_in = link.next_in,
        }
        if let Some(next) = link.next_in {
            self.links[next].before_in = link.before_in;
        }
        self.nodes[link.from].outs -= 1;
        self.nodes[link.to].ins -= 1;
        self.free.push(index);
        link
    }

    /// Removes nodes that are not kept, as long as that adds no links.
    pub(super) fn reduce(&mut self) {
        let mut waiting: Vec<GraphIndex> = Index::all(&self.nodes).collect();
        let mut queued = vec![true; self.nodes.len()];
        let (mut ins, mut outs): (Vec<Link>, Vec<Link>) = (Vec::new(), Vec::new());
        while let Some(index) = waiting.pop() {
            queued[index.at()] = false;
            let node = self.nodes[index];
            let (into, out) = (u64::from(node.ins), u64::from(node.outs));
            if node.kept || node.removed || into * out > into + out {
                continue;
            }
            self.nodes[index].removed = true;
            while let Some(link) = self.nodes[index].first_in {
                ins.push(self.unlink(link));
            }
            while let Some(link) = self.nodes[index].first_out {
                outs.push(self.unlink(link));
            }
            for before in &ins {
                for after in &outs {
                    let delay = self.rows.sum(before.delay, after.delay);
                    self.link(before.from, after.to, delay);
                }
            }
            let neighbors = ins.iter().map(|link| link.from);
            for neighbor in neighbors.chain(outs.iter().map(|link| link.to)) {
                if !std::mem::replace(&mut queued[neighbor.at()], true) {
                    waiting.push(neighbor);
                }
            }
            ins.clear();
            outs.clear();
        }
    }

    /// The remaining nodes, in order of addition.
    pub(super) fn left(&self) -> impl Iterator<Item = GraphIndex> {
        let nodes = Index::enumerate(&self.nodes);
        nodes.filter_map(|(at, node)| if node.removed { None } else { Some(at) })
    }

    /// The waits of a node.
    pub(super) fn waits(&self, node: GraphIndex) -> impl Iterator<Item = (GraphIndex, Delay)> {
        let links = self.ins(node).map(|link| &self.links[link]);
        links.map(|link| (link.from, link.delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_and_a_detour_become_the_longer_in_each_scenario() {
        let mut graph = DelayGraph::new(DelayRows::new(1));
        let [from, chain, detour, to] = [true, false, false, true].map(|kept| graph.add(kept));
        let five = graph.rows.delay(5, [-4].into_iter());
        graph.link(from, chain, five);
        graph.link(chain, to, DelayRows::same(2));
        graph.link(from, detour, DelayRows::same(3));
        graph.link(detour, to, DelayRows::same(1));
        graph.reduce();
        assert_eq!(graph.left().collect::<Vec<_>>(), [from, to]);
        let waits: Vec<(GraphIndex, Delay)> = graph.waits(to).collect();
        let [(only, delay)] = waits.as_slice() else {
            panic!("{waits:?}");
        };
        assert_eq!((*only, delay.measured_ns), (from, 7));
        assert_eq!(graph.rows.by_ns(*delay, 0), -3);
    }
}
