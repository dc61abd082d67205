//! The heap snapshot of V8 (`.heapsnapshot`), which Chrome's DevTools and memlab read.
//!
//! Owns the mapping. Types of objects become constructors, so that DevTools groups by them; names of
//! modules, functions and the like become strings behind a property. The format is from V8's
//! `src/profiler/heap-snapshot-generator.cc`; its reader is
//! `front_end/entrypoints/heap_snapshot_worker` of DevTools, which keeps all numbers in 32 bits.

use crate::{Heap, HeapEdgeName, HeapRoot, NodeIndex};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::io::Write;

/// Numbers per node and per edge, as listed in [`meta`].
const NODE_FIELDS: u32 = 7;
/// Positions in the lists of types of [`meta`].
const OBJECT: u32 = 3;
const CLOSURE: u32 = 5;
const STRING: u32 = 2;
const SYNTHETIC: u32 = 9;
const ELEMENT: u32 = 1;
const PROPERTY: u32 = 2;
const INTERNAL: u32 = 3;
const WEAK: u32 = 6;
/// The first nodes: the root, number 0, and two groups of objects that no named root holds.
const OUTSIDE: u32 = 1;
const GARBAGE: u32 = 2;
const FIRST: u32 = 3;
/// Strings before the heap's.
const STRINGS: [&str; 6] =
    ["<dummy>", "", "(outside the heap)", "(garbage)", "(unnamed)", "__name__"];

/// The lists that describe the numbers.
fn meta() -> serde_json::Value {
    json!({
        "node_fields": ["type", "name", "id", "self_size", "edge_count", "trace_node_id", "detachedness"],
        "node_types": [
            ["hidden", "array", "string", "object", "code", "closure", "regexp", "number", "native",
             "synthetic", "concatenated string", "sliced string", "symbol", "bigint", "object shape"],
            "string", "number", "number", "number", "number", "number"
        ],
        "edge_fields": ["type", "name_or_index", "to_node"],
        "edge_types": [
            ["context", "element", "property", "internal", "hidden", "shortcut", "weak"],
            "string_or_number", "node"
        ],
        "trace_function_info_fields": ["function_id", "name", "script_name", "script_id", "line", "column"],
        "trace_node_fields": ["id", "function_info_index", "count", "size", "children"],
        "sample_fields": ["timestamp_us", "last_assigned_id"],
        "location_fields": ["object_index", "script_id", "line", "column"]
    })
}

/// Positions in [`STRINGS`].
const UNNAMED: u32 = 4;
const NAME: u32 = 5;

/// Where the heap's strings are in the list of all strings.
struct Strings<'a> {
    all: Vec<&'a str>,
    /// First text, as the name of a reference.
    names: u32,
    /// First text, as it is.
    texts: u32,
    /// Name of the type of each kind, by position. DevTools groups by the string's number, so each
    /// name is there once.
    types: Vec<u32>,
    /// Code of each kind, by position.
    functions: Vec<Option<u32>>,
}

impl<'a> Strings<'a> {
    fn new(heap: &'a Heap) -> Self {
        let graph = heap.graph();
        let mut all = STRINGS.to_vec();
        let names = all.len() as u32;
        all.extend(graph.texts.iter().map(|text| property(text)));
        let texts = all.len() as u32;
        all.extend(graph.texts.iter().map(String::as_str));
        let mut known: BTreeMap<&str, u32> = BTreeMap::new();
        let mut types = Vec::new();
        for kind in &graph.kinds {
            let name = kind.type_name.as_str();
            types.push(*known.entry(name).or_insert_with(|| {
                all.push(name);
                all.len() as u32 - 1
            }));
        }
        let mut functions = Vec::new();
        for kind in &graph.kinds {
            functions.push(kind.function.as_deref().map(|function| {
                all.push(function);
                all.len() as u32 - 1
            }));
        }
        Self { all, names, texts, types, functions }
    }
}

/// `hooks` of `.hooks`, `key` of `['key']`.
fn property(name: &str) -> &str {
    let attribute = name.strip_prefix('.').filter(|rest| !rest.is_empty());
    let key = name.strip_prefix("['").and_then(|rest| rest.strip_suffix("']"));
    attribute.or(key).unwrap_or(name)
}

/// What is written, in the order of V8's own snapshots.
struct SnapshotWriter<'a> {
    heap: &'a Heap,
    strings: Strings<'a>,
    /// Kind -> its position.
    kinds: BTreeMap<u32, u32>,
    /// Strings that are nodes -> position among these.
    labels: BTreeMap<u32, u32>,
    /// Roots with a name.
    named: Vec<HeapRoot>,
    /// Objects that something outside the heap holds, whatever else does.
    outside: Vec<NodeIndex>,
    garbage: Vec<NodeIndex>,
}

/// Writes a snapshot.
pub fn write(heap: &Heap, out: &mut impl Write) -> io::Result<()> {
    let graph = heap.graph();
    let is_named = |root: &&HeapRoot| {
        let name = graph.texts.get(root.name as usize);
        name.is_some_and(|name| name != HeapRoot::OUTSIDE)
    };
    let named: Vec<HeapRoot> = graph.roots.iter().filter(is_named).copied().collect();
    let by_name: BTreeSet<NodeIndex> = named.iter().map(|root| root.node).collect();
    let others = heap.roots().iter().copied();
    let mut snapshot = SnapshotWriter {
        heap,
        strings: Strings::new(heap),
        kinds: (0..).zip(&graph.kinds).map(|(at, kind)| (kind.id, at)).collect(),
        labels: BTreeMap::new(),
        outside: others.filter(|node| !by_name.contains(node)).collect(),
        garbage: heap.indices().filter(|node| heap.is_garbage(*node)).collect(),
        named,
    };
    for node in heap.indices() {
        if let Some(label) = snapshot.label(node) {
            let position = snapshot.labels.len() as u32;
            snapshot.labels.entry(label).or_insert(position);
        }
    }
    snapshot.write(out)
}

impl SnapshotWriter<'_> {
    fn nodes(&self) -> u64 {
        u64::from(FIRST) + self.heap.graph().nodes.len() as u64 + self.labels.len() as u64
    }

    fn edges(&self) -> u64 {
        let named = self.named.len() + 2;
        let labels = self.heap.indices().filter(|node| self.label(*node).is_some());
        let groups = self.outside.len() + self.garbage.len();
        (named + groups + self.heap.graph().edges.len() + labels.count()) as u64
    }

    /// The position of a kind.
    fn kind(&self, node: NodeIndex) -> usize {
        let kind = self.heap.graph().nodes.get(node as usize).map(|node| node.kind);
        let position = kind.and_then(|kind| self.kinds.get(&kind));
        position.map_or(0, |position| *position as usize)
    }

    /// The string that names an object, if it has a name.
    fn label(&self, node: NodeIndex) -> Option<u32> {
        let function = self.strings.functions.get(self.kind(node)).copied().flatten();
        let label = self.heap.graph().nodes.get(node as usize).and_then(|node| node.label);
        function.or(label.map(|label| self.strings.texts + label))
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let description = json!({
            "meta": meta(),
            "node_count": self.nodes(),
            "edge_count": self.edges(),
            "trace_function_count": 0,
            "root_index": 0,
        });
        write!(out, "{{\"snapshot\":{description},\n\"nodes\":[")?;
        self.write_nodes(out)?;
        write!(out, "],\n\"edges\":[")?;
        self.write_edges(out)?;
        write!(
            out,
            "],\n\"trace_function_infos\":[],\n\"trace_tree\":[],\n\"samples\":[],\n\"locations\":[],\n\"strings\":["
        )?;
        for (position, string) in self.strings.all.iter().enumerate() {
            let comma = if position == 0 { "" } else { ",\n" };
            write!(out, "{comma}")?;
            serde_json::to_writer(&mut *out, string)?;
        }
        writeln!(out, "]}}")
    }

    fn write_nodes(&self, out: &mut impl Write) -> io::Result<()> {
        let mut id = 0_u32;
        let mut node = |kind: u32, name: u32, bytes: u64, edges: usize| {
            let comma = if id == 0 { "" } else { ",\n" };
            // Odd, as V8's own; the rest is not recorded and not detached.
            id += 1;
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            write!(out, "{comma}{kind},{name},{},{bytes},{edges},0,0", 2 * id - 1)
        };
        node(SYNTHETIC, 1, 0, self.named.len() + 2)?;
        node(SYNTHETIC, 2, 0, self.outside.len())?;
        node(SYNTHETIC, 3, 0, self.garbage.len())?;
        for (index, object) in self.heap.indices().zip(&self.heap.graph().nodes) {
            let edges =
                self.heap.references(index).len() + usize::from(self.label(index).is_some());
            let kind = self.heap.kind(index);
            let bytes = object.bytes.unwrap_or(0);
            match (kind.type_name.as_str(), self.label(index)) {
                ("function", Some(name)) => node(CLOSURE, name, bytes, edges)?,
                _ => {
                    let name = self.strings.types.get(self.kind(index)).copied();
                    node(OBJECT, name.unwrap_or(0), bytes, edges)?;
                }
            }
        }
        let mut labels: Vec<(&u32, &u32)> = self.labels.iter().collect();
        labels.sort_by_key(|(_, position)| **position);
        for (string, _) in labels {
            node(STRING, *string, 0, 0)?;
        }
        Ok(())
    }

    fn write_edges(&self, out: &mut impl Write) -> io::Result<()> {
        let mut is_first = true;
        let mut edge = |kind: u32, name: u32, to: u32| {
            let comma = if is_first { "" } else { ",\n" };
            is_first = false;
            write!(out, "{comma}{kind},{name},{}", to * NODE_FIELDS)
        };
        for root in &self.named {
            edge(PROPERTY, self.strings.texts + root.name, FIRST + root.node)?;
        }
        edge(INTERNAL, 2, OUTSIDE)?;
        edge(INTERNAL, 3, GARBAGE)?;
        for group in [&self.outside, &self.garbage] {
            for (position, node) in (0..).zip(group) {
                edge(ELEMENT, position, FIRST + node)?;
            }
        }
        let strings = FIRST + self.heap.graph().nodes.len() as u32;
        for node in self.heap.indices() {
            let is_garbage = self.heap.is_garbage(node);
            for reference in self.heap.references(node) {
                let (kind, name) = match reference.name {
                    // Garbage does not keep alive what it refers to.
                    HeapEdgeName::Text(text)
                        if is_garbage && !self.heap.is_garbage(reference.to) =>
                    {
                        (WEAK, self.strings.names + text)
                    }
                    _ if is_garbage && !self.heap.is_garbage(reference.to) => (WEAK, UNNAMED),
                    HeapEdgeName::Item(item) => (ELEMENT, item),
                    HeapEdgeName::Text(text) => (PROPERTY, self.strings.names + text),
                    HeapEdgeName::Unnamed => (INTERNAL, UNNAMED),
                };
                edge(kind, name, FIRST + reference.to)?;
            }
            if let Some(position) = self.label(node).and_then(|label| self.labels.get(&label)) {
                edge(PROPERTY, NAME, strings + position)?;
            }
        }
        Ok(())
    }
}
