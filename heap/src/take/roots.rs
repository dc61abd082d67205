//! Places from where the program holds objects: modules, frames, the interpreter's state, and references from outside
//! the heap.

use crate::NodeIndex;
use crate::take::frames::{frame_place, old_values, untagged};
use crate::take::layout::{FrameObject, Frames, InterpreterFrame};
use crate::take::text::read_text;
use crate::take::types::Shape;
use crate::take::walk::{TypeIndex, Walk};
use crate::take::{FastSet, containers};
use gctrace_cpython::{
    CodeObject, FoundInterpreter, FrameLayout, Memory as _, StackLayout, frames,
};
use std::collections::HashMap;

/// Longest name of a module.
const LONGEST_NAME: usize = 500;
/// Most threads of an interpreter, frames of a thread and variables of a frame.
const MOST_THREADS: usize = 100_000;
const MOST_FRAMES: usize = 1_000_000;
const MOST_VARIABLES: u64 = 1 << 16;
/// `f_builtins`, `f_globals`, `f_locals` of frame objects before 3.11.
const OLD_NAMESPACES: [u64; 3] = [FrameObject::BUILTINS, FrameObject::GLOBALS, FrameObject::LOCALS];

/// A type's references are taken for wrong if at least this many, and at least this share of them,
/// are to objects that have fewer references than were found: a thread that is stopped between two
/// counts is off by a few.
const WRONG_OBJECTS: u64 = 8;
/// Most types that lose their references: each takes a pass over all references.
const WRONG_TYPES: usize = 64;
const WRONG_SHARE: f64 = 0.001;

/// Adds the roots, and takes back references that cannot be right. Returns what to note.
pub(crate) fn add_roots(walk: &mut Walk<'_>, state: &FoundInterpreter) -> Vec<String> {
    let mut roots = RootFinder { walk, named: FastSet::default(), last: Vec::new() };
    roots.modules(state);
    roots.threads(state);
    roots.interpreter(state);
    roots.outside()
}

struct RootFinder<'walk, 'image> {
    walk: &'walk mut Walk<'image>,
    /// Nodes that are roots already.
    named: FastSet<NodeIndex>,
    /// Roots of last resort: namespaces held by frames, and objects with their address in a structure of the
    /// interpreter. The interpreter's free lists keep addresses of objects that were made from them. Any other holder,
    /// usually a module, is more informative: these become roots only where nothing else reaches them.
    last: Vec<(NodeIndex, String)>,
}

impl RootFinder<'_, '_> {
    fn root(&mut self, node: Option<NodeIndex>, name: &str) {
        if let Some(node) = node
            && self.named.insert(node)
        {
            self.walk.builder.root(node, name);
        }
    }

    /// A root that has one of the references.
    fn holder(&mut self, node: Option<NodeIndex>, name: &str) {
        if let Some(node) = node {
            self.walk.builder.count(node);
        }
        self.root(node, name);
    }

    fn word(&mut self, address: u64, offset: u64) -> u64 {
        self.walk.image.pointer(address, offset)
    }

    fn modules(&mut self, state: &FoundInterpreter) {
        let layout = self.walk.layout;
        let dict = self.word(state.address, layout.interpreter.modules);
        let modules = containers::dict(self.walk.image, layout, dict).unwrap_or_default();
        for entry in modules {
            let name = read_text(self.walk.image, layout, entry.key, LONGEST_NAME);
            if let Some(name) = name {
                let node = self.walk.builder.node(entry.value);
                self.root(node, &format!("module {name}"));
            }
        }
        let node = self.walk.builder.node(dict);
        self.holder(node, "sys.modules");
        for (offset, name) in [
            (layout.interpreter.sys_dict, "sys.__dict__"),
            (layout.interpreter.builtins, "builtins.__dict__"),
        ] {
            let dict = self.word(state.address, offset);
            let node = self.walk.builder.node(dict);
            self.holder(node, name);
        }
    }

    fn threads(&mut self, state: &FoundInterpreter) {
        let frame: &FrameLayout = &self.walk.layout.frame;
        let mut thread = self.word(state.address, frame.interpreter_threads_head.into());
        for _ in 0..MOST_THREADS {
            if thread == 0 {
                break;
            }
            self.frames(thread);
            self.scan(thread, self.walk.layout.thread_size, "thread state");
            thread = self.word(thread, frame.tstate_next.into());
        }
    }

    fn frames(&mut self, thread: u64) {
        let layout = self.walk.layout;
        let innermost = frames::innermost(self.walk.image, thread, &layout.frame.stack);
        let mut frame = innermost.unwrap_or(0);
        for _ in 0..MOST_FRAMES {
            if frame == 0 {
                break;
            }
            match layout.frames {
                Frames::Objects(fields) => self.running_object(frame, fields),
                Frames::Interpreter(fields) => self.running(frame, fields),
            }
            frame = self.word(frame, layout.frame.stack.frame_back.into());
        }
    }

    /// `frame main (train.py:12)`
    fn frame_name(&mut self, frame: u64) -> String {
        let place = frame_place(self.walk, frame);
        let code = self.walk.code(place.code);
        let Some(CodeObject { function, file, .. }) = &code.object else {
            return "frame [unknown]".to_owned();
        };
        match place.line {
            Some(line) => format!("frame {function} ({file}:{line})"),
            None => format!("frame {function} ({file})"),
        }
    }

    /// A frame object that is being executed, and that the collector usually does not track.
    fn running_object(&mut self, frame: u64, fields: FrameObject) {
        let name = self.frame_name(frame);
        if let Some(node) = self.walk.builder.node(frame) {
            self.holder(Some(node), &name);
            return;
        }
        for offset in OLD_NAMESPACES {
            let dict = self.word(frame, offset);
            self.namespace(dict, &name);
        }
        let Some(code) = frames::code(self.walk.image, frame, &self.walk.layout.frame.stack) else {
            return;
        };
        let code = self.walk.code(code);
        let mut words = Vec::new();
        let first = frame.wrapping_add(fields.locals);
        let count = old_values(self.walk.image, frame, fields, first).unwrap_or(0);
        let count = count.min(MOST_VARIABLES) as usize;
        self.walk.image.words(first, count, &mut words);
        for (index, word) in words.into_iter().enumerate() {
            let variable = code.variable(index).unwrap_or("[value]");
            self.value(word, false, &format!("{name}: {variable}"));
        }
        let trace = self.word(frame, fields.trace);
        self.value(trace, false, &format!("{name}: (trace function)"));
    }

    fn namespace(&mut self, dict: u64, name: &str) {
        if let Some(node) = self.walk.builder.node(dict) {
            self.walk.builder.count(node);
            self.last.push((node, format!("{name}: (namespace)")));
        }
    }

    /// A frame that is no object: its variables.
    fn running(&mut self, frame: u64, fields: InterpreterFrame) {
        let owner = frames::owner(self.walk.image, frame, &fields.stack);
        if owner.is_none_or(|owner| owner >= StackLayout::OWNER_SHIM) {
            return;
        }
        let Some(code) = frames::code(self.walk.image, frame, &self.walk.layout.frame.stack) else {
            return;
        };
        let code = self.walk.code(code);
        if code.object.is_none() {
            return;
        }
        let name = self.frame_name(frame);
        let mut words = Vec::new();
        let count = code.variables.len().min(MOST_VARIABLES as usize);
        let first = frame.wrapping_add(fields.locals);
        self.walk.image.words(first, count, &mut words);
        for (index, word) in words.into_iter().enumerate() {
            let variable = code.variable(index).unwrap_or("[unknown]");
            self.value(word, fields.tagged, &format!("{name}: {variable}"));
        }
        for (offset, part) in [
            (fields.object, "frame object"),
            (fields.locals_dict, "locals"),
            (fields.function, "function"),
        ] {
            let word = self.word(frame, offset);
            let is_tagged = fields.tagged && offset == fields.function;
            // The locals of a module are its globals, and the module holds these too.
            let is_globals =
                offset == fields.locals_dict && word == self.word(frame, fields.globals);
            if is_globals {
                self.namespace(word, &name)
            } else {
                self.value(word, is_tagged, &format!("{name}: ({part})"))
            }
        }
    }

    /// A value in a frame.
    fn value(&mut self, word: u64, tagged: bool, name: &str) {
        if let Some((address, counted)) = untagged(word, tagged) {
            let node = self.walk.builder.node(address);
            if counted { self.holder(node, name) } else { self.root(node, name) }
        }
    }

    fn interpreter(&mut self, state: &FoundInterpreter) {
        self.scan(state.address, self.walk.layout.interpreter.size, "interpreter state");
    }

    /// Words of a structure of the interpreter that are addresses of objects.
    fn scan(&mut self, address: u64, size: u64, name: &str) {
        let mut words = Vec::new();
        self.walk.image.words(address, (size / 8) as usize, &mut words);
        for word in words {
            let node = self.walk.builder.node(word);
            // Caches have addresses without references.
            let is_held = |node: &NodeIndex| {
                let left = self.walk.builder.unexplained(*node);
                left.is_none_or(|left| left > 0)
            };
            if let Some(node) = node.filter(is_held) {
                self.walk.builder.count(node);
                self.last.push((node, name.to_owned()));
            }
        }
    }

    /// Objects with more references than were found, and with an unknown number of them.
    fn outside(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        for _ in 0..WRONG_TYPES {
            let Some((kind, objects)) = self.wrong_type() else {
                break;
            };
            let name = self.walk.type_info(kind).map_or_else(String::new, |info| info.name.clone());
            notes.push(format!(
                "The references of {name} are unknown: {objects} objects would have more references than they count"
            ));
            let types = &self.walk.node_types;
            let targets =
                self.walk.builder.remove_edges(|from| types.get(from) == Some(kind.into()));
            for target in targets {
                self.root(Some(target), OUTSIDE);
            }
        }
        self.unreached();
        let mut too_many = 0_u64;
        for node in 0..self.walk.builder.nodes.len() {
            match self.walk.builder.unexplained(node) {
                Some(0) => {}
                // Stopped between two counts: alive, to be safe.
                Some(missing) => {
                    too_many += u64::from(missing < 0);
                    self.root(Some(node), OUTSIDE);
                }
                None => self.root(Some(node), "immortal"),
            }
        }
        if too_many >= WRONG_OBJECTS {
            notes.push(format!(
                "objects that have fewer references than were found, taken for reachable: {too_many}"
            ));
        }
        notes
    }

    fn unreached(&mut self) {
        let graph = &self.walk.builder.graph;
        let mut is_reached = vec![false; self.walk.builder.nodes.len() as usize];
        let mut left: Vec<NodeIndex> = self.named.iter().copied().collect();
        while let Some(node) = left.pop() {
            if let Some(reached) = is_reached.get_mut(node as usize)
                && !std::mem::replace(reached, true)
            {
                let first = graph.edges.partition_point(|edge| edge.from < node);
                let edges = gctrace_units::part(&graph.edges, first..).iter();
                left.extend(edges.take_while(|edge| edge.from == node).map(|edge| edge.to));
            }
        }
        for (node, name) in std::mem::take(&mut self.last) {
            if is_reached.get(node as usize) != Some(&true) {
                self.root(Some(node), &name);
            }
        }
    }

    /// The type with the largest share of impossible references: other types' references to the same objects are right.
    /// With the number of these objects.
    fn wrong_type(&mut self) -> Option<(TypeIndex, u64)> {
        let builder = &self.walk.builder;
        let is_wrong: Vec<bool> = (0..builder.nodes.len())
            .map(|node| builder.unexplained(node).is_some_and(|left| left < 0))
            .collect();
        if !is_wrong.contains(&true) {
            return None;
        }
        // References to those objects, and all.
        let mut suspects: HashMap<TypeIndex, (u64, u64)> = HashMap::new();
        for edge in &builder.graph.edges {
            if let Some(kind) = self.walk.node_types.get(edge.from) {
                let (wrong, all) = suspects.entry(kind as TypeIndex).or_default();
                *wrong += u64::from(is_wrong.get(edge.to as usize) == Some(&true));
                *all += 1;
            }
        }
        let share = |(wrong, all): (u64, u64)| wrong as f64 / all.max(1) as f64;
        suspects
            .into_iter()
            .filter(|(kind, counts)| {
                let plain = self.walk.type_info(*kind).is_some_and(|info| {
                    !matches!(info.shape, Shape::List | Shape::Tuple | Shape::Set | Shape::Cell)
                });
                plain && counts.0 >= WRONG_OBJECTS && share(*counts) >= WRONG_SHARE
            })
            .max_by(|(_, one), (_, other)| share(*one).total_cmp(&share(*other)))
            .map(|(kind, (wrong, _))| (kind, wrong))
    }
}

/// Held by something that is not in the graph: C code, a value on a thread's stack, an object that
/// the collector does not track.
pub(crate) const OUTSIDE: &str = "outside the heap";
