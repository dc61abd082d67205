//! The published schema of `gctrace heap --format json` is generated from the types and describes
//! every figure, and answers conform to it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_event::{KindName, ObjectKind};
use gctrace_heap::report::{HeapAnswer, HeapReport};
use gctrace_heap::{
    Dominators, Heap, HeapEdge, HeapEdgeName, HeapGraph, HeapNode, HeapPlace, HeapRoot, diff,
};
use serde_json::Value;

fn schema() -> Value {
    serde_json::to_value(schemars::schema_for!(HeapReport)).unwrap()
}

#[test]
fn published_schema_is_up_to_date() {
    test_kit::schema::assert_published("heap", &schema(), "-p gctrace-heap --test plain schema::");
}

/// A module with a list of `items`, and a list of garbage.
fn heap(items: u32) -> Heap {
    let kind = |id, type_name: &str| ObjectKind {
        id,
        name: KindName { type_name: type_name.to_owned(), ..KindName::default() },
        ..ObjectKind::default()
    };
    let node = |index: u32, kind, references| HeapNode {
        address: 0x7f00_0000_0000 + u64::from(index) * 64,
        kind,
        label: (index == 0).then_some(0),
        references,
        bytes: (index != 1).then_some(100),
        place: HeapPlace::Generation(2),
    };
    let edge = |from, to, name| HeapEdge { from, to, name };
    let mut graph = HeapGraph {
        kinds: vec![kind(1, "module"), kind(2, "list"), kind(3, "Batch")],
        texts: vec!["train".to_owned(), "module train".to_owned()],
        nodes: vec![node(0, 1, None), node(1, 2, Some(1)), node(2, 2, Some(1))],
        edges: vec![edge(0, 1, HeapEdgeName::Unnamed)],
        roots: vec![HeapRoot { node: 0, name: 1 }],
        ..HeapGraph::default()
    };
    for item in 0..items {
        graph.nodes.push(node(3 + item, 3, Some(1)));
        graph.edges.push(edge(1, 3 + item, HeapEdgeName::Item(item)));
    }
    graph.edges.push(edge(2, 2, HeapEdgeName::Item(0)));
    Heap::new(graph).unwrap()
}

#[test]
fn answers_keep_to_the_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let heaps = [heap(3), heap(100), heap(90)];
    let last = &heaps[2];
    let answers = [
        ("show", HeapAnswer::Show(last.show(2))),
        ("why", HeapAnswer::Why(last.why("Batch", &last.of_type("Batch"), 2))),
        ("why", HeapAnswer::Why(last.why("list", &last.of_type("list"), 1))),
        ("dominators", HeapAnswer::Dominators(last.retained(&Dominators::new(last), 2))),
        ("diff", HeapAnswer::Diff(diff(&heaps, 2).unwrap())),
    ];
    for (question, answer) in answers {
        let report = HeapReport::new([("a", &heaps[0]), ("b", last)], answer);
        let report = serde_json::to_value(report).unwrap();
        assert_eq!(report["schema"], "gctrace.heap/1");
        assert!(report[question].is_object(), "{report}");
        validator.validate(&report).unwrap();
    }
}
