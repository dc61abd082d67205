//! The source of an event.

/// The source of an event. All timestamps are of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// Probes on the functions themselves (eBPF), from outside. Of traces of other tools: whatever
    /// that tool has.
    #[default]
    Probes,
    /// gctrace's library within the process: `gc.callbacks` for collections, CUPTI for calls.
    Injected,
    /// Both. The times of the event are those of the probes.
    Both {
        /// Start as recorded in-process.
        start_ns: u64,
        /// End as recorded in-process; never before `start_ns`.
        end_ns: u64,
    },
}
