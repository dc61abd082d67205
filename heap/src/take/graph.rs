//! Collects nodes, references, names and roots into a [`HeapGraph`].
//!
//! Owns the numbers of objects, and how many of an object's references were found. The content of objects is read
//! elsewhere; `graph/index.rs` finds the node of an address.
//!
//! Beside the copy of a program's memory objects are kept in few bytes: `graph/packed.rs`.

mod index;
mod packed;

use crate::take::limits::{Exceeded, Limits};
use crate::{
    HeapEdge, HeapEdgeName, HeapGraph, HeapNode, HeapPlace, HeapRoot, NodeIndex, TextIndex,
};
use gctrace_event::{KindId, KindName, ObjectKind};
use index::AddressIndex;
pub(crate) use packed::Column;
use packed::PackedNodes;
use std::collections::HashMap;

/// A graph being made.
#[derive(Debug, Default)]
pub(crate) struct GraphBuilder {
    /// Without objects until [`GraphBuilder::finish`].
    pub(crate) graph: HeapGraph,
    pub(crate) nodes: PackedNodes,
    index: AddressIndex,
    texts: HashMap<String, TextIndex>,
    kinds: HashMap<KindName, KindId>,
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

    /// Whether there is room for one more in a list, at most `most`, within `memory` bytes once each is `T`.
    fn has_room<T>(
        exceeded: &mut Option<Exceeded>,
        list: &mut Vec<impl Sized>,
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
    pub(crate) fn add(
        &mut self,
        address: u64,
        references: Option<u32>,
        place: HeapPlace,
    ) -> Option<NodeIndex> {
        if let Some(known) = self.index.get(address) {
            return Some(known);
        }
        let (addresses, Limits { objects, memory, .. }) = (&mut self.nodes.addresses, self.limits);
        if !Self::has_room::<HeapNode>(&mut self.exceeded, addresses, objects, memory) {
            return None;
        }
        let number = self.nodes.len();
        self.index.insert(address, number);
        self.nodes.push(address, references, place);
        Some(number)
    }

    /// Adds a reference. `counted`: the reference count includes it.
    pub(crate) fn edge(
        &mut self,
        from: NodeIndex,
        to: NodeIndex,
        name: HeapEdgeName,
        counted: bool,
    ) {
        let (edges, Limits { references, memory, .. }) = (&mut self.graph.edges, self.limits);
        if !Self::has_room::<HeapEdge>(&mut self.exceeded, edges, references, memory) {
            return;
        }
        edges.push(HeapEdge { from, to, name });
        if counted {
            self.nodes.count(to, 1);
        }
    }

    /// A root holds one of an object's references.
    pub(crate) fn count(&mut self, node: NodeIndex) {
        self.nodes.count(node, 1);
    }

    pub(crate) fn root(&mut self, node: NodeIndex, name: &str) {
        let name = self.text(name);
        self.graph.roots.push(HeapRoot { node, name });
    }

    /// How many more references an object has than were found: below 0 if a layout is wrong.
    /// `None`: unknown.
    pub(crate) fn unexplained(&self, node: NodeIndex) -> Option<i64> {
        self.nodes.unexplained(node)
    }

    /// Removes the references of some objects, as if they had not been found.
    pub(crate) fn remove_edges(
        &mut self,
        mut is_from: impl FnMut(NodeIndex) -> bool,
    ) -> Vec<NodeIndex> {
        let mut targets = Vec::new();
        let nodes = &mut self.nodes;
        self.graph.edges.retain(|edge| {
            let remove = is_from(edge.from);
            if remove {
                targets.push(edge.to);
                nodes.count(edge.to, -1);
            }
            !remove
        });
        targets
    }

    /// The heap.
    pub(crate) fn finish(self) -> HeapGraph {
        let Self { mut graph, nodes, index, texts, .. } = self;
        drop((index, texts));
        graph.nodes = nodes.unpacked().collect();
        graph
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
            let mut add = || builder.add(address, Some(2), HeapPlace::Frozen);
            assert_eq!([add(), add()], [Some(number); 2]);
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
        for _ in 0..4 {
            builder.edge(0, 0, HeapEdgeName::Unnamed, true);
        }
        assert_eq!(builder.graph.edges.len(), 3);
        assert_eq!(builder.exceeded(), Some(Exceeded::Read));
        let mut builder = GraphBuilder::new(1, limits);
        let mut add = |address| builder.add(address, None, HeapPlace::Frozen);
        assert_eq!([16, 32, 48, 32].map(&mut add), [Some(0), Some(1), None, Some(1)]);
        assert_eq!(builder.exceeded(), Some(Exceeded::Read));
        let mut builder = GraphBuilder::new(1, Limits { memory: 1 << 12, ..Limits::default() });
        while builder.exceeded().is_none() {
            builder.edge(0, 0, HeapEdgeName::Unnamed, true);
        }
        assert_eq!(builder.exceeded(), Some(Exceeded::Memory));
        assert!(builder.graph.edges.len() * size_of::<HeapEdge>() <= 1 << 12);
    }
}
