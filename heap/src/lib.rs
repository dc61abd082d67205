//! Heaps of CPython programs: the objects of one interpreter at one moment, and the references
//! between them. Everything about heaps but its command line and its words (`tracer/src/heap`).
//!
//! ```no_run
//! use gctrace_heap::{Dominators, Heap, HeapOptions, RunningHeap};
//!
//! let mut running = RunningHeap::open(4242, HeapOptions::default())?;
//! let stop = running.longest_stop()?;
//! println!("{} bytes, stopped for at most about {stop:?}", running.bytes());
//! let heap = Heap::new(running.take()?)?;
//! println!("{:?}", heap.retained(&Dominators::new(&heap), 20));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`HeapGraph`]: a heap as data;
//! - `take`: from a running program, on Linux; nothing is written to its memory, no code runs in it;
//! - [`mod@file`]: in a file, `.gcheap`;
//! - [`reach`]: checked and indexed, [`Heap`]; [`dominators`]: what each object keeps alive;
//! - [`answers`], [`why`], [`suspects`], [`mod@diff`], [`cycle`], [`names`]: answers to questions, as
//!   [`report`] defines them;
//! - [`state`]: threads, collector and memory, without the objects.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(rustdoc::private_intra_doc_links, reason = "the map above is for readers of the code")]

mod answers;
mod cycle;
mod diff;
mod dominators;
mod file;
mod names;
mod reach;
pub mod report;
pub mod state;
mod suspects;
#[cfg(target_os = "linux")]
mod take;
#[cfg(test)]
mod testing;
mod why;

pub use diff::diff;
pub use dominators::{Dominators, Retained};
pub use file::{HeapFileError, MAGIC};
pub use reach::{Heap, InvalidHeap, Reached};
#[cfg(target_os = "linux")]
pub use take::{
    HeapCallback, HeapError, HeapOptions, NotebookShell, RunningHeap, StateOptions, look,
};

use gctrace_event::{KindId, ObjectKind};

/// A heap: nodes are objects, edges are references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapGraph {
    /// When and how it was taken.
    pub header: HeapHeader,
    /// Kinds of objects, each under its own number.
    pub kinds: Vec<ObjectKind>,
    /// Names of references and labels of objects; [`TextIndex`] counts from 0.
    pub texts: Vec<String>,
    /// The objects: first the tracked ones, oldest first. Then untracked objects that these refer to, as far as they
    /// were read: dicts and tuples no longer tracked, arrays, tensors. Each address appears once.
    pub nodes: Vec<HeapNode>,
    /// References between nodes, ordered by `from`; references to other objects are left out.
    pub edges: Vec<HeapEdge>,
    /// Where the program holds objects from: modules, frames, the interpreter's own state.
    pub roots: Vec<HeapRoot>,
}

/// Position in [`HeapGraph::nodes`].
pub type NodeIndex = u32;

/// Position in [`HeapGraph::texts`].
pub type TextIndex = u32;

/// When and how a heap was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HeapHeader {
    /// Process id in the host's initial pid namespace.
    pub pid: u32,
    /// Command line, one element per argument.
    pub command: Vec<String>,
    /// Version of its interpreter, for example `3.12.4`.
    pub version: String,
    /// When it was taken, in ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The same moment in seconds since 1970.
    pub taken_s: u64,
    /// `true`: walked in-process by each type's own `tp_traverse`; `false`: copied from outside and
    /// read by the layouts of this version.
    pub in_process: bool,
    /// How long the program was stopped for it, in ns; `null` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_ns: Option<u64>,
    /// Missing and uncertain facts, in sentences.
    pub notes: Vec<String>,
}

/// An object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapNode {
    /// Address, as `id()` returns it.
    pub address: u64,
    /// Its kind.
    pub kind: KindId,
    /// Its label: a module's or a function's name, the start of a text; `None` for most objects.
    pub label: Option<TextIndex>,
    /// Its reference count; `None` if it is immortal or unknown.
    pub references: Option<u32>,
    /// Its own memory in bytes, as [`gctrace_event::KindCount::bytes`]; `None` if unknown.
    pub bytes: Option<u64>,
    /// Where the collector keeps it.
    pub place: HeapPlace,
}

/// Where the collector keeps an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeapPlace {
    /// In a generation, 0 (youngest) to 2.
    Generation(u8),
    /// In the permanent generation: `gc.freeze()` put it there.
    Frozen,
    /// Tracked, where generations are not known (free-threaded builds).
    Tracked,
    /// The collector does not track it.
    #[default]
    Untracked,
}

/// A reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapEdge {
    /// The object that refers.
    pub from: NodeIndex,
    /// The object that is referred to.
    pub to: NodeIndex,
    /// How Python would write it: see [`gctrace_event::CycleEdge::name`].
    pub name: HeapEdgeName,
}

/// The name of a reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeapEdgeName {
    /// An attribute, a key or a variable: `.hooks`, `['key']`, `.__closure__`.
    Text(TextIndex),
    /// An item of a list or tuple: `[3]`.
    Item(u32),
    /// It has none that could be read.
    #[default]
    Unnamed,
}

/// A place outside the heap that holds an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapRoot {
    /// The object that is held.
    pub node: NodeIndex,
    /// Name of the holder: `module train`, `frame main (train.py:12)`, `sys.modules`, `outside the heap`.
    pub name: TextIndex,
}

impl HeapRoot {
    /// Name of a root that is only known to exist: an object with more references than the heap
    /// shows.
    pub const OUTSIDE: &'static str = "outside the heap";
    /// Start of the names of frames.
    pub const FRAME: &'static str = "frame ";
}
