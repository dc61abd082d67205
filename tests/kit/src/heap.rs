//! A heap with the classic examples: a list and a dict that contain themselves, a ring, and the
//! cache in a default argument.

use gctrace_event::{KindName, ObjectKind};
use gctrace_heap::{
    Heap, HeapEdge, HeapEdgeName, HeapGraph, HeapHeader, HeapNode, HeapPlace, HeapRoot,
};

/// Type, code, label of objects; from, name, to of references.
const OBJECTS: [(&str, Option<&str>, Option<&str>); 13] = [
    ("module", None, Some("train")),
    ("dict", None, None),
    ("function", Some("collect"), None),
    ("tuple", None, None),
    ("list", None, None),
    ("__main__.Batch", None, None),
    ("__main__.Batch", None, None),
    ("list", None, None),
    ("dict", None, None),
    ("__main__.Node", None, None),
    ("__main__.Node", None, None),
    ("__main__.Node", None, None),
    ("type", Some("Node"), None),
];
const REFERENCES: [(u32, &str, u32); 18] = [
    (0, ".__dict__", 1),
    (1, "['collect']", 2),
    (1, "['Node']", 12),
    (2, ".__defaults__", 3),
    (3, "[0]", 4),
    (4, "[0]", 5),
    (4, "[1]", 6),
    (5, "", 12),
    (7, "[0]", 7),
    (7, "[1]", 8),
    (8, "['self']", 8),
    (8, "['<&\"list']", 7),
    (9, ".next", 10),
    (10, ".next", 11),
    (11, ".next", 9),
    (9, ".__class__", 12),
    (10, "[7]", 12),
    (12, ".__mro__", 12),
];

/// The heap.
///
/// # Panics
/// It is not valid.
#[must_use]
pub fn classic() -> Heap {
    let mut graph = HeapGraph {
        header: HeapHeader {
            pid: 4242,
            command: ["python", "train.py"].map(str::to_owned).to_vec(),
            version: "3.12.4".to_owned(),
            taken_s: 1_700_000_000,
            in_process: true,
            stopped_ns: Some(93_000_000),
            ..HeapHeader::default()
        },
        ..HeapGraph::default()
    };
    for (id, (type_name, function, label)) in (1..).zip(OBJECTS) {
        graph.kinds.push(ObjectKind {
            pid: 4242,
            id,
            name: KindName {
                type_name: type_name.to_owned(),
                function: function.map(str::to_owned),
                file: function
                    .filter(|_| type_name == "function")
                    .map(|_| "/home/me/train.py".to_owned()),
                line: function.filter(|_| type_name == "function").map(|_| 12),
            },
        });
        graph.nodes.push(HeapNode {
            address: 0x7f3a_5c01_2000 + u64::from(id) * 64,
            kind: id,
            label: label.map(|label| text(&mut graph.texts, label)),
            references: Some(0),
            bytes: Some(56 + u64::from(id)),
            place: HeapPlace::Generation(2),
        });
    }
    let mut references = REFERENCES;
    references.sort_by_key(|(from, ..)| *from);
    for (from, name, to) in references {
        let item = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let name = match (name, item.and_then(|item| item.parse().ok())) {
            ("", _) => HeapEdgeName::Unnamed,
            (_, Some(item)) => HeapEdgeName::Item(item),
            (name, None) => HeapEdgeName::Text(text(&mut graph.texts, name)),
        };
        graph.edges.push(HeapEdge { from, to, name });
        let count = &mut graph.nodes[to as usize].references;
        *count = count.map(|count| count + 1);
    }
    let name = text(&mut graph.texts, "module train");
    graph.roots.push(HeapRoot { node: 0, name });
    Heap::new(graph).expect("a valid heap")
}

fn text(texts: &mut Vec<String>, wanted: &str) -> u32 {
    let known = texts.iter().position(|text| text == wanted);
    known.unwrap_or_else(|| {
        texts.push(wanted.to_owned());
        texts.len() - 1
    }) as u32
}
