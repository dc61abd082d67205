//! The simulator's schedule: streams, operations, when each starts and ends. Pure: no clock of its
//! own, no C, no files; callers pass the time.
//!
//! Rules, in nanoseconds of one clock:
//! - an operation starts at the latest of: its launch plus the launch latency, the end of the
//!   previous operation of its stream plus the gap, the ends of the operations it waits for;
//! - it ends its duration later; a collective ends for all ranks a transfer time after the last of
//!   them has started;
//! - markers (events, waits) take no time and no gap;
//! - the legacy default stream of a device waits for all its blocking streams, and they wait for
//!   it;
//! - operations of different streams never slow each other down: the device has unlimited
//!   multiprocessors, and one copy engine per stream.

mod completion;
mod machine;
mod operation;
mod stream;

#[cfg(test)]
mod tests;

pub(crate) use completion::Completion;
pub(crate) use machine::SimMachine;
pub(crate) use operation::{FinishedOperation, Operation, OperationKind, Rendezvous};
pub(crate) use stream::StreamKind;

/// Maximum number of unfinished launches in a stream; the next one blocks its caller. CUDA
/// documents no limit; 1,024 is commonly observed, and is what gctrace's replay assumes.
pub(crate) const QUEUE_LIMIT: usize = 1024;

/// Overhead of the hardware in addition to the operations themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HardwareTiming {
    /// From the launching call to the earliest start.
    pub(crate) latency_ns: u64,
    /// Between two operations of a stream.
    pub(crate) gap_ns: u64,
}
