//! Takes the heap of a running CPython program from outside: copies the memory that its objects are
//! in while all its threads are stopped, and reads objects and references from the copy.
//!
//! - [`regions`]: the memory that may be read; [`image`]: the copy;
//! - [`limits`]: how much of a program is read;
//! - [`stop`]: all threads stopped and resumed; [`watchdog`]: for 2 s at most, whatever happens;
//! - [`layout`]: offsets by version, as data;
//! - [`collector`]: the collector's lists; [`walk`], [`shapes`], [`frames`], [`roots`]: objects, and all references to
//!   them; [`graph`]: the result;
//! - [`tables`]: memory allocated since the first pass;
//! - [`running`]: the order of all this;
//! - [`notebook`]: the numbers of its cells;
//! - [`state`]: what the program does, without its objects; [`pymalloc`]: the allocator's blocks.
//!
//! Nothing is written to the program's memory, and no code runs in it.

mod code;
mod collector;
mod containers;
mod error;
mod frames;
mod graph;
mod image;
mod layout;
mod limits;
mod notebook;
mod pymalloc;
mod regions;
mod roots;
mod running;
mod shapes;
mod state;
mod stop;
mod tables;
mod text;
mod types;
mod walk;
mod watchdog;

pub use error::HeapError;
pub use notebook::NotebookShell;
pub use running::{HeapOptions, RunningHeap};
pub use state::{StateOptions, look};
pub use stop::HeapCallback;

use std::collections::{HashMap, HashSet};

/// Maps by address. Programs choose the addresses, so the hash has a secret of this process.
pub(crate) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
pub(crate) type FastSet<K> = HashSet<K, foldhash::fast::RandomState>;
