//! The tree of Python frames of a trace.
//!
//! Owns the ids of frames: each frame is written once, for all sources and processes.

use crate::record::output::RecordSink;
use gctrace_event::{Frame, FrameId, Record};
use std::collections::HashMap;
use std::rc::Rc;

/// Every frame written to the trace so far, each identified by its caller, function, file and line.
#[derive(Default)]
pub(crate) struct FrameTree {
    tree: HashMap<FrameNode, FrameId>,
    names: HashMap<Rc<str>, Rc<str>>,
}

/// A frame, identified by its properties and its parent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct FrameNode {
    /// The frame that called this one; `None` for the outermost.
    pub parent: Option<FrameId>,
    pub function: Rc<str>,
    /// Path of the source file as in `co_filename`: may be relative, or `<string>`.
    pub file: Rc<str>,
    /// Line that was running, counted from 1; `None` if the source gave none.
    pub line: Option<u32>,
}

impl FrameTree {
    /// The frame's id in the trace; writes the frame if it is new.
    pub(crate) fn place(&mut self, node: FrameNode, sink: &mut impl RecordSink) -> FrameId {
        if let Some(id) = self.tree.get(&node) {
            return *id;
        }
        let id = self.tree.len() as FrameId + 1;
        debug_assert!(id > 0, "invariant: memory ends before the ids of frames");
        sink.write(&Record::Frame(Frame {
            id,
            parent: node.parent,
            function: node.function.to_string(),
            file: node.file.to_string(),
            line: node.line,
        }));
        self.tree.insert(node, id);
        id
    }

    /// The shared copy of a name.
    pub(crate) fn name(&mut self, name: &str) -> Rc<str> {
        if let Some(known) = self.names.get(name) {
            return Rc::clone(known);
        }
        let name: Rc<str> = Rc::from(name);
        self.names.insert(Rc::clone(&name), Rc::clone(&name));
        name
    }
}
