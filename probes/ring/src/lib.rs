//! How `libgctrace_inject.so` passes events to gctrace: a ring of messages in shared memory.
//!
//! ```text
//! traced process                                  gctrace
//!   memfd_create, sealed                            socket in a folder of mode 0700 (rendezvous.rs)
//!   connect, send the descriptor  ----------------> accept, check peer and seals, map
//!   Producer::push, from any thread  ~~ memory ~~>  Consumer::read
//! ```
//!
//! Owns the memory's layout, the messages, and the rendezvous. Knows nothing of Python, of CUPTI, or
//! of how the messages are used. Depends on libc and zerocopy alone, because one side of it runs
//! inside other programs: there nothing blocks, unwinds, or writes to the terminal.
//!
//! - Lossy by counting: a full ring refuses a message and counts it ([`LostRecords`]).
//! - The memory has no name, so no other user can open or replace it; the socket is in a folder
//!   that only its owner can enter. Sealed against shrinking, it can be read without a SIGBUS.
//! - It outlives either side: messages pushed before a SIGKILL are read afterwards.
//!
//! Both ends in one process, without the socket:
//!
//! ```
//! use gctrace_ring::{GpuMessage, RingConsumer, RingProducer};
//! use std::os::fd::AsFd as _;
//!
//! let (producer, descriptor) = RingProducer::create(1 << 10).ok_or("no memory for a ring")?;
//! let mut consumer = RingConsumer::open(descriptor.as_fd(), 1 << 10)?;
//! assert!(producer.push(&GpuMessage::Flushed { at_ns: 5 }));
//! let writer_is_dead = false;
//! let read = consumer.read(writer_is_dead, |message: GpuMessage| {
//!     assert_eq!(message, GpuMessage::Flushed { at_ns: 5 });
//! });
//! assert_eq!((read.messages, producer.lost().total()), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod absence;
mod consumer;
mod heap;
mod layout;
mod message;
mod options;
mod producer;
mod quietly;
mod rendezvous;
#[cfg(test)]
mod tests;

pub use absence::{ABSENCE_FILE, Absence, AbsenceFiles, CONFINED_FILE};
pub use consumer::{RingConsumer, RingOpenError, RingRead};
pub use gctrace_settings::{GarbageDetail, LAYERS_BY_BUDGET};
pub use heap::{HeapNotice, HeapState, report_heap};
pub use layout::{
    AllocationTotals, CLASSES, GPU_RECORDS, LostKind, LostRecords, PYTHON_RECORDS, WorkCost,
    WorkKind, class_of, largest_of_class,
};
pub use message::*;
pub use options::{
    InjectOptions, MEMORY_HISTORY_VARIABLE, OPTIONS_VARIABLE, STEP_FUNCTION_VARIABLE,
    seccomp_filters,
};
pub use producer::{OwnerMark, RingProducer};
pub use quietly::quietly;
pub use rendezvous::{
    OfferState, OfferedRing, RENDEZVOUS_VARIABLE, RingConnection, RingHello, RingListener,
    RingRole, offer,
};

/// Name of the exported symbol [`GCTRACE_INJECT_VERSION`].
pub const VERSION_SYMBOL: &str = "GCTRACE_INJECT_VERSION";

/// Version of gctrace that this crate is part of, as in `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version as exported by the library: not NUL-terminated.
// SAFETY: no other crate has a symbol of this name.
#[unsafe(no_mangle)]
pub static GCTRACE_INJECT_VERSION: [u8; VERSION.len()] = {
    let mut text = [0; VERSION.len()];
    text.copy_from_slice(VERSION.as_bytes());
    text
};
