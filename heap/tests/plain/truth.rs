//! Heaps taken from running interpreters against what these interpreters report about themselves:
//! `gc.get_objects`, `gc.get_referents`, `gc.collect` with `DEBUG_SAVEALL`.

#![expect(clippy::indexing_slicing, reason = "what fails here fails the test")]

use crate::script;

use gctrace_heap::{HeapEdgeName, HeapGraph, HeapPlace};
use script::{Script, take, with_gil};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use test_kit::interpreters::compared;

/// Live objects and garbage that the script makes.
const SIZES: [&str; 2] = ["300", "60"];

/// What the script reports before the heap is taken.
#[derive(Debug, Deserialize)]
struct Before {
    objects: Vec<u64>,
    generations: [usize; 3],
    frozen: usize,
    /// Objects made for the report itself.
    of_report: Vec<u64>,
}

/// What it reports afterwards: by address, the addresses of what it refers to.
#[derive(Debug, Deserialize)]
struct Referents {
    referents: HashMap<u64, Vec<u64>>,
}

#[derive(Debug, Deserialize)]
struct Garbage {
    collected: usize,
    garbage: HashSet<u64>,
    alive: HashSet<u64>,
}

/// A graph with what tests ask of it.
struct Heap<'graph> {
    graph: &'graph HeapGraph,
    /// Tracked objects, by address.
    tracked: HashMap<u64, usize>,
    edges: Vec<Vec<(usize, HeapEdgeName)>>,
}

impl<'graph> Heap<'graph> {
    fn new(graph: &'graph HeapGraph) -> Self {
        let tracked = graph.nodes.iter().enumerate();
        let tracked = tracked.filter(|(_, node)| node.place != HeapPlace::Untracked);
        let mut edges = vec![Vec::new(); graph.nodes.len()];
        for edge in &graph.edges {
            edges[edge.from as usize].push((edge.to as usize, edge.name));
        }
        assert!(graph.edges.is_sorted_by_key(|edge| edge.from));
        Self { graph, tracked: tracked.map(|(index, node)| (node.address, index)).collect(), edges }
    }

    fn kind(&self, node: usize) -> String {
        let kind = &self.graph.kinds[self.graph.nodes[node].kind as usize - 1];
        assert_eq!(kind.id, self.graph.nodes[node].kind);
        kind.type_name.clone()
    }

    fn name(&self, name: HeapEdgeName) -> String {
        match name {
            HeapEdgeName::Text(text) => self.graph.texts[text as usize].clone(),
            HeapEdgeName::Item(item) => format!("[{item}]"),
            HeapEdgeName::Unnamed => String::new(),
        }
    }

    /// Tracked objects that no root reaches.
    fn unreachable(&self) -> HashSet<u64> {
        let mut is_alive = vec![false; self.graph.nodes.len()];
        let roots = self.graph.roots.iter();
        let mut left: Vec<usize> = roots.map(|root| root.node as usize).collect();
        while let Some(node) = left.pop() {
            if !std::mem::replace(&mut is_alive[node], true) {
                left.extend(self.edges[node].iter().map(|(to, _)| *to));
            }
        }
        let dead = self.tracked.iter().filter(|(_, node)| !is_alive[**node]);
        dead.map(|(address, _)| *address).collect()
    }
}

/// Asserts that the nodes are the tracked objects, each in its generation.
fn check_nodes(heap: &Heap<'_>, before: &Before, context: &str) {
    let expected: HashSet<u64> = before.objects.iter().copied().collect();
    let missing: Vec<&u64> =
        expected.iter().filter(|address| !heap.tracked.contains_key(address)).collect();
    assert!(missing.is_empty(), "{context}: {} are missing", missing.len());
    let in_place = |place: HeapPlace| {
        let all = heap.tracked.values();
        all.filter(|node| heap.graph.nodes[**node].place == place).count()
    };
    assert_eq!(in_place(HeapPlace::Frozen), before.frozen, "{context}");
    let made_since: Vec<String> = heap
        .tracked
        .iter()
        .filter(|(address, node)| {
            let is_frozen = heap.graph.nodes[**node].place == HeapPlace::Frozen;
            !is_frozen && !expected.contains(address) && !before.of_report.contains(address)
        })
        .map(|(_, node)| heap.kind(*node))
        .collect();
    // Up to 3.11 the arguments of the call that waits.
    assert!(made_since.is_empty() || made_since == ["tuple"], "{context}: {made_since:?}");
}

/// Asserts that the references between tracked objects are those that `tp_traverse` visits, each as
/// often as it does.
fn check_edges(heap: &Heap<'_>, before: &Before, referents: &Referents, context: &str) -> usize {
    let expected: HashSet<u64> = before.objects.iter().copied().collect();
    let mut wrong: BTreeMap<String, usize> = BTreeMap::new();
    let mut right = 0;
    for (address, truth) in &referents.referents {
        let node = heap.tracked[address];
        let mut difference: BTreeMap<u64, i64> = BTreeMap::new();
        for to in truth {
            *difference.entry(*to).or_default() -= 1;
        }
        for (to, name) in &heap.edges[node] {
            let to = heap.graph.nodes[*to].address;
            // A C module's state may hold more than it visits.
            let is_state = heap.name(*name) == ".(module state)";
            if expected.contains(&to) && (!is_state || truth.contains(&to)) {
                *difference.entry(to).or_default() += 1;
            }
        }
        for (to, difference) in difference {
            if difference == 0 {
                right += 1;
                continue;
            }
            let sign = if difference < 0 { "lacks" } else { "has" };
            let to = heap.kind(heap.tracked[&to]);
            let from = heap.kind(node);
            *wrong.entry(format!("{from} {sign} {to}")).or_default() += 1;
        }
    }
    assert!(right > 10_000, "{context}: {right}");
    assert!(wrong.is_empty(), "{context}: {wrong:#?}");
    right
}

#[test]
fn nodes_and_edges_are_the_interpreters_own() {
    for python in with_gil("nodes_and_edges_are_the_interpreters_own") {
        for how in [&[][..], &["freeze"][..]] {
            let mut script = Script::start(&python, &[&SIZES, how].concat());
            let before: Before = script.line();
            script.wait_until_idle();
            let graph = take(script.pid());
            let context = format!("{} {how:?}: {:?}", python.name, graph.header.notes);
            script.go_on();
            let referents: Referents = script.line();
            let heap = Heap::new(&graph);
            check_nodes(&heap, &before, &context);
            let references = check_edges(&heap, &before, &referents, &context);
            if how.is_empty() && !python.is("incremental") {
                for (generation, count) in (0..).zip(before.generations) {
                    let found = graph.nodes.iter();
                    let found = found
                        .filter(|node| node.place == HeapPlace::Generation(generation))
                        .count();
                    // Those made for the report are in the youngest, some of them for a moment.
                    let of_report = if generation == 0 { 4 } else { 0 };
                    assert!(count.abs_diff(found) <= of_report, "{context}: {count} {found}");
                }
            }
            assert_eq!(graph.header.notes, Vec::<String>::new(), "{context}");
            assert!(graph.header.stopped_ns.is_some_and(|stopped| stopped > 0));
            compared(&python, "heap: objects", heap.tracked.len());
            compared(&python, "heap: references", references);
        }
    }
}

#[test]
fn garbage_is_found_and_nothing_alive_is_called_garbage() {
    for python in with_gil("garbage_is_found_and_nothing_alive_is_called_garbage") {
        let mut script = Script::start(&python, &[&SIZES[..], &["garbage"]].concat());
        let _started = script.text();
        script.wait_until_idle();
        let graph = take(script.pid());
        script.go_on();
        let garbage: Garbage = script.line();
        let heap = Heap::new(&graph);
        let found = heap.unreachable();
        let context = format!("{}: {:?}", python.name, graph.header.notes);
        let both = found.intersection(&garbage.garbage).count();
        assert!(garbage.collected > 5000, "{context}");
        let share = both as f64 / garbage.garbage.len() as f64;
        assert!(share >= 0.995, "{context}: {both} of {}", garbage.garbage.len());
        let alive: Vec<String> = found
            .intersection(&garbage.alive)
            .map(|address| heap.kind(heap.tracked[address]))
            .collect();
        assert!(alive.is_empty(), "{context}: {alive:?}");
        // The collector's list lacks what finalizers free first, and tuples that it untracks.
        let mut others: BTreeMap<String, usize> = BTreeMap::new();
        for address in found.difference(&garbage.garbage) {
            *others.entry(heap.kind(heap.tracked[address])).or_default() += 1;
        }
        for kind in ["generator", "frame", "list", "tuple", "__main__.Forever"] {
            others.remove(kind);
        }
        assert!(others.is_empty(), "{context}: {others:?}");
        let cell = format!("{both} of {}", garbage.garbage.len());
        compared(&python, "heap: garbage", cell);
    }
}
