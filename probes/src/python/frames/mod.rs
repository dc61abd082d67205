//! The Python stack of a thread.
//!
//! Owns its layout in memory by version ([`FrameLayout`]) and how it is walked in a process that
//! may keep running. Decoding the frames' code objects is done elsewhere.

mod threads;
mod versions;
mod walk;

pub use gctrace_cpython::{FrameLayout, GilHolder, InstructionPointer};
pub use threads::{current_thread, thread_by_id};
pub(crate) use versions::{CODE_VERSION, frame_layout};
pub use walk::{WalkedFrame, walk};
