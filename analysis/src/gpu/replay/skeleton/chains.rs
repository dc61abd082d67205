//! How long a thread takes from one of its calls to another by itself, and a stream from one of its
//! operations to another, in every scenario.
//!
//! A further wait of a call or an operation does not decide if it comes later anyway: its chain had waited for
//! the same before, and takes longer from there than the delay. So a launch that waits for room in its queue adds
//! only the collectives that the queue waits for.

use super::Scenarios;
use super::graph::{Delay, DelayRows, GraphIndex};
use crate::gpu::replay::layout::ReplayLayout;
use crate::gpu::replay::network::{Network, NetworkNodeId, Rank};
use crate::spans::index::Index;
use crate::time::{difference, later};

/// The calls of all threads that do not only poll, and the operations of all streams, as chains of
/// nodes.
#[derive(Debug)]
pub(super) struct Chains {
    /// Scenarios, the measured one included.
    columns: usize,
    /// By place in the network.
    links: Vec<Option<ChainLink>>,
    /// By place and scenario: time from the start of its chain, in ns, without other waits.
    lengths_ns: Vec<i64>,
}

type ChainNumber = Index<Chains>;

/// A node of a chain.
#[derive(Clone, Copy, Debug)]
struct ChainLink {
    chain: ChainNumber,
    /// The node before it.
    before: Option<Rank>,
}

// There is one per node.
const _: () = assert!(size_of::<Option<ChainLink>>() == 8);

/// A place of a chain that waits that long for a node of the graph.
#[derive(Clone, Copy, Debug)]
struct ChainEntry {
    chain: ChainNumber,
    place: usize,
    delay: Delay,
}

/// Known facts about chains: where they start to come after a node of the graph, and how long after it.
#[derive(Debug, Default)]
pub(super) struct ChainEntries {
    /// By node of the graph: one of each chain, the last.
    of_node: Vec<Vec<ChainEntry>>,
}

impl Chains {
    /// `starts`: of nodes that are ends of collectives, the start of the same kernel: whatever an end
    /// waits for, it is no earlier.
    pub(super) fn new(
        network: &Network,
        scenarios: &Scenarios<'_>,
        layout: &ReplayLayout<'_>,
        starts: &[Option<Rank>],
    ) -> Self {
        let columns = scenarios.columns.len();
        let mut chains = Self {
            columns,
            links: vec![None; network.len()],
            lengths_ns: vec![0; network.len() * columns],
        };
        let threads = layout.chains.iter().filter(|chain| !chain.polls);
        let threads =
            threads.map(|thread| thread.calls.iter().map(|call| layout.call(*call)).collect());
        let streams = layout.ops_by_stream().into_iter();
        let streams = streams.map(|stream| stream.into_iter().map(|op| layout.op(op)).collect());
        let mut chain = 0;
        for spans in threads.chain(streams) {
            let spans: Vec<(NetworkNodeId, NetworkNodeId)> = spans;
            let nodes = spans.into_iter().flat_map(|(start, end)| [start, end]);
            let mut last: Option<usize> = None;
            for node in nodes.map(|node| network.place(node)) {
                let link = last.and_then(|last| {
                    if starts[node] == Some(Rank::new(last)) {
                        return Some((last, DelayRows::same(0)));
                    }
                    let wait = network.waits(node).find(|wait| wait.from == last)?;
                    Some((last, scenarios.delays.at(wait.edge)))
                });
                match link {
                    Some((before, delay)) => {
                        for column in 0..columns {
                            let length_ns = chains.lengths_ns[before * columns + column];
                            chains.lengths_ns[node * columns + column] =
                                later(length_ns, scenarios.rows.in_column(delay, column));
                        }
                    }
                    None => chain += 1,
                }
                let before = link.map(|(before, _)| Rank::new(before));
                chains.links[node] = Some(ChainLink { chain: Index::new(chain), before });
                last = Some(node);
            }
        }
        chains
    }

    /// The node before it on its chain.
    pub(super) fn before(&self, node: usize) -> Option<usize> {
        self.links[node]?.before.map(Rank::at)
    }
}

impl ChainEntries {
    /// A place became a node of the graph.
    pub(super) fn is_node(&mut self, chains: &Chains, place: usize, node: GraphIndex) {
        self.set(chains, place, node, DelayRows::same(0));
    }

    /// A place of a chain waits that long for a node of the graph; `false` if that never decides: by
    /// its chain alone it comes at least that long after the node.
    pub(super) fn add(
        &mut self,
        chains: &Chains,
        rows: &DelayRows,
        place: usize,
        node: GraphIndex,
        delay: Delay,
    ) -> bool {
        if self.imply(chains, rows, place, node, delay) {
            return false;
        }
        self.set(chains, place, node, delay);
        true
    }

    fn set(&mut self, chains: &Chains, place: usize, node: GraphIndex, delay: Delay) {
        let Some(ChainLink { chain, .. }) = chains.links[place] else { return };
        if self.of_node.len() <= node.at() {
            self.of_node.resize_with(node.at() + 1, Vec::new);
        }
        let node = &mut self.of_node[node.at()];
        let entry = ChainEntry { chain, place, delay };
        match node.iter_mut().find(|known| known.chain == chain) {
            Some(known) => *known = entry,
            None => node.push(entry),
        }
    }

    /// Whether a place comes at least that long after a node by its chain alone, in every scenario.
    fn imply(
        &self,
        chains: &Chains,
        rows: &DelayRows,
        place: usize,
        node: GraphIndex,
        delay: Delay,
    ) -> bool {
        let chain = chains.links[place].map(|link| link.chain);
        let known = if let Some(known) = self.of_node.get(node.at()) { &known[..] } else { &[] };
        let Some(entry) = known.iter().find(|known| Some(known.chain) == chain) else {
            return false;
        };
        (0..chains.columns).all(|column| {
            let length_ns = difference(
                chains.lengths_ns[place * chains.columns + column],
                chains.lengths_ns[entry.place * chains.columns + column],
            );
            let by_chain_ns = later(rows.in_column(entry.delay, column), length_ns);
            by_chain_ns >= rows.in_column(delay, column)
        })
    }
}
