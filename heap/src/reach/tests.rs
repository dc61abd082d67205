use super::*;
use crate::report::Held;
use crate::testing::{Builder, any_heap};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn what_nothing_holds_is_garbage() {
    let mut made = Builder::default();
    let namespace = made.module("train");
    let (kept, a, b, held_by_garbage) =
        (made.object("list"), made.object("Node"), made.object("Node"), made.object("dict"));
    made.refer(namespace, "['kept']", kept);
    made.refer(a, ".peer", b);
    made.refer(b, ".peer", a);
    made.refer(b, ".__dict__", held_by_garbage);
    let outside = made.object("Node");
    made.0.nodes[outside as usize].references = Some(1);
    let heap = made.heap();
    let garbage: Vec<NodeIndex> = heap.indices().filter(|node| heap.is_garbage(*node)).collect();
    assert_eq!(garbage, [a, b, held_by_garbage]);
    assert_eq!(heap.reached(outside), Reached::Outside);
    assert_eq!(heap.contradictions(), 0);
}

#[test]
fn what_lasts_is_named_before_a_variable() {
    let mut made = Builder::default();
    let batch = made.object("Batch");
    made.root("frame main (train.py:30)", batch);
    let namespace = made.module("train");
    let cache = made.object("list");
    made.refer(namespace, "['cache']", cache);
    made.refer(cache, "[0]", batch);
    let heap = made.heap();
    assert_eq!(heap.place(batch), "train.cache[0]");
    // But without the cache it would be alive.
    let dominators = crate::Dominators::new(&heap);
    assert_eq!(dominators.immediate(batch), None);
}

#[test]
fn unknown_reference_counts_hold() {
    let mut made = Builder::default();
    let (a, b) = (made.object("Node"), made.object("Node"));
    made.refer(a, ".peer", b);
    made.refer(b, ".peer", a);
    made.0.nodes[a as usize].references = None;
    // Impossible: one reference is shown.
    made.0.nodes[b as usize].references = Some(0);
    let heap = made.heap();
    assert!(heap.indices().all(|node| !heap.is_garbage(node)));
    assert_eq!(heap.contradictions(), 1);
}

#[test]
fn contradictions_are_refused() {
    let mut made = Builder::default();
    let node = made.object("list");
    made.refer(node, "[0]", node);
    let graph = made.graph();
    let change = |change: &dyn Fn(&mut HeapGraph)| {
        let mut graph = graph.clone();
        change(&mut graph);
        Heap::new(graph).is_err()
    };
    assert!(!change(&|_| {}));
    assert!(change(&|graph| graph.edges[0].to = 1));
    assert!(change(&|graph| graph.nodes[0].kind = 7));
    assert!(change(&|graph| graph.nodes[0].label = Some(0)));
    assert!(change(&|graph| graph.nodes[0].place = HeapPlace::Generation(3)));
    assert!(change(&|graph| graph.kinds.push(graph.kinds[0].clone())));
    assert!(change(&|graph| graph.roots.push(HeapRoot::default())));
}

/// The collector's rule, as its documentation states it.
fn garbage(heap: &Heap) -> BTreeSet<NodeIndex> {
    let graph = heap.graph();
    let shown = |node: NodeIndex| {
        let edges = graph.edges.iter().filter(|edge| edge.to == node).count();
        edges + graph.roots.iter().filter(|root| root.node == node).count()
    };
    let is_root = |node: &NodeIndex| {
        let references = graph.nodes[*node as usize].references;
        graph.roots.iter().any(|root| root.node == *node)
            || references.is_none_or(|count| count as usize > shown(*node))
    };
    let mut alive: BTreeSet<NodeIndex> = heap.indices().filter(is_root).collect();
    loop {
        let next = graph.edges.iter().filter(|edge| alive.contains(&edge.from));
        let more: BTreeSet<NodeIndex> = next.map(|edge| edge.to).collect();
        if more.is_subset(&alive) {
            break;
        }
        alive.extend(more);
    }
    heap.indices().filter(|node| !alive.contains(node)).collect()
}

proptest! {
    #[test]
    fn garbage_is_what_the_collector_would_find(heap in any_heap()) {
        let found: BTreeSet<NodeIndex> = heap.indices().filter(|node| heap.is_garbage(*node)).collect();
        prop_assert_eq!(found, garbage(&heap));
    }

    #[test]
    fn paths_are_real_and_shortest(heap in any_heap()) {
        for node in heap.order().iter().copied() {
            let chain = heap.chain(node);
            prop_assert_eq!(chain.last(), Some(&node));
            prop_assert!(heap.holder(chain[0]).is_none() && !heap.is_garbage(chain[0]));
            for pair in chain.windows(2) {
                prop_assert!(heap.references(pair[0]).iter().any(|edge| edge.to == pair[1]));
            }
            let path = heap.path(node);
            prop_assert_eq!(path.steps.len() as u64 + path.omitted, chain.len() as u64);
            // No reference leads from something nearer to the same kind of root.
            let shorter = heap.graph().edges.iter().filter(|edge| edge.to == node);
            for edge in shorter.filter(|edge| !heap.is_garbage(edge.from)) {
                if heap.held(edge.from) == Held::Root && heap.held(node) == Held::Root {
                    prop_assert!(heap.chain(edge.from).len() + 1 >= chain.len());
                }
            }
        }
    }

    #[test]
    fn cycles_are_real_and_shortest(heap in any_heap()) {
        for node in heap.indices() {
            let Some(cycle) = heap.shortest_cycle(node) else {
                prop_assert_eq!(heap.small_component(node, 100), Some(Vec::new()));
                continue;
            };
            let edges: Vec<_> = cycle.iter().map(|at| heap.graph().edges[*at as usize]).collect();
            prop_assert_eq!(edges[0].from, node);
            prop_assert_eq!(edges[edges.len() - 1].to, node);
            for pair in edges.windows(2) {
                prop_assert_eq!(pair[0].to, pair[1].from);
            }
            let path = heap.cycle(node);
            prop_assert_eq!(path.steps.len() as u64 + path.omitted, edges.len() as u64);
            let component = heap.small_component(node, 100).expect("a small heap");
            prop_assert!(edges.iter().all(|edge| component.contains(&edge.from)));
            prop_assert!(component.iter().all(|other| heap.small_component(*other, 100).expect("small").contains(&node)));
        }
    }
}

#[test]
fn of_a_long_cycle_the_ends_are_shown() {
    const LENGTH: u32 = 250_000;
    let mut made = Builder::default();
    let nodes: Vec<NodeIndex> = (0..LENGTH).map(|_| made.object("Node")).collect();
    for (from, to) in nodes.iter().zip(nodes.iter().cycle().skip(1)) {
        made.refer(*from, ".next", *to);
    }
    let heap = made.heap();
    let cycle = heap.cycle(nodes[7]);
    assert_eq!(cycle.steps.len() as u64 + cycle.omitted, u64::from(LENGTH));
    assert!(cycle.steps.len() < 50, "{}", cycle.steps.len());
    let names: Vec<_> = cycle.steps.iter().filter_map(|step| step.name.as_deref()).collect();
    assert_eq!(names, vec![".next"; cycle.steps.len()]);
    let why = heap.why("Node", &heap.of_type("Node"), 10);
    assert!(why.groups[0].example.steps.len() < 50);
}

/// Recursion would end the process here.
#[test]
fn a_list_of_a_million_objects_is_walked() {
    let mut made = Builder::default();
    let namespace = made.module("train");
    let class = made.object("type");
    let mut before = namespace;
    for _ in 0..1_000_000 {
        let node = made.object("Node");
        made.refer(before, ".next", node);
        made.refer(node, "", class);
        before = node;
    }
    let heap = made.heap();
    assert_eq!(heap.chain(before).len(), 1_000_002);
    let path = heap.path(before);
    assert_eq!(path.omitted + path.steps.len() as u64, 1_000_002);
    let place = "train.__dict__.next.next.next … 999993 more … .next.next.next.next";
    assert_eq!(heap.place(before), place);
    let dominators = crate::Dominators::new(&heap);
    assert_eq!(dominators.retained(namespace).objects, 1_000_002);
    assert_eq!(dominators.immediate(class), Some(namespace + 2));
    let why = heap.why("Node", &heap.of_type("Node"), 10);
    assert_eq!(why.groups.len(), 1, "one chain");
    assert_eq!(why.found.objects, 1_000_000);
}
