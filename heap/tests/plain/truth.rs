//! Heaps taken from running interpreters against what these interpreters report about themselves:
//! `gc.get_objects`, `gc.get_referents`, `gc.collect` with `DEBUG_SAVEALL`.

use crate::script;

use gctrace_heap::{HeapEdgeName, HeapGraph, HeapPlace};
use script::{Script, take, with_gil};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::process::Command;
use test_kit::interpreters::{Python, compared};

/// Bits of `type.__flags__` (Include/object.h).
const MANAGED_DICT: u64 = 1 << 4;
const LONG_SUBCLASS: u64 = 1 << 24;
const UNICODE_SUBCLASS: u64 = 1 << 28;
const TYPE_SUBCLASS: u64 = 1 << 31;
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
    /// Address, `sys.getsizeof`, which includes the head of the collector, and flags of the type.
    sizes: Vec<(u64, u64, u64)>,
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
        kind.name.type_name.clone()
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

/// Asserts that objects have the sizes that the interpreter reports.
fn check_sizes(heap: &Heap<'_>, python: &Python, referents: &Referents, context: &str) -> usize {
    let mut wrong: BTreeMap<String, usize> = BTreeMap::new();
    let mut right = 0;
    for (address, truth, flags) in &referents.sizes {
        let node = heap.tracked[address];
        let bytes = heap.graph.nodes[node].bytes;
        // What `sys.getsizeof` leaves out: from 3.11 on the values, at most 30, of instances; slots
        // that a class describes, 40 bytes each; the ends of ints and, up to 3.10, of frames, whose memory is used again for smaller ones.
        let kind = heap.kind(node);
        let more = match () {
            () if python.version.1 >= 11 && flags & MANAGED_DICT != 0 => 48 + 30 * 8,
            () if flags & TYPE_SUBCLASS != 0 => 40 * 64,
            () if kind == "frame" && python.version.1 <= 10 => 64,
            () if flags & LONG_SUBCLASS != 0 => 8,
            () => 0,
        };
        // A buffer of C code, and the text of an instance of a subclass of `str`.
        let has_buffer = kind.starts_with("_io.Buffered")
            || kind == "_struct.Struct"
            || flags & UNICODE_SUBCLASS != 0;
        if has_buffer || bytes.is_some_and(|bytes| (*truth..=truth + more).contains(&bytes)) {
            right += 1;
            continue;
        }
        *wrong.entry(format!("{kind} {bytes:?} {truth}")).or_default() += 1;
    }
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
            let sizes = check_sizes(&heap, &python, &referents, &context);
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
            compared(&python, "heap: sizes", sizes);
        }
    }
}

/// Instances made between two readings of `tracemalloc`, which counts what is allocated. They are the last
/// of 10,000: a class's first instances have more place for values.
const MEASURED: &str = r#"
import sys, tracemalloc
class Plain:
    def __init__(self): self.a = None; self.b = None
class Many:
    def __init__(self):
        for name in NAMES: setattr(self, name, None)
class Slots:
    __slots__ = ("a", "b", "c")
class Weak:
    __slots__ = ("a", "__weakref__")
class Pair(tuple): pass
NAMES = [f"n{number}" for number in range(12)]
made = []
tracemalloc.start()
for make in [Plain, Many, Slots, Weak, lambda: [None, None], lambda: {1: made}, lambda: (made,), lambda: {None}, lambda: Pair((made,))]:
    some = [make() for _ in range(9_000)] + [None] * 1_000
    before = tracemalloc.get_traced_memory()[0]
    for at in range(9_000, 10_000): some[at] = make()
    each = (tracemalloc.get_traced_memory()[0] - before) / 1_000
    made.append(some)
    one = some[-1]
    print(hex(id(one)), round(each), flush=True)
print("done", flush=True)
sys.stdin.read()
"#;

#[test]
fn objects_have_the_size_that_was_allocated() {
    for python in with_gil("objects_have_the_size_that_was_allocated") {
        let mut command = Command::new(&python.path);
        command.args(["-c", MEASURED]);
        let mut script = Script::run(command);
        let mut measured = Vec::new();
        loop {
            let line = script.text();
            let Some((address, each)) = line.split_once(' ') else {
                break;
            };
            let address = u64::from_str_radix(&address[2..], 16).unwrap();
            measured.push((address, each.parse::<u64>().unwrap()));
        }
        assert_eq!(measured.len(), 9, "{}", python.name);
        script.wait_until_idle();
        let graph = take(script.pid());
        let heap = Heap::new(&graph);
        for (address, each) in measured {
            let node = heap.tracked[&address];
            let bytes = heap.graph.nodes[node].bytes.unwrap();
            let attributes =
                heap.edges[node].iter().filter(|(_, name)| heap.name(*name) == ".__dict__");
            let dicts: u64 =
                attributes.map(|(dict, _)| heap.graph.nodes[*dict].bytes.unwrap()).sum();
            // Allocations are multiples of 16 bytes; up to 3.10 an instance has a dict.
            let kind = heap.kind(node);
            let found = bytes + dicts;
            assert!(each.abs_diff(found) <= 16, "{} {kind}: {found} {each}", python.name);
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
