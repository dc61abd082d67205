//! Python stacks: the tree of all of them, and the pauses of each.
//!
//! Owns the merging of the stacks of several traces into one tree. The sums are in
//! `stacks/sums.rs`; `stacks/ranking.rs` selects the lines and stacks of a report.

pub(crate) mod ranking;
mod sums;

use crate::figure::Location;
pub(crate) use ranking::{RankingLimits, StackRanking};
pub(crate) use sums::{StackSums, TraceStacks, WithoutStack};

use crate::paths::{self, IMPORT};
use gctrace_event::{Frame, FrameId};
use indexmap::IndexSet;
use std::collections::{BTreeSet, HashMap};

/// Frames kept per trace, and nodes over all traces: a hundred times the number in large programs. It only guards
/// memory against malformed traces.
const FRAMES_KEPT: usize = 1 << 20;
/// Frames of one stack; ends circles in traces of other tools.
const DEPTH: usize = 1024;

/// Index of a node of [`StackTree`]: a stack, named by its innermost frame.
pub(crate) type NodeId = usize;
/// Index of a location of [`StackTree`].
pub(crate) type LocationId = u32;

/// Locations by number.
#[derive(Debug, Default)]
pub(crate) struct Locations(IndexSet<Location>);

/// The two locations that stand for a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StackLines {
    /// The innermost location outside the import system; [`IMPORT`] if there is none.
    pub(crate) line: LocationId,
    /// The innermost location that is no library's.
    own_line: Option<LocationId>,
}

impl StackLines {
    /// The innermost location that is no library's; the innermost where all are.
    pub(crate) fn shown(self) -> LocationId {
        self.own_line.unwrap_or(self.line)
    }
}

impl Locations {
    /// The number of a location; `None` if it is new and no more fit.
    pub(crate) fn insert(&mut self, location: Location, most: usize) -> Option<LocationId> {
        let at = match self.0.len() < most {
            true => self.0.insert_full(location).0,
            false => self.0.get_index_of(&location)?,
        };
        LocationId::try_from(at).ok()
    }

    pub(crate) fn get(&self, id: LocationId) -> &Location {
        &self.0[id as usize]
    }

    /// The place that counts for the stack of a frame; `above`: the place of its caller.
    pub(crate) fn lines(&self, above: Option<StackLines>, frame: LocationId) -> StackLines {
        let location = self.get(frame);
        let is_own = !location.library && !location.file.is_empty();
        let importer = if location.is(IMPORT) { above } else { None };
        StackLines {
            line: if let Some(importer) = importer { importer.line } else { frame },
            own_line: if is_own { Some(frame) } else { above.and_then(|above| above.own_line) },
        }
    }
}

/// All stacks of all traces, each frame once.
#[derive(Debug, Default)]
pub(crate) struct StackTree {
    locations: Locations,
    nodes: Vec<StackNode>,
    node_ids: HashMap<(Option<NodeId>, LocationId), NodeId>,
}

#[derive(Debug, Clone, Copy)]
struct StackNode {
    parent: Option<NodeId>,
    location: LocationId,
    lines: StackLines,
    /// The import that its own line executes.
    import: Option<Import>,
    /// Its outermost frames are unknown.
    cut: bool,
}

/// An import that is executed by the program, directly or in a library.
#[derive(Debug, Clone, Copy)]
struct Import {
    /// The line of the program is the import statement.
    direct: bool,
    /// A line of the imported module; `None` while it is only loaded.
    module: Option<LocationId>,
}

impl StackTree {
    fn frame(&mut self, frame: Frame) -> Option<LocationId> {
        self.locations.insert(Location::of(frame), FRAMES_KEPT)
    }

    /// A frame without file and line.
    fn special(&mut self, function: &str) -> Option<LocationId> {
        self.locations.insert(Location::special(function), usize::MAX)
    }

    /// The node of these frames, outermost first; `None` without frames.
    fn node(&mut self, frames: impl Iterator<Item = LocationId>) -> Option<NodeId> {
        let mut parent: Option<NodeId> = None;
        for location in frames {
            let repeated = matches!(parent, Some(above) if self.nodes[above].location == location);
            if repeated && self.location(location).is(IMPORT) {
                continue;
            }
            match self.child(parent, location) {
                None => return parent,
                child => parent = child,
            }
        }
        parent
    }

    /// The node of a frame called by another; `None` if it is new and there are too many.
    fn child(&mut self, parent: Option<NodeId>, location: LocationId) -> Option<NodeId> {
        match self.node_ids.get(&(parent, location)) {
            Some(known) => Some(*known),
            None if self.nodes.len() >= FRAMES_KEPT => None,
            None => Some(self.new_node(parent, location)),
        }
    }

    /// Adds the stacks of another tree, and returns where its nodes are in this one. Where there
    /// are too many, stacks lose their innermost frames.
    pub(crate) fn append(&mut self, other: Self) -> MovedNodes {
        let locations = other.locations.0.into_iter();
        let locations = locations.map(|location| self.locations.insert(location, FRAMES_KEPT));
        let locations: Vec<Option<LocationId>> = locations.collect();
        let mut moved: Vec<Result<NodeId, Option<NodeId>>> = Vec::new();
        // Parents come before their children.
        for node in other.nodes {
            let parent = node.parent.map(|parent| moved[parent]).transpose();
            moved.push(parent.and_then(|parent| {
                let location = locations[node.location as usize].ok_or(parent)?;
                self.child(parent, location).ok_or(parent)
            }));
        }
        MovedNodes(moved.into_iter().map(|at| at.map_or_else(|cut| cut, Some)).collect())
    }

    fn new_node(&mut self, parent: Option<NodeId>, location: LocationId) -> NodeId {
        let above = parent.map(|parent| self.nodes[parent]);
        let line = self.location(location);
        let lines = self.locations.lines(above.map(|above| above.lines), location);
        let outer = line.function == Frame::OUTER;
        let importing = line.is(IMPORT);
        let import = above.and_then(|above| above.import);
        let id = self.nodes.len();
        self.nodes.push(StackNode {
            parent,
            location,
            lines,
            import: match import {
                _ if lines.own_line == Some(location) => None,
                None if importing => Some(Import {
                    direct: above.is_some_and(|above| above.lines.own_line == Some(above.location)),
                    module: None,
                }),
                Some(import) if !importing => {
                    Some(Import { module: import.module.or(Some(location)), ..import })
                }
                import => import,
            },
            cut: outer || matches!(above, Some(above) if above.cut),
        });
        self.node_ids.insert((parent, location), id);
        id
    }

    fn location(&self, id: LocationId) -> &Location {
        self.locations.get(id)
    }

    /// The innermost line of a stack that is no library's; its innermost line where all are.
    pub(crate) fn own_line(&self, node: NodeId) -> &Location {
        self.location(self.nodes[node].lines.shown())
    }

    /// Whether the program's innermost own line executes an import; without such a line, whether
    /// any does.
    pub(crate) fn is_import(&self, node: NodeId) -> bool {
        self.nodes[node].import.is_some()
    }

    /// The module that the own line of a stack imports, `torch.optim`; empty while it is searched
    /// for. `None` if that line is not an import.
    fn imported(&self, node: &StackNode) -> Option<String> {
        let import = node.import?;
        if !import.direct {
            return None;
        }
        let Some(line) = import.module else { return Some(String::new()) };
        Some(paths::module(&self.location(line).file))
    }

    /// The frames of a stack, the outermost first.
    pub(crate) fn frames_from_outermost(&self, node: NodeId) -> Vec<&Location> {
        let mut frames: Vec<&Location> = self.frames(node).collect();
        frames.reverse();
        frames
    }

    /// The frame of a stack that the nearest of these stacks below it called; `None` if it stands on none.
    pub(crate) fn frame_above(&self, node: NodeId, below: &BTreeSet<NodeId>) -> Option<&Location> {
        let parent = |node: &NodeId| self.nodes[*node].parent;
        let on_it = |node: &NodeId| matches!(parent(node), Some(parent) if below.contains(&parent));
        let above = std::iter::successors(Some(node), parent).find(on_it)?;
        Some(self.location(self.nodes[above].location))
    }

    /// The frames of a stack from the innermost to the outermost, without the import system's, as
    /// in a traceback of Python.
    pub(crate) fn frames(&self, node: NodeId) -> impl Iterator<Item = &Location> {
        let innermost = &self.nodes[node];
        let only_imports = self.location(innermost.lines.line).is(IMPORT);
        let parent = |node: &&StackNode| Some(&self.nodes[node.parent?]);
        let nodes = std::iter::successors(Some(innermost), parent);
        let frames = nodes.map(|node| self.location(node.location));
        frames.filter(move |frame| only_imports || !frame.is(IMPORT))
    }
}

/// The nodes of a tree that was added to another: where each is there.
#[derive(Debug)]
pub(crate) struct MovedNodes(Vec<Option<NodeId>>);

impl MovedNodes {
    /// The node there; `None` if nothing is left of its stack.
    pub(crate) fn of(&self, node: NodeId) -> Option<NodeId> {
        self.0.get(node).copied().flatten()
    }

    /// The node there of a stack that may be unknown.
    pub(crate) fn moved(&self, node: Option<NodeId>) -> Option<NodeId> {
        self.of(node?)
    }
}

impl Location {
    /// The location of a frame; all frames of the import system are one.
    pub(crate) fn of(frame: Frame) -> Self {
        if paths::is_import(&frame.file) {
            return Self::special(IMPORT);
        }
        let library = paths::is_library(&frame.file);
        Self { library, file: frame.file, function: frame.function, line: frame.line }
    }

    /// Frames without file and line.
    fn special(function: &str) -> Self {
        let function = function.to_owned();
        Self { file: String::new(), function, line: None, library: false }
    }

    /// Whether it stands for frames without file and line.
    fn is(&self, special: &str) -> bool {
        self.file.is_empty() && self.function == special
    }
}

/// The frames of the trace being read, by their names in it.
#[derive(Debug, Default)]
pub(crate) struct TraceFrames {
    frames: HashMap<FrameId, (Option<FrameId>, LocationId)>,
}

impl TraceFrames {
    /// Adds a frame; if two have the same id, the later counts. Parents may come later.
    pub(crate) fn add(&mut self, frame: Frame, tree: &mut StackTree) {
        let (id, parent) = (frame.id, frame.parent);
        if self.frames.len() < FRAMES_KEPT
            && let Some(location) = tree.frame(frame)
        {
            self.frames.insert(id, (parent, location));
        }
    }

    /// The stack of this name, if there is one.
    pub(crate) fn known(&self, name: Option<FrameId>, tree: &mut StackTree) -> Option<NodeId> {
        self.resolve(name?, tree)
    }

    /// The stack of this name. A frame that the trace does not describe counts as unreadable.
    pub(crate) fn resolve(&self, innermost: FrameId, tree: &mut StackTree) -> Option<NodeId> {
        let mut locations = Vec::new();
        let mut next = Some(innermost);
        while let Some(id) = next {
            if locations.len() >= DEPTH {
                locations.extend(tree.special(Frame::OUTER));
                break;
            }
            let (parent, location) = match self.frames.get(&id) {
                Some((parent, location)) => (*parent, Some(*location)),
                None => (None, tree.special(Frame::UNREADABLE)),
            };
            locations.extend(location);
            next = parent;
        }
        tree.node(locations.into_iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: FrameId, parent: Option<FrameId>, file: &str, line: u32) -> Frame {
        Frame { id, parent, function: format!("f{line}"), file: file.to_owned(), line: Some(line) }
    }

    fn lines(tree: &StackTree, node: NodeId) -> Vec<Option<u32>> {
        tree.frames(node).map(|frame| frame.line).collect()
    }

    #[test]
    fn stacks_of_two_traces_are_one_where_they_are_the_same() {
        let mut tree = StackTree::default();
        let mut first = TraceFrames::default();
        first.add(frame(1, None, "a.py", 1), &mut tree);
        first.add(frame(2, Some(1), "a.py", 2), &mut tree);
        let mut second = TraceFrames::default();
        // Other names, the parent described last.
        second.add(frame(7, Some(9), "a.py", 2), &mut tree);
        second.add(frame(9, None, "a.py", 1), &mut tree);
        let node = first.resolve(2, &mut tree).unwrap();
        assert_eq!(second.resolve(7, &mut tree), Some(node));
        assert_eq!(lines(&tree, node), [Some(2), Some(1)]);
        assert_eq!(tree.nodes.len(), 2);
    }

    /// The tree and the node of a stack of these files, outermost first, line 1 and on.
    fn stack(files: &[&str]) -> (StackTree, NodeId) {
        let mut tree = StackTree::default();
        let mut frames = TraceFrames::default();
        for (id, file) in (1..).zip(files) {
            let parent = Some(id - 1).filter(|parent| *parent > 0);
            frames.add(frame(id, parent, file, id), &mut tree);
        }
        let node = frames.resolve(files.len() as FrameId, &mut tree).unwrap();
        (tree, node)
    }

    #[test]
    fn frames_of_the_import_system_are_left_out_and_name_the_import() {
        const TORCH: &str = "/v/lib/python3.12/site-packages/torch/__init__.py";
        const NUMPY: &str = "/v/lib/python3.12/site-packages/numpy/core/a.py";
        const LOAD: &str = "<frozen importlib._bootstrap>";
        const FILE: &str = "<frozen importlib._bootstrap_external>";
        const IMPORTLIB: &str = "/usr/lib/python3.12/importlib/__init__.py";
        for (files, shown, own_line, import) in [
            (&["t.py"][..], &[1][..], 1, None),
            (&["t.py", LOAD, FILE, TORCH], &[4, 1], 1, Some("torch")),
            (&["t.py", LOAD, TORCH, LOAD, NUMPY], &[5, 3, 1], 1, Some("torch")),
            (&["t.py", IMPORTLIB, LOAD, NUMPY, FILE], &[4, 1], 1, Some("numpy.core.a")),
            (&["t.py", LOAD, FILE], &[1], 1, Some("")),
            (&["t.py", LOAD, "m.py", LOAD, TORCH], &[5, 3, 1], 3, Some("torch")),
            (&["t.py", LOAD, "m.py"], &[3, 1], 3, None),
            // The library imports, not the program.
            (&["t.py", TORCH, LOAD, NUMPY], &[4, 2, 1], 1, None),
        ] {
            let (tree, node) = stack(files);
            let lines = lines(&tree, node);
            assert_eq!(lines, shown.iter().copied().map(Some).collect::<Vec<_>>(), "{files:?}");
            assert_eq!(tree.own_line(node).line, Some(own_line), "{files:?}");
            assert_eq!(tree.imported(&tree.nodes[node]).as_deref(), import, "{files:?}");
            let importing = files.iter().skip(own_line as usize).any(|file| *file == LOAD);
            assert_eq!(tree.is_import(node), importing, "{files:?}");
        }
    }

    #[test]
    fn a_stack_in_the_import_system_alone_is_one_line() {
        let (tree, node) = stack(&["<frozen importlib._bootstrap>"; 3]);
        assert!(tree.is_import(node));
        assert_eq!(tree.own_line(node).function, IMPORT);
        assert_eq!(lines(&tree, node), [None]);
    }

    #[test]
    fn circles_end_and_unknown_frames_are_named() {
        let mut tree = StackTree::default();
        let mut frames = TraceFrames::default();
        frames.add(frame(1, Some(2), "a.py", 1), &mut tree);
        frames.add(frame(2, Some(1), "a.py", 2), &mut tree);
        frames.add(frame(3, Some(99), "a.py", 3), &mut tree);
        let node = frames.resolve(1, &mut tree).unwrap();
        assert_eq!(lines(&tree, node).len(), DEPTH + 1);
        let last = tree.frames(node).last().unwrap();
        assert_eq!(last.function, Frame::OUTER);
        let node = frames.resolve(3, &mut tree).unwrap();
        let functions: Vec<&str> = tree.frames(node).map(|f| f.function.as_str()).collect();
        assert_eq!(functions, ["f3", Frame::UNREADABLE]);
    }
}
