//! Dominators: an object dominates all objects that only it keeps alive, directly or not.
//!
//! The algorithm of Lengauer and Tarjan ("A fast algorithm for finding dominators in a flowgraph", TOPLAS 1979) with
//! path compression and without balancing: O(references * log(objects)) for any shape. Simpler iterations need
//! quadratic time for a long list of items that share a class, such as any Python list of instances. No recursion.

use super::NodeIndex;
use super::reach::Heap;

/// No number.
const NONE: u32 = u32::MAX;

/// Retained memory of each live object: its own memory and the memory of all objects it dominates.
#[derive(Debug)]
pub struct Dominators {
    /// Immediate dominator of each node.
    immediate: Vec<u32>,
    retained: Vec<Retained>,
    /// Nodes that are alive, each after its dominator.
    order: Vec<NodeIndex>,
}

/// Objects and bytes that would be freed with an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Objects, itself included.
    pub objects: u64,
    /// Their bytes, as far as known.
    pub bytes: u64,
}

impl Dominators {
    /// Finds the dominators of all objects that are alive.
    #[must_use]
    pub fn new(heap: &Heap) -> Self {
        let mut search = DominatorSearch::new(heap);
        search.find(heap);
        let nodes = heap.graph().nodes.len();
        let mut found = Self {
            immediate: vec![NONE; nodes],
            retained: vec![Retained::default(); nodes],
            order: gctrace_units::part(&search.vertices, 1..).to_vec(),
        };
        for (number, node) in (1..).zip(&found.order) {
            let dominator: u32 = search.immediate[number];
            if dominator != 0 {
                found.immediate[*node as usize] = search.vertices[dominator as usize];
            }
        }
        for node in found.order.iter().rev() {
            let value = heap.node(*node).bytes.unwrap_or(0);
            let retained = &mut found.retained[*node as usize];
            retained.objects += 1;
            gctrace_units::add_to(&mut retained.bytes, value);
            let retained = *retained;
            if let Some(dominator) =
                found.retained.get_mut(found.immediate[*node as usize] as usize)
            {
                dominator.objects += retained.objects;
                gctrace_units::add_to(&mut dominator.bytes, retained.bytes);
            }
        }
        found
    }

    /// The object that an object depends on most directly; `None` if several roots or objects hold
    /// it independently, and for garbage.
    #[must_use]
    pub fn immediate(&self, node: NodeIndex) -> Option<NodeIndex> {
        Some(self.immediate[node as usize]).filter(|dominator| *dominator != NONE)
    }

    /// Retained objects and bytes of an object; zero if it is garbage.
    #[must_use]
    pub fn retained(&self, node: NodeIndex) -> Retained {
        self.retained[node as usize]
    }

    /// Objects that are alive, each after its dominator.
    #[must_use]
    pub fn order(&self) -> &[NodeIndex] {
        &self.order
    }
}

/// The state of the algorithm. Vertices are numbered in the order of a depth-first search; number 0
/// stands for the roots together.
struct DominatorSearch {
    /// Number -> node; the first entry means nothing.
    vertices: Vec<NodeIndex>,
    /// Node -> number.
    numbers: Vec<u32>,
    /// Number -> number it was found from.
    parents: Vec<u32>,
    semi: Vec<u32>,
    immediate: Vec<u32>,
    /// Forest of the processed nodes, with compressed paths.
    ancestors: Vec<u32>,
    labels: Vec<u32>,
}

impl DominatorSearch {
    fn new(heap: &Heap) -> Self {
        let mut search = Self {
            vertices: vec![NONE],
            numbers: vec![NONE; heap.graph().nodes.len()],
            parents: vec![0],
            semi: Vec::new(),
            immediate: Vec::new(),
            ancestors: Vec::new(),
            labels: Vec::new(),
        };
        let mut stack: Vec<(u32, usize)> = Vec::new();
        for root in heap.roots() {
            search.number(*root, 0, &mut stack);
            while let Some((number, next)) = stack.last_mut() {
                let references = heap.references(search.vertices[*number as usize]);
                match references.get(*next) {
                    None => drop(stack.pop()),
                    Some(edge) => {
                        *next += 1;
                        let from = *number;
                        search.number(edge.to, from, &mut stack);
                    }
                }
            }
        }
        let count = search.vertices.len() as u32;
        search.semi = (0..count).collect();
        search.labels = (0..count).collect();
        search.immediate = vec![0; count as usize];
        search.ancestors = vec![NONE; count as usize];
        search
    }

    fn number(&mut self, node: NodeIndex, parent: u32, stack: &mut Vec<(u32, usize)>) {
        let number = &mut self.numbers[node as usize];
        if *number == NONE {
            *number = self.vertices.len() as u32;
            stack.push((*number, 0));
            self.vertices.push(node);
            self.parents.push(parent);
        }
    }

    fn find(&mut self, heap: &Heap) {
        let predecessors = Predecessors::new(self, heap);
        let count = self.vertices.len();
        let mut is_root = vec![false; count];
        for root in heap.roots() {
            is_root[self.numbers[*root as usize] as usize] = true;
        }
        // Vertices by semidominator, as linked lists.
        let mut first = vec![NONE; count];
        let mut next = vec![NONE; count];
        for vertex in (1..count as u32).rev() {
            let at = vertex as usize;
            let mut semi = if is_root[at] { 0 } else { self.semi[at] };
            for predecessor in predecessors.of(vertex) {
                let least = self.least(*predecessor);
                semi = semi.min(self.semi[least as usize]);
            }
            self.semi[at] = semi;
            next[at] = first[semi as usize];
            first[semi as usize] = vertex;
            let parent = self.parents[at];
            self.ancestors[at] = parent;
            let mut waiting = std::mem::replace(&mut first[parent as usize], NONE);
            while waiting != NONE {
                let least = self.least(waiting);
                self.immediate[waiting as usize] =
                    if self.semi[least as usize] < self.semi[waiting as usize] {
                        least
                    } else {
                        parent
                    };
                waiting = next[waiting as usize];
            }
        }
        for vertex in 1..count {
            let dominator = self.immediate[vertex];
            if dominator != self.semi[vertex] {
                self.immediate[vertex] = self.immediate[dominator as usize];
            }
        }
    }

    /// The vertex with the least semidominator between `vertex` and the root of its tree in the forest.
    fn least(&mut self, vertex: u32) -> u32 {
        let ancestor = |search: &Self, vertex: u32| search.ancestors[vertex as usize];
        if ancestor(self, vertex) == NONE {
            return vertex;
        }
        let mut path = Vec::new();
        let mut top = vertex;
        while ancestor(self, ancestor(self, top)) != NONE {
            path.push(top);
            top = ancestor(self, top);
        }
        for below in path.into_iter().rev() {
            let above = ancestor(self, below);
            let label = self.labels[above as usize];
            if self.semi[label as usize] < self.semi[self.labels[below as usize] as usize] {
                self.labels[below as usize] = label;
            }
            self.ancestors[below as usize] = ancestor(self, above);
        }
        self.labels[vertex as usize]
    }
}

/// References backwards, between numbers.
struct Predecessors {
    starts: Vec<u32>,
    from: Vec<u32>,
}

impl Predecessors {
    fn new(search: &DominatorSearch, heap: &Heap) -> Self {
        let mut starts = vec![0_u32; search.vertices.len() + 1];
        let number = |node: NodeIndex| search.numbers[node as usize];
        // Garbage has no number; every object that a numbered one refers to has one.
        let edges = || {
            let edges = heap.graph().edges.iter();
            edges.map(|edge| (number(edge.from), number(edge.to))).filter(|(from, _)| *from != NONE)
        };
        for (_, to) in edges() {
            starts[to as usize] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut from = vec![0; sum as usize];
        for (source, to) in edges() {
            let start = &mut starts[to as usize];
            *start -= 1;
            from[*start as usize] = source;
        }
        Self { starts, from }
    }

    fn of(&self, vertex: u32) -> &[u32] {
        let at = vertex as usize;
        &self.from[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

#[cfg(test)]
mod tests;
