//! Cycles through an object, and the component that it is part of.

use super::NodeIndex;
use super::reach::Heap;
use super::report::{HeapPath, PathStep};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

impl Heap {
    /// A shortest cycle through an object: the positions of its references, each from the object
    /// that the one before leads to. Cycles of garbage have garbage only.
    #[must_use]
    pub fn shortest_cycle(&self, node: NodeIndex) -> Option<Vec<u32>> {
        let is_garbage = self.is_garbage(node);
        // Object -> the reference that led to it.
        let mut found: HashMap<NodeIndex, u32> = HashMap::new();
        let mut queue = VecDeque::from([node]);
        while let Some(from) = queue.pop_front() {
            for (position, edge) in self.numbered(from) {
                if edge.to == node {
                    let mut cycle = vec![position];
                    let mut at = from;
                    while at != node {
                        let position = *found.get(&at)?;
                        cycle.push(position);
                        at = self.graph().edges.get(position as usize)?.from;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                let is_of_cycle = self.is_garbage(edge.to) == is_garbage;
                if is_of_cycle && !found.contains_key(&edge.to) {
                    found.insert(edge.to, position);
                    queue.push_back(edge.to);
                }
            }
        }
        None
    }

    /// The objects that an object refers to and that refer to it, directly or not, itself first;
    /// `None` if it refers to more than `most`, and empty if it is in no cycle.
    #[must_use]
    pub fn small_component(&self, node: NodeIndex, most: usize) -> Option<Vec<NodeIndex>> {
        let is_garbage = self.is_garbage(node);
        let mut within = vec![node];
        let mut seen = HashSet::from([node]);
        let mut next = 0;
        while let Some(from) = within.get(next).copied() {
            next += 1;
            for edge in self.references(from) {
                if self.is_garbage(edge.to) == is_garbage && seen.insert(edge.to) {
                    within.push(edge.to);
                }
            }
            if within.len() > most {
                return None;
            }
        }
        // Objects that lead back to the node: few enough to search them again and again.
        let mut back = HashSet::new();
        loop {
            let leads_back = |from: &NodeIndex| {
                let mut to = self.references(*from).iter().map(|edge| edge.to);
                !back.contains(from) && to.any(|to| to == node || back.contains(&to))
            };
            let new: Vec<NodeIndex> = within.iter().copied().filter(leads_back).collect();
            if new.is_empty() {
                break;
            }
            back.extend(new);
        }
        within.retain(|node| back.contains(node));
        Some(within)
    }

    /// A shortest cycle through an object as data, of a long one its ends; without steps if there is
    /// none.
    #[must_use]
    pub fn cycle(&self, node: NodeIndex) -> HeapPath {
        let cycle = self.shortest_cycle(node).unwrap_or_default();
        let edges = cycle.iter().filter_map(|at| self.graph().edges.get(*at as usize));
        // A step is named by the reference to it: the first one by the last reference.
        let before = edges.clone().next_back().into_iter().chain(edges.clone());
        let steps: Vec<_> = edges.map(|edge| edge.from).zip(before).collect();
        HeapPath::ends(&steps, |(node, before)| PathStep {
            name: self.edge_name(before).map(Cow::into_owned),
            object: self.object(*node),
        })
    }

    fn numbered(&self, from: NodeIndex) -> impl Iterator<Item = (u32, &super::HeapEdge)> {
        self.edge_range(from).zip(self.references(from))
    }
}
