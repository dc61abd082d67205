//! Small heaps for the tests of this folder.

use super::{Heap, HeapEdge, HeapEdgeName, HeapGraph, HeapNode, HeapPlace, HeapRoot, NodeIndex};
use gctrace_event::{KindName, ObjectKind};
use proptest::prelude::*;

/// Builds a heap object by object, as `id()` and references would show it.
#[derive(Default)]
pub(super) struct Builder(pub HeapGraph);

impl Builder {
    pub(super) fn text(&mut self, text: &str) -> u32 {
        let texts = &mut self.0.texts;
        let found = texts.iter().position(|known| known == text);
        found.unwrap_or_else(|| {
            texts.push(text.to_owned());
            texts.len() - 1
        }) as u32
    }

    /// An object of 100 bytes in generation 2, with no references so far.
    pub(super) fn object(&mut self, type_name: &str) -> NodeIndex {
        self.of_kind(KindName { type_name: type_name.to_owned(), ..KindName::default() })
    }

    pub(super) fn function(&mut self, name: &str, line: u32) -> NodeIndex {
        self.of_kind(KindName {
            type_name: "function".to_owned(),
            function: Some(name.to_owned()),
            file: Some("/home/me/train.py".to_owned()),
            line: Some(line),
        })
    }

    pub(super) fn of_kind(&mut self, name: KindName) -> NodeIndex {
        let kinds = &mut self.0.kinds;
        let known = kinds.iter().position(|known| known.name == name);
        let position = known.unwrap_or_else(|| {
            let id = kinds.len() as u32 + 1;
            kinds.push(ObjectKind { pid: 0, id, name });
            kinds.len() - 1
        });
        let index = self.0.nodes.len();
        self.0.nodes.push(HeapNode {
            address: 0x7f00_0000_0000 + 0x40 * index as u64,
            kind: position as u32 + 1,
            references: Some(0),
            bytes: Some(100),
            place: HeapPlace::Generation(2),
            ..HeapNode::default()
        });
        index as NodeIndex
    }

    /// A reference; `name` is empty, `[3]` or an attribute.
    pub(super) fn refer(&mut self, from: NodeIndex, name: &str, to: NodeIndex) {
        let item = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let name = match (name, item.and_then(|item| item.parse().ok())) {
            ("", _) => HeapEdgeName::Unnamed,
            (_, Some(item)) => HeapEdgeName::Item(item),
            (name, None) => HeapEdgeName::Text(self.text(name)),
        };
        self.0.edges.push(HeapEdge { from, to, name });
        let references = &mut self.0.nodes[to as usize].references;
        *references = references.map(|count| count + 1);
    }

    pub(super) fn root(&mut self, name: &str, node: NodeIndex) {
        let name = self.text(name);
        self.0.roots.push(HeapRoot { node, name });
    }

    /// A module and its namespace, held by a root.
    pub(super) fn module(&mut self, name: &str) -> NodeIndex {
        let module = self.object("module");
        let label = self.text(name);
        self.0.nodes[module as usize].label = Some(label);
        let namespace = self.object("dict");
        self.refer(module, ".__dict__", namespace);
        self.root(&format!("module {name}"), module);
        namespace
    }

    pub(super) fn graph(mut self) -> HeapGraph {
        self.0.edges.sort_by_key(|edge| edge.from);
        self.0
    }

    pub(super) fn heap(self) -> Heap {
        Heap::new(self.graph()).expect("a valid heap")
    }
}

/// Any small heap: references of all shapes, some objects held from outside.
pub(super) fn any_heap() -> impl Strategy<Value = Heap> {
    (1..30_u32).prop_flat_map(|nodes| {
        let edge = (0..nodes, 0..nodes);
        let edges = proptest::collection::vec(edge, 0..nodes as usize * 3);
        let roots = proptest::collection::vec(0..nodes, 0..3);
        let outside = proptest::collection::vec(0..12_u8, nodes as usize);
        (Just(nodes), edges, roots, outside).prop_map(|(nodes, edges, roots, outside)| {
            let mut made = Builder::default();
            for index in 0..nodes {
                made.object(["list", "dict", "Node"][index as usize % 3]);
                made.0.nodes[index as usize].bytes = Some(u64::from(index) + 1);
            }
            for (number, (from, to)) in (0..).zip(edges) {
                made.refer(from, &format!("[{number}]"), to);
            }
            for root in roots {
                made.root("module m", root);
            }
            for (node, outside) in made.0.nodes.iter_mut().zip(outside) {
                match outside {
                    0 => node.references = node.references.map(|count| count + 2),
                    1 => node.references = None,
                    _ => {}
                }
            }
            made.heap()
        })
    })
}
