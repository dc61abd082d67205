//! The operations that a stream executes.

use super::Completion;
use std::fmt;
use std::sync::Arc;

/// Kinds of operation, with their names in the truth log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Kernel,
    /// The value is the vendor's `CUpti_ActivityMemcpyKind`: 1 host to device, 2 device to host,
    /// 8 device to device, 10 peer to peer, 0 unknown.
    Memcpy(u8),
    Memset,
    Collective,
    /// `cuLaunchHostFunc`: the stream waits while the host runs a function.
    HostFunction,
    /// `cuEventRecord`.
    Event,
    /// `cuStreamWaitEvent`.
    Wait,
}

impl OperationKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Memcpy(_) => "memcpy",
            Self::Memset => "memset",
            Self::Collective => "collective",
            Self::HostFunction => "host",
            Self::Event => "event",
            Self::Wait => "wait",
        }
    }

    /// Whether it is a marker in the stream rather than work of the device.
    pub(crate) fn is_mark(self) -> bool {
        matches!(self, Self::Event | Self::Wait)
    }
}

/// What an operation waits for after its start: in a collective the other ranks, else the function that the
/// host runs.
pub(crate) trait Rendezvous: Send + fmt::Debug {
    /// This rank's kernel, or the function, starts at `start_ns`. Called once.
    fn arrive(&mut self, start_ns: u64);
    /// Start of the last rank, once all have arrived; the end of the function, once it has returned.
    fn last_start_ns(&mut self) -> Option<u64>;
    /// The communicator's name and the index of the collective in it, from 0: the same in all
    /// ranks. Empty and 0 of a function.
    fn identity(&self) -> (Arc<str>, u64);
}

/// One operation of a stream.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) kind: OperationKind,
    pub(crate) name: Arc<str>,
    /// Of a collective: time from the last rank's start to the common end.
    pub(crate) duration_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) correlation: u32,
    /// Time of the launching call.
    pub(crate) launched_ns: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Ends it waits for in addition to its own stream's.
    pub(crate) after: Vec<Completion>,
    /// Of a wait for an event: correlation id of the call that recorded it; 0 for all others.
    pub(crate) awaited: u32,
    pub(crate) meeting: Option<Box<dyn Rendezvous>>,
}

impl Operation {
    /// An operation without geometry, bytes and dependencies.
    pub(crate) fn new(
        kind: OperationKind,
        name: Arc<str>,
        duration_ns: u64,
        launched_ns: u64,
    ) -> Self {
        Self {
            kind,
            name,
            duration_ns,
            bytes: 0,
            correlation: 0,
            launched_ns,
            grid: [0; 3],
            block: [0; 3],
            after: Vec::new(),
            awaited: 0,
            meeting: None,
        }
    }

    /// A marker, or a function of the host: takes no time of the device.
    pub(crate) fn mark(kind: OperationKind, launched_ns: u64) -> Self {
        Self::new(kind, Arc::from(""), 0, launched_ns)
    }
}

/// A scheduled operation; its end may be in the future.
#[derive(Debug)]
pub(crate) struct FinishedOperation {
    pub(crate) operation: Operation,
    pub(crate) device: u32,
    pub(crate) stream: u32,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}
