//! The cycles of a collection's garbage (`--garbage cycles`): its references, by `tp_traverse`, and the signature of
//! each cycle.
//!
//! A component is known by the kinds of objects on its shortest cycle. For the first component of its kind the
//! references are named; later ones are only counted.

use super::graph::{Components, Graph, Search};
use super::layout::{COLLECTING, TypeView, head_of, type_of};
use super::references::ReferenceNames;
use super::tally::{self, Tally};
use crate::memory::Map;
use crate::process_ring::{PythonRing, now_ns};
use crate::python::api::Object;
use crate::recording::guarded;
use gctrace_ring::{NO_TEXT, RingCycleCount, RingCycleEdge};
use std::collections::TryReserveError;
use std::ffi::{c_int, c_void};

/// Garbage with more objects is examined by kind only: it would take some 150 MB more for a moment.
const MOST_OBJECTS: usize = 1 << 21;

/// References of a signature. A longer cycle is cut: its last reference has no name.
const LONGEST: usize = 32;

/// Signatures known; cycles of others are not counted.
const MOST_SIGNATURES: usize = 1 << 11;

/// New signatures per collection, so that their edges leave room in the ring for other records;
/// cycles of more are not counted until the next one.
const MOST_NEW: usize = 1 << 8;

/// An object on the collector's list, and its place in the [`Tally`].
#[derive(Clone, Copy)]
struct GarbageNode {
    object: Object,
    kind: u16,
}

/// Finds cycles in one interpreter.
pub(super) struct CycleReader {
    names: ReferenceNames,
    nodes: Vec<GarbageNode>,
    /// Set if there are too many of them.
    is_full: bool,
    search: Search,
    /// Numbers of signatures by the kinds on them, in the ring of this number.
    known: Map<Box<[u32]>, u32>,
    /// How many of them before this collection.
    before: usize,
    ring: u32,
    /// Time per object in the last examination, in ns.
    each_ns: u64,
}

impl CycleReader {
    pub(super) fn new(names: ReferenceNames) -> Self {
        Self {
            names,
            nodes: Vec::new(),
            is_full: false,
            search: Search::default(),
            known: Map::default(),
            before: 0,
            ring: 0,
            each_ns: 300,
        }
    }

    /// Forgets the objects of the collection.
    pub(super) fn clear(&mut self) {
        /// As much memory is kept for the next collection.
        const KEPT: usize = 1 << 16;
        if self.nodes.len() > KEPT {
            self.search = Search::default();
        }
        self.nodes.clear();
        self.nodes.shrink_to(KEPT);
        self.is_full = false;
    }

    /// Estimated time for examining the added objects, in ns, from the last examination.
    pub(super) fn estimate_ns(&self) -> u64 {
        self.nodes.len() as u64 * self.each_ns
    }

    /// Adds an object, with its place in the tally.
    #[inline]
    pub(super) fn add(&mut self, object: Object, kind: Option<usize>) {
        let kind = if let Some(kind) = kind { kind as u16 } else { u16::MAX };
        if self.nodes.len() >= MOST_OBJECTS || self.nodes.try_reserve(1).is_err() {
            self.is_full = true;
            return;
        }
        self.nodes.push(GarbageNode { object, kind });
    }

    /// The cycles among the objects added, most objects first. `kinds`: numbers of the tally's kinds
    /// in the ring. `None`: too many objects, or too little memory.
    ///
    /// # Safety
    /// The lock is held; the objects are on the collector's list, whole.
    pub(super) unsafe fn examine(
        &mut self,
        ring: &PythonRing,
        tally: &Tally,
        kinds: &[u32],
    ) -> Option<Vec<RingCycleCount>> {
        if self.is_full {
            return None;
        }
        if self.ring != ring.number() {
            self.ring = ring.number();
            self.known.clear();
        }
        self.before = self.known.len();
        let start_ns = now_ns();
        // SAFETY: as the caller promises.
        let counts = unsafe { self.count(ring, tally, kinds) }.ok();
        let objects = self.nodes.len() as u64;
        // With few objects, the names of references take most of the time.
        if objects > 1000 {
            self.each_ns = gctrace_units::duration_ns(start_ns, now_ns()) / objects;
        }
        counts
    }

    unsafe fn count(
        &mut self,
        ring: &PythonRing,
        tally: &Tally,
        kinds: &[u32],
    ) -> Result<Vec<RingCycleCount>, TryReserveError> {
        // SAFETY: as the caller promises.
        let graph = unsafe { graph(&self.nodes) }?;
        let components = graph.components()?;
        let holders = graph.holders(&components)?;
        let mut signatures = Vec::new();
        for component in 0..components.len() as u32 {
            // SAFETY: as above.
            let signature = unsafe { self.signature(ring, &graph, &components, component, kinds) }?;
            signatures.try_reserve(1)?;
            signatures.push(signature);
        }
        let mut sums = Map::<u32, Sum>::default();
        for (component, signature) in signatures.iter().enumerate() {
            let sum = sums.entry(*signature).or_default();
            sum.count.count += 1;
            sum.count.objects += components.members(component as u32).len() as u64;
        }
        for (node, holder) in self.nodes.iter().zip(holders) {
            if let Some(signature) = signatures.get(holder as usize) {
                let sum = sums.entry(*signature).or_default();
                sum.objects += 1;
                // SAFETY: as above.
                let bytes = unsafe { tally.bytes(node.kind.into(), node.object) };
                sum.bytes = tally::sum(sum.bytes, bytes);
            }
        }
        let mut counts: Vec<RingCycleCount> = sums
            .into_iter()
            .filter(|(signature, _)| *signature != 0)
            .map(|(cycle, sum)| RingCycleCount {
                cycle,
                held_objects: sum.objects - sum.count.objects,
                bytes: sum.bytes,
                ..sum.count
            })
            .collect();
        counts.sort_unstable_by_key(|count| (std::cmp::Reverse(count.objects), count.cycle));
        Ok(counts)
    }

    /// The number of a component's signature; 0 if there is no room for it.
    unsafe fn signature(
        &mut self,
        ring: &PythonRing,
        graph: &Graph,
        components: &Components,
        component: u32,
        kinds: &[u32],
    ) -> Result<u32, TryReserveError> {
        let nodes = &self.nodes;
        let kind = |object: u32| {
            let Some(node) = nodes.get(object as usize) else { return 0 };
            kinds.get(usize::from(node.kind)).copied().unwrap_or(0)
        };
        let cycle = graph.shortest_cycle(components, component, kind, &mut self.search)?;
        let mut key: Vec<u32> = cycle.iter().take(LONGEST).map(|cycle| kind(*cycle)).collect();
        if cycle.len() > LONGEST {
            key.push(u32::MAX);
        }
        if let Some(known) = self.known.get(key.as_slice()) {
            return Ok(*known);
        }
        let most = MOST_SIGNATURES.min(self.before + MOST_NEW);
        if self.known.len() >= most || key.contains(&0) {
            return Ok(0);
        }
        let object = |at: usize| {
            let cycle = cycle.get(at % cycle.len())?;
            nodes.get(*cycle as usize).map(|node| node.object)
        };
        let mut edges = Vec::new();
        for (at, kind) in key.iter().take(LONGEST).enumerate() {
            let name = match (object(at), object(at + 1)) {
                // SAFETY: on the collector's list, by the caller's promise.
                (Some(from), Some(to)) => unsafe { self.names.name(from, to) },
                _ => None,
            };
            edges.push((*kind, name));
        }
        reduce(&mut edges, cycle.len());
        let text = |of: &Option<String>| if let Some(of) = of { ring.text(of) } else { NO_TEXT };
        let edge = |(kind, name): &(u32, _)| RingCycleEdge { kind: *kind, name: text(name) };
        let edges: Vec<RingCycleEdge> = folded(edges).iter().map(edge).collect();
        let number = ring.cycle(&edges);
        if number != 0 {
            self.known.insert(key.into(), number);
        }
        Ok(number)
    }
}

/// Sums of one signature.
struct Sum {
    count: RingCycleCount,
    /// Objects on cycles and held objects.
    objects: u64,
    bytes: Option<u64>,
}

impl Default for Sum {
    fn default() -> Self {
        Self { count: RingCycleCount::default(), objects: 0, bytes: Some(0) }
    }
}

/// Leaves the shortest part that a cycle of that length repeats: a ring of equal objects is a cycle of
/// one. `edges` are its first; if it does not repeat them, the last loses its name.
fn reduce(edges: &mut Vec<(u32, Option<String>)>, length: usize) {
    let repeats = |period: &usize| {
        let later = edges.iter().skip(*period);
        length.is_multiple_of(*period) && edges.iter().zip(later).all(|(one, other)| one == other)
    };
    match (1..edges.len()).find(repeats) {
        Some(period) => edges.truncate(period),
        None if edges.len() < length => {
            if let Some((_, name)) = edges.last_mut() {
                *name = None;
            }
        }
        None => {}
    }
}

/// Instances, and not their dicts, refer to the values of attributes. Starts at the smallest edge.
fn folded(mut edges: Vec<(u32, Option<String>)>) -> Vec<(u32, Option<String>)> {
    const DICTIONARY: &str = ".__dict__";
    let is_dictionary = |edge: &(u32, Option<String>)| edge.1.as_deref() == Some(DICTIONARY);
    if matches!(edges.last(), Some(last) if is_dictionary(last)) {
        edges.rotate_right(1);
    }
    let mut all = Vec::<(u32, Option<String>)>::new();
    for edge in edges {
        let key = edge.1.as_deref().and_then(|name| name.strip_prefix("['")?.strip_suffix("']"));
        match (all.last_mut(), key) {
            (Some(before), Some(key)) if is_dictionary(before) => {
                before.1 = Some(format!(".{key}"))
            }
            _ => all.push(edge),
        }
    }
    let first = (0..all.len()).min_by_key(|at| all.get(*at));
    all.rotate_left(first.unwrap_or(0));
    all
}

/// Numbers of objects by their addresses.
struct Numbers {
    /// Numbers, counted from 1, by the hash of their addresses; a power of two of places, at most
    /// half of them in use.
    places: Vec<u32>,
}

impl Numbers {
    fn new(nodes: &[GarbageNode]) -> Result<Self, TryReserveError> {
        let length = (nodes.len() * 2).next_power_of_two().max(2);
        let mut places = Vec::new();
        places.try_reserve_exact(length)?;
        places.resize(length, 0);
        let mut numbers = Self { places };
        for (number, node) in nodes.iter().enumerate() {
            let mut at = numbers.start(node.object);
            while numbers.places[at] != 0 {
                at = (at + 1) % length;
            }
            numbers.places[at] = number as u32 + 1;
        }
        Ok(numbers)
    }

    fn start(&self, object: Object) -> usize {
        /// As in [`Tally`].
        const FIBONACCI: usize = 0x9e37_79b9_7f4a_7c15;
        (object.addr().wrapping_mul(FIBONACCI) >> 32) & (self.places.len() - 1)
    }

    fn of(&self, nodes: &[GarbageNode], object: Object) -> Option<u32> {
        let mut at = self.start(object);
        loop {
            let number = self.places[at].checked_sub(1)?;
            if nodes[number as usize].object == object {
                return Some(number);
            }
            at = (at + 1) % self.places.len();
        }
    }
}

/// The argument of `tp_traverse`'s visits.
struct Visited<'a> {
    nodes: &'a [GarbageNode],
    numbers: Numbers,
    graph: Graph,
    failed: Option<TryReserveError>,
}

/// The references among objects.
///
/// # Safety
/// The lock is held; they are on the collector's list, whole.
unsafe fn graph(nodes: &[GarbageNode]) -> Result<Graph, TryReserveError> {
    let mut visited =
        Visited { nodes, numbers: Numbers::new(nodes)?, graph: Graph::new(), failed: None };
    for node in nodes {
        // SAFETY: as the caller promises; the collector has called it for each of them before.
        unsafe {
            if let Some(traverse) = TypeView::new(type_of(node.object)).traverse() {
                traverse(node.object, visit, (&raw mut visited).cast());
            }
        }
        if let Some(error) = visited.failed {
            return Err(error);
        }
        visited.graph.end_object()?;
    }
    Ok(visited.graph)
}

/// A reference to `object`.
unsafe extern "C" fn visit(object: Object, visited: *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: the argument of `graph`; the object is alive.
        unsafe {
            let visited = &mut *visited.cast::<Visited<'_>>();
            let is_known = TypeView::new(type_of(object)).knows(object);
            if is_known
                && (*head_of(object)).previous & COLLECTING != 0
                && let Some(number) = visited.numbers.of(visited.nodes, object)
                && let Err(error) = visited.graph.add(number)
            {
                visited.failed = Some(error);
            }
        }
    });
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(of: &[(u32, &str)]) -> Vec<(u32, Option<String>)> {
        of.iter().map(|(kind, name)| (*kind, Some((*name).to_owned()))).collect()
    }

    #[test]
    fn dicts_of_instances_are_left_out() {
        let trainer = edges(&[(2, "['hooks']"), (3, "[]"), (4, ".__self__"), (5, ".__dict__")]);
        let expected = edges(&[(3, "[]"), (4, ".__self__"), (5, ".hooks")]);
        assert_eq!(folded(trainer), expected);
        let dict = edges(&[(2, "['own']")]);
        assert_eq!(folded(dict.clone()), dict);
        let node = edges(&[(1, ".__dict__"), (2, "['next']")]);
        assert_eq!(folded(node), edges(&[(1, ".next")]));
    }

    #[test]
    fn rings_of_equal_parts_are_one_part() {
        let reduced = |of: &[(u32, &str)], length| {
            let mut edges = edges(of);
            reduce(&mut edges, length);
            edges
        };
        let ring = [(1, ".next"); 4];
        assert_eq!(reduced(&ring, 4), edges(&ring[..1]));
        assert_eq!(reduced(&ring, 1_000_000), edges(&ring[..1]));
        let pair = [(1, ".next"), (1, ".previous")];
        assert_eq!(reduced(&pair, 2), edges(&pair));
        let cut = reduced(&[(1, ".a"), (2, ".b"), (1, ".a"), (2, ".c")], 9);
        assert_eq!(cut.last(), Some(&(2, None)));
        assert_eq!(reduced(&[], 0), []);
    }
}
