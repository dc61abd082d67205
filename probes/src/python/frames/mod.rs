//! The Python stack of a thread.
//!
//! Owns its layout in memory by version ([`FrameLayout`]) and how it is walked in a process that
//! may keep running. Decoding the frames' code objects is done elsewhere.

mod threads;
mod versions;
mod walk;

pub use gctrace_abi::FrameLayout;
pub use gctrace_abi::GilHolder;
pub use gctrace_abi::InstructionPointer;
pub use threads::current_thread;
pub use threads::thread_by_id;
pub(crate) use versions::frame_layout;
pub use walk::WalkedFrame;
pub use walk::walk;
