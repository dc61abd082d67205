//! Python stacks: the tree of all of them, and the pauses of each.
//!
//! Owns the merging of the stacks of several traces into one tree. The sums are in
//! `stacks/sums.rs`; `stacks/ranking.rs` selects the lines and stacks of a report.

mod ranking;
mod sums;

pub(crate) use ranking::RankingLimits;
pub(crate) use ranking::StackRanking;
pub(crate) use sums::StackSums;
pub(crate) use sums::TraceStacks;

use crate::paths;
use crate::report::Location;
use gctrace_event::Frame;
use gctrace_event::FrameId;
use indexmap::IndexSet;
use std::collections::HashMap;

/// Frames kept per trace, and nodes over all traces: a hundred times what large programs have. It
/// only guards memory against traces that are not what they seem.
const FRAMES_KEPT: usize = 1 << 20;
/// Frames of one stack; ends circles in traces of other tools.
const DEPTH: usize = 1024;

/// Index of a node of [`StackTree`]: a stack, named by its innermost frame.
pub(crate) type NodeId = usize;
/// Index of a location of [`StackTree`].
pub(crate) type LocationId = usize;

/// All stacks of all traces, each frame once.
#[derive(Debug, Default)]
pub(crate) struct StackTree {
    locations: IndexSet<Location>,
    nodes: Vec<StackNode>,
    node_ids: HashMap<(Option<NodeId>, LocationId), NodeId>,
}

#[derive(Debug, Clone, Copy)]
struct StackNode {
    parent: Option<NodeId>,
    location: LocationId,
    /// The innermost location that is no library's.
    own: Option<LocationId>,
    /// Its outermost frames are unknown.
    cut: bool,
}

impl StackTree {
    fn frame(&mut self, frame: Frame) -> LocationId {
        let location = Location {
            library: paths::is_library(&frame.file),
            file: frame.file,
            function: frame.function,
            line: frame.line,
        };
        self.locations.insert_full(location).0
    }

    /// A frame without file and line.
    fn special(&mut self, function: &str) -> LocationId {
        let location = Location {
            file: String::new(),
            function: function.to_owned(),
            line: None,
            library: false,
        };
        self.locations.insert_full(location).0
    }

    /// The node of these frames, outermost first; `None` without frames.
    fn node(&mut self, frames: impl Iterator<Item = LocationId>) -> Option<NodeId> {
        let mut parent = None;
        for location in frames {
            parent = match self.node_ids.get(&(parent, location)) {
                Some(known) => Some(*known),
                None if self.nodes.len() >= FRAMES_KEPT => return parent,
                None => Some(self.new_node(parent, location)),
            };
        }
        parent
    }

    fn new_node(&mut self, parent: Option<NodeId>, location: LocationId) -> NodeId {
        let above = parent.map(|parent| self.nodes[parent]);
        let line = &self.locations[location];
        let own = !line.library && !line.file.is_empty();
        let outer = line.function == Frame::OUTER;
        let id = self.nodes.len();
        self.nodes.push(StackNode {
            parent,
            location,
            own: match own {
                true => Some(location),
                false => above.and_then(|above| above.own),
            },
            cut: outer || above.is_some_and(|above| above.cut),
        });
        self.node_ids.insert((parent, location), id);
        id
    }

    fn location(&self, id: LocationId) -> &Location {
        &self.locations[id]
    }

    /// The innermost line of a stack that is no library's; its innermost line where all are.
    pub(crate) fn own_line(&self, node: NodeId) -> &Location {
        let node = &self.nodes[node];
        self.location(node.own.unwrap_or(node.location))
    }

    /// The frames of a stack from the innermost to the outermost.
    pub(crate) fn frames(&self, node: NodeId) -> impl Iterator<Item = &Location> {
        let parent = |node: &&StackNode| Some(&self.nodes[node.parent?]);
        let nodes = std::iter::successors(Some(&self.nodes[node]), parent);
        nodes.map(|node| self.location(node.location))
    }
}

/// The frames of the trace being read, by their names in it.
#[derive(Debug, Default)]
pub(crate) struct TraceFrames {
    frames: HashMap<FrameId, (Option<FrameId>, LocationId)>,
}

impl TraceFrames {
    /// Adds a frame; of two with the same id the later counts. Parents may come later.
    pub(crate) fn add(&mut self, frame: Frame, tree: &mut StackTree) {
        if self.frames.len() < FRAMES_KEPT && tree.locations.len() < FRAMES_KEPT {
            let (id, parent) = (frame.id, frame.parent);
            let location = tree.frame(frame);
            self.frames.insert(id, (parent, location));
        }
    }

    /// The stack of this name. A frame that the trace does not describe is one that cannot be read.
    pub(crate) fn resolve(&self, innermost: FrameId, tree: &mut StackTree) -> Option<NodeId> {
        let mut locations = Vec::new();
        let mut next = Some(innermost);
        while let Some(id) = next {
            if locations.len() >= DEPTH {
                locations.push(tree.special(Frame::OUTER));
                break;
            }
            let (parent, location) = match self.frames.get(&id) {
                Some(known) => *known,
                None => (None, tree.special(Frame::UNREADABLE)),
            };
            locations.push(location);
            next = parent;
        }
        tree.node(locations.into_iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: FrameId, parent: Option<FrameId>, file: &str, line: u32) -> Frame {
        Frame {
            id,
            parent,
            function: format!("f{line}"),
            file: file.to_owned(),
            line: Some(line),
        }
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
