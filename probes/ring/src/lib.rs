//! How `libgctrace_inject.so` passes events to gctrace: a ring of fixed-size records in shared
//! memory.
//!
//! ```text
//! traced process                                  gctrace
//!   memfd_create, sealed                            socket in a folder of mode 0700 (rendezvous.rs)
//!   connect, send the descriptor  ----------------> accept, check peer and seals, map
//!   Producer::push, from any thread  ~~ memory ~~>  Consumer::read
//! ```
//!
//! Owns the memory's layout, the records, and the rendezvous. Knows nothing of Python, of CUPTI, or
//! of how the records are used. Depends on libc and zerocopy alone, because one side of it runs
//! inside other programs: there nothing blocks, unwinds, or writes to the terminal.
//!
//! - Lossy by counting: a full ring refuses a record and counts it ([`LostRecords`]).
//! - The memory has no name, so no other user can open or replace it; the socket is in a folder
//!   that only its owner can enter. Sealed against shrinking, it can be read without a SIGBUS.
//! - It outlives either side: what was pushed before a SIGKILL is read afterwards.
//!
//! Both ends in one process, without the socket:
//!
//! ```
//! use gctrace_ring::RingConsumer;
//! use gctrace_ring::RingProducer;
//! use gctrace_ring::RingRecord;
//! use std::os::fd::AsFd as _;
//!
//! let (producer, descriptor) = RingProducer::create(1 << 10).ok_or("no memory for a ring")?;
//! let mut consumer = RingConsumer::open(descriptor.as_fd(), 1 << 10)?;
//! assert!(producer.push(&RingRecord::Flushed { at_ns: 5 }));
//! let writer_is_dead = false;
//! let read = consumer.read(writer_is_dead, |record| {
//!     assert_eq!(record, Ok(RingRecord::Flushed { at_ns: 5 }));
//! });
//! assert_eq!((read.records, producer.lost().total()), (1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod absence;
mod allocations;
mod consumer;
mod heap;
mod layout;
#[cfg(test)]
mod memory;
mod options;
mod owner;
mod producer;
mod record;
mod rendezvous;
mod version;

pub use absence::ABSENCE_FILE;
pub use absence::Absence;
pub use absence::absences;
pub use allocations::AllocationTotals;
pub use allocations::CLASSES;
pub use allocations::class_of;
pub use allocations::largest_of_class;
pub use consumer::RingConsumer;
pub use consumer::RingOpenError;
pub use consumer::RingRead;
pub use heap::HeapNotice;
pub use heap::HeapState;
pub use heap::report_heap;
pub use layout::GPU_RECORDS;
pub use layout::LostKind;
pub use layout::LostRecords;
pub use layout::PYTHON_RECORDS;
pub use options::GarbageDetail;
pub use options::InjectOptions;
pub use options::OPTIONS_VARIABLE;
pub use options::STEP_FUNCTION_VARIABLE;
pub use options::seccomp_filters;
pub use owner::OwnerMark;
pub use producer::RingProducer;
pub use record::ApiLayer;
pub use record::CuptiState;
pub use record::GpuRecord;
pub use record::HookState;
pub use record::KINDS_AT_ONCE;
pub use record::MalformedRecord;
pub use record::NO_TEXT;
pub use record::OUTER_FRAMES;
pub use record::RingCycleCount;
pub use record::RingGarbage;
pub use record::RingGpuOp;
pub use record::RingKindCount;
pub use record::RingPause;
pub use record::RingRecord;
pub use record::StepMarker;
pub use record::TEXT_BYTES;
pub use record::TextId;
pub use record::TextPiece;
pub use record::TimeInterval;
pub use record::pieces;
pub use rendezvous::OfferState;
pub use rendezvous::OfferedRing;
pub use rendezvous::RENDEZVOUS_VARIABLE;
pub use rendezvous::RingConnection;
pub use rendezvous::RingHello;
pub use rendezvous::RingListener;
pub use rendezvous::RingRole;
pub use rendezvous::offer;
pub use version::GCTRACE_INJECT_VERSION;
pub use version::VERSION;
pub use version::VERSION_SYMBOL;
