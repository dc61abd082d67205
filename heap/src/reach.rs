//! A heap with references to follow, and the holder of each object.
//!
//! Owns the rule for live objects. Roots hold objects in this order: modules and other lasting roots; frames, since
//! their variables go when they return; then something outside the heap. The last holds objects with more references
//! than the heap shows, then objects with an unknown number of references. All unreached objects are garbage: the
//! collector's own rule (`deduce_unreachable` of CPython's `Python/gc.c`).

use super::{HeapEdge, HeapEdgeName, HeapGraph, HeapNode, HeapPlace, HeapRoot, NodeIndex};
use gctrace_event::{KindId, KindName};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

/// Parts of a [`HeapGraph`] contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidHeap(pub(super) &'static str);

/// The holder of an object, on the shortest path from a root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reached {
    /// By nothing: it is garbage.
    #[default]
    Not,
    /// By the root at this position of [`HeapGraph::roots`].
    Root(u32),
    /// By something that is not in the heap: it has more references than the heap shows, or their
    /// number is unknown.
    Outside,
    /// By the reference at this position of [`HeapGraph::edges`].
    By(u32),
}

/// A heap, and what holds each of its objects.
#[derive(Debug)]
pub struct Heap {
    graph: HeapGraph,
    kinds: HashMap<KindId, usize>,
    /// First edge of each node; one more at the end.
    starts: Vec<u32>,
    reached: Vec<Reached>,
    /// Nodes in the order of reaching them: nearer ones first, within a phase.
    order: Vec<NodeIndex>,
    /// Nodes that a root holds, named or not; each once.
    roots: Vec<NodeIndex>,
    /// Nodes with fewer references than the heap shows: something was misread.
    contradictions: u64,
}

impl HeapGraph {
    /// # Errors
    /// An index is out of range, edges are not ordered, a kind is missing or double, a generation is
    /// above 2, or there are 2^32 - 1 objects or references or more.
    pub(super) fn check(&self) -> Result<(), InvalidHeap> {
        let is_node = |index: u32| (index as usize) < self.nodes.len();
        let is_text = |index: u32| (index as usize) < self.texts.len();
        let most = u32::MAX as usize;
        if self.nodes.len() >= most || self.edges.len() >= most {
            return Err(InvalidHeap("it has too many objects or references"));
        }
        let kinds: HashSet<KindId> = self.kinds.iter().map(|kind| kind.id).collect();
        if kinds.len() != self.kinds.len() {
            return Err(InvalidHeap("two kinds have the same number"));
        }
        let node_is_valid = |node: &HeapNode| {
            kinds.contains(&node.kind)
                && node.label.is_none_or(is_text)
                && !matches!(node.place, HeapPlace::Generation(generation) if generation > 2)
        };
        if !self.nodes.iter().all(node_is_valid) {
            return Err(InvalidHeap("an object has an unknown kind, label or generation"));
        }
        let edge_is_valid = |edge: &HeapEdge| {
            let name_is_valid = match edge.name {
                HeapEdgeName::Text(text) => is_text(text),
                HeapEdgeName::Item(_) | HeapEdgeName::Unnamed => true,
            };
            name_is_valid && is_node(edge.from) && is_node(edge.to)
        };
        if !self.edges.iter().all(edge_is_valid) || !self.edges.is_sorted_by_key(|edge| edge.from) {
            return Err(InvalidHeap("a reference leads nowhere or is out of order"));
        }
        let root_is_valid = |root: &HeapRoot| is_node(root.node) && is_text(root.name);
        if self.roots.iter().all(root_is_valid) {
            Ok(())
        } else {
            Err(InvalidHeap("a root holds nothing or has no name"))
        }
    }
}

impl Heap {
    /// Finds the holder of each object, in time proportional to the number of objects and references.
    ///
    /// # Errors
    /// The graph contradicts itself. A graph from [`HeapGraph::read`] does not.
    pub fn new(graph: HeapGraph) -> Result<Self, InvalidHeap> {
        graph.check()?;
        let mut heap = Self {
            kinds: (0..).zip(&graph.kinds).map(|(at, kind)| (kind.id, at)).collect(),
            starts: starts(&graph),
            reached: vec![Reached::Not; graph.nodes.len()],
            order: Vec::with_capacity(graph.nodes.len()),
            roots: Vec::new(),
            contradictions: 0,
            graph,
        };
        heap.reach_all();
        Ok(heap)
    }

    fn reach_all(&mut self) {
        let mut is_root = vec![false; self.graph.nodes.len()];
        let mut queue = VecDeque::new();
        let roots = self.graph.roots.clone();
        for phase in 0..PHASES {
            for (position, root) in (0..).zip(&roots) {
                let name = self.graph.texts[root.name as usize].as_str();
                let by = match name {
                    HeapRoot::OUTSIDE => Reached::Outside,
                    _ => Reached::Root(position),
                };
                if self::phase(name) == phase {
                    is_root[root.node as usize] = true;
                    self.reach(root.node, by, &mut queue);
                }
            }
            self.follow(&mut queue);
        }
        for node in self.held_outside(&roots) {
            is_root[node as usize] = true;
            self.reach(node, Reached::Outside, &mut queue);
        }
        self.follow(&mut queue);
        for node in self.indices() {
            let is_unknown = self.graph.nodes[node as usize].references.is_none();
            if is_unknown && self.reached[node as usize] == Reached::Not {
                is_root[node as usize] = true;
                self.reach(node, Reached::Outside, &mut queue);
                self.follow(&mut queue);
            }
        }
        let roots = self.indices().filter(|node| is_root[*node as usize]);
        self.roots = roots.collect();
    }

    /// Objects with more references than the heap shows. A root counts as one reference: some are
    /// (a frame's variable), and the others are roots anyway.
    fn held_outside(&mut self, roots: &[HeapRoot]) -> Vec<NodeIndex> {
        let mut shown = vec![0_u32; self.graph.nodes.len()];
        for edge in &self.graph.edges {
            shown[edge.to as usize] += 1;
        }
        let has = |node: NodeIndex| self.graph.nodes[node as usize].references;
        let contradicts =
            |node: &NodeIndex| has(*node).is_some_and(|it| it < shown[*node as usize]);
        self.contradictions = self.indices().filter(contradicts).count() as u64;
        for root in roots {
            let shown = &mut shown[root.node as usize];
            *shown = shown.saturating_add(1);
        }
        let is_held = |node: &NodeIndex| has(*node).is_some_and(|it| it > shown[*node as usize]);
        self.indices().filter(is_held).collect()
    }

    fn reach(&mut self, node: NodeIndex, by: Reached, queue: &mut VecDeque<NodeIndex>) {
        let reached = &mut self.reached[node as usize];
        if *reached == Reached::Not {
            *reached = by;
            self.order.push(node);
            queue.push_back(node);
        }
    }

    fn follow(&mut self, queue: &mut VecDeque<NodeIndex>) {
        while let Some(node) = queue.pop_front() {
            for edge in self.edge_range(node) {
                self.reach(self.graph.edges[edge as usize].to, Reached::By(edge), queue);
            }
        }
    }

    /// The heap itself.
    #[must_use]
    pub fn graph(&self) -> &HeapGraph {
        &self.graph
    }

    /// Positions of all objects.
    pub fn indices(&self) -> Range<NodeIndex> {
        // The constructor checked that it fits.
        0..self.graph.nodes.len() as NodeIndex
    }

    /// An object.
    pub(super) fn node(&self, node: NodeIndex) -> &HeapNode {
        &self.graph.nodes[node as usize]
    }

    /// The kind of an object.
    #[must_use]
    pub fn kind(&self, node: NodeIndex) -> &KindName {
        &self.graph.kinds[self.kinds[&self.node(node).kind]].name
    }

    /// Positions of the references that an object has.
    pub(super) fn edge_range(&self, node: NodeIndex) -> Range<u32> {
        self.starts[node as usize]..self.starts[node as usize + 1]
    }

    /// The references that an object has.
    #[must_use]
    pub fn references(&self, node: NodeIndex) -> &[HeapEdge] {
        let range = self.edge_range(node);
        &self.graph.edges[range.start as usize..range.end as usize]
    }

    /// The holder of an object.
    #[must_use]
    pub fn reached(&self, node: NodeIndex) -> Reached {
        self.reached[node as usize]
    }

    /// Whether no root reaches an object: the next collection of its generation frees it.
    #[must_use]
    pub fn is_garbage(&self, node: NodeIndex) -> bool {
        self.reached(node) == Reached::Not
    }

    /// The reference that an object is held by, if it is one.
    #[must_use]
    pub fn holder(&self, node: NodeIndex) -> Option<&HeapEdge> {
        match self.reached(node) {
            Reached::By(edge) => self.graph.edges.get(edge as usize),
            Reached::Not | Reached::Root(_) | Reached::Outside => None,
        }
    }

    /// Live objects in the order of reaching them: each after its holder.
    pub(super) fn order(&self) -> &[NodeIndex] {
        &self.order
    }

    /// Objects that a root holds, named or not, each once.
    #[must_use]
    pub fn roots(&self) -> &[NodeIndex] {
        &self.roots
    }

    /// Number of objects that have fewer references than the heap shows.
    #[must_use]
    pub fn contradictions(&self) -> u64 {
        self.contradictions
    }
}

/// Number of phases for following roots with a name.
const PHASES: u8 = 3;

/// The phase that follows roots of this name.
fn phase(name: &str) -> u8 {
    match name {
        HeapRoot::OUTSIDE => 2,
        _ if name.starts_with(HeapRoot::FRAME) => 1,
        _ => 0,
    }
}

/// First edge of each node, and the number of edges.
fn starts(graph: &HeapGraph) -> Vec<u32> {
    let mut starts = vec![0; graph.nodes.len() + 1];
    for edge in &graph.edges {
        starts[edge.from as usize + 1] += 1;
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    starts
}

#[cfg(test)]
mod tests;
