//! Takes the heap of a running CPython program from outside: copies the memory that its objects are
//! in while all its threads are stopped, and reads objects and references from the copy.
//!
//! ```no_run
//! use gctrace_heap::HeapOptions;
//! use gctrace_heap::RunningHeap;
//!
//! let mut heap = RunningHeap::open(4242, HeapOptions::default())?;
//! let stop = heap.longest_stop()?;
//! println!("{} bytes, stopped for at most about {stop:?}", heap.bytes());
//! let graph = heap.take()?;
//! println!("{} objects", graph.nodes.len());
//! # Ok::<(), gctrace_heap::HeapError>(())
//! ```
//!
//! - [`regions`]: which memory may be read; [`image`]: the copy;
//! - [`limits`]: how much of a program is read;
//! - [`stop`]: all threads stopped and let go; [`watchdog`]: for 2 s at most, whatever happens;
//! - [`layout`]: offsets by version, as data;
//! - [`collector`]: the collector's lists; [`walk`], [`shapes`], [`frames`], [`roots`]: objects and
//!   what refers to them; [`graph`]: the result;
//! - [`tables`]: what was allocated since the first pass;
//! - [`take`]: the order of all this.
//!
//! Nothing is written to the program's memory, and no code runs in it.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(rustdoc::private_intra_doc_links, reason = "the map above is for readers of the code")]

mod code;
mod collector;
mod containers;
mod error;
mod frames;
mod graph;
mod hash;
mod image;
mod layout;
mod limits;
mod regions;
mod roots;
mod shapes;
mod stop;
mod tables;
mod take;
mod text;
mod types;
mod walk;
mod watchdog;

pub use error::HeapError;
pub use stop::HeapCallback;
pub use take::{HeapOptions, RunningHeap};
