//! What the GPUs and the host did, and what pauses cost.
//!
//! [`timeline`] is the common base: the operations, calls, pauses and steps of one process, sorted
//! and linked. All other modules only read it.

pub mod bounds;
pub(crate) mod breakdown;
pub mod calls;
pub(crate) mod cause;
pub mod collect;
pub(crate) mod cost;
pub mod delayed;
pub(crate) mod device;
pub(crate) mod devices;
pub(crate) mod idle;
pub mod kept;
pub(crate) mod launching;
pub mod merge;
mod periods;
pub mod ranks;
pub mod replay;
pub mod replays;
pub(crate) mod steps;
pub(crate) mod summary;
pub mod timeline;

pub use idle::IdleLedger;
