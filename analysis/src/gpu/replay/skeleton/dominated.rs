//! Delays of a network that never decide: another path is at least as long in every scenario.
//!
//! Looks at delays of 0 or less from the GPU to the host: nearly all of those by which a launch
//! waits for room in its queue. They never decide where the thread had waited for later work of the
//! stream before, be it through a collective that came after the work. One pass over the network for
//! each thread.

use super::Scenarios;
use crate::gpu::replay::layout::ReplayLayout;
use crate::gpu::replay::network::Network;

/// Place of each node on a thread's chain of calls: two for each call, from 1; 0 for others.
struct ChainPlaces {
    places: Vec<u32>,
    /// Per place how many links of the chain up to there may be shorter than 0, or are missing.
    broken: Vec<u32>,
}

/// Which delays, in the order of the network, never decide. `starts`: of nodes that are ends of
/// collectives, the start of the same kernel: whatever an end waits for, it is no earlier.
pub(super) fn find(
    network: &Network,
    scenarios: &Scenarios,
    layout: &ReplayLayout,
    starts: &[Option<usize>],
) -> Vec<bool> {
    let mut dominated = vec![false; network.edge_count()];
    let mut on_host = vec![false; network.len()];
    for call in layout.working_calls() {
        let (start, end) = layout.call(call);
        on_host[network.place(start)] = true;
        on_host[network.place(end)] = true;
    }
    // From the node, to the node, the delay.
    let mut candidates: Vec<(usize, usize, usize)> = Vec::new();
    for to in (0..network.len()).filter(|to| on_host[*to]) {
        let waits = network.waits(to).filter(|wait| !on_host[wait.from]);
        let short = waits.filter(|wait| scenarios.range(wait.edge).1 <= 0);
        candidates.extend(short.map(|wait| (wait.from, to, wait.edge)));
    }
    if candidates.is_empty() {
        return dominated;
    }
    candidates.sort_unstable();
    let is_candidate = {
        let mut all = vec![false; network.edge_count()];
        candidates.iter().for_each(|(_, _, edge)| all[*edge] = true);
        all
    };
    for thread in 0..layout.chains.len() {
        let Some(chain) = ChainPlaces::of(network, scenarios, layout, thread) else {
            continue;
        };
        let mut unchecked = candidates
            .iter()
            .rev()
            .filter(|(_, to, _)| chain.places[*to] > 0)
            .peekable();
        // The first place of the chain that is certainly no earlier than a node.
        let mut reached = chain.places.clone();
        reached
            .iter_mut()
            .filter(|at| **at == 0)
            .for_each(|at| *at = u32::MAX);
        for node in (0..network.len()).rev() {
            let mut of_node: Vec<(u32, usize)> = Vec::new();
            while let Some((_, to, edge)) = unchecked.next_if(|(from, _, _)| *from == node) {
                of_node.push((chain.places[*to], *edge));
            }
            of_node.sort_unstable();
            for (place, edge) in of_node {
                dominated[edge] = chain.leads(reached[node], place);
                if !dominated[edge] && scenarios.range(edge).0 >= 0 {
                    reached[node] = reached[node].min(place);
                }
            }
            if reached[node] == u32::MAX {
                continue;
            }
            if let Some(start) = starts[node] {
                reached[start] = reached[start].min(reached[node]);
                continue;
            }
            for wait in network.waits(node) {
                let here = is_candidate[wait.edge] && chain.places[node] > 0;
                if !here && !dominated[wait.edge] && scenarios.range(wait.edge).0 >= 0 {
                    reached[wait.from] = reached[wait.from].min(reached[node]);
                }
            }
        }
    }
    dominated
}

impl ChainPlaces {
    /// `None` for a thread that only polls.
    fn of(
        network: &Network,
        scenarios: &Scenarios,
        layout: &ReplayLayout,
        thread: usize,
    ) -> Option<Self> {
        let chain = layout.chains.get(thread).filter(|chain| !chain.polls)?;
        let mut of_thread = Self {
            places: vec![0; network.len()],
            broken: vec![0],
        };
        let mut before: Option<usize> = None;
        let mut broken = 0;
        for call in &chain.calls {
            let (start, end) = layout.call(*call);
            for node in [network.place(start), network.place(end)] {
                let linked = before.is_none_or(|before| {
                    let mut waits = network.waits(node).filter(|wait| wait.from == before);
                    waits.any(|wait| scenarios.range(wait.edge).0 >= 0)
                });
                broken += u32::from(!linked);
                of_thread.places[node] = u32::try_from(of_thread.broken.len()).ok()?;
                of_thread.broken.push(broken);
                before = Some(node);
            }
        }
        Some(of_thread)
    }

    /// Whether one place of the chain is certainly no later than another.
    fn leads(&self, from: u32, to: u32) -> bool {
        let broken = |place: u32| self.broken.get(place as usize);
        from <= to && broken(from).is_some() && broken(from) == broken(to)
    }
}
