//! Collects nodes, references, names and roots into a [`HeapGraph`].
//!
//! Owns the numbers of objects, and how many of an object's references were found. The content of objects is read
//! elsewhere.

use crate::take::FastMap;
use crate::take::limits::{Exceeded, Limits};
use crate::{HeapEdge, HeapEdgeName, HeapGraph, HeapNode, HeapRoot, NodeIndex, TextIndex};
use gctrace_event::{KindId, KindName, ObjectKind};
use std::collections::HashMap;

/// Objects per block of [`AddressIndex`], and their distance: CPython's allocators align to 16 bytes.
const PER_BLOCK: usize = 1 << 12;
const ALIGNMENT: u64 = 16;
const BLOCK_BYTES: u64 = PER_BLOCK as u64 * ALIGNMENT;

/// From addresses to nodes.
#[derive(Debug, Default)]
struct AddressIndex {
    blocks: Vec<Box<[u32]>>,
    positions: FastMap<u64, u32>,
    /// Objects at other addresses: none, unless a layout is wrong.
    others: FastMap<u64, NodeIndex>,
    lowest: u64,
    highest: u64,
}

impl AddressIndex {
    fn get(&self, address: u64) -> Option<NodeIndex> {
        if address < self.lowest || address > self.highest {
            return None;
        }
        if !address.is_multiple_of(ALIGNMENT) {
            return self.others.get(&address).copied();
        }
        let position = *self.positions.get(&(address / BLOCK_BYTES))?;
        let block = self.blocks.get(position as usize)?;
        let slot = *block.get((address % BLOCK_BYTES / ALIGNMENT) as usize)?;
        slot.checked_sub(1)
    }

    fn insert(&mut self, address: u64, node: NodeIndex) {
        self.lowest = match self.highest {
            0 => address,
            _ => self.lowest.min(address),
        };
        self.highest = self.highest.max(address);
        if !address.is_multiple_of(ALIGNMENT) {
            self.others.insert(address, node);
            return;
        }
        let number = address / BLOCK_BYTES;
        let position = match self.positions.get(&number) {
            Some(position) => *position,
            None => {
                let position = self.blocks.len() as u32;
                self.blocks.push(vec![0; PER_BLOCK].into());
                self.positions.insert(number, position);
                position
            }
        };
        let slot = (address % BLOCK_BYTES / ALIGNMENT) as usize;
        if let Some(slot) =
            self.blocks.get_mut(position as usize).and_then(|block| block.get_mut(slot))
        {
            *slot = node + 1;
        }
    }
}

/// A graph being made.
#[derive(Debug, Default)]
pub(crate) struct GraphBuilder {
    pub(crate) graph: HeapGraph,
    index: AddressIndex,
    texts: HashMap<String, TextIndex>,
    kinds: HashMap<KindName, KindId>,
    /// For each node, the references to it that were found and are counted.
    found: Vec<u32>,
    pid: u32,
    limits: Limits,
    /// The limit that was reached: nothing is added then.
    exceeded: Option<Exceeded>,
}

impl GraphBuilder {
    pub(crate) fn new(pid: u32, limits: Limits) -> Self {
        Self { pid, limits, ..Self::default() }
    }

    pub(crate) fn exceeded(&self) -> Option<Exceeded> {
        self.exceeded
    }

    /// Whether there is room for one more in a list, at most `most`, within `memory` bytes.
    fn has_room<T>(
        exceeded: &mut Option<Exceeded>,
        list: &mut Vec<T>,
        most: u64,
        memory: u64,
    ) -> bool {
        // A list that is full doubles.
        let doubled = || (list.capacity() * 2 * size_of::<T>()) as u64;
        if list.len() as u64 >= most {
            exceeded.get_or_insert(Exceeded::Read);
        } else if list.len() == list.capacity()
            && (doubled() > memory || list.try_reserve(1).is_err())
        {
            exceeded.get_or_insert(Exceeded::Memory);
        }
        exceeded.is_none()
    }

    pub(crate) fn text(&mut self, text: &str) -> TextIndex {
        if let Some(index) = self.texts.get(text) {
            return *index;
        }
        let index = self.graph.texts.len() as TextIndex;
        self.graph.texts.push(text.to_owned());
        self.texts.insert(text.to_owned(), index);
        index
    }

    pub(crate) fn kind(&mut self, name: KindName) -> KindId {
        if let Some(id) = self.kinds.get(&name) {
            return *id;
        }
        let id = self.graph.kinds.len() as KindId + 1;
        self.kinds.insert(name.clone(), id);
        self.graph.kinds.push(ObjectKind { pid: self.pid, id, name });
        id
    }

    /// The node of an object.
    pub(crate) fn node(&self, address: u64) -> Option<NodeIndex> {
        self.index.get(address)
    }

    /// Adds an object, unless it is there; `None` if there are too many.
    pub(crate) fn add(&mut self, node: HeapNode) -> Option<NodeIndex> {
        if let Some(known) = self.index.get(node.address) {
            return Some(known);
        }
        let nodes = &mut self.graph.nodes;
        if !Self::has_room(&mut self.exceeded, nodes, self.limits.objects, self.limits.memory) {
            return None;
        }
        let number = self.graph.nodes.len() as NodeIndex;
        self.index.insert(node.address, number);
        self.graph.nodes.push(node);
        self.found.push(0);
        Some(number)
    }

    pub(crate) fn node_mut(&mut self, node: NodeIndex) -> Option<&mut HeapNode> {
        self.graph.nodes.get_mut(node as usize)
    }

    /// Adds a reference. `counted`: the reference count includes it.
    pub(crate) fn edge(
        &mut self,
        from: NodeIndex,
        to: NodeIndex,
        name: HeapEdgeName,
        counted: bool,
    ) {
        let edges = &mut self.graph.edges;
        if !Self::has_room(&mut self.exceeded, edges, self.limits.references, self.limits.memory) {
            return;
        }
        edges.push(HeapEdge { from, to, name });
        if counted && let Some(found) = self.found.get_mut(to as usize) {
            *found = found.saturating_add(1);
        }
    }

    /// A root holds one of an object's references.
    pub(crate) fn count(&mut self, node: NodeIndex) {
        if let Some(found) = self.found.get_mut(node as usize) {
            *found = found.saturating_add(1);
        }
    }

    pub(crate) fn root(&mut self, node: NodeIndex, name: &str) {
        let name = self.text(name);
        self.graph.roots.push(HeapRoot { node, name });
    }

    /// How many more references an object has than were found: below 0 if a layout is wrong.
    /// `None`: unknown.
    pub(crate) fn unexplained(&self, node: NodeIndex) -> Option<i64> {
        let references = self.graph.nodes.get(node as usize)?.references?;
        let found = self.found.get(node as usize)?;
        Some(i64::from(references) - i64::from(*found))
    }

    /// Removes the references of some objects, as if they had not been found.
    pub(crate) fn remove_edges(
        &mut self,
        mut is_from: impl FnMut(NodeIndex) -> bool,
    ) -> Vec<NodeIndex> {
        let mut targets = Vec::new();
        let found = &mut self.found;
        self.graph.edges.retain(|edge| {
            let remove = is_from(edge.from);
            if remove {
                targets.push(edge.to);
                if let Some(found) = found.get_mut(edge.to as usize) {
                    *found = found.saturating_sub(1);
                }
            }
            !remove
        });
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_address() {
        let mut builder = GraphBuilder::default();
        let addresses = [0x7f00_0000_0010, 0x5500_0000_0000, 0x7f00_0000_0020, 0x7f00_0001_0008];
        for (number, address) in (0..).zip(addresses) {
            let node = HeapNode { address, references: Some(2), ..HeapNode::default() };
            assert_eq!(builder.node(address), None);
            assert_eq!(builder.add(node), Some(number));
            assert_eq!(builder.add(node), Some(number));
        }
        for (number, address) in (0..).zip(addresses) {
            assert_eq!(builder.node(address), Some(number));
        }
        assert_eq!(builder.node(0x7f00_0000_0030), None);
        assert_eq!(builder.node(0x7f00_0000_0018), None);
        builder.edge(0, 1, HeapEdgeName::Unnamed, true);
        builder.edge(0, 1, HeapEdgeName::Unnamed, false);
        builder.edge(2, 1, HeapEdgeName::Unnamed, true);
        assert_eq!(builder.unexplained(1), Some(0));
        assert_eq!(builder.remove_edges(|from| from == 2), [1]);
        assert_eq!(builder.unexplained(1), Some(1));
    }

    #[test]
    fn limits_end_all() {
        let limits = Limits { objects: 2, references: 3, ..Limits::default() };
        let mut builder = GraphBuilder::new(1, limits);
        let at = |address| HeapNode { address, ..HeapNode::default() };
        for _ in 0..4 {
            builder.edge(0, 0, HeapEdgeName::Unnamed, true);
        }
        assert_eq!(builder.graph.edges.len(), 3);
        assert_eq!(builder.exceeded(), Some(Exceeded::Read));
        let mut builder = GraphBuilder::new(1, limits);
        assert_eq!([16, 32, 48].map(|address| builder.add(at(address))), [Some(0), Some(1), None]);
        assert_eq!(builder.exceeded(), Some(Exceeded::Read));
        assert_eq!(builder.add(at(32)), Some(1));
        let mut builder = GraphBuilder::new(1, Limits { memory: 1 << 12, ..Limits::default() });
        while builder.exceeded().is_none() {
            builder.edge(0, 0, HeapEdgeName::Unnamed, true);
        }
        assert_eq!(builder.exceeded(), Some(Exceeded::Memory));
        assert!(builder.graph.edges.len() * size_of::<HeapEdge>() <= 1 << 12);
    }
}
