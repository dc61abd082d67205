//! Objects and references in words that a Python programmer would use.

use super::reach::{Heap, Reached};
use super::report::{HeapObject, HeapPath, PathStep};
use super::{HeapEdge, HeapEdgeName, HeapRoot, NodeIndex, TextIndex};
use gctrace_analysis::paths;
use gctrace_event::cell_name;
use std::borrow::Cow;

/// Objects of a path that are shown at each of its ends.
const ENDS: usize = 12;
/// References of a place that are written at each of its ends.
const NAMES: usize = 4;

/// The names of one place.
#[derive(Debug)]
pub(super) struct Place {
    /// The nearest object that has a name of its own, if the path has one.
    pub anchor: Option<NodeIndex>,
    /// Text before the references: the anchor's name, or the root's.
    pub start: String,
    /// References from there to the object.
    pub names: Vec<String>,
}

impl HeapPath {
    /// Objects in order; of many the first and the last ones.
    pub(super) fn ends<T>(objects: &[T], step: impl Fn(&T) -> PathStep) -> Self {
        let omitted = objects.iter().skip(2 * ENDS).count();
        let (head, tail) = objects.split_at(objects.len().min(ENDS));
        let tail = gctrace_units::part(tail, omitted..);
        Self {
            root: None,
            steps: head.iter().chain(tail).map(step).collect(),
            omitted: omitted as u64,
            omitted_before: (omitted > 0).then_some(ENDS as u64),
        }
    }
}

impl Heap {
    fn text(&self, text: TextIndex) -> &str {
        &self.graph().texts[text as usize]
    }

    /// The label of an object, as far as the heap shows: a module's name, the start of a text.
    #[must_use]
    pub fn label(&self, node: NodeIndex) -> Option<&str> {
        self.node(node).label.map(|label| self.text(label))
    }

    /// The reference as Python writes it: `.hooks`, `['key']`, `[3]`.
    #[must_use]
    pub fn edge_name(&self, edge: &HeapEdge) -> Option<Cow<'_, str>> {
        match edge.name {
            HeapEdgeName::Text(text) => Some(self.text(text).into()),
            HeapEdgeName::Item(item) => Some(format!("[{item}]").into()),
            HeapEdgeName::Unnamed => None,
        }
    }

    /// Name of the root that holds an object.
    #[must_use]
    pub fn root_name(&self, node: NodeIndex) -> Option<&str> {
        match self.reached(node) {
            Reached::Root(root) => {
                let root = self.graph().roots.get(root as usize)?;
                Some(self.text(root.name))
            }
            Reached::Outside => Some(HeapRoot::OUTSIDE),
            Reached::Not | Reached::By(_) => None,
        }
    }

    /// The object in words, short: `function collect (train.py:12)`, `module train`, `list`,
    /// `__main__.Node`, `str 'abc'`.
    #[must_use]
    pub fn title(&self, node: NodeIndex) -> String {
        let kind = self.kind(node);
        let type_name = match (kind.type_name.as_str(), &kind.function) {
            ("type", Some(_)) => "class",
            (type_name, _) => type_name,
        };
        let name = kind.function.as_deref().or_else(|| self.label(node));
        let mut title = type_name.to_owned();
        if let Some(name) = name {
            title += &format!(" {name}");
        }
        if let Some(line) = self.line(node) {
            title += &format!(" ({line})");
        }
        title
    }

    /// `train.py:12`, of objects that belong to code.
    fn line(&self, node: NodeIndex) -> Option<String> {
        let kind = self.kind(node);
        let file = file_name(kind.file.as_deref()?);
        Some(match kind.line {
            Some(line) => format!("{file}:{line}"),
            None => file.into_owned(),
        })
    }

    /// The object as data.
    #[must_use]
    pub fn object(&self, node: NodeIndex) -> HeapObject {
        let (object, kind) = (self.node(node), self.kind(node));
        HeapObject {
            address: format!("{:#x}", object.address),
            kind: kind.clone(),
            label: self.label(node).map(str::to_owned),
            bytes: object.bytes,
            refers_to: self.references(node).len() as u64,
            references: object.references,
        }
    }

    /// The objects from the root that holds `node` to `node`, and nothing for garbage.
    #[must_use]
    pub fn chain(&self, node: NodeIndex) -> Vec<NodeIndex> {
        let mut chain = Vec::new();
        let mut at = (!self.is_garbage(node)).then_some(node);
        while let Some(node) = at {
            chain.push(node);
            at = self.holder(node).map(|edge| edge.from);
        }
        chain.reverse();
        chain
    }

    /// The shortest path from a root to an object, as data; of a long one its ends.
    #[must_use]
    pub fn path(&self, node: NodeIndex) -> HeapPath {
        let chain = self.chain(node);
        let root = chain.first().and_then(|first| self.root_name(*first));
        let step = |node: &NodeIndex| PathStep {
            name: self.holder(*node).and_then(|edge| self.edge_name(edge)).map(Cow::into_owned),
            object: self.object(*node),
        };
        HeapPath { root: root.map(str::to_owned), ..HeapPath::ends(&chain, step) }
    }

    /// Where an object is: from the nearest one on its path that has a name of its own.
    pub(super) fn place_of(&self, node: NodeIndex) -> Place {
        let mut names = Vec::new();
        let mut at = node;
        loop {
            if let Some(start) = self.anchor(at) {
                names.reverse();
                return Place { anchor: Some(at), start, names };
            }
            let Some(edge) = self.holder(at) else {
                break;
            };
            names.push(self.edge_name(edge).map_or_else(|| ".?".to_owned(), Cow::into_owned));
            at = edge.from;
        }
        names.reverse();
        let start = match self.root_name(at) {
            Some(HeapRoot::OUTSIDE) => format!("{}: {}", HeapRoot::OUTSIDE, self.title(at)),
            Some(root) => root.to_owned(),
            None => format!("garbage: {}", self.title(at)),
        };
        Place { anchor: None, start, names }
    }

    /// Where an object is held, as Python would write it:
    /// `train.py:12 collect.__defaults__[0]`.
    #[must_use]
    pub fn place(&self, node: NodeIndex) -> String {
        let place = self.place_of(node);
        let mut names = Vec::new();
        let mut rest = place.names.iter().map(String::as_str).peekable();
        while let Some(name) = rest.next() {
            let attribute = match name {
                ".__dict__" => rest.peek().and_then(|key| attribute(key)),
                _ => None,
            };
            match attribute {
                Some(attribute) => {
                    rest.next();
                    names.push(format!(".{attribute}"));
                }
                // A variable of a frame has its bare name.
                None if name.starts_with(|first: char| first == '_' || first.is_alphanumeric()) => {
                    names.push(format!(": {name}"));
                }
                None => names.push(name.to_owned()),
            }
        }
        let omitted = names.iter().skip(2 * NAMES).count();
        if omitted > 1 {
            let dots = format!(" … {omitted} more … ");
            names.splice(NAMES..NAMES + omitted, [dots]);
        }
        place.start + &names.concat()
    }

    /// The name of an object that has one of its own: `train` of a module, `train.py:12 collect` of
    /// a function.
    fn anchor(&self, node: NodeIndex) -> Option<String> {
        let kind = self.kind(node);
        match kind.type_name.as_str() {
            "module" => self.label(node).map(str::to_owned),
            // They belong to code, but others hold them.
            "cell" | "method" | "code" | "traceback" => None,
            _ => {
                let name = kind.function.as_ref()?;
                let frame = if kind.type_name == "frame" { "frame " } else { "" };
                Some(match self.line(node) {
                    Some(line) => format!("{frame}{line} {name}"),
                    None => format!("{frame}{name}"),
                })
            }
        }
    }
}

/// The last part of the name of a program's file; of a library's file all from its package on.
fn file_name(file: &str) -> Cow<'_, str> {
    if paths::is_library(file) {
        Cow::Borrowed(paths::short(file))
    } else {
        let name = || file.rsplit('/').next().unwrap_or(file);
        cell_name(file).map_or_else(|| Cow::Borrowed(name()), Cow::Owned)
    }
}

/// The name in `['name']`, if it is an identifier.
fn attribute(key: &str) -> Option<&str> {
    let name = key.strip_prefix("['")?.strip_suffix("']")?;
    let is_word = |char: char| char == '_' || char.is_alphanumeric();
    let starts = name.starts_with(|first: char| !first.is_numeric());
    (starts && name.chars().all(is_word)).then_some(name)
}
