//! The stacks of a page, each frame once.

use crate::print::clean;
use gctrace_analysis::report::Location;
use std::collections::HashMap;

/// Stacks as nodes of a tree; 0 is no stack.
#[derive(Default)]
pub(super) struct PageStacks {
    strings: Vec<String>,
    string_ids: HashMap<String, u64>,
    /// File, line and function of each frame, in a row.
    frames: Vec<u64>,
    frame_ids: HashMap<[u64; 3], u64>,
    /// Caller and frame of each node, in a row.
    nodes: Vec<u64>,
    node_ids: HashMap<(u64, u64), u64>,
}

impl PageStacks {
    /// The node of these frames, the outermost first.
    pub(super) fn node(&mut self, frames: &[&Location]) -> u64 {
        let mut node = 0;
        for frame in frames {
            let frame = self.frame(frame);
            let next = self.node_ids.len() as u64 + 1;
            node = *self.node_ids.entry((node, frame)).or_insert_with(|| {
                self.nodes.extend([node, frame]);
                next
            });
        }
        node
    }

    /// The strings, and three numbers for each frame: places of file and function in them, and one more than
    /// the line, 0 without one.
    pub(super) fn frames(&self) -> (&[String], &[u64]) {
        (&self.strings, &self.frames)
    }

    /// Two numbers for each node, counted from 1: the node of its caller, and the place of its frame.
    pub(super) fn nodes(&self) -> &[u64] {
        &self.nodes
    }

    fn frame(&mut self, frame: &Location) -> u64 {
        let line = super::pack::or_zero(frame.line.map(u64::from));
        let key = [self.string(&frame.file), line, self.string(&frame.function)];
        let next = self.frame_ids.len() as u64;
        *self.frame_ids.entry(key).or_insert_with(|| {
            self.frames.extend(key);
            next
        })
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(known) = self.string_ids.get(text) {
            return *known;
        }
        let id = self.strings.len() as u64;
        self.strings.push(clean::line(text).into_owned());
        self.string_ids.insert(text.to_owned(), id);
        id
    }
}
