//! What the GPUs did, what the host did meanwhile, and what pauses cost them.
//!
//! [`timeline`] is the common ground: one process's operations, calls, pauses and steps, sorted
//! and linked. Everything below it only reads it.

pub mod bounds;
pub(crate) mod breakdown;
pub mod calls;
pub(crate) mod cause;
mod clocks;
pub mod collect;
pub(crate) mod device;
pub(crate) mod devices;
pub(crate) mod gaps;
pub(crate) mod intervals;
pub(crate) mod launching;
pub mod merge;
pub mod packed;
pub mod ranks;
pub mod replay;
pub(crate) mod steps;
pub(crate) mod summary;
pub mod timeline;
pub mod what_if;
