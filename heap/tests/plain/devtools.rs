//! A reader by the rules of DevTools' own (`HeapSnapshot.ts`), independent of the writer.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use gctrace_heap::{Heap, HeapEdgeName, HeapGraph, devtools};
use serde_json::Value;
use std::collections::BTreeSet;
use test_kit::heap::classic;

/// Nodes before the objects: the root, what is held from outside the heap, garbage.
const FIRST: usize = 3;

struct Node {
    type_name: String,
    name: String,
    id: u64,
    bytes: u64,
    /// Type, name and node of each edge.
    edges: Vec<(String, String, usize)>,
}

fn numbers(value: &Value) -> Vec<usize> {
    let all = value.as_array().expect("an array").iter();
    all.map(|number| number.as_u64().expect("a number") as usize).collect()
}

fn words(value: &Value) -> Vec<&str> {
    let all = value.as_array().expect("an array").iter();
    all.map(|word| word.as_str().expect("a string")).collect()
}

/// Fields are found by name, as DevTools does.
fn parse(text: &str) -> Vec<Node> {
    let file: Value = serde_json::from_str(text).expect("JSON");
    let meta = &file["snapshot"]["meta"];
    let fields = words(&meta["node_fields"]);
    let at = |name: &str| fields.iter().position(|field| *field == name).expect("a field");
    let edge_fields = words(&meta["edge_fields"]);
    let edge_at =
        |name: &str| edge_fields.iter().position(|field| *field == name).expect("a field");
    let (types, edge_types) = (words(&meta["node_types"][0]), words(&meta["edge_types"][0]));
    let strings = words(&file["strings"]);
    let (nodes, edges) = (numbers(&file["nodes"]), numbers(&file["edges"]));
    assert_eq!(
        nodes.len(),
        fields.len() * file["snapshot"]["node_count"].as_u64().expect("a count") as usize
    );
    assert_eq!(
        edges.len(),
        edge_fields.len() * file["snapshot"]["edge_count"].as_u64().expect("a count") as usize
    );
    assert_eq!(meta["node_types"].as_array().map(Vec::len), Some(fields.len()));
    assert!(nodes.iter().chain(&edges).all(|number| u32::try_from(*number).is_ok()));
    let mut rest = edges.chunks_exact(edge_fields.len());
    let parsed = nodes
        .chunks_exact(fields.len())
        .map(|node| Node {
            type_name: types[node[at("type")]].to_owned(),
            name: strings[node[at("name")]].to_owned(),
            id: node[at("id")] as u64,
            bytes: node[at("self_size")] as u64,
            edges: rest
                .by_ref()
                .take(node[at("edge_count")])
                .map(|edge| {
                    let kind = edge_types[edge[edge_at("type")]];
                    let name = edge[edge_at("name_or_index")];
                    // Only these two have numbers for names.
                    let name = match kind {
                        "element" | "hidden" => format!("[{name}]"),
                        _ => strings[name].to_owned(),
                    };
                    let to = edge[edge_at("to_node")];
                    assert_eq!(to % fields.len(), 0);
                    (kind.to_owned(), name, to / fields.len())
                })
                .collect(),
        })
        .collect();
    assert!(rest.next().is_none(), "edges without a node");
    parsed
}

/// `hooks` of `.hooks`, `key` of `['key']`.
fn property(name: &str) -> &str {
    let key = name.strip_prefix("['").and_then(|rest| rest.strip_suffix("']"));
    key.or(name.strip_prefix('.')).unwrap_or(name)
}

fn written(heap: &Heap) -> Vec<Node> {
    let mut bytes = Vec::new();
    devtools::write(heap, &mut bytes).expect("memory");
    parse(&String::from_utf8(bytes).expect("text"))
}

#[test]
fn every_object_and_reference_is_there() {
    let heap = classic();
    let graph: &HeapGraph = heap.graph();
    let nodes = written(&heap);
    let objects = &nodes[FIRST..][..graph.nodes.len()];
    for (object, node) in objects.iter().zip(&graph.nodes) {
        assert_eq!(object.bytes, node.bytes.unwrap_or(0));
    }
    for edge in &graph.edges {
        let from = &objects[edge.from as usize];
        let to = FIRST + edge.to as usize;
        let expected = heap.edge_name(edge);
        let is_weak = heap.is_garbage(edge.from) && !heap.is_garbage(edge.to);
        let expected = match edge.name {
            // A weak one has a string for its name.
            HeapEdgeName::Item(_) if is_weak => "(unnamed)",
            _ => expected.as_deref().map_or("(unnamed)", property),
        };
        let found = from.edges.iter().any(|(_, name, node)| *node == to && name == expected);
        assert!(found, "{expected}");
    }
    let ids: BTreeSet<u64> = nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids.len(), nodes.len(), "ids are unique");
}

/// DevTools treats what the root does not reach as held by the root, and says so.
#[test]
fn the_root_reaches_everything() {
    let nodes = written(&classic());
    assert_eq!((nodes[0].type_name.as_str(), nodes[0].name.as_str()), ("synthetic", ""));
    let mut reached = BTreeSet::from([0]);
    let mut next = vec![0];
    while let Some(node) = next.pop() {
        for (kind, _, to) in &nodes[node].edges {
            if kind != "weak" && reached.insert(*to) {
                next.push(*to);
            }
        }
    }
    assert_eq!(reached.len(), nodes.len());
}

#[test]
fn people_find_their_names() {
    let nodes = written(&classic());
    let find = |kind: &str, name: &str| {
        nodes.iter().find(|node| node.type_name == kind && node.name == name).expect("a node")
    };
    let root: Vec<&str> = nodes[0].edges.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(root, ["module train", "(outside the heap)", "(garbage)"]);
    let function = find("closure", "collect");
    let names: Vec<&str> = function.edges.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["__defaults__", "__name__"]);
    let module = find("object", "module");
    let (_, _, name) = module.edges.last().expect("a name");
    assert_eq!((nodes[*name].type_name.as_str(), nodes[*name].name.as_str()), ("string", "train"));
    let garbage = find("synthetic", "(garbage)");
    assert!(!garbage.edges.is_empty());
}
